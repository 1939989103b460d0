//! The cluster the bench works on: creates Services by the thousand and pools, and cleans up.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kube::Client;
use kube::api::ListParams;
use landfall_api::{HolderKind, IP, Use, keys, name, text};
use landfall_ipam::{ClaimFact, HolderFact, check};
use landfall_testkit::{ControlPlane, control_plane, wait};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::{Error, Result};
use super::raw::{Call, spread};
use super::watch::{self, AddressIn, Meta, services_path};

/// The range of RFC 2544, made for benchmarks. The limits use the lower half, pools the upper.
const LIMIT_BASE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
const POOL_BASE: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 0);
/// The claims that fill the ledger are elsewhere, so that they take no address from a scenario.
const LEDGER_BASE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);
/// The pool of the claims that fill the ledger, and the missing namespace they are reserved for.
pub(super) const LEDGER_POOL: &str = "bench-ledger";
/// When those that expire do: long after the bench.
const LEDGER_EXPIRY: &str = "2099-01-01T00:00:00Z";
/// Addresses in one half of the range: the most that one scenario can have.
pub(super) const MOST_ADDRESSES: u32 = 65_536;

/// The operator's manifests: its rights, and its place in the API server's queues.
pub(super) const RBAC: &str = "deploy/rbac.yaml";
/// For Services that kube-vip announces, and for the leftovers that a take-over finds.
const RBAC_SERVICES: &str = "deploy/rbac-services.yaml";
pub(super) const FLOW_CONTROL: &str = "deploy/flowcontrol.yaml";

/// Enough to keep the API server busy with calls that are not measured.
const SWEEP_WIDTH: usize = 32;
/// Claims that are created at once to fill the ledger.
const LEDGER_WIDTH: usize = 64;
/// How long an operator may take to report that it has seen an edit.
const POOL_DEADLINE: Duration = Duration::from_mins(1);
pub(super) const IPS_PATH: &str = "/apis/paas.org/v1/ips";
const IPGROUPS_PATH: &str = "/apis/paas.org/v1/ipgroups";
const MAPS_PATH: &str = "/api/v1/namespaces/kube-system/configmaps";

pub(super) fn limit_address(index: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(LIMIT_BASE.to_bits() + index)
}

pub(super) fn pool_address(index: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(POOL_BASE.to_bits() + index)
}

/// The size of a pool whose last address is this.
pub(super) fn pool_size_up_to(last: Ipv4Addr) -> u32 {
    last.to_bits().saturating_sub(POOL_BASE.to_bits()).saturating_add(1)
}

/// The range of a pool with `size` addresses.
pub(super) fn pool_range(size: u32) -> String {
    format!("{POOL_BASE}-{}", pool_address(size.clamp(1, MOST_ADDRESSES) - 1))
}

/// The account that the operator runs as.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// The control plane and its clients.
pub(super) struct Stage {
    pub(super) plane: ControlPlane,
    pub(super) admin: Client,
    pub(super) account: Account,
    pub(super) address_in: AddressIn,
    /// Whether the bench makes the pools.
    pub(super) own_pools: bool,
}

/// A Service that was created, and when the API server answered.
#[derive(Clone, Debug)]
pub(super) struct Created {
    pub(super) name: String,
    pub(super) at: Instant,
}

#[derive(Debug, Deserialize)]
struct Object {
    metadata: Meta,
}

impl Stage {
    /// Starts the control plane with our kinds and the operator's account.
    pub(super) async fn start(root: &Path, address_in: AddressIn, ours: bool) -> Result<Self> {
        let plane = ControlPlane::start().await?;
        plane.install_crds(&root.join("deploy/crds")).await?;
        let account = account(&plane, root, ours).await?;
        let admin = plane.admin_client().await?;
        Ok(Self { plane, admin, account, address_in, own_pools: ours })
    }

    /// The kubeconfig of an operator; through a proxy if `server` is given.
    pub(super) async fn kubeconfig(&self, server: Option<&str>) -> Result<PathBuf> {
        if self.own_pools || server.is_some() {
            let Account { namespace, name, .. } = &self.account;
            let server = server.unwrap_or_else(|| self.plane.url());
            return Ok(self.plane.service_account_kubeconfig_via(namespace, name, server).await?);
        }
        Ok(self.plane.admin_kubeconfig().to_owned())
    }

    /// A client like the operator's: the same rights, the same stack, its own connections.
    pub(super) async fn operator_client(&self) -> Result<Client> {
        Ok(control_plane::client_from(&self.kubeconfig(None).await?).await?)
    }

