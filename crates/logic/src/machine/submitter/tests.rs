//! Stories about one submitter.

use super::*;
use aktis_protocol::ProcessSlot;

const LINEAGE: SubmitterConfig = SubmitterConfig { lineage: true, lineage_bytes_max: 1000, rests: false };

struct Story {
    machine: Submitter<&'static str>,
    lane: LaneIndex,
    out: Out<&'static str>,
}

impl Story {
    fn new(config: SubmitterConfig) -> Self {
        let mut machine = Submitter::new(config);
        let lane = machine.open_lane();
        Self { machine, lane, out: Vec::new() }
    }

    fn submit_to(&mut self, route: Route, name: &'static str, retries: u32, inputs: &[Input]) -> TaskKey {
        let submission = Submission {
            task: TaskId::default(),
            route,
            returns: 1,
            retries,
            attempt: 0,
            bytes: 100,
            payload: name,
        };
        let key = self.machine.on_submitted(submission, inputs);
        self.machine.check();
        key
    }

    fn submit(&mut self, name: &'static str, inputs: &[Input]) -> TaskKey {
        self.submit_to(Route::Lane(self.lane), name, 1, inputs)
    }

    fn send_all(&mut self) -> Vec<TaskKey> {
        let mut sent = Vec::new();
        while let Some(key) = self.machine.next_in_lane(self.lane) {
            self.machine.on_sent(self.lane, key, sent.len() as u64);
            sent.push(key);
        }
        sent
    }

    fn returned(&mut self, key: TaskKey, failed: bool) -> bool {
        let kept = self.machine.on_returned(key, failed, &mut self.out);
        self.machine.check();
        kept
    }

    fn drop_handle(&mut self, key: TaskKey) {
        self.machine.on_handle_dropped(key, &mut self.out);
        self.machine.check();
    }

    fn failed(&mut self) -> Vec<&'static str> {
        let failed = |effect| match effect {
            SubmitterEffect::Fail(name, ..) | SubmitterEffect::FailForInput(name, ..) => Some(name),
            _ => None,
        };
        self.out.drain(..).filter_map(failed).collect()
    }

    fn cause() -> DeathCause {
        DeathCause { pid: 1, signal: Some(9), ..DeathCause::default() }
    }
}

#[test]
fn a_task_is_sent_when_its_inputs_are_there() {
    let mut story = Story::new(LINEAGE);
    let a = story.submit("a", &[]);
    let b = story.submit("b", &[Input::Task(a), Input::Elsewhere(ObjectId::default())]);
    assert_eq!(story.send_all(), [a]);
    assert!(story.returned(a, false));
    assert_eq!(story.send_all(), []);
    story.machine.on_elsewhere_resolved(ObjectId::default(), false, &mut story.out);
    assert_eq!(story.send_all(), [b]);
    assert!(story.returned(b, false) && !story.returned(b, false));
    assert_eq!(story.machine.unfinished(), 0);
}

#[test]
fn a_failure_reaches_everything_downstream() {
    let mut story = Story::new(LINEAGE);
    let a = story.submit("a", &[]);
    let b = story.submit("b", &[Input::Task(a)]);
    let c = story.submit("c", &[Input::Task(b)]);
    story.send_all();
    story.returned(a, true);
    assert_eq!(story.failed(), ["b", "c"]);
    for key in [a, b, c] {
        story.drop_handle(key);
    }
    assert_eq!(story.machine.on_record(), 0);
}

#[test]
fn a_task_without_a_limit_is_sent_again_for_ever() {
    let mut story = Story::new(LINEAGE);
    let a = story.submit_to(Route::Lane(story.lane), "a", limits::FOR_EVER, &[]);
    for attempt in 0..10 {
        assert_eq!(story.send_all(), [a]);
        story.machine.on_lost(a, attempt, Some(&Story::cause()), &mut story.out);
    }
    assert_eq!(story.machine.tasks.get(a).map(|task| task.retries), Some(limits::FOR_EVER));
    assert!(story.failed().is_empty());
}

