//! Processes that stand for containers: started in their own process group, known by a mark in
//! their environment, and ended together, as a container's processes are when its first one
//! ends. Nothing survives the fake kubelet: a shell that waits for the end of our pipe kills the
//! process groups when the test itself is killed.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Mutex;

use rustix::process::{Pid, Signal, WaitOptions};

use super::launch::{CONTAINER_ENV, Launch};
use super::node::lock;

/// Keeps a list of process groups, told on its input, and kills them when that ends.
const WATCHMAN: &str = r#"
live=" "
while read -r op group; do
  case $op in
    +) live="$live$group " ;;
    -) live="${live%% "$group" *} ${live#* "$group" }" ;;
  esac
done
for group in $live; do kill -s KILL -- "-$group" 2>/dev/null; done
"#;

/// Writes its own cgroup file and becomes the program, so that the file is there before the
/// program's first instruction.
const LAUNCHER: &str = r#"
/bin/mkdir -p "$0/$$" && printf '%s\n' "$1" >"$0/$$/cgroup" || exit 125
shift
exec "$@"
"#;

/// All containers' processes of one node.
pub(super) struct Processes {
    watchman: Mutex<Option<ChildStdin>>,
    watchman_process: Mutex<std::process::Child>,
    /// Process id of a running container to its id.
    live: Mutex<BTreeMap<u32, String>>,
    proc_root: Option<PathBuf>,
}

/// A container's main process.
pub(super) struct Process {
    pub(super) pid: u32,
    child: tokio::process::Child,
}

impl Processes {
    pub(super) fn new(proc_root: Option<PathBuf>) -> std::io::Result<Self> {
        use std::os::unix::process::CommandExt;
        let mut watchman = Command::new("/bin/sh")
            .args(["-c", WATCHMAN])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self {
            watchman: Mutex::new(watchman.stdin.take()),
            watchman_process: Mutex::new(watchman),
            live: Mutex::default(),
            proc_root,
        })
    }

    /// Starts a container.
    pub(super) fn start(&self, launch: &Launch, id: &str) -> std::io::Result<Process> {
        std::fs::create_dir_all(&launch.directory)?;
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&launch.log)?;
        let mut command = tokio::process::Command::from(self.command(launch)?);
        let child = command
            .env_clear()
            .envs(&launch.env)
            .current_dir(&launch.directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()?;
        let pid =
            child.id().ok_or_else(|| std::io::Error::other("the container has no process id"))?;
        self.tell_watchman('+', pid);
        lock(&self.live).insert(pid, id.to_owned());
        Ok(Process { pid, child })
    }

    fn command(&self, launch: &Launch) -> std::io::Result<Command> {
        let (program, arguments) = launch
            .argv
            .split_first()
            .ok_or_else(|| std::io::Error::other("no command specified"))?;
        let Some(proc_root) = &self.proc_root else {
            let mut command = Command::new(program);
            command.args(arguments);
            return Ok(command);
        };
        let mut command = Command::new("/bin/sh");
        command.args(["-c", LAUNCHER]).arg(proc_root).arg(&launch.cgroup).args(&launch.argv);
        Ok(command)
    }

    /// Waits for the end of the main process, then ends what is left of the container.
    pub(super) async fn wait(&self, process: &mut Process) -> i32 {
        let status = process.child.wait().await;
        self.bury(process.pid);
        status.map_or(255, exit_code)
    }

    fn bury(&self, pid: u32) {
        // Whoever takes it from the list ends the rest of it: later its id may be another's.
        let Some(id) = lock(&self.live).remove(&pid) else {
            return;
        };
        kill_group(pid);
        kill_marked(&id);
        self.tell_watchman('-', pid);
        self.forget_cgroup(pid);
    }

    fn forget_cgroup(&self, pid: u32) {
        if let Some(proc_root) = &self.proc_root
            && let Err(error) = std::fs::remove_dir_all(proc_root.join(pid.to_string()))
        {
            tracing::debug!(%error, pid, "no cgroup file to remove");
        }
    }

    fn tell_watchman(&self, op: char, group: u32) {
        if let Some(stdin) = lock(&self.watchman).as_mut()
            && let Err(error) = writeln!(stdin, "{op} {group}")
        {
            tracing::warn!(%error, "processes may outlive a killed test");
        }
    }

    /// Writes cgroup files for processes that containers started themselves, and removes those
    /// of processes that have ended.
    pub(super) fn follow_children(&self, written: &mut BTreeMap<u32, bool>) {
        let Some(proc_root) = &self.proc_root else {
            return;
        };
        let live = lock(&self.live).clone();
        let present: Vec<u32> = processes().collect();
        for pid in &present {
            if written.contains_key(pid) {
                continue;
            }
            let environment = environment(*pid);
            // It is between two programs: nothing can be said of it until it is the next.
            if environment.as_ref().is_some_and(Vec::is_empty) {
                continue;
            }
            let mark = environment.as_deref().and_then(mark_in);
            let parent = mark.and_then(|id| live.iter().find(|l| *l.1 == id));
            let has_file = parent.is_some_and(|(main, _)| copy_cgroup(proc_root, *main, *pid));
            written.insert(*pid, has_file);
        }
        written.retain(|pid, has_file| {
            let stays = present.contains(pid);
            if !stays && *has_file {
                self.forget_cgroup(*pid);
            }
            stays
        });
    }

    /// Kills every container and gives the main processes' ids; their workers reap them.
    pub(super) fn kill_live(&self) -> Vec<u32> {
        let live = lock(&self.live).clone();
        for (pid, id) in &live {
            kill_group(*pid);
            kill_marked(id);
        }
        live.into_keys().collect()
    }

    /// Kills every container and reaps their main processes.
    pub(super) fn kill_all(&self) {
        let live = std::mem::take(&mut *lock(&self.live));
        for (pid, id) in live {
            kill_group(pid);
            kill_marked(&id);
            if let Some(pid) = to_pid(pid) {
                // Somebody else may have reaped it: then there is nothing to wait for.
                ignore(&rustix::process::waitpid(Some(pid), WaitOptions::empty()));
            }
            self.forget_cgroup(pid);
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.kill_all();
        drop(lock(&self.watchman).take());
        if let Err(error) = lock(&self.watchman_process).wait() {
            tracing::warn!(%error, "the watchman of the container processes is lost");
        }
    }
}

