//! The file in a group's `ConfigMap` that is the same for all nodes: the pods of a replaced operator mount it
//! until each of them has been replaced, and later it is there for people to read.

use std::{collections::BTreeSet, net::IpAddr};

use landfall_api::{GroupSettings, keepalived_group::Layout};
use landfall_vrrp::{Plan, conf, render};

/// The first line of a file without the instances that there are.
const SHORT: &str = "# Each node has a file of its own, made from plan.json.\n";

/// The text to put there; `found` is the present one. While pods of the replaced operator may read it, it changes
/// only if addresses do: each change is a reload on every node. Unlike the files of nodes it has the lines of the
/// group that have no effect there, except those about scripts.
///
/// With slots it has no instances once no pod of the replaced operator is left: thousands of addresses would fill the
/// `ConfigMap` a second time.
pub(super) fn text(
    plan: &Plan,
    settings: &GroupSettings,
    found: Option<&str>,
    is_read_by_others: bool,
) -> String {
    let found = found.filter(|_| is_read_by_others);
    let read = found.and_then(|text| conf::parse(text).ok());
    let instances: Vec<_> = read.iter().flat_map(|file| conf::instances(file)).collect();
    if let Some(text) = found.filter(|_| has_same_addresses(plan, &instances)) {
        return text.to_owned();
    }
    let password = instances.iter().find_map(|instance| instance.password.as_deref());
    let global_lines = settings.lines.iter().filter(|line| !line.keyword.name.contains("script"));
    let global_lines = global_lines.map(ToString::to_string).collect();
    let is_short = !is_read_by_others && matches!(settings.layout, Layout::Slots(_));
    let instances = if is_short { Vec::new() } else { plan.instances.clone() };
    let plan = Plan { global_lines, instances, ..plan.clone() };
    // Without a usable password the file cannot be written for others; nodes of our own do not read it.
    let text = render::render_for_all(&plan, password)
        .or_else(|_| render::render_for_all(&plan, None))
        .unwrap_or_default();
    if is_short { format!("{SHORT}{text}") } else { text }
}

fn has_same_addresses(plan: &Plan, found: &[conf::FoundInstance]) -> bool {
    type Instance<'a> = (&'a str, u8, BTreeSet<IpAddr>);
    let planned: BTreeSet<Instance<'_>> = plan
        .instances
        .iter()
        .map(|one| (one.name.as_str(), one.router_id, one.served().collect()))
        .collect();
    let has_some = |instance: &&conf::FoundInstance| !instance.advertised.is_empty();
    let found: BTreeSet<Instance<'_>> = found
        .iter()
        .filter(has_some)
        .map(|one| {
            let addresses = one.advertised.iter().chain(&one.excluded).chain(&one.ignored);
            (one.name.as_str(), one.router_id.unwrap_or_default(), addresses.copied().collect())
        })
        .collect();
    planned == found
}