#[test]
fn a_task_that_nobody_has_begun_is_sent_again_and_that_is_no_try() {
    let mut story = Story::new(LINEAGE);
    let a = story.submit_to(Route::Lane(story.lane), "a", 0, &[]);
    for _ in 0..3 {
        assert_eq!(story.send_all(), [a]);
        story.machine.on_lost(a, 0, None, &mut story.out);
    }
    assert_eq!(story.send_all(), [a]);
    story.machine.on_lost(a, 0, Some(&Story::cause()), &mut story.out);
    assert_eq!(story.failed(), ["a"]);
}

#[test]
fn all_tasks_of_a_lane_that_is_removed_fail_and_its_place_is_used_again() {
    let mut story = Story::new(LINEAGE);
    let lane = story.machine.open_lane();
    let route = Route::Lane(lane);
    let done = story.submit_to(route, "done", 1, &[]);
    let sent = story.submit_to(route, "sent", 1, &[]);
    for (position, key) in [done, sent].into_iter().enumerate() {
        assert_eq!(story.machine.next_in_lane(lane), Some(key));
        story.machine.on_sent(lane, key, position as u64);
    }
    story.returned(done, false);
    story.submit_to(route, "queued", 1, &[]);
    story.submit_to(route, "waiting", 1, &[Input::Elsewhere(ObjectId::default())]);
    let other = story.submit("other", &[]);
    let failure = Failure::new(FailureKind::GroupRemoved, "gone");
    story.machine.on_lane_removed(lane, &failure, &mut story.out);
    story.machine.check();
    assert_eq!(story.failed(), ["sent", "queued", "waiting"]);
    assert!(story.machine.lane_failure(lane).is_some());
    // What happens to them later changes nothing.
    story.machine.on_lost(sent, 0, Some(&Story::cause()), &mut story.out);
    story.machine.on_elsewhere_resolved(ObjectId::default(), false, &mut story.out);
    let next = story.machine.open_lane();
    assert_eq!((next.place(), next == lane), (lane.place(), false));
    assert_eq!(story.machine.next_in_lane(next), None);
    assert!(story.machine.lane_failure(lane).is_some() && story.machine.lane_failure(next).is_none());
    assert_eq!(story.send_all(), [other]);
    assert_eq!(story.machine.open_lanes().collect::<Vec<_>>(), [story.lane, next]);
}

#[test]
fn lineage_stays_while_something_computed_from_it_is_referenced() {
    let mut story = Story::new(LINEAGE);
    let a = story.submit("a", &[]);
    story.send_all();
    story.returned(a, false);
    let b = story.submit("b", &[Input::Task(a)]);
    story.send_all();
    story.returned(b, false);
    story.drop_handle(a);
    assert_eq!(story.machine.on_record(), 2);
    assert_eq!(story.machine.lineage_bytes(), 200);
    story.drop_handle(b);
    assert_eq!((story.machine.on_record(), story.machine.lineage_bytes()), (0, 0));
}

#[test]
fn lineage_is_bounded_and_the_oldest_goes_first() {
    let mut story = Story::new(LINEAGE);
    let keys: Vec<_> = (0..30).map(|_| story.submit("x", &[])).collect();
    story.send_all();
    for &key in &keys {
        story.returned(key, false);
    }
    assert_eq!(story.machine.lineage_bytes(), 1000);
    assert!(story.machine.record(keys[0]).unwrap().payload().is_none());
    assert!(story.machine.record(keys[29]).unwrap().payload().is_some());
    for key in keys {
        story.drop_handle(key);
    }
    assert_eq!(story.machine.on_record(), 0);
}

#[test]
fn a_lost_task_runs_again_and_fails_when_no_retry_is_left() {
    let mut story = Story::new(LINEAGE);
    let a = story.submit("a", &[]);
    for attempt in 0..2 {
        assert_eq!(story.send_all(), [a]);
        story.machine.on_lost(a, attempt, Some(&Story::cause()), &mut story.out);
        story.machine.check();
    }
    assert_eq!(story.send_all(), []);
    assert_eq!(story.failed(), ["a"]);
    assert!(!story.returned(a, false), "a late answer changes nothing");
}

