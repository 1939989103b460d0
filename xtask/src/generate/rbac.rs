//! `deploy/rbac.yaml` and `deploy/kube-vip/rbac.yaml`: the operator's account and exactly the rights
//! that the code asks for, in a namespace of its own and in place of kube-vip-cloud-provider.

use landfall_controllers::{permissions::Rule, services::permissions};
use serde_json::{Value, json};

use super::{Error, File, NOTICE};

/// Where the operator runs and keeps its lease, unless told otherwise.
const NAMESPACE: &str = "landfall-system";
/// The operator's account, and the name of its roles.
const ACCOUNT: &str = "landfall-operator";
/// The account in place of kube-vip-cloud-provider. Not that program's own, so that it goes on working
/// until the Pod that follows it is there, and again for whoever goes back.
const KUBE_VIP_ACCOUNT: &str = "landfall-kube-vip";
/// What the old kinds need on top. A role of its own, because a cluster without them can do without
/// it when the operator runs with `--controllers=services`.
const MIGRATION: &str = "landfall-operator-migration";
/// What everybody who may change a namespace may do with the old kinds.
const EDIT: &str = "landfall-edit";
/// What everybody who may look at a namespace may also read.
const VIEW: &str = "landfall-view";

pub(super) fn files() -> Result<Vec<File>, Error> {
    let files =
        [("deploy/rbac.yaml", objects()), ("deploy/kube-vip/rbac.yaml", kube_vip_objects())];
    files.into_iter().map(|(path, objects)| file(path, &objects)).collect()
}

fn file(path: &str, objects: &[Value]) -> Result<File, Error> {
    let path = path.to_owned();
    let mut text = format!("# {NOTICE}\n");
    for (index, object) in objects.iter().enumerate() {
        if index > 0 {
            text.push_str("---\n");
        }
        match serde_saphyr::to_string(object) {
            Ok(yaml) => text.push_str(&yaml),
            Err(source) => return Err(Error::Yaml { path, source }),
        }
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(File { path, text })
}

/// Everything in the provider's own namespace, which is there already, and nothing for the old kinds.
fn kube_vip_objects() -> Vec<Value> {
    let (name, namespace) = (KUBE_VIP_ACCOUNT, permissions::KUBE_VIP_NAMESPACE);
    let account = json!({ "kind": "ServiceAccount", "name": name, "namespace": namespace });
    let (everywhere, here, default) = (
        json!({ "name": name }),
        json!({ "name": name, "namespace": namespace }),
        json!({ "name": name, "namespace": "default" }),
    );
    let rules = [landfall::permissions::KUBE_VIP, permissions::KUBE_VIP].concat();
    vec![
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": here }),
        role("ClusterRole", &everywhere, permissions::CLUSTER),
        binding("ClusterRole", &everywhere, &account),
        role("Role", &here, &rules),
        binding("Role", &here, &account),
        role("Role", &default, permissions::DEFAULT_NAMESPACE),
        binding("Role", &default, &account),
    ]
}

/// The operator in a namespace of its own.
fn objects() -> Vec<Value> {
    // The strictest profile: the operator needs nothing from its node.
    let labels = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
    let account = json!({ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE });
    let kube_vip = json!({ "name": ACCOUNT, "namespace": permissions::KUBE_VIP_NAMESPACE });
    let view = Rule {
        groups: &["paas.org"],
        resources: &["groupsegmentmappings", "ipgroups", "ips", "virtualips"],
        verbs: &["get", "list", "watch"],
        names: &[],
    };
    // To ask for a migration, and to delete what was migrated. New ones are not made.
    let edit = Rule {
        groups: &["paas.org"],
        resources: &["virtualips"],
        verbs: &["delete", "patch", "update"],
        names: &[],
    };
    vec![
        json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": NAMESPACE, "labels": labels },
        }),
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": { "name": ACCOUNT, "namespace": NAMESPACE },
        }),
        role("ClusterRole", &json!({ "name": ACCOUNT }), permissions::CLUSTER),
        binding("ClusterRole", &json!({ "name": ACCOUNT }), &account),
        role(
            "ClusterRole",
            &json!({ "name": MIGRATION }),
            landfall_controllers::migration::permissions::CLUSTER,
        ),
        binding("ClusterRole", &json!({ "name": MIGRATION }), &account),
        role(
            "Role",
            &json!({ "name": ACCOUNT, "namespace": NAMESPACE }),
            landfall::permissions::NAMESPACED,
        ),
        binding("Role", &json!({ "name": ACCOUNT, "namespace": NAMESPACE }), &account),
        role(
            "Role",
            &json!({ "name": ACCOUNT, "namespace": "default" }),
            permissions::DEFAULT_NAMESPACE,
        ),
        binding("Role", &json!({ "name": ACCOUNT, "namespace": "default" }), &account),
        role("Role", &kube_vip, permissions::KUBE_VIP),
        binding("Role", &kube_vip, &account),
        role(
            "ClusterRole",
            &json!({
                "name": VIEW,
                "labels": { "rbac.authorization.k8s.io/aggregate-to-view": "true" },
            }),
            &[view],
        ),
        role(
            "ClusterRole",
            &json!({
                "name": EDIT,
                "labels": { "rbac.authorization.k8s.io/aggregate-to-edit": "true" },
            }),
            &[edit],
        ),
    ]
}

fn role(kind: &str, metadata: &Value, rules: &[Rule]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "rules": rules.iter().map(rule).collect::<Vec<_>>(),
    })
}

fn rule(rule: &Rule) -> Value {
    let mut value =
        json!({ "apiGroups": rule.groups, "resources": rule.resources, "verbs": rule.verbs });
    // An empty list of names would mean "none", not "all".
    if !rule.names.is_empty() {
        value["resourceNames"] = json!(rule.names);
    }
    value
}

fn binding(role: &str, metadata: &Value, subject: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": format!("{role}Binding"),
        "metadata": metadata,
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": role,
            "name": metadata["name"],
        },
        "subjects": [subject],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_restrict_a_rule_only_where_there_are_some() {
        let free = Rule { groups: &[""], resources: &["pods"], verbs: &["get"], names: &[] };
        assert!(rule(&free).get("resourceNames").is_none());
        assert_eq!(rule(&Rule { names: &["a"], ..free })["resourceNames"], json!(["a"]));
    }

    #[test]
    fn nobody_gets_a_wildcard() {
        for object in objects().into_iter().chain(kube_vip_objects()) {
            assert!(!object.to_string().contains('*'), "{object}");
        }
    }
}
