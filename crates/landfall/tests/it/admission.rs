//! `deploy/admission*.yaml` and `deploy/flowcontrol.yaml`: which users may write the ledger and list
//! addresses of pools, and which queue of the API server the operator gets.

mod external_ips;
mod quotes;

use std::fmt::Debug;
use std::path::Path;

use http::Request;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use landfall_api::{Holder, IP, IPSpec, ReservedFor, Use};
use landfall_testkit::builders::{
    ServiceBuilder as _, bare_claim, load_balancer, original_claim, pool,
};
use landfall_testkit::control_plane::client_from;
use landfall_testkit::{ControlPlane, Operator, wait};
use rstest::rstest;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use crate::stage::{LONG, Tenant, ip};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const NAMESPACE: &str = "landfall-system";
const ACCOUNT: &str = "landfall-operator";
const OPERATOR: &str = "system:serviceaccount:landfall-system:landfall-operator";
/// The only address that `desk` may reserve.
const DESK: &str = "10.30.0.3";

/// Users whom RBAC allows everything, so that only the policy can refuse.
const RIGHTS: &str = r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: test-write-ips}
rules:
- apiGroups: [paas.org]
  resources: [ips, ips/status]
  verbs: [get, list, watch, create, update, patch, delete, deletecollection]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-write-ips}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: test-write-ips}
subjects:
- {kind: ServiceAccount, namespace: landfall-system, name: landfall-operator}
- {kind: ServiceAccount, namespace: shop, name: tenant}
- {kind: Group, apiGroup: rbac.authorization.k8s.io, name: network-admins}
- {kind: User, apiGroup: rbac.authorization.k8s.io, name: desk}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-reserve}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: landfall-reserve}
subjects:
- {kind: Group, apiGroup: rbac.authorization.k8s.io, name: network-admins}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-cluster-admin}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects:
- {kind: User, apiGroup: rbac.authorization.k8s.io, name: root}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: test-reserve-one}
rules:
- {apiGroups: [paas.org], resources: [ips], resourceNames: [10.30.0.3], verbs: [reserve]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-reserve-one}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: test-reserve-one}
subjects:
- {kind: User, apiGroup: rbac.authorization.k8s.io, name: desk}
";

fn deployed(file: &str) -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Ok(std::fs::read_to_string(root.join("deploy").join(file))?)
}

/// A control plane for these tests with policy and flow control in effect, one test at a time.
///
/// Other tests have their own, because administrators make and delete claims there.
struct Guarded {
    plane: &'static ControlPlane,
    _turn: MutexGuard<'static, ()>,
}

async fn guarded() -> Result<Guarded> {
    static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    static TURN: Mutex<()> = Mutex::const_new(());
    let turn = TURN.lock().await;
    let plane = PLANE
        .get_or_try_init(async || {
            // With controllers: a garbage collector and a type checker of policies. And as lenient about
            // spellings of addresses as the oldest supported release.
            let plane = ControlPlane::builder()
                .with_controller_manager(true)
                .apiserver_arg("--feature-gates=StrictIPCIDRValidation=false")
                .start()
                .await?;
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
            plane.install_crds(&root.join("deploy/crds")).await?;
            Ok::<_, landfall_testkit::Error>(plane)
        })
        .await?;
    let files = ["rbac.yaml", "admission.yaml", "admission-external-ips.yaml", "flowcontrol.yaml"];
    for file in files {
        plane.apply_yaml(&deployed(file)?).await?;
    }
    plane.apply_yaml(RIGHTS).await?;
    let guarded = Guarded { plane, _turn: turn };
    // The API server learns of policies, roles and the kind by its own watches.
    let (tenant, operator) = (guarded.tenant().await?, guarded.operator().await?);
    let (desk, admin) = (guarded.user("desk", &[]).await?, guarded.reserver().await?);
    let (claim, kept) = (Write::Create(Box::new(claim("10.30.255.1"))), reservation(DESK));
    wait::until("policy and rights to be in effect", LONG, async || {
        claim.refused(&tenant, NO_VERB).await.map_err(|error| error.to_string())?;
        for client in [&desk, &admin, &operator] {
            let write = Write::Create(Box::new(kept.clone()));
            write.rehearse(client).await.map_err(|error| error.to_string())?;
        }
        Ok::<_, String>(())
    })
    .await?;
    Ok(guarded)
}

