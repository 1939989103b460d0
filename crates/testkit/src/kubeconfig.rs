use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::certs::Pair;

/// How the user of a kubeconfig proves its identity.
pub(crate) enum Identity<'a> {
    Certificate(&'a Pair),
    Token(&'a str),
}

/// A kubeconfig with everything inline, so that the file works wherever it is copied.
///
/// It is written as JSON, which every YAML parser accepts.
pub(crate) fn render(server: &str, ca_pem: &str, who: &Identity<'_>) -> String {
    let inline = |pem: &str| ByteString(pem.as_bytes().to_vec());
    let user = match who {
        Identity::Certificate(pair) => json!({
            "client-certificate-data": inline(&pair.cert),
            "client-key-data": inline(&pair.key),
        }),
        Identity::Token(token) => json!({ "token": token }),
    };
    let mut cluster = json!({ "server": server });
    // client-go refuses a CA beside a plain-HTTP address.
    if server.starts_with("https:") {
        cluster["certificate-authority-data"] = json!(inline(ca_pem));
    }
    let config: Value = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "testkit", "cluster": cluster }],
        "users": [{ "name": "testkit", "user": user }],
        "contexts": [{ "name": "testkit", "context": { "cluster": "testkit", "user": "testkit" } }],
        "current-context": "testkit",
    });
    format!("{config:#}\n")
}
