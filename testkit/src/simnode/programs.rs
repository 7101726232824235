//! The built programs of product and simulator, laid out as on a machine with a driver.

use std::env;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Programs of the product.
const PRODUCT: [&str; 5] = [
    "mpshare",
    "mpshare-scheduler-extender",
    "mpshare-webhook",
    "kubectl-inspect-cgpu",
    "kubectl-mpshare",
];

/// Programs of the simulated driver, under the names of the real ones.
const TOOLS: [&str; 4] =
    ["nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "nvidia-smi", "cuda-sample"];

/// Simulated driver libraries: file as built, name as loaded.
const LIBRARIES: [(&str, &str); 2] =
    [("libnvidia_ml_sim.so", "libnvidia-ml.so.1"), ("libcuda_sim.so", "libcuda.so.1")];

/// Something that has to be built first isn't there.
#[derive(Debug, Error)]
pub enum ProgramsError {
    /// A file is missing.
    #[error("`{0}` isn't built; hint: `cargo build --workspace`, or run `cargo xtask test`")]
    NotBuilt(PathBuf),
    /// Laying out failed.
    #[error("can't lay out programs in `{path}`")]
    Layout {
        /// Where.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// The directory with the built programs: that of the running test or program.
pub fn built() -> PathBuf {
    let here = env::current_exe().unwrap_or_default();
    let folder = here.parent().unwrap_or(Path::new(".")).to_path_buf();
    // Test programs are one level below.
    if folder.ends_with("deps") {
        folder.parent().map_or(folder.clone(), PathBuf::from)
    } else {
        folder
    }
}

/// Links what was built into `bin` and `lib` below `directory`.
pub(super) fn lay_out(built: &Path, directory: &Path) -> Result<(), ProgramsError> {
    let (bin, lib) = (directory.join("bin"), directory.join("lib"));
    for folder in [&bin, &lib] {
        std::fs::create_dir_all(folder)
            .map_err(|source| ProgramsError::Layout { path: folder.clone(), source })?;
    }
    for program in PRODUCT.iter().chain(&TOOLS) {
        link(&built.join(program), &bin.join(program))?;
    }
    for (file, soname) in LIBRARIES {
        link(&built.join(file), &lib.join(soname))?;
    }
    Ok(())
}

fn link(from: &Path, to: &Path) -> Result<(), ProgramsError> {
    if !from.is_file() {
        return Err(ProgramsError::NotBuilt(from.to_path_buf()));
    }
    symlink(from, to).map_err(|source| ProgramsError::Layout { path: to.to_path_buf(), source })
}
