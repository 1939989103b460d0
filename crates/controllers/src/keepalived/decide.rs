//! What a group should be: the router ids of its instances, the plan of its nodes, and what is in the way.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use landfall_api::{
    GroupName, GroupSettings,
    announce::Obstacle,
    keepalived_group::{Device, Layout, Slots},
    verbatim::Lines,
};
use landfall_vrrp::{
    FORMAT, Form, Instance, Node, NodeIndex, PasswordFrom, Plan, Preempt, Transport, Version, conf,
    layout::{self, Member, Settings},
    router_ids::{self, Ids},
};

use super::{
    change,
    handover::Others,
    judge::Memory,
    members::{Announced, Members, Wishes, World},
    membership::{Membership, Moving},
    neighbours::Neighbours,
};
use crate::{
    cluster::{keepalived::GroupView, node::NodeView},
    object::ObjectKey,
};

/// The interval of the classic layout.
const CLASSIC_ADVERT_MILLIS: u32 = 1000;
/// How many Services of one namespace have an instance of their own beside the slots of a group: about a quarter of all
/// router ids. Those that have one keep it.
const MOST_OWN_INSTANCES: usize = 64;
/// Where a plan needs the name of a device that each node finds out by itself, and the group names none.
const BY_ROUTE: &str = "by-route";

/// What a group should be.
#[derive(Debug, PartialEq)]
pub(super) struct Decision {
    /// The router id of each instance, as the group's status should have them.
    pub ids: BTreeMap<String, u8>,
    /// The plan; `None` while router ids are missing in the status, which must have them first.
    pub plan: Option<Plan>,
    /// The Services that the group announces.
    pub announced: Vec<Announced>,
    /// What is in the way of Services.
    pub obstacles: BTreeMap<ObjectKey, Vec<Obstacle>>,
    /// Instances for which no router id is left.
    pub without_id: Vec<String>,
    /// Router ids that groups with a node in common have as well, by group.
    pub shared_ids: BTreeMap<ObjectKey, BTreeSet<u8>>,
    /// The time between two adverts that is kept because so many addresses need it, and how many there are.
    pub kept_interval: Option<(u32, usize)>,
    /// Whether addresses are refused because the plan has no room for them.
    pub full: bool,
    /// Nodes that hold up a change of an instance's form.
    pub silent: BTreeSet<String>,
    /// Whether addresses wait until other instances or groups have let them go.
    pub waits: bool,
    /// Addresses that have left their instances, and that some node may still hold.
    pub lingering: BTreeSet<IpAddr>,
    /// The Service that each address is announced for, unless there is an obstacle to all of its addresses.
    pub winners: BTreeMap<IpAddr, ObjectKey>,
    /// Addresses that another group announces, for a Service that shares them.
    pub elsewhere: BTreeSet<IpAddr>,
}

/// What is known of a group before the decision.
pub(super) struct Known<'a> {
    pub view: &'a GroupView,
    pub settings: &'a GroupSettings,
    /// The plan that nodes carry out now.
    pub plan: Option<&'a Plan>,
    /// The file of an operator that ran before, while there is no plan.
    pub file: Option<&'a str>,
    /// The name of the password in use.
    pub password: Option<&'a str>,
    /// Router ids of other groups.
    pub neighbours: Neighbours,
    pub nodes: change::Nodes<'a>,
    /// Addresses that nodes of other groups may still hold.
    pub others_hold: BTreeSet<IpAddr>,
    /// Groups whose Secret has no password.
    pub without_password: BTreeSet<ObjectKey>,
    /// Whether the plan has no room for more addresses than it has.
    pub full: bool,
}

