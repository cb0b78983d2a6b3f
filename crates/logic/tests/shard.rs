//! Stories of one shard of the control store: batches, references, departures, subscriptions, and starting again.

use aktis_logic::machine::shard::{
    FREE_AGAIN_MICROSECONDS, Recovery, Shard, ShardEffect, ShardInput, SubscriptionId,
};
use aktis_logic::{Machine, Time};
use aktis_protocol::records::Piece;
use aktis_protocol::slots::SlotIndex;
use aktis_protocol::tables::{
    Answer, Batch, Change, Event, EventKind, Filter, Notice, ObjectRow, Query, Refusal, RefusalKind,
    Rejection, Sender, Table,
};
use aktis_protocol::{NodeId, ObjectId, SessionId, TaskId, limits};

type Effect = ShardEffect<&'static str>;

/// A shard and its disk.
struct Story {
    shard: Shard<&'static str>,
    log: Vec<Vec<u8>>,
    now: Time,
    next: u64,
}

const A: Sender = Sender { node: NodeId::from_words([1, 0]), epoch: 1 };
const B: Sender = Sender { node: NodeId::from_words([2, 0]), epoch: 1 };
const C: Sender = Sender { node: NodeId::from_words([3, 0]), epoch: 1 };

fn task(number: u64) -> TaskId {
    TaskId::root(SessionId(1)).child(number)
}

fn object(number: u64) -> ObjectId {
    task(number).returns(0)
}

fn made(number: u64) -> Change {
    Change::CopyMade { object: object(number), bytes: 100 }
}

fn dropped(number: u64) -> Change {
    Change::CopyDropped { object: object(number) }
}

fn held(number: u64) -> Change {
    Change::Held { object: object(number) }
}

fn released(number: u64) -> Change {
    Change::Released { object: object(number) }
}

fn put(key: &str, value: &str) -> Change {
    let value = value.as_bytes().to_vec();
    Change::RowPut { table: Table::Keys, key: key.into(), value, overwrite: true }
}

fn put_new(key: &str, value: &str) -> Change {
    let value = value.as_bytes().to_vec();
    Change::RowPut { table: Table::Keys, key: key.into(), value, overwrite: false }
}

fn applied() -> Effect {
    ShardEffect::Reply { ticket: "batch", answer: Answer::Applied { refused: vec![] } }
}

fn free(number: u64, on: &[Sender]) -> Effect {
    ShardEffect::Free { object: object(number), on: on.iter().map(|sender| sender.node).collect() }
}

impl Story {
    fn new() -> Self {
        let shard = Recovery::new(SlotIndex::all()).finish(Time(0));
        Self { shard, log: Vec::new(), now: Time(0), next: 1 }
    }

    /// Steps the machine; gives what leaves it, and keeps what it wants written.
    fn step(&mut self, input: ShardInput<&'static str>) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.shard.step(self.now, input, &mut effects);
        self.shard.check();
        effects.retain(|effect| match effect {
            ShardEffect::Persist { sequence, bytes } => {
                self.log.push(bytes.clone());
                assert_eq!(*sequence, self.log.len() as u64);
                false
            }
            _ => true,
        });
        effects
    }

    fn persist(&mut self) -> Vec<Effect> {
        self.step(ShardInput::Persisted { up_to: self.log.len() as u64 })
    }

    fn send(&mut self, sender: Sender, sequence: u64, changes: Vec<Change>) -> Vec<Effect> {
        self.step(ShardInput::Received { ticket: "batch", batch: Batch { sender, sequence, changes } })
    }

    /// A batch that is made and written; gives what follows.
    fn tell(&mut self, sender: Sender, changes: impl Into<Vec<Change>>) -> Vec<Effect> {
        self.next += 1;
        let mut effects = self.send(sender, self.next, changes.into());
        effects.extend(self.persist());
        let replies = effects.iter().filter(|effect| **effect == applied()).count();
        assert_eq!(replies, 1, "{effects:?}");
        effects.retain(|effect| *effect != applied());
        effects
    }

    fn leave(&mut self, sender: Sender) -> Vec<Effect> {
        let mut effects = self.step(ShardInput::NodeLeft { ticket: "left", sender });
        effects.extend(self.persist());
        effects.retain(|effect| !matches!(effect, ShardEffect::Reply { ticket: "left", .. }));
        effects
    }

