//! The migration planner: known objects, marked `VirtualIPs`, calls in flight, and refusals.
//!
//! One task owns it. News goes in, effects come out, reports go in again; each `VirtualIP` has at most
//! one call in flight, so its steps cannot overtake each other.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::Service;
use landfall_ipam::PoolName;

use super::{
    effect::{Answer, Effect, Step},
    observe, plan,
    view::{MappingView, VirtualIpView},
    world::{World, shows},
};
use crate::{
    absent::Absent,
    backoff::Backoff,
    call::Failure,
    engine::{Now, Report},
    event::Event,
    ledger::{self, Claim},
    object::{ObjectKey, Version},
    services::view::PoolView,
    store::{Change, Put, Source, Watched},
};

/// An event of a watch, for the planner.
#[derive(Debug)]
pub(super) enum News {
    VirtualIps(Watched<ObjectKey, VirtualIpView>),
    /// The kind is not installed.
    NoVirtualIps,
    Mappings(Watched<Arc<str>, MappingView>),
    Groups(Watched<PoolName, Box<PoolView>>),
    Claims(Watched<IpAddr, Claim>),
    Services(Watched<ObjectKey, Box<Service>>),
}

/// When to try again, and the API server's message if it refused.
#[derive(Debug)]
struct Setback {
    delay: Backoff,
    message: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Planner {
    world: World,
    /// `VirtualIPs` to decide about.
    dirty: BTreeSet<ObjectKey>,
    /// The claim or Service that each `VirtualIP`'s call in flight is about.
    calls: BTreeMap<ObjectKey, (Option<IpAddr>, Option<ObjectKey>)>,
    setbacks: BTreeMap<ObjectKey, Setback>,
    /// The addresses whose claims name each `VirtualIP`, whether it exists or not.
    named: BTreeMap<ObjectKey, BTreeSet<IpAddr>>,
    /// `VirtualIPs` that claims name and that do not exist.
    absent: Absent,
}

impl Planner {
    pub(super) fn new(orphan_grace: Duration) -> Self {
        Self { absent: Absent::new(orphan_grace), ..Self::default() }
    }

    /// Decides about everything again, as after gaining leadership.
    pub(super) fn reconsider_all(&mut self) {
        self.dirty.extend(self.world.virtual_ips.keys().cloned());
        self.dirty.extend(self.named.keys().cloned());
    }

    /// The uptime at which there is something to do even without news.
    pub(super) fn next_due(&self) -> Option<Duration> {
        let setbacks = self.setbacks.values().filter_map(|setback| setback.delay.until);
        setbacks.chain(self.absent.next_due()).min()
    }

    /// Plans what to do now. Each effect counts as in flight until its report comes in.
    pub(super) fn plan(&mut self, now: Now) -> Vec<Effect> {
        let mut effects = Vec::new();
        if !self.world.has_listed() {
            return effects;
        }
        for (key, setback) in &mut self.setbacks {
            if setback.delay.until.is_some() && !setback.delay.holds(now) {
                setback.delay.until = None;
                self.dirty.insert(key.clone());
            }
        }
        self.dirty.extend(self.absent.give_up(now));
        while let Some(key) = self.dirty.pop_first() {
            if self.calls.contains_key(&key) {
                continue; // its report marks it again
            }
            if let Some(step) = self.next(&key, now) {
                self.calls.insert(key.clone(), about(&step));
                effects.push(Effect { vip: key, step });
            }
        }
        effects
    }

    fn next(&mut self, key: &ObjectKey, now: Now) -> Option<Step> {
        let setback = self.setbacks.get(key).filter(|setback| setback.delay.holds(now));
        let left_over = || plan::left_over(&self.world, key, self.named.get(key)?);
        let Some(vip) = self.world.virtual_ips.get(key) else {
            let waits = self.named.contains_key(key) && self.absent.in_grace(key, now);
            return if waits || setback.is_some() { None } else { left_over() };
        };
        // A replaced `VirtualIP` is not waited for: its uid never comes back.
        let step = plan::plan(&self.world, vip).or_else(left_over)?;
        match setback {
            None => Some(step),
            Some(Setback { message: Some(message), .. }) => plan::refused(vip, &step, message),
            Some(Setback { message: None, .. }) => None,
        }
    }

    /// Takes in the report of an effect; returns an event that is due now.
    pub(super) fn on_report(&mut self, report: Report<Effect>, now: Now) -> Option<Event> {
        let Report { effect: Effect { vip: key, step }, result } = report;
        let (addr, service) = about(&step);
        let written = result.is_ok();
        match result {
            Ok(answer) => {
                let kept = matches!(answer, Answer::Ledger(ledger::Answer::Kept));
                // Writing the status that reports a refusal does not end the refusal.
                if !kept && !matches!(step, Step::Status { .. }) {
                    self.setbacks.remove(&key);
                }
                self.take_in(&step, answer);
                if kept {
                    self.set_back(&key, None, Duration::ZERO, now);
                }
            }
            Err(Failure::Refused(message) | Failure::Blocked(message)) => {
                self.set_back(&key, Some(message), Duration::ZERO, now);
            }
            // Not sent, because we do not lead.
            Err(Failure::NotSent) => {}
            Err(failure) => self.set_back(&key, None, failure.asked_to_wait(), now),
        }
        self.calls.remove(&key);
        if let Some(addr) = addr {
            self.world.claims.unpin(&addr);
        }
        if let Some(service) = service {
            self.world.services.unpin(&service);
        }
        self.dirty.insert(key);
        if let Step::Status { event, .. } = step {
            event.filter(|_| written).map(|event| *event)
        } else {
            None
        }
    }

