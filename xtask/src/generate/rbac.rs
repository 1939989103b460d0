//! `deploy/rbac*.yaml` and `deploy/kube-vip/rbac.yaml`: the operator's account and exactly the rights that
//! the code declares, in its own namespace and in place of kube-vip-cloud-provider.
//!
//! The rights that every operator needs are one role. Rights that only some clusters need are separate roles
//! in separate files, each with its purpose.

use landfall_api::keys::{ANNOTATION_PURPOSE, LABEL_ROLE};
use landfall_controllers::{
    keepalived::{self, permissions::KEEPALIVED},
    migration,
    permissions::{Role, Rule},
    services::permissions::{self, WRITE_SERVICES},
};
use serde_json::{Value, json};

use super::{Error, File, NOTICE, labels};

/// The default namespace of the operator and its lease.
const NAMESPACE: &str = "landfall-system";
/// The operator's account, and the name of its roles.
const ACCOUNT: &str = "landfall-operator";
/// The account in place of kube-vip-cloud-provider. Not that program's own, so that it goes on working until
/// the Pod that replaces it is there, and again for users who go back.
const KUBE_VIP_ACCOUNT: &str = "landfall-kube-vip";
/// Rights on the old kinds, for users who may change a namespace.
const EDIT: &str = "landfall-edit";
/// Rights to read our kinds, for users who may read a namespace.
const VIEW: &str = "landfall-view";

/// The purpose of each role that every operator needs, in the order of the roles in a file.
const BASE: &str = "Every operator needs it: to watch what it serves, to keep the ledger, and to write \
                    the status of Services and pools.";
const LEASE: &str = "Every operator needs it: to take the lease by which one of several leads.";
const API_SERVERS: &str = "Every operator needs it: to know the addresses of the API servers, which are \
                           never given.";
const POOL_MAP: &str =
    "Every operator needs it: to read the pools of kube-vip's ConfigMap, if there is one.";

pub(super) fn files() -> Result<Vec<File>, Error> {
    let account = Account { name: ACCOUNT, namespace: NAMESPACE };
    let of = |role: &Role| [cluster_role(account, role), cluster_binding(account, role)];
    [
        ("deploy/rbac.yaml", "Namespace, account and rights of the operator.", objects(account)),
        ("deploy/rbac-services.yaml", WRITE_SERVICES.purpose, of(&WRITE_SERVICES).into()),
        (
            "deploy/rbac-migration.yaml",
            migration::permissions::MIGRATE.purpose,
            of(&migration::permissions::MIGRATE).into(),
        ),
        ("deploy/rbac-keepalived.yaml", KEEPALIVED.purpose, of(&KEEPALIVED).into()),
        (
            "deploy/kube-vip/rbac.yaml",
            "Account and rights of the operator in place of kube-vip-cloud-provider.",
            kube_vip_objects(),
        ),
    ]
    .into_iter()
    .map(|(path, about, objects)| file(path, about, &objects))
    .collect()
}

fn file(path: &str, about: &str, objects: &[Value]) -> Result<File, Error> {
    let path = path.to_owned();
    let mut text = format!("# {NOTICE}\n#\n# {}\n", wrapped(about).join("\n# "));
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

/// A sentence in lines that fit beside a `#`.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            line.push_str(word);
        } else if line.len() + word.len() < WIDTH {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// The longest line of a comment, without its mark.
const WIDTH: usize = 100;

/// The account that has the rights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    pub(crate) name: &'static str,
    pub(crate) namespace: &'static str,
}

impl Account {
    pub(crate) fn object(self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {
                "name": self.name, "namespace": self.namespace, "labels": labels("operator"),
            },
        })
    }

    fn subject(self) -> Value {
        json!({ "kind": "ServiceAccount", "name": self.name, "namespace": self.namespace })
    }
}

/// Everything in the provider's own namespace, which exists already, and nothing for the old kinds.
fn kube_vip_objects() -> Vec<Value> {
    let namespace = permissions::KUBE_VIP_NAMESPACE;
    let account = Account { name: KUBE_VIP_ACCOUNT, namespace };
    let mut objects = vec![account.object()];
    objects.extend(base(account, permissions::CLUSTER));
    objects.extend([
        cluster_role(account, &WRITE_SERVICES),
        cluster_binding(account, &WRITE_SERVICES),
    ]);
    let rules = [landfall::permissions::KUBE_VIP, permissions::KUBE_VIP].concat();
    let purpose = "Every operator needs it: for its lease, and to read the pools of the ConfigMap.";
    objects.extend(namespaced(account, namespace, "lease-and-pool-map", purpose, &rules));
    objects.extend(api_servers(account));
    objects
}

/// The operator in its own namespace.
fn objects(account: Account) -> Vec<Value> {
    let mut namespace_labels = labels("operator");
    // The strictest profile: the operator needs nothing from its node.
    namespace_labels["pod-security.kubernetes.io/enforce"] = json!("restricted");
    let mut objects = vec![
        json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": NAMESPACE, "labels": namespace_labels },
        }),
        account.object(),
    ];
    let groups = keepalived::permissions::CLUSTER;
    let rules = [permissions::CLUSTER, migration::permissions::CLUSTER, groups].concat();
    objects.extend(base(account, &rules));
    let lease = landfall::permissions::NAMESPACED;
    objects.extend(namespaced(account, NAMESPACE, "lease", LEASE, lease));
    objects.extend(api_servers(account));
    let map = permissions::KUBE_VIP_NAMESPACE;
    objects.extend(namespaced(account, map, "pool-map", POOL_MAP, permissions::KUBE_VIP));
    objects.extend(for_users());
    objects
}

