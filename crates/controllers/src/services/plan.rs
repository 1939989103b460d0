//! The planner of Services: remembers what is in flight and what waits, and decides what to do next.
//!
//! It is synchronous and does no I/O. For each step the engine lends what all planners share: changes go
//! in, effects come out of [`Planner::plan`], and their reports go in again. Planning again without news
//! gives nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use jiff::Timestamp;
use landfall_api::HolderKind;
use landfall_ipam::{PoolName, Reason, Refusal};

pub use self::repair::RepairMode;
pub(super) use self::repair::summary;
use self::{
    confirm::PendingReads, damp::Damper, pools::PoolStatuses, progress::Progresses,
    remind::Reminders, repair::Repair, takeover::Annotations,
};
use super::{
    decide::{self, Decision, decide},
    effect::Effect,
    explain::Explanation,
    permissions::KUBE_VIP_NAMESPACE,
    status,
    waiting::{Turn, Wait, Waiting},
    wish::could_want,
    world::{AnnotatedServices, Notes, Tenancy, World},
};
use crate::{
    absent::Absent,
    announcements::Announcements,
    cluster::{
        Change, Cluster,
        pool::PoolView,
        service::{Balancer, Place, Request, ServiceView},
        watch::PoolMapPlace,
    },
    engine::{Lent, Now, Plan, Report},
    ledger::{Claim, HolderEntry, Ledger, Reader, Reservation, Then, Write},
    object::ObjectKey,
};

mod announced;
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

impl KubeVip {
    /// The `ConfigMap` and the classes of the Services that its pools serve.
    pub(crate) fn place(&self) -> PoolMapPlace {
        PoolMapPlace {
            namespace: self.namespace.clone(),
            name: self.config_map.clone(),
            classes: self.services.classes.clone(),
        }
    }
}

/// Decides which Service gets which address, one effect at a time.
#[derive(Debug)]
pub(super) struct Planner {
    settings: Settings,
    /// Its place in the changes of the ledger.
    reader: Reader,
    notes: Notes,
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
    repair: Repair,
    /// The Service that retries on behalf of all while no claim can be written.
    probe: Option<ObjectKey>,
    statuses: PoolStatuses,
    /// Claims changed since the Services that want all or nothing were last decided about.
    claims_changed: bool,
    /// Services that are announced in another way than when their conditions were last looked at.
    announced: BTreeSet<ObjectKey>,
}

/// One step of the planner: its memory, what the engine lends for the step, and what comes of it.
pub(super) struct Round<'a> {
    own: &'a mut Planner,
    cluster: &'a Cluster,
    ledger: &'a mut Ledger,
    announcements: &'a Announcements,
    now: Now,
    out: &'a mut Plan<Effect>,
}

impl Planner {
    /// A planner that gets the changes of the ledger as this reader.
    pub(super) fn new(settings: Settings, reader: Reader) -> Self {
        let annotated = settings.kube_vip.services.clone();
        let notes = Notes { annotated, tenancy: settings.tenancy, ..Notes::default() };
        Self {
            absent: Absent::new(settings.orphan_grace),
            settings,
            reader,
            notes,
            dirty: BTreeSet::new(),
            progress: Progresses::default(),
            waiting: Waiting::default(),
            freed: BTreeSet::new(),
            woken: BTreeSet::new(),
            pending_reads: PendingReads::default(),
            reminders: Reminders::default(),
            annotations: Annotations::default(),
            damper: Damper::default(),
            repair: Repair::default(),
            probe: None,
            statuses: PoolStatuses::default(),
            claims_changed: false,
            announced: BTreeSet::new(),
        }
    }

