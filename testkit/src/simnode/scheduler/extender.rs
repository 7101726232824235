//! A scheduler extender, called as kube-scheduler calls it (facts/kubernetes.md 6.1 to 6.5):
//! `nodeCacheCapable`, not `ignorable`, and so the one who binds what it manages.

use std::net::SocketAddr;
use std::time::Duration;

use axum::http::{Request, header};
use kube::{Client, Config};
use serde_json::{Map, Value, json};

use super::told::Failure;

/// kube-scheduler's `httpTimeout` when none is set, for the whole exchange.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A resource in `managedResources`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagedResource {
    /// Its name.
    pub name: &'static str,
    /// Who counts it.
    pub counted_by: CountedBy,
}

/// Who counts a managed resource: `ignoredByScheduler`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedBy {
    /// Only the extender, which therefore says why a pod doesn't fit.
    Extender,
    /// The scheduler too, and it first.
    Both,
}

/// An extender.
#[derive(Clone)]
pub(in crate::simnode) struct Extender {
    client: Client,
    prefix: String,
    managed: Vec<ManagedResource>,
}

impl Extender {
    pub(in crate::simnode) fn new(
        address: SocketAddr,
        managed: Vec<ManagedResource>,
    ) -> anyhow::Result<Self> {
        let prefix = format!("http://{address}/gpushare-scheduler");
        let mut config = Config::new(format!("http://{address}").parse()?);
        config.default_retry = false;
        Ok(Self { client: Client::try_from(config)?, prefix, managed })
    }

    /// The resources that the scheduler's own plugin leaves to it.
    pub(super) fn ignored(&self) -> Vec<&str> {
        let managed = self.managed.iter();
        let ignored = managed.filter(|resource| resource.counted_by == CountedBy::Extender);
        ignored.map(|resource| resource.name).collect()
    }

    /// Whether any container names a managed resource, in requests or limits, be it 0.
    pub(super) fn is_interested(&self, pod: &Value) -> bool {
        let containers = ["containers", "initContainers"]
            .into_iter()
            .filter_map(|list| pod.pointer(&format!("/spec/{list}"))?.as_array())
            .flatten();
        let mut amounts = containers.flat_map(|container| {
            let of = |part: &str| container.pointer(&format!("/resources/{part}"))?.as_object();
            [of("limits"), of("requests")].into_iter().flatten()
        });
        self.managed.is_empty()
            || amounts.any(|amounts| {
                self.managed.iter().any(|resource| amounts.contains_key(resource.name))
            })
    }

    /// Whether it leaves the node in.
    pub(super) async fn filter(&self, pod: &Value, node: &str) -> Result<(), Failure> {
        let question = json!({"Pod": pod, "Nodes": null, "NodeNames": [node]});
        read_filter(&self.ask("filter", &question).await?, node)
    }

    /// Has it bind the pod.
    pub(super) async fn bind(&self, pod: &Value, node: &str) -> Result<(), Failure> {
        let text = |field: &str| pod.pointer(&format!("/metadata/{field}")).cloned();
        let question = json!({
            "PodName": text("name"), "PodNamespace": text("namespace"), "PodUID": text("uid"),
            "Node": node,
        });
        let answer = self.ask("bind", &question).await?;
        match key(&answer, "Error").and_then(Value::as_str) {
            None | Some("") => Ok(()),
            Some(error) => Err(Failure::error(error)),
        }
    }

    async fn ask(&self, verb: &str, question: &Value) -> Result<Map<String, Value>, Failure> {
        let url = format!("{}/{verb}", self.prefix);
        let failed = |why: String| Failure::error(format!("Post \"{url}\": {why}"));
        let request = Request::post(url.as_str())
            .header(header::CONTENT_TYPE, "application/json")
            .body(question.to_string().into_bytes())
            .map_err(|error| failed(error.to_string()))?;
        let answer = tokio::time::timeout(TIMEOUT, self.client.request_text(request)).await;
        let text = answer
            .map_err(|_| failed(format!("no answer within {TIMEOUT:?}")))?
            .map_err(|error| failed(anyhow::Error::from(error).root_cause().to_string()))?;
        serde_json::from_str(&text).map_err(|error| failed(error.to_string()))
    }
}

fn read_filter(answer: &Map<String, Value>, node: &str) -> Result<(), Failure> {
    if let Some(error) =
        key(answer, "Error").and_then(Value::as_str).filter(|text| !text.is_empty())
    {
        return Err(Failure::error(error));
    }
    let left = key(answer, "NodeNames").and_then(Value::as_array);
    let left: Vec<&Value> = left.into_iter().flatten().collect();
    if let Some(other) = left.iter().find(|name| **name != node) {
        return Err(Failure::error(format!("extender claims a filtered node {other}")));
    }
    if !left.is_empty() {
        return Ok(());
    }
    let why = ["FailedAndUnresolvableNodes", "FailedNodes"]
        .into_iter()
        .find_map(|map| key(answer, map)?.get(node)?.as_str());
    let why = why.map_or_else(String::new, |why| format!(" 1 {why}."));
    Err(Failure::unschedulable(format!("0/1 nodes are available:{why}")))
}

/// A key of an answer; Go matches them whatever their case.
fn key<'a>(answer: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    answer.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extender(managed: &[ManagedResource]) -> Extender {
        Extender::new("127.0.0.1:1".parse().unwrap(), managed.to_vec()).unwrap()
    }

    fn filtered(answer: &Value) -> Result<(), Failure> {
        read_filter(answer.as_object().unwrap(), "n")
    }

    #[tokio::test]
    async fn it_is_asked_about_pods_that_name_a_managed_resource_anywhere_even_for_nothing() {
        let memory = ManagedResource { name: "a/mem", counted_by: CountedBy::Extender };
        let both = ManagedResource { name: "n/gpu", counted_by: CountedBy::Both };
        let extender = extender(&[memory, both]);
        assert_eq!(extender.ignored(), ["a/mem"]);
        for (list, part, resource, is_interested) in [
            ("containers", "limits", "a/mem", true),
            ("containers", "requests", "n/gpu", true),
            ("initContainers", "limits", "a/mem", true),
            ("containers", "limits", "other/x", false),
            ("ephemeralContainers", "limits", "a/mem", false),
        ] {
            let pod = json!({"spec": {list: [{"resources": {part: {resource: "0"}}}]}});
            assert_eq!(extender.is_interested(&pod), is_interested, "{pod}");
        }
        assert!(self::extender(&[]).is_interested(&json!({})));
    }

    #[test]
    fn answers_are_read_as_kube_scheduler_reads_them() {
        assert_eq!(filtered(&json!({"NodeNames": ["n"], "Error": ""})), Ok(()));
        assert_eq!(filtered(&json!({"nodenames": ["n"]})), Ok(()));
        let full = json!({"NodeNames": [], "FailedNodes": {"n": "full"}});
        let why = Failure::unschedulable("0/1 nodes are available: 1 full.");
        assert_eq!(filtered(&full), Err(why));
        let broken = json!({"NodeNames": ["n"], "Error": "not yet"});
        assert_eq!(filtered(&broken), Err(Failure::error("not yet")));
        let foreign = filtered(&json!({"NodeNames": ["n", "m"]}));
        assert!(foreign.is_err_and(|failure| failure.is_error()));
    }

    #[tokio::test]
    async fn one_that_is_not_there_is_an_error_and_no_refusal() {
        // A port that is taken and never listened on.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let extender = Extender::new(socket.local_addr().unwrap(), Vec::new()).unwrap();
        let failure = extender.filter(&json!({}), "n").await.unwrap_err();
        assert!(failure.is_error());
    }
}
