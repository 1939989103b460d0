//! The planner of Services: holds the known state, and decides what to do next.
//!
//! One task owns it, so it needs no lock. It is synchronous and does no I/O: news goes in through the
//! `on_…` functions, effects come out of [`Planner::plan`], and their reports go in again through
//! [`Planner::on_report`]. Planning again without news gives nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use jiff::Timestamp;
use landfall_api::HolderKind;
use landfall_ipam::{PoolName, Reason, Refusal};

pub use self::repair::RepairMode;
use self::{
    confirm::PendingReads, damp::Damper, pools::PoolStatus, progress::Progresses,
    remind::Reminders, repair::Repair, takeover::Annotations,
};
pub(super) use self::{news::News, repair::summary};
use super::{
    decide::{self, Decision, decide},
    effect::Effect,
    explain::Explanation,
    permissions::KUBE_VIP_NAMESPACE,
    status,
    view::{Leftover, Place, PoolView, Request, ServiceView},
    waiting::{Turn, Wait, Waiting},
    wish::could_want,
    world::{AnnotatedServices, Tenancy, World},
};
use crate::{
    absent::Absent,
    engine::{Now, Plan},
    ledger::{Claim, HolderEntry, Reservation, Then, Write},
    object::ObjectKey,
};

mod claims;
mod confirm;
mod damp;
mod due;
mod freed;
mod hold;
mod ledger;
mod news;
mod pools;
mod progress;
mod publish;
mod remind;
mod repair;
mod report;
mod takeover;

/// The settings of the allocator.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How long a claim waits for a Service that was missing when we started.
    pub orphan_grace: Duration,
    /// Whether repair fixes its findings.
    pub repair: RepairMode,
    pub kube_vip: KubeVip,
    pub tenancy: Tenancy,
}

/// Where kube-vip's pools are, and which Services they serve.
#[derive(Clone, Debug)]
pub struct KubeVip {
    /// The namespace of the `ConfigMap`.
    pub namespace: String,
    /// Its name.
    pub config_map: String,
    /// The Services that are served from it.
    pub services: AnnotatedServices,
}

impl Default for KubeVip {
    fn default() -> Self {
        Self {
            namespace: KUBE_VIP_NAMESPACE.to_owned(),
            config_map: "kubevip".to_owned(),
            services: AnnotatedServices::default(),
        }
    }
}

/// A webhook without a backend refuses every write of a claim.
#[derive(Debug)]
struct Blocked {
    message: String,
    /// The Service that retries on behalf of all.
    probe: Option<ObjectKey>,
}

/// Pool status is for people and dashboards: once a second is often enough.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// Decides which Service gets which address, one effect at a time.
#[derive(Debug, Default)]
pub(super) struct Planner {
    world: World,
    /// Services to decide about, oldest first.
    dirty: BTreeSet<Turn>,
    progress: Progresses,
    waiting: Waiting,
    /// Addresses that became free since the last plan.
    freed: BTreeSet<IpAddr>,
    /// Waiting Services for which something changed since the last plan.
    woken: BTreeSet<Turn>,
    /// Services that claims name and that do not exist.
    absent: Absent,
    pending_reads: PendingReads,
    reminders: Reminders,
    annotations: Annotations,
    damper: Damper,
    /// How many claims were released because their Service did not appear.
    collected: u64,
    settings: Settings,
    repair: Repair,
    /// Set while no claim can be written, with the reason.
    blocked: Option<Blocked>,
    pools_changed: bool,
    pool_statuses: BTreeMap<PoolName, PoolStatus>,
    /// Claims changed since the Services that want all or nothing were last decided about.
    claims_changed: bool,
    /// A pool's status may be out of date.
    status_dirty: bool,
    /// When a pool's status that was due too soon after the last write may be written.
    status_at: Option<Duration>,
}

impl Planner {
    pub(super) fn new(settings: Settings) -> Self {
        let world = World::new(settings.kube_vip.services.clone(), settings.tenancy);
        let absent = Absent::new(settings.orphan_grace);
        Self { world, absent, settings, ..Self::default() }
    }

    pub(super) fn world(&self) -> &World {
        &self.world
    }

    /// When a Service was created, if we know it.
    pub(super) fn created(&self, key: &ObjectKey) -> Option<Timestamp> {
        self.world.services.get(key).map(|service| service.created)
    }

