//! What tests do to the cluster directly, without HTTP: the same operations, with less typing.

use std::sync::Arc;

use serde_json::{Value, json};

use super::FakeKube;
use super::cluster::Target;
use super::error::ApiError;
use super::event_form::to_served;
use super::lifecycle::DeleteOptions;
use super::resource::{ResourceType, Scope, StatusRule};
use super::strategic;
use super::strategy::Part;
use super::write::{self, Keep};

impl FakeKube {
    /// Creates an object; its kind comes from the value, its namespace too (`default` if unset,
    /// made if missing). A status in the value is written as well, unlike over HTTP.
    pub async fn create(&self, value: Value) -> Result<Value, ApiError> {
        let resource = self.resource_of(&value)?;
        let namespace = match resource.scope {
            Scope::Cluster => None,
            Scope::Namespaced => {
                let named = value.pointer("/metadata/namespace").and_then(Value::as_str);
                let namespace = named.unwrap_or("default");
                self.ensure_namespace(namespace).await?;
                Some(namespace.to_owned())
            }
        };
        let status = value.get("status").cloned();
        let namespace = namespace.as_deref();
        let made = write::create(&self.cluster, &resource, namespace, value, Keep::Store).await?;
        let Some(status) = status.filter(|_| resource.status != StatusRule::Absent) else {
            return Ok(to_served(&resource, &made));
        };
        let target = Target::new(&resource, namespace, made.name());
        self.merge_into(&target, Part::Status, &json!({"status": status})).await
    }

    /// An object by its plural resource name, such as `pods` or `daemonsets`; the namespace is
    /// ignored for cluster-scoped kinds.
    pub fn get(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let target = self.target(plural, namespace, name).ok()?;
        let object = target.fetch(&self.cluster).ok()?;
        Some(to_served(&target.resource, &object))
    }

    /// All objects of a resource, by namespace and name.
    pub fn list(&self, plural: &str) -> Vec<Value> {
        let Some(resource) = self.cluster.resource_of_plural(plural) else {
            return Vec::new();
        };
        let objects = self.cluster.read(|store| store.list(&resource.storage(), None));
        objects.iter().map(|object| to_served(&resource, object)).collect()
    }

    /// The whole state, for looking at a failed test.
    pub fn objects(&self) -> Vec<Value> {
        self.cluster.read(|store| store.all().map(|(_, object)| object.value().clone()).collect())
    }

    /// Merges a strategic merge patch into an object, status excluded.
    pub async fn patch(
        &self,
        plural: &str,
        namespace: &str,
        name: &str,
        patch: Value,
    ) -> Result<Value, ApiError> {
        self.merge_into(&self.target(plural, namespace, name)?, Part::Main, &patch).await
    }

    /// Merges a strategic merge patch into an object's status.
    pub async fn patch_status(
        &self,
        plural: &str,
        namespace: &str,
        name: &str,
        status: Value,
    ) -> Result<Value, ApiError> {
        let target = self.target(plural, namespace, name)?;
        self.merge_into(&target, Part::Status, &json!({"status": status})).await
    }

    /// Sets a label of a node.
    pub async fn patch_node_label(
        &self,
        node: &str,
        label: &str,
        value: &str,
    ) -> Result<Value, ApiError> {
        self.patch("nodes", "", node, json!({"metadata": {"labels": {label: value}}})).await
    }

    /// Removes a label of a node.
    pub async fn remove_node_label(&self, node: &str, label: &str) -> Result<Value, ApiError> {
        self.patch("nodes", "", node, json!({"metadata": {"labels": {label: null}}})).await
    }

    /// Deletes an object as a client would: a pod on a node only starts to terminate.
    pub async fn delete(&self, plural: &str, namespace: &str, name: &str) -> Result<(), ApiError> {
        self.delete_with(plural, namespace, name, DeleteOptions::default()).await
    }

    /// Removes a pod's object as the kubelet does once its containers are gone.
    pub async fn confirm_pod_deletion(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<(), ApiError> {
        let options = DeleteOptions {
            grace_seconds: Some(0),
            uid: Some(uid.to_owned()),
            resource_version: None,
        };
        self.delete_with("pods", namespace, name, options).await
    }

    /// The events about the object of this kind and name, as `v1` events, oldest first.
    pub fn events_of(&self, kind: &str, name: &str) -> Vec<Value> {
        let about = |event: &Value, field: &str| {
            let pointer = format!("/involvedObject/{field}");
            event.pointer(&pointer).and_then(Value::as_str).map(str::to_owned)
        };
        let version = |event: &Value| -> u64 {
            let text = event.pointer("/metadata/resourceVersion").and_then(Value::as_str);
            text.and_then(|text| text.parse().ok()).unwrap_or(0)
        };
        let mut events = self.list("events");
        events.retain(|event| {
            about(event, "kind").as_deref() == Some(kind)
                && about(event, "name").as_deref() == Some(name)
        });
        events.sort_by_key(version);
        events
    }

    pub(crate) async fn create_namespace(&self, name: &str) -> Result<(), ApiError> {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let resource = self.resource_of(&namespace)?;
        write::create(&self.cluster, &resource, None, namespace, Keep::Store).await.map(|_| ())
    }

    async fn ensure_namespace(&self, name: &str) -> Result<(), ApiError> {
        match self.create_namespace(name).await {
            Err(error) if error.reason != "AlreadyExists" => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    async fn delete_with(
        &self,
        plural: &str,
        namespace: &str,
        name: &str,
        options: DeleteOptions,
    ) -> Result<(), ApiError> {
        let target = self.target(plural, namespace, name)?;
        write::delete(&self.cluster, &target, &options, Keep::Store).await.map(|_| ())
    }

    async fn merge_into(
        &self,
        target: &Target,
        part: Part,
        patch: &Value,
    ) -> Result<Value, ApiError> {
        let resource = &target.resource;
        let propose = |current: &super::object::Object| {
            let mut value = to_served(resource, current);
            strategic::merge(&mut value, patch);
            Ok(value)
        };
        let stored = write::update(&self.cluster, target, part, Keep::Store, propose).await?;
        Ok(to_served(resource, &stored))
    }

    fn target(&self, plural: &str, namespace: &str, name: &str) -> Result<Target, ApiError> {
        let resource =
            self.cluster.resource_of_plural(plural).ok_or_else(ApiError::path_not_found)?;
        Ok(Target::new(&resource, Some(namespace), name))
    }

    fn resource_of(&self, value: &Value) -> Result<Arc<ResourceType>, ApiError> {
        let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        self.cluster.resource_of_kind(api_version, kind).ok_or_else(|| {
            ApiError::bad_request(format!("no kind `{kind}` in version `{api_version}` is known"))
        })
    }
}
