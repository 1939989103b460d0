//! Judges a recorded history: what was true at every moment, and whether it was right.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;
use landfall_api::{HolderKind, keys, name, text};
use landfall_ipam::{Family, Terms, clash};

use super::{Named, Snapshot, asked, external, holders, identity_of, key, shown, terms};

/// One change of one object.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// A Service by `namespace/name`.
    Service(String, Box<Sighting>),
    ServiceGone(String),
    /// A claim and the Services it names.
    Claim(IpAddr, Vec<Named>),
    ClaimGone(IpAddr),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(_, seen) => {
                let Sighting { id, shows, wish, .. } = &**seen;
                write!(f, "{id} shows {shows:?} and wants {wish:?}")
            }
            Self::ServiceGone(key) => write!(f, "Service/{key} is gone"),
            Self::Claim(addr, named) => {
                let named: Vec<_> = named.iter().map(|named| (&named.id, &named.terms)).collect();
                write!(f, "IP/{addr} is of {named:?}")
            }
            Self::ClaimGone(addr) => write!(f, "IP/{addr} is gone"),
        }
    }
}

/// The addresses that a Service showed and wanted at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sighting {
    id: String,
    shows: Vec<IpAddr>,
    external: Vec<IpAddr>,
    wish: Wish,
}

impl Sighting {
    pub(super) fn of(service: &Service) -> Self {
        Self {
            id: identity_of(service),
            shows: shown(service),
            external: external(service),
            wish: Wish::of(service),
        }
    }
}

/// A user's settings for the addresses of a Service; nothing else may change them.
#[derive(Clone, Debug, Default, PartialEq)]
struct Wish {
    serves: bool,
    class: Option<String>,
    families: Vec<String>,
    asked: BTreeSet<IpAddr>,
    pools: Vec<String>,
    terms: Option<Terms>,
}

impl Wish {
    fn of(service: &Service) -> Self {
        let spec = service.spec.clone().unwrap_or_default();
        Self {
            serves: spec.type_.as_deref() == Some("LoadBalancer")
                && service.metadata.deletion_timestamp.is_none(),
            class: spec.load_balancer_class,
            families: spec.ip_families.unwrap_or_default(),
            asked: asked(service),
            pools: keys::entries(&service.metadata, keys::ANNOTATION_POOL)
                .map(str::to_owned)
                .collect(),
            terms: terms(service),
        }
    }

    /// Whether an address that was given to `before` must stay now.
    fn keeps(&self, addr: IpAddr, before: &Self) -> bool {
        let family = Family::of(addr);
        let mut asked = self.asked.iter().filter(|asked| Family::of(**asked) == family);
        self.serves
            && self.class == before.class
            && self.families.contains(&family.to_string())
            && asked.all(|asked| *asked == addr)
            && (self.pools.is_empty() || self.pools == before.pools)
            && self.terms == before.terms
    }
}

/// Changes by the revision that made them. All kinds are in one etcd, so revisions of different kinds
/// compare, and the state at each of them is one that a client could have seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    changes: BTreeMap<u64, Vec<Change>>,
    /// Revisions, first exclusive, of which only the outcome is known.
    blind: Vec<(u64, u64)>,
}

impl Log {
    pub(super) fn note(&mut self, revision: u64, change: Option<Change>) {
        self.changes.entry(revision).or_default().extend(change);
    }

    pub(super) fn was_blind(&mut self, after: u64, until: u64) {
        self.blind.push((after, until));
    }

    pub(super) fn changes(&self) -> impl Iterator<Item = &Change> {
        self.changes.values().flatten()
    }

    fn is_blind(&self, revision: u64) -> bool {
        self.blind.iter().any(|(after, until)| revision > *after && revision <= *until)
    }
}

/// A moment that nothing excuses, however short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub revision: u64,
    pub addr: IpAddr,
    /// The Service, as `namespace/name`, that shows an address not its own; `None` if the claim is wrong.
    pub shown_by: Option<String>,
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {} {}: {}", self.revision, self.addr, self.what)
    }
}

