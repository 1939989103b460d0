//! Where the operator is tested: real control planes, the binary, and the rights it ships with.

mod quiet;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use landfall_api::{GroupSegmentMapping, IP, IPGroup, VirtualIP, VirtualIPSpec, name, words};
use landfall_testkit::cluster::{self, Snapshot};
use landfall_testkit::install::{Install, NAMESPACE};
use landfall_testkit::{ControlPlane, Operator, Proxy, builders, wait};
use serde_json::{Value, json};
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard, OnceCell};

pub(crate) use quiet::{quiet, renews_the_lease, writes_only};

use crate::kube_vip::Map;

/// No measurement: long enough for a machine that is busy with everything else.
pub(crate) const LONG: Duration = Duration::from_secs(90);
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A control plane with the CRDs and the rights of `deploy/`.
struct Plane {
    plane: ControlPlane,
    install: Install,
}

impl Plane {
    async fn start() -> Self {
        let plane = ControlPlane::start().await.unwrap();
        let install = Install::new(&plane, &root().join("deploy")).await.unwrap();
        Self { plane, install }
    }

    /// Starts the operator under its own account, at the API server or a proxy in front of it.
    async fn operator(&self, url: &str, flags: &[&str]) -> Operator {
        let path = self.install.kubeconfig(&self.plane, url).await.unwrap();
        let binary = Path::new(env!("CARGO_BIN_EXE_landfall"));
        let namespace = ["--namespace", self.install.namespace()];
        Operator::spawn(binary, &path, &[&namespace[..], flags].concat()).await.unwrap()
    }
}

struct Shared {
    // First, so that it ends first.
    _operator: Operator,
    plane: Plane,
}

/// A namespace on a control plane on which one operator runs all the time.
pub(crate) async fn tenant(namespace: &str) -> Tenant {
    static SHARED: OnceCell<Shared> = OnceCell::const_new();
    let shared = SHARED
        .get_or_init(async || {
            let plane = Plane::start().await;
            let operator = plane.operator(plane.plane.url(), &[]).await;
            operator.wait_ready(LONG).await.unwrap();
            Shared { _operator: operator, plane }
        })
        .await;
    Tenant { served: true, ..Tenant::new(&shared.plane.plane, namespace).await }
}

/// A control plane without an operator, empty, and nobody else's until it is dropped.
///
/// Tests that stop, kill or multiply operators take turns on one: starting another for each would
/// cost more than cleaning up, and on few cores they would only slow each other down.
pub(crate) struct Arena {
    stage: MappedMutexGuard<'static, Plane>,
    pub(crate) client: Client,
}

pub(crate) async fn arena() -> Arena {
    static ARENA: Mutex<Option<Plane>> = Mutex::const_new(None);
    Arena::on(&ARENA).await
}

/// Another one, on which no API server is ever killed: recorded Services bring their node ports, and
/// a killed API server forgets for minutes which of those are free.
pub(crate) async fn unharmed_arena() -> Arena {
    static ARENA: Mutex<Option<Plane>> = Mutex::const_new(None);
    Arena::on(&ARENA).await
}

/// Another one, on which the kinds of earlier releases are installed, too.
pub(crate) async fn old_arena() -> Arena {
    static ARENA: Mutex<Option<Plane>> = Mutex::const_new(None);
    let arena = Arena::on(&ARENA).await;
    arena.install_old_kinds().await;
    arena.clear_old_kinds().await;
    arena
}

impl Arena {
    async fn on(slot: &'static Mutex<Option<Plane>>) -> Self {
        let mut slot = slot.lock().await;
        if slot.is_none() {
            *slot = Some(Plane::start().await);
        }
        let stage = MutexGuard::map(slot, |slot| slot.as_mut().expect("it was just made"));
        let client = stage.plane.admin_client().await.unwrap();
        let arena = Self { stage, client };
        arena.clear().await;
        arena
    }

    pub(crate) async fn install_old_kinds(&self) {
        for kind in ["virtualips.paas.org", "groupsegmentmappings.paas.org"] {
            self.install_kind(kind).await;
        }
        // A new kind answers "storage is (re)initializing" for a while after it is established.
        let vips: Api<VirtualIP> = Api::all(self.client.clone());
        let mappings: Api<GroupSegmentMapping> = Api::all(self.client.clone());
        wait::until("the old kinds", LONG, async || {
            vips.list(&ListParams::default()).await?;
            mappings.list(&ListParams::default()).await
        })
        .await
        .unwrap();
    }

