//! The fake kubelet against a plugin that does what the test says: each trap of
//! `facts/kubernetes.md` 1 is caught, and what is right isn't.

#![expect(clippy::unwrap_used, reason = "a test that meets a surprise should fail there and then")]

mod allocation;
mod node;
mod plugin;
mod pods;
mod registration;

use mpshare_testkit::fakekubelet::{FakeKubelet, Options};
use plugin::{Behaviour, GPU, Plugin, SOON};

/// A kubelet in its own directory.
pub(crate) struct Setup {
    pub(crate) kubelet: FakeKubelet,
    pub(crate) directory: tempfile::TempDir,
}

impl Setup {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut options = Options::in_directory(directory.path());
        change(&mut options);
        let kubelet = FakeKubelet::start(options).await.unwrap();
        Self { kubelet, directory }
    }

    /// A plugin that serves and isn't registered.
    pub(crate) fn serve(&self, endpoint: &str, behaviour: Behaviour) -> Plugin {
        Plugin::serve(&self.kubelet.options().device_plugins, endpoint, behaviour)
    }

    /// A registered plugin whose list has arrived.
    pub(crate) async fn plugin(&self, behaviour: Behaviour) -> Plugin {
        let plugin = self.serve("gpu.sock", behaviour);
        self.register(&plugin).await;
        plugin
    }

    pub(crate) async fn register(&self, plugin: &Plugin) {
        plugin.register().await.unwrap();
        let before = self.kubelet.device_list(GPU);
        plugin::wait_until("first list", || {
            let list = self.kubelet.device_list(GPU);
            list.is_some()
                && (before.is_none() || list != before || self.kubelet.allocatable(GPU) > 0)
        })
        .await;
    }

    pub(crate) async fn allocatable(&self, count: usize) {
        let waited = self.kubelet.wait_allocatable(GPU, count, SOON).await;
        waited.unwrap();
    }
}
