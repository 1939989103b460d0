//! The texts of a Service's condition, a pool's status, and events about both.

use std::{
    collections::BTreeSet,
    hash::{Hash, Hasher},
    net::IpAddr,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{ConfigMap, ObjectReference, Service},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use landfall_api::{
    FamilyCount, IPGroup, IPGroupStatus, WaitingService,
    condition::{self, Status},
    keys::{CONDITION_ALLOCATED, CONDITION_CONSISTENT, CONDITION_OVERLAPS, CONDITION_READY},
};
use landfall_ipam::{Book, Family, PoolCount, PoolName, Reason};

use super::{
    explain::{ALLOCATED, ALSO_SHOWN, Explanation, Outcome},
    plan::summary,
    repair::Found,
    waiting::Waiting,
};
use crate::{
    cluster::{
        pool::{PoolSource, PoolView},
        service::Balancer,
    },
    event::{self, Event},
    object::ObjectKey,
};

/// The reason of a pool that serves without some of its entries, which cannot be read.
const PARTLY_READ: &str = "PartlyRead";
/// How many other pools a condition names.
const POOLS_NAMED: usize = 8;
/// The API server takes no condition message longer than this.
const LONGEST_MESSAGE: usize = 2048;

/// The content of a Service's condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConditionText {
    status: Status,
    reason: String,
    message: String,
}

/// By cause: that other Services show an address is one cause, whichever Services they are.
impl Hash for ConditionText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let about_others = self.reason == ALSO_SHOWN;
        (self.status.as_str(), &self.reason).hash(state);
        (!about_others).then_some(&self.message).hash(state);
    }
}

impl From<Explanation> for ConditionText {
    fn from(explanation: Explanation) -> Self {
        let has_all = explanation.outcome == Outcome::Allocated;
        Self {
            status: if has_all { Status::True } else { Status::False },
            reason: explanation.reason,
            message: bounded(explanation.message),
        }
    }
}

impl ConditionText {
    /// Whether it says no more than that the Service has what it wants.
    pub(super) fn is_plain(&self) -> bool {
        self.status == Status::True && self.reason == ALLOCATED
    }

    /// Sets it among the Service's conditions; returns whether that changes anything.
    pub(super) fn write(&self, conditions: &mut Vec<Condition>, now: Timestamp) -> bool {
        let (reason, message) = (&self.reason, &self.message);
        condition::set(conditions, CONDITION_ALLOCATED, self.status, reason, message, None, now)
    }

    /// The event about it: only a change of status or reason is news.
    pub(super) fn event(&self, service: &Balancer) -> Option<Event> {
        let before = condition::get(&service.conditions, CONDITION_ALLOCATED);
        let same = before.is_some_and(|before| {
            before.status == self.status.as_str() && before.reason == self.reason
        });
        (!same).then(|| {
            let warning = self.status == Status::False;
            service_event(&service.key, &service.uid, warning, &self.reason, self.message.clone())
        })
    }
}

/// Conditions without ours, if it is among them.
pub(super) fn without_ours(conditions: &[Condition]) -> Option<Vec<Condition>> {
    condition::get(conditions, CONDITION_ALLOCATED)?;
    let others = conditions.iter().filter(|one| one.type_ != CONDITION_ALLOCATED);
    Some(others.cloned().collect())
}

/// The event that repeats why a Service waits.
pub(super) fn reminder(service: &Balancer) -> Option<Event> {
    let said = condition::get(&service.conditions, CONDITION_ALLOCATED)?;
    (said.status == Status::False.as_str()).then(|| {
        service_event(&service.key, &service.uid, true, &said.reason, said.message.clone())
    })
}

/// An event about a Service.
pub(super) fn service_event(
    key: &ObjectKey,
    uid: &str,
    warning: bool,
    reason: &str,
    message: String,
) -> Event {
    let about = event::about::<Service>(Some(key.namespace()), key.name(), uid);
    event(about, warning, reason, message)
}

/// An event about a pool, on the object that the pool is read from.
pub(super) fn pool_event(view: &PoolView, reason: &str, message: String) -> Event {
    event(about_pool(view), true, reason, message)
}

/// The object that a pool is read from.
pub(super) fn about_pool(view: &PoolView) -> ObjectReference {
    match view.source {
        PoolSource::IpGroups => event::about::<IPGroup>(None, &view.object, &view.uid),
        PoolSource::ConfigMap => {
            let (namespace, name) =
                view.object.split_once('/').unwrap_or(("default", &view.object));
            event::about::<ConfigMap>(Some(namespace), name, &view.uid)
        }
    }
}

pub(super) fn event(about: ObjectReference, warning: bool, reason: &str, message: String) -> Event {
    Event { about, action: "Allocate", reason: reason.to_owned(), message, warning }
}

