//! What a Service is to show and say, written where it belongs.

use std::{hash::Hash, net::IpAddr, sync::Arc};

use super::{
    Effect, Now, Place, Planner, Request, ServiceView, decide,
    status::{self, ConditionText},
};
use crate::{backoff::Backoff, object::ObjectKey};

impl Planner {
    /// Whether a Service shows exactly these addresses where it should. In which order is its own
    /// business, and so is an annotation that its user must mend first.
    pub(super) fn is_shown(&self, service: &ServiceView, addrs: &[IpAddr]) -> bool {
        let same = !service.ingress_has_hostname
            && service.shows.len() == addrs.len()
            && addrs.iter().all(|addr| service.shows.contains(addr));
        // Who shows nothing shows nothing anywhere.
        let in_place = || decide::place(&self.world, service, addrs) == service.place;
        service.annotation_unreadable || (same && (addrs.is_empty() || in_place()))
    }

    /// Writes what the Service is to show and say, if it differs; says whether it does. What is
    /// `None` stays as it is.
    pub(super) fn publish(
        &mut self,
        service: &ServiceView,
        shown: Option<Vec<IpAddr>>,
        said: Option<&ConditionText>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let place = decide::place(&self.world, service, shown.as_deref().unwrap_or_default());
        let hides = |addrs: &[IpAddr]| service.shows.iter().any(|addr| !addrs.contains(addr));
        // What its user wrote and may not have bears no mark of ours.
        let had = |addr: &IpAddr| {
            let claim = self.world.claim(*addr);
            decide::is_lease(*addr) || claim.is_some_and(|claim| claim.holder(service).is_some())
        };
        let label_missing = service.label_missing
            && self.world.annotated.classes.include(service.class.as_ref())
            && service.shows.iter().any(had);
        match place {
            // Once it is annotated, its status is another's. What must go from there goes before.
            Place::Annotation
                if service.place == Place::Status && shown.as_deref().is_some_and(hides) =>
            {
                let stays = shown.map(|addrs| service.shown_of(&addrs));
                self.write_status(service, stays, None, now, effects)
            }
            Place::Annotation if shown.is_some() || label_missing => {
                self.annotate(service, shown, said, now, effects)
            }
            Place::Status | Place::Annotation => {
                self.write_status(service, shown, said, now, effects)
            }
        }
    }

    /// Says that a write was refused, in the status whatever kind of Service it is: another write of
    /// the Service itself would be refused again at once.
    pub(super) fn tell_refused(
        &mut self,
        service: &ServiceView,
        said: &ConditionText,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        self.write_status(service, None, Some(said), now, effects);
    }

    fn annotate(
        &mut self,
        service: &ServiceView,
        addrs: Option<Vec<IpAddr>>,
        said: Option<&ConditionText>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) -> bool {
        if self.is_held_back(&service.key, (addrs.as_deref(), said), now) {
            return true;
        }
        // Only what a pool chose goes where the pool says.
        let given = service.shows.is_empty() && service.request == Request::Any;
        let claims = addrs.iter().flatten().filter_map(|addr| self.world.claim(*addr));
        let mut pools = claims.filter_map(|claim| self.world.pool(claim.pool.as_ref()?));
        let pool = pools.find(|pool| pool.map.is_some()).filter(|_| given);
        let interface = pool.and_then(|pool| pool.interface(service.key.namespace()));
        let interface = interface.map(Arc::from);
        // A condition that is there already is written next, and tells it then.
        let event = said.and_then(|said| said.event(service));
        let event = event.filter(|_| status::says_nothing(service));
        self.progress.begin_call(&service.key);
        effects.push(Effect::Annotate {
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

    /// Whether the same was written for a Service and undone too often, so that it must wait.
    pub(super) fn is_held_back(&mut self, key: &ObjectKey, what: impl Hash, now: Now) -> bool {
        let Some(until) = self.damper.hold(key, what, now) else { return false };
        let delay = Backoff { until: Some(until), tries: 0 };
        self.progress.delay_writes(key, delay, None);
        true
    }

    /// Takes our condition off a Service that is none of ours; says whether there is one.
    pub(super) fn retract(
        &mut self,
        service: &ServiceView,
        now: Now,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Some(conditions) = status::without_ours(&service.conditions) else { return false };
        if !self.is_held_back(&service.key, "retract", now) {
            self.progress.begin_call(&service.key);
            effects.push(Effect::Publish {
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
        service: &ServiceView,
        ingress: Option<Vec<IpAddr>>,
        said: Option<&ConditionText>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let mut conditions = service.conditions.clone();
        let changed = said.is_some_and(|said| said.write(&mut conditions, now.wall));
        // A Service that came to us with its address is not written just to say that all is well.
        let as_it_came = said.is_some_and(ConditionText::is_plain) && status::says_nothing(service);
        if ingress.is_none() && (!changed || as_it_came) {
            return false;
        }
        if self.is_held_back(&service.key, (ingress.as_deref(), said), now) {
            return true;
        }
        let event = said.and_then(|said| said.event(service));
        self.progress.begin_call(&service.key);
        effects.push(Effect::Publish {
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
fn is_first(service: &ServiceView) -> bool {
    service.shows.is_empty() && !status::says_allocated(service)
}