    fn ask(&mut self, query: Query) -> Answer {
        let mut effects = self.step(ShardInput::Asked { ticket: "question", query });
        match effects.pop() {
            Some(ShardEffect::Reply { ticket: "question", answer }) if effects.is_empty() => answer,
            other => panic!("no answer but {other:?}"),
        }
    }

    fn row(&mut self, key: &str) -> Option<Vec<u8>> {
        match self.ask(Query::Row { table: Table::Keys, key: key.into() }) {
            Answer::Row(value) => value,
            other => panic!("{other:?}"),
        }
    }

    fn object(&mut self, number: u64) -> Option<ObjectRow> {
        match self.ask(Query::Object(object(number))) {
            Answer::Object(row) => row,
            other => panic!("{other:?}"),
        }
    }

    fn task(&mut self, number: u64) -> Option<Vec<u8>> {
        match self.ask(Query::Task(task(number))) {
            Answer::Task(record) => record,
            other => panic!("{other:?}"),
        }
    }

    fn pass(&mut self, microseconds: u64) -> Vec<Effect> {
        self.now.0 += microseconds;
        self.step(ShardInput::Ticked)
    }

    /// The process dies and is started again with what it wrote up to `written`, and these pieces.
    fn restart(&mut self, pieces: &[Piece], written: usize) {
        let mut recovery = Recovery::new(SlotIndex::all());
        for piece in pieces {
            recovery.restore(piece).expect("a piece");
        }
        self.log.truncate(written);
        for (index, record) in self.log.iter().enumerate() {
            recovery.replay(index as u64 + 1, record).expect("a record");
        }
        self.shard = recovery.finish(self.now);
        self.shard.check();
    }
}

#[test]
fn nothing_leaves_before_it_is_on_disk() {
    let mut story = Story::new();
    assert_eq!(story.send(A, 1, vec![put("a", "1")]), [], "invariant 1");
    let question = Query::Row { table: Table::Keys, key: "a".into() };
    assert_eq!(story.step(ShardInput::Asked { ticket: "question", query: question }), [], "invariant 1");
    let answer = Answer::Row(Some(b"1".to_vec()));
    assert_eq!(story.persist(), [applied(), ShardEffect::Reply { ticket: "question", answer }]);
}

#[test]
fn a_repeated_batch_is_answered_again_and_changes_nothing() {
    let mut story = Story::new();
    story.tell(B, [put("taken", "by b")]);
    let changes = vec![put_new("taken", "by a"), put("a", "1"), held(1)];
    let refused = vec![Refusal { change: 0, why: RefusalKind::Exists }];
    let answer = ShardEffect::Reply { ticket: "batch", answer: Answer::Applied { refused } };
    assert_eq!(story.send(A, 1, changes.clone()), []);
    assert_eq!(story.send(A, 1, changes.clone()), [], "the answer waits as the first one does");
    assert_eq!(story.persist(), [answer.clone(), answer.clone()]);
    story.tell(A, [put("a", "2")]);
    let (written, before) = (story.log.len(), story.object(1));
    assert_eq!(story.send(A, 1, changes.clone()), vec![answer.clone()]);
    assert_eq!((story.log.len(), story.row("a")), (written, Some(b"2".to_vec())), "invariant 2");
    assert_eq!(story.object(1), before);
    story.restart(&[], written);
    assert_eq!(story.send(A, 1, changes), [answer], "also after a restart");
    assert_eq!(story.row("taken"), Some(b"by b".to_vec()));
}

#[test]
fn a_life_that_is_over_is_not_heard() {
    let mut story = Story::new();
    story.tell(A, [held(1), made(1), put("a", "1")]);
    let second = Sender { epoch: 2, ..A };
    // It was not known that the first life had ended: what it had goes with it.
    assert_eq!(story.tell(second, [held(2)]), []);
    assert_eq!(story.object(1), None);
    let stale = Answer::Rejected(Rejection::Stale { epoch: 2 });
    assert_eq!(
        story.send(A, 9, vec![held(1)]),
        [ShardEffect::Reply { ticket: "batch", answer: stale.clone() }]
    );
    story.leave(second);
    assert_eq!(
        story.send(second, 9, vec![held(1)]),
        [ShardEffect::Reply { ticket: "batch", answer: stale.clone() }]
    );
    let written = story.log.len();
    story.restart(&[], written);
    assert_eq!(story.send(second, 9, vec![held(1)]), [ShardEffect::Reply { ticket: "batch", answer: stale }]);
    assert_eq!(story.tell(Sender { epoch: 3, ..A }, [held(1)]), []);
    assert_eq!(story.row("a"), Some(b"1".to_vec()), "rows stay when their writer leaves");
}