/// An address that changed or went although the user's wish stayed the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unasked {
    /// When it went.
    pub revision: u64,
    /// `namespace/name`.
    pub service: String,
    pub addr: IpAddr,
    pub then: Then,
}

/// The fate of a Service that lost its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It has another one.
    Another(IpAddr),
    /// It has none.
    Nothing,
    /// It got the same one back, or its user wanted something else before that.
    Back,
}

impl fmt::Display for Unasked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { revision, service, addr, then } = self;
        write!(f, "at {revision} {service} lost {addr} ")?;
        match then {
            Then::Another(other) => write!(f, "for {other}")?,
            Then::Nothing => write!(f, "for ever")?,
            Then::Back => write!(f, "for a while")?,
        }
        write!(f, ", unasked")
    }
}

/// Everything that happened to Services and claims, in order.
#[derive(Debug)]
pub struct History {
    before: Snapshot,
    log: Log,
}

impl History {
    pub(super) fn new(before: Snapshot, log: Log) -> Self {
        Self { before, log }
    }

    /// A made-up story: the whole cluster as it was at one moment after the other.
    #[cfg(test)]
    pub(crate) fn of_moments(moments: Vec<Snapshot>) -> Self {
        let mut log = Log::default();
        let mut before = Snapshot { claims: vec![], services: vec![] };
        for (revision, now) in (1..).zip(moments) {
            for gone in before.services.iter().map(key) {
                if !now.services.iter().any(|service| key(service) == gone) {
                    log.note(revision, Some(Change::ServiceGone(gone)));
                }
            }
            for addr in before.claims.iter().filter_map(|ip| name::parse(&ip.name_any()).ok()) {
                if !now.claims.iter().any(|ip| ip.name_any() == name::of(addr)) {
                    log.note(revision, Some(Change::ClaimGone(addr)));
                }
            }
            for ip in &now.claims {
                let addr = name::parse(&ip.name_any()).unwrap();
                log.note(revision, Some(Change::Claim(addr, holders(ip, |_, _| None))));
            }
            for service in &now.services {
                let seen = Box::new(Sighting::of(service));
                log.note(revision, Some(Change::Service(key(service), seen)));
            }
            before = now;
        }
        Self { before: Snapshot { claims: vec![], services: vec![] }, log }
    }

    /// [`History::findings`] as text.
    pub fn problems(&self) -> Vec<String> {
        self.findings().iter().map(ToString::to_string).collect()
    }

    /// Every moment at which a Service showed an address whose claim did not name it, or at which a claim
    /// named two Services that do not agree to share. A blind spot is judged at its end.
    pub fn findings(&self) -> Vec<Finding> {
        let mut services: BTreeMap<String, (String, Vec<IpAddr>)> = self
            .before
            .services
            .iter()
            .map(|service| (key(service), (identity_of(service), shown(service))))
            .collect();
        let mut claims: BTreeMap<IpAddr, Vec<Named>> = BTreeMap::new();
        for ip in &self.before.claims {
            if let Ok(addr) = name::parse(&ip.name_any()) {
                claims.insert(addr, holders(ip, |_, _| None));
            }
        }
        let mut findings = Vec::new();
        let mut touched = BTreeSet::new();
        let mut last = 0;
        for (revision, changes) in &self.log.changes {
            for change in changes {
                match change {
                    Change::Service(key, seen) => {
                        services.insert(key.clone(), (seen.id.clone(), seen.shows.clone()));
                        touched.extend(&seen.shows);
                    }
                    Change::ServiceGone(key) => {
                        services.remove(key);
                    }
                    Change::Claim(addr, named) => {
                        claims.insert(*addr, named.clone());
                        touched.insert(*addr);
                    }
                    Change::ClaimGone(addr) => {
                        claims.remove(addr);
                        touched.insert(*addr);
                    }
                }
            }
            last = *revision;
            if !self.log.is_blind(last) {
                judge(last, &std::mem::take(&mut touched), &services, &claims, &mut findings);
            }
        }
        judge(last, &touched, &services, &claims, &mut findings);
        findings
    }

