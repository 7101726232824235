//! Where a node's files are.

use std::path::PathBuf;

use clap::Args;
use mpshare_api::MpsRoot;

/// Where the node's files are.
#[derive(Debug, Args)]
pub(crate) struct RootOptions {
    /// The directory of config, status and MPS directories.
    #[arg(long, env = "MPS_ROOT", default_value = MpsRoot::DEFAULT)]
    mps_root: PathBuf,
}

impl RootOptions {
    /// As a layout.
    pub(crate) fn root(&self) -> MpsRoot {
        MpsRoot::new(&self.mps_root)
    }
}
