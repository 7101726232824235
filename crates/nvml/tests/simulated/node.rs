//! A simulated node of a test's own.

use std::path::{Path, PathBuf};
use std::process::Command;

use mpshare_core::GpuUuid;
use mpshare_nvml::{NvmlError, NvmlInventory};
use mpshare_sim_state::{ProcId, ProcessKind, SIM_DIR_ENV, SimGpu, SimProcess, SimState, Store};

pub(crate) const T4: &str = "GPU-7a51b0c3-1111-4a4a-8b8b-000000000001";
pub(crate) const A100: &str = "GPU-0f3e9a11-2222-4a4a-8b8b-000000000002";

/// A node with a T4 and an A100.
pub(crate) struct Node {
    pub(crate) store: Store,
}

impl Node {
    pub(crate) fn open(&self) -> NvmlInventory {
        self.try_open().unwrap()
    }

    pub(crate) fn try_open(&self) -> Result<NvmlInventory, NvmlError> {
        let sysfs = self.store.dir().with_file_name("sys");
        NvmlInventory::open_with_sysfs(Some(&library()), &sysfs)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut SimState)) {
        self.store.update(change).unwrap();
    }

    pub(crate) fn change_gpu(&self, uuid: &str, change: impl FnOnce(&mut SimGpu)) {
        self.change(|state| {
            let gpu = state.gpus.iter_mut().find(|gpu| gpu.uuid == uuid);
            change(gpu.unwrap());
        });
    }

    /// Puts this process on the T4.
    pub(crate) fn occupy(&self, kind: ProcessKind, used_mib: u64) {
        self.change(|state| {
            state.processes.push(SimProcess {
                id: ProcId::current(),
                uid: 0,
                name: "test".to_owned(),
                gpu: T4.to_owned(),
                kind,
                used_mib,
                limit_mib: None,
                percent_tenths: 1000,
                sticky_error: None,
            });
        });
    }
}

pub(crate) fn uuid(text: &str) -> GpuUuid {
    text.parse().unwrap()
}

/// Runs the calling test in a process of its own, as the only one on a node of its own.
///
/// The name of the test is that of the function that made the closure.
pub(crate) fn on_node<F: FnOnce(&Node)>(test: F) {
    if std::env::var_os(SIM_DIR_ENV).is_some() {
        return test(&Node { store: Store::from_env() });
    }
    let dir = tempfile::tempdir().unwrap();
    let mut state = SimState::default();
    for (index, (model, uuid)) in (0..).zip([("t4", T4), ("a100", A100)]) {
        state.gpus.push(SimGpu::of_model(model, index, uuid).unwrap());
    }
    let store = Store::create(dir.path().join("sim"), &state).unwrap();
    let closure = std::any::type_name::<F>();
    let function = closure.trim_end_matches("::{{closure}}");
    let (_crate, name) = function.split_once("::").unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(SIM_DIR_ENV, store.dir())
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    let passed = output.status.success() && report.contains("1 passed");
    assert!(passed, "{report}{}", String::from_utf8_lossy(&output.stderr));
}

fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).map(Path::to_owned).unwrap();
    let path = path.join("libnvidia_ml_sim.so");
    assert!(
        path.exists(),
        "`{}` is missing; run `cargo build -p mpshare-sim-nvml` first",
        path.display()
    );
    path
}