    async fn clear_old_kinds(&self) {
        delete_all::<ValidatingAdmissionPolicyBinding>(&Api::all(self.client.clone())).await;
        delete_all::<ValidatingAdmissionPolicy>(&Api::all(self.client.clone())).await;
        // The API server learns by a watch of its own that they are gone.
        let (vips, services) = (
            Api::<VirtualIP>::default_namespaced(self.client.clone()),
            Api::<Service>::default_namespaced(self.client.clone()),
        );
        let vip = VirtualIP::new("probe", VirtualIPSpec::default());
        let service = builders::load_balancer("probe");
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        wait::until("policies of earlier tests to go", LONG, async || {
            vips.create(&dry, &vip).await?;
            services.create(&dry, &service).await
        })
        .await
        .unwrap();
        delete_all::<GroupSegmentMapping>(&Api::all(self.client.clone())).await;
        let all: Api<VirtualIP> = Api::all(self.client.clone());
        for vip in all.list(&ListParams::default()).await.unwrap() {
            let vips: Api<VirtualIP> =
                Api::namespaced(self.client.clone(), &vip.namespace().unwrap());
            let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            vips.patch(&vip.name_any(), &PatchParams::default(), &none).await.unwrap();
            delete(&vips, &vip).await;
        }
    }

    pub(crate) fn plane(&self) -> &ControlPlane {
        &self.stage.plane
    }

    pub(crate) async fn kubectl(&self, args: &[&str]) -> String {
        self.stage.plane.kubectl(args).await.unwrap()
    }

    pub(crate) async fn tenant(&self, namespace: &str) -> Tenant {
        Tenant::new(&self.stage.plane, namespace).await
    }

    /// An operator that needs no lease.
    pub(crate) async fn operator(&self) -> Operator {
        self.operator_with(&["--leader-elect=false"]).await
    }

    pub(crate) async fn operator_with(&self, flags: &[&str]) -> Operator {
        self.stage.operator(self.stage.plane.url(), flags).await
    }

    /// An operator that reaches the API server through a proxy and needs no lease.
    pub(crate) async fn operator_via(&self, proxy: &Proxy) -> Operator {
        self.stage.operator(&proxy.url(), &["--leader-elect=false"]).await
    }

    pub(crate) async fn electing_operator_via(&self, proxy: &Proxy) -> Operator {
        self.operator_via_with(proxy, &[]).await
    }

    pub(crate) async fn operator_via_with(&self, proxy: &Proxy, flags: &[&str]) -> Operator {
        self.stage.operator(&proxy.url(), flags).await
    }

    pub(crate) async fn proxy(&self) -> Proxy {
        Proxy::start(&self.stage.plane).await.unwrap()
    }

    /// Removes a kind with all its objects, and waits until nobody knows it any more.
    pub(crate) async fn remove_kind(&self, name: &str) {
        self.kubectl(&["delete", "crd", name, "--wait=true", "--timeout=60s"]).await;
    }

    /// Makes a kind of `deploy/crds`.
    pub(crate) async fn install_kind(&self, name: &str) {
        let path = root().join(format!("deploy/crds/{name}.yaml"));
        self.stage.plane.install_crds(&path).await.unwrap();
    }

    pub(crate) async fn apply(&self, yaml: &str) {
        self.stage.plane.apply_yaml(yaml).await.unwrap();
    }

    /// Starts an operator, waits until it has nothing left to do, and sees that it wrote nothing but
    /// its lease.
    pub(crate) async fn a_start_writes_nothing(&self) {
        let proxy = self.proxy().await;
        let operator = self.electing_operator_via(&proxy).await;
        writes_only(operator, &proxy, &["leases"]).await;
    }

    /// Ends the API server as a crash would and starts it again.
    pub(crate) async fn crash_apiserver(&self) {
        self.stage.plane.kill_apiserver().unwrap();
        self.stage.plane.start_apiserver().await.unwrap();
    }

