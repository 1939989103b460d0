//! The test environment: real control planes, the binary, and the rights it ships with.

mod quiet;
mod tenant;

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::select_all;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use landfall_api::{GroupSegmentMapping, IP, IPGroup, VirtualIP, VirtualIPSpec};
use landfall_testkit::cluster::Snapshot;
use landfall_testkit::control_plane::client_from;
use landfall_testkit::install::{Install, NAMESPACE};
use landfall_testkit::{ControlPlane, Operator, Proxy, builders, wait};
use serde_json::json;
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard, OnceCell};

pub(crate) use quiet::{quiet, quiet_since, writes_only};
pub(crate) use tenant::{Dialect, Tenant, allocated, describe, ip};

use crate::kube_vip::Map;

/// Not a measurement: long enough for a machine that is busy with everything else.
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

    /// With keepalived groups as well, and with pods that may be privileged, as those of the replaced operator
    /// are. With a controller manager, owners' objects are collected, and `DaemonSet`s make pods.
    async fn with_groups(controller_manager: bool) -> Self {
        let builder = ControlPlane::builder().with_controller_manager(controller_manager);
        let plane = builder.apiserver_arg("--allow-privileged=true").start().await.unwrap();
        let deploy = root().join("deploy");
        let kind = deploy.join("crds/keepalivedgroups.redhatcop.redhat.io.yaml");
        plane.install_crds(&kind).await.unwrap();
        let rights = std::fs::read_to_string(deploy.join("rbac-keepalived.yaml")).unwrap();
        let install = Install::new(&plane, &deploy).await.unwrap();
        plane.apply_yaml(&rights).await.unwrap();
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
    operator: Operator,
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
            Shared { operator, plane }
        })
        .await;
    Tenant { served: true, ..Tenant::new(&shared.plane.plane, namespace).await }
}

/// A control plane without an operator, empty, and for one test until it is dropped.
///
/// Tests that stop, kill or multiply operators take turns on two: starting another for each would
/// cost more than cleaning up, and on few cores they would only slow each other down.
pub(crate) struct Arena {
    stage: MappedMutexGuard<'static, Plane>,
    pub(crate) client: Client,
}

pub(crate) async fn arena() -> Arena {
    static ARENAS: [Mutex<Option<Plane>>; 2] = [const { Mutex::const_new(None) }; 2];
    let (free, ..) = select_all(ARENAS.iter().map(|arena| arena.lock().boxed())).await;
    Arena::on(free).await
}

/// Another one, on which no API server is ever killed: recorded Services bring their node ports, and
/// a killed API server forgets for minutes which of those are free.
pub(crate) async fn unharmed_arena() -> Arena {
    static ARENA: Mutex<Option<Plane>> = Mutex::const_new(None);
    Arena::on(ARENA.lock().await).await
}

/// Another one, on which the kinds of earlier releases are installed as well.
pub(crate) async fn old_arena() -> Arena {
    static ARENA: Mutex<Option<Plane>> = Mutex::const_new(None);
    let arena = Arena::on(ARENA.lock().await).await;
    arena.install_old_kinds().await;
    arena.clear_old_kinds().await;
    arena
}

/// Another one, with keepalived groups, but no operator for them.
pub(crate) async fn arena_of_groups(slot: &'static ArenaSlot) -> Arena {
    Arena::on_one_made_by(slot.0.lock().await, || Plane::with_groups(false)).await
}

/// Where an arena is kept.
pub(crate) struct ArenaSlot(Mutex<Option<Plane>>);

impl ArenaSlot {
    pub(crate) const fn new() -> Self {
        Self(Mutex::const_new(None))
    }
}

/// A control plane with keepalived groups, of the test's own, with a controller manager.
pub(crate) async fn arena_with_controllers() -> Arena {
    static ARENA: Mutex<Option<Plane>> = Mutex::const_new(None);
    Arena::on_one_made_by(ARENA.lock().await, || Plane::with_groups(true)).await
}

