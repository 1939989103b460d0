//! Installs Landfall in a cluster as users do, except for the Pod.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::Api;
use kube::api::ListParams;
use landfall_api::{IP, IPGroup};
use serde_json::Value;

use crate::control_plane::client_from;
use crate::{ControlPlane, Error, Result, wait};

/// Where `deploy/rbac.yaml` puts the operator.
pub const NAMESPACE: &str = "landfall-system";
const ACCOUNT: &str = "landfall-operator";
/// The rights that every operator needs, and those that only some clusters need.
const RIGHTS: [&str; 3] = ["rbac.yaml", "rbac-services.yaml", "rbac-migration.yaml"];
const DEADLINE: Duration = Duration::from_secs(90);

/// One installation: all rights of `deploy/` in a namespace.
#[derive(Clone, Debug)]
pub struct Install {
    deploy: PathBuf,
    namespace: String,
}

impl Install {
    /// Installs the kinds and rights of a `deploy` folder, and waits until they are in force. The kinds of
    /// earlier releases are left out, so that a test can install them later.
    pub async fn new(plane: &ControlPlane, deploy: &Path) -> Result<Self> {
        for kind in ["ips", "ipgroups"] {
            plane.install_crds(&deploy.join(format!("crds/{kind}.paas.org.yaml"))).await?;
        }
        let install = Self { deploy: deploy.to_owned(), namespace: NAMESPACE.to_owned() };
        install.grant(plane).await?;
        install.await_rights(plane).await?;
        Ok(install)
    }

    /// A second installation in another namespace, as if by mistake: it has a lease of its own there, so that
    /// both lead.
    pub async fn again(&self, plane: &ControlPlane, namespace: &str) -> Result<Self> {
        let install = Self { namespace: namespace.to_owned(), ..self.clone() };
        install.grant(plane).await?;
        install.await_rights(plane).await?;
        Ok(install)
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The operator's account as the API server names it.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{ACCOUNT}", self.namespace)
    }

    /// Applies all rights, even if they were applied before and then changed.
    pub async fn grant(&self, plane: &ControlPlane) -> Result<()> {
        for file in RIGHTS {
            let path = self.deploy.join(file);
            let rbac = fs::read_to_string(&path)
                .map_err(Error::io(format!("reading {}", path.display())))?;
            plane.apply_yaml(&in_namespace(&rbac, &self.namespace)?).await?;
        }
        Ok(())
    }

    /// Deletes rights that only some clusters need, such as `services`, until they are granted again.
    pub async fn revoke(&self, plane: &ControlPlane, role: &str) -> Result<()> {
        let name = renamed(&format!("{ACCOUNT}-{role}"), &self.namespace);
        plane.kubectl(&["delete", "clusterrolebinding", &name]).await.map(drop)
    }

    /// A kubeconfig of the operator's account that reaches the API server at `url`.
    pub async fn kubeconfig(&self, plane: &ControlPlane, url: &str) -> Result<PathBuf> {
        plane.service_account_kubeconfig_via(&self.namespace, ACCOUNT, url).await
    }

    /// The authorizer learns of a binding by its own watch, and a new kind answers "storage is
    /// (re)initializing" for a while after it is established.
    async fn await_rights(&self, plane: &ControlPlane) -> Result<()> {
        let client = client_from(&self.kubeconfig(plane, plane.url()).await?).await?;
        let (claims, pools) = (Api::<IP>::all(client.clone()), Api::<IPGroup>::all(client));
        wait::until("the operator's rights", DEADLINE, async || {
            claims.list(&ListParams::default()).await?;
            pools.list(&ListParams::default()).await
        })
        .await?;
        Ok(())
    }
}

/// The same rights for an account in another namespace, under names of their own: some are outside the
/// operator's namespace, and both installations must have them.
fn in_namespace(rbac: &str, namespace: &str) -> Result<String> {
    if namespace == NAMESPACE {
        return Ok(rbac.to_owned());
    }
    let documents = rbac.split("\n---\n").map(|document| {
        let mut object: Value =
            serde_saphyr::from_str(document).map_err(|error| Error::Manifest(error.to_string()))?;
        let is_right = object["apiVersion"].as_str().is_some_and(|it| it.starts_with("rbac."));
        for name in ["/metadata/name", "/roleRef/name"].iter().filter(|_| is_right) {
            change(&mut object, name, |name| {
                name.starts_with(ACCOUNT).then(|| renamed(name, namespace))
            });
        }
        for place in ["/metadata/name", "/metadata/namespace", "/subjects/0/namespace"] {
            change(&mut object, place, |name| (name == NAMESPACE).then(|| namespace.to_owned()));
        }
        Ok(object.to_string())
    });
    Ok(documents.collect::<Result<Vec<_>>>()?.join("\n---\n"))
}

/// The name of a role or binding of an installation.
fn renamed(name: &str, namespace: &str) -> String {
    if namespace == NAMESPACE { name.to_owned() } else { format!("{name}-{namespace}") }
}

/// Replaces a text in an object, if it is there and `with` gives a replacement.
fn change(object: &mut Value, place: &str, with: impl Fn(&str) -> Option<String>) {
    let Some(there) = object.pointer_mut(place) else { return };
    if let Some(new) = there.as_str().and_then(with) {
        *there = new.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_install_takes_nothing_from_the_first() {
        for file in RIGHTS {
            let rbac = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/");
            let first = fs::read_to_string(format!("{rbac}{file}")).unwrap();
            let second = in_namespace(&first, "elsewhere").unwrap();
            assert!(!second.contains(NAMESPACE), "{second}");
            let objects = |rbac: &str| -> Vec<Value> {
                let documents = rbac.split("\n---\n");
                documents.map(|document| serde_saphyr::from_str(document).unwrap()).collect()
            };
            let identity = |object: &Value| {
                let metadata = &object["metadata"];
                [&object["kind"], &metadata["namespace"], &metadata["name"]].map(Value::to_string)
            };
            let (ours, theirs) = (objects(&first), objects(&second));
            assert_eq!(ours.len(), theirs.len());
            for (ours, theirs) in ours.iter().zip(&theirs) {
                // Rights for all users stay the same; rights that name an account do not.
                let shared = ours["metadata"]["name"] == "landfall-view"
                    || ours["metadata"]["name"] == "landfall-edit";
                assert_eq!(identity(ours) == identity(theirs), shared, "{theirs}");
                assert_eq!(ours["roleRef"].is_null(), theirs["roleRef"].is_null());
                if theirs["roleRef"].is_object() {
                    assert_eq!(theirs["roleRef"]["name"], theirs["metadata"]["name"]);
                    assert_eq!(theirs["subjects"][0]["namespace"], "elsewhere");
                    assert_eq!(theirs["subjects"][0]["name"], ACCOUNT);
                }
            }
        }
    }
}