/// Decides what a group should be.
pub(super) fn decide(world: World<'_>, wishes: &Wishes, known: &Known<'_>) -> Decision {
    let memory = Memory { held: &known.others_hold, without_password: &known.without_password };
    let Members { announced, mut obstacles, winners, elsewhere } =
        world.members(wishes, &known.view.key, memory);
    let nodes = nodes_of(world, known.settings);
    let mut settings = layout_settings(known);
    let mut members: Vec<_> =
        announced.iter().map(|announced| member(world, announced, &nodes)).collect();
    let mut announced = announced;
    let kept_interval = kept_interval(known, &members);
    if let Some((millis, _)) = kept_interval {
        settings.advert_millis = millis;
    }
    let existing = known.view.status.router_ids.iter();
    let existing = existing.filter_map(|(name, id)| Some((name.clone(), u8::try_from(*id).ok()?)));
    let existing: BTreeMap<_, _> = existing.collect();
    if let Some(name) = name(known) {
        let own = |member: &Member| layout::own_instance(&settings, member);
        let has_one = |own: &str| existing.contains_key(own);
        limit_own(&name, &own, &has_one, &mut announced, &mut members, &mut obstacles);
    }
    limit(known, &mut announced, &mut members, &mut obstacles);

    let ids = usable_ids(known);
    let mut names = layout::names(&settings, &members);
    names.extend(
        reserved(world, wishes, known, &settings)
            .filter(|name| existing.get(name).is_some_and(|id| !ids.forbidden.contains(id))),
    );
    let assigned = router_ids::assign(&existing, &names, &ids);
    if let Some(name) = name(known) {
        let without: BTreeSet<_> = assigned.without.iter().collect();
        for (announced, member) in announced.iter().zip(&members) {
            let carriers = layout::carriers(&settings, member);
            if carriers.iter().any(|instance| without.contains(instance)) {
                let found = obstacles.entry(announced.service.clone()).or_default();
                found.push(Obstacle::NoRouterId(name.clone()));
            }
        }
    }
    let in_status = assigned.ids == existing;
    let (mut silent, mut waits) = (BTreeSet::new(), false);
    let passed = |generation| known.nodes.behind(known.plan, generation).is_empty();
    let others = Others { before: known.plan, passed: &passed, elsewhere: &known.others_hold };
    let plan = in_status.then(|| {
        let found = found_forms(known);
        let running = known.plan.iter().flat_map(|plan| &plan.instances);
        let before: BTreeMap<_, _> = if known.plan.is_some() {
            running.map(|instance| (instance.name.as_str(), &instance.form)).collect()
        } else {
            found.iter().map(|(name, form)| (name.as_str(), form)).collect()
        };
        let instances = |members: &[Member]| {
            layout::instances(&settings, members, &nodes, &assigned.ids, &before)
        };
        let mut drafts = instances(&members);
        let waiting = others.waiting(&drafts);
        if !waiting.is_empty() {
            waits = true;
            for member in &mut members {
                member.addresses.retain(|address| !waiting.contains(address));
            }
            drafts = instances(&members);
        }
        let draft = plan(known, nodes.clone(), drafts);
        let guarded = change::guard(draft, known.plan, &found, known.nodes);
        silent = guarded.silent;
        if waits {
            let leaving = known.plan.iter().flat_map(|plan| plan.leaving.values());
            let behind = leaving.map(|one| known.nodes.behind(known.plan, one.since));
            silent.extend(behind.flatten());
        }
        let leaving = others.leaving(&guarded.plan.instances);
        let membership = Membership { before: known.plan, nodes: known.nodes };
        let Moving { joining, departing, silent: unaware } = membership.moving(&guarded.plan);
        silent.extend(unaware);
        Plan { leaving, joining, departing, ..guarded.plan }
    });
    let (ids, without_id) = (assigned.ids, assigned.without);
    Decision {
        shared_ids: known.neighbours.shared(&ids),
        ids,
        plan,
        announced,
        obstacles,
        without_id,
        kept_interval,
        full: known.full,
        silent,
        waits,
        lingering: others.lingering(),
        winners,
        elsewhere,
    }
}

/// The router ids that a group may use.
fn usable_ids(known: &Known<'_>) -> Ids {
    Ids {
        range: match &known.settings.layout {
            Layout::PerService => 1..=255,
            Layout::Slots(slots) => slots.router_ids.clone(),
        },
        forbidden: known.settings.excluded_router_ids.clone(),
        elsewhere: known.neighbours.near.clone(),
        yielded: known.neighbours.yielded.clone(),
        distant: known.neighbours.distant.clone(),
    }
}

/// The instances for which a router id that was given is kept, although they may have nothing to announce now: in the
/// classic layout those of every Service that asks for the group.
fn reserved(
    world: World<'_>,
    wishes: &Wishes,
    known: &Known<'_>,
    settings: &Settings,
) -> impl Iterator<Item = String> {
    let group = &known.view.key;
    let services = wishes.services_of(group).filter(|_| settings.slots.is_none());
    services.flat_map(move |service| {
        let addresses = wishes.addresses(service, group).to_vec();
        let announced = Announced { service: service.clone(), addresses };
        let member = member(world, &announced, &[]);
        // The replaced operator gave one even for an entry without an address.
        let balancer = world.cluster.services.get(service).and_then(|view| view.balancer.as_ref());
        let has_hostname = balancer.is_some_and(|balancer| balancer.ingress_has_hostname);
        let hostname = (member.spread && has_hostname).then(|| format!("{service}/"));
        let names = layout::names(settings, std::slice::from_ref(&member));
        names.into_iter().chain(hostname)
    })
}

fn name(known: &Known<'_>) -> Option<GroupName> {
    known.view.key.to_string().parse().ok()
}

