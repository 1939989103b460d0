//! The migration planner: marked `VirtualIPs`, their calls in flight, and refusals.
//!
//! Each `VirtualIP` has at most one call in flight, so its steps cannot overtake each other. Before each
//! step its Services are read live, because the watch keeps less of them than a copy needs.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use landfall_api::HolderKind;

use super::{
    effect::{Answer, Effect, Services, Step},
    plan,
    world::World,
};
use crate::{
    absent::Absent,
    backoff::Backoff,
    call::Failure,
    cluster::{Change, Cluster, Kind, virtual_ip::VirtualIpView},
    engine::{self, Lent, Now, Plan, Report},
    index::Index,
    ledger::{self, Change as LedgerChange, Claim, HolderRef, Ledger, Reader, Then, Write},
    object::ObjectKey,
};

/// The stage of a `VirtualIP` between two steps.
#[derive(Debug, Default)]
enum Stage {
    #[default]
    Idle,
    /// A call is in flight. Something may have changed since it was sent, and then what it read is
    /// outdated.
    InFlight { outdated: bool },
    /// Its Services were read for the next step.
    Read(Box<Services>),
}

/// When to try again, and the API server's message if it refused.
#[derive(Debug)]
struct Setback {
    delay: Backoff,
    message: Option<String>,
}

/// Everything that is in flight or due for one `VirtualIP`.
#[derive(Debug, Default)]
struct Progress {
    stage: Stage,
    setback: Option<Setback>,
}

/// Decides the next step of each `VirtualIP`.
#[derive(Debug)]
pub(super) struct Planner {
    /// Its place in the changes of the ledger.
    reader: Reader,
    /// `VirtualIPs` to decide about, because something changed.
    dirty: BTreeSet<ObjectKey>,
    /// `VirtualIPs` to decide about, because their Services were read. The answer is outdated for those
    /// that are dirty as well: several reports are taken in before the next plan.
    read: BTreeSet<ObjectKey>,
    progress: BTreeMap<ObjectKey, Progress>,
    /// `VirtualIPs` by the Services that they expose and by the copies of those.
    by_service: Index<ObjectKey, ObjectKey>,
    /// `VirtualIPs` by their addresses; `None` for those without one.
    by_addr: Index<Option<IpAddr>, ObjectKey>,
    /// `VirtualIPs` that claims name and that do not exist.
    absent: Absent,
}

impl Planner {
    pub(super) fn new(orphan_grace: Duration, ledger: &mut Ledger) -> Self {
        Self {
            reader: ledger.reader(),
            dirty: BTreeSet::new(),
            read: BTreeSet::new(),
            progress: BTreeMap::new(),
            by_service: Index::default(),
            by_addr: Index::default(),
            absent: Absent::new(orphan_grace),
        }
    }

    fn next(
        &mut self,
        cluster: &Cluster,
        ledger: &Ledger,
        key: &ObjectKey,
        now: Now,
    ) -> Option<Step> {
        let progress = self.progress.get_mut(key);
        let read = progress.map(|progress| std::mem::take(&mut progress.stage));
        let setback = self.progress.get(key).and_then(|progress| progress.setback.as_ref());
        let setback = setback.filter(|setback| setback.delay.holds(now));
        let Some(vip) = cluster.virtual_ips.get(key) else {
            let named = ledger.has_holder(&HolderRef::virtual_ip(key));
            let waits = named && self.absent.in_grace(key, now);
            let left_over = || plan::left_over(cluster, ledger, key);
            return if waits || setback.is_some() { None } else { left_over() };
        };
        let services = match read {
            Some(Stage::Read(services)) => services,
            _ if setback.is_some_and(|setback| setback.message.is_none()) => return None,
            Some(Stage::Idle | Stage::InFlight { .. }) | None => {
                return Some(Step::Look { target: vip.target(), copy: vip.clone_key() });
            }
        };
        let world = World { cluster, ledger, services: &services };
        // A replaced `VirtualIP` is not waited for: its uid never comes back.
        let step = plan::plan(world, vip);
        let step = step.or_else(|| plan::left_over(cluster, ledger, key))?;
        match setback {
            None => Some(step),
            Some(Setback { message: Some(message), .. }) => plan::refused(vip, &step, message),
            Some(Setback { message: None, .. }) => None,
        }
    }

    fn set_back(&mut self, key: &ObjectKey, message: Option<String>, wait: Duration, now: Now) {
        let progress = self.progress.entry(key.clone()).or_default();
        let tries = progress.setback.as_ref().map_or(0, |setback| setback.delay.tries);
        let delay = Backoff::after(tries, now).at_least(wait, now);
        progress.setback = Some(Setback { delay, message });
    }

    fn end_setback(&mut self, key: &ObjectKey) {
        if let Some(progress) = self.progress.get_mut(key) {
            progress.setback = None;
        }
    }

    /// Forgets a `VirtualIP` of which there is nothing to remember.
    fn tidy(&mut self, key: &ObjectKey) {
        let idle = |progress: &Progress| {
            matches!(progress.stage, Stage::Idle) && progress.setback.is_none()
        };
        if self.progress.get(key).is_some_and(idle) {
            self.progress.remove(key);
        }
    }

