//! A plan for a bad network: a seed decides which request suffers which fault.

use std::time::Duration;

use http::StatusCode;

use super::{Action, Record};
use crate::random::Random;

/// How often each fault happens: once in this many requests that it applies to, and never for 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// A write is refused with 409, 410, 429, 500 or 504, and is not done.
    pub refused: usize,
    /// A write is done and then answered with 504.
    pub denied: usize,
    /// A write is done, and the connection is cut instead of a reply.
    pub lost: usize,
    /// The connection is cut in the middle of the answer to a write, a read or a watch.
    pub halved: usize,
    /// A write or a single read is delayed.
    pub delayed: usize,
    /// A single read, with which an operator finds out the outcome of a write, fails.
    pub unreadable: usize,
    /// A watch delivers every event late, each watch by its own delay; so news of one kind overtakes that of
    /// another.
    pub held: usize,
    /// A watch is refused because its version is too old, as a status or as an event.
    pub expired: usize,
    /// A list is answered with an earlier answer and its old version.
    pub stale: usize,
}

impl Rates {
    /// Everything at once, but rare enough that work still gets done.
    pub const BAD: Self = Self {
        refused: 10,
        denied: 40,
        lost: 20,
        halved: 20,
        delayed: 10,
        unreadable: 8,
        held: 2,
        expired: 5,
        stale: 2,
    };
}

/// The longest delay of a watch.
const LONGEST_HOLD: usize = 5_000;
const LONGEST_DELAY: usize = 300;
const REFUSALS: [StatusCode; 5] = [
    StatusCode::CONFLICT,
    StatusCode::GONE,
    StatusCode::TOO_MANY_REQUESTS,
    StatusCode::INTERNAL_SERVER_ERROR,
    StatusCode::GATEWAY_TIMEOUT,
];

/// A source of faults; equal seeds harm equal sequences of requests in the same way.
#[derive(Clone, Debug)]
pub struct Plan {
    random: Random,
    rates: Rates,
}

impl Plan {
    pub fn new(seed: u64, rates: Rates) -> Self {
        Self { random: Random::new(seed), rates }
    }

    /// What happens to the next request.
    pub fn action(&mut self, request: &Record) -> Option<Action> {
        let Rates { refused, denied, lost, halved, delayed, unreadable, held, expired, stale } =
            self.rates;
        let random = &mut self.random;
        if request.is_watch() {
            return if random.once_in(expired) {
                let as_event = random.once_in(2);
                Some(if as_event { Action::Expire } else { Action::Answer(StatusCode::GONE) })
            } else if random.once_in(halved) {
                Some(Action::HalveReply)
            } else {
                let time = milliseconds(random, LONGEST_HOLD);
                random.once_in(held).then_some(Action::HoldStream(time))
            };
        }
        if request.is_list() {
            // A list with limit 1 asks for the version of the store, and no cache answers that.
            if stale == 0 || request.query.split('&').any(|part| part == "limit=1") {
                return None;
            }
            let replay = random.once_in(stale);
            return Some(if replay { Action::ReplayList } else { Action::RememberList });
        }
        if request.is_write() {
            if random.once_in(refused) {
                return Some(Action::Answer(*random.pick(&REFUSALS)));
            }
            if random.once_in(denied) {
                return Some(Action::Deny(StatusCode::GATEWAY_TIMEOUT));
            }
            if random.once_in(lost) {
                return Some(Action::LoseReply);
            }
        } else if random.once_in(unreadable) {
            return Some(Action::Answer(*random.pick(&REFUSALS)));
        }
        if random.once_in(halved) {
            return Some(Action::HalveReply);
        }
        let time = milliseconds(random, LONGEST_DELAY);
        random.once_in(delayed).then_some(Action::Delay(time))
    }
}

fn milliseconds(random: &mut Random, most: usize) -> Duration {
    Duration::from_millis(random.below(most) as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use http::Method;

    use super::*;
    use crate::proxy::tests::record;

    fn request(method: Method, path: &str, query: &str) -> Record {
        Record { method, query: query.into(), ..record(path) }
    }

    #[test]
    fn every_fault_happens_and_only_where_it_belongs() {
        let mut plan = Plan::new(1, Rates::BAD);
        let mut seen = |request: &Record| -> BTreeSet<_> {
            (0..2000)
                .filter_map(|_| plan.action(request))
                .map(|action| action.to_string())
                .collect()
        };
        let names = |all: &[&str]| all.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        let refusals =
            ["answered 409", "answered 410", "answered 429", "answered 500", "answered 504"];
        let write = request(Method::POST, "/apis/paas.org/v1/ips", "");
        let done = ["done, then answered 504", "reply lost", "reply cut", "delayed"];
        assert_eq!(seen(&write), names(&[&refusals[..], &done].concat()));
        let read = request(Method::GET, "/apis/paas.org/v1/ips/10.0.0.1", "");
        assert_eq!(seen(&read), names(&[&refusals[..], &["reply cut", "delayed"]].concat()));
        let list = request(Method::GET, "/apis/paas.org/v1/ips", "limit=500");
        assert_eq!(seen(&list), names(&["stale list", "list remembered"]));
        let watch = request(Method::GET, "/apis/paas.org/v1/ips", "watch=true");
        let held = ["answered 410", "watch expired", "reply cut", "watch held back"];
        assert_eq!(seen(&watch), names(&held));
    }

    #[test]
    fn without_rates_nothing_happens_and_equal_seeds_do_the_same() {
        let write = request(Method::PATCH, "/api/v1/namespaces/a/services/b/status", "");
        let acts = |seed, rates| {
            let mut plan = Plan::new(seed, rates);
            (0..200).map(|_| plan.action(&write)).collect::<Vec<_>>()
        };
        assert!(acts(1, Rates::default()).iter().all(Option::is_none));
        assert_eq!(acts(1, Rates::BAD), acts(1, Rates::BAD));
        assert_ne!(acts(1, Rates::BAD), acts(2, Rates::BAD));
    }
}
