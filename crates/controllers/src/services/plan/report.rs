//! Takes in the reports of effects.

use std::time::Duration;

use landfall_api::{HolderKind, text};

use super::{Blocked, Effect, Now, Planner, PoolName, Refusal, Write, due::PROBE_TRIES, status};
use crate::{
    backoff::Backoff,
    call::Failure,
    engine::Report,
    event::Event,
    ledger::{self, HolderRef, Outcome},
    object::{ObjectKey, Version},
    services::effect::Answer,
};

impl Planner {
    /// Takes in the report of an effect; returns an event that is due now.
    pub(in crate::services) fn on_report(
        &mut self,
        report: Report<Effect>,
        now: Now,
    ) -> Option<Event> {
        let Report { effect, result } = report;
        match effect {
            Effect::Claim { write, service } => {
                self.on_claim_written(&write, service, of_ledger(result), now);
                None
            }
            Effect::Publish { key, uid, event, .. } => {
                self.on_status_written(&key, &uid, event, result, now)
            }
            Effect::Annotate { key, event, .. } => {
                let refusal = refused(&result).map(Refusal::HolderRefused);
                self.on_published(&key, event, refusal, result, now)
            }
            Effect::CleanUp { key, uid, version, .. }
            | Effect::Retract { key, uid, version, .. } => {
                let refused = self.on_cleaned_up(&key, version, result, now);
                refused.map(|message| refused_write(&key, &uid, message))
            }
            Effect::Release { claim, holder, orphaned, .. } => {
                let addr = claim.addr;
                let result = of_ledger(result);
                let released_by = match &result {
                    Ok(ledger::Answer::Released { by }) => {
                        self.collected = self.collected.saturating_add(u64::from(orphaned));
                        by.clone()
                    }
                    Ok(_) | Err(_) => None,
                };
                let outcome = self.world.ledger.given_up(addr, claim.version, result, now);
                self.on_ledger_changes();
                if outcome == Outcome::Kept {
                    // Our view of the Service is out of date.
                    self.progress.read_at(&holder.key, now.uptime);
                }
                self.on_given_up(outcome);
                released_by.map(|uid| {
                    let message = format!("{addr} is free again");
                    status::service_event(&holder.key, &uid, false, "Released", message)
                })
            }
            Effect::LookAtService { key, known } => {
                if matches!(result, Ok(_) | Err(Failure::NotSent)) {
                    self.progress.forget_failed_reads(&key);
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
                    Err(failure) => self.progress.read_later(&key, &failure, now),
                }
                self.progress.end_call(&key);
                self.mark(&key);
                None
            }
            Effect::PoolStatus { pool, .. } => {
                if let Some(status) = self.pool_statuses.get_mut(&pool) {
                    status.in_flight = false;
                    if result.is_ok() {
                        status.failed = 0;
                    }
                }
                self.repair.told(&pool);
                self.status_dirty = true;
                match result {
                    Ok(Answer::Pool(view)) => {
                        if self.world.pool(&pool).is_some() {
                            self.put_pool(*view);
                        }
                    }
                    Ok(_) | Err(Failure::NotSent) => {}
                    Err(failure) => self.delay_pool_status(&pool, &failure, now),
                }
                None
            }
        }
    }

