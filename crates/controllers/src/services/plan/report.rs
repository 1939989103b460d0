//! What came of an effect, taken in.

use std::{net::IpAddr, time::Duration};

use super::{
    Blocked, Busy, ClaimView, Effect, Now, Planner, PoolName, Refusal, due::PROBE_TRIES, status,
};
use crate::{
    backoff::Backoff,
    call::Failure,
    engine::Report,
    event::Event,
    object::{ObjectKey, Version},
    services::effect::Answer,
};

impl Planner {
    /// Takes in what came of an effect; gives back an event that is due now.
    pub(in crate::services) fn on_report(
        &mut self,
        report: Report<Effect>,
        now: Now,
    ) -> Option<Event> {
        let Report { effect, result } = report;
        match effect {
            Effect::Take { addr, pool, holder } => {
                let open = matches!(&result, Err(Failure::Unknown(_)));
                self.on_claim_write(addr, &holder.key, result, now);
                self.uncount_unless(open, pool.as_ref(), &holder, addr);
                None
            }
            // The other holders are marked by the claim's own change.
            Effect::Touch { key, addr, pool, holders, .. } => {
                let open = matches!(&result, Err(Failure::Unknown(_)));
                self.on_claim_write(addr, &key, result, now);
                for holder in &holders {
                    self.uncount_unless(open, pool.as_ref(), holder, addr);
                }
                None
            }
            Effect::Publish { key, uid, event, .. } => {
                self.on_status_written(&key, &uid, event, result, now)
            }
            Effect::Annotate { key, event, .. } => {
                let refusal = refused(&result).map(Refusal::ServiceRefused);
                self.on_published(&key, event, refusal, result, now)
            }
            Effect::CleanUp { key, uid, version, .. }
            | Effect::Retract { key, uid, version, .. } => {
                let refused = self.on_cleaned_up(&key, version, result, now);
                refused.map(|message| refused_write(&key, &uid, message))
            }
            Effect::Release { claim, holder, .. } => {
                let addr = claim.addr;
                if matches!(result, Ok(Answer::Kept)) {
                    // What we know of the Service is out of date.
                    self.looks.entry(holder.key.clone()).or_insert(now.uptime);
                }
                let orphan = self.collecting.remove(&addr);
                let by = match &result {
                    Ok(Answer::Released { by }) => {
                        self.collected = self.collected.saturating_add(u64::from(orphan));
                        by.clone()
                    }
                    Ok(_) | Err(_) => None,
                };
                self.on_given_up(addr, claim.version, result, now);
                by.map(|uid| {
                    let message = format!("{addr} is free again");
                    status::service_event(&holder.key, &uid, false, "Released", message)
                })
            }
            Effect::Expire { addr, version, .. } => {
                self.on_given_up(addr, version, result, now);
                None
            }
            Effect::LookAtClaim { addr, known } => {
                self.on_claim_seen(addr, known, result, now);
                None
            }
            Effect::LookAtService { key, known } => {
                if matches!(result, Ok(_) | Err(Failure::NotSent)) {
                    self.tries.looks.remove(&key);
                }
                match result {
                    Ok(Answer::NoService) => {
                        self.looked_at(&key);
                        if let Some(old) =
                            known.and_then(|at| self.world.services.deleted(&key, at))
                        {
                            self.service_left(&old);
                        }
                    }
                    Ok(answer) => {
                        self.take_in_service(&key, answer);
                        self.looked_at(&key);
                    }
                    Err(Failure::NotSent) => {}
                    Err(failure) => self.look_at_service_later(&key, &failure, now),
                }
                self.end_call(&key);
                self.mark(&key);
                None
            }
            Effect::PoolStatus { pool, .. } => {
                self.pool_calls.remove(&pool);
                self.repair.told(&pool);
                self.status_dirty = true;
                match result {
                    Ok(Answer::Pool(view)) => {
                        self.tries.pools.remove(&pool);
                        if self.world.pool(&pool).is_some() {
                            self.put_pool(*view);
                        }
                    }
                    Ok(_) | Err(Failure::NotSent) => {}
                    Err(failure) => self.delay_pool_status(pool, &failure, now),
                }
                None
            }
        }
    }