#[test]
fn a_cancelled_task_is_never_sent_and_its_dependents_fail() {
    let mut story = Story::new(LINEAGE);
    let a = story.submit("a", &[]);
    let b = story.submit("b", &[Input::Task(a)]);
    assert_eq!(story.machine.on_cancelled(a, &mut story.out), Cancelled::BeforeStart);
    assert_eq!(story.send_all(), []);
    assert_eq!(story.failed(), ["a", "b"]);
    assert_eq!(story.machine.on_cancelled(b, &mut story.out), Cancelled::TooLate);
}

#[test]
fn a_task_that_nobody_waits_for_still_runs_and_then_goes() {
    let mut story = Story::new(LINEAGE);
    let a = story.submit("a", &[]);
    story.drop_handle(a);
    assert_eq!(story.send_all(), [a]);
    story.returned(a, false);
    assert_eq!(story.machine.on_record(), 0);
}

#[test]
fn calls_keep_their_order_when_inputs_come_late_and_when_the_actor_restarts() {
    let mut story = Story::new(LINEAGE);
    let actor = story.machine.open_actor(Place::Pending);
    let input = story.submit("input", &[]);
    let calls: Vec<_> = (0..3)
        .map(|i| {
            let inputs: &[Input] = if i == 0 { &[Input::Task(input)] } else { &[] };
            story.submit_to(Route::Actor(actor), "call", 1, inputs)
        })
        .collect();
    story.machine.on_actor_alive(actor, ProcessSlot(1), &mut story.out);
    assert_eq!(story.machine.next_call(actor), None, "the first call waits, and the others behind it");
    story.send_all();
    story.returned(input, false);
    for &call in &calls {
        assert_eq!(story.machine.next_call(actor), Some((call, ProcessSlot(1))));
        story.machine.on_call_sent(actor, call);
    }
    story.returned(calls[1], false);
    let cause = Submitter::<()>::actor_failure(&Story::cause(), None);
    story.machine.on_actor_restarting(actor, &cause, &mut story.out);
    story.machine.on_actor_alive(actor, ProcessSlot(2), &mut story.out);
    for call in [calls[0], calls[2]] {
        assert_eq!(story.machine.next_call(actor), Some((call, ProcessSlot(2))));
        story.machine.on_call_sent(actor, call);
    }
    story.machine.on_actor_restarting(actor, &cause, &mut story.out);
    assert_eq!(story.failed(), ["call", "call"], "no retry is left");
}

#[test]
fn a_lost_task_owes_all_its_returns_again() {
    let mut story = Story::new(LINEAGE);
    let route = Route::Lane(story.lane);
    let submission = Submission {
        task: TaskId::default(),
        route,
        returns: 2,
        retries: 1,
        attempt: 0,
        bytes: 100,
        payload: "a",
    };
    let a = story.machine.on_submitted(submission, &[]);
    story.send_all();
    assert!(story.returned(a, false));
    story.machine.on_lost(a, 0, Some(&Story::cause()), &mut story.out);
    assert_eq!(story.send_all(), [a]);
    assert!(story.returned(a, false) && story.machine.is_unfinished(a), "the second return is missing");
    assert!(story.returned(a, false) && !story.machine.is_unfinished(a));
}

#[test]
fn a_call_that_ends_before_it_is_sent_lets_those_behind_it_go_on() {
    for cancel in [true, false] {
        let mut story = Story::new(LINEAGE);
        let actor = story.machine.open_actor(Place::Alive(ProcessSlot(1)));
        let input = [Input::Elsewhere(ObjectId::default())];
        let first = story.submit_to(Route::Actor(actor), "first", 0, &input);
        let second = story.submit_to(Route::Actor(actor), "second", 0, &[]);
        assert_eq!(story.machine.next_call(actor), None);
        if cancel {
            story.machine.on_cancelled(first, &mut story.out);
        } else {
            story.machine.on_elsewhere_resolved(ObjectId::default(), true, &mut story.out);
        }
        let flush = |effect: &_| matches!(effect, SubmitterEffect::Flush(flushed) if *flushed == actor);
        assert!(story.out.iter().any(flush), "{:?}", story.out);
        assert_eq!(story.machine.next_call(actor), Some((second, ProcessSlot(1))));
    }
}

