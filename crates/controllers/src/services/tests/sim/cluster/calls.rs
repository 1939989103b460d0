//! How the simulated API server carries out the calls of operators.

use std::net::IpAddr;

use landfall_ipam::Family;

use super::{
    super::super::{
        effect::{Answer, Effect},
        view::{Place, Request, ServiceView},
        wish::may_release,
    },
    Change, Cluster, Stored, backwards,
};
use crate::{
    call::Failure,
    ledger::{self, Claim, HolderEntry, Then, Write},
    object::{ObjectKey, Version},
};

impl Cluster {
    /// Carries out a call as the API server would. A release is two calls; `read` is the first one's result.
    pub(in crate::services::tests::sim) fn call(
        &mut self,
        effect: &Effect,
        read: Option<&[ServiceView]>,
    ) -> Result<Answer, Failure> {
        match effect {
            Effect::Claim { write, .. } => self.write(write).map(Answer::Ledger),
            Effect::Publish { .. }
            | Effect::Annotate { .. }
            | Effect::CleanUp { .. }
            | Effect::Retract { .. } => self.call_on_service(effect),
            Effect::Release { claim, holder, then, annotated, .. } => {
                let live = read.and_then(<[_]>::first).cloned();
                let live =
                    live.map(|live| if *annotated { live } else { live.without_annotation() });
                self.release(claim, holder, then, live.as_ref()).map(Answer::Ledger)
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

    /// Carries out a call about a claim.
    fn write(&mut self, write: &Write) -> Result<ledger::Answer, Failure> {
        let addr = write.addr();
        let known = self.claims.get(&addr);
        match write {
            Write::Take { .. } if known.is_some() => Err(Failure::Exists),
            Write::Take { claim } => {
                self.writes.push("take");
                Ok(ledger::Answer::Claim(self.put_claim(claim.clone())))
            }
            Write::Touch { claim } => {
                let before = known.ok_or(Failure::NotFound)?;
                if before.version != claim.version {
                    return Err(Failure::Conflict);
                }
                let back = backwards(before, claim.services());
                self.wrongs.extend(back.map(|key: ObjectKey| format!("{key} seen backwards")));
                self.writes.push("touch");
                Ok(ledger::Answer::Claim(self.put_claim(claim.clone())))
            }
            Write::Expire { uid, version, .. } => {
                let claim = known.ok_or(Failure::NotFound)?;
                if claim.version != *version || claim.uid != *uid {
                    return Err(Failure::Conflict);
                }
                self.writes.push("expire");
                self.delete_claim(addr);
                Ok(ledger::Answer::Released { by: None })
            }
            Write::Read { .. } => {
                Ok(known.cloned().map_or(ledger::Answer::NoClaim, ledger::Answer::Claim))
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
                // Another program's finalizer may still hold it.
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
            Effect::Claim { .. }
            | Effect::Release { .. }
            | Effect::LookAtService { .. }
            | Effect::PoolStatus { .. } => unreachable!("writes no Service"),
        }
    }

    /// The Service, if it still has that uid and version.
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

    /// An address that a Service would lose by showing these, though a claim names it and it agrees with all
    /// holders that share it.
    fn taken_unasked(&self, service: &ServiceView, next: &[IpAddr]) -> Option<IpAddr> {
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
    fn release(
        &mut self,
        known: &Claim,
        holder: &HolderEntry,
        then: &Then,
        live: Option<&ServiceView>,
    ) -> Result<ledger::Answer, Failure> {
        let marked = |stored: &Stored| stored.leftover().is_some_and(|left| left.marked);
        if self.services.get(&holder.key).is_some_and(marked) || !may_release(live, holder, known) {
            return Ok(ledger::Answer::Kept);
        }
        let addr = known.addr;
        let claim = self.claims.get(&addr).ok_or(Failure::NotFound)?;
        if claim.version != known.version || claim.uid != known.uid {
            return Err(Failure::Conflict);
        }
        let gone = self
            .services
            .get(&holder.key)
            .is_none_or(|stored| holder.uid.as_ref().is_some_and(|old| *old != stored.view.uid));
        let then = match then {
            Then::RetainIfGone(_) if !gone => &Then::Free,
            Then::Free | Then::Reserve(_) | Then::RetainIfGone(_) => then,
        };
        let Some(left) = then.leaves(known, holder) else {
            self.writes.push("release");
            self.delete_claim(addr);
            return Ok(ledger::Answer::Released { by: None });
        };
        self.writes.push(if left.services().is_empty() { "release" } else { "leave" });
        Ok(ledger::Answer::Claim(self.put_claim(left)))
    }
}