    /// A claim was to be given up.
    fn on_given_up(
        &mut self,
        addr: IpAddr,
        version: Version,
        result: Result<Answer, Failure>,
        now: Now,
    ) {
        match result {
            Ok(Answer::Released { .. }) => {
                self.unblock();
                if let Some(old) = self.world.claims.deleted(&addr, version) {
                    self.claim_left(&old);
                }
                self.unbusy(addr);
            }
            // It is kept for somebody.
            Ok(Answer::Claim(claim)) => self.take_in_claim(addr, claim),
            Ok(Answer::Kept) | Err(Failure::Refused(_)) => {
                self.unbusy(addr);
                self.delay_release(addr, Duration::ZERO, now);
            }
            Err(Failure::Throttled(wait)) => {
                self.unbusy(addr);
                self.delay_release(addr, wait, now);
            }
            Err(Failure::Blocked(message)) => {
                self.unbusy(addr);
                self.delay_release(addr, Duration::ZERO, now);
                self.block(message, None);
            }
            Ok(_) | Err(Failure::NotSent) => self.unbusy(addr),
            Err(Failure::Conflict | Failure::NotFound | Failure::Exists) => {
                self.look_after_conflict(addr, now);
            }
            Err(failure @ Failure::Unknown(_)) => {
                self.look_at_claim_later(addr, &failure, None, now);
            }
        }
    }

    /// A claim was to be created or touched for a Service.
    fn on_claim_write(
        &mut self,
        addr: IpAddr,
        key: &ObjectKey,
        result: Result<Answer, Failure>,
        now: Now,
    ) {
        match result {
            Ok(Answer::Claim(claim)) => {
                self.service_delays.remove(key);
                self.unblock();
                self.take_in_claim(addr, claim);
                self.end_call(key);
            }
            Ok(_) | Err(Failure::NotSent) => {
                self.unbusy(addr);
                self.end_call(key);
            }
            // Taken by whoever was faster. Any other address will do meanwhile.
            Err(Failure::Exists | Failure::Conflict | Failure::NotFound) => {
                self.end_call(key);
                self.look_after_conflict(addr, now);
            }
            // It did not happen: there is nothing to look at.
            Err(Failure::Throttled(wait)) => {
                self.unbusy(addr);
                self.end_call(key);
                self.delay_service(key, None, wait, now);
            }
            Err(Failure::Refused(message)) => {
                self.unbusy(addr);
                self.end_call(key);
                self.delay_service(key, Some(Refusal::LedgerRefused(message)), Duration::ZERO, now);
            }
            Err(Failure::Blocked(message)) => {
                self.unbusy(addr);
                self.end_call(key);
                self.block(message.clone(), Some(key));
                self.delay_service(key, Some(Refusal::LedgerRefused(message)), Duration::ZERO, now);
            }
            // Until we know whether it happened, the Service gets no other address.
            Err(failure @ Failure::Unknown(_)) => {
                self.look_at_claim_later(addr, &failure, Some(key.clone()), now);
                return;
            }
        }
        self.mark(key);
    }

    fn on_claim_seen(
        &mut self,
        addr: IpAddr,
        known: Option<Version>,
        result: Result<Answer, Failure>,
        now: Now,
    ) {
        let for_whom = match self.world.busy.get(&addr) {
            Some(Busy::Looking { for_whom }) => for_whom.clone(),
            Some(Busy::Writing(_)) | None => None,
        };
        match result {
            Ok(Answer::Claim(claim)) => {
                self.take_in_claim(addr, claim);
                self.confirm(addr);
            }
            Ok(Answer::NoClaim) => {
                if let Some(old) = known.and_then(|at| self.world.claims.deleted(&addr, at)) {
                    self.claim_left(&old);
                }
                self.unbusy(addr);
                self.confirm(addr);
            }
            Ok(_) | Err(Failure::NotSent) => self.unbusy(addr),
            Err(failure) => {
                self.look_at_claim_later(addr, &failure, for_whom, now);
                return;
            }
        }
        if let Some(key) = for_whom {
            self.end_call(&key);
            self.ungive_everywhere(addr);
            self.recount(addr);
            if self.world.claim(addr).is_none() {
                // It did not happen. Trying again at once would hammer whatever is in trouble.
                self.delay_service(&key, None, Duration::ZERO, now);
            }
            self.mark(&key);
        }
    }

