//! The model: scenes to begin with, and every step that can follow.

use stateright::{Model, Property};

use crate::{
    cluster::{Addr, Claim, Name, Service, Track, Version},
    operator::{Call, Operator, Phase, Release, Unsure},
    properties,
    rules::{Rules, Weakened},
    server::{Edit, permits_release},
    state::{Breach, Budget, Ghosts, State},
};

/// How far watches may lag in a model that lacks a rule; with all of them there is no need of a limit.
const LONGEST_TRACK: usize = 12;

/// The situation at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scene {
    /// One Service wants an address, and there is never more than one.
    Lone,
    /// Two Services want an address each, and share with no other.
    Apart,
    /// Two Services want an address, and would share it.
    Sharing,
    /// Both show the same address, and there are no claims: some other program gave it to them.
    Doubled,
    /// One shows an address without a claim; the other wants one.
    Inherited,
}

/// The protocol within bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Protocol {
    pub(crate) scene: Scene,
    pub(crate) operators: usize,
    pub(crate) budget: Budget,
    pub(crate) rules: Rules,
}

/// A watched object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    Service(Name),
    Claim(Addr),
}

/// One step of a user, an operator or a watch. Operators are known by their place in the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    User(Name, Edit),
    /// An operator dies and forgets everything; a call it made may arrive later all the same.
    Crash(usize, Option<Call>),
    /// It makes the next of the two lists of its start.
    List(usize),
    /// Its watch shows the next version of an object.
    Observe(usize, Object),
    /// It makes a call and gets the answer.
    ///
    /// An operator may be arbitrarily late in what it observes, so nothing is lost by letting it decide
    /// and write at once: a call that was delayed is one that was decided by an old view.
    Call(usize, Call),
    /// It makes a call and gets no answer; the call arrives later, or never.
    Lose(usize, Call, Arrival),
    /// It finds an address taken, and goes on with any other before it looks up the holder.
    Hasten(usize, Addr),
    /// It finds out what became of a call without an answer.
    Look(usize),
    /// The late call arrives.
    Arrive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Late,
    Never,
}