/// The nodes of a group. One that an administrator declared dead is none of them.
fn nodes_of(world: World<'_>, settings: &GroupSettings) -> Vec<Node> {
    let names = world.cluster.nodes.keys();
    let views = names.filter_map(|name| Some((name, world.cluster.nodes.get(name)?)));
    let chosen = views.filter(|(_, view)| is_selected(settings, view));
    chosen
        .map(|(name, view)| Node { name: name.clone(), addresses: view.internal.clone() })
        .collect()
}

pub(super) fn is_selected(settings: &GroupSettings, node: &NodeView) -> bool {
    let mut labels = settings.node_selector.iter();
    !node.out_of_service && labels.all(|(key, value)| node.labels.get(key) == Some(value))
}

fn layout_settings(known: &Known<'_>) -> Settings {
    let settings = known.settings;
    let version = if settings.vrrp_version() == 2 { Version::V2 } else { Version::V3 };
    let (slots, advert_millis, preempt) = match &settings.layout {
        Layout::PerService => (None, CLASSIC_ADVERT_MILLIS, Preempt::Never),
        Layout::Slots(slots) => {
            let advert = u32::try_from(slots.advert_interval.as_millis());
            let preempt = match slots.preempt_after {
                None => Preempt::Never,
                Some(wait) if wait.is_zero() => Preempt::AtOnce,
                Some(wait) => {
                    Preempt::AfterSeconds(u32::try_from(wait.as_secs()).unwrap_or(u32::MAX))
                }
            };
            (Some(slots.count), advert.unwrap_or(u32::MAX), preempt)
        }
    };
    Settings {
        version,
        advert_millis,
        unicast: settings.unicast,
        password: known.password.map(str::to_owned),
        preempt,
        group: known.view.key.name().to_owned(),
        slots,
    }
}

/// A Service as the layout knows it.
fn member(world: World<'_>, announced: &Announced, nodes: &[Node]) -> Member {
    let view = world.cluster.services.get(&announced.service);
    let request = view.and_then(|view| view.announceable.as_ref()).map(|asked| &asked.request);
    let lines = request.map(|request| &request.lines.lines);
    let advert_millis = lines.and_then(|lines| lines.get("advert_int")).and_then(advert_millis);
    let others = lines.into_iter().flat_map(Lines::of_agents);
    let others = others.filter(|line| line.keyword.name != "advert_int");
    Member {
        service: announced.service.to_string(),
        addresses: announced.addresses.clone(),
        spread: request.is_some_and(|request| request.spread),
        lines: others.map(ToString::to_string).collect(),
        only_on: only_on(world, &announced.service, nodes),
        advert_millis,
    }
}

/// The nodes with a ready endpoint of a Service whose traffic stays on the node that it arrives at.
fn only_on(world: World<'_>, service: &ObjectKey, nodes: &[Node]) -> Option<BTreeSet<NodeIndex>> {
    world.cluster.services.get(service).filter(|view| view.local_traffic)?;
    let with_endpoint = world.cluster.nodes_with_endpoint(service);
    let served = (0..).zip(nodes).filter(|(_, node)| with_endpoint.contains(node.name.as_str()));
    Some(served.map(|(index, _)| index).collect())
}

/// The interval of a line that a Service sets, in seconds.
fn advert_millis(seconds: &str) -> Option<u32> {
    seconds.parse::<u32>().ok()?.checked_mul(1000)
}

/// Drops Services that need an instance of their own when their namespace has enough of these.
fn limit_own(
    group: &GroupName,
    own: &dyn Fn(&Member) -> Option<String>,
    has_one: &dyn Fn(&str) -> bool,
    announced: &mut [Announced],
    members: &mut [Member],
    obstacles: &mut BTreeMap<ObjectKey, Vec<Obstacle>>,
) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut newcomers = Vec::new();
    for (announced, member) in announced.iter_mut().zip(members) {
        let Some(instance) = own(member) else { continue };
        if has_one(&instance) {
            let count = counts.entry(announced.service.namespace().to_owned()).or_default();
            *count = count.saturating_add(1);
        } else {
            newcomers.push((announced, member));
        }
    }
    for (announced, member) in newcomers {
        let namespace = announced.service.namespace().to_owned();
        let count = counts.entry(namespace.clone()).or_default();
        if *count < MOST_OWN_INSTANCES {
            *count = count.saturating_add(1);
            continue;
        }
        announced.addresses.clear();
        member.addresses.clear();
        let found = obstacles.entry(announced.service.clone()).or_default();
        found.push(Obstacle::TooManyInstances(group.clone(), namespace, MOST_OWN_INSTANCES));
    }
}