    /// A status was to be written. If it cannot be, an event is the only way to say so.
    fn on_status_written(
        &mut self,
        key: &ObjectKey,
        uid: &str,
        event: Option<Event>,
        result: Result<Answer, Failure>,
        now: Now,
    ) -> Option<Event> {
        let refused = refused(&result).filter(|_| !self.service_delays.contains_key(key));
        let told = self.on_published(key, event, None, result, now);
        told.or_else(|| Some(refused_write(key, uid, refused?)))
    }

    fn on_published(
        &mut self,
        key: &ObjectKey,
        event: Option<Event>,
        refusal: Option<Refusal>,
        result: Result<Answer, Failure>,
        now: Now,
    ) -> Option<Event> {
        self.mark(key);
        let due = match result {
            Ok(answer) => {
                // A condition about a refusal is written while the refusal lasts: its delay stays.
                let refused =
                    self.service_delays.get(key).is_some_and(|(_, refusal)| refusal.is_some());
                if !refused {
                    self.service_delays.remove(key);
                }
                self.take_in_service(key, answer);
                event
            }
            Err(Failure::Conflict | Failure::NotFound | Failure::Exists) => {
                self.looks.insert(key.clone(), now.uptime);
                None
            }
            Err(failure @ Failure::Unknown(_)) => {
                self.look_at_service_later(key, &failure, now);
                None
            }
            Err(failure @ (Failure::Refused(_) | Failure::Blocked(_) | Failure::Throttled(_))) => {
                self.delay_service(key, refusal, failure.asked_to_wait(), now);
                None
            }
            Err(Failure::NotSent) => None,
        };
        self.end_call(key);
        due
    }

    /// What was left on a Service was to be taken off it. Gives back what the API server said when it
    /// refused for the first time.
    fn on_cleaned_up(
        &mut self,
        key: &ObjectKey,
        version: Version,
        result: Result<Answer, Failure>,
        now: Now,
    ) -> Option<String> {
        let mut refused = refused(&result);
        match result {
            Ok(answer) => {
                self.clean_up_delays.remove(key);
                self.world.leftovers.deleted(key, version);
                self.repair.recheck(key);
                self.take_in_service(key, answer);
            }
            Err(Failure::NotSent) => {}
            // Where somebody was faster, the watch brings what there is now.
            Err(failure) => {
                let tries = self.clean_up_delays.get(key).map_or(0, |delay| delay.tries);
                let delay = Backoff::after(tries, now).at_least(failure.asked_to_wait(), now);
                self.clean_up_delays.insert(key.clone(), delay);
                refused = refused.filter(|_| tries == 0);
            }
        }
        self.end_call(key);
        self.mark(key);
        refused
    }

    /// The answer to a call about a claim. It may be older than what the watch told meanwhile, which
    /// the store can tell only as long as the call counts as under way.
    fn take_in_claim(&mut self, addr: IpAddr, claim: ClaimView) {
        self.put_claim(claim);
        self.unbusy(addr);
    }

    fn take_in_service(&mut self, key: &ObjectKey, answer: Answer) {
        match answer {
            // One that we do not know any more was removed by newer news. If it is back, the watch
            // will tell.
            Answer::Service(service) if self.world.services.get(key).is_some() => {
                self.put_service(service);
            }
            Answer::OtherService(version) => {
                if let Some(old) = self.world.services.remove(key, version, false) {
                    self.service_left(&old);
                }
            }
            Answer::Service(_)
            | Answer::NoService
            | Answer::Claim(_)
            | Answer::NoClaim
            | Answer::Pool(_)
            | Answer::Released { .. }
            | Answer::Kept => {}
        }
    }

