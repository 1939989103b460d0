//! Takes over from a replaced operator, and cleans up what it left on Services.

use std::{collections::BTreeMap, net::IpAddr};

use jiff::Timestamp;

use super::{
    Balancer, Decision, Effect, Place, Refusal, RepairMode, Round,
    decide::{self, is_lease},
};
use crate::object::ObjectKey;

/// Addresses in kube-vip's annotation for which the Service has no claim.
#[derive(Debug, Default)]
pub(super) struct Annotations {
    /// The address of another Service that a Service has in its annotation.
    contests: BTreeMap<ObjectKey, IpAddr>,
    /// Whether all such Services have been decided about once.
    had_first_turn: bool,
}

impl Round<'_> {
    /// Removes leftovers from a Service once the ledger is right about it.
    ///
    /// A Service that is being deleted does not wait: its claims are released when it is gone.
    pub(super) fn plan_leftover(&mut self, key: &ObjectKey) {
        let Some((service, leftover)) = self.cluster.leftover(key) else { return };
        let progress = &self.own.progress;
        let delayed = progress.clean_up_delay(key).is_some_and(|delay| delay.holds(self.now))
            || progress.is_delayed(key, self.now);
        let (uid, version) = (service.uid.clone(), service.version);
        let (finalizers, marks) = (leftover.finalizers.clone(), leftover.marked);
        let left = (finalizers.is_some() || marks) && self.world().is_left_to_us(key, leftover);
        let key = key.clone();
        let effect = if left {
            let ready = service.deleting || leftover.marked || self.is_settled(&key);
            ready.then_some(Effect::CleanUp { key, uid, version, finalizers, marks })
        } else {
            let conditions = leftover.conditions.clone();
            conditions.map(|conditions| Effect::SetConditions { key, uid, version, conditions })
        };
        let Some(effect) = effect.filter(|_| !delayed) else { return };
        if let Effect::CleanUp { key, .. } | Effect::SetConditions { key, .. } = &effect {
            self.own.progress.begin_call(key);
        }
        self.out.effects.push(effect);
    }

    /// Lets Services with an address of kube-vip's `ConfigMap` in their annotation ask for it before
    /// others choose: kube-vip's provider counted it as theirs, and no claim records that yet.
    ///
    /// A holder is told if another Service has its address in the annotation. All contests are known
    /// before any holder is decided about; otherwise each would first be told that there is none.
    pub(super) fn plan_annotated(&mut self) {
        if std::mem::replace(&mut self.own.annotations.had_first_turn, true) {
            return;
        }
        for (_, key, of_map) in self.annotated_without_claim() {
            // Even those about which repair has something to report first: to enter an address is no repair.
            if of_map && self.own.settings.repair == RepairMode::Fix {
                self.plan_addresses(&key);
            } else {
                self.weigh_contest_of(&key);
            }
        }
    }

    /// Services with an address in kube-vip's annotation on which they have no claim, oldest first, and
    /// whether it is one of kube-vip's `ConfigMap`.
    pub(super) fn annotated_without_claim(&self) -> Vec<(Timestamp, ObjectKey, bool)> {
        let of_map = |addr: &IpAddr| {
            let covering = || self.cluster.pools_in_order().filter(|view| view.covers(*addr));
            covering().next().is_some() && covering().all(|view| view.place == Place::Annotation)
        };
        let claimed = |view: &Balancer, addr: &IpAddr| {
            self.world().claims_of(view).iter().any(|claim| claim.addr == *addr)
        };
        let services = self.cluster.balancers();
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
        if let Some(service) = self.world().service(key) {
            let service = decide::with_terms(self.world(), service);
            let decision = decide::decide(self.world(), &service);
            self.weigh_contest(&service, &decision);
        }
    }

    /// Records whether a decision leaves a Service with the address of another in its annotation.
    pub(super) fn weigh_contest(&mut self, service: &Balancer, decision: &Decision) {
        let taken = |refusal: &Refusal| {
            matches!(refusal, Refusal::TakenBy(..) | Refusal::SharingRefused(..))
        };
        let contested = if let Decision::Disputed(refusal) = decision {
            refusal.address().filter(|_| taken(refusal))
        } else {
            None
        };
        // Addresses in the status are already known as shown.
        let contested = contested.filter(|addr| !service.in_status().contains(addr));
        self.contest(&service.key, contested);
    }

    /// A Service has the address of another in its annotation, or no longer has it. The holder is told.
    pub(super) fn contest(&mut self, key: &ObjectKey, addr: Option<IpAddr>) {
        let before = self.own.annotations.contests.get(key).copied();
        if before == addr {
            return;
        }
        if let Some(before) = self.own.annotations.contests.remove(key) {
            self.own.notes.contested.remove(&before, key);
            self.mark_holders(before);
        }
        if let Some(addr) = addr {
            self.own.annotations.contests.insert(key.clone(), addr);
            self.own.notes.contested.insert(addr, key.clone());
            self.mark_holders(addr);
        }
        self.own.repair.recheck_all();
    }

    /// Remembers addresses that are in a Service's annotation before they are in its status: they are
    /// requests, even if kube-vip announces them before we have answered.
    pub(super) fn note_asked_first(&mut self, key: &ObjectKey, old: Option<&Balancer>) {
        let view = self.cluster.balancer(key);
        let Some(view) = view.filter(|view| view.place == Place::Annotation) else {
            self.own.notes.asked_first.remove_key(key);
            return;
        };
        let claims = self.world().claims_of(view);
        let claimed = |addr: &IpAddr| claims.iter().any(|claim| claim.addr == *addr);
        let remembered = |addr: &IpAddr| {
            old.is_some_and(|old| old.uid == view.uid)
                && self.own.notes.asked_first.contains(key, addr)
        };
        let asked = view.shows.iter().filter(|addr| {
            !claimed(addr) && (remembered(addr) || !view.in_status().contains(addr))
        });
        let asked: Vec<_> = asked.copied().collect();
        self.own.notes.asked_first.remove_key(key);
        for addr in asked {
            self.own.notes.asked_first.insert(key.clone(), addr);
        }
    }

    /// Whether the annotation from when a Service was a `LoadBalancer` must go before any release: its
    /// addresses would be announced again if it became one again.
    pub(super) fn must_be_hidden(&self, key: &ObjectKey) -> bool {
        let leftover = self.cluster.leftover(key);
        leftover.is_some_and(|(_, left)| left.marked && self.world().is_left_to_us(key, left))
    }

    /// Whether the ledger is complete about a Service.
    fn is_settled(&self, key: &ObjectKey) -> bool {
        let mut held = self.ledger.held_by_service(key).into_iter();
        match self.world().service(key) {
            Some(service) => {
                let in_status = service.in_status();
                let entered = |addr: &IpAddr| {
                    // An address that only its user wrote is a request.
                    if !in_status.contains(addr) {
                        return true;
                    }
                    let beyond =
                        service.place == Place::Status && self.ledger.book.pool_of(*addr).is_none();
                    beyond || is_lease(*addr) || self.ledger.claim(*addr).is_some()
                };
                !self.own.progress.awaits_address(key)
                    && service.shows.iter().all(entered)
                    && !held.any(|addr| self.ledger.is_in_flight(addr))
            }
            None => held.all(|addr| self.world().is_a_virtual_ips(addr)),
        }
    }

    /// Whether a missing Service that a claim names may still appear. One that exists with another type
    /// does not count.
    pub(super) fn in_grace(&mut self, key: &ObjectKey) -> bool {
        self.cluster.leftover(key).is_none()
            && self.ledger.has_service(key)
            && self.own.absent.in_grace(key, self.now)
    }
}