#[test]
fn an_object_is_freed_everywhere_when_the_last_node_lets_go() {
    let mut story = Story::new();
    story.tell(A, [held(1), made(1)]);
    story.tell(B, [held(1)]);
    story.tell(B, [made(1)]);
    let row = ObjectRow { bytes: Some(100), copies: vec![A.node, B.node], holders: vec![A.node, B.node] };
    assert_eq!(story.object(1), Some(row));
    assert_eq!(story.tell(A, [released(1)]), []);
    assert_eq!(story.tell(B, [released(1)]), [free(1, &[A, B])]);
    assert_eq!(story.tell(A, [dropped(1)]), []);
    assert!(story.object(1).is_some(), "until the last copy is gone");
    assert_eq!(story.tell(B, [dropped(1)]), []);
    assert_eq!(story.object(1), None);
    assert_eq!(story.pass(2 * FREE_AGAIN_MICROSECONDS), []);
}

#[test]
fn the_order_within_a_batch_frees_nothing() {
    let mut story = Story::new();
    assert_eq!(story.tell(A, [made(1), held(1)]), [], "a copy, and then somebody who holds it");
    assert_eq!(story.tell(A, [released(1), held(1)]), []);
    assert_eq!(story.tell(A, [held(2), released(2)]), [], "it was never anywhere");
    assert_eq!(story.object(2), None);
}

#[test]
fn a_reference_on_its_way_is_kept_by_who_gave_it() {
    // A gives B a reference, waits until B holds it, and lets go. Then B does.
    let mut story = Story::new();
    story.tell(A, [held(1), made(1)]);
    story.tell(B, [held(1)]);
    assert_eq!(story.tell(A, [released(1)]), []);
    assert_eq!(story.tell(B, [made(1)]), [], "B has pulled it");
    assert_eq!(story.tell(A, [dropped(1)]), [], "A needs its memory for others");
    assert_eq!(story.tell(B, [released(1)]), [free(1, &[B])]);
}

#[test]
fn a_copy_that_arrives_after_the_end_is_freed() {
    let mut story = Story::new();
    story.tell(A, [held(1), made(1)]);
    story.tell(B, [held(1)]);
    assert_eq!(story.tell(B, [released(1)]), []);
    assert_eq!(story.tell(A, [released(1)]), [free(1, &[A])]);
    story.tell(A, [dropped(1)]);
    assert_eq!(story.object(1), None);
    // B had begun to pull it, and finishes now.
    assert_eq!(story.tell(B, [made(1)]), [free(1, &[B])]);
    assert_eq!(story.tell(B, [dropped(1)]), []);
    assert_eq!(story.object(1), None);
}

#[test]
fn a_holder_that_comes_late_finds_what_is_left() {
    let mut story = Story::new();
    story.tell(A, [held(1), made(1)]);
    story.tell(B, [made(1), held(1)]);
    story.tell(B, [released(1)]);
    assert_eq!(story.tell(A, [released(1)]), [free(1, &[A, B])]);
    // C holds it before the copies are gone: it is not freed again, but what was ordered happens.
    assert_eq!(story.tell(C, [held(1)]), []);
    assert_eq!(story.pass(2 * FREE_AGAIN_MICROSECONDS), [], "invariant 3");
    story.tell(A, [dropped(1)]);
    story.tell(B, [dropped(1)]);
    let lost = ObjectRow { bytes: Some(100), copies: vec![], holders: vec![C.node] };
    assert_eq!(story.object(1), Some(lost), "it has a size and no copy: it is lost, and known to be");
    assert_eq!(story.tell(A, [made(1)]), [], "made again");
    assert_eq!(story.tell(C, [released(1)]), [free(1, &[A])]);
}

#[test]
fn what_is_not_freed_is_ordered_again() {
    let mut story = Story::new();
    story.tell(A, [held(1), made(1)]);
    assert_eq!(story.tell(A, [released(1)]), [free(1, &[A])]);
    assert_eq!(story.pass(FREE_AGAIN_MICROSECONDS - 1), []);
    assert_eq!(story.pass(1), [free(1, &[A])]);
    let written = story.log.len();
    story.restart(&[], written);
    assert_eq!(story.shard.next_wakeup(), Some(story.now));
    assert_eq!(story.pass(0), [free(1, &[A])], "after a restart at once");
    story.tell(A, [dropped(1)]);
    assert_eq!(story.pass(FREE_AGAIN_MICROSECONDS), []);
    assert_eq!(story.shard.next_wakeup(), None);
}