/// Whether the Service carries no condition of ours.
pub(super) fn says_nothing(service: &Balancer) -> bool {
    condition::get(&service.conditions, CONDITION_ALLOCATED).is_none()
}

/// Whether the Service says that it does not have what it wants.
pub(super) fn says_refused(service: &Balancer) -> bool {
    condition::get(&service.conditions, CONDITION_ALLOCATED)
        .is_some_and(|said| said.status == Status::False.as_str())
}

/// Whether the Service says that it has what it wants.
pub(super) fn says_allocated(service: &Balancer) -> bool {
    condition::get(&service.conditions, CONDITION_ALLOCATED)
        .is_some_and(|said| said.status == Status::True.as_str())
}

/// Whether the Service's condition names an address, as it does for every address of the Service.
pub(super) fn names(service: &Balancer, addr: IpAddr) -> bool {
    let of_address = |letter: char| letter.is_ascii_hexdigit() || ".:".contains(letter);
    condition::get(&service.conditions, CONDITION_ALLOCATED).is_some_and(|said| {
        let mut words = said.message.split(|letter| !of_address(letter));
        // The end of a sentence or a colon may follow, and an IPv6 address may end with two of its own.
        words.any(|word| {
            let stops = ["", ".", ":"].into_iter();
            let mut texts = stops.filter_map(|stop| word.strip_suffix(stop));
            texts.any(|text| text.parse() == Ok(addr))
        })
    })
}

fn bounded(mut text: String) -> String {
    if text.len() > LONGEST_MESSAGE {
        let cut =
            (0..=LONGEST_MESSAGE.saturating_sub(4)).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(cut.unwrap_or_default());
        text.push_str(" …");
    }
    text
}

/// The errors of a pool, as text.
pub(super) fn problem(view: &PoolView) -> Option<String> {
    view.pool.as_ref().err().map(|problems| bounded(problems.join("; ")))
}

/// The facts that a pool's status needs besides its spec.
#[derive(Debug)]
pub(super) struct PoolFacts<'a> {
    pub book: &'a Book,
    /// Other pools that have some of its addresses.
    pub overlaps: Option<&'a BTreeSet<PoolName>>,
    pub waiting: &'a Waiting,
    /// Why no claim can be written, if so.
    pub blocked: Option<&'a str>,
    /// Whether an operator announces what pools ask to be announced.
    pub announces: bool,
    /// The findings about its addresses.
    pub findings: Vec<&'a Found>,
}

/// The address counts of a pool for one family, if it has any addresses of it.
fn family_count(view: &PoolView, book: &Book, family: Family) -> Option<FamilyCount> {
    view.pool.as_ref().ok().filter(|pool| pool.ranges().has_family(family))?;
    let PoolCount { capacity, used, free } = book.count_of(&view.name, family);
    let [capacity, used, free] = [capacity, used, free].map(|count| count.to_string());
    Some(FamilyCount { capacity, used, free })
}

/// A number that fits into a column: large numbers are rounded.
fn in_short(count: u128) -> String {
    const EXACT: u128 = 9_999_999_999;
    if count <= EXACT {
        return count.to_string();
    }
    let digits = count.to_string();
    let power = digits.len().saturating_sub(1);
    // The first three digits, rounded to two: 995 becomes 1.0 of the next power.
    let leading: u32 = digits.get(..3).and_then(|text| text.parse().ok()).unwrap_or_default();
    let tenths = leading.saturating_add(5) / 10;
    let (tenths, power) = if tenths > 99 { (10, power.saturating_add(1)) } else { (tenths, power) };
    format!("{}.{}e{power}", tenths / 10, tenths % 10)
}

/// Whether a pool can serve: status, reason and message of its condition.
fn readiness(
    view: &PoolView,
    book: &Book,
    blocked: Option<&str>,
    announces: bool,
) -> (Status, &'static str, String) {
    let Ok(pool) = &view.pool else {
        return (Status::False, "Invalid", problem(view).unwrap_or_default());
    };
    if let Some(message) = blocked {
        let reason = Reason::LedgerRefused.as_str();
        return (Status::False, reason, bounded(message.to_owned()));
    }
    let (reason, does) = if pool.drain {
        ("Draining", "keeps what it gave and gives no more")
    } else if view.unreadable.is_empty() {
        ("Serving", "gives addresses")
    } else {
        (PARTLY_READ, "gives addresses")
    };
    let unreadable = (!view.unreadable.is_empty())
        .then(|| format!("does not count what cannot be read: {}", view.unreadable.join("; ")));
    let ignored = (view.announce.is_some() && !announces)
        .then(|| "announce has no effect without the controller keepalived".to_owned());
    let cluster_ips = pool.ranges().intersection(book.cluster_ips());
    let cluster_ips = cluster_ips.ranges().next().map(|range| {
        format!("{range} is of a range from which the cluster gives ClusterIPs and never given")
    });
    let warnings = view.warnings.iter().cloned();
    let parts = [does.to_owned()].into_iter().chain(unreadable).chain(warnings);
    let parts = parts.chain(cluster_ips).chain(ignored);
    (Status::True, reason, bounded(parts.collect::<Vec<_>>().join("; ")))
}

