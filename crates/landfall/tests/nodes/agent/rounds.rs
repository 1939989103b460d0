//! A group goes through everything that can happen to its nodes, one thing after the other.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use landfall_testkit::bed::{Protocol, Record};
use landfall_testkit::{Bed, wait};
use landfall_vrrp::{Instance, Preempt};

use super::fault::Fault;
use super::group::Group;
use super::kinds::{Family, Kind, addresses, instance, is_taking_back, one_and_a_half_adverts};
use super::site::{ALL, Site, node, without};
use crate::LONG;

/// How long a node that comes back may have an address that another one holds.
const LEFTOVER: Duration = Duration::from_secs(1);
/// Within five adverts, or a second if that is longer, an agent looks eight times whether keepalived is alive, and
/// may come too late for a sign of life by two of these looks.
const LOOKED_AT: u32 = 8;
/// How long it may take to kill a frozen keepalived and to take its addresses off the node, on a machine that is busy.
const KILLED_WITHIN: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

/// In each family one instance that stays where it is, and for each node one that the node takes back whenever it
/// can.
fn instances(kind: Kind) -> Vec<Instance> {
    let kinds = [
        (Preempt::Never, [0, 1, 2]),
        (Preempt::AtOnce, [0, 1, 2]),
        (Preempt::AtOnce, [1, 2, 0]),
        (Preempt::AtOnce, [2, 0, 1]),
    ];
    let all = kinds.iter().flat_map(|it| Family::BOTH.map(|family| (family, it)));
    let numbered = (1..).zip(all);
    numbered
        .map(|(number, (family, (preempt, order)))| instance(kind, family, number, order, *preempt))
        .collect()
}

/// An instance in a round.
struct Part {
    instance: Instance,
    /// Who held it before, and who holds it in the end.
    before: &'static str,
    after: &'static str,
}

/// Lets something happen to the node that holds the first instance, and looks what came of it.
async fn round(site: &mut Site, fault: Fault) {
    let mut parts = Vec::new();
    for instance in site.instances() {
        let before = site.holder(&instance, &ALL).await;
        parts.push(Part { instance, before, after: before });
    }
    let victim = parts[0].before;
    let others = without(victim);
    // Those that leave it with two holders for a while may leave a client with the wrong one.
    let clients = fault.leaves_addresses().then(|| {
        let served = parts[0].instance.served().collect::<Vec<_>>();
        served.into_iter().map(|address| site.group.bed.ask(address).unwrap()).collect::<Vec<_>>()
    });
    let moves = |part: &Part| fault.moves() && part.before == victim;
    let begin = Instant::now();
    let struck = fault.strike(&site.group, victim).await;
    for part in parts.iter_mut().filter(|part| moves(part)) {
        // A node that is back in no time takes back at once what it can.
        if part.instance.preempt == Preempt::Never || !fault.heals_itself() {
            part.after = site.holder(&part.instance, &others).await;
        }
    }
    let healed = fault.heal(&mut site.group, victim, &struck).await;
    for part in &mut parts {
        let instance = &part.instance;
        let rank = |name| instance.order.iter().position(|index| node(*index) == name);
        let candidates = match instance.preempt {
            // Both were holders, and the one with the higher priority goes on.
            Preempt::Never if fault == Fault::PortSilent => {
                vec![if rank(victim) < rank(part.after) { victim } else { part.after }]
            }
            Preempt::Never if moves(part) => others.clone(),
            Preempt::Never => vec![part.before],
            Preempt::AtOnce | Preempt::AfterSeconds(_) => vec![node(instance.order[0])],
        };
        site.holder(instance, &candidates).await;
        part.after = site.holder(instance, &ALL).await;
        assert!(candidates.contains(&part.after), "{fault:?} of {victim}: {}", instance.name);
    }
    site.all_ready().await;
    for client in clients.iter().flatten() {
        wait::until("an answer of the holder", LONG, async || {
            let by = [Protocol::Udp, Protocol::Tcp].map(|protocol| client.answered_by(protocol));
            let is_holder = by.iter().all(|by| by.as_deref() == Some(parts[0].after));
            if is_holder { Ok(()) } else { Err(format!("{by:?} for {}", parts[0].after)) }
        })
        .await
        .unwrap();
    }
    let record = site.record_since(begin).await;
    let seen = Seen { fault, victim, healed, record };
    for part in &parts {
        for address in addresses(&part.instance) {
            if moves(part) {
                seen.moved(part, address);
            } else {
                seen.stayed(part, address);
            }
        }
    }
}

/// What was seen of a round.
struct Seen {
    fault: Fault,
    victim: &'static str,
    /// When the node was back.
    healed: Instant,
    record: Record,
}

impl Seen {
    fn what(&self, part: &Part, address: IpAddr) -> String {
        let holdings = self.record.holdings(address).iter().map(|it| {
            let until = it.until.map(|until| until - self.record.begin());
            format!("{} {:?}-{until:?}", it.node, it.from - self.record.begin())
        });
        let holdings: Vec<_> = holdings.collect();
        let (fault, victim, name) = (self.fault, self.victim, &part.instance.name);
        let healed = self.healed - self.record.begin();
        let pause = self.record.longest_pause();
        format!(
            "{fault:?} of {victim}, back after {healed:?}, seen at least every {pause:?}, {address} of {name}: \
             {holdings:?}"
        )
    }