impl Guarded {
    /// A user whom the administrator impersonates.
    async fn user(&self, name: &str, groups: &[&str]) -> Result<Client> {
        let file = Kubeconfig::read_from(self.plane.admin_kubeconfig())?;
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(file, &options).await?;
        config.auth_info.impersonate = Some(name.to_owned());
        config.auth_info.impersonate_groups =
            Some(groups.iter().map(ToString::to_string).collect());
        Ok(Client::try_from(config)?)
    }

    async fn account(&self, namespace: &str, name: &str) -> Result<Client> {
        Ok(client_from(&self.plane.service_account_kubeconfig(namespace, name).await?).await?)
    }

    async fn operator(&self) -> Result<Client> {
        self.account(NAMESPACE, ACCOUNT).await
    }

    async fn tenant(&self) -> Result<Client> {
        self.account("shop", "tenant").await
    }

    async fn reserver(&self) -> Result<Client> {
        self.user("alice", &["network-admins"]).await
    }

    async fn masters(&self) -> Result<Client> {
        Ok(self.plane.admin_client().await?)
    }

    /// The operator's binary under a given account.
    async fn run(&self, namespace: &str, account: &str) -> Result<Operator> {
        let path = self.plane.service_account_kubeconfig(namespace, account).await?;
        let binary = Path::new(env!("CARGO_BIN_EXE_landfall"));
        let flags = ["--namespace", namespace, "--leader-elect=false"];
        Ok(Operator::spawn(binary, &path, &flags).await?)
    }
}

/// A claim that a running operator leaves alone: its holder is not a Service.
fn claim(addr: &str) -> IP {
    let holder = Holder { kind: "Namespace".into(), name: "shop".into(), ..Holder::default() };
    let spec = IPSpec {
        address: Some(addr.into()),
        use_: Some(Use::Egress.as_str().into()),
        holders: vec![holder],
        ..IPSpec::default()
    };
    IP::new(addr, spec)
}

fn reservation(addr: &str) -> IP {
    let to = ReservedFor { namespace: "shop".into(), ..ReservedFor::default() };
    let use_ = Some(Use::Reserved.as_str().into());
    let spec = IPSpec { use_, reserved_for: Some(to), ..IPSpec::default() };
    IP::new(addr, spec)
}