    fn virtual_ip_changed(
        &mut self,
        lent: &Lent<'_>,
        key: &ObjectKey,
        old: Option<&VirtualIpView>,
        lost: bool,
    ) {
        let new = lent.cluster.virtual_ips.get(key);
        for view in [old, new].into_iter().flatten() {
            // Other `VirtualIPs` of the same Service may have waited for it.
            self.wake_about_service(&view.target());
        }
        if let Some(old) = old {
            for service in [old.target(), old.clone_key()] {
                self.by_service.remove(&service, key);
            }
            self.by_addr.remove(&address(old), key);
        }
        if let Some(new) = new {
            for service in [new.target(), new.clone_key()] {
                self.by_service.insert(service, key.clone());
            }
            self.by_addr.insert(address(new), key.clone());
            self.absent.forget(key);
        } else {
            // Without its kind no deletion was seen: restoring the definition may bring it back.
            if !lost && lent.ledger.has_holder(&HolderRef::virtual_ip(key)) {
                self.absent.saw_leave(key);
            }
            self.end_setback(key);
        }
        self.dirty.insert(key.clone());
    }

    /// A Service changed.
    fn wake_about_service(&mut self, service: &ObjectKey) {
        self.dirty.extend(self.by_service.of(service).cloned());
    }

    /// Pools or mappings changed, which may help every `VirtualIP` that is not at rest.
    fn wake_waiting(&mut self, cluster: &Cluster) {
        let waiting = cluster.virtual_ips.values().filter(|vip| !vip.is_at_rest());
        self.dirty.extend(waiting.map(|vip| vip.key.clone()));
    }

    /// Whether a `VirtualIP` has an address, what is known of the claim on it changed.
    fn wake_about_addr(&mut self, ledger: &Ledger, addr: IpAddr) {
        self.wake_named(ledger.claim(addr));
        self.dirty.extend(self.by_addr.of(&Some(addr)).cloned());
    }

    fn wake_named(&mut self, claim: Option<&Claim>) {
        self.dirty.extend(claim.and_then(Claim::named_virtual_ip).cloned());
    }

    fn on_ledger_change(&mut self, ledger: &Ledger, change: &LedgerChange) {
        match change {
            LedgerChange::Claim(addr, before) => {
                self.wake_about_addr(ledger, *addr);
                self.wake_named(before.as_ref());
                let before = before.as_ref().and_then(Claim::named_virtual_ip);
                let forgotten =
                    before.filter(|key| !ledger.has_holder(&HolderRef::virtual_ip(key)));
                if let Some(key) = forgotten {
                    self.absent.forget(key);
                }
            }
            LedgerChange::Freed(_) => self.dirty.extend(self.by_addr.of(&None).cloned()),
            LedgerChange::Ended(addr)
            | LedgerChange::Read(addr, _)
            | LedgerChange::ReleaseDue(addr)
            | LedgerChange::Shown(addr) => self.wake_about_addr(ledger, *addr),
            LedgerChange::Unblocked => self.retry(),
            LedgerChange::Given(..)
            | LedgerChange::Returned(..)
            | LedgerChange::Settled(_)
            | LedgerChange::Outside(_)
            | LedgerChange::ExternalIgnored(..)
            | LedgerChange::ExternalRelieved
            | LedgerChange::Blocked => {}
        }
    }

    /// Every refused write is worth another try.
    fn retry(&mut self) {
        for (key, progress) in &mut self.progress {
            if progress.setback.take().is_some() {
                self.dirty.insert(key.clone());
            }
        }
    }
}

impl engine::Planner for Planner {
    const NAME: &'static str = "migration";
    const KINDS: &'static [Kind] =
        &[Kind::Claims, Kind::Services, Kind::IpGroups, Kind::VirtualIps, Kind::Mappings];
    type Effect = Effect;

    fn changed(&mut self, lent: Lent<'_>, change: &Change) {
        match change {
            Change::VirtualIp { key, old, lost } => {
                self.virtual_ip_changed(&lent, key, old.as_deref(), *lost);
            }
            Change::Service(key, _) | Change::OtherService(key) | Change::ServiceUnsure(key) => {
                self.wake_about_service(key);
            }
            Change::Mapping(_) | Change::PoolsSettled => self.wake_waiting(lent.cluster),
            Change::Pool(..)
            | Change::Namespace(..)
            | Change::Node(..)
            | Change::ApiServer(..)
            | Change::KeepalivedGroup(..)
            | Change::Endpoints(_)
            | Change::Child(..)
            | Change::Listed(_) => {}
        }
    }

    fn catch_up(&mut self, lent: Lent<'_>, _: &mut Plan<Effect>) {
        for change in lent.ledger.take_changes(self.reader) {
            self.on_ledger_change(lent.ledger, &change);
        }
    }