    /// How many Services wait, by reason.
    pub(super) fn pending(&self) -> BTreeMap<Reason, usize> {
        self.waiting.by_reason()
    }

    /// How many Services wait for a pool.
    pub(super) fn waiting_for(&self, pool: &PoolName) -> usize {
        self.waiting.count_for(pool)
    }

    /// Decides about everything again, as after gaining leadership.
    pub(super) fn reconsider_all(&mut self) {
        let known = self.world.services.keys().chain(self.world.leftovers.keys());
        let holders = self.world.ledger.holders();
        let held = holders.filter(|holder| holder.kind == HolderKind::Service);
        let keys: Vec<_> = known.chain(held.map(|holder| &holder.key)).cloned().collect();
        for key in keys {
            self.mark(&key);
        }
        self.status_dirty = true;
    }

    /// Plans what to do now. Each effect counts as in flight until its report comes in.
    pub(super) fn plan(&mut self, now: Now, out: &mut Plan<Effect>) {
        if !self.world.has_listed() {
            return;
        }
        if self.settle_pools() {
            self.reconsider_all();
            self.repair.recheck_all();
        }
        self.weigh_externals(out);
        self.plan_repair(now, out);
        self.wake_delayed(now);
        self.plan_looks(now, &mut out.effects);
        self.plan_expiries(now, &mut out.effects);
        self.plan_services(now, &mut out.effects);
        self.remind(now, out);
        if out.effects.is_empty() && self.progress.is_quiet() {
            self.plan_held_back(now, &mut out.effects);
        }
        self.plan_pool_status(now, out);
        if self.plan_fixes(now) {
            self.plan_services(now, &mut out.effects);
        }
    }

    /// Brings in line with what was told all that decisions depend on, without planning anything.
    pub(super) fn take_stock(&mut self) {
        self.settle_pools();
        self.weigh_externals(&mut Plan::default());
        for (_, key, _) in self.annotated_without_claim() {
            self.weigh_contest_of(&key);
        }
    }

    /// Brings the book in line with the pools; says whether they changed.
    fn settle_pools(&mut self) -> bool {
        let changed = std::mem::take(&mut self.pools_changed);
        if changed {
            self.world.rebuild_pools();
        }
        changed
    }

    /// Decides about whoever has something to be decided. Who waits comes before who has just
    /// arrived.
    fn plan_services(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.plan_annotated(now, effects);
        self.serve_freed(now, effects);
        while let Some((_, key)) = self.dirty.pop_first() {
            self.plan_service(&key, now, effects);
        }
        self.serve_freed(now, effects);
    }

    /// Updates what Services that want all or nothing say, when no call is in flight.
    ///
    /// An address that they could have but do not take may go to others without waking them, because
    /// they do not wait for it. Their conditions must mention it then, as they would after a restart.
    fn plan_held_back(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if std::mem::take(&mut self.claims_changed) {
            for key in self.waiting.all_or_nothing() {
                self.plan_service(&key, now, effects);
            }
        }
    }

    /// The work left to do, for the message of a test that never settles.
    #[cfg(test)]
    pub(super) fn memory(&self) -> String {
        let book = &self.world.ledger.book;
        let counts: Vec<_> = book.pools().map(|pool| book.count(&pool.name)).collect();
        format!(
            "due {:?}, {}, {:?}, {counts:?}",
            self.next_due(),
            self.world.ledger.memory(),
            self.progress,
        )
    }

    fn mark(&mut self, key: &ObjectKey) {
        let created =
            self.world.services.get(key).map_or(Timestamp::UNIX_EPOCH, |service| service.created);
        self.dirty.insert((created, key.clone()));
    }

    /// Marks waiting Services for another decision.
    fn wake(&mut self, turns: Vec<Turn>) {
        for turn in turns {
            self.mark(&turn.1);
            self.woken.insert(turn);
        }
    }

    /// Decides about one Service and everything claimed in its name.
    fn plan_service(&mut self, key: &ObjectKey, now: Now, effects: &mut Vec<Effect>) {
        if self.repair.holds(key) {
            self.drop_hold(key);
            return;
        }
        // The report of the call in flight or due marks the Service again.
        if self.progress.is_engaged(key) {
            self.hold_for(key, now);
            return;
        }
        self.drop_hold(key);
        let planned = effects.len();
        if self.must_be_hidden(key) {
            self.plan_leftover(key, now, effects);
            return;
        }
        self.plan_addresses(key, now, effects);
        if effects.len() == planned {
            self.plan_leftover(key, now, effects);
        }
    }

