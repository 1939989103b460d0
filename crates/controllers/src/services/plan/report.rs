//! Takes in the reports of effects.

use std::time::Duration;

use landfall_api::{HolderKind, text};

use super::{Effect, Refusal, Round, Write, due::PROBE_TRIES, status};
use crate::{
    backoff::Backoff,
    call::Failure,
    engine::Report,
    event::Event,
    ledger::{self, HolderRef, Outcome},
    object::ObjectKey,
    services::effect::Answer,
};

impl Round<'_> {
    /// Takes in the report of an effect. The engine has taken in already what the answer shows.
    pub(super) fn on_report(&mut self, report: Report<Effect>) {
        let Report { effect, result } = report;
        let event = match effect {
            Effect::Claim { write, service } => {
                self.on_claim_written(&write, service, of_ledger(result));
                None
            }
            Effect::Publish { key, uid, event, .. } => {
                self.on_status_written(&key, &uid, event, result)
            }
            Effect::Annotate { key, event, .. } => {
                let refusal = refused(&result).map(Refusal::HolderRefused);
                self.on_published(&key, event, refusal, result)
            }
            Effect::CleanUp { key, uid, .. } | Effect::SetConditions { key, uid, .. } => {
                let refused = self.on_cleaned_up(&key, result);
                refused.map(|message| refused_write(&key, &uid, message))
            }
            Effect::Release { claim, holder, orphaned, .. } => {
                let addr = claim.addr;
                let result = of_ledger(result);
                let released_by = match &result {
                    Ok(ledger::Answer::Released { by }) => {
                        self.own.repair.count_collected(orphaned);
                        by.clone()
                    }
                    Ok(_) | Err(_) => None,
                };
                let outcome = self.ledger.release_ended(addr, claim.version, result, self.now);
                self.on_ledger_changes();
                if outcome == Outcome::Kept {
                    // Our view of the Service is out of date.
                    self.own.progress.read_at(&holder.key, self.now.uptime);
                }
                released_by.map(|uid| {
                    let message = format!("{addr} is free again");
                    status::service_event(&holder.key, &uid, false, "Released", message)
                })
            }
            Effect::LookAtService { key, .. } => {
                if matches!(result, Ok(_) | Err(Failure::NotSent)) {
                    self.own.progress.forget_failed_reads(&key);
                }
                match result {
                    Ok(_) => self.looked_at(&key),
                    Err(Failure::NotSent) => {}
                    Err(failure) => self.own.progress.read_later(&key, &failure, self.now),
                }
                self.own.progress.end_call(&key);
                self.mark(&key);
                None
            }
            Effect::PoolStatus { pool, .. } => {
                self.own.statuses.written(&pool, result.err().as_ref(), self.now);
                self.own.repair.told(&pool);
                None
            }
        };
        self.out.events.extend(event);
    }

    /// A write of a claim has ended, perhaps on behalf of a Service.
    fn on_claim_written(
        &mut self,
        write: &Write,
        service: Option<ObjectKey>,
        result: Result<ledger::Answer, Failure>,
    ) {
        let for_whom = service.as_ref().map(HolderRef::service);
        let outcome = self.ledger.written(write, for_whom, result, self.now);
        self.on_ledger_changes();
        let Some(key) = service else { return };
        match outcome {
            // Until the outcome is known, the Service gets no other address.
            Outcome::Unknown => return,
            Outcome::Done => self.own.progress.end_write_delay(&key),
            // The Service may take another address meanwhile.
            Outcome::Conflict | Outcome::Nothing | Outcome::Read | Outcome::Kept => {}
            Outcome::Refused(failure) => {
                if matches!(failure, Failure::Blocked(_)) {
                    self.probe_with(&key);
                }
                let refused = failure.refusal().map(str::to_owned).map(Refusal::LedgerRefused);
                self.delay_service(&key, refused, failure.asked_to_wait());
            }
        }
        self.own.progress.end_call(&key);
        self.mark(&key);
    }

    /// A status write has ended. If it failed, an event is the only way to report that.
    fn on_status_written(
        &mut self,
        key: &ObjectKey,
        uid: &str,
        event: Option<Event>,
        result: Result<Answer, Failure>,
    ) -> Option<Event> {
        let refused = refused(&result).filter(|_| self.own.progress.write_delay(key).is_none());
        let told = self.on_published(key, event, None, result);
        told.or_else(|| Some(refused_write(key, uid, refused?)))
    }

    fn on_published(
        &mut self,
        key: &ObjectKey,
        event: Option<Event>,
        refusal: Option<Refusal>,
        result: Result<Answer, Failure>,
    ) -> Option<Event> {
        self.mark(key);
        let due = match result {
            Ok(_) => {
                // A condition about a refusal is written while the refusal lasts, so its delay stays.
                let refused = self
                    .own
                    .progress
                    .write_delay(key)
                    .is_some_and(|(_, refusal)| refusal.is_some());
                if !refused {
                    self.own.progress.end_write_delay(key);
                }
                event
            }
            Err(Failure::Conflict | Failure::NotFound | Failure::Exists) => {
                self.own.progress.read_at(key, self.now.uptime);
                None
            }
            Err(failure @ Failure::Unknown(_)) => {
                self.own.progress.read_later(key, &failure, self.now);
                None
            }
            Err(failure @ (Failure::Refused(_) | Failure::Blocked(_) | Failure::Throttled(_))) => {
                self.delay_service(key, refusal, failure.asked_to_wait());
                None
            }
            Err(Failure::NotSent) => None,
        };
        self.own.progress.end_call(key);
        due
    }

    /// An attempt to remove leftovers from a Service has ended. Returns the API server's message when
    /// it refuses for the first time.
    fn on_cleaned_up(
        &mut self,
        key: &ObjectKey,
        result: Result<Answer, Failure>,
    ) -> Option<String> {
        let mut refused = refused(&result);
        match result {
            Ok(_) => {
                self.own.progress.set_clean_up_delay(key, None);
                self.own.repair.recheck(key);
            }
            Err(Failure::NotSent) => {}
            // After a conflict the watch brings the present state.
            Err(failure) => {
                let tries = self.own.progress.clean_up_delay(key).map_or(0, |delay| delay.tries);
                let delay =
                    Backoff::after(tries, self.now).at_least(failure.asked_to_wait(), self.now);
                self.own.progress.set_clean_up_delay(key, Some(delay));
                refused = refused.filter(|_| tries == 0);
            }
        }
        self.own.progress.end_call(key);
        self.mark(key);
        refused
    }

    /// Delays a Service by a time that grows with each failure, and by no less than the API server
    /// asked for.
    pub(super) fn delay_service(
        &mut self,
        key: &ObjectKey,
        refused: Option<Refusal>,
        wait: Duration,
    ) {
        let tries = self.own.progress.write_delay(key).map_or(0, |(delay, _)| delay.tries);
        let probes = self.own.probe.as_ref() == Some(key);
        let tries = if probes { tries.min(PROBE_TRIES) } else { tries };
        let delay = Backoff::after(tries, self.now).at_least(wait, self.now);
        self.own.progress.delay_writes(key, delay, refused);
    }

    /// A webhook refuses every write of a claim, this Service's among them. One Service keeps retrying
    /// often, so that the others need not: the oldest, because it is served first.
    fn probe_with(&mut self, key: &ObjectKey) {
        let probes = self.own.probe.take().into_iter().chain([key.clone()]);
        let oldest = probes.filter_map(|key| Some((self.created(&key)?, key))).min();
        self.own.probe = oldest.map(|(_, key)| key);
    }
}

/// The answer to a call about a claim.
fn of_ledger(result: Result<Answer, Failure>) -> Result<ledger::Answer, Failure> {
    match result {
        Ok(Answer::Ledger(answer)) => Ok(answer),
        Ok(Answer::Seen(_)) => Err(Failure::Unknown("the answer is about no claim".to_owned())),
        Err(failure) => Err(failure),
    }
}

/// The API server's message if it refused.
fn refused(result: &Result<Answer, Failure>) -> Option<String> {
    result.as_ref().err()?.refusal().map(str::to_owned)
}

/// The event about a write of a Service that the API server refused.
fn refused_write(key: &ObjectKey, uid: &str, message: String) -> Event {
    let refusal = Refusal::HolderRefused(message);
    let text = text::refusal(HolderKind::Service, &refusal);
    status::service_event(key, uid, true, refusal.reason().as_str(), text)
}
