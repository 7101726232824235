//! The built-in kinds, as a table to read.
//!
//! Only kinds that this project's parts, its chart and its tests touch are listed; any other is
//! added with [`ResourceType::custom`].

use std::sync::Arc;

use super::resource::{Generation, Origin, ResourceType, Scope, StatusRule};

/// API version, plural, kind, short name, then what differs: `cluster` for cluster-scoped kinds,
/// `status` for those with a status subresource, `generation` for those that count spec changes,
/// `all` for what `kubectl get all` shows.
const BUILT_IN: &str = "
v1                            pods                    Pod                   po     status generation all
v1                            nodes                   Node                  no     cluster status
v1                            namespaces              Namespace             ns     cluster status
v1                            configmaps              ConfigMap             cm
v1                            secrets                 Secret                -
v1                            events                  Event                 ev
v1                            services                Service               svc    status all
v1                            serviceaccounts         ServiceAccount        sa
v1                            persistentvolumeclaims  PersistentVolumeClaim pvc    status
events.k8s.io/v1              events                  Event                 ev
apps/v1                       daemonsets              DaemonSet             ds     status generation all
apps/v1                       deployments             Deployment            deploy status generation all
apps/v1                       replicasets             ReplicaSet            rs     status generation all
apps/v1                       statefulsets            StatefulSet           sts    status generation all
batch/v1                      jobs                    Job                   -      status generation all
policy/v1                     poddisruptionbudgets    PodDisruptionBudget   pdb    status generation
coordination.k8s.io/v1        leases                  Lease                 -
rbac.authorization.k8s.io/v1  clusterroles            ClusterRole           -      cluster
rbac.authorization.k8s.io/v1  clusterrolebindings     ClusterRoleBinding    -      cluster
rbac.authorization.k8s.io/v1  roles                   Role                  -
rbac.authorization.k8s.io/v1  rolebindings            RoleBinding           -
scheduling.k8s.io/v1          priorityclasses         PriorityClass         pc     cluster
admissionregistration.k8s.io/v1 mutatingwebhookconfigurations MutatingWebhookConfiguration - cluster generation
admissionregistration.k8s.io/v1 validatingwebhookconfigurations ValidatingWebhookConfiguration - cluster generation
node.k8s.io/v1                runtimeclasses          RuntimeClass          -      cluster
";

/// The kinds that a server starts with.
pub(crate) fn built_in() -> Vec<Arc<ResourceType>> {
    BUILT_IN.lines().filter_map(kind).map(Arc::new).collect()
}

fn kind(line: &str) -> Option<ResourceType> {
    let mut words = line.split_whitespace();
    let (api_version, plural, kind, short) =
        (words.next()?, words.next()?, words.next()?, words.next()?);
    let flags: Vec<&str> = words.collect();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let has = |flag: &str| flags.contains(&flag);
    Some(ResourceType {
        group: group.to_owned(),
        version: version.to_owned(),
        plural: plural.to_owned(),
        kind: kind.to_owned(),
        scope: if has("cluster") { Scope::Cluster } else { Scope::Namespaced },
        short_names: Some(short.to_owned()).filter(|s| s != "-").into_iter().collect(),
        categories: if has("all") { vec!["all".to_owned()] } else { Vec::new() },
        status: if has("status") { StatusRule::MetadataWritable } else { StatusRule::Absent },
        generation: if has("generation") { Generation::Tracked } else { Generation::Untracked },
        origin: Origin::BuiltIn,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_a_kind() {
        let lines = BUILT_IN.lines().filter(|line| !line.is_empty()).count();
        assert_eq!(built_in().len(), lines);
    }
}
