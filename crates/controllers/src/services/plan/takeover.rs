//! What replaced operators and restores leave behind.

use std::{collections::BTreeMap, net::IpAddr};

use jiff::Timestamp;

use super::{
    Decision, Effect, Now, Place, Planner, Refusal, RepairMode, ServiceView,
    decide::{self, is_lease},
};
use crate::object::ObjectKey;

/// What Services have in kube-vip's annotation without a claim.
#[derive(Debug, Default)]
pub(super) struct Annotations {
    /// The address of another that a Service has there.
    contests: BTreeMap<ObjectKey, IpAddr>,
    /// Whether all of them had a first turn.
    had_first_turn: bool,
}

impl Planner {
    /// Takes what was left on a Service off it once the ledger is right about it.
    ///
    /// One that is being deleted waits for nothing: what it held is released when it is gone.
    pub(super) fn plan_leftover(&mut self, key: &ObjectKey, now: Now, effects: &mut Vec<Effect>) {
        let Some(leftover) = self.world.leftovers.get(key) else { return };
        let delayed = self.progress.clean_up_delay(key).is_some_and(|delay| delay.holds(now))
            || self.progress.is_delayed(key, now);
        // After a write of ours the watch will tell of both again.
        let newer = |service: &ServiceView| service.version > leftover.version;
        let outdated = self.world.services.get(key).is_some_and(newer);
        let (uid, version) = (leftover.uid.clone(), leftover.version);
        let (finalizers, marks) = (leftover.finalizers.clone(), leftover.marked);
        let left = (finalizers.is_some() || marks) && self.world.is_left_to_us(key, leftover);
        let key = key.clone();
        let effect = if left {
            let ready = leftover.deleting || leftover.marked || self.is_settled(&key);
            ready.then_some(Effect::CleanUp { key, uid, version, finalizers, marks })
        } else {
            let conditions = leftover.conditions.clone();
            conditions.map(|conditions| Effect::Retract { key, uid, version, conditions })
        };
        let Some(effect) = effect.filter(|_| !delayed && !outdated) else { return };
        if let Effect::CleanUp { key, .. } | Effect::Retract { key, .. } = &effect {
            self.progress.begin_call(key);
        }
        effects.push(effect);
    }

    /// Lets Services that have an address of kube-vip's `ConfigMap` in their annotation ask for it before
    /// others choose: kube-vip's provider counted it as theirs, and when we come no claim says so yet.
    ///
    /// Holders of what others have in their annotation are told so. Who contests is known before any
    /// holder is looked at, or each would be told first that nobody does.
    pub(super) fn plan_annotated(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if std::mem::replace(&mut self.annotations.had_first_turn, true) {
            return;
        }
        for (_, key, of_map) in self.annotated_without_claim() {
            // Also those about whom repair has something to report first: to enter an address is no repair.
            if of_map && self.settings.repair == RepairMode::Fix {
                self.plan_addresses(&key, now, effects);
            } else {
                self.weigh_contest_of(&key);
            }
        }
    }

    /// Services with an address in kube-vip's annotation on which they have no claim, oldest first, and
    /// whether it is one of kube-vip's `ConfigMap`.
    pub(super) fn annotated_without_claim(&self) -> Vec<(Timestamp, ObjectKey, bool)> {
        let of_map = |addr: &IpAddr| {
            let covering = || self.world.pools_in_order().filter(|view| view.covers(*addr));
            covering().next().is_some() && covering().all(|view| view.place == Place::Annotation)
        };
        let claimed = |view: &ServiceView, addr: &IpAddr| {
            self.world.claims_of(view).iter().any(|claim| claim.addr == *addr)
        };
        let services = self.world.services.values();
        let listing = services.filter(|view| view.place == Place::Annotation);
        let without_claim = listing.filter_map(|view| {
            let addr = view.shows.iter().find(|addr| !claimed(view, addr))?;
            Some((view.created, view.key.clone(), of_map(addr)))
        });
        let mut turns: Vec<_> = without_claim.collect();
        turns.sort_unstable();
        turns
    }