    fn reported(&mut self, lent: Lent<'_>, report: Report<Effect>, out: &mut Plan<Effect>) {
        let Report { effect: Effect { vip: key, step, write }, result } = report;
        let progress = self.progress.entry(key.clone()).or_default();
        let outdated = matches!(progress.stage, Stage::InFlight { outdated: true })
            || self.dirty.contains(&key);
        progress.stage = match &result {
            Ok(Answer::Services(services)) if !outdated => Stage::Read(services.clone()),
            Ok(_) | Err(_) => Stage::Idle,
        };
        match &result {
            Ok(Answer::Ledger(ledger::Answer::Kept)) => {
                self.set_back(&key, None, Duration::ZERO, lent.now);
            }
            // Neither a read nor the status that reports a refusal ends the refusal.
            Ok(_) if matches!(step, Step::Look { .. } | Step::Status { .. }) => {}
            Ok(_) => self.end_setback(&key),
            // Not sent, because we do not lead.
            Err(Failure::NotSent) => {}
            Err(failure) => {
                let message = failure.refusal().map(str::to_owned);
                self.set_back(&key, message, failure.asked_to_wait(), lent.now);
            }
        }
        if let Step::Status { event: Some(event), .. } = &step
            && result.is_ok()
        {
            out.events.push((**event).clone());
        }
        settle(lent.ledger, &step, write.as_ref(), result, lent.now);
        let is_read = self
            .progress
            .get(&key)
            .is_some_and(|progress| matches!(progress.stage, Stage::Read(_)));
        self.tidy(&key);
        let due = if is_read { &mut self.read } else { &mut self.dirty };
        due.insert(key);
    }

    fn reconsider_all(&mut self, lent: Lent<'_>) {
        self.dirty.extend(lent.cluster.virtual_ips.keys().cloned());
        let named = lent.ledger.holders().filter(|holder| holder.kind == HolderKind::VirtualIp);
        self.dirty.extend(named.map(|holder| holder.key.clone()));
    }

    fn plan(&mut self, lent: Lent<'_>, out: &mut Plan<Effect>) {
        let Lent { cluster, ledger, now, .. } = lent;
        for (key, progress) in &mut self.progress {
            if progress.setback.as_mut().is_some_and(|setback| setback.delay.end(now)) {
                self.dirty.insert(key.clone());
            }
        }
        self.dirty.extend(self.absent.end_grace(now));
        for key in std::mem::take(&mut self.read) {
            if let Some(progress) =
                self.progress.get_mut(&key).filter(|_| self.dirty.contains(&key))
            {
                progress.stage = Stage::Idle;
            }
            self.dirty.insert(key);
        }
        while let Some(key) = self.dirty.pop_first() {
            let progress = self.progress.get_mut(&key);
            if let Some(Progress { stage: Stage::InFlight { outdated }, .. }) = progress {
                *outdated = true;
                continue; // its report marks it again
            }
            let step = self.next(cluster, ledger, &key, now);
            // The end of the call about the claim marks it again.
            let step =
                step.filter(|step| !step.addr().is_some_and(|addr| ledger.is_in_flight(addr)));
            if let Some(step) = step {
                let write = begin(ledger, &step);
                self.progress.entry(key.clone()).or_default().stage =
                    Stage::InFlight { outdated: false };
                out.effects.push(Effect { vip: key, step, write });
            } else {
                self.tidy(&key);
            }
        }
    }

    fn next_due(&self, _: &Cluster, _: &Ledger) -> Option<Duration> {
        let setbacks = self.progress.values().filter_map(|progress| progress.setback.as_ref());
        setbacks.filter_map(|setback| setback.delay.until).chain(self.absent.next_due()).min()
    }
}

/// The address in the status of a `VirtualIP`.
fn address(vip: &VirtualIpView) -> Option<IpAddr> {
    vip.status.address().and_then(|text| text.parse().ok())
}

/// Marks the claim that a step writes as in flight; returns the ledger's call, unless it is a release.
fn begin(ledger: &mut Ledger, step: &Step) -> Option<Write> {
    match step {
        Step::Take { claim } => Some(ledger.take(claim.clone())),
        Step::Pass { claim } | Step::EndReservation { claim } => Some(ledger.touch(claim.clone())),
        Step::Release { claim, .. } => {
            if let Some(holder) = claim.holders().first() {
                ledger.begin_release(claim, holder, &Then::Free);
            }
            None
        }
        Step::Look { .. }
        | Step::Status { .. }
        | Step::Finalizers { .. }
        | Step::Copy { .. }
        | Step::Align { .. }
        | Step::DropCopy { .. }
        | Step::Convert { .. }
        | Step::StopAsking { .. } => None,
    }
}

/// Tells the ledger the result of a step that wrote a claim.
fn settle(
    ledger: &mut Ledger,
    step: &Step,
    write: Option<&Write>,
    result: Result<Answer, Failure>,
    now: Now,
) {
    let result = match result {
        Ok(Answer::Ledger(answer)) => Ok(answer),
        Ok(Answer::Services(_) | Answer::Seen(_)) => return,
        Err(failure) => Err(failure),
    };
    if let Some(write) = write {
        ledger.written(write, None, result, now);
    } else if let Step::Release { claim, .. } = step {
        ledger.release_ended(claim.addr, claim.version, result, now);
    }
}

#[cfg(test)]
mod tests;