    /// Removes whatever an earlier test left, also one that failed.
    async fn clear(&self) {
        delete_all::<ValidatingWebhookConfiguration>(&Api::all(self.client.clone())).await;
        let snapshot = Snapshot::take(&self.client).await.unwrap();
        for service in snapshot.services.iter().filter(|service| service.name_any() != "kubernetes")
        {
            let namespace = service.namespace().unwrap();
            let services: Api<Service> = Api::namespaced(self.client.clone(), &namespace);
            if !service.finalizers().is_empty() {
                let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                let name = service.name_any();
                services.patch(&name, &PatchParams::default(), &none).await.unwrap();
            }
            delete(&services, service).await;
        }
        let claims: Api<IP> = Api::all(self.client.clone());
        for ip in &snapshot.claims {
            delete(&claims, ip).await;
        }
        delete_all::<IPGroup>(&Api::all(self.client.clone())).await;
        Map::new(&self.client).goes().await;
        delete_all::<Lease>(&Api::namespaced(self.client.clone(), NAMESPACE)).await;
        self.stage.install.grant(&self.stage.plane).await.unwrap();
    }
}

/// Whether an operator thinks that it leads.
pub(crate) async fn leads(operator: &Operator) -> Result<(), String> {
    let text = operator.metrics().await.map_err(|error| format!("{error:?}"))?;
    if text.contains("\nlandfall_leader 1\n") { Ok(()) } else { Err("it does not lead".into()) }
}

pub(crate) async fn comes_to_lead(operator: &Operator) {
    let what = format!("operator {} to lead", operator.pid());
    wait::until(what, LONG, async || leads(operator).await).await.unwrap();
}

async fn delete_all<K>(api: &Api<K>)
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    for object in api.list(&ListParams::default()).await.unwrap() {
        delete(api, &object).await;
    }
}

/// Deletes an object unless it is gone already.
async fn delete<K>(api: &Api<K>, object: &K)
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    match api.delete(&object.name_any(), &DeleteParams::default()).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => panic!("deleting {}: {error}", object.name_any()),
    }
}

/// The two ways to say which addresses there are, and to be shown one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// An `IPGroup`, and the status.
    Groups,
    /// The `ConfigMap` of kube-vip's cloud provider, and its annotation.
    KubeVip,
}

/// A namespace and what a user does in it, with the pools an administrator makes for it.
#[derive(Clone)]
pub(crate) struct Tenant {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) services: Api<Service>,
    pub(crate) pools: Api<IPGroup>,
    pub(crate) claims: Api<IP>,
    /// Whether an operator runs all the time, so that what is done to pools is waited for.
    pub(crate) served: bool,
}

