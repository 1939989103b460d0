//! Landfall in a cluster as its users install it, but for the pod.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::Api;
use kube::api::ListParams;
use landfall_api::{IP, IPGroup};

use crate::control_plane::client_from;
use crate::{ControlPlane, Error, Result, wait};

/// Where `deploy/rbac.yaml` puts the operator.
pub const NAMESPACE: &str = "landfall-system";
const ACCOUNT: &str = "landfall-operator";
const DEADLINE: Duration = Duration::from_secs(90);

/// One installation: the rights of `deploy/rbac.yaml` in a namespace.
#[derive(Clone, Debug)]
pub struct Install {
    deploy: PathBuf,
    namespace: String,
}

impl Install {
    /// Kinds and rights of a `deploy` folder, and the wait until they hold. The kinds of earlier
    /// releases are left out, so that a test can see them come.
    pub async fn new(plane: &ControlPlane, deploy: &Path) -> Result<Self> {
        for kind in ["ips", "ipgroups"] {
            plane.install_crds(&deploy.join(format!("crds/{kind}.paas.org.yaml"))).await?;
        }
        let install = Self { deploy: deploy.to_owned(), namespace: NAMESPACE.to_owned() };
        install.grant(plane).await?;
        install.await_rights(plane).await?;
        Ok(install)
    }

    /// The same once more in another namespace, as if by mistake: it has a lease of its own there,
    /// so that both lead.
    pub async fn again(&self, plane: &ControlPlane, namespace: &str) -> Result<Self> {
        let install = Self { namespace: namespace.to_owned(), ..self.clone() };
        install.grant(plane).await?;
        install.await_rights(plane).await?;
        Ok(install)
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Applies the rights, also once more where somebody has changed them.
    pub async fn grant(&self, plane: &ControlPlane) -> Result<()> {
        let path = self.deploy.join("rbac.yaml");
        let rbac =
            fs::read_to_string(&path).map_err(Error::io(format!("reading {}", path.display())))?;
        plane.apply_yaml(&in_namespace(&rbac, &self.namespace)).await?;
        Ok(())
    }

    /// A kubeconfig of the operator's account that reaches the API server by `url`.
    pub async fn kubeconfig(&self, plane: &ControlPlane, url: &str) -> Result<PathBuf> {
        plane.service_account_kubeconfig_via(&self.namespace, ACCOUNT, url).await
    }

    /// The authorizer learns of a binding by a watch of its own, and a new kind answers "storage is
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

/// The same rights for an account in another namespace, under names of their own: some lie outside
/// the operator's namespace, and both installations must have them.
fn in_namespace(rbac: &str, namespace: &str) -> String {
    if namespace == NAMESPACE {
        return rbac.to_owned();
    }
    let documents = rbac.split("\n---\n").map(|document| {
        let mut document = document.replace(NAMESPACE, namespace);
        if document.contains("apiVersion: rbac.authorization.k8s.io") {
            for before in ["metadata:\n", "kind: ClusterRole\n", "kind: Role\n"] {
                let name = format!("{before}  name: {ACCOUNT}");
                document = document.replace(&name, &format!("{name}-{namespace}"));
            }
        }
        document
    });
    documents.collect::<Vec<_>>().join("\n---\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_install_takes_nothing_from_the_first() {
        let rbac = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rbac.yaml");
        let first = fs::read_to_string(rbac).unwrap();
        let second = in_namespace(&first, "elsewhere");
        assert!(!second.contains(NAMESPACE));
        let of_first = first.matches(&format!("namespace: {NAMESPACE}")).count();
        assert_eq!(second.matches("namespace: elsewhere").count(), of_first, "{second}");
        // Of all that lies outside the operator's namespace and names the account.
        let outside = |rbac: &str| -> Vec<String> {
            let mut documents: Vec<_> = rbac.split("\n---\n").collect();
            documents.retain(|it| it.contains("\nsubjects:"));
            documents.retain(|it| {
                !it.contains("metadata:\n  name: landfall-operator\n  namespace: landfall-system")
            });
            let name =
                |it: &&str| it.lines().find(|line| line.starts_with("  name:")).unwrap().to_owned();
            documents.iter().map(name).collect()
        };
        let (ours, theirs) = (outside(&first), outside(&second));
        assert!(ours.len() >= 2 && theirs.len() == ours.len() + 1, "{ours:?}, {theirs:?}");
        assert!(ours.iter().all(|name| !theirs.contains(name)), "{ours:?}, {theirs:?}");
    }
}