    /// Creates a namespace, and a pool of that name with exactly `size` addresses.
    pub(super) async fn open(&self, namespace: &str, size: Option<u32>) -> Result<()> {
        self.plane.ensure_namespace(namespace).await?;
        match size.filter(|_| self.own_pools) {
            Some(size) if self.annotates() => {
                self.set_key(namespace, Some(&pool_range(size))).await
            }
            Some(size) => {
                self.create_pool(namespace, &json!({ "ranges": [pool_range(size)] })).await
            }
            None => Ok(()),
        }
    }

    /// Whether our pools are those of kube-vip's `ConfigMap`, which are published in its annotation.
    pub(super) fn annotates(&self) -> bool {
        self.own_pools && self.address_in != AddressIn::Status
    }

    /// The name of the pool that a namespace is served from, as claims have it.
    pub(super) fn pool_name(&self, namespace: &str) -> String {
        if self.annotates() {
            format!("ConfigMap/kubevip/range-{namespace}")
        } else {
            format!("IPGroup/{namespace}")
        }
    }

    /// The path to watch for the claims of a namespace, and for as few others as possible.
    pub(super) fn claims_watch(&self, namespace: &str) -> String {
        let label = format!("&labelSelector={}%3D{namespace}", keys::LABEL_IPGROUP);
        let label = if self.annotates() { String::new() } else { label };
        format!("{IPS_PATH}?watch=true{label}")
    }

    /// Writes a namespace's key of the `ConfigMap`, or removes it.
    async fn set_key(&self, namespace: &str, range: Option<&str>) -> Result<()> {
        let map = json!({ "metadata": { "name": "kubevip" }, "data": {} });
        match Call::create(MAPS_PATH, bytes(&map, "a ConfigMap")?).send(&self.admin).await {
            Err(Error::Kube { source, .. }) if is_conflict(&source) => {}
            other => drop(other?),
        }
        let patch = json!({ "data": { format!("range-{namespace}"): range } });
        let call = Call::merge(format!("{MAPS_PATH}/kubevip"), bytes(&patch, "a ConfigMap")?);
        call.send(&self.admin).await.map(drop)
    }

    async fn create_pool(&self, name: &str, spec: &Value) -> Result<()> {
        let pool = json!({
            "apiVersion": "paas.org/v1",
            "kind": "IPGroup",
            "metadata": { "name": name },
            "spec": spec,
        });
        let call = Call::create(IPGROUPS_PATH, bytes(&pool, "a pool")?);
        call.send(&self.admin).await.map(drop)
    }

    /// Changes a pool; returns when the API server had answered.
    pub(super) async fn edit_pool(&self, name: &str, spec: &Value) -> Result<Instant> {
        let patch = bytes(&json!({ "spec": spec }), "a pool")?;
        Call::merge(format!("{IPGROUPS_PATH}/{name}"), patch).send(&self.admin).await?;
        Ok(Instant::now())
    }

    /// Waits until the operator has reported that it knows the pool as it is now.
    pub(super) async fn pool_is_known(&self, name: &str) -> Result<()> {
        let path = format!("{IPGROUPS_PATH}/{name}");
        wait::until(format!("the operator knows {name} as it is"), POOL_DEADLINE, async || {
            let pool: Value =
                Call::get(&path).ask(&self.admin).await.map_err(|error| error.to_string())?;
            let (is, known) =
                (&pool["metadata"]["generation"], &pool["status"]["observedGeneration"]);
            if is == known { Ok(()) } else { Err(format!("it is {is}, known is {known}")) }
        })
        .await
        .map_err(landfall_testkit::Error::from)?;
        Ok(())
    }

    /// Puts `count` claims into the ledger that no scenario uses: reservations for Services that do not
    /// exist, from a pool that serves no Service. Every second one expires, like those of a pool with
    /// `retainFor`.
    pub(super) async fn fill_ledger(&self, count: u32) -> Result<()> {
        let address = |index: u32| Ipv4Addr::from_bits(LEDGER_BASE.to_bits() + index);
        let range = format!("{LEDGER_BASE}-{}", address(count.saturating_sub(1)));
        self.create_pool(LEDGER_POOL, &json!({ "ranges": [range], "autoAssign": false })).await?;
        let claims = (0..count)
            .map(|index| {
                let expires = (index % 2 == 1).then_some(LEDGER_EXPIRY);
                reservation(address(index), LEDGER_POOL, &service_name(index), expires)
            })
            .collect::<Result<Vec<_>>>()?;
        let client = self.admin.clone();
        spread(LEDGER_WIDTH, claims, move |claim| {
            let client = client.clone();
            async move { claim.send(&client).await.map(drop) }
        })
        .await?;
        Ok(())
    }

