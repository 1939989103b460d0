//! A node leaves its group, or the group goes: no password is left on its disk.

use std::fs;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::DeleteParams;
use landfall_api::keepalived_group::KeepalivedGroup;
use landfall_testkit::bed::Place;
use landfall_testkit::{Bed, wait};
use landfall_vrrp::{Form, PasswordFrom, Version};

use super::changes::set_password;
use super::group::{Group, NAME, slot};
use super::site::ALL;
use crate::LONG;

const PASSWORD: &str = "s3cr3tpw";

/// The files in the folder of a node's agent that have the password.
fn files_with_password(group: &Group, name: &str) -> Vec<String> {
    let entries =
        fs::read_dir(Place::First.run_dir(group.bed.node(name))).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    // One may be replaced just now.
    let has_it = |entry: &fs::DirEntry| {
        let bytes = fs::read(entry.path()).unwrap_or_default();
        bytes.windows(PASSWORD.len()).any(|window| window == PASSWORD.as_bytes())
    };
    files.filter(has_it).map(|entry| entry.file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn no_password_is_left_on_a_node_without_the_group() {
    let Some(mut group) = Group::with_agents("agent-left").await else { return };
    let vip = Bed::vip4(1);
    let mut instance = slot(1, &[0, 1, 2], &[]);
    instance.form = Form {
        version: Version::V2,
        advert_millis: 1000,
        password: Some(set_password(&group, PASSWORD).await),
        advertised: vec![vip],
        anchor: false,
        ..instance.form
    };
    let mut plan = group.plan(1, vec![instance]);
    plan.password_from = Some(PasswordFrom { secret: NAME.to_owned(), key: "password".to_owned() });
    group.write(&plan).await;
    group.applied(1, &ALL).await;
    for name in ALL {
        assert_ne!(files_with_password(&group, name), [""; 0]);
    }

    // A node that the plan does not name any more, while its agent still runs.
    plan.generation = 2;
    plan.nodes.truncate(2);
    plan.instances[0].order = vec![0, 1];
    group.write(&plan).await;
    wait::until("the node without the group to forget the password", LONG, async || {
        let files = files_with_password(&group, "n3");
        if files.is_empty() { Ok(()) } else { Err(format!("{files:?}")) }
    })
    .await
    .unwrap();
    // A later password is none of its business.
    set_password(&group, &format!("{PASSWORD}-2")).await;
    group.applied(2, &["n1", "n2"]).await;
    assert!(group.agent("n3").terminate(LONG).await.unwrap().success());
    assert_eq!(files_with_password(&group, "n3"), [""; 0]);

    // The next agent of a node needs them, even without an API server.
    assert!(group.agent("n1").terminate(LONG).await.unwrap().success());
    assert_ne!(files_with_password(&group, "n1"), [""; 0]);
    group.start("n1");
    group.ready("n1").await;

    group.api::<ConfigMap>().delete(NAME, &DeleteParams::default()).await.unwrap();
    group.api::<KeepalivedGroup>().delete(NAME, &DeleteParams::default()).await.unwrap();
    for name in ["n1", "n2"] {
        assert!(group.agent(name).terminate(LONG).await.unwrap().success());
        let log = group.agent(name).log_tail(30);
        assert_eq!(files_with_password(&group, name), [""; 0], "{log}");
        assert!(!Place::First.run_dir(group.bed.node(name)).join("plan.json").exists(), "{log}");
    }
}
