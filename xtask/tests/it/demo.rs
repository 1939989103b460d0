//! `cargo xtask demo` as its users run it, most of all with `--kubeconfig` on a cluster that others use as well.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use landfall_api::{IP, IPGroup};
use landfall_testkit::process::Signal;
use landfall_testkit::{Bed, ControlPlane, Process, builders, wait};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};

/// No measurement: the demo may have to build the operator first, on a machine that is busy.
const LONG: Duration = Duration::from_mins(20);
/// How often a leader renews its lease.
const RENEWAL: Duration = Duration::from_millis(300);
/// Every kind that a demo creates, but for ours and those that go with their namespace.
const KINDS: &str = "namespaces,services,customresourcedefinitions,clusterroles,clusterrolebindings,\
                     roles,rolebindings,leases";
/// Kinds that only an operator or a demo would write during a test.
const UNCHANGED: [&str; 3] = ["Service", "IPGroup", "IP"];

/// A cluster of one test alone.
struct Cluster {
    slot: MutexGuard<'static, Option<ControlPlane>>,
    plane: ControlPlane,
    client: Client,
}

impl Cluster {
    /// Tests take turns on one, for the names of a demo are always the same. A test that fails takes
    /// its cluster with it.
    async fn take() -> Self {
        static SLOT: Mutex<Option<ControlPlane>> = Mutex::const_new(None);
        let mut slot = SLOT.lock().await;
        let plane = match slot.take() {
            Some(plane) => plane,
            None => ControlPlane::builder().with_controller_manager(true).start().await.unwrap(),
        };
        let client = plane.admin_client().await.unwrap();
        Self { slot, plane, client }
    }

    /// Leaves it to the next test.
    fn give_back(mut self) {
        *self.slot = Some(self.plane);
    }

    fn demo(&self, flags: &[&str]) -> Demo {
        Demo::start(self.plane.admin_kubeconfig(), flags)
    }

    /// All that a demo could leave, replace or touch, by kind, namespace and name. A control plane
    /// that has just started is still busy with its own namespaces.
    async fn objects(&self, kinds: &str) -> BTreeMap<String, String> {
        let listed = self.plane.kubectl(&["get", kinds, "-A", "-o", "json"]).await.unwrap();
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let mut objects = BTreeMap::new();
        for object in listed["items"].as_array().unwrap() {
            let word = |place: &str| object.pointer(place).and_then(Value::as_str).unwrap_or("");
            let (kind, name) = (word("/kind"), word("/metadata/name"));
            let namespace = word("/metadata/namespace");
            let place = if kind == "Namespace" { name } else { namespace };
            if !place.starts_with("kube-") {
                let mut identity = word("/metadata/uid").to_owned();
                if UNCHANGED.contains(&kind) {
                    identity += word("/metadata/resourceVersion");
                }
                objects.insert(format!("{kind} {namespace}/{name}"), identity);
            }
        }
        objects
    }
}

/// A demo in a process of its own, killed when dropped.
struct Demo {
    process: Process,
    _dir: TempDir,
}

impl Demo {
    fn start(kubeconfig: &Path, flags: &[&str]) -> Self {
        let kubeconfig = kubeconfig.to_str().unwrap();
        Self::run(&[&["--kubeconfig", kubeconfig], flags].concat())
    }

    fn run(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.arg("demo").args(flags);
        let process = Process::spawn(&command, &dir.path().join("demo.log")).unwrap();
        Self { process, _dir: dir }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.process.log()).unwrap()
    }

    async fn says(&self, words: &str) {
        wait::until(format!("{words:?}"), LONG, async || {
            assert!(self.process.is_running(), "{}", self.log());
            self.log().contains(words)
        })
        .await
        .unwrap();
    }

    async fn ended(&self) -> (ExitStatus, String) {
        let status = self.process.ended(LONG).await;
        (status.unwrap_or_else(|late| panic!("{late}\n{}", self.log())), self.log())
    }

    async fn succeeds(&self) -> String {
        let (status, log) = self.ended().await;
        assert!(status.success(), "{log}");
        log
    }

    async fn fails_with(&self, words: &[&str]) {
        let (status, log) = self.ended().await;
        assert_eq!(status.code(), Some(1), "{log}");
        for words in words {
            assert!(log.contains(words), "{words:?} is not in {log}");
        }
    }
}