    /// Removes the Services, the pool, the claims and the namespace. No operator may be running.
    pub(super) async fn close(&self, namespace: &str) -> Result<()> {
        let services = watch::list(&self.admin, namespace).await?;
        let paths = services
            .iter()
            .map(|seen| format!("{}/{}", services_path(namespace), seen.metadata.name));
        self.delete_all(paths.collect()).await?;
        let claims = self.claims(namespace).await?;
        let paths = claims.iter().filter_map(|claim| claim.metadata.name.as_deref());
        self.delete_all(paths.map(|name| format!("{IPS_PATH}/{name}")).collect()).await?;
        if self.annotates() {
            self.set_key(namespace, None).await?;
        } else if self.own_pools {
            let pool = format!("{IPGROUPS_PATH}/{namespace}");
            Call::delete(pool).send_unless_gone(&self.admin).await?;
        }
        let path = format!("/api/v1/namespaces/{namespace}");
        Call::delete(path.clone()).send_unless_gone(&self.admin).await?;
        // There is no controller manager to do this, and the namespace is empty.
        let finalized = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": namespace },
            "spec": { "finalizers": [] },
        });
        let call = Call::put(format!("{path}/finalize"), bytes(&finalized, "a namespace")?);
        call.send_unless_gone(&self.admin).await
    }

    pub(super) async fn delete_all(&self, paths: Vec<String>) -> Result<()> {
        let client = self.admin.clone();
        spread(SWEEP_WIDTH, paths, move |path| {
            let client = client.clone();
            async move { Call::delete(path).send_unless_gone(&client).await }
        })
        .await?;
        Ok(())
    }

    /// Creates Services `from..to`, `width` at a time.
    pub(super) async fn create_services(
        &self,
        namespace: &str,
        range: std::ops::Range<u32>,
        width: usize,
    ) -> Result<Vec<Created>> {
        let calls = range.map(|index| create_service(namespace, &service_name(index)));
        let calls = calls.collect::<Result<Vec<_>>>()?;
        let client = self.admin.clone();
        spread(width, calls, move |(name, call)| {
            let client = client.clone();
            async move {
                call.send(&client).await?;
                Ok(Created { name, at: Instant::now() })
            }
        })
        .await
    }

    pub(super) async fn create_one(&self, namespace: &str, name: &str) -> Result<Created> {
        let (name, call) = create_service(namespace, name)?;
        let made: Object = call.ask(&self.admin).await?;
        debug_assert_eq!(made.metadata.name, name);
        Ok(Created { name, at: Instant::now() })
    }

    pub(super) async fn delete_one(&self, namespace: &str, name: &str) -> Result<()> {
        let path = format!("{}/{name}", services_path(namespace));
        Call::delete(path).send(&self.admin).await.map(drop)
    }

    /// The claims of the pool that a namespace is served from.
    async fn claims(&self, namespace: &str) -> Result<Vec<IP>> {
        let api: kube::Api<IP> = kube::Api::all(self.admin.clone());
        let labelled = format!("{}={namespace}", keys::LABEL_IPGROUP);
        let params = ListParams::default();
        let params = if self.annotates() { params } else { params.labels(&labelled) };
        let mut claims = api.list(&params).await.map_err(Error::kube("listing claims"))?.items;
        let pool = self.pool_name(namespace);
        claims.retain(|claim| !self.annotates() || claim.spec.pool.as_deref() == Some(&pool));
        Ok(claims)
    }

    /// Inconsistencies between Services and claims: addresses shown twice, and every violation.
    pub(super) async fn audit(&self, namespace: &str) -> Result<Audit> {
        let services = watch::list(&self.admin, namespace).await?;
        let holders: Vec<_> = services
            .iter()
            .map(|seen| HolderFact {
                id: seen.metadata.uid.clone(),
                shows: seen
                    .address(&self.address_in)
                    .and_then(|address| address.parse().ok())
                    .into_iter()
                    .collect(),
                namespace: namespace.to_owned(),
                terms: None,
            })
            .collect();
        let mut shown: Vec<_> = holders.iter().flat_map(|holder| &holder.shows).collect();
        shown.sort_unstable();
        let doubled = shown.windows(2).filter(|pair| pair[0] == pair[1]).count();
        let mut violations = Vec::new();
        if self.own_pools {
            let claims = self.claims(namespace).await?;
            let claims: Vec<_> = claims
                .iter()
                .filter_map(|claim| {
                    let addr = name::parse(claim.metadata.name.as_deref()?).ok()?;
                    let holders = claim.spec.holders.iter();
                    let holders = holders.filter_map(|holder| holder.uid.clone()).collect();
                    let reserved = claim.spec.reserved_for.is_some();
                    Some(ClaimFact { addr, holders, reserved })
                })
                .collect();
            let found = check(&claims, &holders);
            let texts = found.iter().map(|found| text::violation(HolderKind::Service, found));
            violations.extend(texts);
        }
        Ok(Audit { doubled, violations })
    }

    /// How long the lists take, one after another, that an operator needs before it is ready.
    pub(super) async fn time_of_lists(&self) -> Result<f64> {
        let begin = Instant::now();
        for path in [
            IPS_PATH,
            IPGROUPS_PATH,
            "/api/v1/namespaces",
            "/api/v1/services",
            "/api/v1/nodes",
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
        ] {
            Call::get(path).send(&self.admin).await?;
        }
        Ok(begin.elapsed().as_secs_f64())
    }
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_already_exists())
}