#[test]
fn a_closing_actor_that_restarts_stays_until_calls_with_retries_are_finished() {
    let mut story = Story::new(LINEAGE);
    let actor = story.machine.open_actor(Place::Alive(ProcessSlot(1)));
    let again = story.submit_to(Route::Actor(actor), "again", 1, &[]);
    let once = story.submit_to(Route::Actor(actor), "once", 0, &[]);
    for call in [again, once] {
        assert_eq!(story.machine.next_call(actor), Some((call, ProcessSlot(1))));
        story.machine.on_call_sent(actor, call);
    }
    story.machine.close_actor(actor, &mut story.out);
    let cause = Submitter::<()>::actor_failure(&Story::cause(), None);
    story.machine.on_actor_restarting(actor, &cause, &mut story.out);
    let closed = |effect: &_| matches!(effect, SubmitterEffect::Closed(_));
    assert!(!story.out.iter().any(closed), "{:?}", story.out);
    assert_eq!(story.failed(), ["once"]);
    story.machine.on_actor_alive(actor, ProcessSlot(2), &mut story.out);
    assert_eq!(story.machine.next_call(actor), Some((again, ProcessSlot(2))));
    story.machine.on_call_sent(actor, again);
    story.returned(again, false);
    assert!(story.out.iter().any(closed), "{:?}", story.out);
}

#[test]
fn finished_calls_behind_a_long_one_are_forgotten() {
    let mut story = Story::new(LINEAGE);
    let actor = story.machine.open_actor(Place::Alive(ProcessSlot(1)));
    let long = story.submit_to(Route::Actor(actor), "long", 0, &[]);
    story.machine.on_call_sent(actor, long);
    for _ in 0..10_000 {
        let call = story.submit_to(Route::Actor(actor), "short", 0, &[]);
        story.machine.on_call_sent(actor, call);
        story.machine.on_returned(call, false, &mut story.out);
        story.drop_handle(call);
        story.out.clear();
    }
    assert!(story.machine.actors[0].sent.len() < 1000, "{} calls", story.machine.actors[0].sent.len());
    story.machine.on_actor_dead(
        actor,
        &Submitter::<()>::actor_failure(&Story::cause(), None),
        &mut story.out,
    );
    assert_eq!(story.failed(), ["long"]);
}

#[test]
fn a_failed_attempt_is_made_again_while_retries_are_left() {
    let mut story = Story::new(LINEAGE);
    let a = story.submit("a", &[]);
    story.send_all();
    assert!(story.machine.on_attempt_failed(a, &mut story.out));
    story.machine.check();
    assert_eq!(story.send_all(), [a]);
    assert!(!story.machine.on_attempt_failed(a, &mut story.out), "its one retry is used up");
    assert!(story.returned(a, true));
}

#[test]
fn a_taken_task_whose_attempt_failed_is_sent_behind_the_others_and_once() {
    let mut story = Story::new(LINEAGE);
    let (a, b) = (story.submit("a", &[]), story.submit("b", &[]));
    story.machine.on_taken(a);
    assert!(story.machine.on_attempt_failed(a, &mut story.out));
    story.machine.check();
    assert_eq!(story.send_all(), [b, a]);
    story.machine.on_taken(b);
    assert!(story.machine.on_attempt_failed(b, &mut story.out), "it was taken back from the lane");
    assert_eq!(story.send_all(), [b]);
    story.machine.on_taken(b);
    assert!(!story.machine.on_attempt_failed(b, &mut story.out), "its one retry is used up");
    assert!(story.returned(b, true));
}

#[test]
fn a_call_that_is_made_again_comes_before_those_that_were_not_sent() {
    let mut story = Story::new(LINEAGE);
    let actor = story.machine.open_actor(Place::Alive(ProcessSlot(3)));
    let calls: Vec<_> =
        ["a", "b", "c"].map(|name| story.submit_to(Route::Actor(actor), name, u32::MAX, &[])).into();
    for call in &calls[..2] {
        assert_eq!(story.machine.next_call(actor), Some((*call, ProcessSlot(3))));
        story.machine.on_call_sent(actor, *call);
    }
    for _ in 0..3 {
        assert!(story.machine.on_attempt_failed(calls[0], &mut story.out), "it may be tried for ever");
        story.machine.check();
        assert_eq!(story.machine.next_call(actor), Some((calls[0], ProcessSlot(3))));
        story.machine.on_call_sent(actor, calls[0]);
    }
    assert_eq!(story.machine.next_call(actor), Some((calls[2], ProcessSlot(3))));
}

