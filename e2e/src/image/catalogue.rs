//! The images that the scenarios run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{Image, Library, libraries};

/// The sandbox of every pod.
pub const PAUSE: &str = "localhost/pause:1";

/// The product.
pub const MPSHARE: &str = "docker.io/library/mpshare:dev";

/// The name by which the documents ask for a CUDA program.
pub const CUDA: &str = "docker.io/nvidia/cuda:12.0-base";

/// The name by which the ACK document asks for a TensorFlow program.
pub const TENSORFLOW: &str =
    "registry.cn-hangzhou.aliyuncs.com/ai-samples/gpushare-sample:tensorflow-1.5";

/// Debian's `busybox-static`.
const BUSYBOX: &str = "/bin/busybox";

/// What a person or a manifest in the documents may call in a CUDA image.
const TOOLS: [&str; 26] = [
    "cat", "chmod", "cp", "cut", "date", "df", "env", "false", "find", "grep", "head", "id",
    "kill", "ls", "mkdir", "mount", "ps", "pwd", "rm", "sed", "sh", "sleep", "tail", "touch",
    "true", "wc",
];

/// Sleeps until it is told to go, and takes in the orphans of a pod with one PID namespace.
const PAUSE_SCRIPT: &str = "trap 'exit 0' TERM INT; while :; do sleep 86400 & wait $!; done";

/// The image [`PAUSE`].
pub fn pause() -> Image {
    Image::new(PAUSE)
        .file("/usr/bin/busybox", BUSYBOX, 0o755)
        .cmd(&["/usr/bin/busybox", "sh", "-c", PAUSE_SCRIPT])
        .link("/usr/bin/sleep", "busybox")
}

/// The image [`MPSHARE`] with our programs from `binaries` (a directory
/// that cargo has built into), of which copies without debug information are made in the
/// directory `scratch`. `name` is there for a second version under another name.
pub fn mpshare(name: &str, binaries: &Path, scratch: &Path) -> Result<Image> {
    let mut image = Image::new(name).entrypoint(&["/usr/bin/mpshare"]);
    let mut needed = BTreeSet::new();
    for name in ["mpshare", "mpshare-scheduler-extender", "mpshare-webhook"] {
        let program = stripped(&binaries.join(name), scratch)?;
        needed.extend(libraries(&program)?);
        image = image.file(format!("/usr/bin/{name}"), program, 0o755);
    }
    Ok(with_libraries(with_users(image), needed))
}

/// Kubernetes' image of the kube-scheduler in `programs`, by the name that it has for this version.
pub fn kube_scheduler(programs: &Path) -> Result<Image> {
    let program = programs.join("kube-scheduler");
    let output = Command::new(&program).arg("--version").output();
    let output = output.with_context(|| format!("`{}` can't be run", program.display()))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = said.trim().rsplit(' ').next().unwrap_or_default();
    let name = format!("registry.k8s.io/kube-scheduler:{version}");
    Ok(with_users(Image::new(name)).file("/usr/local/bin/kube-scheduler", program, 0o755))
}

/// The image [`CUDA`] with the simulator's CUDA program from `binaries` (a directory that cargo has
/// built into): no driver is in it. Its environment asks for every card, as NVIDIA's images do.
pub fn cuda(binaries: &Path, scratch: &Path) -> Result<Image> {
    let program = stripped(&binaries.join("cuda-sample"), scratch)?;
    let mut needed = libraries(&program)?;
    // The driver is injected without the libraries that it needs itself.
    for injected in ["nvidia-smi", "libcuda_sim.so", "libnvidia_ml_sim.so"] {
        needed.extend(libraries(&binaries.join(injected))?);
    }
    let image = Image::new(CUDA)
        .file("/usr/bin/cuda-sample", program, 0o755)
        .file("/usr/bin/busybox", BUSYBOX, 0o755)
        .env("NVIDIA_VISIBLE_DEVICES", "all")
        .env("NVIDIA_DRIVER_CAPABILITIES", "compute,utility")
        .cmd(&["/usr/bin/cuda-sample", "--hold", "forever"]);
    let tools =
        TOOLS.iter().fold(image, |image, tool| image.link(format!("/usr/bin/{tool}"), "busybox"));
    Ok(with_libraries(with_users(tools), needed))
}

/// The image [`TENSORFLOW`]: its `python`, whatever it is told to train, is a CUDA program that holds
/// 300 MiB.
pub fn tensorflow(binaries: &Path, scratch: &Path) -> Result<Image> {
    let image = Image { name: TENSORFLOW.to_owned(), ..cuda(binaries, scratch)? };
    let train = "#!/bin/sh\nexec /usr/libexec/python --alloc 300Mi --hold forever\n";
    Ok(image.file("/usr/libexec/python", scratch.join("cuda-sample"), 0o755).bytes(
        "/usr/bin/python",
        train,
        0o755,
    ))
}

fn with_libraries(image: Image, libraries: BTreeSet<Library>) -> Image {
    libraries.into_iter().fold(image, |image, library| {
        // The image's `/lib` is a link to `/usr/lib`, and so on.
        let path = match library.path.strip_prefix("/usr") {
            Ok(_) => library.path.clone(),
            Err(_) => prefixed(&library.path),
        };
        image.file(path, library.path, 0o755)
    })
}

fn prefixed(path: &Path) -> PathBuf {
    Path::new("/usr").join(path.strip_prefix("/").unwrap_or(path))
}

/// Root and a user without rights, a place for temporary files, and one for each mount that a
/// read-only root can't make.
fn with_users(image: Image) -> Image {
    image
        .bytes(
            "/etc/passwd",
            "root:x:0:0:root:/:/bin/sh\nnonroot:x:65532:65532:nonroot:/:/bin/sh\n",
            0o644,
        )
        .bytes("/etc/group", "root:x:0:\nnonroot:x:65532:\n", 0o644)
        .directory("/tmp", 0o1777)
        .directory("/run", 0o755)
}

fn stripped(program: &Path, scratch: &Path) -> Result<PathBuf> {
    let name =
        program.file_name().with_context(|| format!("`{}` is no file", program.display()))?;
    let copy = scratch.join(name);
    let output = Command::new("strip")
        .arg("-o")
        .arg(&copy)
        .arg(program)
        .output()
        .context("`strip` can't be run")?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("`strip {}`: {}", program.display(), complaint.trim());
    }
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_go_below_usr_wherever_the_machine_has_them() {
        let library = |path: &str| Library { path: PathBuf::from(path) };
        let needed = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld.so", "/usr/lib/libm.so.6"];
        let before = Image::new("localhost/a:1").entries.len();
        let image = with_libraries(Image::new("localhost/a:1"), needed.map(library).into());
        let paths: Vec<_> = image.entries.iter().skip(before).map(|entry| &entry.path).collect();
        let expected =
            ["/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib64/ld.so", "/usr/lib/libm.so.6"];
        assert_eq!(paths, expected.map(PathBuf::from).iter().collect::<Vec<_>>());
    }
}