#[test]
fn with_a_node_go_its_copies_and_its_holdings() {
    let mut story = Story::new();
    story.tell(A, [held(1), made(1), held(2), made(2), held(3), held(4), made(4)]);
    story.tell(B, [held(1), held(2), made(2), held(3), made(5), held(5), made(4)]);
    // 1 is lost, 2 survives at B, 3 is awaited by B, 4 has nobody left who holds it, 5 was never A's.
    assert_eq!(story.leave(A), [free(4, &[B])]);
    let row = |bytes, copies: &[Sender], holders: &[Sender]| {
        let ids = |of: &[Sender]| of.iter().map(|sender| sender.node).collect();
        Some(ObjectRow { bytes, copies: ids(copies), holders: ids(holders) })
    };
    assert_eq!(story.object(1), row(Some(100), &[], &[B]));
    assert_eq!(story.object(2), row(Some(100), &[B], &[B]));
    assert_eq!(story.object(3), row(None, &[], &[B]));
    assert_eq!(story.object(4), row(Some(100), &[B], &[]));
    assert_eq!(story.object(5), row(Some(100), &[B], &[B]));
    assert_eq!(story.leave(A), [], "it leaves once");
    assert_eq!(story.leave(B), [], "there is nobody to free anything");
    let Answer::Counts(counts) = story.ask(Query::Counts) else { panic!("no counts") };
    assert_eq!(counts.objects, 0);
}

#[test]
fn lineage_outlives_its_recorder_while_its_objects_are_known() {
    let mut story = Story::new();
    let recorded =
        |number, returns| Change::TaskRecorded { task: task(number), returns, record: vec![number as u8] };
    let second_of_1 = task(1).returns(1);
    let forgotten = |number| Change::TaskForgotten { task: task(number) };
    story.tell(A, [recorded(1, 2), recorded(2, 1), recorded(3, 1), recorded(5, 1), held(2)]);
    story.tell(B, [Change::Held { object: second_of_1 }, recorded(4, 1), held(5), forgotten(3)]);
    assert_eq!(story.task(3), Some(vec![3]), "it is not B's");
    story.tell(A, [forgotten(3), forgotten(5)]);
    assert_eq!((story.task(1), story.task(3)), (Some(vec![1]), None));
    assert_eq!(story.task(5), Some(vec![5]), "B holds what it makes");
    story.tell(B, [Change::Released { object: task(5).returns(0) }]);
    assert_eq!(story.task(5), None);
    story.leave(A);
    assert_eq!((story.task(1), story.task(2)), (Some(vec![1]), None), "nobody can ask for the object of 2");
    story.tell(B, [Change::Released { object: second_of_1 }]);
    assert_eq!((story.task(1), story.task(4)), (None, Some(vec![4])), "B is there, and keeps its own");
}

#[test]
fn changes_that_pass_a_limit_are_refused_alone() {
    let mut story = Story::new();
    let long_key = "k".repeat(limits::KEY_BYTES_MAX + 1);
    let event = |text: usize| {
        Change::EventNoted(Event {
            at_microseconds: 1,
            subject: "a".into(),
            kind: EventKind::Joined,
            text: "e".repeat(text),
        })
    };
    let changes = vec![
        put(&long_key, "1"),
        put("a", &"v".repeat(limits::ROW_BYTES_MAX + 1)),
        put("b", "fits"),
        event(limits::EVENT_BYTES_MAX + 1),
        Change::TaskRecorded { task: task(1), returns: limits::TASK_RETURNS_MAX + 1, record: vec![] },
    ];
    story.send(A, 1, changes);
    let refused = [0, 1, 3, 4].map(|change| Refusal { change, why: RefusalKind::TooLarge }).to_vec();
    assert_eq!(
        story.persist(),
        [ShardEffect::Reply { ticket: "batch", answer: Answer::Applied { refused } }]
    );
    assert_eq!(story.row("b"), Some(b"fits".to_vec()));
    let many = vec![held(1); limits::BATCH_CHANGES_MAX + 1];
    let rejected = Answer::Rejected(Rejection::TooLarge);
    assert_eq!(story.send(A, 2, many), [ShardEffect::Reply { ticket: "batch", answer: rejected.clone() }]);
    let large =
        vec![put("c", &"v".repeat(limits::ROW_BYTES_MAX)); limits::BATCH_BYTES_MAX / limits::ROW_BYTES_MAX];
    assert_eq!(story.send(A, 2, large), [ShardEffect::Reply { ticket: "batch", answer: rejected }]);
}

