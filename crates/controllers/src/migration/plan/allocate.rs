//! Plans an address for a `VirtualIP` that has none, from the `GroupSegmentMapping`s.

use std::net::IpAddr;

use landfall_api::{VirtualIPStatus, keys::FINALIZER_VIRTUALIP_IP, virtualip::State};
use landfall_ipam::Family;

use super::{expose::error, hold, say, status};
use crate::{
    cluster::virtual_ip::{MappingView, VirtualIpView},
    migration::{claim, effect::Step, world::World},
    object::Version,
};

/// The next step towards an address.
pub(super) fn plan(world: World<'_>, vip: &VirtualIpView) -> Option<Step> {
    // An address that it has already, because an operator was interrupted before it wrote the status.
    let wanted = vip.wanted.as_deref().and_then(|text| text.parse::<IpAddr>().ok());
    let claimed = |addr: IpAddr| world.claim(addr).filter(|claim| claim.is_of(vip));
    let known = wanted.and_then(claimed).or_else(|| world.claims_of(vip).next());
    if let Some(claim) = known {
        return tell(world, vip, claim.addr);
    }
    let (addr, mapping) = match choose(world, vip) {
        Ok(chosen) => chosen,
        Err(why) => {
            return error(vip, format!("could not allocate an IP: {why}{}", unreadable(world)));
        }
    };
    // Before the claim, so that a deletion right after it does not leave the claim behind.
    if let Some(step) = hold(vip, FINALIZER_VIRTUALIP_IP) {
        return Some(step);
    }
    let at = (addr, Version::default());
    Some(Step::Take { claim: claim::for_virtual_ip(at, vip, Some(mapping)) })
}

fn tell(world: World<'_>, vip: &VirtualIpView, addr: IpAddr) -> Option<Step> {
    let mapping = world.mapping_of(addr);
    let created = status(vip, State::CreatingIp, "creating IP object for the service");
    let status = VirtualIPStatus {
        ip: Some(addr.to_string()),
        gsm: mapping.map(|mapping| mapping.name.to_string()),
        keepalived_group: mapping.map(|mapping| mapping.keepalived_group.clone()),
        ..created
    };
    say(vip, status, None)
}

/// The address to take and the mapping that gives it, or why there is none.
fn choose<'a>(world: World<'a>, vip: &VirtualIpView) -> Result<(IpAddr, &'a MappingView), String> {
    let book = world.book();
    let Some(text) = &vip.wanted else {
        let mut mappings = world.usable_mappings();
        let given = mappings.find_map(|(mapping, pool)| {
            let addr = book.first_free(&pool.name, Family::V4, false).ok()?;
            Some((addr, mapping))
        });
        return given.ok_or_else(|| "no IP could be allocated".to_owned());
    };
    let specific = |why: &str| format!("failed to allocate specific ip: {why}");
    let Ok(addr) = text.parse::<IpAddr>() else {
        return Err(specific("the requested ip could not be parsed"));
    };
    let Some(mapping) = world.mapping_of(addr) else {
        return Err(specific("GroupSegmentMapping not found for the requested ip"));
    };
    let offered = book.offers(&MappingView::pool_name(&mapping.name), addr).is_ok();
    if offered && !book.is_taken(addr) {
        Ok((addr, mapping))
    } else {
        Err(specific("the requested ip is not available"))
    }
}

/// Mappings that give nothing because they cannot be read: they have no status to report it in.
fn unreadable(world: World<'_>) -> String {
    let bad = world.cluster.mappings.values().filter_map(|mapping| {
        let problems = mapping.pool.as_ref().err()?;
        Some(format!("; GroupSegmentMapping {} is left out: {}", mapping.name, problems.join(", ")))
    });
    bad.collect()
}
