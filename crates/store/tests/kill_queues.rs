//! Queues between processes that are killed at any instant: each task is done, still queued, or known to be lost.
//!
//! The test starts its own program again: those processes claim tasks, answer them and read what they are sent, until
//! they are killed. The test submits, and judges.

use aktis_protocol::hot::{Message, MessageKind, TaskHeader};
use aktis_protocol::{FunctionId, LaneId, ProcessSlot, ShapeId, TaskId, TaskKey};
use aktis_store::{Control, LaneConsumer, LaneProducer, Receiver, Sender};
use std::collections::{HashSet, VecDeque};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const PART: &str = "AKTIS_TEST_PART";
const TEST: &str = "a_task_is_never_lost_nor_done_twice_when_claimants_are_killed";
const KILLS: u32 = 300;
const WORKERS: u32 = 2;
const OUTSTANDING_MAX: usize = 3000;
const PATIENCE: Duration = Duration::from_secs(25);

const ME: ProcessSlot = ProcessSlot(0);
const LANE: LaneId = LaneId(0);
const SHAPE: ShapeId = ShapeId(0);

/// The bytes that belong to a number: of lengths that fit into a slot, and of others.
fn payload(index: u32) -> Vec<u8> {
    vec![index as u8; (index.wrapping_mul(7919) % 700) as usize]
}

fn message(kind: MessageKind, index: u32, key: TaskKey) -> Message {
    Message { kind: kind as u8, form: 0, contains: 0, reserved: 0, index, key }
}

/// A process that claims tasks on two threads until it is killed.
fn work_for_ever(part: &str) -> ! {
    let (path, slot) = part.split_once(' ').expect("a path and a slot");
    let me = ProcessSlot(slot.parse().expect("a number"));
    let segment = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("the control segment");
    let control = Control::open(segment.into(), me).expect("opened");
    let lane = control.lane_consumers().remove(0);
    let sender = Mutex::new(control.sender(ME).expect("a channel to the test"));
    let receiver = Mutex::new((control.receiver(ME).expect("a channel from the test"), 0));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (control, lane, sender, receiver) = (&control, &lane, &sender, &receiver);
            scope.spawn(move || {
                loop {
                    if !work_once(control, lane, thread, sender, receiver) {
                        rest(control, lane);
                    }
                }
            });
        }
    });
    unreachable!("it is killed");
}

/// Runs one task and reads what has come; false if there was nothing.
fn work_once(
    control: &Control,
    lane: &LaneConsumer,
    thread: usize,
    sender: &Mutex<Sender>,
    receiver: &Mutex<(Receiver, u32)>,
) -> bool {
    let cell = &control.cells(control.me())[thread];
    let claimed = lane.claim(control.me(), |header, bytes| {
        assert_eq!(bytes, payload(header.key.index), "a task arrives whole");
        cell.set(lane.running(header));
        header.key
    });
    if let Some(key) = claimed {
        let answer = message(MessageKind::Returned, key.index, key);
        let bytes = payload(key.index);
        while !sender.lock().expect("no panics").push(&answer, &[&bytes]) {
            std::thread::yield_now();
        }
        control.notify(ME);
        cell.clear();
    }
    let mut receiver = receiver.lock().expect("no panics");
    let (channel, seen) = &mut *receiver;
    let mut read = false;
    while channel
        .pop(|message, bytes| {
            assert_eq!(message.index, *seen, "messages arrive in order");
            assert_eq!(bytes, payload(*seen), "a message arrives whole");
        })
        .is_some()
    {
        *seen += 1;
        read = true;
    }
    claimed.is_some() || read
}

/// Sleeps until the bell rings, as an idle worker does.
fn rest(control: &Control, lane: &LaneConsumer) {
    let bell = control.doorbell();
    let ticket = bell.prepare();
    control.announce_idle(SHAPE);
    if lane.is_empty() && !control.has_inbound() {
        bell.sleep(ticket, None);
    } else {
        bell.stay(ticket);
    }
    control.take_inbound(|_| ());
}

/// A process that works, and the ends of the channels to and from it.
struct Worker {
    slot: ProcessSlot,
    child: Child,
    sender: Sender,
    receiver: Receiver,
    sent: u32,
}

impl Worker {
    fn start(control: &Control, slot: ProcessSlot) -> Self {
        control.open_channel(ME, slot).expect("opened");
        control.open_channel(slot, ME).expect("opened");
        let path = format!("/proc/{}/fd/{}", std::process::id(), control.fd().as_raw_fd());
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", TEST, "--nocapture"])
            .env(PART, format!("{path} {}", slot.0))
            .stdout(Stdio::null())
            .spawn()
            .expect("started again");
        control.start_process(slot, child.id());
        let (sender, receiver) = (control.sender(slot).expect("open"), control.receiver(slot).expect("open"));
        Self { slot, child, sender, receiver, sent: 0 }
    }