    /// Every change in a line, oldest first, for a person who wants to know what happened.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (revision, changes) in &self.log.changes {
            let blind = if self.log.is_blind(*revision) { " (blind)" } else { "" };
            lines.extend(changes.iter().map(|change| format!("{revision}{blind} {change}")));
        }
        lines
    }

    /// Every revision at which an address that a Service had shown, as ingress or external address, was no
    /// longer shown by any Service.
    pub fn gaps(&self) -> Vec<(u64, IpAddr)> {
        let mut answers: BTreeMap<String, BTreeSet<IpAddr>> = self
            .before
            .services
            .iter()
            .map(|service| (key(service), shown(service).into_iter().chain(external(service))))
            .map(|(key, addrs)| (key, addrs.collect()))
            .collect();
        let mut gaps = Vec::new();
        for (revision, changes) in &self.log.changes {
            for change in changes {
                let old = match change {
                    Change::Service(key, seen) => {
                        let addrs = seen.shows.iter().chain(&seen.external).copied().collect();
                        answers.insert(key.clone(), addrs)
                    }
                    Change::ServiceGone(key) => answers.remove(key),
                    Change::Claim(..) | Change::ClaimGone(_) => None,
                };
                let left = |addr: &IpAddr| !answers.values().any(|addrs| addrs.contains(addr));
                let lost = old.into_iter().flatten().filter(left);
                gaps.extend(lost.map(|addr| (*revision, addr)));
            }
        }
        gaps
    }

    /// The addresses that a Service showed, one entry per change, oldest first.
    pub fn shown_by(&self, wanted: &str) -> Vec<Vec<IpAddr>> {
        let mut all: Vec<Vec<IpAddr>> = Vec::new();
        for change in self.log.changes() {
            if let Change::Service(key, seen) = change
                && key == wanted
                && all.last() != Some(&seen.shows)
            {
                all.push(seen.shows.clone());
            }
        }
        all
    }

    /// Services whose address changed, whether asked for or not: `namespace/name`, before, after. An address
    /// that was withdrawn and published again unchanged is no change.
    pub fn moved(&self) -> Vec<(String, Vec<IpAddr>, Vec<IpAddr>)> {
        let mut last: BTreeMap<String, (String, Vec<IpAddr>)> = self
            .before
            .services
            .iter()
            .map(|service| (key(service), (identity_of(service), shown(service))))
            .collect();
        let mut moved = Vec::new();
        for change in self.log.changes() {
            let Change::Service(key, seen) = change else { continue };
            let Sighting { id, shows, .. } = &**seen;
            if shows.is_empty() {
                continue;
            }
            let old = last.insert(key.clone(), (id.clone(), shows.clone()));
            if let Some((old_id, old)) = old
                && old_id == *id
                && !old.is_empty()
                && old != *shows
            {
                moved.push((key.clone(), old, shows.clone()));
            }
        }
        moved
    }

    /// Addresses that changed or went although their Service has wanted the same since it got them. A change
    /// in a blind spot may have been asked for there.
    pub fn unasked(&self) -> Vec<Unasked> {
        let mut tracks: BTreeMap<&str, Track> = BTreeMap::new();
        let before: Vec<_> =
            self.before.services.iter().map(|it| (key(it), Sighting::of(it))).collect();
        for (key, seen) in &before {
            tracks.insert(key, Track::begin(seen));
        }
        let mut unasked = Vec::new();
        for (revision, changes) in &self.log.changes {
            for change in changes {
                match change {
                    Change::Service(key, seen) => {
                        let same = tracks.get_mut(key.as_str());
                        if let Some(track) = same.filter(|track| track.id == seen.id) {
                            let blind = self.log.is_blind(*revision);
                            unasked.push(track.see(key, *revision, seen, blind));
                        } else {
                            let old = tracks.insert(key, Track::begin(seen));
                            unasked.extend(old.map(|old| old.end(key, Then::Back)));
                        }
                    }
                    Change::ServiceGone(key) => {
                        let old = tracks.remove(key.as_str());
                        unasked.extend(old.map(|old| old.end(key, Then::Back)));
                    }
                    Change::Claim(..) | Change::ClaimGone(_) => {}
                }
            }
        }
        unasked.extend(tracks.into_iter().map(|(key, track)| track.end(key, Then::Nothing)));
        unasked.into_iter().flatten().collect()
    }
}

