//! Pods of one namespace, by the few of their fields that matter here: the generated type of a
//! whole Pod is a good part of a program that three processes on every node keep in memory.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, GetParams, ListParams, PostParams, Request};
use kube::{Client, Resource as _};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// Where pods are asked for, made and deleted.
pub(crate) struct Pods {
    client: Client,
    request: Request,
}

/// A pod, as it is read.
#[derive(Deserialize)]
pub(crate) struct SlimPod {
    metadata: SlimMetadata,
    #[serde(default)]
    pub(crate) status: SlimStatus,
}

#[derive(Deserialize)]
struct SlimMetadata {
    name: String,
}

/// Where a pod is.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SlimStatus {
    pub(crate) phase: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
    container_statuses: Option<Vec<SlimContainer>>,
}

#[derive(Deserialize)]
struct SlimContainer {
    state: Option<ContainerState>,
}

/// Where a container is.
#[derive(Deserialize)]
pub(crate) struct ContainerState {
    pub(crate) waiting: Option<Waiting>,
    pub(crate) terminated: Option<Terminated>,
}

/// Why a container doesn't run yet.
#[derive(Deserialize)]
pub(crate) struct Waiting {
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
}

/// How a container ended.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Terminated {
    pub(crate) exit_code: i32,
    pub(crate) message: Option<String>,
}

#[derive(Deserialize)]
struct List {
    items: Vec<SlimPod>,
}

impl SlimStatus {
    /// The state of the only container.
    pub(crate) fn container(&self) -> Option<&ContainerState> {
        self.container_statuses.as_ref()?.first()?.state.as_ref()
    }
}

impl Pods {
    pub(crate) fn of(client: &Client, namespace: &str) -> Self {
        let request = Request::new(Pod::url_path(&(), Some(namespace)));
        Self { client: client.clone(), request }
    }

    /// The names of the pods that match.
    pub(crate) async fn names(&self, which: &ListParams) -> Result<Vec<String>, kube::Error> {
        let request = self.request.list(which).map_err(kube::Error::BuildRequest)?;
        let list: List = self.client.request(request).await?;
        Ok(list.items.into_iter().map(|pod| pod.metadata.name).collect())
    }

    /// A pod; `None` where there is none.
    pub(crate) async fn get(&self, name: &str) -> Result<Option<SlimPod>, kube::Error> {
        let request = self.request.get(name, &GetParams::default());
        unless(404, self.client.request(request.map_err(kube::Error::BuildRequest)?).await)
    }

    /// Makes a pod. One of its name that is there counts: an earlier request made it, whose answer
    /// was lost.
    pub(crate) async fn create(&self, manifest: &Value) -> Result<(), kube::Error> {
        let body = manifest.to_string().into_bytes();
        let request = self.request.create(&PostParams::default(), body);
        let request = request.map_err(kube::Error::BuildRequest)?;
        unless(409, self.client.request::<IgnoredAny>(request).await).map(drop)
    }

    /// Deletes a pod; one that isn't there is deleted.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), kube::Error> {
        let request = self.request.delete(name, &DeleteParams::default());
        let request = request.map_err(kube::Error::BuildRequest)?;
        unless(404, self.client.request::<IgnoredAny>(request).await).map(drop)
    }
}

/// The answer with this HTTP code is no error, and `None`.
fn unless<T>(code: u16, result: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match result {
        Ok(it) => Ok(Some(it)),
        Err(kube::Error::Api(status)) if status.code == code => Ok(None),
        Err(error) => Err(error),
    }
}