#[test]
fn a_task_rests_before_its_next_attempt() {
    let mut story = Story::new(SubmitterConfig { rests: true, ..LINEAGE });
    let (a, b, c) = (story.submit("a", &[]), story.submit("b", &[]), story.submit("c", &[]));
    assert_eq!(story.send_all(), [a, b, c]);
    story.machine.on_lost(a, 0, Some(&Story::cause()), &mut story.out);
    story.machine.on_lost(b, 0, Some(&Story::cause()), &mut story.out);
    assert!(story.machine.on_attempt_failed(c, &mut story.out));
    assert_eq!(story.send_all(), []);
    story.machine.check();
    assert_eq!(story.machine.on_cancelled(b, &mut story.out), Cancelled::BeforeStart);
    for key in [a, b, c, c] {
        story.machine.on_rested(key);
    }
    assert_eq!(story.send_all(), [c, a]);
    assert_eq!(story.failed(), ["b"]);
}

#[test]
fn a_worker_that_dies_after_its_answer_does_not_lose_the_next_attempt() {
    let mut story = Story::new(LINEAGE);
    let a = story.submit("a", &[]);
    assert_eq!(story.send_all(), [a]);
    assert!(story.machine.on_attempt_failed(a, &mut story.out));
    assert_eq!(story.send_all(), [a]);
    // Its running cell still names the first attempt.
    story.machine.on_lost(a, 0, Some(&Story::cause()), &mut story.out);
    assert_eq!(story.send_all(), []);
    assert!(story.failed().is_empty() && story.returned(a, false));
}

#[test]
fn a_taken_task_is_not_sent_and_no_worker_can_lose_it() {
    let mut story = Story::new(LINEAGE);
    let (a, b) = (story.submit("a", &[]), story.submit("b", &[]));
    let c = story.submit("c", &[Input::Task(b)]);
    story.machine.on_sent(story.lane, a, 7);
    // One was taken back from the lane, the other had not been sent.
    story.machine.on_taken(a);
    story.machine.on_taken(b);
    assert_eq!(story.send_all(), []);
    story.machine.on_lost(a, 0, Some(&Story::cause()), &mut story.out);
    story.machine.on_lost(b, 0, Some(&Story::cause()), &mut story.out);
    assert_eq!(story.send_all(), []);
    assert!(story.returned(b, false));
    assert_eq!(story.send_all(), [c]);
    assert_eq!(story.machine.on_cancelled(a, &mut story.out), Cancelled::Taken);
    assert_eq!(story.failed(), ["a"]);
    assert!(!story.returned(a, false));
    story.machine.check();
}

#[test]
fn cancelled_tasks_do_not_pile_up_behind_an_input_that_never_comes() {
    let mut story = Story::new(LINEAGE);
    let producer = story.submit("producer", &[]);
    for _ in 0..1000 {
        let waiting = story.submit("w", &[Input::Task(producer), Input::Elsewhere(ObjectId::default())]);
        assert_eq!(story.machine.on_cancelled(waiting, &mut story.out), Cancelled::BeforeStart);
        story.drop_handle(waiting);
    }
    let edges = story.machine.tasks.get(producer).unwrap().edges.as_ref().unwrap();
    assert!(edges.dependents.len() < 10 && story.machine.elsewhere[&ObjectId::default()].len() < 10);
    let last = story.submit("last", &[Input::Task(producer), Input::Elsewhere(ObjectId::default())]);
    assert_eq!(story.send_all(), [producer]);
    assert!(story.returned(producer, false));
    story.machine.on_elsewhere_resolved(ObjectId::default(), false, &mut story.out);
    assert_eq!(story.send_all(), [last]);
}

/// A finished task, whose result nobody but tasks refers to any more.
fn finished(story: &mut Story, name: &'static str, inputs: &[Input]) -> TaskKey {
    let key = story.submit(name, inputs);
    story.send_all();
    story.returned(key, false);
    key
}

