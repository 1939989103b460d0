//! Conditions: what an object says about itself.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Status {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Not known yet.
    Unknown,
}

impl Status {
    /// The word in `status` of a condition.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// The condition of this type, if it is there.
pub fn get<'a>(all: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    all.iter().find(|condition| condition.type_ == type_)
}

/// Sets one condition and says whether anything changed; `lastTransitionTime` moves only when
/// `status` flips.
///
/// `now` is an argument, not a call: equal inputs give an equal status, so a round that changes
/// nothing sends no patch, and a test needs no clock. It is cut to whole seconds, which is all
/// that survives a trip through the API server.
pub fn set(
    all: &mut Vec<Condition>,
    type_: &str,
    status: Status,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) -> bool {
    let mut next = Condition {
        last_transition_time: Time(whole_seconds(now)),
        message: message.to_owned(),
        observed_generation: generation,
        reason: reason.to_owned(),
        status: status.as_str().to_owned(),
        type_: type_.to_owned(),
    };
    let Some(old) = all.iter_mut().find(|old| old.type_ == next.type_) else {
        all.push(next);
        return true;
    };
    if old.status == next.status {
        next.last_transition_time = old.last_transition_time.clone();
    }
    let changed = *old != next;
    *old = next; // in place: the order users see stays the same
    changed
}

/// Takes a condition away and says whether it was there.
pub fn remove(all: &mut Vec<Condition>, type_: &str) -> bool {
    let before = all.len();
    all.retain(|condition| condition.type_ != type_);
    all.len() != before
}

fn whole_seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// One condition, set at second 10.
    fn ready() -> Vec<Condition> {
        let mut all = Vec::new();
        assert!(set(&mut all, "Ready", Status::True, "Serving", "fine", Some(1), at(10)));
        all
    }

    #[test]
    fn transition_time_moves_only_when_the_status_flips() {
        type Case = (&'static str, Status, &'static str, &'static str, i64, bool, i64);
        let cases: [Case; 6] = [
            ("nothing new", Status::True, "Serving", "fine", 1, false, 10),
            ("another message", Status::True, "Serving", "still fine", 1, true, 10),
            ("another reason", Status::True, "Draining", "fine", 1, true, 10),
            ("another generation", Status::True, "Serving", "fine", 2, true, 10),
            ("false", Status::False, "Serving", "fine", 1, true, 20),
            ("unknown", Status::Unknown, "Serving", "fine", 1, true, 20),
        ];
        for (case, status, reason, message, generation, changed, since) in cases {
            let mut all = ready();
            assert_eq!(
                set(&mut all, "Ready", status, reason, message, Some(generation), at(20)),
                changed,
                "{case}"
            );
            let now = get(&all, "Ready").unwrap();
            assert_eq!(now.last_transition_time, Time(at(since)), "{case}");
            assert_eq!((now.status.as_str(), now.message.as_str()), (status.as_str(), message));
            assert_eq!((now.reason.as_str(), now.observed_generation), (reason, Some(generation)));
        }
    }

    #[test]
    fn conditions_of_other_types_and_the_order_stay() {
        let mut all = ready();
        set(&mut all, "Other", Status::False, "No", "", None, at(11));
        let other = all[1].clone();
        set(&mut all, "Ready", Status::False, "Broken", "", None, at(12));
        assert_eq!(all.iter().map(|c| c.type_.as_str()).collect::<Vec<_>>(), ["Ready", "Other"]);
        assert_eq!(all[1], other);
        assert!(remove(&mut all, "Ready"));
        assert!(!remove(&mut all, "Ready"));
        assert_eq!(all, [other]);
    }

    #[test]
    fn a_condition_read_back_from_the_api_server_is_equal() {
        let mut all = Vec::new();
        let now: Timestamp = "2026-11-15T22:10:44.987654Z".parse().unwrap();
        set(&mut all, "Ready", Status::True, "Serving", "", None, now);
        let read: Vec<Condition> =
            serde_json::from_value(serde_json::to_value(&all).unwrap()).unwrap();
        assert_eq!(read, all);
    }
}