impl Model for Protocol {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let service = |shows| Service { shows, ..Service::wanting(self.scene == Scene::Sharing) };
        let services = match self.scene {
            Scene::Lone => [None, Some(service(None))],
            Scene::Apart | Scene::Sharing => [Some(service(None)); 2],
            Scene::Doubled => [Some(service(Some(Addr::Low))); 2],
            Scene::Inherited => [Some(service(None)), Some(service(Some(Addr::Low)))],
        };
        let running = Operator { phase: Phase::Running, ..Operator::DOWN };
        let absent = Operator { phase: Phase::Absent, ..Operator::DOWN };
        let state = State {
            services: services.map(Track::at),
            claims: [Track::at(None), Track::at(None)],
            operators: [running.clone(), if self.operators > 1 { running } else { absent }],
            wire: None,
            left: self.budget,
            ghosts: Ghosts {
                as_it_came: services
                    .map(|service| service.is_some_and(|service| service.shows.is_some())),
                ..Ghosts::default()
            },
            breach: None,
        };
        vec![state.canonical(self.rules)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if state.left.edits > 0 {
            for name in Name::ALL {
                steps.extend(self.edits(state, name).map(|edit| Step::User(name, edit)));
            }
        }
        if state.wire.is_some() {
            steps.push(Step::Arrive);
        }
        for index in 0..state.operators.len() {
            self.steps_of(state, index, steps);
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        match step {
            Step::User(name, edit) => {
                next.left.edits = next.left.edits.checked_sub(1)?;
                next.edit(name, edit);
            }
            Step::Crash(index, late) => {
                next.left.crashes = next.left.crashes.checked_sub(1)?;
                next.operators[index] = Operator::DOWN;
                next.wire = late.or(next.wire);
            }
            Step::List(index) => self.list(&mut next, index),
            Step::Observe(index, object) => {
                let operator = &mut next.operators[index];
                match object {
                    Object::Service(name) => operator.services[name as usize] += 1,
                    Object::Claim(addr) => {
                        operator.claims[addr as usize] += 1;
                        operator.wrote[addr as usize] = false;
                    }
                }
            }
            Step::Call(index, call) => self.call(&mut next, index, &call),
            Step::Lose(index, call, arrival) => {
                next.left.losses = next.left.losses.checked_sub(1)?;
                let view = next.view(index, self.rules);
                let operator = &mut next.operators[index];
                operator.unsure = call.doubt();
                operator.due = operator.due.filter(|due| view.learnt(*due) != call);
                if arrival == Arrival::Late {
                    next.wire = Some(call);
                }
            }
            Step::Hasten(index, addr) => {
                next.left.losses = next.left.losses.checked_sub(1)?;
                next.operators[index].unsure = Some(Unsure::Claim(addr, None));
            }
            Step::Look(index) => match next.operators[index].unsure.take()? {
                Unsure::Claim(addr, _) => look(&mut next, index, Object::Claim(addr)),
                Unsure::Service(name) => look(&mut next, index, Object::Service(name)),
            },
            Step::Arrive => {
                let call = next.wire.take()?;
                next.apply(&call, self.rules);
            }
        }
        Some(next.canonical(self.rules))
    }

    /// Without a rule, operators may undo each other's work for ever while a watch tells nothing.
    fn within_boundary(&self, state: &State) -> bool {
        let claims = state.claims.iter().map(Track::end);
        let longest = claims.chain(state.services.iter().map(Track::end)).max();
        self.rules == Rules::ALL || longest <= Some(LONGEST_TRACK)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(self)
    }
}

impl Protocol {
    fn edits(&self, state: &State, name: Name) -> impl Iterator<Item = Edit> {
        let sharing = self.scene == Scene::Sharing;
        let crowded = self.scene == Scene::Lone && state.service(name.other()).is_some();
        let create = Some(Edit::Create { shares: sharing }).filter(|_| !crowded);
        let requests = [None, Some(Addr::Low), Some(Addr::High)];
        let service = state.service(name);
        let asks = service.into_iter().flat_map(move |service| {
            requests.into_iter().filter(move |asked| *asked != service.request).map(Edit::Ask)
        });
        let others: &[Edit] = match service {
            None => &[],
            Some(_) if sharing => &[Edit::Delete, Edit::Retype, Edit::Consent],
            Some(_) => &[Edit::Delete, Edit::Retype],
        };
        create.filter(|_| service.is_none()).into_iter().chain(asks).chain(others.iter().copied())
    }

    fn steps_of(&self, state: &State, index: usize, steps: &mut Vec<Step>) {
        let operator = &state.operators[index];
        match operator.phase {
            Phase::Absent => return,
            Phase::Down => {
                steps.push(Step::List(index));
                return;
            }
            Phase::Listing => steps.push(Step::List(index)),
            Phase::Running => {}
        }
        for name in Name::ALL {
            if operator.services[name as usize] < state.services[name as usize].end() {
                steps.push(Step::Observe(index, Object::Service(name)));
            }
        }
        for addr in Addr::ALL {
            if operator.claims[addr as usize] < state.claims[addr as usize].end() {
                steps.push(Step::Observe(index, Object::Claim(addr)));
            }
        }
        if state.left.crashes > 0 {
            steps.push(Step::Crash(index, None));
        }
        if operator.unsure.is_some() {
            steps.push(Step::Look(index));
        }
        for call in self.calls(state, index) {
            let doubtful = call.doubt().is_some();
            if doubtful && state.left.crashes > 0 && state.wire.is_none() {
                steps.push(Step::Crash(index, Some(call)));
            }
            if doubtful && state.left.losses > 0 && operator.unsure.is_none() {
                steps.push(Step::Lose(index, call, Arrival::Never));
                if state.wire.is_none() {
                    steps.push(Step::Lose(index, call, Arrival::Late));
                }
                if let Call::Take { addr, .. } = call
                    && state.claim(addr).is_some()
                {
                    steps.push(Step::Hasten(index, addr));
                }
            }
            steps.push(Step::Call(index, call));
        }
    }