/// The time between two adverts that instances keep, if they carry more addresses than the group's own time allows,
/// and how many they carry.
fn kept_interval(known: &Known<'_>, members: &[Member]) -> Option<(u32, usize)> {
    let Layout::Slots(slots) = &known.settings.layout else { return None };
    let most = slots.most_addresses()?;
    let carried = carried(known);
    let addresses = members.iter().flat_map(|member| &member.addresses);
    let count = addresses.filter(|one| carried.contains(one)).count();
    let running = known.plan.iter().flat_map(|plan| &plan.instances);
    let millis = running.map(|instance| instance.form.advert_millis).max()?;
    let shortest = u32::try_from(Slots::SHORT_ADVERTS.as_millis()).unwrap_or(u32::MAX);
    (count > most).then_some((millis.max(shortest), count))
}

/// The addresses of Services that the present plan has.
fn carried(known: &Known<'_>) -> BTreeSet<IpAddr> {
    known.plan.iter().flat_map(|plan| &plan.instances).flat_map(Instance::served).collect()
}

/// Drops what a group with short adverts, or with a plan that is full, cannot carry: the youngest names go first.
fn limit(
    known: &Known<'_>,
    announced: &mut [Announced],
    members: &mut [Member],
    obstacles: &mut BTreeMap<ObjectKey, Vec<Obstacle>>,
) {
    let Some(name) = name(known) else { return };
    let carried = carried(known);
    let addresses = members.iter().flat_map(|member| &member.addresses);
    let count = addresses.filter(|one| carried.contains(one)).count();
    let most = match &known.settings.layout {
        Layout::Slots(slots) => slots.most_addresses(),
        Layout::PerService => None,
    };
    let (most, obstacle) = match most {
        _ if known.full => (count, Obstacle::GroupFull(name, count)),
        Some(most) => (most, Obstacle::TooManyAddresses(name, most)),
        None => return,
    };
    let mut room = most.saturating_sub(count);
    for (announced, member) in announced.iter_mut().zip(members) {
        let before = member.addresses.len();
        member.addresses.retain(|address| {
            let fits = carried.contains(address) || room > 0;
            if fits && !carried.contains(address) {
                room = room.saturating_sub(1);
            }
            fits
        });
        if member.addresses.len() < before {
            announced.addresses.clone_from(&member.addresses);
            let found = obstacles.entry(announced.service.clone()).or_default();
            found.push(obstacle.clone());
        }
    }
}

/// The forms of the instances in the file of an operator that ran before.
fn found_forms(known: &Known<'_>) -> BTreeMap<String, Form> {
    let file = known.file.filter(|_| known.plan.is_none());
    let Some(Ok(file)) = file.map(conf::parse) else { return BTreeMap::new() };
    let found = conf::instances(&file).filter(|instance| !instance.advertised.is_empty());
    found
        .map(|instance| {
            let is_v4 = instance.advertised.first().is_some_and(IpAddr::is_ipv4);
            let form = Form {
                version: if is_v4 { instance.version.unwrap_or(Version::V2) } else { Version::V3 },
                advert_millis: instance.advert_millis.unwrap_or(CLASSIC_ADVERT_MILLIS),
                transport: if instance.peers.is_empty() {
                    Transport::Multicast
                } else {
                    Transport::Unicast
                },
                password: known.password.filter(|_| instance.password.is_some()).map(str::to_owned),
                advertised: instance.advertised,
                anchor: false,
            };
            (instance.name, form)
        })
        .collect()
}

fn plan(known: &Known<'_>, nodes: Vec<Node>, instances: Vec<Instance>) -> Plan {
    let (interface, interface_from) = match &known.settings.default_device {
        Device::Named(name) => (name.clone(), None),
        Device::Towards(address) => {
            let named = known.settings.named_device.clone();
            (named.unwrap_or_else(|| BY_ROUTE.to_owned()), Some(*address))
        }
    };
    let is_own = |node: &String| nodes.iter().any(|own| own.name == *node);
    let devices = known.settings.devices.iter().filter(|(node, _)| is_own(node));
    let own = devices.filter_map(|(node, device)| match device {
        Device::Named(name) => Some((node.clone(), name.clone())),
        Device::Towards(_) => None,
    });
    Plan {
        format: FORMAT,
        generation: 0,
        group: known.view.key.to_string(),
        interface,
        interface_from,
        interfaces: own.collect(),
        password_from: known
            .settings
            .password
            .as_ref()
            .filter(|_| known.password.is_some())
            .map(|from| PasswordFrom { secret: from.secret.clone(), key: from.key.clone() }),
        global_lines: known.settings.lines.of_agents().map(ToString::to_string).collect(),
        nodes,
        instances,
        leaving: BTreeMap::new(),
        joining: BTreeMap::new(),
        departing: BTreeMap::new(),
    }
}