    /// Decides about one Service's addresses.
    fn plan_addresses(&mut self, key: &ObjectKey, now: Now, effects: &mut Vec<Effect>) {
        let Some(service) = self.world.service(key) else {
            self.waiting.clear(key);
            if !self.in_grace(key, now) {
                self.release_all_but(key, &[], now, effects);
            }
            return;
        };
        if service.deleting {
            self.waiting.clear(key);
            self.release_all_but(key, &service.shows, now, effects);
            return;
        }
        let service = decide::with_terms(&self.world, service);
        if let Some((delay, refused)) = self.progress.write_delay(key)
            && delay.holds(now)
        {
            if let Some(refusal) = refused.clone() {
                self.wait(&service, std::slice::from_ref(&refusal), now);
                let said = Explanation::refused(&service, &service.shows, &[refusal]).into();
                self.tell_refused(&service, &said, now, effects);
            }
            return;
        }
        let decision = decide(&self.world, &service);
        self.weigh_contest(&service, &decision);
        match decision {
            Decision::LeaveAlone => {
                self.waiting.clear(key);
                if !self.retract(&service, now, effects) {
                    self.release_all_but(key, &service.shows, now, effects);
                }
            }
            Decision::GiveUp(retained) => self.give_up(key, retained, now, effects),
            Decision::Later => {
                self.progress.await_address(key);
            }
            Decision::Take(takes) => {
                self.waiting.clear(key);
                for (addr, pool) in takes {
                    match self.world.claim(addr).cloned() {
                        Some(kept) => self.touch(&service, &kept, pool.is_some(), now, effects),
                        None => self.take(&service, addr, pool, effects),
                    }
                }
            }
            Decision::Follow => {
                self.waiting.clear(key);
                self.publish(&service, Some(service.shows.clone()), None, now, effects);
            }
            Decision::Disputed(refusal) => {
                let refusals = std::slice::from_ref(&refusal);
                let said = Explanation::refused(&service, &service.shows, refusals).into();
                self.wait(&service, &[refusal], now);
                if !self.publish(&service, None, Some(&said), now, effects) {
                    let claims = self.world.claims_of(&service).into_iter();
                    let wanted = claims.filter(|claim| wants(&service, claim));
                    let keep = wanted.map(|claim| claim.addr).chain(service.shows.iter().copied());
                    let keep: Vec<_> = keep.collect();
                    self.release_all_but(key, &keep, now, effects);
                }
            }
            Decision::Show { addrs, refusals, satisfied } => {
                self.show(&service, &addrs, &refusals, satisfied, now, effects);
            }
        }
    }

    /// Makes the Service show these addresses, in the order of the protocol: touch the claims that are
    /// not fresh, publish, and only then release the rest.
    fn show(
        &mut self,
        service: &ServiceView,
        addrs: &[IpAddr],
        refusals: &[Refusal],
        satisfied: bool,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        if refusals.is_empty() {
            self.waiting.clear(&service.key);
        } else {
            self.wait(service, refusals, now);
        }
        let inherited: Vec<Claim> = addrs
            .iter()
            .filter_map(|addr| self.world.claim(*addr))
            .filter(|claim| claim.left_by_namesake(service))
            .cloned()
            .collect();
        if !inherited.is_empty() {
            for claim in &inherited {
                self.touch(service, claim, Self::is_given(service, claim), now, effects);
            }
            return;
        }
        let fresh: Vec<Claim> = addrs
            .iter()
            .filter(|addr| !service.shows.contains(addr))
            .filter_map(|addr| self.world.claim(*addr).cloned())
            .collect();
        if !self.is_withdrawal_confirmed(service, addrs) {
            return;
        }
        if !fresh.iter().all(|claim| wants(service, claim)) {
            // Another address is shown in its place. It must go first: while it is there, another
            // operator may rightly think that our claim is left over.
            let kept = service.shown_of(addrs);
            let said = (!refusals.is_empty())
                .then(|| Explanation::refused(service, &kept, refusals).into());
            self.publish(service, Some(kept), said.as_ref(), now, effects);
            return;
        }
        let stale = fresh.into_iter().filter(|claim| {
            claim.holder(service).and_then(|holder| holder.seen) != Some(service.version)
        });
        // The terms on an address that it shows: other Services are judged by those in the claim.
        let shown = addrs.iter().filter(|addr| service.shows.contains(addr));
        let changed = shown.filter_map(|addr| self.world.claim(*addr).cloned()).filter(|claim| {
            claim.holder(service).is_some_and(|holder| holder.terms != service.terms)
        });
        let to_touch: Vec<_> = stale.chain(changed).collect();
        if !to_touch.is_empty() {
            for claim in &to_touch {
                self.touch(service, claim, Self::is_given(service, claim), now, effects);
            }
            return;
        }
        let said = if satisfied {
            Explanation::allocated(&self.world, service, addrs, refusals)
        } else {
            Explanation::refused(service, addrs, refusals)
        };
        let said = said.into();
        let shown = (!self.is_shown(service, addrs)).then(|| addrs.to_vec());
        if !self.publish(service, shown, Some(&said), now, effects) {
            // Addresses in an annotation that we may not overwrite are still shown.
            let keep = [addrs, &service.shows].concat();
            self.release_all_but(&service.key, &keep, now, effects);
        }
    }