/// A namespace on a control plane with keepalived groups, on which an operator looks after them all the time.
pub(crate) async fn tenant_of_groups(namespace: &str) -> (Tenant, &'static Operator) {
    static SHARED: OnceCell<Shared> = OnceCell::const_new();
    let shared = SHARED
        .get_or_init(async || {
            let plane = Plane::with_groups(false).await;
            let operator = plane.operator(plane.plane.url(), &WITH_GROUPS).await;
            operator.wait_ready(LONG).await.unwrap();
            Shared { operator, plane }
        })
        .await;
    let tenant = Tenant { served: true, ..Tenant::new(&shared.plane.plane, namespace).await };
    (tenant, &shared.operator)
}

/// The flags of an operator that looks after keepalived groups.
pub(crate) const WITH_GROUPS: [&str; 2] =
    ["--controllers=services,migration,keepalived", "--agent-image=example.com/landfall:test"];

impl Arena {
    async fn on(slot: MutexGuard<'static, Option<Plane>>) -> Self {
        Self::on_one_made_by(slot, Plane::start).await
    }

    async fn on_one_made_by(
        mut slot: MutexGuard<'static, Option<Plane>>,
        make: impl AsyncFnOnce() -> Plane,
    ) -> Self {
        if slot.is_none() {
            *slot = Some(make().await);
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
        // The API server learns by its own watch that they are gone.
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

    /// A client with the rights of the operator's own account.
    pub(crate) async fn operators_client(&self) -> Client {
        let stage = &*self.stage;
        let kubeconfig = stage.install.kubeconfig(&stage.plane, stage.plane.url()).await.unwrap();
        client_from(&kubeconfig).await.unwrap()
    }

    /// Deletes roles of the operator's account that only some clusters need, and waits until it is forbidden
    /// to do this.
    pub(crate) async fn revoke(&self, roles: &[&str], forbidden: &[&str]) {
        for role in roles {
            self.stage.install.revoke(&self.stage.plane, role).await.unwrap();
        }
        if !forbidden.is_empty() {
            self.may(forbidden, false).await;
        }
    }

    /// Grants all of them again, and waits until the operator's account can do this.
    pub(crate) async fn grant(&self, allowed: &[&str]) {
        self.stage.install.grant(&self.stage.plane).await.unwrap();
        self.may(allowed, true).await;
    }

    /// The API server learns of bindings by its own watch.
    async fn may(&self, what: &[&str], allowed: bool) {
        let account = format!("--as={}", self.stage.install.user());
        let ask = [&["auth", "can-i", "-A"], what, &[&*account]].concat();
        wait::until(format!("{what:?} to be allowed: {allowed}"), LONG, async || {
            match (self.stage.plane.kubectl(&ask).await, allowed) {
                (Ok(_), true) | (Err(_), false) => Ok(()),
                (answer, _) => Err(format!("{answer:?}")),
            }
        })
        .await
        .unwrap();
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

    /// Removes a kind with all its objects, and waits until the API server no longer serves it.
    pub(crate) async fn remove_kind(&self, name: &str) {
        self.kubectl(&["delete", "crd", name, "--wait=true", "--timeout=60s"]).await;
    }

    /// Installs a kind of `deploy/crds`.
    pub(crate) async fn install_kind(&self, name: &str) {
        let path = root().join(format!("deploy/crds/{name}.yaml"));
        self.stage.plane.install_crds(&path).await.unwrap();
    }

    pub(crate) async fn apply(&self, yaml: &str) {
        self.stage.plane.apply_yaml(yaml).await.unwrap();
    }

    /// Starts an operator, waits until it has nothing left to do, and checks that it wrote nothing but its
    /// lease.
    pub(crate) async fn a_start_writes_nothing(&self) {
        let proxy = self.proxy().await;
        let operator = self.electing_operator_via(&proxy).await;
        writes_only(operator, &proxy, &["leases"]).await;
    }

    /// Kills the API server and starts it again.
    pub(crate) async fn crash_apiserver(&self) {
        self.stage.plane.kill_apiserver().unwrap();
        self.stage.plane.start_apiserver().await.unwrap();
    }

    /// Removes everything an earlier test left, even one that failed.
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

/// Waits until this client can no longer create a claim: the API server learns by its own watches what it has
/// to refuse.
pub(crate) async fn claims_are_refused(client: &Client) {
    let claims: Api<IP> = Api::all(client.clone());
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let probe = builders::bare_claim(ip("192.0.2.1"));
    wait::until("claims to be refused", LONG, async || claims.create(&dry, &probe).await.is_err())
        .await
        .unwrap();
}

/// Whether an operator believes that it leads.
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
