use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use kube::api::{ListParams, ObjectMeta, PostParams, VersionMatch};
use kube::{Api, ResourceExt};
use landfall_testkit::control_plane::client_from;
use landfall_testkit::{ControlPlane, assets, shared, wait};

const DEADLINE: Duration = Duration::from_mins(1);

#[tokio::test]
async fn two_run_side_by_side_and_know_their_version() {
    let (one, two) = tokio::join!(ControlPlane::start(), ControlPlane::start());
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_ne!(one.url(), two.url());
    for plane in [&one, &two] {
        let version = plane.admin_client().await.unwrap().apiserver_version().await.unwrap();
        assert_eq!(version.git_version, assets::kubernetes_version().unwrap());
    }
    one.apply_yaml(&config_map("only-in-one")).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(two.admin_client().await.unwrap());
    assert!(maps.get_opt("only-in-one").await.unwrap().is_none());
}

#[tokio::test]
async fn a_service_account_may_do_only_as_rbac_says() {
    let plane = shared().await.unwrap();
    let path = plane.service_account_kubeconfig("rights", "reader").await.unwrap();
    let services: Api<Service> = Api::all(client_from(&path).await.unwrap());

    let refused = services.list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.is_forbidden()), "{refused}");

    plane
        .apply_yaml(
            r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: { name: service-reader }
rules: [{ apiGroups: [''], resources: [services], verbs: [list] }]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: { name: service-reader }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: service-reader }
subjects: [{ kind: ServiceAccount, namespace: rights, name: reader }]
",
        )
        .await
        .unwrap();
    // The authorizer learns of the binding by a watch of its own.
    wait::until("the right to list Services", DEADLINE, async || {
        services.list(&ListParams::default()).await
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn services_get_addresses_of_both_families() {
    let plane = shared().await.unwrap();
    plane
        .apply_yaml(
            r"
apiVersion: v1
kind: Service
metadata: { name: dual, namespace: default }
spec: { ipFamilyPolicy: RequireDualStack, ports: [{ port: 80 }] }
",
        )
        .await
        .unwrap();
    let services: Api<Service> = Api::default_namespaced(plane.admin_client().await.unwrap());
    let addresses = services.get("dual").await.unwrap().spec.unwrap().cluster_ips.unwrap();
    assert_eq!(addresses.len(), 2, "{addresses:?}");
}

#[tokio::test]
async fn data_survive_a_crash_and_a_restart_of_the_api_server() {
    let plane = ControlPlane::start().await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(plane.admin_client().await.unwrap());
    plane.apply_yaml(&config_map("kept")).await.unwrap();

    plane.kill_apiserver().unwrap();
    maps.get("kept").await.unwrap_err();
    plane.start_apiserver().await.unwrap();
    maps.get("kept").await.unwrap();
    plane.restart_apiserver().await.unwrap();
    maps.get("kept").await.unwrap();
}

#[tokio::test]
async fn etcd_hangs_and_forgets_when_told() {
    let plane = ControlPlane::start().await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(plane.admin_client().await.unwrap());
    plane.apply_yaml(&config_map("first")).await.unwrap();
    let past = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    plane.apply_yaml(&config_map("second")).await.unwrap();
    let in_the_past = ListParams::default().at(&past).matching(VersionMatch::Exact);
    assert_eq!(maps.list(&in_the_past).await.unwrap().items.len(), 1);

    plane.pause_etcd().unwrap();
    let quiet = Duration::from_millis(500);
    let read = tokio::time::timeout(quiet, maps.get("first")).await;
    assert!(read.is_err(), "a live read needs etcd: {read:?}");
    plane.resume_etcd().unwrap();
    wait::until("the read", DEADLINE, async || maps.get("first").await).await.unwrap();

    let forgotten = plane.compact_etcd().await.unwrap();
    assert!(forgotten > past.parse().unwrap());
    // It has its own memory of the past until it is restarted.
    plane.restart_apiserver().await.unwrap();
    let gone = maps.list(&in_the_past).await.unwrap_err();
    assert!(matches!(&gone, kube::Error::Api(status) if status.code == 410), "{gone}");
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 2);
}

#[tokio::test]
async fn controller_manager_serves_new_namespaces() {
    let plane = ControlPlane::builder().with_controller_manager(true).start().await.unwrap();
    plane.ensure_namespace("fresh").await.unwrap();
    let accounts: Api<ServiceAccount> =
        Api::namespaced(plane.admin_client().await.unwrap(), "fresh");
    wait::until("the default ServiceAccount", DEADLINE, async || accounts.get("default").await)
        .await
        .unwrap();
    plane.kubectl(&["delete", "namespace", "fresh", "--timeout=60s"]).await.unwrap();
}

#[tokio::test]
async fn failed_start_shows_the_log() {
    let error = ControlPlane::builder().apiserver_arg("--no-such-flag").start().await.unwrap_err();
    let message = format!("{error:?}");
    assert!(message.contains("kube-apiserver ended"), "{message}");
    assert!(message.contains("unknown flag: --no-such-flag"), "{message}");
}

const REPORT: &str = "LANDFALL_TESTKIT_REPORT";

#[tokio::test]
async fn everything_goes_when_its_parent_is_killed() {
    if let Some(report) = std::env::var_os(REPORT) {
        return wait_to_be_killed(Path::new(&report)).await;
    }
    // This test again, in a process of its own, which takes the branch above.
    let report = tempfile::NamedTempFile::new().unwrap();
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "control_plane::everything_goes_when_its_parent_is_killed"])
        .env(REPORT, report.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let left_behind = wait::until("the report of the process to kill", DEADLINE, async || {
        let text = std::fs::read_to_string(report.path()).unwrap();
        let text = text.strip_suffix("complete\n")?;
        Some(text.lines().map(PathBuf::from).collect::<Vec<_>>())
    })
    .await;
    parent.kill().unwrap();
    parent.wait().unwrap();
    let mut left_behind = left_behind.unwrap();
    assert_eq!(left_behind.len(), 3, "{left_behind:?}");
    wait::until("the end of all that it started", DEADLINE, async || {
        left_behind.retain(|path| path.exists());
        if left_behind.is_empty() { Ok(()) } else { Err(format!("{left_behind:?}")) }
    })
    .await
    .unwrap();
}