    /// Sends as many messages as there is room for, up to a few.
    fn chat(&mut self, control: &Control) {
        for _ in 0..5 {
            let key = TaskKey { index: 0, generation: 0 };
            if !self.sender.push(&message(MessageKind::Cancel, self.sent, key), &[&payload(self.sent)]) {
                break;
            }
            self.sent += 1;
        }
        control.notify(self.slot);
    }
}

impl Drop for Worker {
    /// Also when the test fails: nothing must go on without it.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The submitter: what it has sent, and what came back.
struct Submitter {
    lane: LaneProducer,
    next: u32,
    /// Tasks that were sent and not answered, with the life they are in.
    outstanding: HashSet<TaskKey>,
    again: VecDeque<TaskKey>,
    done: u32,
    lost: u32,
}

impl Submitter {
    fn push(&mut self, control: &Control, more: bool) {
        while let Some(&key) = self.again.front() {
            if !self.send(key) {
                return;
            }
            self.again.pop_front();
        }
        while more && self.outstanding.len() < OUTSTANDING_MAX {
            let key = TaskKey { index: self.next, generation: 0 };
            if !self.send(key) {
                break;
            }
            self.next += 1;
        }
        for _ in 0..WORKERS {
            control.wake_idle(SHAPE, control.me());
        }
    }

    fn send(&mut self, key: TaskKey) -> bool {
        let header = TaskHeader {
            task: TaskId::default(),
            function: FunctionId(1),
            key,
            attempt: key.generation,
            stream_ahead: 0,
            returns: 1,
            kind: 0,
        };
        let sent = self.lane.push(&header, &payload(key.index)).is_some();
        if sent {
            assert!(self.outstanding.insert(key));
        }
        sent
    }

    fn take_answers(&mut self, worker: &mut Worker) {
        let outstanding = &mut self.outstanding;
        while worker
            .receiver
            .pop(|message, bytes| {
                assert_eq!(bytes, payload(message.index), "an answer arrives whole");
                assert!(outstanding.remove(&message.key), "an answer that nobody waits for: {message:?}");
            })
            .is_some()
        {
            self.done += 1;
        }
    }

    /// What a dead process had, and had not answered, is sent again.
    fn bury(&mut self, control: &Control, mut worker: Worker) {
        worker.child.kill().expect("killed");
        let status = worker.child.wait().expect("reaped");
        assert_eq!(status.signal(), Some(9), "it failed before it was killed: {status}");
        control.mark_dead(worker.slot);
        self.take_answers(&mut worker);
        let claimed = self.lane.reclaim(worker.slot);
        let mut lost: HashSet<TaskKey> = claimed.into_iter().map(|(key, _)| key).collect();
        lost.extend(
            control.cells(worker.slot).iter().filter_map(|cell| cell.get()).map(|running| running.key),
        );
        assert!(lost.len() <= 2, "two threads have at most two tasks: {lost:?}");
        for key in lost {
            // It may have answered, and died before it said that it runs nothing.
            if self.outstanding.remove(&key) {
                self.lost += 1;
                self.again.push_back(TaskKey { generation: key.generation + 1, ..key });
            }
        }
        control.wipe_process(worker.slot);
    }

    fn is_idle(&self) -> bool {
        self.outstanding.is_empty() && self.again.is_empty()
    }
}

#[test]
fn a_task_is_never_lost_nor_done_twice_when_claimants_are_killed() {
    if let Ok(part) = std::env::var(PART) {
        work_for_ever(&part);
    }
    let control = Control::create().expect("created");
    control.open_lane(LANE, ME, SHAPE).expect("opened");
    let mut submitter = Submitter {
        lane: control.lane_producer(LANE),
        next: 0,
        outstanding: HashSet::new(),
        again: VecDeque::new(),
        done: 0,
        lost: 0,
    };
    let mut workers: VecDeque<Worker> =
        (1..=WORKERS).map(|slot| Worker::start(&control, ProcessSlot(slot))).collect();
    let (begin, mut random) = (Instant::now(), 88_172_645_463_325_252_u64);
    let mut kills = 0;
    while kills < KILLS || !submitter.is_idle() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let kill_at = Instant::now() + Duration::from_micros(random % 4000);
        let before = submitter.done;
        while Instant::now() < kill_at || submitter.done == before {
            let waiting = submitter.outstanding.len() + submitter.again.len();
            assert!(begin.elapsed() < PATIENCE, "{waiting} of {} tasks are lost", submitter.next);
            submitter.push(&control, kills < KILLS);
            for worker in &mut workers {
                submitter.take_answers(worker);
                worker.chat(&control);
            }
            if submitter.is_idle() && kills >= KILLS {
                break;
            }
        }
        if kills < KILLS {
            let worker = workers.pop_front().expect("one works");
            let slot = worker.slot;
            submitter.bury(&control, worker);
            workers.push_back(Worker::start(&control, slot));
            kills += 1;
        }
    }
    assert_eq!(submitter.done, submitter.next, "each task was answered once");
    assert!(submitter.lost > 0, "no kill came in the middle of a task");
    assert_eq!(control.lane_queued(LANE), 0);
    for worker in &mut workers {
        assert!(worker.child.try_wait().expect("asked").is_none(), "they still work");
    }
}
