//! The account of the demo's operator: it reads what every operator reads, and writes only where the
//! samples are.

use std::io::Write as _;
use std::path::Path;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{DynamicObject, PostParams};
use kube::config::Kubeconfig;
use kube::{Api, Client};
use landfall_controllers::permissions::Rule;
use landfall_controllers::services::permissions;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::{Error, SYSTEM};
use crate::generate::rbac::{self, Account};

const ACCOUNT: Account = Account { name: "landfall-operator", namespace: SYSTEM };
/// Of the role for the whole cluster, and of its binding.
const CLUSTER_ROLE: &str = "landfall-demo-operator";
/// Longer than a demo; the API server may allow less.
const TOKEN_SECONDS: i64 = 12 * 3600;
const READS: [&str; 3] = ["get", "list", "watch"];

/// Namespace, account and rights of an operator that may write the status of Services in these
/// namespaces, the status of these pools, and claims.
pub(super) fn objects(
    namespaces: &[String],
    pools: &[String],
) -> Result<Vec<DynamicObject>, serde_json::Error> {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": SYSTEM },
    });
    // The demo's operator looks for kube-vip's pools in its own namespace, where there are none.
    let own = [landfall::permissions::NAMESPACED, permissions::KUBE_VIP].concat();
    let all = permissions::CLUSTER.iter().chain(permissions::DEFAULT_NAMESPACE).copied();
    let (everywhere, with_samples): (Vec<_>, Vec<_>) = all.partition(is_for_the_whole_cluster);

    let metadata = json!({ "name": CLUSTER_ROLE });
    let mut role = rbac::role("ClusterRole", &metadata, &everywhere);
    for rule in role["rules"].as_array_mut().into_iter().flatten() {
        if rule["resources"] == json!(["ipgroups/status"]) {
            rule["resourceNames"] = json!(pools);
        }
    }
    let mut objects = vec![namespace, ACCOUNT.object(), role];
    objects.push(rbac::binding("ClusterRole", &metadata, ACCOUNT));
    objects.extend(namespaced(SYSTEM, &own));
    for namespace in namespaces {
        objects.extend(namespaced(namespace, &with_samples));
    }
    objects.into_iter().map(serde_json::from_value).collect()
}

/// Reads, and writes of our own kinds, which are in no namespace.
fn is_for_the_whole_cluster(rule: &Rule) -> bool {
    rule.verbs.iter().all(|verb| READS.contains(verb)) || rule.groups == ["paas.org"]
}

fn namespaced(namespace: &str, rules: &[Rule]) -> [Value; 2] {
    let metadata = json!({ "name": ACCOUNT.name, "namespace": namespace });
    [rbac::role("Role", &metadata, rules), rbac::binding("Role", &metadata, ACCOUNT)]
}

/// A kubeconfig of the account for the cluster of another one, in a file that goes when it is dropped.
pub(super) async fn kubeconfig(client: &Client, of: &Path) -> Result<NamedTempFile, Error> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), ACCOUNT.namespace);
    let spec =
        TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let answer =
        accounts.create_token_request(ACCOUNT.name, &PostParams::default(), &request).await;
    let answer = answer.map_err(Error::call("asking for a token of the operator's account"))?;
    let token = answer.status.ok_or(Error::NoToken)?.token;
    let read = Kubeconfig::read_from(of).map_err(|source| Error::Kubeconfig(Box::new(source)))?;
    let text = with_token(&read, &token).ok_or(Error::NoContext)?.to_string();
    let mut file = NamedTempFile::new().map_err(Error::File)?;
    file.write_all(text.as_bytes()).map_err(Error::File)?;
    Ok(file)
}

/// The same cluster, with the token in place of whatever its user proves itself by. It is JSON, which
/// every reader of YAML takes.
fn with_token(read: &Kubeconfig, token: &str) -> Option<Value> {
    let current = read.current_context.as_ref()?;
    let context =
        read.contexts.iter().find(|context| context.name == *current)?.context.as_ref()?;
    let cluster = read.clusters.iter().find(|cluster| cluster.name == context.cluster)?;
    Some(json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [cluster],
        "users": [{ "name": ACCOUNT.name, "user": { "token": token } }],
        "contexts": [{
            "name": ACCOUNT.name,
            "context": { "cluster": cluster.name, "user": ACCOUNT.name },
        }],
        "current-context": ACCOUNT.name,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_writes_only_where_the_samples_are() {
        let (namespaces, pools) = (["shop".to_owned()], ["public".to_owned()]);
        let mut writes = Vec::new();
        for object in objects(&namespaces, &pools).unwrap() {
            let place = object.metadata.namespace.unwrap_or_else(|| "everywhere".to_owned());
            for rule in object.data["rules"].as_array().into_iter().flatten() {
                let words = |field: &str| -> Vec<String> {
                    serde_json::from_value(rule[field].clone()).unwrap_or_default()
                };
                let mut verbs = words("verbs");
                verbs.retain(|verb| !READS.contains(&&**verb));
                if !verbs.is_empty() {
                    let (verbs, on) = (verbs.join(","), words("resources").join(","));
                    let named = words("resourceNames").join(",");
                    writes.push(format!("{place}: {verbs} {on} {named}").trim_end().to_owned());
                }
            }
        }
        let expected = [
            "everywhere: patch ipgroups/status public",
            "everywhere: create,delete,patch ips",
            "landfall-demo-system: update leases landfall-operator",
            "landfall-demo-system: create leases",
            "shop: patch services/status",
            "shop: create events",
        ];
        assert_eq!(writes, expected);
    }

    #[test]
    fn the_operator_reaches_the_same_cluster_with_nothing_but_its_token() {
        let read: Kubeconfig = serde_json::from_value(json!({
            "clusters": [
                { "name": "other", "cluster": { "server": "https://other" } },
                { "name": "mine", "cluster": {
                    "server": "https://mine", "certificate-authority-data": "Y2E=",
                    "tls-server-name": "api", "proxy-url": "http://127.0.0.1:1",
                } },
            ],
            "users": [{ "name": "me", "user": { "client-key-data": "secret" } }],
            "contexts": [{ "name": "it", "context": { "cluster": "mine", "user": "me" } }],
            "current-context": "it",
        }))
        .unwrap();
        let made = with_token(&read, "t").unwrap();
        assert!(!made.to_string().contains("secret"), "{made}");
        let [cluster] = made["clusters"].as_array().unwrap().as_slice() else { panic!("{made}") };
        assert_eq!(cluster["cluster"]["server"], "https://mine");
        assert_eq!(cluster["cluster"]["certificate-authority-data"], "Y2E=");
        assert_eq!(cluster["cluster"]["tls-server-name"], "api");
        assert_eq!(cluster["cluster"]["proxy-url"], "http://127.0.0.1:1");
        assert_eq!(made["users"], json!([{ "name": ACCOUNT.name, "user": { "token": "t" } }]));

        let lost = Kubeconfig { current_context: Some("gone".to_owned()), ..read };
        assert_eq!(with_token(&lost, "t"), None);
    }
}