fn base(account: Account, rules: &[Rule]) -> [Value; 2] {
    let metadata = metadata(account.name, None, "base", BASE);
    [role("ClusterRole", &metadata, rules), binding("ClusterRole", &metadata, account)]
}

fn api_servers(account: Account) -> [Value; 2] {
    let rules = permissions::DEFAULT_NAMESPACE;
    namespaced(account, "default", "api-servers", API_SERVERS, rules)
}

fn namespaced(
    account: Account,
    namespace: &str,
    label: &str,
    purpose: &str,
    rules: &[Rule],
) -> [Value; 2] {
    let metadata = metadata(account.name, Some(namespace), label, purpose);
    [role("Role", &metadata, rules), binding("Role", &metadata, account)]
}

/// A role in addition to the one that every operator needs, named after its purpose.
fn beside(account: Account, role: &Role) -> Value {
    metadata(&format!("{}-{}", account.name, role.label), None, role.label, role.purpose)
}

fn cluster_role(account: Account, about: &Role) -> Value {
    role("ClusterRole", &beside(account, about), about.rules)
}

fn cluster_binding(account: Account, about: &Role) -> Value {
    binding("ClusterRole", &beside(account, about), account)
}

/// The roles that extend the built-in roles of users of a namespace.
fn for_users() -> [Value; 2] {
    let read = &["get", "list", "watch"];
    let view = [
        Rule {
            groups: &["paas.org"],
            resources: &["groupsegmentmappings", "ipgroups", "ips", "virtualips"],
            verbs: read,
            names: &[],
        },
        // Conditions and events of Services refer to the status of the group.
        Rule {
            groups: &["redhatcop.redhat.io"],
            resources: &["keepalivedgroups"],
            verbs: read,
            names: &[],
        },
    ];
    // To ask for a migration, and to delete migrated ones. New ones are not made.
    let edit = [Rule {
        groups: &["paas.org"],
        resources: &["virtualips"],
        verbs: &["delete", "patch", "update"],
        names: &[],
    }];
    [
        (
            VIEW,
            "view",
            "For people who may look at a namespace: to see pools, the holders of addresses, and keepalived groups.",
            &view[..],
        ),
        (
            EDIT,
            "edit",
            "For people who may change a namespace: to migrate and delete its VirtualIPs.",
            &edit[..],
        ),
    ]
    .map(|(name, label, purpose, rules)| {
        let mut metadata = metadata(name, None, label, purpose);
        let aggregate = format!("rbac.authorization.k8s.io/aggregate-to-{label}");
        metadata["labels"][aggregate] = json!("true");
        role("ClusterRole", &metadata, rules)
    })
}

fn metadata(name: &str, namespace: Option<&str>, label: &str, purpose: &str) -> Value {
    let mut metadata = json!({
        "name": name,
        "labels": labels("operator"),
        "annotations": { ANNOTATION_PURPOSE: purpose },
    });
    metadata["labels"][LABEL_ROLE] = json!(label);
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    metadata
}

/// A `Role` or `ClusterRole`.
pub(crate) fn role(kind: &str, metadata: &Value, rules: &[Rule]) -> Value {
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

/// The binding that gives the role of the same kind and name to an account.
pub(crate) fn binding(role: &str, metadata: &Value, account: Account) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": format!("{role}Binding"),
        "metadata": metadata,
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": role,
            "name": metadata["name"],
        },
        "subjects": [account.subject()],
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
    fn no_role_has_a_wildcard() {
        for file in files().unwrap() {
            assert!(!file.text.contains('*'), "{}", file.text);
        }
    }

    #[test]
    fn every_role_and_binding_says_its_purpose() {
        let account = Account { name: ACCOUNT, namespace: NAMESPACE };
        let all = objects(account).into_iter().chain(kube_vip_objects());
        let mut roles = 0;
        for object in all.filter(|object| object["kind"].to_string().contains("Role")) {
            let metadata = &object["metadata"];
            assert!(metadata["labels"][LABEL_ROLE].is_string(), "{object}");
            assert!(metadata["annotations"][ANNOTATION_PURPOSE].is_string(), "{object}");
            roles += 1;
        }
        assert!(roles >= 14, "{roles}");
    }

    /// Rights that only some clusters need are not granted in all of them.
    #[test]
    fn the_role_of_every_operator_writes_no_service_but_its_status() {
        let account = Account { name: ACCOUNT, namespace: NAMESPACE };
        let writes = |rule: &Value| -> Vec<String> {
            let words = |field: &str| -> Vec<String> {
                serde_json::from_value(rule[field].clone()).unwrap()
            };
            let reads = ["get", "list", "watch"];
            let verbs: Vec<_> =
                words("verbs").into_iter().filter(|verb| !reads.contains(&&**verb)).collect();
            let resources = words("resources").into_iter();
            let named = resources.filter(|one| one.starts_with("services"));
            named.flat_map(|one| verbs.iter().map(move |verb| format!("{verb} {one}"))).collect()
        };
        let all = objects(account).into_iter().filter(|object| object["rules"].is_array());
        let rules: Vec<Value> =
            all.flat_map(|object| object["rules"].as_array().cloned().unwrap()).collect();
        let written: Vec<_> = rules.iter().flat_map(writes).collect();
        assert_eq!(written, ["patch services/status"]);
        let definitions = rules.iter().filter(|rule| {
            rule["resources"].as_array().unwrap().contains(&json!("customresourcedefinitions"))
        });
        for rule in definitions {
            assert!(!rule["resourceNames"].as_array().unwrap().is_empty(), "{rule}");
        }
    }
}
