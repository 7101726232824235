//! Every refusal, with the one sentence that people see for it.
//!
//! The same text appears in Events, conditions, logs, command output and gRPC or HTTP replies:
//! what was asked, what there is, then `hint:` what to do. The code is stable: alerts may depend
//! on it. A reason is a value; that it displays itself is all it shares with an error.

mod code;

use thiserror::Error;

use crate::{ComputeCapability, DriverVersion, GpuUuid, Memory, ResourceName, ThreadPercent};

/// Why something isn't, or isn't yet, as asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the sentence of each variant says what its fields are")]
pub enum Reason {
    // What a configuration asks of a card that the card can't do.
    #[error(
        "`{gpu}` is asked for {replicas} replicas, but takes at most {cap} MPS clients; hint: set `replicas` to {cap} or less"
    )]
    AboveClientCap { gpu: GpuUuid, replicas: u32, cap: u32 },
    #[error(
        "a unit of `{gpu}` would be {unit}, less than the {minimum} that a CUDA context needs; hint: set `replicas` to {replicas} or less"
    )]
    UnitTooSmall { gpu: GpuUuid, unit: Memory, minimum: Memory, replicas: u32 },
    #[error(
        "`{gpu}` has {usable} to share, less than one unit of {unit}; hint: set `memoryUnit` to that or less, or `reserve` less"
    )]
    UnitAboveCard { gpu: GpuUuid, unit: Memory, usable: Memory },
    #[error(
        "`{resource}` would have {units} units on this node, a list of {bytes} bytes, and a kubelet takes {limit}; hint: set `memoryUnit` to {unit} or more"
    )]
    DeviceListTooLong { resource: ResourceName, units: u64, bytes: u64, limit: u64, unit: Memory },
    #[error(
        "`{gpu}` has MIG enabled, which excludes sharing by MPS; hint: disable MIG on it (`nvidia-smi -i {gpu} -mig 0`) or leave it out of `devices`"
    )]
    MigEnabled { gpu: GpuUuid },
    #[error(
        "`{gpu}` ({model}, compute capability {capability}) is older than Volta (7.0), where MPS can't isolate memory; hint: hand it out whole with `replicas: 1`"
    )]
    NoMemoryIsolation { gpu: GpuUuid, model: String, capability: ComputeCapability },
    #[error("`{gpu}` is named by two entries of `sharing.mps.resources`; hint: name it once")]
    SelectedTwice { gpu: GpuUuid },
    #[error(
        "`{gpu}` and `{other}` begin with the same 12 characters and would share a directory; hint: leave one of them out"
    )]
    SameDirectory { gpu: GpuUuid, other: GpuUuid },
    #[error(
        "`{resource}` asks for devices `{wanted}`, which this node with {cards} GPUs doesn't have left; hint: check `devices` against `nvidia-smi -L`"
    )]
    NothingSelected { resource: ResourceName, wanted: String, cards: usize },
    #[error(
        "driver {driver} is older than 535, the first with usable MPS limits; hint: upgrade it"
    )]
    DriverTooOld { driver: DriverVersion },

    // What has to wait for shares that containers hold.
    #[error(
        "`{gpu}` keeps the shares of the former configuration ({shares}, {memory} in all) until their pods end; hint: nothing is lost, or end those pods"
    )]
    WaitingForShares { gpu: GpuUuid, shares: usize, memory: Memory },
    #[error(
        "the MPS daemon of `{gpu}` still has {clients} clients and stays until they end; hint: nothing is lost, or end their pods"
    )]
    WaitingForClients { gpu: GpuUuid, clients: usize },
    #[error(
        "`{gpu}` can't back {units} of its units ({unit} each) yet: {left} left beside live shares and free units; hint: they follow when pods with older shares end"
    )]
    UnitsNotBacked { gpu: GpuUuid, units: usize, unit: Memory, left: Memory },

    #[error(
        "{shares} containers have shares of `{gpu}`, and it takes {cap} MPS clients at most; hint: its free units follow when one of their pods ends"
    )]
    NoClientLeft { gpu: GpuUuid, shares: usize, cap: u32 },
    #[error(
        "`{gpu}` is being drained and takes no new pods, {} still held; hint: wait for their pods to end, or evict them (`kubectl mpshare drain --evict`)",
        if *shares == 1 { "1 share of it is".to_owned() } else { format!("{shares} shares of it are") }
    )]
    CardDraining { gpu: GpuUuid, shares: usize },
    #[error(
        "`{gpu}` is being drained and nobody holds a share of it any more, what ran for it is being ended; hint: wait a moment"
    )]
    CardEmptied { gpu: GpuUuid },
    #[error(
        "`{gpu}` is drained: nobody uses it, it takes no pods, and it is as it was before it was shared; hint: `kubectl mpshare undrain` puts it into service again"
    )]
    CardDrained { gpu: GpuUuid },

    // What a request can't get.
    #[error(
        "{asked} units of {unit} asked on `{gpu}`, {free} can be granted ({left} left); hint: ask for less, or wait for a pod on it to end"
    )]
    NotEnoughLeft { gpu: GpuUuid, asked: u32, free: u32, unit: Memory, left: Memory },
    #[error(
        "{asked} units asked for one container, but no one GPU has them free ({}), and a CUDA process can use one MPS daemon only; hint: ask for at most what one GPU has",
        free.iter().map(|(gpu, free)| format!("`{}`: {free}", gpu.short())).collect::<Vec<_>>().join(", ")
    )]
    SpansGpus { asked: usize, free: Vec<(GpuUuid, u32)> },
    #[error(
        "{asked} units asked, but the configuration sets `failRequestsGreaterThanOne: true`; hint: ask for 1, or set it to false to get {asked} times the memory"
    )]
    OneUnitOnly { asked: usize },
    #[error(
        "`{id}` is no device of this node; hint: restart the kubelet if it keeps asking for it"
    )]
    UnknownDevice { id: String },
    #[error(
        "`{resource}` has another device plugin on this node: {evidence}; hint: remove it, a resource can have one plugin only"
    )]
    AnotherPlugin { resource: ResourceName, evidence: String },
    #[error(
        "not enough `{resource}` on one GPU for {}: {}",
        asked.iter().map(u64::to_string).collect::<Vec<_>>().join(" + "),
        cards.join(", ")
    )]
    NoGpuFits { resource: ResourceName, asked: Vec<u64>, cards: Vec<String> },
    #[error("no GPU of the node offers `{resource}`")]
    NoUnits { resource: ResourceName },
    #[error("the node's GPUs aren't known: {problem}")]
    BadInventory { problem: String },
    #[error(
        "label `aliyun.com/gpu-count: {label}` asks for several GPUs for one container, but a process can use the MPS daemon of one GPU only; hint: remove it, or set it to 1"
    )]
    SeveralGpusAsked { label: String },
    #[error(
        "`{first}` and `{second}` are asked for by containers that have to share one GPU; hint: ask for one of them"
    )]
    TwoResources { first: ResourceName, second: ResourceName },
    #[error("the request names no device")]
    EmptyRequest,

    // What a pod's spec shows before it runs.
    #[error(
        "container `{container}` asks for 0 `{resource}`; hint: ask for 1 or more, or leave the line out"
    )]
    ZeroUnits { container: String, resource: ResourceName },
    #[error(
        "container `{container}` asks for `{text}` of `{resource}`, which is {units} units; hint: write the number of units without a suffix, such as `7`"
    )]
    UnitsNotPlain { container: String, resource: ResourceName, text: String, units: u64 },
    #[error(
        "container `{container}` asks for {units} units of `{resource}`, and no GPU that its pod may come to has more than {most}; hint: ask for {most} or less"
    )]
    AboveEveryGpu { container: String, resource: ResourceName, units: u64, most: u64 },
    #[error(
        "container `{container}` asks for `{first}` and for `{second}`, but a process can use the MPS daemon of one GPU only; hint: ask for one of them"
    )]
    TwoResourcesInContainer { container: String, first: ResourceName, second: ResourceName },
    #[error(
        "container `{container}` sets `NVIDIA_VISIBLE_DEVICES` (`{value}`), by which it would see GPUs that it wasn't given; hint: remove it, and ask for `aliyun.com/gpu-mem` or `nvidia.com/gpu`"
    )]
    DevicesNamed { container: String, value: String },
    #[error(
        "container `{container}` mounts something at `{path}`, by which it would be given a GPU that it wasn't given; hint: remove it, and ask for `aliyun.com/gpu-mem` or `nvidia.com/gpu`"
    )]
    DevicesMounted { container: String, path: String },
    #[error(
        "container `{container}` sets `CUDA_VISIBLE_DEVICES` (`{value}`), but the one GPU of its share is its device 0; hint: remove it"
    )]
    CudaDevicesNamed { container: String, value: String },
    #[error(
        "container `{container}` sets `{variable}`, which is mpshare's to say; hint: remove it"
    )]
    MpsVariable { container: String, variable: String },
    #[error(
        "container `{container}` takes `{variable}` from a place that can't be seen here; hint: write its value into the spec"
    )]
    HiddenVariable { container: String, variable: String },
    #[error(
        "container `{container}` sets a memory limit that can't be read (`{text}`), so that its share is its limit; hint: write it as `0=4G`, or in bytes"
    )]
    MemoryLimitUnreadable { container: String, text: String },
    #[error(
        "container `{container}` sets its memory limit as `{text}`, which the driver doesn't take for what it means; hint: write `{form}`"
    )]
    MemoryLimitForm { container: String, text: String, form: String },
    #[error(
        "container `{container}` sets a memory limit of {asked}, but on the smallest GPU that its pod may come to its share is {share}, which is the limit; hint: ask for more units, or choose nodes by their labels"
    )]
    MemoryLimitAboveShare { container: String, asked: Memory, share: Memory },
    #[error(
        "container `{container}` has variables from a ConfigMap or a Secret, which could take the place of its memory limit, so that the share of the smallest GPU that its pod may come to, {share}, is written into the spec; hint: choose nodes by their labels"
    )]
    SmallestShareWritten { container: String, share: Memory },
    #[error(
        "container `{container}` sets a thread percentage that can't be read (`{text}`); hint: write a number above 0 and at most 100"
    )]
    PercentUnreadable { container: String, text: String },
    #[error(
        "container `{container}` sets a thread percentage of {asked}, but on the smallest GPU that its pod may come to its share is {share}, which is the limit; hint: ask for more units"
    )]
    PercentAboveShare { container: String, asked: ThreadPercent, share: ThreadPercent },
    #[error(
        "container `{container}` is privileged and reaches every GPU of its node, past all shares; hint: leave `privileged` out, the device plugin gives it what it needs"
    )]
    PrivilegedContainer { container: String },
    #[error(
        "container `{container}` mounts a volume at `{path}`, over what connects it with the MPS daemon of its GPU; hint: mount it elsewhere; a `/dev/shm` of its own is there already"
    )]
    MountOverShare { container: String, path: String },
    #[error(
        "volume `{volume}` is `{path}` of the node, by which its pod could reach GPUs past all shares; hint: remove it, and ask for `aliyun.com/gpu-mem` or `nvidia.com/gpu`"
    )]
    HostPathOfGpus { volume: String, path: String },
    #[error(
        "the pod has users of its own (`hostUsers: false`), and the MPS of driver {driver} serves one user of the node at a time; hint: leave `hostUsers` out, or use nodes with a driver of 555 or newer"
    )]
    OwnUsers { driver: DriverVersion },
    #[error(
        "containers `{first}` and `{second}` run as users {first_user} and {second_user}, and the MPS of driver {driver} serves one user at a time, so that one of them may wait for ever; hint: give them one `runAsUser`, or use nodes with a driver of 555 or newer"
    )]
    UsersDiffer {
        first: String,
        first_user: i64,
        second: String,
        second_user: i64,
        driver: DriverVersion,
    },
    #[error(
        "annotation `{annotation}` says which GPU a pod has, and is written by mpshare alone; hint: leave it out of new pods, and as it is on others"
    )]
    AnnotationReserved { annotation: String },
    #[error(
        "the allocation couldn't be recorded, so nothing was granted: {problem}; hint: check the disk of the MPS root directory"
    )]
    NotRecorded { problem: String },

    // Why a container has to wait.
    #[error("`{gpu}` is {state}, not Ready: {why}")]
    GpuNotReady { gpu: GpuUuid, state: String, why: String },
    #[error(
        "the MPS daemon of `{gpu}` has no verified limit of {share} yet ({}); hint: the kubelet retries by itself",
        verified.map_or_else(|| "none so far".to_owned(), |memory| format!("{memory} so far"))
    )]
    LimitsNotVerified { gpu: GpuUuid, share: Memory, verified: Option<Memory> },
    #[error(
        "units of `{gpu}` are free, but pods that held them still have processes (pods {}{}); hint: the kubelet is ending them and retries by itself",
        pods.join(", "),
        if pids.is_empty() { String::new() } else { format!("; on the GPU: {pids:?}") }
    )]
    FormerOwnerAlive { gpu: GpuUuid, pods: Vec<String>, pids: Vec<i32> },

    // Configuration and its choice.
    #[error("no configuration at `{path}` yet; hint: is the config-manager running?")]
    ConfigMissing { path: String },
    #[error("config `{name}` can't be used, the last good one stays in force: {problem}")]
    ConfigInvalid { name: String, problem: String },
    #[error(
        "the ConfigMap has no config `{name}` (it has {}); hint: correct the node label or add the key",
        known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    )]
    ConfigUnknown { name: String, known: Vec<String> },
    #[error(
        "there is no {source_of_configs}, so no config can be chosen; hint: create it, or correct the option that names it"
    )]
    ConfigSourceMissing { source_of_configs: String },
    #[error(
        "nothing says which config is meant: the node has no label `nvidia.com/device-plugin.config`, and there are {}; hint: set the label, or a default config",
        known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    )]
    ConfigNotChosen { known: Vec<String> },
    #[error(
        "config `{name}` was chosen but can't be written: {problem}; hint: check the disk of the MPS root directory"
    )]
    ConfigNotWritten { name: String, problem: String },
    #[error(
        "node labels disagree: `nvidia.com/device-plugin.config={config}` and `ack.node.gpu.schedule={schedule}`; nothing is changed; hint: remove one of them"
    )]
    LabelsDisagree { config: String, schedule: String },
    #[error(
        "config `{name}` isn't put in force: qGPU manages the GPUs of this node (it has `{resource}`), which excludes MPS; hint: take qGPU off the node, or choose a config without `sharing`"
    )]
    QgpuPresent { name: String, resource: String },
    #[error(
        "the node's annotation `mpshare.io/drain` can't be used, what is drained stays as it was: {problem}; hint: write it with `kubectl mpshare drain` and `undrain`"
    )]
    DrainUnreadable { problem: String },
    #[error(
        "the node's annotation `mpshare.io/drain` names cards that it doesn't have ({}), what is drained stays as it was; hint: it has {}",
        named.iter().map(|gpu| format!("`{gpu}`")).collect::<Vec<_>>().join(", "),
        known.iter().map(|gpu| format!("`{gpu}`")).collect::<Vec<_>>().join(", ")
    )]
    DrainUnknownCards { named: Vec<GpuUuid>, known: Vec<GpuUuid> },
    #[error(
        "the MPS supervisor has reported nothing at `{path}` yet; hint: is mps-control-daemon-ctr running?"
    )]
    StatusMissing { path: String },

    // The state of a card.
    #[error(
        "process {pid}, no daemon of ours, holds the MPS directory of `{gpu}`; hint: stop it (`echo quit | nvidia-cuda-mps-control` with its environment)"
    )]
    ForeignDaemon { gpu: GpuUuid, pid: i32 },
    #[error(
        "MPS daemon {pid} with pipe directory `{pipe}` isn't ours and is there for `{gpu}` too; hint: stop it (`echo quit | CUDA_MPS_PIPE_DIRECTORY={pipe} nvidia-cuda-mps-control`)"
    )]
    ForeignMps { gpu: GpuUuid, pid: i32, pipe: String },
    #[error(
        "MPS daemon {pid} with pipe directory `{pipe}` isn't ours; it holds no card of ours now, but its next client may take one; hint: stop it (`echo quit | CUDA_MPS_PIPE_DIRECTORY={pipe} nvidia-cuda-mps-control`)"
    )]
    ForeignDaemonNearby { pid: i32, pipe: String },
    #[error(
        "`{gpu}` can't be shared under MPS: {problem}; hint: install the driver's MPS programs, or say where they are (`--driver-root`, `--mps-programs`)"
    )]
    ProgramMissing { gpu: GpuUuid, problem: String },
    #[error(
        "no MPS daemon can be launched for `{gpu}`: {problem}; hint: with `--launch host` the supervisor's pod must be privileged and have `hostPID: true`"
    )]
    HostUnreachable { gpu: GpuUuid, problem: String },
    #[error(
        "the MPS control daemon of `{gpu}` isn't usable: {problem}; hint: it is tried again by itself; if it stays so, look at `control.log` beside its pipe directory"
    )]
    DaemonFailed { gpu: GpuUuid, problem: String },
    #[error(
        "the MPS limits of `{gpu}` don't hold: {wanted} were set, but {found} read back; hint: see whether somebody else sets limits of its daemon; a server with wrong ones has to end first"
    )]
    LimitMismatch { gpu: GpuUuid, wanted: String, found: String },
    #[error(
        "MPS server {server} of `{gpu}` is in FAULT after a client's fatal error; hint: it recovers when the affected clients have ended"
    )]
    ServerFault { gpu: GpuUuid, server: i32 },
    #[error(
        "process {pid} was ended: a fatal error on `{gpu}` had taken its context, and MPS server {server} takes no clients until it is gone; hint: have programs end on a CUDA error that stays"
    )]
    LingererEnded { gpu: GpuUuid, pid: i32, server: i32 },
    #[error(
        "MPS server {server} of `{gpu}` serves its {clients} clients and takes no new ones: a client of mpshare {how}; hint: it is replaced when they have ended, `kubectl mpshare drain --evict` hurries that"
    )]
    ServerWedged { gpu: GpuUuid, server: i32, how: String, clients: usize },
    #[error(
        "MPS server {server} of `{gpu}` ended, and with it the contexts of its clients {pids:?}; hint: their programs have to start again"
    )]
    ServerLost { gpu: GpuUuid, server: i32, pids: Vec<i32> },
    #[error(
        "MPS server {server} of `{gpu}` was replaced, since it {why}; hint: its former clients, if any were left, have to start again"
    )]
    ServerReplaced { gpu: GpuUuid, server: i32, why: String },
    #[error(
        "somebody sent `{command}` to the MPS daemon of `{gpu}`, and it wasn't mpshare; what can be put right is; hint: processes that are root on the node can do that: run containers as another user, or with `hostUsers: false`"
    )]
    TamperedWith { gpu: GpuUuid, command: String },
    #[error(
        "the MPS daemon of `{gpu}` was told to quit, and not by mpshare: it takes no new clients and ends after the {clients} that it has; hint: it is started again then, `kubectl mpshare drain --evict` hurries that"
    )]
    DaemonQuitting { gpu: GpuUuid, clients: usize },
    #[error(
        "the MPS daemon of `{gpu}` was started under driver {was}, and that has changed: it takes no new clients and is started again when its {clients} have ended; hint: nothing is lost, `kubectl mpshare drain --evict` hurries that"
    )]
    DriverChanged { gpu: GpuUuid, was: String, clients: usize },
    #[error(
        "processes {pids:?} outside of MPS hold `{gpu}`, so that its MPS server can't start; hint: end them"
    )]
    CardInUse { gpu: GpuUuid, pids: Vec<i32> },
    #[error(
        "process {pid} of user {uid} waits for `{gpu}`: the MPS of this driver serves one user at a time, and user {served} has clients on it; hint: give the pods of a card one `runAsUser`, or use a driver of 555 or newer, whose MPS serves all users"
    )]
    UserWaits { gpu: GpuUuid, pid: i32, uid: u32, served: u32 },
    #[error(
        "{} uses {used} of `{gpu}` in processes {pids:?}, more than {share} ({}); hint: MPS limits each process by itself: start fewer of them, or ask for more units",
        container.as_ref().map_or_else(|| format!("pod `{pod}`"), |id| format!("container `{id}` of pod `{pod}`")),
        match (shares, container) {
            (1, _) => "its share".to_owned(),
            (_, None) => format!("its {shares} shares in all"),
            (_, Some(_)) => format!("the largest of its pod's {shares} shares"),
        }
    )]
    ShareExceeded {
        gpu: GpuUuid,
        pod: String,
        container: Option<String>,
        shares: usize,
        used: Memory,
        share: Memory,
        pids: Vec<i32>,
    },
    #[error(
        "process {pid} of pod `{pod}` was ended: it had {memory} of `{gpu}`, its pod's processes {used} together, and their share is {share}; hint: start fewer processes, or ask for more units"
    )]
    ProcessEvicted {
        gpu: GpuUuid,
        pod: String,
        pid: i32,
        memory: Memory,
        used: Memory,
        share: Memory,
    },
    #[error(
        "process {pid} (`{command}`, cgroup `{cgroup}`) uses {} of `{gpu}` and belongs to no share of it; hint: end it, or have it ask for units",
        memory.map_or_else(|| "memory".to_owned(), |memory| memory.to_string())
    )]
    OutsideShares {
        gpu: GpuUuid,
        pid: i32,
        command: String,
        cgroup: String,
        memory: Option<Memory>,
    },
    #[error(
        "process {pid} (`{command}`, cgroup `{cgroup}`) was ended: it used `{gpu}` and belonged to no share of it; hint: have it ask for units"
    )]
    OutsiderEnded { gpu: GpuUuid, pid: i32, command: String, cgroup: String },
    #[error(
        "no MPS server comes up on `{gpu}`; hint: look at `server.log` beside its pipe directory and at `dmesg`"
    )]
    NoServer { gpu: GpuUuid },
    #[error(
        "MPS server {server} of `{gpu}` has been starting for {seconds} s; hint: look at `server.log` beside its pipe directory and at `dmesg`"
    )]
    ServerStuck { gpu: GpuUuid, server: i32, seconds: u64 },
    #[error(
        "the compute mode of `{gpu}` can't be set to EXCLUSIVE_PROCESS: {problem}; hint: the supervisor needs root"
    )]
    ComputeModeDenied { gpu: GpuUuid, problem: String },
    #[error(
        "the GPUs of this node can't be read: {problem}; hint: is the NVIDIA driver installed and loaded?"
    )]
    DriverUnavailable { problem: String },
    #[error("`{gpu}` doesn't answer: {problem}; hint: look at `dmesg`, reset or replace it")]
    GpuLost { gpu: GpuUuid, problem: String },
    #[error(
        "`{gpu}` reported Xid {xid}; hint: its units come back when it has been healthy for a while"
    )]
    Xid { gpu: GpuUuid, xid: u64 },
}