/// Writes down the paths that must not survive: a directory, and for each process its program in `/proc`,
/// which a dead process has not, even where orphans are not reaped.
async fn wait_to_be_killed(report: &Path) {
    let plane = ControlPlane::start().await.unwrap();
    let processes = plane.pids().into_iter().map(|pid| format!("/proc/{pid}/exe"));
    let all: Vec<_> = processes.chain([plane.dir().display().to_string()]).collect();
    std::fs::write(report, all.join("\n") + "\ncomplete\n").unwrap();
    std::future::pending::<()>().await;
}

fn config_map(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: {name}, namespace: default }}\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_etcd_has_the_objects_and_versions_of_when_it_was_saved() {
    let plane = ControlPlane::start().await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(plane.admin_client().await.unwrap());
    let names = async || {
        let list = maps.list(&ListParams::default()).await.unwrap();
        let version: u64 = list.metadata.resource_version.unwrap().parse().unwrap();
        let names = list.items.iter().map(ResourceExt::name_any);
        (names.filter(|name| name != "kube-root-ca.crt").collect::<Vec<_>>(), version)
    };
    let make = async |name: &str| {
        let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
        let map = ConfigMap { metadata, ..ConfigMap::default() };
        maps.create(&PostParams::default(), &map).await.unwrap();
    };
    make("before").await;
    plane.save_etcd().unwrap();
    for n in 0..300 {
        make(&format!("after{n}")).await;
    }
    let (_, version) = names().await;
    plane.restore_etcd().await.unwrap();
    let (restored, now) = names().await;
    assert_eq!(restored, ["before"]);
    assert!(now < version, "{now} after {version}");
    make("again").await;
    assert_eq!(names().await.0, ["again", "before"]);
}