#[tokio::test]
async fn a_demo_of_its_own_switches_a_node_off_and_shows_where_its_address_goes() {
    let possible = Bed::possible();
    let log = Demo::run(&["--once"]).succeeds().await;
    assert!(log.contains("every sample has what it should have"), "{log}");
    if let Err(reason) = possible {
        assert!(log.contains(&format!("no nodes are shown: {reason}")), "{log}");
        assert!(!log.contains("front/proxy"), "{log}");
        return;
    }
    let lines = log.lines();
    let held: Vec<_> = lines.filter_map(|line| line.split_once(" held by ")).collect();
    let [(_, first), (service, second)] = held[..] else { panic!("{log}") };
    assert!(service.contains("front/proxy"), "{log}");
    assert!(log.contains(&format!("{first} holds 10.77.1.10, and is switched off now")), "{log}");
    let (second, after) = second.split_once(" after ").unwrap();
    assert_ne!(first, second, "{log}");
    let after: u64 = after.strip_suffix(" ms").unwrap().parse().unwrap();
    // Three adverts of 100 ms have to be missed, of which the last may be due when the node dies.
    assert!(after > 200, "{log}");
}

#[tokio::test]
async fn a_demo_on_a_cluster_touches_nothing_of_others_and_leaves_nothing_behind() {
    let cluster = Cluster::take().await;
    // A Service that waits for an address, which every operator would like to tell why.
    let services: Api<Service> = Api::namespaced(cluster.client.clone(), "default");
    let waiting = builders::load_balancer("waiting");
    services.create(&PostParams::default(), &waiting).await.unwrap();
    let before = cluster.objects(KINDS).await;
    assert!(before.contains_key("Service default/waiting"), "{before:?}");

    let log = cluster.demo(&["--once"]).succeeds().await;
    for words in [
        "no nodes are shown",
        "created CustomResourceDefinition ips.paas.org",
        "192.0.2.25             landfall-demo-shop/mail",
        "removed Service landfall-demo-shop/mail",
        "removed CustomResourceDefinition ips.paas.org",
        "every sample has what it should have",
    ] {
        assert!(log.contains(words), "{words:?} is not in {log}");
    }
    assert_eq!(cluster.objects(KINDS).await, before, "{log}");
    services.delete("waiting", &DeleteParams::default()).await.unwrap();
    cluster.give_back();
}

#[tokio::test]
async fn a_demo_that_is_asked_to_end_removes_the_objects_it_created() {
    let cluster = Cluster::take().await;
    let before = cluster.objects(KINDS).await;
    let demo = cluster.demo(&[]);
    demo.says("Ctrl-C removes what the demo created").await;
    let claims: Api<IP> = Api::all(cluster.client.clone());
    assert_eq!(claims.list(&ListParams::default()).await.unwrap().items.len(), 6, "{}", demo.log());
    demo.process.signal(Signal::SIGINT).unwrap();
    let log = demo.succeeds().await;
    assert_eq!(cluster.objects(KINDS).await, before, "{log}");
    cluster.give_back();
}

#[tokio::test]
async fn a_cluster_without_ipv6_gets_the_samples_that_it_can_have() {
    let builder = ControlPlane::builder().with_controller_manager(true);
    let builder = builder.apiserver_arg("--service-cluster-ip-range=10.64.0.0/12");
    let plane = builder.start().await.unwrap();
    let log = Demo::start(plane.admin_kubeconfig(), &["--once"]).succeeds().await;
    for (service, is_left_out) in [("web", false), ("web-v6", true), ("api", true)] {
        let words = format!("landfall-demo-shop/{service} is left out");
        assert_eq!(log.contains(&words), is_left_out, "{service}: {log}");
        let words = format!("removed Service landfall-demo-shop/{service}\n");
        assert_eq!(log.contains(&words), !is_left_out, "{service}: {log}");
    }
}

