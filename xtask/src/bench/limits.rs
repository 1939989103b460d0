//! Measures the API server's own rates, which no allocator can beat, in the same run.

use std::time::Instant;

use kube::api::ObjectMeta;
use landfall_api::{Holder, IP, IPSpec, Use, keys};
use serde::Serialize;
use serde_json::json;

use super::error::Result;
use super::neighbours::Moment;
use super::raw::{Call, spread};
use super::stage::{IPS_PATH, Stage, bytes, limit_address};
use super::watch::{self, Seen, Watch, services_path};
use crate::output::Output;

/// Services the limits are measured with: enough for steady rates, and few enough that a larger scenario does
/// not take minutes for its limits alone.
pub(super) const MOST_SERVICES: u32 = 5000;
/// Writes in flight at once. Which number is best depends on the machine, so all are tried.
pub(super) const WIDTHS: [usize; 4] = [16, 32, 64, 128];
/// Services created at once.
const CREATE_WIDTHS: [usize; 3] = [16, 32, 64];
const SWEEP_WIDTH: usize = 32;

/// A rate, and how many calls were in flight for it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Rate {
    pub(super) width: usize,
    pub(super) per_second: f64,
}

/// One measurement of both limits.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Limits {
    /// One claim and one status patch per Service, in Services per second.
    pub(super) two_writes: Vec<Rate>,
    /// Services created per second.
    pub(super) creates: Vec<Rate>,
    /// The part of the machine that other processes used meanwhile.
    pub(super) others: f64,
}

impl Limits {
    pub(super) fn best_two_writes(&self) -> f64 {
        best(&self.two_writes).per_second
    }

    pub(super) fn best_create(&self) -> Rate {
        best(&self.creates)
    }
}

fn best(rates: &[Rate]) -> Rate {
    let none = Rate { width: 1, per_second: 0.0 };
    rates.iter().copied().fold(none, |a, b| if b.per_second > a.per_second { b } else { a })
}

fn rate(width: usize, count: u32, begin: Instant) -> Rate {
    Rate { width, per_second: f64::from(count) / begin.elapsed().as_secs_f64() }
}

/// Measures both limits with `count` Services in their own namespace, and cleans up.
pub(super) async fn measure(
    stage: &Stage,
    namespace: &str,
    count: u32,
    output: &Output,
) -> Result<Limits> {
    stage.open(namespace, None).await?;
    // Every scenario has a watch, so there is one here.
    let watch = Watch::start(stage.admin.clone(), namespace, stage.address_in.clone());
    let before = Moment::now(&stage.plane.pids())?;
    let mut creates = Vec::new();
    let share = count.div_ceil(3);
    for (index, width) in (0_u32..).zip(CREATE_WIDTHS) {
        let (from, to) = (share * index, count.min(share * (index + 1)));
        let begin = Instant::now();
        stage.create_services(namespace, from..to, width).await?;
        creates.push(rate(width, to - from, begin));
    }
    let mut two_writes = Vec::new();
    for width in WIDTHS {
        two_writes.push(two_writes_of_all(stage, namespace, width).await?);
    }
    let others = before.others_until(&Moment::now(&stage.plane.pids())?);
    drop(watch);
    stage.close(namespace).await?;
    let limits = Limits { two_writes, creates, others };
    let all = |rates: &[Rate]| {
        let parts = rates.iter().map(|rate| format!("{:.0} ({})", rate.per_second, rate.width));
        parts.collect::<Vec<_>>().join(", ")
    };
    output.say(format_args!("  two writes: {} per second (in flight)", all(&limits.two_writes)));
    output.say(format_args!("  Services created: {} per second", all(&limits.creates)));
    Ok(limits)
}

