//! The whole cluster at one moment, in a form in which equal situations are equal values.

use crate::{
    cluster::{Addr, Claim, Entries, Entry, Name, Service, Track, Version},
    operator::{Call, Operator, Phase, Release, Unsure, View},
    rules::Rules,
};

/// Everything there is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct State {
    pub(crate) services: [Track<Service>; 2],
    pub(crate) claims: [Track<Claim>; 2],
    pub(crate) operators: [Operator; 2],
    /// A write that no operator waits for any more, and that may still arrive.
    pub(crate) wire: Option<Call>,
    pub(crate) left: Budget,
    pub(crate) ghosts: Ghosts,
    /// What went wrong and cannot be seen in the objects afterwards.
    pub(crate) breach: Option<Breach>,
}

/// How much trouble there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Budget {
    /// Changes that users make.
    pub(crate) edits: u8,
    pub(crate) crashes: u8,
    /// Calls without an answer, or with one that is not looked into at once.
    pub(crate) losses: u8,
}

/// Facts for the properties alone; no operator decides by them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ghosts {
    /// By address and name: since the claim was last written there was a moment at which the holder
    /// neither showed nor could want the address.
    pub(crate) unwanted: [[bool; 2]; 2],
    /// By name: its address was shown before any operator ran, and is in no claim yet.
    pub(crate) as_it_came: [bool; 2],
    /// By name: whether it changed its mind about sharing since it got what it shows.
    pub(crate) changed_consent: [bool; 2],
}

/// A step that must not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Breach {
    TookWhatWasTaken,
    MovedUnasked,
    ReleasedWhatWasWanted,
    TookFreshClaimForOrphan,
}

impl State {
    /// What an operator believes.
    pub(crate) fn view(&self, operator: usize, rules: Rules) -> View {
        let Operator { services, claims, due, unsure, wrote, .. } = &self.operators[operator];
        let service = |name: Name| {
            let known = self.services[name as usize].0[services[name as usize]];
            known.filter(|service| service.balanced)
        };
        View {
            services: Name::ALL.map(service),
            claims: Addr::ALL.map(|addr| self.claims[addr as usize].0[claims[addr as usize]]),
            wrote: *wrote,
            due: *due,
            unsure: *unsure,
            rules,
        }
    }

    pub(crate) fn service(&self, name: Name) -> Option<Service> {
        self.services[name as usize].present()
    }

    pub(crate) fn claim(&self, addr: Addr) -> Option<Claim> {
        self.claims[addr as usize].present()
    }

    /// The same situation in its one form: without versions that no operator can see any more, numbered
    /// from one, and with operators and names in order. Neither have an order of their own: both
    /// operators follow the same rules, and which Service an operator turns to first is open.
    pub(crate) fn canonical(mut self, rules: Rules) -> Self {
        self.forget(rules);
        let mut mirrored = self.clone();
        mirrored.swap_names();
        self.number();
        mirrored.number();
        self.min(mirrored)
    }

    /// Drops versions that all operators have passed, and memories that have no effect any more.
    fn forget(&mut self, rules: Rules) {
        let listed_first = rules.lists_holders_first();
        for operator in &mut self.operators {
            let blank = matches!(operator.phase, Phase::Absent | Phase::Down);
            let listing = operator.phase == Phase::Listing;
            for name in Name::ALL {
                if blank || (listing && !listed_first) {
                    operator.services[name as usize] = self.services[name as usize].end();
                }
            }
            for addr in Addr::ALL {
                if blank || (listing && listed_first) {
                    operator.claims[addr as usize] = self.claims[addr as usize].end();
                }
            }
        }
        for name in Name::ALL {
            let track = &mut self.services[name as usize];
            trim(
                track,
                self.operators.each_mut().map(|operator| &mut operator.services[name as usize]),
            );
        }
        for addr in Addr::ALL {
            let track = &mut self.claims[addr as usize];
            trim(
                track,
                self.operators.each_mut().map(|operator| &mut operator.claims[addr as usize]),
            );
        }
        // The API server refuses it, whenever it arrives.
        let guarded = rules == Rules::ALL;
        if self.wire.is_some_and(|call| guarded && self.is_doomed(&call)) {
            self.wire = None;
        }
    }

    fn is_doomed(&self, call: &Call) -> bool {
        let at = |addr| self.claim(addr).map(|claim| claim.version);
        match *call {
            Call::Touch { addr, version, .. } | Call::Delete(Release { addr, version, .. }) => {
                at(addr) != Some(version)
            }
            Call::Publish { name, version, .. } => {
                self.service(name).map(|service| service.version) != Some(version)
            }
            Call::Take { .. } | Call::Read(_) | Call::Confirm { .. } => false,
        }
    }