    /// Leaves a Service alone for a while that grows with each failure, and for as long as the API
    /// server asked to be left alone.
    fn delay_service(
        &mut self,
        key: &ObjectKey,
        refused: Option<Refusal>,
        wait: Duration,
        now: Now,
    ) {
        let tries = self.service_delays.get(key).map_or(0, |(Backoff { tries, .. }, _)| *tries);
        let probes =
            self.blocked.as_ref().is_some_and(|blocked| blocked.probe.as_ref() == Some(key));
        let tries = if probes { tries.min(PROBE_TRIES) } else { tries };
        let delay = Backoff::after(tries, now).at_least(wait, now);
        self.service_delays.insert(key.clone(), (delay, refused));
    }

    /// A webhook refuses every write of a claim. The pools say so, and one Service keeps trying
    /// often, so that the others need not.
    fn block(&mut self, message: String, by: Option<&ObjectKey>) {
        let probe = self.blocked.take().and_then(|blocked| blocked.probe);
        // The oldest, because it is served first.
        let probes = probe.into_iter().chain(by.cloned());
        let oldest = probes.filter_map(|key| Some((self.created(&key)?, key))).min();
        self.status_dirty = true;
        self.blocked = Some(Blocked { message, probe: oldest.map(|(_, key)| key) });
    }

    /// A write of a claim went through: whatever was refused is worth another try.
    fn unblock(&mut self) {
        if self.blocked.take().is_some() {
            let services = self.service_delays.values_mut().map(|(delay, _)| delay);
            for delay in services.chain(self.release_delays.values_mut()) {
                delay.until = delay.until.map(|_| Duration::ZERO);
            }
            self.status_dirty = true;
        }
    }

    fn delay_release(&mut self, addr: IpAddr, wait: Duration, now: Now) {
        let tries = self.release_delays.get(&addr).map_or(0, |delay| delay.tries);
        self.release_delays.insert(addr, Backoff::after(tries, now).at_least(wait, now));
    }

    fn delay_pool_status(&mut self, pool: PoolName, failure: &Failure, now: Now) {
        let tries = self.tries.pools.get(&pool).copied().unwrap_or_default();
        let delay = Backoff::after(tries, now).at_least(failure.asked_to_wait(), now);
        self.tries.pools.insert(pool.clone(), delay.tries);
        let next = self.pool_next.entry(pool).or_default();
        *next = delay.until.unwrap_or_default().max(*next);
    }

    fn end_call(&mut self, key: &ObjectKey) {
        if let Some(calls) = self.calls.get_mut(key) {
            *calls = calls.saturating_sub(1);
            if *calls == 0 {
                self.calls.remove(key);
            }
        }
    }

    /// A call about the claim on an address has ended: its holders are looked at again.
    pub(super) fn unbusy(&mut self, addr: IpAddr) {
        self.world.busy.remove(&addr);
        self.world.claims.unpin(&addr);
        if self.reread.remove(&addr) {
            self.look_at_claim(addr, Duration::ZERO, None);
            return;
        }
        self.settle(addr);
        self.mark_holders(addr);
    }
}

/// What the API server said if it refused.
fn refused(result: &Result<Answer, Failure>) -> Option<String> {
    match result {
        Err(Failure::Refused(message) | Failure::Blocked(message)) => Some(message.clone()),
        Ok(_) | Err(_) => None,
    }
}

/// What to tell about a write of a Service that the API server refused.
fn refused_write(key: &ObjectKey, uid: &str, message: String) -> Event {
    let refusal = Refusal::ServiceRefused(message);
    status::service_event(key, uid, true, refusal.reason().as_str(), refusal.to_string())
}