#[tokio::test]
async fn a_demo_refuses_a_cluster_that_has_one_of_its_names() {
    let cluster = Cluster::take().await;
    cluster.plane.ensure_namespace("landfall-demo-bank").await.unwrap();
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let before = namespaces.get("landfall-demo-bank").await.unwrap();
    cluster
        .demo(&["--once"])
        .fails_with(&["nothing was created", "already: Namespace landfall-demo-bank\n"])
        .await;
    let after = namespaces.get("landfall-demo-bank").await.unwrap();
    assert_eq!(after.metadata.uid, before.metadata.uid);
    assert_eq!(after.metadata.deletion_timestamp, None);

    namespaces.delete("landfall-demo-bank", &DeleteParams::default()).await.unwrap();
    wait::until("the end of the namespace", LONG, async || {
        namespaces.get_opt("landfall-demo-bank").await.is_ok_and(|found| found.is_none())
    })
    .await
    .unwrap();
    cluster.give_back();
}

#[tokio::test]
async fn a_demo_leaves_the_pools_of_others_to_their_operator() {
    let cluster = Cluster::take().await;
    let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
    cluster.plane.install_crds(&crds).await.unwrap();
    let pool = "apiVersion: paas.org/v1\nkind: IPGroup\nmetadata: {name: dmz}\n\
                spec: {segment: 10.9.0.0/24}\n";
    cluster.plane.apply_yaml(pool).await.unwrap();
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "default");
    let lease = |renewal: i64| {
        let time = format!("2026-01-01T00:00:00.{renewal:06}Z");
        let spec = json!({
            "holderIdentity": "somebody", "leaseDurationSeconds": 1, "renewTime": time,
        });
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "landfall-operator" }, "spec": spec,
        })
    };
    let write = async |renewal| {
        let (params, lease) = (PatchParams::apply("test"), lease(renewal));
        leases.patch("landfall-operator", &params, &Patch::Apply(lease)).await.unwrap();
    };
    write(0).await;
    let all = format!("{KINDS},ipgroups,ips,virtualips,groupsegmentmappings");
    let before = cluster.objects(&all).await;
    cluster
        .demo(&["--once"])
        .fails_with(&[
            "lease default/landfall-operator is held by somebody",
            "it is not renewed",
            "the cluster has IPGroup dmz and no operator leads",
        ])
        .await;
    assert_eq!(cluster.objects(&all).await, before);

    let renew = async {
        let mut renewals = tokio::time::interval(RENEWAL);
        for renewal in 1.. {
            renewals.tick().await;
            write(renewal).await;
        }
    };
    let story = async {
        let demo = cluster.demo(&[]);
        demo.says("that operator serves the samples, so none is started").await;
        demo.says("created IPGroup landfall-demo-payments").await;
        demo.process.signal(Signal::SIGINT).unwrap();
        demo.succeeds().await
    };
    let log = tokio::select! {
        () = renew => unreachable!("it renews for ever"),
        log = story => log,
    };
    assert!(!log.contains("landfall-demo-system"), "no operator of its own: {log}");
    assert!(!log.contains("created Service"), "their operator has read no pool: {log}");
    assert_eq!(cluster.objects(&all).await, before, "{log}");

    leases.delete("landfall-operator", &DeleteParams::default()).await.unwrap();
    let pools: Api<IPGroup> = Api::all(cluster.client.clone());
    pools.delete("dmz", &DeleteParams::default()).await.unwrap();
    let crds = crds.to_string_lossy();
    cluster.plane.kubectl(&["delete", "--wait", "-f", &crds]).await.unwrap();
    cluster.give_back();
}

#[tokio::test]
async fn a_cluster_that_does_not_answer_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file: PathBuf = dir.path().join("kubeconfig");
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
                clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]\n\
                users: [{name: a, user: {}}]\n\
                contexts: [{name: a, context: {cluster: a, user: a}}]\n";
    fs::write(&file, text).unwrap();
    let reached = format!("cannot reach http://127.0.0.1:1/, the cluster of {}", file.display());
    Demo::start(&file, &["--once"]).fails_with(&[&reached, "Connection refused"]).await;

    let missing = dir.path().join("missing");
    let named = format!("using kubeconfig {}", missing.display());
    Demo::start(&missing, &["--once"]).fails_with(&[&named, "No such file"]).await;
}