/// The new status of a pool, if it has one and it differs from the current one.
pub(super) fn pool(view: &PoolView, told: &PoolFacts<'_>, now: Timestamp) -> Option<IPGroupStatus> {
    let current = view.status.as_ref()?;
    let PoolFacts { book, overlaps, waiting, blocked, announces, findings } = told;
    let count = book.count(&view.name);
    let longest = waiting.longest_for(&view.name).take(WaitingService::MOST);
    let mut next = IPGroupStatus {
        capacity: Some(count.capacity.to_string()),
        used: Some(count.used.to_string()),
        free: Some(count.free.to_string()),
        free_short: Some(in_short(count.free)),
        ranges: view.ranges.clone(),
        ipv4: family_count(view, book, Family::V4),
        ipv6: family_count(view, book, Family::V6),
        waiting: Some(i64::try_from(waiting.count_for(&view.name)).unwrap_or(i64::MAX)),
        longest_waiting: longest
            .map(|(key, reason)| WaitingService {
                namespace: key.namespace().to_owned(),
                name: key.name().to_owned(),
                reason: reason.as_str().to_owned(),
            })
            .collect(),
        observed_generation: view.generation,
        conditions: current.conditions.clone(),
    };
    let (status, reason, message) = readiness(view, book, *blocked, *announces);
    condition::set(
        &mut next.conditions,
        CONDITION_READY,
        status,
        reason,
        &message,
        view.generation,
        now,
    );
    match overlaps {
        Some(others) => {
            let named: Vec<_> = others.iter().take(POOLS_NAMED).map(PoolName::as_str).collect();
            let more = match others.len().saturating_sub(POOLS_NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let message = format!(
                "has addresses that {}{more} can give as well; each counts as used where it was given",
                named.join(", ")
            );
            condition::set(
                &mut next.conditions,
                CONDITION_OVERLAPS,
                Status::True,
                "AddressesInCommon",
                &bounded(message),
                view.generation,
                now,
            );
        }
        None => drop(condition::remove(&mut next.conditions, CONDITION_OVERLAPS)),
    }
    let consistent = match findings.first() {
        Some(first) => {
            let message = summary(findings.iter().copied());
            Some((Status::False, first.finding.as_str(), bounded(message)))
        }
        None if condition::get(&next.conditions, CONDITION_CONSISTENT).is_some() => {
            let message = "ledger and Services agree about its addresses";
            Some((Status::True, "Consistent", message.to_owned()))
        }
        None => None,
    };
    if let Some((status, reason, message)) = consistent {
        condition::set(
            &mut next.conditions,
            CONDITION_CONSISTENT,
            status,
            reason,
            &message,
            view.generation,
            now,
        );
    }
    (next != *current).then_some(next)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::sim::fixtures::{ip, service};

    #[test]
    fn a_condition_names_the_addresses_of_its_service() {
        for (message, addr, named) in [
            ("10.0.0.1", "10.0.0.1", true),
            ("keeps 10.0.0.1, fd00::; no pool is called b.", "fd00::", true),
            ("keeps 10.0.0.1: no pool is called b.", "10.0.0.1", true),
            ("has 10.0.0.1.", "10.0.0.1", true),
            ("keeps fd00::: no pool is called b.", "fd00::", true),
            ("keeps 10.0.0.11", "10.0.0.1", false),
            ("no IPv4 address", "10.0.0.1", false),
        ] {
            let mut service = service("shop/web");
            service.conditions = vec![Condition {
                type_: CONDITION_ALLOCATED.to_owned(),
                status: "False".to_owned(),
                reason: "PoolUnknown".to_owned(),
                message: message.to_owned(),
                last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
                observed_generation: None,
            }];
            assert_eq!(names(&service, ip(addr)), named, "{message}");
        }
    }

    #[test]
    fn a_number_that_is_too_long_to_read_is_rounded() {
        for (count, text) in [
            (0, "0"),
            (1 << 32, "4294967296"),
            (9_999_999_999, "9999999999"),
            (10_000_000_000, "1.0e10"),
            (1 << 64, "1.8e19"),
            (99_499_999_999, "9.9e10"),
            (99_500_000_000, "1.0e11"),
            (u128::MAX, "3.4e38"),
        ] {
            assert_eq!(in_short(count), text);
        }
    }
}