    /// Until when the node may have what another one holds.
    fn back(&self) -> Instant {
        self.healed + LEFTOVER
    }

    fn stayed(&self, part: &Part, address: IpAddr) {
        let what = self.what(part, address);
        // A node that hears no other one takes everything.
        let (alone, holdings): (Vec<_>, Vec<_>) = self
            .record
            .holdings(address)
            .iter()
            .partition(|it| self.fault == Fault::PortSilent && it.node == self.victim);
        let nodes: Vec<_> = holdings.iter().map(|it| it.node.as_str()).collect();
        assert_eq!(nodes, [part.before], "{what}");
        let is_over = |until| until <= self.back();
        let are_over = alone.iter().all(|it| it.until.is_some_and(is_over));
        assert!(are_over || part.after == self.victim, "{what}");
    }

    fn moved(&self, part: &Part, address: IpAddr) {
        let what = self.what(part, address);
        let (record, victim) = (&self.record, self.victim);
        let together = one_and_a_half_adverts(&part.instance);
        let back = self.back();
        let comes_again = part.after == victim;
        let first = &record.holdings(address)[0];
        assert_eq!(first.node, victim, "{what}");
        assert_ne!(record.holdings(address)[1].node, victim, "{what}: nobody took it");
        if !comes_again {
            let again = record.holdings(address)[1..].iter().any(|it| it.node == victim);
            assert!(!again, "{what}: it went back");
        }
        if !comes_again || self.fault != Fault::PortSilent {
            let is_gone = first.until.is_some_and(|until| until <= back);
            assert!(is_gone, "{what}: the node still had it when it was back");
        }
        if self.fault == Fault::KeepalivedFrozen {
            let is_over = first.until.is_some_and(|until| until <= self.unfrozen_by(part));
            assert!(is_over, "{what}: its agent did not notice");
        }
        // Only two that are due together have a reason to.
        let others = record.doubled(address, &without(victim));
        assert!(others.total <= together, "{what}: {others:?} among those that took it");
        let counted = if self.fault.leaves_addresses() { back } else { record.begin() };
        let since = record.clone().since(counted);
        for other in without(victim) {
            let both = since.doubled(address, &[victim, other]);
            let is_taken_back = comes_again && is_taking_back(both, 1);
            assert!(both.is_none() || is_taken_back, "{what}: {both:?} with {other}");
        }
    }

    /// Until when the agent of a node has found that its keepalived is frozen, and has taken its addresses off the node.
    fn unfrozen_by(&self, part: &Part) -> Instant {
        let advert = Duration::from_millis(part.instance.form.advert_millis.into());
        let patience = (advert * 5).max(Duration::from_secs(1));
        self.record.begin() + patience + patience * 2 / LOOKED_AT + KILLED_WITHIN
    }
}

/// Everything that can happen, with the API server and without.
async fn everything_happens(namespace: &str, kind: Kind) {
    let Some(group) = Group::with_agents(namespace).await else { return };
    let mut site = Site::new(group, instances(kind)).await;
    for fault in Fault::ALL {
        round(&mut site, fault).await;
    }
    let frozen = Instant::now();
    site.group.proxy.freeze_all();
    for fault in [Fault::PowerLost, Fault::KeeperKilled, Fault::Drained] {
        round(&mut site, fault).await;
    }
    wait::until("a minute without the API server", LONG, async || frozen.elapsed() > MINUTE)
        .await
        .unwrap();
    site.group.proxy.thaw();
    // Refused connections are no silence: they fail at once, and are tried again.
    site.group.proxy.stop();
    for fault in [Fault::WorkerKilled, Fault::PowerLost, Fault::KeeperKilled] {
        round(&mut site, fault).await;
    }
    site.group.proxy.resume();
    let begin = Instant::now();
    let mut next = site.plan.clone();
    next.generation = 2;
    next.instances[0].excluded.push(Bed::vip4(99));
    site.group.write(&next).await;
    site.group.applied(2, &ALL).await;
    let holder = site.holder(&next.instances[0], &ALL).await;
    let record = site.record_since(begin).await;
    for instance in site.instances() {
        for address in addresses(&instance) {
            assert_eq!(record.holdings(address).len(), 1, "{address}");
        }
    }
    assert_eq!(record.holders(Bed::vip4(99)), [holder]);
}

#[tokio::test]
async fn nothing_that_happens_to_nodes_with_slots_doubles_or_loses_an_address() {
    everything_happens("agent-slots", Kind::Slot).await;
}

#[tokio::test]
async fn nothing_that_happens_to_nodes_with_unicast_doubles_or_loses_an_address() {
    everything_happens("agent-unicast", Kind::UnicastSlot).await;
}

#[tokio::test]
async fn nothing_that_happens_to_nodes_in_the_classic_layout_doubles_or_loses_an_address() {
    everything_happens("agent-classic", Kind::Classic).await;
}
