//! What the API server of a story does with the calls of operators.

use std::net::IpAddr;

use landfall_ipam::Family;

use super::{
    super::super::{
        effect::{Answer, Effect, Then},
        view::{ClaimView, HolderView, Place, Request, ServiceView},
        wish::may_release,
    },
    Change, Cluster, Stored, backwards,
};
use crate::{
    call::Failure,
    object::{ObjectKey, Version},
};

impl Cluster {
    /// Does a call, as the API server would. A release is two: `read` is what its first half saw.
    pub(in crate::services::sim) fn call(
        &mut self,
        effect: &Effect,
        read: Option<&[ServiceView]>,
    ) -> Result<Answer, Failure> {
        match effect {
            Effect::Take { addr, pool, holder } => {
                if self.claims.contains_key(addr) {
                    return Err(Failure::Exists);
                }
                self.writes.push("take");
                Ok(Answer::Claim(self.put_claim(*addr, pool.clone(), vec![holder.clone()])))
            }
            Effect::Touch { addr, version, pool, holders, end_reservation, .. } => {
                match self.claims.get(addr) {
                    None => Err(Failure::NotFound),
                    Some(claim) if claim.version != *version => Err(Failure::Conflict),
                    Some(claim) => {
                        let back = backwards(claim, holders);
                        self.wrongs
                            .extend(back.map(|key: ObjectKey| format!("{key} seen backwards")));
                        self.writes.push("touch");
                        let claim = self.put_claim(*addr, pool.clone(), holders.clone());
                        Ok(Answer::Claim(if *end_reservation {
                            self.set_reservation(*addr, None)
                        } else {
                            claim
                        }))
                    }
                }
            }
            Effect::Publish { .. }
            | Effect::Annotate { .. }
            | Effect::CleanUp { .. }
            | Effect::Retract { .. } => self.call_on_service(effect),
            Effect::Release { claim, holder, then, annotated } => {
                let live = read.and_then(<[_]>::first).cloned();
                let live =
                    live.map(|live| if *annotated { live } else { live.without_annotation() });
                self.release(claim, holder, then, live.as_ref())
            }
            Effect::Expire { addr, uid, version } => match self.claims.get(addr) {
                None => Err(Failure::NotFound),
                Some(claim) if claim.version != *version || claim.uid != *uid => {
                    Err(Failure::Conflict)
                }
                Some(_) => {
                    self.writes.push("expire");
                    self.delete_claim(*addr);
                    Ok(Answer::Released { by: None })
                }
            },
            Effect::LookAtClaim { addr, .. } => {
                Ok(self.claims.get(addr).cloned().map_or(Answer::NoClaim, Answer::Claim))
            }
            Effect::LookAtService { key, .. } => Ok(self.answer(key)),
            Effect::PoolStatus { pool, version, status, .. } => {
                let next = Version(self.version + 1);
                match self.pools.get_mut(pool) {
                    Some(view) if view.version == *version => {
                        view.status = Some(status.clone());
                        view.version = next;
                        let view = view.clone();
                        self.version += 1;
                        self.history.push(Change::Pool(Box::new(view.clone())));
                        Ok(Answer::Pool(Box::new(view)))
                    }
                    Some(_) => Err(Failure::Conflict),
                    None => Err(Failure::NotFound),
                }
            }
        }
    }

    /// Does a write of a Service.
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
                Ok(self.answer(key))
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
                        // The spec says the same from now on.
                        stored.view.request = Request::Any;
                    }
                }
                // It was among its families only because it was shown.
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
                Ok(self.answer(key))
            }
            Effect::Retract { key, uid, version, conditions } => {
                let mut stored = self.service_at(key, uid, *version)?;
                stored.view.conditions.clone_from(conditions);
                self.store(stored);
                self.writes.push("retract");
                Ok(self.answer(key))
            }
            Effect::CleanUp { key, uid, version, marks, .. } => {
                let mut stored = self.service_at(key, uid, *version)?;
                self.writes.push("clean_up");
                // Somebody else's finalizer may still hold it.
                let goes = stored.view.deleting && stored.finalizer;
                if *marks {
                    stored.view.place = Place::Status;
                    stored.view.shows.clear();
                }
                self.store(Stored { finalizer: false, ..stored });
                let answer = self.answer(key);
                if goes {
                    self.delete_service(key.as_str());
                }
                Ok(answer)
            }
            Effect::Take { .. }
            | Effect::Touch { .. }
            | Effect::Release { .. }
            | Effect::Expire { .. }
            | Effect::LookAtClaim { .. }
            | Effect::LookAtService { .. }
            | Effect::PoolStatus { .. } => unreachable!("writes no Service"),
        }
    }

    /// The Service, if it is still that one at that version.
    fn service_at(&self, key: &ObjectKey, uid: &str, version: Version) -> Result<Stored, Failure> {
        let stored = self.services.get(key).cloned().ok_or(Failure::NotFound)?;
        let same = stored.view.version == version && *stored.view.uid == *uid;
        if same { Ok(stored) } else { Err(Failure::Conflict) }
    }

    fn show(&mut self, service: &mut ServiceView, addrs: &[IpAddr]) {
        let taken = self.taken_unasked(service, addrs);
        self.wrongs.extend(taken.map(|addr| format!("{addr} taken from {}", service.key)));
        service.shows = addrs.to_vec();
    }

    /// An address that a Service would lose by showing these, though a claim names it and it agrees
    /// with all who share it.
    fn taken_unasked(&self, service: &ServiceView, next: &[IpAddr]) -> Option<IpAddr> {
        let rightly = |addr: &IpAddr| {
            let claim = self.claims.get(addr);
            claim.is_some_and(|claim| {
                claim.holder(service).is_some() && claim.clash(service).is_none()
            })
        };
        // What it asks for may come only afterwards, in another place, if it is surely its own.
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
    fn release(
        &mut self,
        known: &ClaimView,
        holder: &HolderView,
        then: &Then,
        live: Option<&ServiceView>,
    ) -> Result<Answer, Failure> {
        let marked = |stored: &Stored| stored.leftover().is_some_and(|left| left.marked);
        if self.services.get(&holder.key).is_some_and(marked) || !may_release(live, holder, known) {
            return Ok(Answer::Kept);
        }
        let addr = known.addr;
        let claim = self.claims.get(&addr).ok_or(Failure::NotFound)?;
        if claim.version != known.version || claim.uid != known.uid {
            return Err(Failure::Conflict);
        }
        let (pool, others) = (claim.pool.clone(), claim.holders_without(holder));
        if !others.is_empty() {
            self.writes.push("leave");
            return Ok(Answer::Claim(self.put_claim(addr, pool, others)));
        }
        self.writes.push("release");
        let gone = self
            .services
            .get(&holder.key)
            .is_none_or(|stored| holder.uid.as_ref().is_some_and(|old| *old != stored.view.uid));
        let reservation = match then {
            Then::Reserve(reservation) => Some(reservation),
            Then::RetainIfGone(reservation) => Some(reservation).filter(|_| gone),
            Then::Free => None,
        };
        if reservation.is_none() {
            self.delete_claim(addr);
            return Ok(Answer::Released { by: None });
        }
        self.put_claim(addr, pool, Vec::new());
        Ok(Answer::Claim(self.set_reservation(addr, reservation.cloned())))
    }
}
