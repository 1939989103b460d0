//! The images: what their Dockerfiles say, and what can be run of them without a container engine.

use std::fs;
use std::path::Path;
use std::process::Command;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::PodSpec;
use kube::Api;
use kube::api::{Patch, PatchParams};
use landfall_testkit::bed::Program;
use landfall_testkit::{Bed, wait};
use serde_json::json;

use crate::stage::{GROUP, NAMESPACE, Stage};
use crate::{LONG, root};

const OPERATOR: &str = "deploy/image/operator.Dockerfile";
const AGENT: &str = "deploy/image/agent.Dockerfile";
/// Where `cargo build --release -p landfall` leaves the binary.
const BUILT: &str = "target/release/landfall";
/// Where the `DaemonSet` of a group expects it in the image.
const INSTALLED: &str = "/usr/local/bin/landfall";

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The instructions of a Dockerfile, each on one line.
fn instructions(path: &str) -> Vec<(String, String)> {
    let text = text(path);
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let joined = lines.collect::<Vec<_>>().join("\n").replace("\\\n", "");
    let lines = joined.lines().filter(|line| !line.trim().is_empty());
    let split = |line: &str| {
        let (name, rest) = line.split_once(' ').unwrap();
        (name.to_owned(), rest.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    lines.map(split).collect()
}

fn all<'a>(instructions: &'a [(String, String)], name: &str) -> Vec<&'a str> {
    let named = instructions.iter().filter(|(it, _)| it == name);
    named.map(|(_, rest)| rest.as_str()).collect()
}

#[test]
fn the_images_are_made_from_the_release_binary_and_have_it_where_pods_expect_it() {
    for path in [OPERATOR, AGENT] {
        let instructions = instructions(path);
        let copies = all(&instructions, "COPY");
        let ours: Vec<_> = copies.iter().filter(|it| !it.starts_with("--from=")).collect();
        assert_eq!(ours, [&format!("{BUILT} {INSTALLED}")], "{path}");
        assert_eq!(all(&instructions, "ENTRYPOINT"), [format!("[\"{INSTALLED}\"]")], "{path}");
        assert!(all(&instructions, "LABEL")[0].contains("image.licenses"), "{path}");
        let known = ["ARG", "FROM", "COPY", "RUN", "LABEL", "USER", "ENTRYPOINT"];
        for (name, rest) in &instructions {
            assert!(known.contains(&name.as_str()), "{path}: {name} {rest}");
        }
    }
    assert!(text(".dockerignore").lines().any(|line| line == format!("!{BUILT}")));
}

/// Waits for the `DaemonSet` of the group in which this is the image of the container `keepalived`, or its own one.
async fn pods(stage: &Stage, image: Option<&str>) -> PodSpec {
    let sets: Api<DaemonSet> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let outcome = wait::until("the group's DaemonSet", LONG, async || {
        let set = sets.get(GROUP).await.map_err(|error| error.to_string())?;
        let pods = set.spec.and_then(|spec| spec.template.spec).ok_or("no pods")?;
        let own = pods.containers[0].image.as_deref();
        let is_it = match image {
            Some(image) => own == Some(image),
            None => pods.init_containers.is_none(),
        };
        if is_it { Ok(pods) } else { Err(format!("{own:?}")) }
    });
    outcome.await.unwrap_or_else(|error| panic!("{error}\n{}", stage.logs()))
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_run_the_binary_where_the_image_has_it_and_as_its_user() {
    let spec = json!({ "interface": "eth0" });
    let Some(stage) = Stage::without_agents(spec, async |_, _, _| {}).await else { return };
    let own = pods(&stage, None).await;
    assert_eq!(own.containers.len(), 1);
    let agent = &own.containers[0];
    assert_eq!(agent.command, Some(vec![INSTALLED.to_owned(), "agent".to_owned()]));
    let user = agent.security_context.as_ref().unwrap().run_as_user.unwrap();
    assert_eq!(all(&instructions(AGENT), "USER"), [format!("{user}:{user}")]);

    // In another image only keepalived is expected, and landfall is copied from ours.
    let other = "example.com/keepalived:1";
    let edit = Patch::Merge(json!({ "spec": { "image": other } }));
    stage.groups().patch(GROUP, &PatchParams::default(), &edit).await.unwrap();
    let pods = pods(&stage, Some(other)).await;
    let init = &pods.init_containers.unwrap()[0];
    assert_eq!(init.image, agent.image);
    let copy = init.command.as_ref().unwrap();
    assert_eq!(copy[..2], ["cp", INSTALLED]);
    assert_eq!(pods.containers[0].command.as_ref().unwrap()[..2], [copy[2].as_str(), "agent"]);
}

#[test]
fn the_operators_image_has_the_user_that_its_pod_runs_as() {
    assert_eq!(all(&instructions(OPERATOR), "USER"), ["65532:65532"]);
    assert!(text("deploy/operator.yaml").contains("runAsUser: 65532"));
}

/// Runs the steps of a Dockerfile on a node, whose machine is in the place of a base image with keepalived and
/// which has no network to download anything from, and then a command.
async fn build_and_run(path: &str, then: &str) -> Option<String> {
    let bed = Bed::for_test().await.unwrap()?;
    let node = bed.node("n1");
    let steps = all(&instructions(path), "RUN").join("\n");
    let script = format!(
        "set -e
        mount -n -t tmpfs tmpfs /usr/local/bin
        cp \"$1\" {INSTALLED}
        {steps}
        {then}"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script, "build"]).arg(env!("CARGO_BIN_EXE_landfall"));
    let built = Path::new(env!("CARGO_BIN_EXE_landfall")).parent().unwrap();
    let process = node.run(Program::new(command).sees(built), "build.log").unwrap();
    let status = process.ended(LONG).await.unwrap();
    let log = process.log_tail(1000);
    assert!(status.success(), "{status}: {log}");
    Some(log)
}

#[tokio::test]
async fn an_image_with_only_the_libraries_of_the_binary_runs_the_operator() {
    // A directory of the machine in place of a container: nothing but the files of the image is in it.
    let then = format!("find /tmp/image -type f; chroot /tmp/image {INSTALLED} operator --help");
    let Some(log) = build_and_run(OPERATOR, &then).await else { return };
    assert!(log.contains("--leader-elect"), "{log}");
    let files = log.lines().filter(|line| line.starts_with("/tmp/image/"));
    let files: Vec<_> = files.collect();
    assert!(files.contains(&format!("/tmp/image{INSTALLED}").as_str()), "{files:?}");
    assert!(files.len() < 10 && files.iter().any(|file| file.contains("libc.so")), "{files:?}");
}

#[tokio::test]
async fn an_image_with_keepalived_runs_the_agent_and_gives_the_binary_to_others() {
    let then = format!(
        "keepalived --version
        cp {INSTALLED} /tmp/landfall
        for program in {INSTALLED} /tmp/landfall; do
            setpriv --no-new-privs --bounding-set=-all,+net_admin,+net_raw,+net_broadcast \
                \"$program\" agent --help
        done"
    );
    let Some(log) = build_and_run(AGENT, &then).await else { return };
    assert!(log.contains("Keepalived v2."), "{log}");
    assert_eq!(log.matches("--run-dir").count(), 2, "{log}");
}