    /// What an operator could do next.
    pub(crate) fn calls(&self, state: &State, index: usize) -> Vec<Call> {
        if state.operators[index].phase == Phase::Running {
            state.view(index, self.rules).calls()
        } else {
            Vec::new()
        }
    }

    fn list(&self, state: &mut State, index: usize) {
        let first = state.operators[index].phase == Phase::Down;
        if first == self.rules.lists_holders_first() {
            for name in Name::ALL {
                look(state, index, Object::Service(name));
            }
        } else {
            for addr in Addr::ALL {
                look(state, index, Object::Claim(addr));
            }
        }
        state.operators[index].phase = if first { Phase::Listing } else { Phase::Running };
        if !first && self.sees_orphan(state, index) {
            state.breach.get_or_insert(Breach::TookFreshClaimForOrphan);
        }
    }

    /// Whether an operator that has just started believes that a holder is gone that is not.
    fn sees_orphan(&self, state: &State, index: usize) -> bool {
        let view = state.view(index, self.rules);
        Name::ALL.into_iter().any(|name| {
            let live = state.service(name).filter(|service| service.balanced);
            let named = |claim: &Claim| live.is_some_and(|live| claim.entry(name, live).is_some());
            let known = view.services[name as usize].map(|service| service.uid);
            known != live.map(|live| live.uid) && view.claims.iter().flatten().any(named)
        })
    }

    fn call(&self, state: &mut State, index: usize, call: &Call) {
        match *call {
            Call::Read(release) => return self.read(state, index, release),
            Call::Confirm { addr, name, uid, version } => {
                if state.may_withdraw(addr, name, version) {
                    let withdrawal = Call::Publish { name, uid, version, shows: None };
                    state.operators[index].due = Some(withdrawal);
                }
                return look(state, index, Object::Claim(addr));
            }
            Call::Take { .. } | Call::Touch { .. } | Call::Publish { .. } | Call::Delete(_) => {}
        }
        let view = state.view(index, self.rules);
        let due = &mut state.operators[index].due;
        *due = due.filter(|due| view.learnt(*due) != *call);
        let done = state.apply(call, self.rules);
        // The answer carries the object. A refusal makes the operator look, which tells the same.
        if done && self.rules.lack(Weakened::OverlayForgotten) {
            return;
        }
        match call.doubt() {
            Some(Unsure::Claim(addr, whom)) => {
                look(state, index, Object::Claim(addr));
                let own = done && whom.is_some() && self.rules.tell_own_claims();
                state.operators[index].wrote[addr as usize] = own;
            }
            Some(Unsure::Service(name)) => look(state, index, Object::Service(name)),
            None => {}
        }
    }

    fn read(&self, state: &mut State, index: usize, release: Release) {
        let Release { addr, name, .. } = release;
        let permitted = if self.rules.lack(Weakened::ReleaseFromCache) {
            let view = state.view(index, self.rules);
            let holder = view.services[name as usize];
            view.claims[addr as usize]
                .is_some_and(|claim| permits_release(holder, name, claim, addr, self.rules))
        } else {
            state.may_release(release, self.rules)
        };
        if !permitted {
            look(state, index, Object::Service(name));
            return;
        }
        let unknown = Release { version: Version::PAST, uid: Version::PAST, ..release };
        let learnt_later = self.rules.lack(Weakened::ReadBeforeKnowing);
        let release = if learnt_later { unknown } else { release };
        state.operators[index].due = Some(Call::Delete(release));
    }
}

/// An operator learns the present version of an object.
fn look(state: &mut State, index: usize, object: Object) {
    let operator = &mut state.operators[index];
    match object {
        Object::Service(name) => {
            operator.services[name as usize] = state.services[name as usize].end();
        }
        Object::Claim(addr) => {
            operator.claims[addr as usize] = state.claims[addr as usize].end();
        }
    }
}