async fn two_writes_of_all(stage: &Stage, namespace: &str, width: usize) -> Result<Rate> {
    let services = watch::list(&stage.admin, namespace).await?;
    let mut calls = Vec::new();
    let mut undo = Vec::new();
    for (index, seen) in (0_u32..).zip(&services) {
        calls.push((take(stage, namespace, seen, index)?, publish(stage, namespace, seen, index)?));
        undo.push(unpublish(stage, namespace, seen)?);
    }
    let count = u32::try_from(calls.len()).unwrap_or(u32::MAX);
    let client = stage.operator_client().await?;
    let begin = Instant::now();
    spread(width, calls, move |(take, publish)| {
        let client = client.clone();
        async move {
            take.send(&client).await?;
            publish.send(&client).await.map(drop)
        }
    })
    .await?;
    let rate = rate(width, count, begin);
    let claims = (0..count).map(|index| format!("{IPS_PATH}/{}", limit_address(index)));
    stage.delete_all(claims.collect()).await?;
    let client = stage.admin.clone();
    spread(SWEEP_WIDTH, undo, move |call| {
        let client = client.clone();
        async move { call.send(&client).await.map(drop) }
    })
    .await?;
    Ok(rate)
}

/// The claim, as the operator writes it.
pub(super) fn take(stage: &Stage, namespace: &str, seen: &Seen, index: u32) -> Result<Call> {
    let address = limit_address(index).to_string();
    let meta = &seen.metadata;
    let holder = Holder {
        kind: "Service".to_owned(),
        namespace: Some(namespace.to_owned()),
        name: meta.name.clone(),
        uid: Some(meta.uid.clone()),
        seen_version: Some(meta.resource_version.clone()),
        ..Holder::default()
    };
    let spec = IPSpec {
        address: Some(address.clone()),
        use_: Some(Use::LoadBalancer.as_str().to_owned()),
        pool: Some(stage.pool_name(namespace)),
        holders: vec![holder],
        reserved_for: None,
    };
    let owner = format!("{namespace}/{}", meta.name);
    let mut ip = IP::new(&address, spec);
    ip.metadata = ObjectMeta {
        labels: (!stage.annotates())
            .then(|| [(keys::LABEL_IPGROUP.to_owned(), namespace.to_owned())].into()),
        annotations: Some([(keys::ANNOTATION_OWNER.to_owned(), owner)].into()),
        ..ip.metadata
    };
    Ok(Call::create(format!("{IPS_PATH}?fieldManager=landfall"), bytes(&ip, "a claim")?))
}

/// The patch that publishes the address, as the operator writes it.
fn publish(stage: &Stage, namespace: &str, seen: &Seen, index: u32) -> Result<Call> {
    let address = limit_address(index);
    let meta = &seen.metadata;
    if stage.annotates() {
        let patch = json!({
            "metadata": {
                "resourceVersion": meta.resource_version,
                "uid": meta.uid,
                "labels": { keys::LABEL_IMPLEMENTATION: keys::IMPLEMENTATION_KUBE_VIP },
                "annotations": { keys::ANNOTATION_KUBE_VIP_ADDRESSES: address },
            },
            "spec": { "loadBalancerIP": address },
        });
        let path = format!("{}/{}?fieldManager=landfall", services_path(namespace), meta.name);
        return Ok(Call::merge(path, bytes(&patch, "an annotation")?));
    }
    let patch = json!({
        "metadata": { "resourceVersion": meta.resource_version, "uid": meta.uid },
        "status": {
            "conditions": [{
                "type": keys::CONDITION_ALLOCATED,
                "status": "True",
                "reason": "Allocated",
                "message": format!("{address} from IPGroup/{namespace}"),
                "lastTransitionTime": meta.creation_timestamp,
            }],
            "loadBalancer": { "ingress": [{ "ip": address, "ipMode": "VIP" }] },
        },
    });
    let path = format!("{}/{}/status?fieldManager=landfall", services_path(namespace), meta.name);
    Ok(Call::merge(path, bytes(&patch, "a status")?))
}

fn unpublish(stage: &Stage, namespace: &str, seen: &Seen) -> Result<Call> {
    if stage.annotates() {
        let patch = json!({
            "metadata": {
                "labels": { keys::LABEL_IMPLEMENTATION: null },
                "annotations": { keys::ANNOTATION_KUBE_VIP_ADDRESSES: null },
            },
            "spec": { "loadBalancerIP": null },
        });
        let path = format!("{}/{}", services_path(namespace), seen.metadata.name);
        return Ok(Call::merge(path, bytes(&patch, "an annotation")?));
    }
    let patch = json!({ "status": { "conditions": null, "loadBalancer": null } });
    let path = format!("{}/{}/status", services_path(namespace), seen.metadata.name);
    Ok(Call::merge(path, bytes(&patch, "a status")?))
}
