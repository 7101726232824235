//! Which cards a process can open: those whose device nodes it has, as with the real driver.
//!
//! A container gets `/dev/nvidiactl` and the nodes of its cards from its runtime. Where the control
//! node isn't there, no runtime had a hand in it and every card can be opened: a simulated host has
//! no device nodes.

use std::path::Path;

use crate::SimState;

/// The node that every user of the driver opens first.
pub const CONTROL_NODE: &str = "nvidiactl";

/// The node of unified memory.
pub const UVM_NODE: &str = "nvidia-uvm";

/// Name of the node of the card with this minor number.
pub fn gpu_node(minor: u32) -> String {
    format!("nvidia{minor}")
}

/// The same node with the cards that this process can open, which are numbered anew.
pub fn openable(state: SimState) -> SimState {
    openable_in(Path::new("/dev"), state)
}

fn openable_in(dev: &Path, mut state: SimState) -> SimState {
    if dev.join(CONTROL_NODE).exists() {
        state.gpus.retain(|gpu| dev.join(gpu_node(gpu.minor)).exists());
    }
    state
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::SimGpu;

    fn check(name: &str, nodes: &[&str], expected: &[&str]) {
        let dev = std::env::temp_dir().join(format!("mpshare-sim-{name}-{}", std::process::id()));
        fs::create_dir_all(&dev).unwrap();
        for node in nodes {
            fs::write(dev.join(node), "").unwrap();
        }
        let gpu = |index, uuid| SimGpu::of_model("t4", index, uuid).unwrap();
        let gpus = vec![gpu(0, "GPU-a"), gpu(1, "GPU-b")];
        let seen = openable_in(&dev, SimState { gpus, ..SimState::default() }).gpus;
        fs::remove_dir_all(dev).unwrap();
        let uuids: Vec<_> = seen.iter().map(|gpu| gpu.uuid.as_str()).collect();
        assert_eq!(uuids, expected, "{name}");
    }

    #[test]
    fn a_process_opens_the_cards_whose_nodes_it_has() {
        check("one-node", &["nvidiactl", "nvidia1"], &["GPU-b"]);
        check("only-control", &["nvidiactl"], &[]);
    }

    #[test]
    fn without_a_control_node_every_card_can_be_opened() {
        check("host", &[], &["GPU-a", "GPU-b"]);
    }
}
