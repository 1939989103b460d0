//! An operator: what it remembers, and what it would do next.

use crate::{
    cluster::{Addr, Claim, Entries, Entry, Name, Service, Version, could_want},
    rules::{Rules, Weakened},
};

/// How far an operator is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    /// It does not exist in this scene.
    Absent,
    Down,
    /// It has made the first of the two lists.
    Listing,
    Running,
}

/// One operator. Positions are those in the objects' tracks; each object is watched at its own pace,
/// and an operator's own writes and live reads put it ahead of the watch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Operator {
    pub(crate) phase: Phase,
    pub(crate) services: [usize; 2],
    pub(crate) claims: [usize; 2],
    /// A write that a live read has permitted, and that is not made yet.
    pub(crate) due: Option<Call>,
    /// A call without an answer, after which it has to look.
    pub(crate) unsure: Option<Unsure>,
    /// The claims whose last version it wrote itself; kept only if the rules need it.
    pub(crate) wrote: [bool; 2],
}

impl Operator {
    /// Without memory.
    pub(crate) const DOWN: Self = Self {
        phase: Phase::Down,
        services: [0; 2],
        claims: [0; 2],
        due: None,
        unsure: None,
        wrote: [false; 2],
    };
}

/// A holder that is to leave a claim known at one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Release {
    pub(crate) addr: Addr,
    pub(crate) version: Version,
    pub(crate) uid: Version,
    pub(crate) name: Name,
}

/// What a call without an answer was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Unsure {
    /// The claim, and a Service that gets nothing else until this is known.
    Claim(Addr, Option<Name>),
    Service(Name),
}

/// One call to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Call {
    Take {
        addr: Addr,
        name: Name,
        entry: Entry,
    },
    Touch {
        addr: Addr,
        version: Version,
        name: Name,
        entries: Entries,
    },
    Publish {
        name: Name,
        uid: Version,
        version: Version,
        shows: Option<Addr>,
    },
    /// The live read of the holder, before a release.
    Read(Release),
    /// The live read of a claim, before what a Service shows is withdrawn because it no longer agrees
    /// with the other holders.
    Confirm {
        addr: Addr,
        name: Name,
        uid: Version,
        version: Version,
    },
    /// Its deletion, or the removal of one holder of several.
    Delete(Release),
}

impl Call {
    /// The object in doubt when it gets no answer; a read can just be made again.
    pub(crate) fn doubt(&self) -> Option<Unsure> {
        match *self {
            Self::Take { addr, name, .. } | Self::Touch { addr, name, .. } => {
                Some(Unsure::Claim(addr, Some(name)))
            }
            Self::Publish { name, .. } => Some(Unsure::Service(name)),
            Self::Delete(Release { addr, .. }) => Some(Unsure::Claim(addr, None)),
            Self::Read(_) | Self::Confirm { .. } => None,
        }
    }
}

/// What an operator believes, and what it is in the middle of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// Those that are not of type `LoadBalancer` count as absent.
    pub(crate) services: [Option<Service>; 2],
    pub(crate) claims: [Option<Claim>; 2],
    pub(crate) wrote: [bool; 2],
    pub(crate) due: Option<Call>,
    pub(crate) unsure: Option<Unsure>,
    pub(crate) rules: Rules,
}

/// The address that a Service comes to, or why it waits.
enum Slot {
    Has(Addr),
    /// By a create, or by a touch of the claim that is there.
    Takes(Addr),
    Nothing,
    /// A call under way decides.
    Later,
    /// It shows an address of another Service.
    Disputed,
}

