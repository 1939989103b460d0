//! Writes a Service's addresses and condition to its status or to kube-vip's annotation.

use std::{hash::Hash, net::IpAddr, sync::Arc};

use super::{
    Balancer, Effect, Place, Request, Round, decide,
    status::{self, ConditionText},
};
use crate::{backoff::Backoff, object::ObjectKey};

impl Round<'_> {
    /// Whether a Service shows exactly these addresses in the right place, in any order. An annotation
    /// that its user must correct first is left alone.
    pub(super) fn is_shown(&self, service: &Balancer, addrs: &[IpAddr]) -> bool {
        let same = !service.ingress_has_hostname
            && service.shows.len() == addrs.len()
            && addrs.iter().all(|addr| service.shows.contains(addr));
        // Without addresses the place does not matter.
        let in_place = || decide::place(self.world(), service, addrs) == service.place;
        service.annotation_unreadable || (same && (addrs.is_empty() || in_place()))
    }

    /// Writes the addresses and the condition if they differ; returns whether they do. `None` leaves a
    /// part unchanged.
    pub(super) fn publish(
        &mut self,
        service: &Balancer,
        shown: Option<Vec<IpAddr>>,
        said: Option<&ConditionText>,
    ) -> bool {
        let place = decide::place(self.world(), service, shown.as_deref().unwrap_or_default());
        let hides = |addrs: &[IpAddr]| service.shows.iter().any(|addr| !addrs.contains(addr));
        // An address that its user wrote and may not have gets no label of ours.
        let had = |addr: &IpAddr| {
            let claim = self.ledger.claim(*addr);
            decide::is_lease(*addr) || claim.is_some_and(|claim| claim.holder(service).is_some())
        };
        let label_missing = service.label_missing
            && self.own.notes.annotated.classes.include(service.class.as_ref())
            && service.shows.iter().any(had);
        match place {
            // After this kube-vip owns the status. Addresses that must go from there go first.
            Place::Annotation
                if service.place == Place::Status && shown.as_deref().is_some_and(hides) =>
            {
                let stays = shown.map(|addrs| service.shown_of(&addrs));
                self.write_status(service, stays, None)
            }
            Place::Annotation if shown.is_some() || label_missing => {
                self.annotate(service, shown, said)
            }
            Place::Status | Place::Annotation => self.write_status(service, shown, said),
        }
    }

    /// Says in the status, for every kind of Service, that a write was refused: another write of the
    /// Service itself would be refused again at once.
    pub(super) fn tell_refused(&mut self, service: &Balancer, said: &ConditionText) {
        self.write_status(service, None, Some(said));
    }

    fn annotate(
        &mut self,
        service: &Balancer,
        addrs: Option<Vec<IpAddr>>,
        said: Option<&ConditionText>,
    ) -> bool {
        if self.is_held_back(&service.key, (addrs.as_deref(), said)) {
            return true;
        }
        // The pool's interface is only for addresses that the pool chose.
        let given = service.shows.is_empty() && service.request == Request::Any;
        let claims = addrs.iter().flatten().filter_map(|addr| self.ledger.claim(*addr));
        let mut pools = claims.filter_map(|claim| self.cluster.pool(claim.pool.as_ref()?));
        let pool = pools.find(|pool| pool.map.is_some()).filter(|_| given);
        let interface = pool.and_then(|pool| pool.interface(service.key.namespace()));
        let interface = interface.map(Arc::from);
        // If there is a condition already, it is written next, and the event comes with it.
        let event = said.and_then(|said| said.event(service));
        let event = event.filter(|_| status::says_nothing(service));
        self.own.progress.begin_call(&service.key);
        self.out.effects.push(Effect::Annotate {
            key: service.key.clone(),
            uid: service.uid.clone(),
            version: service.version,
            addrs,
            interface,
            event,
            first: is_first(service),
        });
        true
    }

    /// Whether the same write was made for a Service and undone too often, so that it must wait.
    pub(super) fn is_held_back(&mut self, key: &ObjectKey, what: impl Hash) -> bool {
        let Some(until) = self.own.damper.hold(key, what, self.now) else { return false };
        let delay = Backoff { until: Some(until), tries: 0 };
        self.own.progress.delay_writes(key, delay, None);
        true
    }

    /// Removes our condition from a Service that is not ours; returns whether it had one.
    pub(super) fn retract(&mut self, service: &Balancer) -> bool {
        let Some(conditions) = status::without_ours(&service.conditions) else { return false };
        if !self.is_held_back(&service.key, "retract") {
            self.own.progress.begin_call(&service.key);
            self.out.effects.push(Effect::Publish {
                key: service.key.clone(),
                uid: service.uid.clone(),
                version: service.version,
                ingress: None,
                conditions,
                event: None,
                first: false,
            });
        }
        true
    }

    fn write_status(
        &mut self,
        service: &Balancer,
        ingress: Option<Vec<IpAddr>>,
        said: Option<&ConditionText>,
    ) -> bool {
        let mut conditions = service.conditions.clone();
        let changed = said.is_some_and(|said| said.write(&mut conditions, self.now.wall));
        // An adopted Service is not written just to say that all is well.
        let as_it_came = said.is_some_and(ConditionText::is_plain) && status::says_nothing(service);
        if ingress.is_none() && (!changed || as_it_came) {
            return false;
        }
        if self.is_held_back(&service.key, (ingress.as_deref(), said)) {
            return true;
        }
        let event = said.and_then(|said| said.event(service));
        self.own.progress.begin_call(&service.key);
        self.out.effects.push(Effect::Publish {
            key: service.key.clone(),
            uid: service.uid.clone(),
            version: service.version,
            ingress,
            conditions,
            event,
            first: is_first(service),
        });
        true
    }
}

/// Whether the Service has had no address before.
fn is_first(service: &Balancer) -> bool {
    service.shows.is_empty() && !status::says_allocated(service)
}