/// Judges some addresses at one moment.
fn judge(
    revision: u64,
    touched: &BTreeSet<IpAddr>,
    services: &BTreeMap<String, (String, Vec<IpAddr>)>,
    claims: &BTreeMap<IpAddr, Vec<Named>>,
    findings: &mut Vec<Finding>,
) {
    for addr in touched.iter().copied() {
        let named = claims.get(&addr).map(Vec::as_slice).unwrap_or_default();
        for (index, one) in named.iter().enumerate() {
            for other in named.iter().skip(index + 1) {
                if let Some(clash) = clash(one.party(), other.party()) {
                    let clash = text::clash(HolderKind::Service, &clash);
                    let what = format!("{}, {}: {clash}", one.id, other.id);
                    findings.push(Finding { revision, addr, shown_by: None, what });
                }
            }
        }
        let showing = services.iter().filter(|(_, (_, shows))| shows.contains(&addr));
        for (key, (id, _)) in showing {
            if !named.iter().any(|named| named.means(id)) {
                let what = format!("{id} shows what is of {named:?}");
                findings.push(Finding { revision, addr, shown_by: Some(key.clone()), what });
            }
        }
    }
}

/// The addresses of one Service, each with the wish it was given for.
struct Track {
    id: String,
    held: Vec<Held>,
    /// Addresses that went without a reason and have not come back, and when.
    lost: Vec<(u64, Held)>,
}

#[derive(Clone)]
struct Held {
    addr: IpAddr,
    wish: Wish,
    /// Whether the user has wanted anything else since.
    free_to_go: bool,
}

impl Track {
    fn begin(seen: &Sighting) -> Self {
        let mut track = Self { id: seen.id.clone(), held: Vec::new(), lost: Vec::new() };
        track.gains(seen);
        track
    }

    fn gains(&mut self, seen: &Sighting) {
        for addr in &seen.shows {
            if !self.held.iter().any(|held| held.addr == *addr) {
                let wish = seen.wish.clone();
                // Its user may have asked for another address before the first look.
                let free_to_go = !wish.keeps(*addr, &wish);
                self.held.push(Held { addr: *addr, wish, free_to_go });
            }
        }
    }

    /// Takes in the addresses shown now; returns those that turned out to have changed without a reason.
    fn see(&mut self, key: &str, at: u64, seen: &Sighting, blind: bool) -> Vec<Unasked> {
        for old in self.held.iter_mut().chain(self.lost.iter_mut().map(|(_, old)| old)) {
            old.free_to_go |= blind || !seen.wish.keeps(old.addr, &old.wish);
        }
        let (kept, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut self.held)
            .into_iter()
            .partition(|held| seen.shows.contains(&held.addr));
        self.held = kept;
        self.lost.extend(gone.into_iter().filter(|old| !old.free_to_go).map(|old| (at, old)));
        let mut unasked = Vec::new();
        self.lost.retain(|(revision, old)| {
            let family = Family::of(old.addr);
            let mut same_family = seen.shows.iter().filter(|addr| Family::of(**addr) == family);
            let then = if old.free_to_go || seen.shows.contains(&old.addr) {
                Then::Back
            } else if let Some(other) = same_family.next() {
                Then::Another(*other)
            } else {
                return true;
            };
            let (revision, addr, service) = (*revision, old.addr, key.to_owned());
            unasked.push(Unasked { revision, service, addr, then });
            false
        });
        self.gains(seen);
        unasked
    }

    /// The addresses that are still lost when nothing more is heard of the Service.
    fn end(self, key: &str, then: Then) -> Vec<Unasked> {
        let lost = self.lost.into_iter();
        lost.map(|(revision, old)| Unasked {
            revision,
            service: key.to_owned(),
            addr: old.addr,
            then,
        })
        .collect()
    }
}

#[cfg(test)]
mod tests;
