//! Addresses move from one instance to another while a node still runs the plan before.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use landfall_api::keepalived_group::{GroupNode, KeepalivedGroup};
use landfall_testkit::bed::Sampler;
use landfall_testkit::builders::{ServiceBuilder as _, load_balancer};
use landfall_testkit::{Bed, Proxy, wait};
use serde_json::{Value, json};

use crate::LONG;
use crate::stage::{ALL, GROUP, NAMESPACE, Stage};

/// Longer than any instance here waits for a holder that it does not hear, and shorter than the operator waits for
/// a node.
const WITH_TWO_PLANS: Duration = Duration::from_secs(6);

fn service(name: &str, addresses: &[String]) -> Service {
    let group = format!("{NAMESPACE}/{GROUP}");
    load_balancer(name)
        .of_type("ClusterIP")
        .annotated("keepalived-operator.redhat-cop.io/keepalivedgroup", &group)
        .with_spec(|spec| spec.external_ips = Some(addresses.to_vec()))
}

/// What changes.
#[derive(Clone, Copy, Debug)]
enum Edit {
    Group(fn() -> Value),
    /// The addresses of a Service.
    Service(&'static str, fn() -> Vec<String>),
}

impl Edit {
    async fn carry_out(self, stage: &Stage) {
        let params = PatchParams::default();
        match self {
            Self::Group(spec) => {
                let groups: Api<KeepalivedGroup> = Api::namespaced(stage.client.clone(), NAMESPACE);
                let patch = Patch::Merge(json!({ "spec": spec() }));
                groups.patch(GROUP, &params, &patch).await.unwrap();
            }
            Self::Service(name, addresses) => {
                let patch = Patch::Merge(json!({ "spec": { "externalIPs": addresses() } }));
                stage.services().patch(name, &params, &patch).await.unwrap();
            }
        }
    }
}

fn both() -> Vec<String> {
    vec![Bed::vip4(1).to_string(), Bed::vip6(1).to_string()]
}

/// What moves addresses to other instances.
fn edits() -> Vec<(&'static str, Vec<Edit>)> {
    vec![
        ("the layout changes", vec![Edit::Group(|| json!({ "vrrp": { "slots": 3 } }))]),
        ("the number of slots changes", vec![Edit::Group(|| json!({ "vrrp": { "slots": 2 } }))]),
        ("the layout changes back", vec![Edit::Group(|| json!({ "vrrp": null }))]),
        (
            "another Service gets the addresses",
            vec![Edit::Service("web", Vec::new), Edit::Service("other", both)],
        ),
    ]
}

/// Waits until all nodes run the newest plan and no change is under way.
async fn settles(stage: &Stage, sampler: &Sampler) -> String {
    let vips = [Bed::vip4(1), Bed::vip6(1)];
    let outcome = wait::until("one holder of both addresses", LONG, async || {
        let status = stage.group().await.status.unwrap_or_default();
        let runs = |it: &GroupNode| it.generation == status.generation && it.guard.is_none();
        let all_run = status.nodes.len() == ALL.len() && status.nodes.iter().all(runs);
        sampler.next_sample().await;
        let record = sampler.record();
        match vips.map(|vip| record.holders(vip)) {
            [v4, v6] if all_run && v4.len() == 1 && v4 == v6 => Ok(v4[0].to_owned()),
            holders => Err(format!("{holders:?}, all run the plan: {all_run}")),
        }
    })
    .await;
    outcome.unwrap_or_else(|error| panic!("{error}\n{}", stage.logs()))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_changes_its_instance_is_not_held_twice_though_a_node_lags_behind() {
    let spec = json!({ "interface": "eth0", "nodeSelector": { "edge": "yes" } });
    let Some(mut stage) = Stage::without_agents(spec, async |_, _, _| {}).await else { return };
    let mut proxies: BTreeMap<&str, Proxy> = BTreeMap::new();
    for name in ALL {
        proxies.insert(name, stage.start_apart(name).await);
    }
    let sampler = stage.bed.sampler().unwrap();
    for (name, addresses) in [("web", both()), ("other", vec![])] {
        stage.services().create(&PostParams::default(), &service(name, &addresses)).await.unwrap();
    }
    let mut holder = settles(&stage, &sampler).await;
    for (place, (what, edits)) in edits().into_iter().enumerate() {
        // The holder is late, then another node, and so on.
        let others = stage.bed.names_without(&holder);
        let late = if place % 2 == 0 { holder.as_str() } else { others[0] };
        let before = stage.group().await.status.unwrap().generation;
        let begin = Instant::now();
        proxies[late].freeze_all();
        for edit in edits {
            edit.carry_out(&stage).await;
        }
        stage
            .group_says(&format!("{what}, and {late} alone does not know"), |group| {
                let status = group.status.clone().unwrap_or_default();
                let is_done = |it: &GroupNode| it.node == late || it.generation > before;
                status.generation > before && status.nodes.iter().all(is_done)
            })
            .await;
        let known = Instant::now();
        wait::until("a while with two plans", LONG, async || {
            sampler.record().last() > known + WITH_TWO_PLANS
        })
        .await
        .unwrap();
        proxies[late].thaw();
        holder = settles(&stage, &sampler).await;
        let record = sampler.record().since(begin);
        for vip in [Bed::vip4(1), Bed::vip6(1)] {
            let doubled = record.doubled(vip, &ALL);
            assert!(doubled.is_none(), "{what}: {doubled:?} {:?}", record.holdings(vip));
        }
    }
}