impl View {
    /// Every call that the operator could make next. The order among them is open.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let mut calls = Vec::new();
        calls.extend(self.due.map(|due| self.learnt(due)));
        for name in Name::ALL {
            if !self.is_engaged(name) {
                self.calls_for(name, &mut calls);
            }
        }
        calls
    }

    /// A write that is due, with the version that the operator knows by now if it learns it so late.
    pub(crate) fn learnt(&self, due: Call) -> Call {
        match due {
            Call::Delete(release) if self.rules.lack(Weakened::ReadBeforeKnowing) => {
                let known = self.claims[release.addr as usize];
                known.map_or(due, |Claim { version, uid, .. }| {
                    Call::Delete(Release { version, uid, ..release })
                })
            }
            Call::Delete(_)
            | Call::Take { .. }
            | Call::Touch { .. }
            | Call::Publish { .. }
            | Call::Read(_)
            | Call::Confirm { .. } => due,
        }
    }

    /// The release that is due, if it is about this address.
    fn releasing(&self, addr: Addr) -> Option<Release> {
        match self.due {
            Some(Call::Delete(release)) => Some(release).filter(|release| release.addr == addr),
            Some(_) | None => None,
        }
    }

    fn calls_for(&self, name: Name, calls: &mut Vec<Call>) {
        let Some(service) = self.services[name as usize] else {
            self.release_all_but(name, &[], calls);
            return;
        };
        if self.is_behind(name, service) {
            return;
        }
        match self.slot(name, service) {
            Slot::Later => {}
            Slot::Takes(addr) => match self.claims[addr as usize] {
                Some(claim) => calls.push(self.touch(addr, claim, name, service)),
                None => calls.push(Call::Take { addr, name, entry: Entry::of(service) }),
            },
            Slot::Has(addr) => self.show(name, service, Some(addr), calls),
            Slot::Nothing => self.show(name, service, None, calls),
            Slot::Disputed => {
                let keep: Vec<_> = service.shows.into_iter().collect();
                self.release_all_but(name, &keep, calls);
            }
        }
    }

    /// The address that a Service should have.
    fn slot(&self, name: Name, service: Service) -> Slot {
        let named = self.named(name, service);
        let has = |addr| if self.is_busy(addr) { Slot::Later } else { Slot::Has(addr) };
        let mut refused = false;
        if let Some(addr) = service.request {
            if named.contains(&addr) {
                return has(addr);
            }
            if self.is_busy(addr) {
                return Slot::Later;
            }
            let given = match self.claims[addr as usize] {
                Some(claim) => claim.may_be_joined(name, service),
                None => self.is_free(addr),
            };
            if given {
                return Slot::Takes(addr);
            }
            refused = true;
        }
        if let Some(addr) = service.shows
            && !self.has_lost(name, service, addr)
        {
            if named.contains(&addr) {
                return has(addr);
            }
            let slot = self.adopt(name, service, addr);
            let moves = self.rules.lack(Weakened::AdoptionMoves) && matches!(slot, Slot::Disputed);
            let kept_first = self.rules.lack(Weakened::KeptBeforeShown) && !named.is_empty();
            if !moves && !kept_first {
                return slot;
            }
        }
        let mut kept = named.into_iter().filter(|addr| {
            !self.rules.lack(Weakened::NewAddressFirst) || self.is_fresh(*addr, name, service)
        });
        if let Some(addr) = kept.next() {
            return has(addr);
        }
        if refused {
            return Slot::Nothing;
        }
        let joined = Addr::ALL.into_iter().find(|addr| {
            let claim = self.claim_to_be(*addr);
            claim.is_some_and(|claim| claim.may_be_joined(name, service))
        });
        match joined {
            Some(addr) if self.is_busy(addr) => Slot::Later,
            Some(addr) => Slot::Takes(addr),
            None => {
                let free = Addr::ALL.into_iter().find(|addr| self.is_free(*addr));
                free.map_or(Slot::Nothing, Slot::Takes)
            }
        }
    }

    /// Enters an address that the Service shows already into the ledger.
    fn adopt(&self, name: Name, service: Service, addr: Addr) -> Slot {
        if self.is_busy(addr) {
            return Slot::Later;
        }
        match self.claims[addr as usize] {
            None => Slot::Takes(addr),
            Some(claim) if claim.left_by_namesake(name, service) => Slot::Has(addr),
            Some(claim) if claim.may_be_joined(name, service) => Slot::Takes(addr),
            Some(_) => Slot::Disputed,
        }
    }

    /// Brings what the Service shows in line: touch what is not fresh, publish, and only when that
    /// is done release what is left over.
    fn show(&self, name: Name, service: Service, target: Option<Addr>, calls: &mut Vec<Call>) {
        if let Some(addr) = target
            && let Some(claim) = self.claims[addr as usize]
        {
            let shown = service.shows == Some(addr);
            if claim.left_by_namesake(name, service) && shown {
                calls.push(self.touch(addr, claim, name, service));
                return;
            }
            let by_name = self.rules.lack(Weakened::PublishByName);
            if !shown && !by_name && !could_want(service, name, claim, addr) {
                calls.extend(self.publish(name, service, None));
                return;
            }
            let entry = claim.entries[name as usize];
            let changed = entry.is_none_or(|entry| entry.shares != service.shares);
            let fresh = self.is_fresh(addr, name, service) || self.is_taken_for_fresh(addr);
            if (!shown && !fresh) || (shown && changed) {
                calls.push(self.touch(addr, claim, name, service));
                return;
            }
        }
        if service.shows == target {
            if !self.rules.lack(Weakened::KeepExtraClaims) {
                let keep: Vec<_> = target.into_iter().collect();
                self.release_all_but(name, &keep, calls);
            }
            return;
        }
        if self.rules.lack(Weakened::ReleaseBeforeWithdraw)
            && let Some(shown) = service.shows
            && self.claims[shown as usize].is_some_and(|claim| claim.entry(name, service).is_some())
        {
            let keep: Vec<_> = Addr::ALL.into_iter().filter(|addr| *addr != shown).collect();
            self.release_all_but(name, &keep, calls);
            return;
        }
        calls.extend(self.publish(name, service, target));
    }

    fn publish(&self, name: Name, service: Service, shows: Option<Addr>) -> Option<Call> {
        let Service { uid, version, .. } = service;
        let unasked = self.rules.lack(Weakened::WithdrawFromCache)
            || self.rules.lack(Weakened::AdoptionMoves);
        match service.shows {
            Some(addr) if shows.is_none() && !unasked => {
                self.due.is_none().then_some(Call::Confirm { addr, name, uid, version })
            }
            Some(_) | None => Some(Call::Publish { name, uid, version, shows }),
        }
    }

    fn touch(&self, addr: Addr, claim: Claim, name: Name, service: Service) -> Call {
        let mut entries = claim.entries;
        let entry = &mut entries[name as usize];
        *entry = Some(match entry {
            Some(old) if self.rules.lack(Weakened::PublishByName) => {
                Entry { uid: old.uid, ..Entry::of(service) }
            }
            Some(_) | None => Entry::of(service),
        });
        Call::Touch { addr, version: claim.version, name, entries }
    }

    /// Releases every claim in the name of a Service, apart from some addresses.
    fn release_all_but(&self, name: Name, keep: &[Addr], calls: &mut Vec<Call>) {
        if self.due.is_some() {
            return;
        }
        for addr in Addr::ALL {
            if let Some(claim) = self.claims[addr as usize]
                && claim.entries[name as usize].is_some()
                && !keep.contains(&addr)
                && !self.is_busy(addr)
            {
                let Claim { version, uid, .. } = claim;
                calls.push(Call::Read(Release { addr, version, uid, name }));
            }
        }
    }

    /// The addresses whose claims name this very Service and that it may have, lowest first.
    fn named(&self, name: Name, service: Service) -> Vec<Addr> {
        let by_name = self.rules.lack(Weakened::PublishByName);
        let is_its_own = |claim: &Claim| {
            let named = match claim.entries[name as usize] {
                Some(entry) => by_name || entry.is(service),
                None => false,
            };
            named && !claim.clashes(name, service)
        };
        let claimed = |addr: &Addr| self.claims[*addr as usize].as_ref().is_some_and(is_its_own);
        Addr::ALL.into_iter().filter(claimed).collect()
    }

    /// Whether it may not keep what it shows, because it no longer agrees with those beside it.
    fn has_lost(&self, name: Name, service: Service, addr: Addr) -> bool {
        let claim = self.claims[addr as usize];
        claim.is_some_and(|claim| {
            claim.entry(name, service).is_some() && claim.clashes(name, service)
        })
    }

    /// Whether a claim was written for a newer version of the Service than the one known, or for a
    /// newer Service of that name. The watch will show it; until then, whatever the operator would
    /// write about it is out of date.
    fn is_behind(&self, name: Name, service: Service) -> bool {
        let mut entries =
            self.claims.iter().flatten().filter_map(|claim| claim.entries[name as usize]);
        !self.rules.lack(Weakened::TouchBackwards)
            && entries.any(|entry| entry.seen > service.version)
    }

    fn is_free(&self, addr: Addr) -> bool {
        let shown = self.services.iter().flatten().any(|service| service.shows == Some(addr));
        self.claims[addr as usize].is_none() && !shown && !self.is_busy(addr)
    }

    /// The claim as it will be if the call under way goes well.
    fn claim_to_be(&self, addr: Addr) -> Option<Claim> {
        let claim = self.claims[addr as usize]?;
        let entries =
            self.releasing(addr).map_or(claim.entries, |release| claim.without(release.name));
        entries.iter().any(Option::is_some).then_some(Claim { entries, ..claim })
    }

    fn is_busy(&self, addr: Addr) -> bool {
        let unsure = matches!(self.unsure, Some(Unsure::Claim(about, _)) if about == addr);
        unsure || self.releasing(addr).is_some()
    }

    fn is_engaged(&self, name: Name) -> bool {
        if matches!(self.due, Some(Call::Publish { name: whom, .. }) if whom == name) {
            return true;
        }
        match self.unsure {
            Some(Unsure::Claim(_, whom)) => whom == Some(name),
            Some(Unsure::Service(whom)) => whom == name,
            None => false,
        }
    }

    /// Whether the claim was written for the very version of the holder that is known, so that no
    /// release that began before can succeed, and none that begins now can be permitted.
    fn is_fresh(&self, addr: Addr, name: Name, service: Service) -> bool {
        let entry = self.claims[addr as usize].and_then(|claim| claim.entries[name as usize]);
        entry.is_some_and(|entry| entry.seen == service.version)
    }

    /// Whether a claim that was not written for the holder's present version passes for one that was.
    fn is_taken_for_fresh(&self, addr: Addr) -> bool {
        let weakened = if self.wrote[addr as usize] {
            Weakened::GuardObservedLate
        } else {
            Weakened::ResumeUntouched
        };
        self.rules.lack(weakened)
    }
}