    /// The release of a claim has ended.
    fn on_given_up(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Done => self.unblock(),
            Outcome::Refused(Failure::Blocked(message)) => self.block(message, None),
            Outcome::Refused(_)
            | Outcome::Conflict
            | Outcome::Nothing
            | Outcome::Unknown
            | Outcome::Read(_)
            | Outcome::Kept => {}
        }
    }

    /// A read or write of a claim has ended, perhaps on behalf of a Service.
    fn on_claim_written(
        &mut self,
        write: &Write,
        service: Option<ObjectKey>,
        result: Result<ledger::Answer, Failure>,
        now: Now,
    ) {
        let for_whom = service.as_ref().map(HolderRef::service);
        let outcome = self.world.ledger.written(write, for_whom, result, now);
        self.on_ledger_changes();
        if let Outcome::Read(for_whom) = outcome {
            self.confirm(write.addr());
            if let Some(waiter) = for_whom {
                self.progress.end_call(&waiter.key);
                if self.world.claim(write.addr()).is_none() {
                    // The take did not happen. An immediate retry could hammer a server in trouble.
                    self.delay_service(&waiter.key, None, Duration::ZERO, now);
                }
                self.mark(&waiter.key);
            }
            return;
        }
        let Some(key) = service else {
            self.on_given_up(outcome);
            return;
        };
        match outcome {
            // Until the outcome is known, the Service gets no other address.
            Outcome::Unknown => return,
            Outcome::Done => {
                self.progress.end_write_delay(&key);
                self.unblock();
            }
            // The Service may take another address meanwhile.
            Outcome::Conflict | Outcome::Nothing | Outcome::Read(_) | Outcome::Kept => {}
            Outcome::Refused(failure) => {
                let wait = failure.asked_to_wait();
                let refused = match failure {
                    Failure::Refused(message) => Some(Refusal::LedgerRefused(message)),
                    Failure::Blocked(message) => {
                        self.block(message.clone(), Some(&key));
                        Some(Refusal::LedgerRefused(message))
                    }
                    Failure::Exists
                    | Failure::Conflict
                    | Failure::NotFound
                    | Failure::Throttled(_)
                    | Failure::Unknown(_)
                    | Failure::NotSent => None,
                };
                self.delay_service(&key, refused, wait, now);
            }
        }
        self.progress.end_call(&key);
        self.mark(&key);
    }

    /// A status write has ended. If it failed, an event is the only way to report that.
    fn on_status_written(
        &mut self,
        key: &ObjectKey,
        uid: &str,
        event: Option<Event>,
        result: Result<Answer, Failure>,
        now: Now,
    ) -> Option<Event> {
        let refused = refused(&result).filter(|_| self.progress.write_delay(key).is_none());
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
                // A condition about a refusal is written while the refusal lasts, so its delay stays.
                let refused =
                    self.progress.write_delay(key).is_some_and(|(_, refusal)| refusal.is_some());
                if !refused {
                    self.progress.end_write_delay(key);
                }
                self.take_in_service(key, answer);
                event
            }
            Err(Failure::Conflict | Failure::NotFound | Failure::Exists) => {
                self.progress.read_at(key, now.uptime);
                None
            }
            Err(failure @ Failure::Unknown(_)) => {
                self.progress.read_later(key, &failure, now);
                None
            }
            Err(failure @ (Failure::Refused(_) | Failure::Blocked(_) | Failure::Throttled(_))) => {
                self.delay_service(key, refusal, failure.asked_to_wait(), now);
                None
            }
            Err(Failure::NotSent) => None,
        };
        self.progress.end_call(key);
        due
    }

    /// An attempt to remove leftovers from a Service has ended. Returns the API server's message when
    /// it refuses for the first time.
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
                self.progress.set_clean_up_delay(key, None);
                self.world.leftovers.deleted(key, version);
                self.repair.recheck(key);
                self.take_in_service(key, answer);
            }
            Err(Failure::NotSent) => {}
            // After a conflict the watch brings the present state.
            Err(failure) => {
                let tries = self.progress.clean_up_delay(key).map_or(0, |delay| delay.tries);
                let delay = Backoff::after(tries, now).at_least(failure.asked_to_wait(), now);
                self.progress.set_clean_up_delay(key, Some(delay));
                refused = refused.filter(|_| tries == 0);
            }
        }
        self.progress.end_call(key);
        self.mark(key);
        refused
    }

    fn take_in_service(&mut self, key: &ObjectKey, answer: Answer) {
        match answer {
            // A Service that is no longer known was removed by newer news. If it is back, the watch
            // will show it.
            Answer::Service(service) if self.world.services.get(key).is_some() => {
                self.put_service(service);
            }
            Answer::OtherService(version) => {
                if let Some(old) = self.world.services.remove(key, version, false) {
                    self.service_left(&old);
                }
            }
            Answer::Service(_) | Answer::NoService | Answer::Ledger(_) | Answer::Pool(_) => {}
        }
    }

    /// Delays a Service by a time that grows with each failure, and by no less than the API server
    /// asked for.
    fn delay_service(
        &mut self,
        key: &ObjectKey,
        refused: Option<Refusal>,
        wait: Duration,
        now: Now,
    ) {
        let tries = self.progress.write_delay(key).map_or(0, |(delay, _)| delay.tries);
        let probes =
            self.blocked.as_ref().is_some_and(|blocked| blocked.probe.as_ref() == Some(key));
        let tries = if probes { tries.min(PROBE_TRIES) } else { tries };
        let delay = Backoff::after(tries, now).at_least(wait, now);
        self.progress.delay_writes(key, delay, refused);
    }

    /// A webhook refuses every write of a claim. The pools say so, and one Service keeps retrying
    /// often, so that the others need not.
    fn block(&mut self, message: String, by: Option<&ObjectKey>) {
        let probe = self.blocked.take().and_then(|blocked| blocked.probe);
        // The oldest, because it is served first.
        let probes = probe.into_iter().chain(by.cloned());
        let oldest = probes.filter_map(|key| Some((self.created(&key)?, key))).min();
        self.status_dirty = true;
        self.blocked = Some(Blocked { message, probe: oldest.map(|(_, key)| key) });
    }

    /// A write of a claim succeeded: every refused write is worth another try.
    fn unblock(&mut self) {
        if self.blocked.take().is_some() {
            self.progress.retry_writes();
            self.world.ledger.retry_releases();
            self.status_dirty = true;
        }
    }

    fn delay_pool_status(&mut self, pool: &PoolName, failure: &Failure, now: Now) {
        let Some(status) = self.pool_statuses.get_mut(pool) else { return };
        let delay = Backoff::after(status.failed, now).at_least(failure.asked_to_wait(), now);
        status.failed = delay.tries;
        status.next = delay.until.unwrap_or_default().max(status.next);
    }
}

/// The answer to a call about a claim.
fn of_ledger(result: Result<Answer, Failure>) -> Result<ledger::Answer, Failure> {
    match result {
        Ok(Answer::Ledger(answer)) => Ok(answer),
        Ok(Answer::Service(_) | Answer::OtherService(_) | Answer::NoService | Answer::Pool(_)) => {
            Err(Failure::Unknown("the answer is about no claim".to_owned()))
        }
        Err(failure) => Err(failure),
    }
}

/// The API server's message if it refused.
fn refused(result: &Result<Answer, Failure>) -> Option<String> {
    match result {
        Err(Failure::Refused(message) | Failure::Blocked(message)) => Some(message.clone()),
        Ok(_) | Err(_) => None,
    }
}

/// The event about a write of a Service that the API server refused.
fn refused_write(key: &ObjectKey, uid: &str, message: String) -> Event {
    let refusal = Refusal::HolderRefused(message);
    let text = text::refusal(HolderKind::Service, &refusal);
    status::service_event(key, uid, true, refusal.reason().as_str(), text)
}