#[test]
fn a_full_table_refuses_what_is_new_and_takes_what_replaces() {
    const ROWS_TOLD: usize = limits::BATCH_BYTES_MAX / limits::ROW_BYTES_MAX - 1;
    let mut story = Story::new();
    let value = "v".repeat(limits::ROW_BYTES_MAX);
    let rows = limits::KEY_ROWS_BYTES_MAX / (limits::ROW_BYTES_MAX + 16);
    for first in (0..rows).step_by(ROWS_TOLD) {
        let numbers = first..(first + ROWS_TOLD).min(rows);
        story.tell(A, numbers.map(|number| put(&format!("{number:016}"), &value)).collect::<Vec<_>>());
        story.log.last_mut().expect("a record").clear();
    }
    let refused = vec![Refusal { change: 0, why: RefusalKind::Full }];
    let own = |number: usize| put(&format!("aktis/{number:010}"), &value);
    let changes = vec![put("one more", &value), put(&format!("{:016}", 0), &value)];
    story.send(A, u64::MAX - 2, changes);
    let answer = Answer::Applied { refused };
    assert_eq!(story.persist(), [ShardEffect::Reply { ticket: "batch", answer: answer.clone() }]);
    // The library has room of its own, and an end to that.
    let rows = (limits::OWN_KEY_ROWS_BYTES_MAX - limits::KEY_ROWS_BYTES_MAX) / (limits::ROW_BYTES_MAX + 16);
    for first in (0..rows).step_by(ROWS_TOLD) {
        story.tell(B, (first..(first + ROWS_TOLD).min(rows)).map(own).collect::<Vec<_>>());
    }
    story.send(B, u64::MAX - 1, vec![own(rows + 1), own(rows + 2)]);
    let ShardEffect::Reply { answer: Answer::Applied { refused }, .. } = &story.persist()[0] else {
        panic!("no answer")
    };
    assert!(refused.iter().all(|refusal| refusal.why == RefusalKind::Full) && !refused.is_empty());
}

#[test]
fn another_shards_slot_is_refused() {
    let key = |story: u32| format!("{story}");
    let here = (0..).map(key).find(|key| SlotIndex::of_key(key.as_bytes()).0 < 512).expect("half of them");
    let there = (0..).map(key).find(|key| SlotIndex::of_key(key.as_bytes()).0 >= 512).expect("half of them");
    let mut story = Story::new();
    story.shard = Recovery::new((0..512).map(SlotIndex)).finish(Time(0));
    story.send(A, 1, vec![put(&here, "1"), put(&there, "1")]);
    let refused = vec![Refusal { change: 1, why: RefusalKind::Elsewhere }];
    assert_eq!(
        story.persist(),
        [ShardEffect::Reply { ticket: "batch", answer: Answer::Applied { refused } }]
    );
}

#[test]
fn rows_come_in_order_and_in_pages() {
    let mut story = Story::new();
    let keys: Vec<String> = (0..100).map(|number| format!("a/{number:03}")).collect();
    let puts = |keys: &[String]| keys.iter().rev().map(|key| put(key, key)).collect::<Vec<_>>();
    story.tell(A, puts(&keys));
    story.tell(A, [put("b", "other"), put("a", "other")]);
    let mut after = None;
    let mut listed = Vec::new();
    loop {
        let query = Query::Rows { table: Table::Keys, prefix: "a/".into(), after, limit: 7, values: true };
        let Answer::Rows { rows, more } = story.ask(query) else { panic!("no rows") };
        assert!(rows.len() == 7 || !more);
        after = rows.last().map(|(key, _)| key.clone());
        listed.extend(rows.into_iter().map(|(key, _)| String::from_utf8(key.0).expect("text")));
        if !more {
            break;
        }
    }
    assert_eq!(listed, keys);
}