    fn round<'a>(&'a mut self, lent: Lent<'a>, out: &'a mut Plan<Effect>) -> Round<'a> {
        let Lent { cluster, ledger, announcements, now } = lent;
        Round { own: self, cluster, ledger, announcements, now, out }
    }

    /// Takes in a change of the watched objects.
    pub(super) fn changed(&mut self, lent: Lent<'_>, change: &Change) {
        self.round(lent, &mut Plan::default()).changed(change);
    }

    /// Takes in the changes of the ledger, and what is said of how Services are announced.
    pub(super) fn catch_up(&mut self, lent: Lent<'_>, out: &mut Plan<Effect>) {
        self.announced.extend(lent.announcements.take_changed());
        self.round(lent, out).on_ledger_changes();
    }

    /// Takes in the report of an effect.
    pub(super) fn reported(
        &mut self,
        lent: Lent<'_>,
        report: Report<Effect>,
        out: &mut Plan<Effect>,
    ) {
        self.round(lent, out).on_report(report);
    }

    /// Decides about everything again, as after gaining leadership.
    pub(super) fn reconsider_all(&mut self, lent: Lent<'_>) {
        self.round(lent, &mut Plan::default()).reconsider_all();
    }

    /// Plans what to do now. Each effect counts as in flight until its report comes in.
    pub(super) fn plan(&mut self, lent: Lent<'_>, out: &mut Plan<Effect>) {
        self.round(lent, out).plan();
    }

    /// Brings in line with what was told all that decisions depend on, without planning anything.
    pub(super) fn take_stock(&mut self, lent: Lent<'_>) {
        self.round(lent, &mut Plan::default()).take_stock();
    }

    /// The known state, for decisions.
    pub(super) const fn world<'a>(&'a self, cluster: &'a Cluster, ledger: &'a Ledger) -> World<'a> {
        World { cluster, ledger, notes: &self.notes }
    }

    /// How many Services wait, by reason.
    pub(super) fn pending(&self) -> BTreeMap<Reason, usize> {
        self.waiting.by_reason()
    }

    /// How many Services wait for a pool.
    pub(super) fn waiting_for(&self, pool: &PoolName) -> usize {
        self.waiting.count_for(pool)
    }

    /// The work left to do, for the message of a test that never settles.
    #[cfg(test)]
    pub(super) fn memory(&self, ledger: &Ledger) -> String {
        let counts: Vec<_> =
            ledger.book.pools().map(|pool| ledger.book.count(&pool.name)).collect();
        format!("due {:?}, {}, {:?}, {counts:?}", self.next_due(), ledger.memory(), self.progress)
    }
}