impl Process {
    /// Asks the main process to end, as the runtime does with the stop signal.
    pub(super) fn terminate(&self) {
        signal(self.pid, Signal::TERM);
    }

    /// Kills the container.
    pub(super) fn kill(&self) {
        kill_group(self.pid);
    }
}

fn exit_code(status: ExitStatus) -> i32 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => 255,
    }
}

fn to_pid(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

fn signal(pid: u32, signal: Signal) {
    // It may have ended meanwhile.
    if let Some(pid) = to_pid(pid) {
        ignore(&rustix::process::kill_process(pid, signal));
    }
}

/// A process that has ended can't be signalled or reaped any more, and needn't be.
fn ignore<T>(result: &rustix::io::Result<T>) {
    if let Err(error) = result {
        tracing::trace!(%error, "the process has ended before");
    }
}

fn kill_group(pid: u32) {
    if let Some(pid) = to_pid(pid) {
        ignore(&rustix::process::kill_process_group(pid, Signal::KILL));
    }
}

/// Kills processes that left the process group but carry the container's mark.
fn kill_marked(id: &str) {
    for pid in processes().filter(|pid| marked_container(*pid).as_deref() == Some(id)) {
        signal(pid, Signal::KILL);
    }
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The container that a process belongs to, by its environment.
fn marked_container(pid: u32) -> Option<String> {
    mark_in(&environment(pid)?)
}

fn environment(pid: u32) -> Option<Vec<u8>> {
    std::fs::read(format!("/proc/{pid}/environ")).ok()
}

fn mark_in(environment: &[u8]) -> Option<String> {
    let mut variables = environment.split(|byte| *byte == 0);
    let prefix = format!("{CONTAINER_ENV}=");
    let value = variables.find_map(|variable| variable.strip_prefix(prefix.as_bytes()))?;
    String::from_utf8(value.to_vec()).ok()
}

fn copy_cgroup(proc_root: &Path, from: u32, to: u32) -> bool {
    if from == to {
        return false;
    }
    let source = proc_root.join(from.to_string()).join("cgroup");
    let directory = proc_root.join(to.to_string());
    let made = std::fs::create_dir_all(&directory);
    made.and_then(|()| std::fs::copy(source, directory.join("cgroup"))).is_ok()
}
