//! The program that asks for errands: what it submits, cancels, holds and lets go.

use super::Trial;
use super::errand::{Fate, Need, Order, Ticket};
use super::oracle::Callee;
use aktis_logic::machine::submitter::{ActorIndex, Input, Place, Route, Submission};
use aktis_protocol::{Failure, FailureKind, ProcessSlot, SessionId, TaskId};
use std::collections::BTreeSet;

/// Actors that are open at most: few, so that much happens to each.
const ACTORS_MAX: usize = 6;

/// What the program has.
pub(super) struct Caller {
    /// Whether tickets hold references to their inputs, as the payloads of real tasks do.
    tickets_hold: bool,
    /// How many references there are to each return of each errand.
    references: Vec<Vec<u32>>,
    /// Those that the program itself has.
    held: Vec<(usize, u32)>,
    /// Those that came back with tickets, and are about to go.
    loose: Vec<(usize, u32)>,
    /// Actors that nobody will call again, although they are open.
    released: BTreeSet<ActorIndex>,
    counter: u64,
}

impl Caller {
    pub(super) fn new(tickets_hold: bool) -> Self {
        Self {
            tickets_hold,
            references: Vec::new(),
            held: Vec::new(),
            loose: Vec::new(),
            released: BTreeSet::new(),
            counter: 0,
        }
    }

    /// The machine gave a ticket back: what it held goes, sooner or later.
    pub(super) fn on_ticket_back(&mut self, order: &Order) {
        if self.tickets_hold {
            self.loose.extend(errands(&order.needs));
        }
    }

    /// The references that the program itself has.
    pub(super) fn held(&self) -> &[(usize, u32)] {
        &self.held
    }

    /// Whether anything refers to a return of an errand.
    pub(super) fn is_referenced(&self, number: usize, index: u32) -> bool {
        self.references[number][index as usize] > 0
    }

    /// A return of an errand is referenced again for a while, if it was not; gives whether it was not.
    pub(super) fn refer_again(&mut self, number: usize, index: u32) -> bool {
        let references = &mut self.references[number][index as usize];
        let is_new = *references == 0;
        if is_new {
            *references = 1;
            self.loose.push((number, index));
        }
        is_new
    }

    fn on_submitted(&mut self, number: usize, order: &Order) {
        self.references.push(vec![1; order.returns as usize]);
        self.held.extend((0..order.returns).map(|index| (number, index)));
        if self.tickets_hold {
            for (producer, index) in errands(&order.needs) {
                self.references[producer][index as usize] += 1;
            }
        }
    }

    fn next_task(&mut self) -> TaskId {
        self.counter += 1;
        TaskId::root(SessionId(1)).child(self.counter)
    }
}

fn errands(needs: &[Need]) -> impl Iterator<Item = (usize, u32)> {
    needs.iter().filter_map(|need| match need {
        Need::Errand(number, index) => Some((*number, *index)),
        Need::Thing(_) => None,
    })
}

impl Trial {
    pub(super) fn submit_task(&mut self) {
        let lane = self.workers.any_lane(&mut self.random);
        let returns = [1, 1, 1, 2, 3][self.random.below(5) as usize];
        self.submit(Route::Lane(lane), returns);
    }

    pub(super) fn submit_call(&mut self) {
        if let Some(actor) = self.any_actor(|callee| !callee.closing) {
            self.submit(Route::Actor(actor), 1);
        }
    }

    /// The last call of an actor: it is answered as soon as it is sent, and then the actor is closed.
    pub(super) fn release_actor(&mut self) {
        let Some(actor) = self.any_actor(|callee| !callee.closing) else { return };
        let order = Order {
            task: self.caller.next_task(),
            route: Route::Actor(actor),
            returns: 0,
            retries: 0,
            bytes: 1,
            needs: vec![],
        };
        self.caller.released.insert(actor);
        self.submit_order(order);
    }