/// The state of the cluster once it has come to rest.
#[derive(Clone, Debug, Default)]
pub(super) struct Audit {
    pub(super) doubled: usize,
    pub(super) violations: Vec<String>,
}

/// The call that creates a reservation of an address for a Service, for good or until `expires`.
pub(super) fn reservation(
    address: Ipv4Addr,
    pool: &str,
    service: &str,
    expires: Option<&str>,
) -> Result<Call> {
    let claim = json!({
        "apiVersion": "paas.org/v1",
        "kind": "IP",
        "metadata": { "name": address, "labels": { keys::LABEL_IPGROUP: pool } },
        "spec": {
            "address": address,
            "use": Use::Reserved.as_str(),
            "pool": format!("IPGroup/{pool}"),
            "reservedFor": { "namespace": pool, "name": service, "expires": expires },
        },
    });
    Ok(Call::create(IPS_PATH, bytes(&claim, "a claim")?))
}

pub(super) fn service_name(index: u32) -> String {
    format!("web-{index:05}")
}

fn create_service(namespace: &str, name: &str) -> Result<(String, Call)> {
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": name },
        "spec": {
            "type": "LoadBalancer",
            // There are fewer node ports than Services in a large run, and they are not used here.
            "allocateLoadBalancerNodePorts": false,
            "selector": { "app": name },
            "ports": [{ "name": "https", "port": 443 }],
        },
    });
    let call = Call::create(services_path(namespace), bytes(&service, "a Service")?);
    Ok((name.to_owned(), call))
}

pub(super) fn bytes(value: &impl serde::Serialize, what: &str) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(Error::json(what))
}

/// Applies the operator's manifests, or gives an allocator that is not ours every right.
async fn account(plane: &ControlPlane, root: &Path, ours: bool) -> Result<Account> {
    let namespace = "landfall-system";
    plane.ensure_namespace(namespace).await?;
    if ours {
        apply(plane, &root.join(FLOW_CONTROL)).await?;
        let listed = apply(plane, &root.join(RBAC)).await?;
        apply(plane, &root.join(RBAC_SERVICES)).await?;
        let accounts = listed["items"].as_array().into_iter().flatten();
        let meta = accounts
            .filter(|item| item["kind"] == "ServiceAccount")
            .map(|item| &item["metadata"])
            .find_map(|meta| Some((meta["namespace"].as_str()?, meta["name"].as_str()?)));
        let (namespace, name) = meta.ok_or(Error::NoAccount { path: RBAC })?;
        return Ok(Account { namespace: namespace.into(), name: name.into() });
    }
    let name = "bench-operator";
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": name },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin",
        },
        "subjects": [{ "kind": "ServiceAccount", "namespace": namespace, "name": name }],
    });
    plane.apply_yaml(&binding.to_string()).await?;
    Ok(Account { namespace: namespace.into(), name: name.into() })
}

/// Applies a manifest and returns the resulting objects.
async fn apply(plane: &ControlPlane, manifest: &Path) -> Result<Value> {
    let path = manifest.to_string_lossy();
    plane.kubectl(&["apply", "--server-side", "-f", &path]).await?;
    let listed = plane.kubectl(&["get", "-o", "json", "-f", &path]).await?;
    serde_json::from_str(&listed).map_err(Error::json(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_ends_with_the_last_address_of_its_size() {
        for (size, range) in [
            (1, "198.19.0.0-198.19.0.0"),
            (257, "198.19.0.0-198.19.1.0"),
            (MOST_ADDRESSES + 1, "198.19.0.0-198.19.255.255"),
        ] {
            assert_eq!(pool_range(size), range);
        }
        assert_eq!(pool_size_up_to(pool_address(256)), 257);
    }
}
