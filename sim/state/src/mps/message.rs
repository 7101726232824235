//! What the fake programs say to each other. Private to the simulator.

use serde::{Deserialize, Serialize};

use super::visible_devices;

/// The first packet on the control socket.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hello {
    /// The front-end, for one session of commands.
    Ui,
    /// A CUDA program.
    Client(AttachRequest),
    /// A server that the daemon started.
    Server,
}

/// What a CUDA program's environment asks for. Its PID and user come from the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachRequest {
    /// The command as `ps` of the control program shows it.
    pub name: String,
    /// `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT`.
    pub memory_limit: Option<String>,
    /// `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`.
    pub thread_percentage: Option<String>,
    /// `CUDA_VISIBLE_DEVICES`.
    pub visible_devices: Option<String>,
    /// UUIDs of the cards whose device nodes the program has; `None`: of all.
    #[serde(default)]
    pub openable: Option<Vec<String>>,
}

impl AttachRequest {
    /// The request of this process under the name that others see.
    pub fn from_env(name: impl Into<String>) -> Self {
        let variable = |name| std::env::var(name).ok();
        Self {
            name: name.into(),
            memory_limit: variable("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"),
            thread_percentage: variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
            visible_devices: variable("CUDA_VISIBLE_DEVICES"),
            openable: None,
        }
    }

    /// The program's cards among `all`, in its order.
    pub fn sees(&self, all: &[String]) -> Vec<String> {
        let can_open =
            |uuid: &&String| self.openable.as_ref().is_none_or(|cards| cards.contains(uuid));
        let openable: Vec<String> = all.iter().filter(can_open).cloned().collect();
        visible_devices(&openable, self.visible_devices.as_deref())
    }
}

/// The one answer to a client's request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The client is in.
    Accepted(Accepted),
    /// The client isn't.
    Refused(Refusal),
}

/// What the server grants before the client's own environment lowers it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Accepted {
    /// PID of the server.
    pub server: i32,
    /// PID of the client as the server sees it; 0 when it doesn't.
    pub client: i32,
    /// The cards of the daemon in its (renumbered) order.
    pub devices: Vec<ServedDevice>,
    /// The server's percentage for new clients.
    pub percent: f64,
}

/// One card of a server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServedDevice {
    /// Its UUID.
    pub uuid: String,
    /// The server's limit for new clients in bytes.
    pub limit_bytes: Option<u64>,
}

/// Why a client isn't in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// 800.
    NotPermitted,
    /// 805.
    ConnectionFailed,
    /// 807.
    ServerNotReady,
    /// 808.
    MaxClients,
}

/// What a server tells a client later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// `terminate_client` named this client.
    Terminated,
    /// A fatal fault of any client; every further CUDA call gets this error.
    Sticky(i32),
}

/// What the daemon tells a server when it registers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerSettings {
    /// The default percentage.
    pub percent: f64,
    /// The default limits: ordinal or UUID as it was given, and bytes.
    pub limits: Vec<(String, u64)>,
    /// The default client priority.
    pub priority: i32,
    /// Whether clients of every user share this server.
    pub multi_user: bool,
}

/// What the daemon asks of a server. Each has one [`ServerReply`], but for `Client` and `Leave`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerCommand {
    /// A client; its connection travels with this packet.
    Client(AttachRequest),
    /// Go after the last client.
    Leave,
    /// `get_server_status`.
    Status,
    /// `get_client_list`.
    Clients,
    /// `get_device_client_list`.
    DeviceClients,
    /// `ps`.
    Ps,
    /// `get_active_thread_percentage`.
    Percent,
    /// `set_active_thread_percentage`.
    SetPercent(f64),
    /// `get_device_pinned_mem_limit`.
    Limit(String),
    /// `set_device_pinned_mem_limit`; `None` removes the limit.
    SetLimit(String, Option<u64>),
    /// `terminate_client`.
    Terminate(i32),
}

/// What a server answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerReply {
    /// The server is up (sent once, unasked, after it has its settings).
    Ready,
    /// Lines for the front-end.
    Lines(Vec<String>),
    /// A percentage.
    Percent(f64),
    /// A limit in bytes.
    Limit(Option<u64>),
    /// Done, or found.
    Done,
    /// The client that the command named isn't there.
    NotFound,
}

/// What the daemon answers to the front-end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UiReply {
    /// The session is open.
    Welcome,
    /// Another session is open: how this one ends.
    Busy {
        /// Whether it says so on standard error.
        message: Option<String>,
        /// Its exit code.
        code: u8,
    },
    /// The output of one command.
    Text(String),
    /// The daemon goes; the front-end ends with this code once it is gone.
    Leaving {
        /// The exit code.
        code: u8,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinals_count_the_cards_that_a_program_can_open() {
        let all = ["GPU-a", "GPU-b"].map(str::to_owned);
        let request = AttachRequest {
            openable: Some(vec!["GPU-b".to_owned()]),
            visible_devices: Some("0".to_owned()),
            ..AttachRequest::default()
        };
        assert_eq!(request.sees(&all), ["GPU-b"]);
        assert_eq!(AttachRequest::default().sees(&all), all);
    }
}