    fn submit(&mut self, route: Route, returns: u32) {
        let needs =
            (0..[0, 0, 1, 2, 4][self.random.below(5) as usize]).filter_map(|_| self.any_need()).collect();
        let order = Order {
            task: self.caller.next_task(),
            route,
            returns,
            retries: self.random.below(3) as u32,
            bytes: [1, 50, 120, 300][self.random.below(4) as usize],
            needs,
        };
        self.submit_order(order);
    }

    /// Something to compute from; seldom something that failed, so that most errands run.
    fn any_need(&mut self) -> Option<Need> {
        let need = if self.random.chance(70) { self.held_need() } else { Some(self.thing()) };
        need.filter(|need| self.oracle.fate(*need) != Fate::Failed || self.random.chance(2))
    }

    /// Rather a recent one, so that chains grow.
    fn held_need(&mut self) -> Option<Need> {
        let held = &self.caller.held;
        let recent = &held[held.len().saturating_sub(12)..];
        self.random.pick(recent).map(|(number, index)| Need::Errand(number, index))
    }

    /// An object from elsewhere, known or new.
    fn thing(&mut self) -> Need {
        let known: Vec<_> = self.oracle.things.keys().copied().collect();
        if let Some(object) = self.random.pick(&known).filter(|_| self.random.chance(60)) {
            return Need::Thing(object);
        }
        let object = self.caller.next_task().returns(0);
        self.oracle.things.insert(object, Fate::Open);
        Need::Thing(object)
    }

    fn submit_order(&mut self, order: Order) {
        let (task, route, returns, retries, bytes) =
            (order.task, order.route, order.returns, order.retries, order.bytes);
        let payload = Ticket(self.oracle.errands.len());
        let submission = Submission { task, route, returns, retries, attempt: 0, bytes, payload };
        let key = self.machine.on_submitted(submission, &self.inputs(&order.needs));
        let failed = order.needs.iter().any(|need| self.oracle.fate(*need) == Fate::Failed);
        let number = self.oracle.on_submitted(order.clone(), key);
        self.caller.on_submitted(number, &order);
        if self.trace {
            println!("submitted {number} as {key:?}: {order:?}");
        }
        if let Route::Actor(actor) = route {
            self.to_flush.insert(actor);
        }
        if failed {
            self.oracle.on_input_failed(number);
            self.tell("an input that had failed", |machine, effects| machine.on_input_failed(key, effects));
        } else {
            self.check("a submission");
        }
        if let Route::Actor(actor) = route {
            self.fail_if_dead(actor);
        }
    }

    fn inputs(&self, needs: &[Need]) -> Vec<Input> {
        let input = |need: &Need| match *need {
            Need::Errand(number, _) => Some(Input::Task(self.oracle.errands[number].key)),
            Need::Thing(object) if self.oracle.fate(*need) == Fate::Open => Some(Input::Elsewhere(object)),
            Need::Thing(_) => None,
        };
        needs.iter().filter_map(input).collect()
    }

    /// Calls of a dead actor fail at once.
    fn fail_if_dead(&mut self, actor: ActorIndex) {
        if let Some(Callee { place: Place::Dead(failure), .. }) = self.oracle.actors.get(&actor) {
            let failure = (**failure).clone();
            self.end_actor(actor, &failure);
        }
    }

    pub(super) fn end_actor(&mut self, actor: ActorIndex, failure: &Failure) {
        self.oracle.on_actor_dead(actor, failure);
        self.tell("the end of an actor", |machine, effects| machine.on_actor_dead(actor, failure, effects));
    }

    pub(super) fn open_actor(&mut self) {
        if self.oracle.actors.len() >= ACTORS_MAX {
            return;
        }
        let place = match self.random.below(3) {
            0 => Place::Pending,
            _ => Place::Alive(self.workers.any_slot(&mut self.random)),
        };
        let actor = self.machine.open_actor(place.clone());
        if self.trace {
            println!("opened {actor:?} at {place:?}");
        }
        let before = self.oracle.actors.insert(actor, Callee { place, closing: false });
        assert!(before.is_none(), "{actor:?} is given twice");
        self.caller.released.remove(&actor);
    }