    fn swap_names(&mut self) {
        self.services.swap(0, 1);
        for claim in self.claims.iter_mut().flat_map(|track| track.0.iter_mut().flatten()) {
            claim.entries.swap(0, 1);
        }
        for operator in &mut self.operators {
            operator.services.swap(0, 1);
            operator.due.iter_mut().for_each(swap_name);
            match &mut operator.unsure {
                Some(Unsure::Claim(_, Some(name)) | Unsure::Service(name)) => *name = name.other(),
                Some(Unsure::Claim(_, None)) | None => {}
            }
        }
        self.wire.iter_mut().for_each(swap_name);
        self.ghosts.unwanted.iter_mut().for_each(|names| names.swap(0, 1));
        self.ghosts.as_it_came.swap(0, 1);
        self.ghosts.changed_consent.swap(0, 1);
    }

    /// Numbers versions from the start, then puts the operators in order.
    fn number(&mut self) {
        for name in Name::ALL {
            self.number_service(name);
        }
        for addr in Addr::ALL {
            self.number_claim(addr);
        }
        self.operators.sort();
    }

    fn number_service(&mut self, name: Name) {
        let track = &mut self.services[name as usize];
        let known = || track.0.iter().flatten();
        let versions = Numbers::new(known().map(|service| service.version));
        let uids = Numbers::new(known().map(|service| service.uid));
        for service in track.0.iter_mut().flatten() {
            service.version = versions.of(service.version);
            service.uid = uids.of(service.uid);
        }
        let number = |entry: &mut Entry| {
            entry.uid = uids.of(entry.uid);
            entry.seen = versions.of(entry.seen);
        };
        let number_in = |entries: &mut Entries| entries[name as usize].iter_mut().for_each(number);
        for claim in self.claims.iter_mut().flat_map(|track| track.0.iter_mut().flatten()) {
            number_in(&mut claim.entries);
        }
        let number_call = |call: &mut Call| match call {
            Call::Take { name: whose, entry, .. } if *whose == name => number(entry),
            Call::Touch { entries, .. } => number_in(entries),
            Call::Publish { name: whose, uid, version, .. } if *whose == name => {
                *uid = uids.of(*uid);
                *version = versions.of(*version);
            }
            Call::Take { .. }
            | Call::Publish { .. }
            | Call::Read(_)
            | Call::Confirm { .. }
            | Call::Delete(_) => {}
        };
        self.wire.iter_mut().for_each(number_call);
        self.operators
            .iter_mut()
            .filter_map(|operator| operator.due.as_mut())
            .for_each(number_call);
    }

    fn number_claim(&mut self, addr: Addr) {
        let track = &mut self.claims[addr as usize];
        let known = || track.0.iter().flatten();
        let versions = Numbers::new(known().map(|claim| claim.version));
        let uids = Numbers::new(known().map(|claim| claim.uid));
        let present = track.present();
        for claim in track.0.iter_mut().flatten() {
            claim.version = versions.of(claim.version);
            claim.uid = uids.of(claim.uid);
        }
        // A guard is compared with what will be present, so one that differs now differs for ever.
        let number = |release: &mut Release| {
            let same = |claim: &Claim| claim.version == release.version;
            release.version = versions.of_if(release.version, present.as_ref().is_some_and(same));
            let same = |claim: &Claim| claim.uid == release.uid;
            release.uid = uids.of_if(release.uid, present.as_ref().is_some_and(same));
        };
        let number_call = |call: &mut Call| match call {
            Call::Touch { addr: about, version, .. } if *about == addr => {
                *version = versions.of(*version);
            }
            Call::Delete(release) if release.addr == addr => number(release),
            Call::Take { .. }
            | Call::Touch { .. }
            | Call::Publish { .. }
            | Call::Read(_)
            | Call::Confirm { .. }
            | Call::Delete(_) => {}
        };
        self.wire.iter_mut().for_each(number_call);
        self.operators
            .iter_mut()
            .filter_map(|operator| operator.due.as_mut())
            .for_each(number_call);
    }
}

fn swap_name(call: &mut Call) {
    match call {
        Call::Touch { name, entries, .. } => {
            *name = name.other();
            entries.swap(0, 1);
        }
        Call::Take { name, .. } | Call::Publish { name, .. } | Call::Confirm { name, .. } => {
            *name = name.other();
        }
        Call::Read(release) | Call::Delete(release) => release.name = release.name.other(),
    }
}

/// Drops the versions that all operators have passed.
fn trim<T>(track: &mut Track<T>, positions: [&mut usize; 2]) {
    let passed = positions.iter().map(|position| **position).min().unwrap_or_default();
    track.0.drain(..passed);
    for position in positions {
        *position = position.saturating_sub(passed);
    }
}

/// Versions that can still be compared with something; their ranks are their new numbers.
struct Numbers(Vec<Version>);

impl Numbers {
    fn new(versions: impl Iterator<Item = Version>) -> Self {
        let mut versions: Vec<_> = versions.collect();
        versions.sort_unstable();
        versions.dedup();
        Self(versions)
    }

    fn of(&self, version: Version) -> Version {
        let rank = (1..).zip(&self.0).find(|(_, known)| **known == version);
        rank.map_or(Version::PAST, |(rank, _)| Version(rank))
    }

    fn of_if(&self, version: Version, matters: bool) -> Version {
        if matters { self.of(version) } else { Version::PAST }
    }
}
