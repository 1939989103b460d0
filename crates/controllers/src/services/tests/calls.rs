//! How the simulated API server carries out the calls of the allocator.

use std::net::IpAddr;

use landfall_ipam::Family;

use super::{
    effect::{Answer, Effect},
    wish::may_release,
};
use crate::{
    call::Failure,
    cluster::{
        Seen,
        service::{Balancer, Place, Request},
    },
    ledger::{self, Claim, HolderEntry, Then},
    sim::{ApiServer, Stored},
};

impl ApiServer {
    /// Carries out a call as the API server would. A release is two calls; `read` is the first one's result.
    pub(in crate::services) fn call(
        &mut self,
        effect: &Effect,
        read: Option<&[Balancer]>,
    ) -> Result<Answer, Failure> {
        match effect {
            Effect::Claim { write, .. } => self.write(write).map(Answer::Ledger),
            Effect::Publish { .. }
            | Effect::Annotate { .. }
            | Effect::CleanUp { .. }
            | Effect::SetConditions { .. } => self.call_on_service(effect),
            Effect::Release { claim, holder, then, annotated, .. } => {
                let live = read.and_then(<[_]>::first).cloned();
                let live =
                    live.map(|live| if *annotated { live } else { live.without_annotation() });
                self.release_after(claim, holder, then, live.as_ref()).map(Answer::Ledger)
            }
            Effect::LookAtService { key, known } => {
                let gone = || Some(Seen::NoService(key.clone(), (*known)?));
                Ok(Answer::Seen(self.seen_service(key).or_else(gone)))
            }
            Effect::PoolStatus { pool, version, status, .. } => {
                let view = self.write_pool_status(pool, *version, status.clone())?;
                Ok(Answer::Seen(Some(Seen::Pool(Box::new(view)))))
            }
        }
    }

    /// Carries out a write of a Service.
    fn call_on_service(&mut self, effect: &Effect) -> Result<Answer, Failure> {
        match effect {
            Effect::Publish { key, uid, version, ingress, conditions, .. } => {
                let mut stored = self.service_at(key, uid, *version)?;
                match (ingress, &mut stored.view.plain) {
                    (Some(addrs), Some(plain)) => {
                        stored.view.announced.clone_from(addrs);
                        plain.ingress_has_hostname = false;
                    }
                    (Some(addrs), None) => {
                        let wrong = stored.view.place == Place::Annotation;
                        self.wrongs
                            .extend(wrong.then(|| format!("status of {key}, which is another's")));
                        self.show(&mut stored.view, addrs);
                        stored.view.ingress_has_hostname = false;
                    }
                    (None, _) => {}
                }
                stored.view.conditions.clone_from(conditions);
                self.store(stored);
                self.writes.push("publish");
                Ok(Answer::Seen(self.seen_service(key)))
            }
            Effect::Annotate { key, uid, version, addrs, .. } => {
                let mut stored = self.service_at(key, uid, *version)?;
                if let Some(addrs) = addrs {
                    let mut shows = stored.view.shows.iter();
                    let left = stored.view.place == Place::Status
                        && shows.any(|addr| !addrs.contains(addr));
                    self.wrongs.extend(left.then(|| format!("left in the status of {key}")));
                    self.show(&mut stored.view, addrs);
                    if std::mem::take(&mut stored.view.spec_contradicts_annotation) {
                        // The spec agrees with the annotation from now on.
                        stored.view.request = Request::Any;
                    }
                }
                // It had this family only because it showed an address of it.
                let hidden = |family: &Family| {
                    !stored.view.shows.iter().any(|addr| Family::of(*addr) == *family)
                };
                if let Some(gone) = stored.view.extra_family.take_if(|family| hidden(family)) {
                    stored.view.families.retain(|family| *family != gone);
                }
                stored.view.place = Place::Annotation;
                stored.view.label_missing = false;
                self.store(stored);
                self.writes.push("annotate");
                Ok(Answer::Seen(self.seen_service(key)))
            }
            Effect::SetConditions { key, uid, version, conditions } => {
                let mut stored = self.service_at(key, uid, *version)?;
                stored.view.conditions.clone_from(conditions);
                self.store(stored);
                self.writes.push("set_conditions");
                Ok(Answer::Seen(self.seen_service(key)))
            }
            Effect::CleanUp { key, uid, version, marks, .. } => {
                let mut stored = self.service_at(key, uid, *version)?;
                self.writes.push("clean_up");
                // Another program's finalizer may still hold it.
                let goes = stored.view.deleting && stored.finalizer;
                if *marks {
                    stored.view.place = Place::Status;
                    stored.view.shows.clear();
                }
                self.store(Stored { finalizer: false, ..stored });
                let answer = Answer::Seen(self.seen_service(key));
                if goes {
                    self.delete_service(key.as_str());
                }
                Ok(answer)
            }
            Effect::Claim { .. }
            | Effect::Release { .. }
            | Effect::LookAtService { .. }
            | Effect::PoolStatus { .. } => unreachable!("writes no Service"),
        }
    }

    fn show(&mut self, service: &mut Balancer, addrs: &[IpAddr]) {
        let taken = self.taken_unasked(service, addrs);
        self.wrongs.extend(taken.map(|addr| format!("{addr} taken from {}", service.key)));
        service.shows = addrs.to_vec();
    }

    /// An address that a Service would lose by showing these, though a claim names it and it agrees with all
    /// holders that share it.
    fn taken_unasked(&self, service: &Balancer, next: &[IpAddr]) -> Option<IpAddr> {
        let rightly = |addr: &IpAddr| {
            let claim = self.claims.get(addr);
            claim.is_some_and(|claim| {
                claim.holder(service).is_some() && claim.clash(service).is_none()
            })
        };
        // The address it asks for may be published later, in another place, if it is surely its own.
        let asked_away = |addr: &IpAddr| {
            let asked = service.request.of(Family::of(*addr)).filter(|asked| asked != addr);
            asked.is_some_and(|asked| next.contains(&asked) || rightly(&asked))
        };
        let replaced = |addr: &IpAddr| {
            let mut holders = next.iter().filter_map(|new| self.claims.get(new)?.holder(service));
            holders.any(|holder| holder.replaces == Some(*addr))
        };
        let lost = service.shows.iter().copied().filter(|addr| !next.contains(addr));
        lost.filter(|addr| service.families.contains(&Family::of(*addr)))
            .find(|addr| rightly(addr) && !asked_away(addr) && !replaced(addr))
    }

    /// The second half of a release, after `live` was read.
    fn release_after(
        &mut self,
        known: &Claim,
        holder: &HolderEntry,
        then: &Then,
        live: Option<&Balancer>,
    ) -> Result<ledger::Answer, Failure> {
        let marked = |stored: &Stored| stored.leftover().is_some_and(|left| left.marked);
        if self.services.get(&holder.key).is_some_and(marked) || !may_release(live, holder, known) {
            return Ok(ledger::Answer::Kept);
        }
        let gone = self
            .services
            .get(&holder.key)
            .is_none_or(|stored| holder.uid.as_ref().is_some_and(|old| *old != stored.view.uid));
        self.release(known, holder, then, gone)
    }
}