    pub(super) fn any_actor(&mut self, wanted: impl Fn(&Callee) -> bool) -> Option<ActorIndex> {
        let actors = self.oracle.actors.iter();
        let released = &self.caller.released;
        let fit = actors.filter(|(actor, callee)| wanted(callee) && !released.contains(actor));
        let fit: Vec<_> = fit.map(|(actor, _)| *actor).collect();
        self.random.pick(&fit)
    }

    pub(super) fn close_or_reopen_actor(&mut self) {
        if let Some(actor) = self.any_actor(|callee| callee.closing) {
            self.oracle.callee(actor).closing = false;
            self.machine.reopen_actor(actor);
            self.check("reopening an actor");
        } else if let Some(actor) = self.any_actor(|_| true) {
            self.close_actor(actor);
        }
    }

    pub(super) fn close_actor(&mut self, actor: ActorIndex) {
        self.oracle.on_actor_closing(actor);
        self.tell("closing an actor", |machine, effects| machine.close_actor(actor, effects));
    }

    pub(super) fn close_all_actors(&mut self) {
        for actor in self.oracle.actors.keys().copied().collect::<Vec<_>>() {
            self.close_actor(actor);
        }
    }

    /// The node says where an actor is, or that it is gone.
    pub(super) fn place_actor(&mut self) {
        let pending =
            |(actor, callee): (&ActorIndex, &Callee)| (callee.place == Place::Pending).then_some(*actor);
        let pending: Vec<_> = self.oracle.actors.iter().filter_map(pending).collect();
        let Some(actor) = self.random.pick(&pending) else { return };
        if self.random.chance(10) {
            let failure = Failure::new(FailureKind::ActorDied, "it could not be started");
            return self.end_actor(actor, &failure);
        }
        let process: ProcessSlot = self.workers.any_slot(&mut self.random);
        self.oracle.callee(actor).place = Place::Alive(process);
        self.tell("an actor alive", |machine, effects| machine.on_actor_alive(actor, process, effects));
    }

    /// Cancels any errand that ever was.
    pub(super) fn cancel_one(&mut self) {
        let count = self.oracle.errands.len() as u64;
        if count == 0 {
            return;
        }
        let recent = count.min(30);
        let number = (count - 1 - self.random.below(recent)) as usize;
        let key = self.oracle.errands[number].key;
        let expected = self.oracle.on_cancelled(number);
        let found = self.tell("a cancel", |machine, effects| machine.on_cancelled(key, effects));
        assert_eq!(found, expected, "what the cancel of errand {number} found");
        if self.random.chance(50) {
            self.workers.take_back(number);
        }
    }

    pub(super) fn resolve_thing(&mut self) {
        let open = self.oracle.things.iter().filter(|(_, fate)| **fate == Fate::Open);
        let open: Vec<_> = open.map(|(object, _)| *object).collect();
        let Some(object) = self.random.pick(&open) else { return };
        let failed = self.random.chance(7);
        self.oracle.on_thing_resolved(object, failed);
        self.tell("an object from elsewhere", |machine, effects| {
            machine.on_elsewhere_resolved(object, failed, effects);
        });
    }

    pub(super) fn drop_handle(&mut self) {
        let held = self.caller.held.len() as u64;
        if held > 0 && self.random.chance(60) {
            let (number, index) = self.caller.held.swap_remove(self.random.below(held) as usize);
            self.let_go(number, index);
        } else if let Some((number, index)) = self.caller.loose.pop() {
            self.let_go(number, index);
        }
    }

    pub(super) fn let_go_of_all(&mut self) {
        while let Some((number, index)) = self.caller.loose.pop() {
            self.let_go(number, index);
        }
    }

    pub(super) fn drop_all_handles(&mut self) {
        while !self.caller.held.is_empty() || !self.caller.loose.is_empty() {
            self.drop_handle();
        }
    }

    fn let_go(&mut self, number: usize, index: u32) {
        let references = &mut self.caller.references[number][index as usize];
        *references -= 1;
        if *references == 0 {
            let key = self.oracle.errands[number].key;
            self.oracle.on_handle_dropped(number);
            self.tell("a handle dropped", |machine, effects| machine.on_handle_dropped(key, effects));
        }
    }
}
