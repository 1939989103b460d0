//! What the API server does: writes by users and by operators, and the record of what must not be.

use crate::{
    cluster::{Addr, Claim, Name, Service, Version, is_unwanted},
    operator::{Call, Release},
    rules::{Rules, Weakened},
    state::{Breach, State},
};

/// A change that a user makes to a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    Create {
        shares: bool,
    },
    Delete,
    /// To `LoadBalancer` or away from it.
    Retype,
    Ask(Option<Addr>),
    /// To share, or not to share any more.
    Consent,
}

impl State {
    pub(crate) fn edit(&mut self, name: Name, edit: Edit) {
        let present = self.service(name);
        let version = Version::FRESH;
        let next = match edit {
            Edit::Create { shares } => Some(Service::wanting(shares)),
            Edit::Delete => None,
            Edit::Retype => present.map(|service| {
                let balanced = !service.balanced;
                // The API server wipes what a Service of another type cannot have.
                Service { version, balanced, shows: service.shows.filter(|_| balanced), ..service }
            }),
            Edit::Ask(request) => present.map(|service| Service { version, request, ..service }),
            Edit::Consent => present.map(|service| {
                self.ghosts.changed_consent[name as usize] = service.shows.is_some();
                Service { version, shares: !service.shares, ..service }
            }),
        };
        self.services[name as usize].write(next);
        self.remember();
    }

    /// Does a write if its guards allow it; says whether they did.
    pub(crate) fn apply(&mut self, call: &Call, rules: Rules) -> bool {
        let done = match *call {
            Call::Take { addr, name, entry } => {
                let mut entries = [None; 2];
                entries[name as usize] = Some(entry);
                match self.claim(addr) {
                    None => self.write_claim(addr, Some(Claim::created(entries))),
                    Some(claim) if rules.lack(Weakened::TakeOverwrites) => {
                        self.breach.get_or_insert(Breach::TookWhatWasTaken);
                        self.write_claim(addr, Some(claim.updated(entries)))
                    }
                    Some(_) => false,
                }
            }
            Call::Touch { addr, version, entries, .. } => match self.claim(addr) {
                Some(claim) if claim.version == version || rules.lack(Weakened::TouchUnguarded) => {
                    self.write_claim(addr, Some(claim.updated(entries)))
                }
                Some(_) | None => false,
            },
            Call::Publish { name, uid, version, shows } => match self.service(name) {
                Some(service) if may_publish(service, uid, version, rules) => {
                    self.publish(name, service, shows)
                }
                Some(_) | None => false,
            },
            Call::Delete(release) => match self.claim(release.addr) {
                Some(claim) if may_delete(claim, release, rules) => {
                    self.delete(release.addr, release.name, claim)
                }
                Some(_) | None => false,
            },
            Call::Read(_) | Call::Confirm { .. } => false,
        };
        self.remember();
        done
    }

    fn write_claim(&mut self, addr: Addr, claim: Option<Claim>) -> bool {
        self.claims[addr as usize].write(claim);
        self.ghosts.unwanted[addr as usize] = [false; 2];
        true
    }

    fn publish(&mut self, name: Name, service: Service, shows: Option<Addr>) -> bool {
        let asked = shows.is_some() && service.request == shows;
        let changed_consent = &mut self.ghosts.changed_consent[name as usize];
        if service.shows.is_some() && service.shows != shows && !asked && !*changed_consent {
            self.breach.get_or_insert(Breach::MovedUnasked);
        }
        *changed_consent &= shows.is_none();
        let version = Version::FRESH;
        self.services[name as usize].write(Some(Service { version, shows, ..service }));
        true
    }

    fn delete(&mut self, addr: Addr, name: Name, claim: Claim) -> bool {
        let named = claim.entries[name as usize].is_some();
        if named && !self.ghosts.unwanted[addr as usize][name as usize] {
            self.breach.get_or_insert(Breach::ReleasedWhatWasWanted);
        }
        let entries = claim.without(name);
        let left = entries.iter().any(Option::is_some).then(|| claim.updated(entries));
        self.write_claim(addr, left)
    }

    /// Whether the live read of a release permits it.
    pub(crate) fn may_release(&self, release: Release, rules: Rules) -> bool {
        let Release { addr, name, .. } = release;
        // If the claim changed since it was known, the deletion fails whatever is read now.
        self.claim(addr)
            .is_none_or(|claim| permits_release(self.service(name), name, claim, addr, rules))
    }

    /// Whether the live read of a claim permits to withdraw its address from a Service known at this
    /// version. If the Service changed since, the withdrawal fails whatever is read now.
    pub(crate) fn may_withdraw(&self, addr: Addr, name: Name, version: Version) -> bool {
        self.service(name).is_none_or(|service| {
            let claim = self.claim(addr).filter(|claim| claim.entry(name, service).is_some());
            service.version != version || claim.is_some_and(|claim| claim.clashes(name, service))
        })
    }

    /// Brings what properties ask for up to date with what is on the server.
    fn remember(&mut self) {
        for name in Name::ALL {
            let service = self.service(name);
            for addr in Addr::ALL {
                let unwanted = self.claim(addr).is_some_and(|claim| {
                    let named = claim.entries[name as usize].is_some();
                    named && is_unwanted(service, name, claim, addr)
                });
                self.ghosts.unwanted[addr as usize][name as usize] |= unwanted;
            }
            let shows = service.and_then(|service| service.shows);
            self.ghosts.as_it_came[name as usize] &= shows.is_some() && !self.is_listed(name);
            self.ghosts.changed_consent[name as usize] &= service.is_some();
        }
    }

    /// Whether the claim on what a Service shows names it.
    pub(crate) fn is_listed(&self, name: Name) -> bool {
        self.service(name).is_some_and(|service| {
            let claim = service.shows.and_then(|addr| self.claim(addr));
            claim.is_some_and(|claim| claim.entry(name, service).is_some())
        })
    }
}

fn may_publish(service: Service, uid: Version, version: Version, rules: Rules) -> bool {
    // The API server takes no ingress on a Service of another type, guarded or not.
    let unguarded = rules.lack(Weakened::PublishUnguarded);
    service.version == version || (unguarded && service.uid == uid && service.balanced)
}

fn may_delete(claim: Claim, release: Release, rules: Rules) -> bool {
    claim.version == release.version
        || rules.lack(Weakened::ReleaseUnguarded)
        || (rules.lack(Weakened::ReleaseGuardedByUid) && claim.uid == release.uid)
}

/// Whether the holder, as it was found, lets go of the address.
pub(crate) fn permits_release(
    holder: Option<Service>,
    name: Name,
    claim: Claim,
    addr: Addr,
    rules: Rules,
) -> bool {
    let moving = |service: Service| service.request.is_some_and(|asked| asked != addr);
    if rules.lack(Weakened::ReleaseBeforeWithdraw) && holder.is_some_and(moving) {
        return true;
    }
    if let Some(service) = holder
        && rules.lack(Weakened::ReleaseByName)
    {
        let mut named = claim;
        if let Some(entry) = &mut named.entries[name as usize] {
            entry.uid = service.uid;
        }
        return is_unwanted(Some(service), name, named, addr);
    }
    is_unwanted(holder, name, claim, addr)
}