    /// Whether a Service has the address of another in its annotation.
    pub(super) fn weigh_contest_of(&mut self, key: &ObjectKey) {
        if let Some(service) = self.world.service(key) {
            let service = decide::with_terms(&self.world, service);
            let decision = decide::decide(&self.world, &service);
            self.weigh_contest(&service, &decision);
        }
    }

    /// Whether a decision leaves a Service with the address of another in its annotation.
    pub(super) fn weigh_contest(&mut self, service: &ServiceView, decision: &Decision) {
        let taken = |refusal: &Refusal| {
            matches!(refusal, Refusal::TakenBy(..) | Refusal::SharingRefused(..))
        };
        let contested = if let Decision::Disputed(refusal) = decision {
            refusal.address().filter(|_| taken(refusal))
        } else {
            None
        };
        // What its status has is known as shown already.
        let contested = contested.filter(|addr| !service.in_status().contains(addr));
        self.contest(&service.key, contested);
    }

    /// A Service has in its annotation the address of another, which is told so, or has it no more.
    pub(super) fn contest(&mut self, key: &ObjectKey, addr: Option<IpAddr>) {
        let before = self.annotations.contests.get(key).copied();
        if before == addr {
            return;
        }
        if let Some(before) = self.annotations.contests.remove(key) {
            self.world.contested.remove(&before, key);
            self.mark_holders(before);
        }
        if let Some(addr) = addr {
            self.annotations.contests.insert(key.clone(), addr);
            self.world.contested.insert(addr, key.clone());
            self.mark_holders(addr);
        }
        self.repair.recheck_all();
    }

    /// Remembers what a Service has in the annotation before its status has it: that is a request, also
    /// if kube-vip announces it before we have answered.
    pub(super) fn note_asked_first(&mut self, key: &ObjectKey, old: Option<&ServiceView>) {
        let view = self.world.services.get(key);
        let Some(view) = view.filter(|view| view.place == Place::Annotation) else {
            self.world.asked_first.remove_key(key);
            return;
        };
        let claims = self.world.claims_of(view);
        let claimed = |addr: &IpAddr| claims.iter().any(|claim| claim.addr == *addr);
        let remembered = |addr: &IpAddr| {
            old.is_some_and(|old| old.uid == view.uid) && self.world.asked_first.contains(key, addr)
        };
        let asked = view.shows.iter().filter(|addr| {
            !claimed(addr) && (remembered(addr) || !view.in_status().contains(addr))
        });
        let asked: Vec<_> = asked.copied().collect();
        self.world.asked_first.remove_key(key);
        for addr in asked {
            self.world.asked_first.insert(key.clone(), addr);
        }
    }

    /// Whether what a Service showed when it was a `LoadBalancer` must go before anything is released:
    /// it would be announced again the moment it became one again.
    pub(super) fn must_be_hidden(&self, key: &ObjectKey) -> bool {
        let leftover = self.world.leftovers.get(key);
        leftover.is_some_and(|left| left.marked && self.world.is_left_to_us(key, left))
    }

    /// Whether nothing is left to be written into the ledger about a Service.
    fn is_settled(&self, key: &ObjectKey) -> bool {
        let mut held = self.world.ledger.held_by_service(key).into_iter();
        match self.world.service(key) {
            Some(service) => {
                let in_status = service.in_status();
                let entered = |addr: &IpAddr| {
                    // What its user alone says it shows is a request.
                    if !in_status.contains(addr) {
                        return true;
                    }
                    let beyond = service.place == Place::Status
                        && self.world.ledger.book.pool_of(*addr).is_none();
                    beyond || is_lease(*addr) || self.world.claim(*addr).is_some()
                };
                !self.progress.awaits_address(key)
                    && service.shows.iter().all(entered)
                    && !held.any(|addr| self.world.is_in_flight(addr))
            }
            None => held.all(|addr| self.world.is_a_virtual_ips(addr)),
        }
    }

    /// Whether a Service that is not there and in whose name something is claimed may yet come. One
    /// that is there and of another type does not.
    pub(super) fn in_grace(&mut self, key: &ObjectKey, now: Now) -> bool {
        self.world.leftovers.get(key).is_none()
            && self.world.ledger.has_service(key)
            && self.absent.in_grace(key, now)
    }
}