impl Tenant {
    async fn new(plane: &ControlPlane, namespace: &str) -> Self {
        plane.ensure_namespace(namespace).await.unwrap();
        // Clients belong to a runtime, and each test has its own.
        let client = plane.admin_client().await.unwrap();
        Self {
            namespace: namespace.to_owned(),
            services: Api::namespaced(client.clone(), namespace),
            pools: Api::all(client.clone()),
            claims: Api::all(client.clone()),
            client,
            served: false,
        }
    }

    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.namespace)
    }

    pub(crate) async fn create(&self, service: Service) -> Service {
        self.services.create(&PostParams::default(), &service).await.unwrap()
    }

    pub(crate) async fn get(&self, name: &str) -> Service {
        self.services.get(name).await.unwrap()
    }

    pub(crate) async fn patch(&self, name: &str, patch: Value) -> Service {
        self.services.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    /// Writes the status as another program or a person might.
    pub(crate) async fn set_ingress(&self, name: &str, ingress: Value) -> Service {
        let patch = json!({"status": {"loadBalancer": {"ingress": ingress}}});
        let patch = Patch::Merge(patch);
        self.services.patch_status(name, &PatchParams::default(), &patch).await.unwrap()
    }

    pub(crate) async fn ask(&self, name: &str, address: impl Into<Option<&str>>) -> Service {
        self.patch(name, json!({"spec": {"loadBalancerIP": address.into()}})).await
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.services.delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn pool(&self, pool: IPGroup) -> IPGroup {
        let pool = self.pools.create(&PostParams::default(), &pool).await.unwrap();
        self.knows(&pool).await;
        pool
    }

    pub(crate) async fn edit_pool(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        let pool = self.pools.patch(name, &PatchParams::default(), &patch).await.unwrap();
        self.knows(&pool).await;
    }

    /// Waits until the operator has seen this version of a pool: watches of different kinds run
    /// at their own pace, and what a Service does next would otherwise race against the edit.
    async fn knows(&self, pool: &IPGroup) {
        if !self.served {
            return;
        }
        let (name, generation) = (pool.name_any(), pool.metadata.generation);
        wait::until(format!("the operator to know IPGroup {name}"), LONG, async || {
            let status = self.pools.get(&name).await.map_err(|error| error.to_string())?.status;
            match status.as_ref().and_then(|status| status.observed_generation) {
                seen if seen >= generation => Ok(()),
                _ => Err(format!("{status:?}")),
            }
        })
        .await
        .unwrap();
    }

    /// Lets Services of all namespaces have these addresses and no others, in one dialect or the
    /// other. In the `ConfigMap` nobody gets `.0` and `.255`.
    pub(crate) async fn addresses(&self, dialect: Dialect, ranges: &[&str]) {
        match dialect {
            Dialect::Groups => {
                let name = &*self.namespace;
                if self.pools.get_opt(name).await.unwrap().is_some() {
                    self.edit_pool(name, json!({ "ranges": ranges })).await;
                } else {
                    self.pool(builders::pool(name, ranges)).await;
                }
            }
            Dialect::KubeVip => {
                Map::new(&self.client).keeps(&json!({"cidr-global": ranges.join(",")})).await;
            }
        }
    }

    /// Takes away what a Service shows, as a careless user might.
    pub(crate) async fn wipe(&self, dialect: Dialect, name: &str) {
        match dialect {
            Dialect::Groups => drop(self.set_ingress(name, json!([])).await),
            Dialect::KubeVip => {
                let annotation = json!({words::ANNOTATION_KUBE_VIP_ADDRESSES: null});
                self.patch(name, json!({"metadata": {"annotations": annotation}})).await;
            }
        }
    }

    pub(crate) async fn delete_pool(&self, name: &str) {
        self.pools.delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn make_claim(&self, claim: &IP) -> IP {
        self.claims.create(&PostParams::default(), claim).await.unwrap()
    }

    pub(crate) async fn claim(&self, addr: &str) -> Option<IP> {
        self.claims.get_opt(&name::of(ip(addr))).await.unwrap()
    }

    pub(crate) async fn delete_claim(&self, addr: &str) {
        self.claims.delete(&name::of(ip(addr)), &DeleteParams::default()).await.unwrap();
    }

    /// Waits until the Service shows exactly these addresses, in this order.
    pub(crate) async fn shows(&self, name: &str, addrs: &[&str]) -> Service {
        let wanted: Vec<_> = addrs.iter().map(|addr| ip(addr)).collect();
        wait::until(format!("{} to show {addrs:?}", self.key(name)), LONG, async || {
            let service = self.services.get(name).await.map_err(|error| error.to_string())?;
            if cluster::shown(&service) == wanted { Ok(service) } else { Err(describe(&service)) }
        })
        .await
        .unwrap()
    }

    /// Waits until the Service shows any address, and returns the first.
    pub(crate) async fn shows_something(&self, name: &str) -> IpAddr {
        wait::until(format!("{} to show an address", self.key(name)), LONG, async || {
            let service = self.services.get(name).await.map_err(|error| error.to_string())?;
            cluster::shown(&service).first().copied().ok_or_else(|| describe(&service))
        })
        .await
        .unwrap()
    }

    /// Waits for the Service's condition: status, reason, and a part of the message.
    pub(crate) async fn says(
        &self,
        name: &str,
        status: &str,
        reason: &str,
        fragment: &str,
    ) -> Service {
        let what = format!("{} to say {status} {reason} {fragment:?}", self.key(name));
        wait::until(what, LONG, async || {
            let service = self.services.get(name).await.map_err(|error| error.to_string())?;
            let there = allocated(&service).is_some_and(|condition| {
                condition.status == status
                    && condition.reason == reason
                    && condition.message.contains(fragment)
            });
            if there { Ok(service) } else { Err(describe(&service)) }
        })
        .await
        .unwrap()
    }

    pub(crate) async fn claim_is_gone(&self, addr: &str) {
        wait::until(format!("the claim on {addr} to go"), LONG, async || {
            self.claim(addr).await.map_or(Ok(()), |claim| Err(format!("{:?}", claim.spec)))
        })
        .await
        .unwrap();
    }

    /// Waits for a pool's `Ready` condition and a part of its message.
    pub(crate) async fn pool_says(&self, name: &str, status: &str, fragment: &str) -> IPGroup {
        let what = format!("pool {name} to say {status} {fragment:?}");
        wait::until(what, LONG, async || {
            let pool = self.pools.get(name).await.map_err(|error| error.to_string())?;
            let conditions = pool.status.clone().unwrap_or_default().conditions;
            let current = pool.status.as_ref().and_then(|status| status.observed_generation)
                == pool.metadata.generation;
            let there = current
                && conditions.iter().any(|condition| {
                    condition.type_ == words::CONDITION_READY
                        && condition.status == status
                        && condition.message.contains(fragment)
                });
            if there { Ok(pool) } else { Err(format!("{:?}", pool.status)) }
        })
        .await
        .unwrap()
    }

    /// Waits for a pool's numbers: capacity, used, free.
    pub(crate) async fn pool_counts(&self, name: &str, capacity: &str, used: &str, free: &str) {
        let wanted = [capacity, used, free].map(|number| Some(number.to_owned()));
        wait::until(format!("pool {name} to count {wanted:?}"), LONG, async || {
            let pool = self.pools.get(name).await.map_err(|error| error.to_string())?;
            let status = pool.status.unwrap_or_default();
            let seen = [status.capacity, status.used, status.free];
            if seen == wanted { Ok(()) } else { Err(format!("{seen:?}")) }
        })
        .await
        .unwrap();
    }

    /// Waits for an event about a Service.
    pub(crate) async fn tells(&self, service: &str, reason: &str, fragment: &str) {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        wait::until(format!("an event {reason} about {service}"), LONG, async || {
            let all = events.list(&ListParams::default()).await.map_err(|e| e.to_string())?.items;
            let about = |event: &&Event| {
                event.regarding.as_ref().and_then(|it| it.name.as_deref()) == Some(service)
            };
            let told: Vec<_> = all
                .iter()
                .filter(about)
                .map(|event| (event.reason.clone(), event.note.clone()))
                .map(|(reason, note)| (reason.unwrap_or_default(), note.unwrap_or_default()))
                .collect();
            let there = told.iter().any(|(why, note)| why == reason && note.contains(fragment));
            if there { Ok(()) } else { Err(format!("{told:?}")) }
        })
        .await
        .unwrap();
    }

    /// Waits until somebody has an address.
    pub(crate) async fn has_claim(&self, addr: &str) -> IP {
        wait::until(format!("a claim on {addr}"), LONG, async || {
            self.claim(addr).await.ok_or("there is none")
        })
        .await
        .unwrap()
    }

    /// Waits until the whole cluster is in order.
    pub(crate) async fn settled(&self) -> Snapshot {
        cluster::settled(&self.client, LONG).await.unwrap()
    }

    /// Ends a test: the whole cluster is in order, and after what the test made is deleted no
    /// address of it is left behind.
    pub(crate) async fn ends(self, pools: &[&str]) {
        self.settled().await;
        self.clear().await;
        for pool in pools {
            self.delete_pool(pool).await;
        }
    }

    /// Deletes all Services of the namespace, and waits until none of their addresses is taken.
    pub(crate) async fn clear(&self) {
        for service in self.services.list(&ListParams::default()).await.unwrap() {
            delete(&self.services, &service).await;
        }
        wait::until("every claim of this test to go", LONG, async || {
            let seen = Snapshot::take(&self.client).await.map_err(|error| format!("{error:?}"))?;
            let left: Vec<_> = seen
                .claims
                .iter()
                .filter(|claim| {
                    let names = claim.spec.holders.iter();
                    names
                        .clone()
                        .any(|holder| holder.namespace.as_deref() == Some(&*self.namespace))
                })
                .map(|claim| format!("{}: {:?}", claim.name_any(), claim.spec.holders))
                .collect();
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await
        .unwrap();
    }
}

/// The condition under test, if the Service has it.
pub(crate) fn allocated(service: &Service) -> Option<&Condition> {
    let conditions = service.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().find(|condition| condition.type_ == words::CONDITION_ALLOCATED)
}

fn describe(service: &Service) -> String {
    let condition = allocated(service)
        .map(|condition| (&condition.status, &condition.reason, &condition.message));
    format!("{:?}, {condition:?}", cluster::shown(service))
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}