/// A write of the ledger that a user may or may not do.
#[derive(Clone, Debug)]
enum Write {
    Create(Box<IP>),
    Patch(&'static str, Value),
    Status(&'static str),
    Delete(&'static str),
}

impl Write {
    /// A dry run: the API server judges the write and does nothing.
    async fn rehearse(&self, client: &Client) -> kube::Result<()> {
        let ips: Api<IP> = Api::all(client.clone());
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        match self {
            Self::Create(ip) => {
                let params = PostParams { dry_run: true, ..PostParams::default() };
                ips.create(&params, ip).await.map(drop)
            }
            Self::Patch(name, patch) => {
                ips.patch(name, &params, &Patch::Merge(patch)).await.map(drop)
            }
            Self::Status(name) => {
                let patch = Patch::Merge(json!({"status": {"node": "worker-1"}}));
                ips.patch_status(name, &params, &patch).await.map(drop)
            }
            Self::Delete(name) => {
                let params = DeleteParams { dry_run: true, ..DeleteParams::default() };
                ips.delete(name, &params).await.map(drop)
            }
        }
    }

    /// The policy's message, which must contain this fragment.
    async fn refused(&self, client: &Client, fragment: &str) -> Result<String> {
        refused(self.rehearse(client).await, fragment)
    }
}

/// The message of the policy's refusal; everything else is an error.
fn refused<T: Debug>(outcome: kube::Result<T>, fragment: &str) -> Result<String> {
    match outcome {
        Err(kube::Error::Api(status))
            if status.code == 403
                && status.message.contains("ValidatingAdmissionPolicy 'landfall-ledger'")
                && status.message.contains(fragment) =>
        {
            Ok(status.message.clone())
        }
        other => Err(format!("not refused with {fragment:?}: {other:?}").into()),
    }
}

const YES: &str = "";
const NO_STATUS: &str = "/status: it is the operator's alone";
const NO_VERB: &str = "and reservations need the verb \"reserve\" on ips.paas.org";
const NO_CLAIMS: &str = "it is a claim and the operator's alone";

#[tokio::test]
async fn each_user_may_write_exactly_its_own_objects_and_fields() {
    let guarded = guarded().await.unwrap();
    let operator = guarded.operator().await.unwrap();
    let ips: Api<IP> = Api::all(operator.clone());
    ips.create(&PostParams::default(), &claim("10.30.0.1")).await.unwrap();
    ips.create(&PostParams::default(), &reservation("10.30.0.2")).await.unwrap();

    let mut named = reservation("10.30.0.4");
    named.annotations_mut().insert("virtualips.paas.il/owner".into(), "shop/web".into());
    let held = json!([{"kind": "Service", "namespace": "shop", "name": "web"}]);
    let to_claim = json!({"spec": {"use": "LoadBalancer", "holders": held}});
    let with_holder = json!({"spec": {"holders": held}});
    let to_reservation = json!({"spec": {"use": "Reserved", "holders": null}});
    let label = json!({"metadata": {"labels": {"team": "a"}}});
    let owner = json!({"metadata": {"annotations": {"virtualips.paas.il/owner": "shop/web"}}});
    let extend = json!({"spec": {"reservedFor": {"name": "web"}}});
    // The write, its verb and address, and the verdict for users who may reserve.
    let writes = [
        (Write::Create(Box::new(claim("10.30.0.3"))), "create IP 10.30.0.3", NO_CLAIMS),
        (Write::Create(Box::new(bare_claim(ip("10.30.0.3")))), "create IP 10.30.0.3", NO_CLAIMS),
        (
            Write::Create(Box::new(original_claim(ip("10.30.0.3"), "dmz", "shop/web"))),
            "create IP 10.30.0.3",
            NO_CLAIMS,
        ),
        (Write::Create(Box::new(reservation("10.30.0.3"))), "create IP 10.30.0.3", YES),
        (Write::Create(Box::new(reservation("10.30.0.4"))), "create IP 10.30.0.4", YES),
        (Write::Create(Box::new(named)), "create IP 10.30.0.4", NO_CLAIMS),
        (Write::Patch("10.30.0.1", to_reservation), "update IP 10.30.0.1", NO_CLAIMS),
        (Write::Patch("10.30.0.1", with_holder.clone()), "update IP 10.30.0.1", NO_CLAIMS),
        (Write::Patch("10.30.0.1", label.clone()), "update IP 10.30.0.1", NO_CLAIMS),
        (Write::Delete("10.30.0.1"), "delete IP 10.30.0.1", NO_CLAIMS),
        (Write::Patch("10.30.0.2", extend), "update IP 10.30.0.2", YES),
        (Write::Patch("10.30.0.2", label), "update IP 10.30.0.2", YES),
        (Write::Patch("10.30.0.2", to_claim), "update IP 10.30.0.2", NO_CLAIMS),
        (Write::Patch("10.30.0.2", with_holder), "update IP 10.30.0.2", NO_CLAIMS),
        (Write::Patch("10.30.0.2", owner), "update IP 10.30.0.2", NO_CLAIMS),
        (Write::Delete("10.30.0.2"), "delete IP 10.30.0.2", YES),
        (Write::Status("10.30.0.1"), "update IP 10.30.0.1", NO_STATUS),
        (Write::Status("10.30.0.2"), "update IP 10.30.0.2", NO_STATUS),
    ];

    let tenant = guarded.tenant().await.unwrap();
    let desk = guarded.user("desk", &[]).await.unwrap();
    let who = "system:serviceaccount:shop:tenant";
    let reservers = [
        ("alice", guarded.reserver().await.unwrap()),
        ("root", guarded.user("root", &[]).await.unwrap()),
        ("landfall-admin", guarded.masters().await.unwrap()),
    ];
    for (write, what, verdict) in &writes {
        write.rehearse(&operator).await.unwrap();

        let refusal = if *verdict == NO_STATUS { NO_STATUS } else { NO_VERB };
        let words = write.refused(&tenant, refusal).await.unwrap();
        assert!(words.contains(&format!("user \"{who}\" may not {what}")), "{words}");

        for (who, client) in &reservers {
            if *verdict == YES {
                let outcome = write.rehearse(client).await;
                assert!(outcome.is_ok(), "{who} {write:?}: {outcome:?}");
            } else {
                let words = write.refused(client, verdict).await.unwrap();
                assert!(words.contains(&format!("user \"{who}\" may not {what}")), "{words}");
            }
        }

        // The verb may be given for single addresses.
        match (*verdict, what.ends_with(DESK)) {
            (YES, true) => write.rehearse(&desk).await.unwrap(),
            (NO_STATUS, _) | (_, true) => drop(write.refused(&desk, verdict).await.unwrap()),
            (_, false) => drop(write.refused(&desk, NO_VERB).await.unwrap()),
        }
    }

    // A deletion of the whole collection is judged claim by claim.
    for (client, words) in [(&tenant, NO_VERB), (&reservers[0].1, NO_CLAIMS)] {
        let theirs: Api<IP> = Api::all(client.clone());
        let only = ListParams::default().fields("metadata.name=10.30.0.1");
        let outcome = theirs.delete_collection(&DeleteParams::default(), &only).await;
        let words = refused(outcome.map(|_| ()), words).unwrap();
        assert!(words.contains("may not delete IP 10.30.0.1"), "{words}");
    }
    for name in ["10.30.0.1", "10.30.0.2"] {
        ips.delete(name, &DeleteParams::default()).await.unwrap();
    }
}

#[tokio::test]
async fn an_administrator_makes_changes_and_deletes_reservations() {
    let guarded = guarded().await.unwrap();
    let ips: Api<IP> = Api::all(guarded.reserver().await.unwrap());
    ips.create(&PostParams::default(), &reservation("10.30.1.1")).await.unwrap();
    let patch = Patch::Merge(json!({"spec": {"reservedFor": {"name": "web"}}}));
    let changed = ips.patch("10.30.1.1", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(changed.spec.reserved_for.unwrap().name.as_deref(), Some("web"));
    ips.delete("10.30.1.1", &DeleteParams::default()).await.unwrap();
    assert!(ips.get_opt("10.30.1.1").await.unwrap().is_none());

    // A deletion that the garbage collector has to finish is finished.
    for policy in [PropagationPolicy::Foreground, PropagationPolicy::Orphan] {
        ips.create(&PostParams::default(), &reservation("10.30.1.2")).await.unwrap();
        let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        ips.delete("10.30.1.2", &params).await.unwrap();
        wait::until("the garbage collector to finish", LONG, async || {
            match ips.get_opt("10.30.1.2").await {
                Ok(None) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn in_an_emergency_an_administrator_opens_the_binding_and_closes_it_again() {
    let guarded = guarded().await.unwrap();
    let ips: Api<IP> = Api::all(guarded.operator().await.unwrap());
    ips.create(&PostParams::default(), &claim("10.30.2.1")).await.unwrap();
    let masters = guarded.masters().await.unwrap();
    let delete = Write::Delete("10.30.2.1");
    let words = delete.refused(&masters, NO_CLAIMS).await.unwrap();
    assert!(words.contains("set validationActions of this binding to [Audit]"), "{words}");

    let open = ["patch", "validatingadmissionpolicybinding", "landfall-ledger", "--type=merge"];
    let patch = r#"{"spec":{"validationActions":["Audit"]}}"#;
    guarded.plane.kubectl(&[&open[..], &["--patch", patch]].concat()).await.unwrap();
    wait::until("the binding to be open", LONG, async || delete.rehearse(&masters).await)
        .await
        .unwrap();
    let admins: Api<IP> = Api::all(masters.clone());
    admins.delete("10.30.2.1", &DeleteParams::default()).await.unwrap();

    guarded.plane.apply_yaml(&deployed("admission.yaml").unwrap()).await.unwrap();
    let create = Write::Create(Box::new(claim("10.30.2.1")));
    wait::until("the binding to be closed", LONG, async || {
        create.refused(&masters, NO_CLAIMS).await.map_err(|error| error.to_string())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_under_another_account_says_so_and_serves_once_the_policy_names_it() {
    let guarded = guarded().await.unwrap();
    let client = guarded.masters().await.unwrap();
    guarded.plane.ensure_namespace("guarded").await.unwrap();
    let tenant = Tenant {
        client: client.clone(),
        namespace: "guarded".into(),
        services: Api::namespaced(client.clone(), "guarded"),
        pools: Api::all(client.clone()),
        claims: Api::all(client.clone()),
        served: false,
    };
    tenant.pool(pool("guarded", &["10.30.3.0/29"])).await;
    tenant.create(load_balancer("web")).await;

    // Installed under other names, as users do.
    let rights = deployed("rbac.yaml").unwrap();
    let rights = rights.replace(ACCOUNT, "landfall-elsewhere").replace(NAMESPACE, "elsewhere");
    guarded.plane.apply_yaml(&rights).await.unwrap();
    let elsewhere = guarded.run("elsewhere", "landfall-elsewhere").await.unwrap();
    elsewhere.wait_ready(LONG).await.unwrap();
    let who = "system:serviceaccount:elsewhere:landfall-elsewhere";
    let words = format!("user \"{who}\" may not create IP 10.30.3.0: claims are the operator's");
    tenant.says("web", "False", "LedgerRefused", &words).await;
    tenant.says("web", "False", "LedgerRefused", "its account is named in matchConditions").await;

    let policy = deployed("admission.yaml").unwrap();
    let named = policy.replace(&format!("'{OPERATOR}'"), &format!("'{OPERATOR}', '{who}'"));
    assert_ne!(named, policy);
    guarded.plane.apply_yaml(&named).await.unwrap();
    tenant.shows("web", &["10.30.3.0"]).await;
    drop(elsewhere);

    // Under its own account it takes, moves and releases as usual.
    guarded.plane.apply_yaml(&policy).await.unwrap();
    let operator = guarded.run(NAMESPACE, ACCOUNT).await.unwrap();
    tenant.create(load_balancer("next")).await;
    tenant.shows("next", &["10.30.3.1"]).await;
    tenant.ask("next", "10.30.3.5").await;
    tenant.shows("next", &["10.30.3.5"]).await;
    tenant.claim_is_gone("10.30.3.1").await;
    tenant.set_ingress("web", json!([])).await;
    tenant.shows("web", &["10.30.3.0"]).await;
    // No user can delete the claim of a Service.
    drop(Write::Delete("10.30.3.0").refused(&client, NO_CLAIMS).await.unwrap());

    // An administrator's reservation keeps the address from every Service.
    let admins: Api<IP> = Api::all(guarded.reserver().await.unwrap());
    admins.create(&PostParams::default(), &reservation("10.30.3.1")).await.unwrap();
    tenant.create(load_balancer("late").asking("10.30.3.1")).await;
    tenant.says("late", "False", "Reserved", "a reservation for shop/*").await;
    admins.delete("10.30.3.1", &DeleteParams::default()).await.unwrap();
    tenant.shows("late", &["10.30.3.1"]).await;
    tenant.ends(&["guarded"]).await;
    drop(operator);
}

#[rstest]
#[tokio::test]
async fn a_policy_fits_the_kind_it_judges(
    #[values("landfall-ledger", "landfall-external-ips")] name: &str,
) {
    let guarded = guarded().await.unwrap();
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(guarded.masters().await.unwrap());
    let status = wait::until("the policy to be type-checked", LONG, async || {
        let policy = policies.get(name).await.map_err(|error| error.to_string())?;
        let status = policy.status.clone().unwrap_or_default();
        let current = status.observed_generation == policy.metadata.generation;
        if current && status.type_checking.is_some() {
            Ok(status)
        } else {
            Err(format!("{status:?}"))
        }
    })
    .await
    .unwrap();
    assert_eq!(status.type_checking.unwrap().expression_warnings, None);
}

/// What the guide promises about users who have a namespace and no more.
#[tokio::test]
async fn no_role_for_tenants_writes_the_ledger_or_the_addresses_of_services() {
    let guarded = guarded().await.unwrap();
    let roles: Api<ClusterRole> = Api::all(guarded.masters().await.unwrap());
    let groups = ["keepalivedgroups", "keepalivedgroups/status"];
    let reserved = [&["*", "ips", "ipgroups", "services/status"][..], &groups].concat();
    for name in ["view", "edit", "admin"] {
        let rules = wait::until(format!("the role {name} to be put together"), LONG, async || {
            let role = roles.get(name).await.map_err(|error| error.to_string())?;
            let rules = role.rules.unwrap_or_default();
            let known = rules.iter().flat_map(|rule| rule.resources.iter().flatten());
            // Ours comes in through the label of `landfall-view`.
            if known.clone().any(|one| one == "ips") {
                Ok(rules)
            } else {
                Err(format!("{rules:?}"))
            }
        })
        .await
        .unwrap();
        for rule in rules {
            let writes = rule.verbs.iter().any(|verb| !["get", "list", "watch"].contains(&&**verb));
            for resource in rule.resources.iter().flatten().filter(|_| writes) {
                assert!(!reserved.contains(&&**resource), "{name}: {rule:?}");
            }
        }
    }
}

/// The schema and level by which the API server queued a request, whatever its answer.
async fn queue(client: &Client, path: &str) -> Result<(String, String)> {
    let response = client.send(Request::get(path).body(Body::empty())?).await?;
    let header = |name: &str| -> Result<String> {
        let value = response.headers().get(name).ok_or_else(|| format!("no {name}"))?;
        Ok(value.to_str()?.to_owned())
    };
    Ok((header("x-kubernetes-pf-flowschema-uid")?, header("x-kubernetes-pf-prioritylevel-uid")?))
}

#[tokio::test]
async fn the_operator_has_a_queue_of_its_own_and_its_lease_that_of_leases() {
    let guarded = guarded().await.unwrap();
    let admin = guarded.masters().await.unwrap();
    let schemas: Api<FlowSchema> = Api::all(admin.clone());
    let levels: Api<PriorityLevelConfiguration> = Api::all(admin);
    let uids = async |schema: &str, level: &str| {
        let schema = schemas.get(schema).await.unwrap();
        let level = levels.get(level).await.unwrap();
        (schema.uid().unwrap(), level.uid().unwrap())
    };
    let own = uids("landfall-operator", "landfall").await;
    let leases = uids("landfall-leader-election", "leader-election").await;
    let others = uids("service-accounts", "workload-low").await;

    let (operator, tenant) = (guarded.operator().await.unwrap(), guarded.tenant().await.unwrap());
    let lease = "/apis/coordination.k8s.io/v1/namespaces/landfall-system/leases/landfall-operator";
    for (client, path, expected) in [
        (&operator, "/apis/paas.org/v1/ips", &own),
        (&operator, "/api/v1/services", &own),
        (&operator, "/api/v1/namespaces/shop/services/web", &own),
        (&operator, "/apis", &own),
        (&operator, lease, &leases),
        (&operator, "/apis/coordination.k8s.io/v1/namespaces/shop/leases/x", &own),
        (&tenant, "/apis/paas.org/v1/ips", &others),
        (&tenant, lease, &others),
    ] {
        wait::until(format!("{path} in the right queue"), LONG, async || {
            let seen = queue(client, path).await.map_err(|error| error.to_string())?;
            if seen == *expected { Ok(()) } else { Err(format!("{seen:?}, not {expected:?}")) }
        })
        .await
        .unwrap();
    }
}