#[test]
fn subscribers_learn_how_things_are_and_how_they_change() {
    let mut story = Story::new();
    story.tell(A, [put("a/1", "old"), held(1)]);
    let subscribe = |story: &mut Story, id, filter| {
        let input = ShardInput::Subscribed { subscription: SubscriptionId(id), filter };
        story.step(input)
    };
    let publish = |to: &[u64], notice| ShardEffect::Publish {
        to: to.iter().map(|id| SubscriptionId(*id)).collect(),
        notice,
    };
    let row = |key: &str, value: Option<&str>| Notice::Row {
        table: Table::Keys,
        key: key.into(),
        value: value.map(|value| value.as_bytes().to_vec()),
    };
    let watched = Filter::Rows { table: Table::Keys, prefix: "a/".into() };
    assert_eq!(subscribe(&mut story, 1, watched), [publish(&[1], row("a/1", Some("old")))]);
    let one = Filter::Row { table: Table::Keys, key: "a/2".into() };
    assert_eq!(subscribe(&mut story, 2, one), []);
    let known = ObjectRow { bytes: None, copies: vec![], holders: vec![A.node] };
    let object_notice = |row: Option<ObjectRow>| Notice::Object { object: object(1), row };
    assert_eq!(
        subscribe(&mut story, 3, Filter::Object(object(1))),
        [publish(&[3], object_notice(Some(known)))]
    );
    assert_eq!(subscribe(&mut story, 4, Filter::Events), []);

    assert_eq!(story.send(A, 100, vec![put("a/2", "new"), put("b", "other")]), [], "not on disk yet");
    assert_eq!(story.persist(), [publish(&[2, 1], row("a/2", Some("new"))), applied()]);
    let (subject, kind) = ("a".into(), EventKind::Joined);
    let event = Event { at_microseconds: 7, subject, kind, text: "it happened".to_owned() };
    let deleted = Change::RowDeleted { table: Table::Keys, key: "a/1".into() };
    story.next = 200;
    assert_eq!(
        story.tell(A, [deleted.clone(), deleted, Change::EventNoted(event.clone())]),
        [publish(&[1], row("a/1", None)), publish(&[4], Notice::Event(event))]
    );
    assert_eq!(story.tell(A, [released(1)]), [publish(&[3], object_notice(None))]);
    story.step(ShardInput::Unsubscribed { subscription: SubscriptionId(1) });
    assert_eq!(story.tell(A, [put("a/3", "unseen")]), []);
}

#[test]
fn events_are_kept_in_a_ring() {
    let mut story = Story::new();
    let event = |number: usize| Event {
        at_microseconds: number as u64,
        subject: "a".into(),
        kind: EventKind::Joined,
        text: format!("event {number}"),
    };
    let changes: Vec<Change> =
        (0..limits::EVENTS_MAX + 5).map(|number| Change::EventNoted(event(number))).collect();
    story.tell(A, changes);
    let last = (limits::EVENTS_MAX + 2..limits::EVENTS_MAX + 5).map(event).collect();
    assert_eq!(story.ask(Query::Events { limit: 3 }), Answer::Events(last));
    let Answer::Counts(counts) = story.ask(Query::Counts) else { panic!("no counts") };
    assert_eq!(counts.events, limits::EVENTS_MAX as u64);
}

#[test]
fn what_was_not_written_was_never_made() {
    let mut story = Story::new();
    story.tell(A, [put("a", "1"), held(1)]);
    let written = story.log.len();
    story.send(A, 100, vec![put("a", "2"), held(2)]);
    story.restart(&[], written);
    assert_eq!((story.row("a"), story.object(2)), (Some(b"1".to_vec()), None));
    story.next = 99;
    story.tell(A, [put("a", "3")]);
    assert_eq!(story.row("a"), Some(b"3".to_vec()), "the sender sends it again, or something else");
}

#[test]
fn pieces_of_different_moments_make_one_state() {
    let mut story = Story::new();
    let mut pieces = Vec::new();
    let parts = story.shard.parts();
    story.tell(A, [held(1), made(1), put("a", "1"), held(2)]);
    for (index, part) in parts.into_iter().enumerate() {
        if index == 300 {
            story.tell(B, [held(1), held(2), put("a", "2"), put("b", "1")]);
        }
        if index == 600 {
            story.leave(A);
            story.tell(Sender { epoch: 2, ..A }, [held(3), made(3), put("c", "1")]);
        }
        pieces.push(story.shard.save(part));
    }
    story.tell(B, [released(2), put_new("d", "1")]);
    let look = |story: &mut Story| {
        let objects = [1, 2, 3].map(|number| story.object(number));
        let rows = ["a", "b", "c", "d"].map(|key| story.row(key));
        (objects, rows, story.ask(Query::Counts))
    };
    let before = look(&mut story);
    let written = story.log.len();
    story.restart(&pieces, written);
    assert_eq!(look(&mut story), before);
    let stale = Answer::Rejected(Rejection::Stale { epoch: 2 });
    assert_eq!(story.send(A, 100, vec![]), [ShardEffect::Reply { ticket: "batch", answer: stale }]);
}