impl Round<'_> {
    fn world(&self) -> World<'_> {
        World { cluster: self.cluster, ledger: self.ledger, notes: &self.own.notes }
    }

    fn created(&self, key: &ObjectKey) -> Option<Timestamp> {
        self.cluster.balancer(key).map(|service| service.created)
    }

    /// Decides about everything again, as after gaining leadership.
    fn reconsider_all(&mut self) {
        let concerns = |view: &&ServiceView| {
            view.balancer.is_some() || view.leftover.is_some() || view.announceable.is_some()
        };
        let known = self.cluster.services.values().filter(concerns).map(|view| &view.key);
        let holders = self.ledger.holders();
        let held = holders.filter(|holder| holder.kind == HolderKind::Service);
        let keys: Vec<_> = known.chain(held.map(|holder| &holder.key)).cloned().collect();
        for key in keys {
            self.mark(&key);
        }
        self.own.statuses.dirty = true;
    }

    /// Plans what to do now. Each effect counts as in flight until its report comes in.
    fn plan(&mut self) {
        self.on_ledger_changes();
        for key in std::mem::take(&mut self.own.announced) {
            self.mark(&key);
        }
        self.plan_repair();
        self.wake_delayed();
        self.plan_looks();
        self.plan_services();
        self.remind();
        if self.out.effects.is_empty() && self.own.progress.is_quiet() {
            self.plan_held_back();
        }
        self.plan_pool_status();
        if self.plan_fixes() {
            self.plan_services();
        }
    }

    fn take_stock(&mut self) {
        self.on_ledger_changes();
        for (_, key, _) in self.annotated_without_claim() {
            self.weigh_contest_of(&key);
        }
    }

    /// Decides about the Services that are marked for it. Waiting Services come before new ones.
    fn plan_services(&mut self) {
        self.plan_annotated();
        self.serve_freed();
        while let Some((_, key)) = self.own.dirty.pop_first() {
            self.plan_service(&key);
        }
        self.serve_freed();
    }

    /// Updates what Services that want all or nothing say, when no call is in flight.
    ///
    /// An address that they could have but do not take may go to others without waking them, because
    /// they do not wait for it. Their conditions must mention it then, as they would after a restart.
    fn plan_held_back(&mut self) {
        if std::mem::take(&mut self.own.claims_changed) {
            for key in self.own.waiting.all_or_nothing() {
                self.plan_service(&key);
            }
        }
    }

    fn mark(&mut self, key: &ObjectKey) {
        let turn = self.turn(key);
        self.own.dirty.insert(turn);
    }

    fn turn(&self, key: &ObjectKey) -> Turn {
        (self.created(key).unwrap_or(Timestamp::UNIX_EPOCH), key.clone())
    }

    /// Marks waiting Services for another decision.
    fn wake(&mut self, turns: Vec<Turn>) {
        for turn in turns {
            self.mark(&turn.1);
            self.own.woken.insert(turn);
        }
    }

    /// Decides about one Service and everything claimed in its name.
    fn plan_service(&mut self, key: &ObjectKey) {
        if self.own.repair.holds(key) {
            self.drop_hold(key);
            return;
        }
        // The report of the call in flight or due marks the Service again.
        if self.own.progress.is_engaged(key) {
            self.hold_for(key);
            return;
        }
        self.drop_hold(key);
        let planned = self.out.effects.len();
        if self.must_be_hidden(key) {
            self.plan_leftover(key);
            return;
        }
        self.plan_addresses(key);
        if self.out.effects.len() == planned {
            self.plan_leftover(key);
        }
        if self.out.effects.len() == planned {
            self.plan_announced(key);
        }
    }

    /// Decides about one Service's addresses.
    fn plan_addresses(&mut self, key: &ObjectKey) {
        let Some(service) = self.world().service(key) else {
            self.own.waiting.clear(key);
            if !self.in_grace(key) {
                self.release_all_but(key, &[]);
            }
            return;
        };
        if service.deleting {
            self.own.waiting.clear(key);
            self.release_all_but(key, &service.shows);
            return;
        }
        let service = decide::with_terms(self.world(), service);
        if let Some((delay, refused)) = self.own.progress.write_delay(key)
            && delay.holds(self.now)
        {
            if let Some(refusal) = refused.clone() {
                self.wait(&service, std::slice::from_ref(&refusal));
                let said = Explanation::refused(&service, &service.shows, &[refusal]).into();
                self.tell_refused(&service, &said);
            }
            return;
        }
        let decision = decide(self.world(), &service);
        self.weigh_contest(&service, &decision);
        match decision {
            Decision::LeaveAlone => {
                self.own.waiting.clear(key);
                if !self.retract(&service) {
                    self.release_all_but(key, &service.shows);
                }
            }
            Decision::FreeRetained(retained) => self.free_retained(&service, retained),
            Decision::Later => {
                self.own.progress.await_address(key);
            }
            Decision::Take(takes) => {
                self.own.waiting.clear(key);
                for (addr, pool) in takes {
                    match self.ledger.claim(addr).cloned() {
                        Some(kept) => self.touch(&service, &kept, pool.is_some()),
                        None => self.take(&service, addr, pool),
                    }
                }
            }
            Decision::Follow => {
                self.own.waiting.clear(key);
                self.publish(&service, Some(service.shows.clone()), None);
            }
            Decision::Disputed(refusal) => {
                let refusals = std::slice::from_ref(&refusal);
                let said = Explanation::refused(&service, &service.shows, refusals).into();
                self.wait(&service, &[refusal]);
                if !self.publish(&service, None, Some(&said)) {
                    self.release_unwanted(&service);
                }
            }
            Decision::Show { addrs, refusals, satisfied } => {
                self.show(&service, &addrs, &refusals, satisfied);
            }
        }
    }

    /// Makes the Service show these addresses, in the order of the protocol: touch the claims that are
    /// not fresh, publish, and only then release the rest.
    fn show(
        &mut self,
        service: &Balancer,
        addrs: &[IpAddr],
        refusals: &[Refusal],
        satisfied: bool,
    ) {
        if refusals.is_empty() {
            self.own.waiting.clear(&service.key);
        } else {
            self.wait(service, refusals);
        }
        let inherited: Vec<Claim> = addrs
            .iter()
            .filter_map(|addr| self.ledger.claim(*addr))
            .filter(|claim| claim.left_by_namesake(service))
            .cloned()
            .collect();
        if !inherited.is_empty() {
            for claim in &inherited {
                self.touch(service, claim, Self::is_given(service, claim));
            }
            return;
        }
        let fresh: Vec<Claim> = addrs
            .iter()
            .filter(|addr| !service.shows.contains(addr))
            .filter_map(|addr| self.ledger.claim(*addr).cloned())
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
            self.publish(service, Some(kept), said.as_ref());
            return;
        }
        let stale = fresh.into_iter().filter(|claim| {
            claim.holder(service).and_then(|holder| holder.seen) != Some(service.version)
        });
        // The terms on an address that it shows: other Services are judged by those in the claim.
        let shown = addrs.iter().filter(|addr| service.shows.contains(addr));
        let changed = shown.filter_map(|addr| self.ledger.claim(*addr).cloned()).filter(|claim| {
            claim.holder(service).is_some_and(|holder| holder.terms != service.terms)
        });
        let to_touch: Vec<_> = stale.chain(changed).collect();
        if !to_touch.is_empty() {
            for claim in &to_touch {
                self.touch(service, claim, Self::is_given(service, claim));
            }
            return;
        }
        let said = if satisfied {
            Explanation::allocated(self.world(), service, addrs, refusals)
        } else {
            Explanation::refused(service, addrs, refusals)
        };
        let said = said.into();
        let shown = (!self.is_shown(service, addrs)).then(|| addrs.to_vec());
        if !self.publish(service, shown, Some(&said)) {
            // Addresses in an annotation that we may not overwrite are still shown.
            let keep = [addrs, &service.shows].concat();
            self.release_all_but(&service.key, &keep);
        }
    }

    fn wait(&mut self, service: &Balancer, refusals: &[Refusal]) {
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
                    let pool = decide::awaited(self.world(), service, *addr).cloned();
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
        self.own.waiting.set(&service.key, wait);
        self.own.reminders.begin(&service.key, self.now);
    }

    /// Releases every claim that names a Service or an earlier one of its name, except on addresses that
    /// it shows or could want; returns whether the call about any of these claims is in flight.
    fn release_unwanted(&mut self, service: &Balancer) -> bool {
        let claims = self.world().claims_of(service).into_iter();
        let wanted = claims.filter(|claim| wants(service, claim)).map(|claim| claim.addr);
        let keep: Vec<_> = wanted.chain(service.shows.iter().copied()).collect();
        self.release_all_but(&service.key, &keep);
        let held = self.ledger.held_by_service(&service.key);
        held.iter().any(|addr| !keep.contains(addr) && self.ledger.is_in_flight(*addr))
    }

    /// Releases every claim that names a Service, except on some addresses.
    fn release_all_but(&mut self, key: &ObjectKey, keep: &[IpAddr]) {
        let held = self.ledger.held_by_service(key);
        for addr in held.into_iter().filter(|addr| !keep.contains(addr)) {
            let delayed = self.ledger.release_delay(addr, self.now).is_some();
            if delayed || self.ledger.is_in_flight(addr) || self.world().is_a_virtual_ips(addr) {
                continue;
            }
            let Some(claim) = self.ledger.claim(addr) else { continue };
            let Some(holder) = claim.services().iter().find(|holder| holder.key == *key) else {
                continue;
            };
            let until = self
                .world()
                .retain_for(claim)
                .and_then(|time| self.now.wall.checked_add(time).ok());
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
            let orphaned = self.own.absent.is_orphaned(key);
            let service = self.cluster.balancer(key);
            let annotated = service.is_none_or(|view| self.world().is_announced_by_kube_vip(view));
            self.ledger.begin_release(&claim, &holder, &then);
            self.on_ledger_changes();
            self.out.effects.push(Effect::Release { claim, holder, then, annotated, orphaned });
        }
    }
}

/// Whether the Service could still want an address whose claim names it.
fn wants(service: &Balancer, claim: &Claim) -> bool {
    claim.holder(service).is_some_and(|holder| could_want(service, holder, claim))
}

#[cfg(test)]
mod tests;
