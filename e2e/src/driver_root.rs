//! The simulated driver, installed on a node as NVIDIA's is on a real one: a driver root, the state
//! that stands for the kernel module, the container runtime and the CDI specification.
//!
//! Where these directories are is the caller's business; nothing here starts anything.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use mpshare_sim_runtime::driver::{CONTROL_NODES, DriverFile, FILES};
use mpshare_sim_runtime::{Config, cdi, config};
use mpshare_sim_state::nodes::gpu_node;
use mpshare_sim_state::{Driver, SimGpu, SimState, Store};
use sha2::{Digest, Sha256};

/// A product that a node may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// Turing, 15360 MiB.
    T4,
    /// Volta, 32768 MiB.
    V100,
    /// Ampere, 40960 MiB, with MIG off.
    A100,
    /// The same with MIG on: no card for MPS.
    A100Mig,
    /// Pascal, 7680 MiB: older than hard memory limits.
    P4,
}

impl Model {
    fn name(self) -> &'static str {
        match self {
            Self::T4 => "t4",
            Self::V100 => "v100",
            Self::A100 | Self::A100Mig => "a100",
            Self::P4 => "p4",
        }
    }
}

/// The cards of the node `node`, in order. Their UUIDs follow from the name and the position: a
/// node that is built again has the same cards, and no two nodes share one.
pub fn cards(node: &str, models: &[Model]) -> Vec<SimGpu> {
    let card = |(index, model): (u32, &Model)| {
        let mut gpu = SimGpu::of_model(model.name(), index, &uuid(node, index))?;
        if *model == Model::A100Mig {
            gpu.mig_enabled = Some(true);
        }
        Some(gpu)
    };
    (0..).zip(models).filter_map(card).collect()
}

fn uuid(node: &str, index: u32) -> String {
    let digest = Sha256::digest(format!("{node}/{index}"));
    let number = digest.first_chunk().copied().map_or(0, u128::from_be_bytes);
    let hex = format!("{number:032x}");
    let part = |range| hex.get(range).unwrap_or_default();
    let parts = [part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)];
    format!("GPU-{}", parts.join("-"))
}

/// Makes the state directory of a node with these cards, as after a boot: no process on them.
pub fn create_state(dir: &Path, driver: Driver, gpus: &[SimGpu]) -> Result<Store> {
    let state = SimState { driver, gpus: gpus.to_vec(), ..SimState::default() };
    Store::create(dir, &state).context("can't make the state of a simulated node")
}

/// Lays out a driver root in `root` from the programs and libraries in `binaries` (a directory that
/// cargo has built into), with device nodes for `gpus`.
pub fn install(root: &Path, binaries: &Path, gpus: &[SimGpu]) -> Result<()> {
    for file in FILES {
        let source = binaries.join(built_name(file));
        copy_executable(&source, &root.join(file.path()))
            .with_context(|| format!("can't install `{}`", source.display()))?;
    }
    let gpu_nodes = gpus.iter().map(|gpu| gpu_node(gpu.minor));
    for name in CONTROL_NODES.map(str::to_owned).into_iter().chain(gpu_nodes) {
        let path = root.join("dev").join(name);
        make_node(&path).with_context(|| format!("can't make `{}`", path.display()))?;
    }
    Ok(())
}

/// Installs the container runtime with its settings into `dir` and returns its path, which is for
/// containerd's `BinaryName`.
pub fn install_runtime(dir: &Path, binaries: &Path, config: &Config) -> Result<PathBuf> {
    let program = dir.join("nvidia-container-runtime");
    let source = binaries.join("nvidia-container-runtime");
    copy_executable(&source, &program)
        .with_context(|| format!("can't install `{}`", source.display()))?;
    let path = dir.join(config::FILE);
    fs::write(&path, serde_json::to_vec_pretty(config)?)
        .with_context(|| format!("can't write `{}`", path.display()))?;
    Ok(program)
}

/// Writes the node's CDI specification into `dir`, and returns its path. The driver root must be
/// where `config` says by then: what isn't there isn't in it.
pub fn write_cdi(dir: &Path, config: &Config, gpus: &[SimGpu]) -> Result<PathBuf> {
    cdi::write(dir, config, gpus)
        .with_context(|| format!("can't write a CDI specification into `{}`", dir.display()))
}

/// What cargo calls a driver file.
fn built_name(file: DriverFile) -> &'static str {
    match file.name {
        "libcuda.so.1" => "libcuda_sim.so",
        "libnvidia-ml.so.1" => "libnvidia_ml_sim.so",
        program => program,
    }
}

/// Replaced by rename: a program that runs keeps its file, and nobody sees half of one.
fn copy_executable(from: &Path, to: &Path) -> io::Result<()> {
    if let Some(dir) = to.parent() {
        fs::create_dir_all(dir)?;
    }
    let next = to.with_extension("next");
    fs::copy(from, &next)?;
    fs::set_permissions(&next, fs::Permissions::from_mode(0o755))?;
    fs::rename(&next, to)
}

/// A file in place of a device node: what counts is that it is there.
fn make_node(path: &Path) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::write(path, "")?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_of_a_node_are_the_same_each_time_and_of_no_other_node() {
        let models = [Model::T4, Model::T4];
        let uuids =
            |node| -> Vec<_> { cards(node, &models).into_iter().map(|gpu| gpu.uuid).collect() };
        assert_eq!(uuids("gpu-0"), uuids("gpu-0"));
        let mut all = [uuids("gpu-0"), uuids("gpu-1")].concat();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 4, "{all:?}");
        assert_eq!(all[0].len(), "GPU-cb1213a3-2222-4a4a-8b8b-0000000000ff".len());
    }

    #[test]
    fn only_the_card_that_is_to_have_it_has_mig_on() {
        let mig: Vec<_> = cards("gpu-0", &[Model::A100Mig, Model::A100, Model::P4])
            .into_iter()
            .map(|gpu| gpu.mig_enabled)
            .collect();
        assert_eq!(mig, [Some(true), Some(false), None]);
    }

    #[test]
    fn a_driver_root_has_all_files_and_a_node_for_each_card() {
        let dir = tempfile::tempdir().unwrap();
        let (binaries, root) = (dir.path().join("binaries"), dir.path().join("root"));
        fs::create_dir(&binaries).unwrap();
        for file in FILES {
            fs::write(binaries.join(built_name(file)), file.name).unwrap();
        }
        install(&root, &binaries, &cards("gpu-0", &[Model::T4, Model::T4])).unwrap();
        for file in FILES {
            let installed = root.join(file.path());
            assert_eq!(fs::read_to_string(&installed).unwrap(), file.name);
            assert_eq!(fs::metadata(installed).unwrap().permissions().mode() & 0o777, 0o755);
        }
        let mut nodes: Vec<_> = fs::read_dir(root.join("dev"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        nodes.sort();
        assert_eq!(nodes, ["nvidia-uvm", "nvidia0", "nvidia1", "nvidiactl"]);
    }

    #[test]
    fn a_program_that_was_not_built_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = install(dir.path(), &dir.path().join("nothing"), &[]).unwrap_err();
        assert!(error.to_string().contains("libnvidia_ml_sim.so"), "{error}");
    }
}
