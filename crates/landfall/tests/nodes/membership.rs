//! Nodes join and leave a group with unicast adverts while the node that holds its addresses runs the plan before.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use landfall_testkit::bed::Sampler;
use landfall_testkit::builders::{ServiceBuilder as _, load_balancer};
use landfall_testkit::{Bed, Proxy, wait};
use landfall_vrrp::Plan;
use serde_json::{Value, json};

use crate::LONG;
use crate::stage::{ALL, GROUP, NAMESPACE, Stage};

/// Longer than any instance here waits for a holder that it does not hear, and shorter than the operator waits for
/// a node.
const WITH_TWO_PLANS: Duration = Duration::from_secs(6);

async fn label(stage: &Stage, node: &str, value: Value) {
    let nodes: Api<Node> = Api::all(stage.client.clone());
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "edge": value } } }));
    nodes.patch(node, &PatchParams::default(), &patch).await.unwrap();
}

/// The plan of the group, once there is one.
async fn plan(stage: &Stage) -> Option<Plan> {
    let maps: Api<ConfigMap> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let data = maps.get_opt(GROUP).await.unwrap()?.data.unwrap_or_default();
    Some(serde_json::from_str(&data["plan.json"]).unwrap())
}

/// Waits until these nodes, which are all of the group, run the newest plan, no node waits for another one, and one
/// of them holds both addresses.
async fn settles(stage: &Stage, sampler: &Sampler, members: &[&str]) -> String {
    let vips = [Bed::vip4(1), Bed::vip6(1)];
    let outcome = wait::until(format!("{members:?} to settle"), LONG, async || {
        let plan = plan(stage).await.ok_or("no plan")?;
        let status = stage.group().await.status.unwrap_or_default();
        let runs = |name: &&str| {
            let report = status.nodes.iter().find(|report| report.node == **name);
            report.is_some_and(|report| report.generation == Some(plan.generation))
        };
        let names: Vec<_> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
        let is_settled = names == members
            && plan.joining.is_empty()
            && plan.departing.is_empty()
            && plan.instances.iter().all(|instance| instance.change.is_none())
            && members.iter().all(runs);
        sampler.next_sample().await;
        let record = sampler.record();
        match vips.map(|vip| record.holders(vip)) {
            [v4, v6] if is_settled && v4.len() == 1 && v4 == v6 && members.contains(&v4[0]) => {
                Ok(v4[0].to_owned())
            }
            holders => Err(format!("{holders:?}, {plan:?}, {:?}", status.nodes)),
        }
    })
    .await;
    outcome.unwrap_or_else(|error| panic!("{error}\n{}", stage.logs()))
}

/// Lets a node that knows nothing of it be the only one without a plan, for longer than any node waits for adverts.
async fn passes_without(stage: &Stage, sampler: &Sampler, late: &str, before: i64) {
    let what = format!("a plan that {late} alone does not know");
    stage
        .group_says(&what, |group| {
            let status = group.status.clone().unwrap_or_default();
            let is_done = |name: &&&str| {
                let report = status.nodes.iter().find(|report| report.node == **name);
                report.is_none_or(|report| report.generation > Some(before))
            };
            status.generation > Some(before)
                && ALL.iter().filter(|name| **name != late).all(|name| is_done(&name))
        })
        .await;
    let known = Instant::now();
    wait::until("a while with two plans", LONG, async || {
        sampler.record().last() > known + WITH_TWO_PLANS
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_come_and_go_double_nothing_with_unicast_though_the_holder_lags_behind() {
    let spec = json!({
        "interface": "eth0", "nodeSelector": { "edge": "yes" }, "unicastEnabled": true,
        "vrrp": { "slots": 1 },
    });
    let Some(mut stage) = Stage::without_agents(spec, async |_, _, _| {}).await else { return };
    let mut proxies: BTreeMap<&str, Proxy> = BTreeMap::new();
    for name in ALL {
        proxies.insert(name, stage.start_apart(name).await);
    }
    let sampler = stage.bed.sampler().unwrap();
    let vips = [Bed::vip4(1), Bed::vip6(1)];
    let service = load_balancer("web")
        .of_type("ClusterIP")
        .annotated(
            "keepalived-operator.redhat-cop.io/keepalivedgroup",
            &format!("{NAMESPACE}/{GROUP}"),
        )
        .with_spec(|spec| spec.external_ips = Some(vips.iter().map(ToString::to_string).collect()));
    stage.services().create(&PostParams::default(), &service).await.unwrap();
    let holder = settles(&stage, &sampler, &ALL).await;
    let guest = stage.bed.names_without(&holder)[0];
    let members: Vec<_> = ALL.into_iter().filter(|name| *name != guest).collect();
    let begin = Instant::now();

    label(&stage, guest, Value::Null).await;
    assert_eq!(settles(&stage, &sampler, &members).await, holder);

    // A node that the holder sends nothing to would hear no holder.
    let before = plan(&stage).await.unwrap().generation;
    proxies[holder.as_str()].freeze_all();
    label(&stage, guest, json!("yes")).await;
    passes_without(&stage, &sampler, &holder, before).await;
    proxies[holder.as_str()].thaw();
    assert_eq!(settles(&stage, &sampler, &ALL).await, holder);
    let record = sampler.record().since(begin);
    for vip in vips {
        assert_eq!(record.doubled(vip, &ALL).samples, 0, "{:?}", record.holdings(vip));
        assert_eq!(record.holdings(vip).len(), 1, "{:?}", record.holdings(vip));
    }

    // Nodes that no longer listened to the holder would hear none either.
    let before = plan(&stage).await.unwrap().generation;
    proxies[holder.as_str()].freeze_all();
    label(&stage, &holder, Value::Null).await;
    passes_without(&stage, &sampler, &holder, before).await;
    let record = sampler.record();
    for vip in vips {
        assert_eq!(record.holders(vip), [holder.as_str()]);
    }
    proxies[holder.as_str()].thaw();
    settles(&stage, &sampler, &stage.bed.names_without(&holder)).await;
    let record = sampler.record().since(begin);
    for vip in vips {
        assert_eq!(record.doubled(vip, &ALL).samples, 0, "{:?}", record.holdings(vip));
    }
}
