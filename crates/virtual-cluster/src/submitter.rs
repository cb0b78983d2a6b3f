//! One submitter under faults, from a seed: a caller that asks for random things, workers that die, and values that are
//! lost.
//!
//! The machine is the product's own. Every event is told to the `oracle` first, and then:
//! 1. The machine's effects are exactly those that the oracle expects, and each ticket comes out once.
//! 2. Every record is as far as the oracle says, and what nobody can ask for is not on record.
//! 3. A call that may be sent was announced: by a flush, by its submission, or because its channel was full.
//! 4. What is lost is made again after all that it needs, or not at all.
//! 5. At the end everything has values or a failure, and nothing is left.

mod caller;
mod errand;
mod losses;
mod oracle;
mod workers;

use crate::random::Random;
use aktis_logic::machine::submitter::{ActorIndex, Submitter, SubmitterConfig, SubmitterEffect};
use aktis_logic::planted::SubmitterBug;
use aktis_protocol::{DeathCause, Failure, FailureKind};
use caller::Caller;
use errand::{Fate, Ticket};
use oracle::Oracle;
use std::collections::BTreeSet;
use workers::Workers;

type Effects = Vec<SubmitterEffect<Ticket>>;

/// One run.
struct Trial {
    machine: Submitter<Ticket>,
    config: SubmitterConfig,
    oracle: Oracle,
    caller: Caller,
    workers: Workers,
    /// Actors whose calls may be sendable.
    to_flush: BTreeSet<ActorIndex>,
    random: Random,
    trace: bool,
}

/// Runs `steps` random events from a seed, then lets everything come to its end; with `trace`, the events are
/// printed. Panics if something is wrong.
pub fn run(seed: u64, steps: u32, trace: bool) {
    run_with(seed, steps, trace, None);
}

/// The same, with a bug in the submitter.
pub fn run_with(seed: u64, steps: u32, trace: bool, planted: Option<SubmitterBug>) {
    let mut random = Random::new(seed);
    let config = SubmitterConfig {
        lineage: random.chance(80),
        lineage_bytes_max: [200, 1000, 1 << 20][random.below(3) as usize],
        rests: false,
    };
    let mut machine = Submitter::new(config);
    machine.planted.plant(planted);
    let lanes: Vec<_> = (0..1 + random.below(3)).map(|_| machine.open_lane()).collect();
    let mut trial = Trial {
        oracle: Oracle::new(config),
        caller: Caller::new(random.chance(70)),
        workers: Workers::new(&lanes, &mut random),
        to_flush: BTreeSet::new(),
        machine,
        config,
        random,
        trace,
    };
    for _ in 0..steps {
        trial.step();
    }
    trial.finish();
}

impl Trial {
    fn step(&mut self) {
        match self.random.below(100) {
            0..12 => self.submit_task(),
            12..19 => self.submit_call(),
            19..22 => self.open_actor(),
            22..24 => self.close_or_reopen_actor(),
            24 => self.release_actor(),
            25..34 => self.drop_handle(),
            34..36 => self.cancel_one(),
            36..40 => self.resolve_thing(),
            40..47 => self.flush_a_lane(),
            47..49 => self.take(),
            49..56 => self.flush_an_actor(),
            56..65 => self.claim(),
            65..67 => self.answer_here(),
            67..80 => self.answer(),
            80..92 => self.deliver(),
            92..95 => self.haunt(),
            95..97 => self.place_actor(),
            97 => self.kill_worker(),
            98 => self.restart_actor(),
            _ if self.random.chance(50) => self.let_go_of_all(),
            _ => self.lose_values(),
        }
    }

    /// Tells the machine what the oracle knows already, and compares.
    fn tell<R>(&mut self, event: &str, handler: impl FnOnce(&mut Submitter<Ticket>, &mut Effects) -> R) -> R {
        let mut effects = Effects::new();
        let result = handler(&mut self.machine, &mut effects);
        if self.trace {
            println!("{event}: {effects:?}");
        }
        effects.into_iter().for_each(|effect| self.obey(effect));
        self.check(event);
        result
    }

    fn obey(&mut self, effect: SubmitterEffect<Ticket>) {
        let expected = &mut self.oracle.expected;
        let (number, task) = match effect {
            SubmitterEffect::Flush(actor) => {
                self.to_flush.insert(actor);
                return;
            }
            SubmitterEffect::Closed(actor) => {
                assert!(expected.closed.remove(&actor), "{actor:?} was closed too early or twice");
                self.to_flush.remove(&actor);
                return;
            }
            SubmitterEffect::Rest(key) => panic!("{key:?} is to rest, though nothing does"),
            SubmitterEffect::Drop(Ticket(number)) => {
                assert!(expected.dropped.remove(&number), "ticket {number} was still needed");
                (number, None)
            }
            SubmitterEffect::Fail(Ticket(number), task, failure, _) => {
                expected.for_input.remove(&number);
                let kind = expected.failed.remove(&number);
                assert_eq!(kind, Some(failure.kind), "the failure of errand {number}");
                (number, Some(task))
            }
            SubmitterEffect::FailForInput(Ticket(number), task, _) => {
                expected.failed.remove(&number);
                assert!(expected.for_input.remove(&number), "no input of errand {number} failed");
                (number, Some(task))
            }
        };
        let order = &self.oracle.errands[number].order;
        assert!(task.is_none_or(|task| task == order.task), "errand {number} has another id");
        self.caller.on_ticket_back(order);
    }

