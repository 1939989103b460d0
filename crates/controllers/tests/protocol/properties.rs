//! Properties that always hold, that hold at rest, and that must be possible.

use stateright::Property;

use crate::{
    cluster::{Addr, Name, Service, Version},
    model::{Protocol, Scene},
    operator::{Call, Phase},
    state::{Breach, Budget, State},
};

pub(crate) const SHOWN_ONCE: &str = "who shows one address together agreed to share it";
pub(crate) const LISTED: &str = "who shows an address is a holder in its claim";
pub(crate) const ONE_CLAIM: &str = "an address that is taken is not taken again";
pub(crate) const UNMOVED: &str = "no shown address changes unless its user asked";
pub(crate) const KEPT: &str = "nothing is released while it is wanted";
pub(crate) const SERVED: &str = "at rest, who can have an address has one";
pub(crate) const TIDY: &str = "at rest, every holder shows what it holds";
pub(crate) const NOT_TWICE: &str = "one operator takes one address for one wish";
pub(crate) const NO_ORPHANS: &str = "at start, no fresh claim looks orphaned";

/// Everything to check for a scene.
pub(crate) fn all(protocol: &Protocol) -> Vec<Property<Protocol>> {
    let mut all = vec![
        always(SHOWN_ONCE, |_, state| !Addr::ALL.iter().any(|addr| is_doubled(state, *addr))),
        always(LISTED, |_, state| {
            let mut names = Name::ALL.into_iter();
            names.all(|name| shown(state, name).is_none() || is_accounted_for(state, name))
        }),
        always(ONE_CLAIM, |_, state| state.breach != Some(Breach::TookWhatWasTaken)),
        always(UNMOVED, |_, state| state.breach != Some(Breach::MovedUnasked)),
        always(KEPT, |_, state| state.breach != Some(Breach::ReleasedWhatWasWanted)),
        always(NO_ORPHANS, |_, state| state.breach != Some(Breach::TookFreshClaimForOrphan)),
        always(SERVED, |protocol, state| {
            !is_at_rest(protocol, state) || Name::ALL.into_iter().all(|name| is_served(state, name))
        }),
        always(TIDY, |protocol, state| !is_at_rest(protocol, state) || is_tidy(state)),
    ];
    let Budget { edits, crashes, .. } = protocol.budget;
    if protocol.operators == 1 && edits == 0 && crashes == 0 {
        all.push(always(NOT_TWICE, |_, state| {
            Name::ALL.into_iter().all(|name| count_claims(state, name) <= 1)
        }));
    }
    all.extend(possible(protocol));
    all
}

/// What must be reachable: a model in which nothing happens proves nothing.
fn possible(protocol: &Protocol) -> Vec<Property<Protocol>> {
    let mut possible = vec![sometimes("all come to rest", |protocol, state| {
        let mut names = Name::ALL.into_iter().filter(|name| state.service(*name).is_some());
        is_at_rest(protocol, state) && names.all(|name| state.is_listed(name))
    })];
    let edits = protocol.budget.edits > 0;
    let apart = protocol.scene == Scene::Apart;
    if edits {
        possible.extend([
            sometimes("a Service moves to what it asks for", |_, state| {
                Name::ALL.into_iter().any(|name| {
                    let asked = state.service(name).filter(|service| service.request.is_some());
                    asked.is_some_and(|service| service.request == service.shows)
                        && count_claims(state, name) == 2
                })
            }),
            sometimes("a claim is released", |_, state| {
                let mut claims = state.claims.iter();
                claims.any(|track| track.present().is_none() && track.0.iter().any(Option::is_some))
            }),
            sometimes("a claim outlives its holder", |_, state| {
                let claims = Addr::ALL.into_iter().filter_map(|addr| state.claim(addr));
                let mut entries = claims.flat_map(|claim| claim.entries).flatten();
                entries.any(|entry| entry.uid == Version::PAST)
            }),
        ]);
    }
    if edits && apart && protocol.operators > 1 {
        possible.extend([
            sometimes("a publication meets a newer version", |protocol, state| {
                calls(protocol, state).any(|call| {
                    let Call::Publish { name, version, .. } = call else { return false };
                    state.service(name).is_none_or(|service| service.version != version)
                })
            }),
            sometimes("a touch saves a claim from its deletion", |_, state| {
                let mut due = state.operators.iter().filter_map(|operator| operator.due);
                due.any(|call| {
                    let Call::Delete(release) = call else { return false };
                    release.version == Version::PAST && state.claim(release.addr).is_some()
                })
            }),
        ]);
    }
    if protocol.budget.edits > 1 && apart && protocol.operators > 1 {
        possible.push(sometimes("a live read forbids a release", |protocol, state| {
            calls(protocol, state).any(|call| {
                let Call::Read(release) = call else { return false };
                let claim = state.claim(release.addr);
                claim.is_some_and(|claim| claim.version == release.version)
                    && !state.may_release(release, protocol.rules)
            })
        }));
    }
    if apart && protocol.operators > 1 {
        possible.push(sometimes("one Service is given two claims", |_, state| {
            Name::ALL.into_iter().any(|name| {
                let asks = state.service(name).is_some_and(|service| service.request.is_some());
                !asks && count_claims(state, name) == 2
            })
        }));
    }
    if protocol.scene == Scene::Sharing {
        possible.push(sometimes("two Services share an address", |_, state| {
            let [red, blue] = Name::ALL.map(|name| shown(state, name));
            red.is_some() && red == blue
        }));
    }
    possible
}