#[test]
fn what_is_run_again_comes_after_all_that_it_needs() {
    let mut story = Story::new(LINEAGE);
    let a = finished(&mut story, "a", &[]);
    let b = finished(&mut story, "b", &[Input::Task(a)]);
    let t = finished(&mut story, "t", &[Input::Task(a), Input::Task(b)]);
    let machine = &story.machine;
    let all = |key| machine.producers(key).to_vec();
    assert_eq!(machine.steps_to(t, all), Ok(vec![a, b, t]));
    assert_eq!(machine.steps_to(t, |_| Vec::new()), Ok(vec![t]));
    let lane = story.lane;
    for key in [a, b, t] {
        let inputs: Vec<_> = story.machine.producers(key).iter().copied().map(Input::Task).collect();
        story.machine.on_values_lost(key, lane, &inputs, &mut story.out);
        story.machine.check();
    }
    for key in [a, b, t] {
        assert_eq!(story.send_all(), [key], "one after another");
        story.returned(key, false);
    }
    let all = |key| story.machine.producers(key).to_vec();
    assert_eq!(story.machine.steps_to(t, all), Err((t, Repeat::NoRetryLeft { runs: 2 })));
}

#[test]
fn what_is_run_again_keeps_what_it_needs_however_much_is_finished_meanwhile() {
    let mut story = Story::new(SubmitterConfig { lineage_bytes_max: 250, ..LINEAGE });
    let a = finished(&mut story, "a", &[]);
    let b = finished(&mut story, "b", &[Input::Task(a)]);
    let lane = story.lane;
    story.machine.on_values_lost(a, lane, &[], &mut story.out);
    story.machine.on_values_lost(b, lane, &[Input::Task(a)], &mut story.out);
    for _ in 0..5 {
        let other = story.submit("other", &[]);
        while let Some(key) = story.machine.next_in_lane(lane) {
            story.machine.on_sent(lane, key, 0);
        }
        story.returned(other, false);
    }
    assert!(story.machine.record(a).is_some_and(|record| record.payload().is_some()));
    story.returned(a, false);
    assert_eq!(story.send_all(), [b]);
    story.returned(b, false);
    assert_eq!((story.machine.unfinished(), story.machine.lineage_bytes()), (0, 200));
    // The values of arguments that it keeps count, too.
    story.machine.on_payload_grown(b, 100, &mut story.out);
    story.machine.check();
    assert_eq!(story.machine.lineage_bytes(), 200);
    assert_eq!(story.machine.repeat(a), Repeat::Forgotten);
}

#[test]
fn a_deadline_does_not_end_what_was_done_in_time_and_is_run_again() {
    let mut story = Story::new(LINEAGE);
    let a = finished(&mut story, "a", &[]);
    let lane = story.lane;
    story.machine.on_values_lost(a, lane, &[], &mut story.out);
    assert_eq!(story.machine.on_deadline_passed(a, "1s", &mut story.out), Cancelled::TooLate);
    assert_eq!(story.send_all(), [a]);
    story.returned(a, false);
    assert!(story.failed().is_empty());
}

#[test]
fn tasks_to_whose_results_arguments_refer_stay_on_record_and_are_not_waited_for() {
    let mut story = Story::new(LINEAGE);
    let a = story.submit("a", &[]);
    let b = story.submit("b", &[Input::Inside(a)]);
    assert_eq!(story.send_all(), [a, b]);
    story.returned(b, false);
    story.returned(a, false);
    story.drop_handle(a);
    assert_eq!(story.machine.repeat(a), Repeat::Possible);
    story.drop_handle(b);
    assert_eq!(story.machine.on_record(), 0);
}

#[test]
fn a_task_stays_on_record_for_one_that_refers_to_its_result_and_finishes_first() {
    let mut story = Story::new(LINEAGE);
    let a = story.submit("a", &[]);
    let b = story.submit("b", &[Input::Inside(a)]);
    assert_eq!(story.send_all(), [a, b]);
    story.returned(b, false);
    story.drop_handle(a);
    story.returned(a, false);
    assert_eq!(story.machine.repeat(a), Repeat::Possible);
    story.drop_handle(b);
    assert_eq!(story.machine.on_record(), 0);
}
