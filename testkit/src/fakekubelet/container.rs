//! One container's life over its restarts: created with what the device manager gives it, run as a
//! process, started again as the restart policy says, stopped when told to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::launch::{self, binds, launch};
use super::node::Node;
use super::pod::{ContainerSpec, PodSpec, RestartPolicy};
use super::process::Process;
use super::run_options::run_options;
use super::status::{ContainerState, ContainerStatus, RunOptions};
use super::violation::Violation;
use super::worker::{Stop, StopSignal, work_out_phase};

/// A container that is being run.
pub(super) struct Run {
    node: Arc<Node>,
    pod: Arc<PodSpec>,
    container: ContainerSpec,
    pub(super) stop: StopSignal,
    pub(super) restart: RestartPolicy,
    starts: u32,
}

/// Why a wait ended.
enum Waited {
    Over,
    Stopped,
}

impl Run {
    pub(super) fn new(
        node: &Arc<Node>,
        pod: &Arc<PodSpec>,
        container: &ContainerSpec,
        stop: StopSignal,
    ) -> Self {
        Self {
            node: Arc::clone(node),
            pod: Arc::clone(pod),
            container: container.clone(),
            stop,
            restart: pod.restart,
            starts: 0,
        }
    }

    /// Runs the container until it isn't to be started again. Gives the last exit code.
    pub(super) async fn run_to_end(&mut self) -> i32 {
        let mut pause = self.node.options.backoff;
        loop {
            let Some(code) = self.once().await else {
                return self.ended(137);
            };
            self.ended(code);
            let again = match self.restart {
                RestartPolicy::Always => true,
                RestartPolicy::OnFailure => code != 0,
                RestartPolicy::Never => false,
            };
            if !again || self.stop.borrow().is_some() {
                return code;
            }
            // The first restart is immediate.
            if self.starts > 1 {
                self.crash_loop(code);
                if let Waited::Stopped = self.wait(pause).await {
                    return self.ended(code);
                }
                pause = (pause * 2).min(self.node.options.max_backoff);
            }
        }
    }

    /// One start of the container and its exit code. None if it was told to stop before.
    async fn once(&mut self) -> Option<i32> {
        let given = self.create().await?;
        self.prepare_mounts(&given);
        let id = self.container_id();
        let options = &self.node.options;
        let launch = launch(options, &self.pod, &self.container, &given, &id);
        self.starts += 1;
        let started = self.node.processes.start(&launch, &id);
        let pid = started.as_ref().ok().map(|process| process.pid);
        let restarts = self.starts - 1;
        self.change(|container| {
            container.id = id;
            container.restarts = restarts;
            container.options = given;
            container.env = launch.env;
            if let Some(pid) = pid {
                container.state = ContainerState::Running { pid };
            }
        });
        match started {
            Ok(mut process) => Some(self.supervise(&mut process).await),
            Err(error) => {
                tracing::warn!(%error, container = %self.container.name, "container did not start");
                // The exit code of a container whose program can't be started.
                Some(128)
            }
        }
    }

    /// Asks the device manager for the container's options until it gives them. None if the
    /// container is to stop.
    async fn create(&mut self) -> Option<RunOptions> {
        loop {
            match self.options().await? {
                Ok(given) => return Some(given),
                Err(error) => self.change(|container| {
                    container.state = ContainerState::waiting("CreateContainerConfigError", &error);
                }),
            }
            if let Waited::Stopped = self.wait(self.node.options.create_retry).await {
                return None;
            }
        }
    }

    /// One attempt at it. An answer from across a restart of the kubelet doesn't count.
    async fn options(&mut self) -> Option<Result<RunOptions, String>> {
        loop {
            let session = self.serving_kubelet().await?;
            let mut stop = self.stop.clone();
            let answer = tokio::select! {
                answer = run_options(&self.node, &self.pod, &self.container) => answer,
                _ = stop.wait_for(Option::is_some) => return None,
            };
            if self.node.read(|state| state.serving) == Some(session) {
                return Some(answer.map_err(|error| error.to_string()));
            }
        }
    }

    /// Waits until a kubelet process is up and has admitted its pods.
    async fn serving_kubelet(&mut self) -> Option<u64> {
        let mut changes = self.node.watch();
        let mut stop = self.stop.clone();
        loop {
            if stop.borrow().is_some() {
                return None;
            }
            if let Some(session) = self.node.read(|state| state.serving) {
                return Some(session);
            }
            tokio::select! {
                more = changes.changed() => more.ok()?,
                _ = stop.wait_for(Option::is_some) => return None,
            }
        }
    }

    /// Missing mount sources become directories, as container runtimes do it.
    fn prepare_mounts(&self, given: &RunOptions) {
        let options = &self.node.options;
        let binds = binds(options, &self.pod, &self.container, given);
        for bind in binds.iter().take(given.mounts.len()) {
            if !bind.host_path.exists() {
                self.node.record(Violation::MountSourceMissing {
                    path: bind.host_path.clone(),
                    container_path: bind.container_path.clone(),
                });
            }
        }
        let shm = launch::shm(options, &self.pod, &binds);
        for path in binds.into_iter().map(|bind| bind.host_path).chain(shm) {
            if !path.exists()
                && let Err(error) = std::fs::create_dir_all(&path)
            {
                tracing::warn!(%error, path = %path.display(), "mount source was not made");
            }
        }
    }

    /// 64 hex digits, new at each start.
    fn container_id(&self) -> String {
        let digits: String = self.pod.uid.chars().filter(char::is_ascii_hexdigit).collect();
        let place = self
            .pod
            .containers
            .iter()
            .position(|c| c.name == self.container.name)
            .unwrap_or_default();
        format!("{digits:0>32.32}{place:016x}{:016x}", self.starts)
    }

    async fn supervise(&mut self, process: &mut Process) -> i32 {
        let mut stop = self.stop.clone();
        let node = Arc::clone(&self.node);
        let mut grace = tokio::select! {
            code = node.processes.wait(process) => return code,
            order = stop.wait_for(Option::is_some) => grace_of(order.ok().and_then(|order| *order)),
        };
        process.terminate();
        let told = Instant::now();
        loop {
            tokio::select! {
                code = node.processes.wait(process) => return code,
                () = tokio::time::sleep(grace.saturating_sub(told.elapsed())) => {
                    process.kill();
                    return node.processes.wait(process).await;
                }
                // A forced deletion may follow a patient one.
                Ok(()) = stop.changed() => grace = grace_of(*stop.borrow_and_update()),
            }
        }
    }

    fn ended(&self, exit_code: i32) -> i32 {
        self.change(|container| {
            container.last_exit = Some(exit_code);
            container.state = ContainerState::Terminated { exit_code };
        });
        exit_code
    }

    fn crash_loop(&self, code: i32) {
        let message = format!("back-off restarting failed container, last exit code {code}");
        self.change(|container| {
            container.state = ContainerState::waiting("CrashLoopBackOff", &message);
        });
    }

    fn change(&self, f: impl FnOnce(&mut ContainerStatus)) {
        self.node.change_status(&self.pod.uid, |status| {
            if let Some(container) = status.containers.get_mut(&self.container.name) {
                f(container);
            }
            work_out_phase(status);
        });
    }

    async fn wait(&mut self, pause: Duration) -> Waited {
        tokio::select! {
            () = tokio::time::sleep(pause) => Waited::Over,
            _ = self.stop.wait_for(Option::is_some) => Waited::Stopped,
        }
    }
}

fn grace_of(stop: Option<Stop>) -> Duration {
    stop.map_or(Duration::ZERO, |stop| stop.grace)
}
