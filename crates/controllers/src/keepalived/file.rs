//! The file in a group's `ConfigMap` that is the same for all nodes: the pods of a replaced operator mount it
//! until each of them has been replaced, and later it is there for people to read.

use std::{collections::BTreeSet, net::IpAddr};

use landfall_api::verbatim::Lines;
use landfall_vrrp::{Plan, conf, render};

/// The text to put there; `found` is the present one. While pods of the replaced operator may read it, it changes
/// only if addresses do: each change is a reload on every node. Unlike the files of nodes it has the lines of the
/// group that have no effect there, except those about scripts.
pub(super) fn text(
    plan: &Plan,
    lines: &Lines,
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
    let global_lines = lines.iter().filter(|line| !line.keyword.name.contains("script"));
    let global_lines = global_lines.map(ToString::to_string).collect();
    let plan = Plan { global_lines, ..plan.clone() };
    // Without a usable password the file cannot be written for others; nodes of our own do not read it.
    render::render_for_all(&plan, password)
        .or_else(|_| render::render_for_all(&plan, None))
        .unwrap_or_default()
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