    /// Panics if the machine is not as the oracle says.
    fn check(&mut self, event: &str) {
        self.machine.check();
        let (machine, oracle) = (&self.machine, &self.oracle);
        let expected = &oracle.expected;
        let missed = expected.failed.len() + expected.for_input.len() + expected.dropped.len();
        assert!(missed + expected.closed.len() == 0, "after {event}, missing effects: {expected:?}");
        assert_eq!(machine.unfinished(), oracle.open().count(), "unfinished errands after {event}");
        assert_eq!(machine.lineage_bytes(), oracle.lineage_bytes(), "bytes of lineage after {event}");
        assert!(machine.lineage_bytes() <= self.config.lineage_bytes_max, "lineage is bounded");
        for &number in &expected.forgotten {
            let found = machine.record(oracle.errands[number].key);
            assert!(found.is_none(), "errand {number} is on record after {event}");
        }
        for &number in &oracle.on_record {
            self.check_record(number, event);
        }
        assert_eq!(machine.on_record(), oracle.on_record.len(), "records after {event}");
        assert!(oracle.awaited().into_iter().all(|object| machine.awaits(object)), "awaited after {event}");
        let mut resolved = oracle.things.iter().filter(|(_, fate)| **fate != Fate::Open);
        assert!(resolved.all(|(object, _)| !machine.awaits(*object)), "resolved before {event}");
        for (&actor, callee) in &oracle.actors {
            assert_eq!(*machine.actor_place(actor), callee.place, "place of {actor:?} after {event}");
            let forgotten = oracle.next_call(actor).filter(|_| !self.to_flush.contains(&actor));
            assert_eq!(forgotten, None, "nobody says after {event} that {actor:?} can be called");
        }
        self.oracle.expected = oracle::Expected::default();
    }

    fn check_record(&self, number: usize, event: &str) {
        let errand = &self.oracle.errands[number];
        let record = self.machine.record(errand.key);
        let record = record.unwrap_or_else(|| panic!("errand {number} is not on record after {event}"));
        assert_eq!((record.task(), record.route()), (errand.order.task, errand.order.route));
        let stage = self.oracle.stage(number);
        assert_eq!(record.stage(), stage, "errand {number} after {event}");
        assert_eq!(record.attempt() + u32::from(errand.is_under_way()), errand.runs, "tries of {number}");
        assert_eq!(record.payload().map(|ticket| ticket.0), errand.ticket.then_some(number), "its ticket");
        if errand.is_open() {
            assert_eq!(record.missing() as usize, self.oracle.missing(number), "inputs of errand {number}");
        }
    }

    /// Everything comes to its end, or is ended; then nothing may be left.
    fn finish(&mut self) {
        if self.random.chance(75) {
            for _ in 0..1000 {
                self.tidy_up();
            }
            let open: Vec<_> = self.oracle.open().collect();
            assert!(open.is_empty(), "errands {open:?} never finish");
        } else {
            let failure = Failure::new(FailureKind::SessionClosed, "the end");
            self.oracle.on_closed(&failure.kind);
            self.tell("the end", |machine, effects| machine.on_closed(&failure, effects));
        }
        self.drop_all_handles();
        while self.workers.has_ghosts() {
            self.haunt();
        }
        self.close_all_actors();
        let machine = &self.machine;
        assert_eq!((machine.on_record(), machine.unfinished(), machine.lineage_bytes()), (0, 0, 0));
        let gone = |errand: &errand::Errand| !errand.ticket && machine.record(errand.key).is_none();
        assert!(self.oracle.errands.iter().all(gone), "old keys find nothing");
    }

    fn tidy_up(&mut self) {
        if self.oracle.open().next().is_none() {
            return;
        }
        self.resolve_thing();
        self.place_actor();
        for _ in 0..3 {
            self.flush_a_lane();
            self.flush_an_actor();
            self.claim();
            self.answer();
            self.answer_here();
            self.deliver();
        }
    }
}

/// How virtual workers die.
fn cause() -> DeathCause {
    DeathCause { pid: 1, signal: Some(9), ..DeathCause::default() }
}