    fn set_back(&mut self, key: &ObjectKey, message: Option<String>, wait: Duration, now: Now) {
        let tries = self.setbacks.get(key).map_or(0, |setback| setback.delay.tries);
        let delay = Backoff::after(tries, now).at_least(wait, now);
        self.setbacks.insert(key.clone(), Setback { delay, message });
    }

    /// Takes in the answer to a call. It may be older than what the watch has shown meanwhile, and the
    /// stores can only tell while the call counts as in flight.
    fn take_in(&mut self, step: &Step, answer: Answer) {
        match answer {
            // A `VirtualIP` that is no longer known was deleted meanwhile.
            Answer::VirtualIp(Some(vip)) if self.world.virtual_ips.get(&vip.key).is_some() => {
                let (key, version) = (vip.key.clone(), vip.version);
                let put = self.world.virtual_ips.put(key.clone(), version, vip, Source::Own);
                if let Put::New(_) = put {
                    self.virtual_ip_put(&key);
                }
            }
            Answer::Ledger(ledger::Answer::Claim(claim)) => {
                let (addr, version) = (claim.addr, claim.version);
                let put = self.world.claims.put(addr, version, claim, Source::Own);
                if let Put::New(old) = put {
                    self.claim_put(addr, old.as_ref());
                }
            }
            Answer::Ledger(ledger::Answer::Released { .. }) => {
                if let Step::Release { claim, .. } = step
                    && let Some(old) = self.world.claims.deleted(&claim.addr, claim.version)
                {
                    self.claim_left(&old);
                }
            }
            Answer::Service(service) => {
                let key = ObjectKey::of(&service.metadata);
                let version = Version::of(&service.metadata);
                let put = self.world.services.put(key.clone(), version, *service, Source::Own);
                if let Put::New(old) = put {
                    self.service_put(&key, old.as_ref());
                }
            }
            Answer::ServiceGone => {
                if let Step::DropCopy { copy, .. } = step
                    && let Some(known) = self.world.services.get(copy)
                {
                    let version = Version::of(&known.metadata);
                    self.world.services.deleted(copy, version);
                    self.wake_in(copy.namespace());
                }
            }
            Answer::VirtualIp(_) | Answer::Ledger(_) => {}
        }
    }

    /// Takes in an event of a watch.
    pub(super) fn on_news(&mut self, news: News) {
        match news {
            News::VirtualIps(watched) => self.on_virtual_ips(watched),
            News::NoVirtualIps => self.on_no_virtual_ips(),
            News::Mappings(watched) => self.on_mappings(watched),
            News::Groups(watched) => self.on_groups(watched),
            News::Claims(watched) => self.on_claims(watched),
            News::Services(watched) => self.on_services(watched),
        }
    }

    fn on_virtual_ips(&mut self, watched: Watched<ObjectKey, VirtualIpView>) {
        for change in self.world.virtual_ips.observe_only(watched) {
            match change {
                Change::Put(key, _) => self.virtual_ip_put(&key),
                Change::Left(key, _) => self.virtual_ip_left(&key),
                Change::Unsure(_) => {}
                Change::Listed => self.reconsider_all(),
            }
        }
    }

    /// No deletion of a `VirtualIP` was seen: restoring the definition may bring them all back. So
    /// their claims wait as if they had never been seen.
    fn on_no_virtual_ips(&mut self) {
        for news in [Watched::ListBegins, Watched::ListEnds] {
            for change in self.world.virtual_ips.observe_only(news) {
                if let Change::Left(key, _) = change {
                    self.setbacks.remove(&key);
                }
            }
        }
        self.reconsider_all();
    }

    fn virtual_ip_put(&mut self, key: &ObjectKey) {
        self.absent.forget(key);
        // Other `VirtualIPs` of the same Service may have waited for it.
        self.wake_in(key.namespace());
    }

    fn virtual_ip_left(&mut self, key: &ObjectKey) {
        if self.named.contains_key(key) {
            self.absent.saw_leave(key);
        }
        self.setbacks.remove(key);
        self.dirty.insert(key.clone());
        self.wake_in(key.namespace());
    }

    fn on_mappings(&mut self, watched: Watched<Arc<str>, MappingView>) {
        self.world.mappings.observe_only(watched);
        self.reconsider_all();
    }