/// As the library's own, with its types known.
fn always(name: &'static str, holds: fn(&Protocol, &State) -> bool) -> Property<Protocol> {
    Property::always(name, holds)
}

fn sometimes(name: &'static str, holds: fn(&Protocol, &State) -> bool) -> Property<Protocol> {
    Property::sometimes(name, holds)
}

fn calls(protocol: &Protocol, state: &State) -> impl Iterator<Item = Call> {
    (0..state.operators.len()).flat_map(|index| protocol.calls(state, index))
}

fn shown(state: &State, name: Name) -> Option<Addr> {
    state.service(name)?.shows
}

/// An address from elsewhere that is in no claim yet is no operator's fault.
fn is_accounted_for(state: &State, name: Name) -> bool {
    state.ghosts.as_it_came[name as usize] || state.is_listed(name)
}

fn is_doubled(state: &State, addr: Addr) -> bool {
    let agreed = |name: Name| {
        let entry = state.claim(addr).zip(state.service(name));
        let entry = entry.and_then(|(claim, service)| claim.entry(name, service));
        entry.is_some_and(|entry| entry.shares)
    };
    let all_show = Name::ALL.into_iter().all(|name| shown(state, name) == Some(addr));
    let came_so = state.ghosts.as_it_came.contains(&true);
    all_show && !came_so && !Name::ALL.into_iter().all(agreed)
}

/// How many claims name this very Service.
fn count_claims(state: &State, name: Name) -> usize {
    let Some(service) = state.service(name) else { return 0 };
    let claims = Addr::ALL.into_iter().filter_map(|addr| state.claim(addr));
    claims.filter(|claim| claim.entry(name, service).is_some()).count()
}

/// Whether no operator has anything left to do, though at least one is running. Asking again for a
/// release that the live read forbids is nothing.
fn is_at_rest(protocol: &Protocol, state: &State) -> bool {
    let idle = state.operators.iter().all(|operator| {
        let running = operator.phase == Phase::Running;
        !running || (operator.due.is_none() && operator.unsure.is_none())
    });
    let current = state.services.iter().all(|track| track.0.len() == 1)
        && state.claims.iter().all(|track| track.0.len() == 1);
    let any_running = state.operators.iter().any(|operator| operator.phase == Phase::Running);
    let listing = state.operators.iter().any(|operator| operator.phase == Phase::Listing);
    let settled = idle && current && any_running && !listing && state.wire.is_none();
    settled
        && calls(protocol, state).all(|call| match call {
            Call::Read(release) => !state.may_release(release, protocol.rules),
            Call::Confirm { addr, name, version, .. } => !state.may_withdraw(addr, name, version),
            Call::Take { .. } | Call::Touch { .. } | Call::Publish { .. } | Call::Delete(_) => {
                false
            }
        })
}

/// Whether a Service has what it can have.
fn is_served(state: &State, name: Name) -> bool {
    let Some(service) = state.service(name).filter(|service| service.balanced) else { return true };
    let available = |addr: &Addr| is_available(state, name, service, *addr);
    match (service.request, service.shows) {
        (Some(asked), shows) if shows != Some(asked) => !available(&asked),
        (_, None) => !Addr::ALL.iter().any(available),
        (_, Some(_)) => true,
    }
}

/// Whether the Service could have the address: it has no holder, or its holders would share it.
fn is_available(state: &State, name: Name, service: Service, addr: Addr) -> bool {
    let shown_by_other = shown(state, name.other()) == Some(addr);
    match state.claim(addr) {
        None => !shown_by_other,
        Some(claim) => {
            let named = claim.entry(name, service).is_some();
            !claim.clashes(name, service) && (named || service.shares)
        }
    }
}

/// Whether every entry of every claim is of a Service that shows the address, on the terms it has.
fn is_tidy(state: &State) -> bool {
    Addr::ALL.into_iter().all(|addr| {
        let entries = state.claim(addr).map(|claim| claim.entries).unwrap_or_default();
        Name::ALL.into_iter().zip(entries).all(|(name, entry)| {
            entry.is_none_or(|entry| {
                state.service(name).is_some_and(|service| {
                    let itself = entry.is(service) && service.shows == Some(addr);
                    itself && entry.shares == service.shares
                })
            })
        })
    })
}