    fn wait(&mut self, service: &ServiceView, refusals: &[Refusal], now: Now) {
        let Some(first) = refusals.first() else { return };
        let mut wait = Wait::of(service, first.reason());
        for refusal in refusals {
            // Any change of a requested address may change the condition.
            wait.addrs.extend(refusal.address());
            match refusal {
                Refusal::TakenBy(addr, _)
                | Refusal::Reserved(addr, _)
                | Refusal::Excluded(addr, _)
                | Refusal::NeverGiven(addr, _)
                | Refusal::SharingRefused(addr, ..) => {
                    let pool = decide::awaited(&self.world, service, *addr).cloned();
                    wait.verdicts.extend(pool.map(|pool| (pool, refusal.reason())));
                }
                Refusal::NoneGives(_, verdicts) | Refusal::NotServed(_, verdicts) => {
                    for (pool, verdict) in verdicts {
                        wait.add(pool, *verdict, service.key.namespace());
                    }
                }
                Refusal::HeldBack(_, pool) => {
                    wait.verdicts.push((pool.clone(), refusal.reason()));
                }
                // These change only with a pool or the Service, and either triggers a new decision.
                Refusal::Unparseable { .. }
                | Refusal::TwoOfOneFamily(..)
                | Refusal::OutsideEveryPool(_)
                | Refusal::WrongFamily(_)
                | Refusal::LedgerRefused(_)
                | Refusal::HolderRefused(_) => {}
            }
        }
        self.waiting.set(&service.key, wait);
        self.reminders.begin(&service.key, now);
    }

    /// Releases every claim that names a Service, except on some addresses.
    fn release_all_but(
        &mut self,
        key: &ObjectKey,
        keep: &[IpAddr],
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let held = self.world.ledger.held_by_service(key);
        for addr in held.into_iter().filter(|addr| !keep.contains(addr)) {
            let delayed = self.world.ledger.release_delay(addr, now).is_some();
            if delayed || self.world.is_in_flight(addr) || self.world.is_a_virtual_ips(addr) {
                continue;
            }
            let Some(claim) = self.world.claim(addr) else { continue };
            let Some(holder) = claim.services().iter().find(|holder| holder.key == *key) else {
                continue;
            };
            let until =
                self.world.retain_for(claim).and_then(|time| now.wall.checked_add(time).ok());
            let then = match (&claim.reserved, until) {
                (Some(reservation), _) => Then::Reserve(reservation.clone()),
                (None, Some(expires)) => Then::RetainIfGone(Reservation {
                    kind: HolderKind::Service,
                    namespace: key.namespace().to_owned(),
                    name: Some(key.name().to_owned()),
                    expires: Some(expires),
                    retained: true,
                }),
                (None, None) => Then::Free,
            };
            let (claim, holder) = (claim.clone(), holder.clone());
            let orphaned = self.absent.is_orphaned(key);
            let service = self.world.services.get(key);
            let annotated = service.is_none_or(|view| self.world.is_announced_by_kube_vip(view));
            self.world.ledger.give_up(&claim, &holder, &then);
            self.on_ledger_changes();
            effects.push(Effect::Release { claim, holder, then, annotated, orphaned });
        }
    }
}

/// Whether the Service could still want an address whose claim names it.
fn wants(service: &ServiceView, claim: &Claim) -> bool {
    claim.holder(service).is_some_and(|holder| could_want(service, holder, claim))
}

#[cfg(test)]
mod tests;