    fn on_groups(&mut self, watched: Watched<PoolName, Box<PoolView>>) {
        let changes = self.world.groups.observe_only(watched.map(|group| *group));
        let groups = &self.world.groups;
        // The status of a pool is written often and does not matter here.
        let matters = |change: Change<PoolName, PoolView>| match change {
            Change::Put(name, Some(old)) => {
                let generation = groups.get(&name).and_then(|group| group.generation);
                generation.is_none() || old.generation != generation
            }
            Change::Put(_, None) | Change::Left(..) | Change::Listed => true,
            Change::Unsure(_) => false,
        };
        if changes.into_iter().any(matters) {
            self.reconsider_all();
        }
    }

    fn on_claims(&mut self, watched: Watched<IpAddr, Claim>) {
        let calls = &self.calls;
        let is_in_flight = |addr: &IpAddr| calls.values().any(|(about, _)| *about == Some(*addr));
        for change in self.world.claims.observe(watched, is_in_flight) {
            match change {
                Change::Put(addr, old) => self.claim_put(addr, old.as_ref()),
                Change::Left(_, old) => self.claim_left(&old),
                Change::Unsure(_) => {}
                Change::Listed => self.reconsider_all(),
            }
        }
    }

    /// There is a newer version of a claim.
    fn claim_put(&mut self, addr: IpAddr, old: Option<&Claim>) {
        let key = self.world.claims.get(&addr).and_then(Claim::named_virtual_ip).cloned();
        if let Some(key) = &key {
            self.named.entry(key.clone()).or_default().insert(addr);
            self.dirty.insert(key.clone());
        }
        let before = old.and_then(Claim::named_virtual_ip);
        if let Some(before) = before.filter(|before| key.as_ref() != Some(before)) {
            self.forget(before, addr);
        }
        self.wake_about(addr);
    }

    fn claim_left(&mut self, old: &Claim) {
        if let Some(key) = old.named_virtual_ip() {
            self.forget(key, old.addr);
        }
        self.wake_about(old.addr);
    }

    fn on_services(&mut self, watched: Watched<ObjectKey, Box<Service>>) {
        let calls = &self.calls;
        let is_in_flight =
            |key: &ObjectKey| calls.values().any(|(_, about)| about.as_ref() == Some(key));
        let watched = watched.map(|service| *service);
        for change in self.world.services.observe(watched, is_in_flight) {
            match change {
                Change::Put(key, old) => self.service_put(&key, old.as_ref()),
                Change::Left(key, old) => {
                    self.service_put(&key, Some(&old));
                    self.wake_waiting();
                }
                Change::Unsure(_) => {}
                Change::Listed => self.reconsider_all(),
            }
        }
    }

    /// There is a newer version of a Service, or it is gone.
    fn service_put(&mut self, key: &ObjectKey, old: Option<&Service>) {
        self.no_longer_shown(old);
        self.wake_in(key.namespace());
    }

    /// An address that a Service showed may have been all that kept a claim.
    fn no_longer_shown(&mut self, old: Option<&Service>) {
        let addrs = old.into_iter().flat_map(|old| shows(old).chain(observe::external_ips(old)));
        let claims = addrs.filter_map(|addr| self.world.claims.get(&addr));
        self.dirty.extend(claims.filter_map(Claim::named_virtual_ip).cloned());
    }

    /// A claim no longer names a `VirtualIP`.
    fn forget(&mut self, key: &ObjectKey, addr: IpAddr) {
        if let Some(addrs) = self.named.get_mut(key) {
            addrs.remove(&addr);
            if addrs.is_empty() {
                self.named.remove(key);
                self.absent.forget(key);
            }
        }
    }

    /// An object in the namespace changed.
    fn wake_in(&mut self, namespace: &str) {
        let keys = self.world.virtual_ips.keys().filter(|key| key.namespace() == namespace);
        self.dirty.extend(keys.cloned());
    }

    /// The claim on an address changed.
    fn wake_about(&mut self, addr: IpAddr) {
        let concerned = self.world.virtual_ips.values().filter(|vip| {
            let its = vip.status.address();
            its.is_none_or(|text| text.parse().is_ok_and(|its: IpAddr| its == addr))
        });
        self.dirty.extend(concerned.map(|vip| vip.key.clone()));
    }

    /// An address may have become free.
    fn wake_waiting(&mut self) {
        let waiting = self.world.virtual_ips.values().filter(|vip| vip.status.address().is_none());
        self.dirty.extend(waiting.map(|vip| vip.key.clone()));
    }
}

/// The claim and the Service that an effect writes.
fn about(step: &Step) -> (Option<IpAddr>, Option<ObjectKey>) {
    let service = match step {
        Step::Copy { copy } => Some(ObjectKey::of(&copy.metadata)),
        Step::Align { copy, .. } | Step::DropCopy { copy, .. } => Some(copy.clone()),
        Step::Convert { service, .. } | Step::StopAsking { service, .. } => Some(service.clone()),
        Step::Status { .. }
        | Step::Finalizers { .. }
        | Step::Take { .. }
        | Step::Pass { .. }
        | Step::EndReservation { .. }
        | Step::Release { .. } => None,
    };
    (step.addr(), service)
}

#[cfg(test)]
mod tests;
