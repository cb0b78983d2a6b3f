//! A board that the members of a group share on one machine: slots that all read, mailboxes between pairs, and the reason
//! why the group failed.
//!
//! Members advance in stages. In each stage a member writes its own slot, publishes the stage, and waits until all
//! others have published it; then it reads their slots.
//!
//! Invariants:
//! 1. A member has two slots, used by turns. It writes the slot of a stage only once all members have published the stage
//!    before, and a member that publishes a stage reads no slot of the stage before any more. So no slot is written
//!    while another member reads it.
//! 2. The member whose publication completes a stage wakes all sleepers; no other does.
//! 3. A mailbox has one writer and one reader. Bytes between its two counts belong to the reader, all others to the writer.
//! 4. The first failure stays. It is visible only when it is whole.
//! 5. The memory is a memfd: it is gone with the last process that has it.

#![allow(unsafe_code)]

use crate::doorbell::Doorbell;
use crate::map::{Mapping, Shared};
use rustix::fd::{BorrowedFd, OwnedFd};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The most members of one board.
pub const BOARD_MEMBERS_MAX: usize = 256;
/// Bytes of the text that says why a group failed.
pub const FAILURE_BYTES_MAX: usize = 1024;
/// Words that describe what a member does in a stage.
pub const NOTE_WORDS: usize = 4;
/// Bytes of a mailbox.
const MAILBOX_BYTES: usize = 256 << 10;

const PAGE: usize = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"aktisbrd");

/// Looks at the condition so often before it gives its core away.
const SPINS: u32 = 200;
/// Gives its core away for so long before it sleeps: a wake-up costs more than a turn of another member.
const YIELD_TIME: Duration = Duration::from_micros(150);
/// The longest sleep: then the caller looks whether all members are alive.
const SLEEP_MAX: Duration = Duration::from_millis(20);

#[repr(C)]
struct Header {
    magic: AtomicU64,
    members: AtomicU64,
    slot_bytes: AtomicU64,
    bell: Doorbell,
    /// 0: none; 1: being written; 2: there.
    failure_state: AtomicU32,
    failure_bytes: AtomicU32,
    failure: [AtomicU64; FAILURE_BYTES_MAX / 8],
}

// SAFETY: made of atomics alone.
unsafe impl Shared for Header {}

#[repr(C, align(128))]
struct Member {
    /// The last stage that it has published.
    published: AtomicU64,
    pid: AtomicU32,
    /// 0: has not come yet; 1: is there; 2: has left.
    state: AtomicU32,
    notes: [[AtomicU64; NOTE_WORDS]; 2],
}

// SAFETY: made of atomics alone.
unsafe impl Shared for Member {}

#[repr(C, align(128))]
struct Mailbox {
    written: AtomicU64,
    _line: [AtomicU64; 15],
    read: AtomicU64,
    bell: Doorbell,
}

// SAFETY: made of atomics alone.
unsafe impl Shared for Mailbox {}

const _: () = assert!(size_of::<Header>() <= PAGE && size_of::<Mailbox>() <= PAGE);

/// Whether a member is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It has not mapped the board yet.
    Absent,
    /// It takes part.
    Present,
    /// It has left on purpose.
    Left,
}

/// Makes a group fail; for threads that look after it.
#[derive(Clone)]
pub struct Alarm {
    mapping: Arc<Mapping>,
}

/// One member's view of the board.
pub struct Board {
    mapping: Arc<Mapping>,
    alarm: Alarm,
    own: usize,
    members: usize,
    slot_bytes: usize,
    stage: u64,
}

/// What a member uses while it prepares its next stage.
pub struct Stage<'a> {
    /// Its own slot of this stage, which nobody else reads yet.
    pub slot: &'a mut [u8],
    /// All slots of the stage before, which nobody changes before this stage is complete.
    pub previous: &'a Board,
}

impl Board {
    /// Makes the board of `members` members and becomes the member `own`.
    pub fn create(members: usize, own: usize, slot_bytes: usize) -> io::Result<Self> {
        assert!((1..=BOARD_MEMBERS_MAX).contains(&members) && own < members, "within the limits of a board");
        let slot_bytes = slot_bytes.next_multiple_of(PAGE);
        let mapping = Mapping::create("aktis-collective", layout(members, slot_bytes).end as u64)?;
        let header: &Header = mapping.at(0);
        header.members.store(members as u64, Ordering::Relaxed);
        header.slot_bytes.store(slot_bytes as u64, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Self::enter(mapping, own)
    }

    /// Becomes the member `own` of a board that another member has made.
    pub fn open(fd: OwnedFd, own: usize) -> io::Result<Self> {
        Self::enter(Mapping::from_fd(fd)?, own)
    }

    fn enter(mapping: Mapping, own: usize) -> io::Result<Self> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "the memory is not a board");
        if mapping.len() < PAGE {
            return Err(wrong());
        }
        let header: &Header = mapping.at(0);
        let members = header.members.load(Ordering::Relaxed) as usize;
        let slot_bytes = header.slot_bytes.load(Ordering::Relaxed) as usize;
        let is_board = header.magic.load(Ordering::Acquire) == MAGIC
            && members <= BOARD_MEMBERS_MAX
            && own < members
            && slot_bytes.is_multiple_of(PAGE)
            && slot_bytes <= mapping.len()
            && layout(members, slot_bytes).end == mapping.len();
        if !is_board {
            return Err(wrong());
        }
        let mapping = Arc::new(mapping);
        let alarm = Alarm { mapping: Arc::clone(&mapping) };
        let board = Self { mapping, alarm, own, members, slot_bytes, stage: 0 };
        let member = board.member(own);
        member.pid.store(std::process::id(), Ordering::Relaxed);
        if member.state.swap(1, Ordering::SeqCst) != 0 {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the place on the board is taken"));
        }
        board.bell().call_all();
        Ok(board)
    }

    /// The memory, to be sent to another member.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.mapping.fd()
    }

    /// How many members there are.
    pub fn members(&self) -> usize {
        self.members
    }

    /// Which one this is.
    pub fn own(&self) -> usize {
        self.own
    }

    /// Bytes of a slot.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Whether `member` is there.
    pub fn presence(&self, member: usize) -> Presence {
        match self.member(member).state.load(Ordering::SeqCst) {
            0 => Presence::Absent,
            1 => Presence::Present,
            _ => Presence::Left,
        }
    }

    /// The process that `member` is in.
    pub fn pid(&self, member: usize) -> u32 {
        self.member(member).pid.load(Ordering::Relaxed)
    }

    /// Prepares the next stage. All members have published the last one.
    pub fn prepare(&mut self) -> Stage<'_> {
        assert!(self.is_complete(), "a stage begins when the one before is complete");
        let slot = self.slot_place(self.own, self.stage + 1);
        // SAFETY: in bounds (`layout`); by invariant 1 nobody reads this slot before the stage is published, which needs
        // `&mut self` and so ends this borrow.
        let slot = unsafe { std::slice::from_raw_parts_mut(self.mapping.base().add(slot), self.slot_bytes) };
        Stage { slot, previous: self }
    }

    /// Says what this member does in the stage that it prepares.
    pub fn write_note(&mut self, note: [u64; NOTE_WORDS]) {
        let place = &self.member(self.own).notes[(self.stage + 1) as usize % 2];
        for (word, value) in place.iter().zip(note) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// What `member` does in the present stage, which is complete.
    pub fn note(&self, member: usize) -> [u64; NOTE_WORDS] {
        let place = &self.member(member).notes[self.stage as usize % 2];
        std::array::from_fn(|word| place[word].load(Ordering::Relaxed))
    }

    /// Publishes the slot that was prepared.
    pub fn publish(&mut self) {
        self.stage += 1;
        self.member(self.own).published.store(self.stage, Ordering::SeqCst);
        if self.is_complete() {
            self.bell().call_all();
        }
    }

    /// Whether all members have published the present stage.
    pub fn is_complete(&self) -> bool {
        (0..self.members).all(|member| self.has_published(member))
    }

    /// Whether `member` has published the present stage.
    pub fn has_published(&self, member: usize) -> bool {
        self.member(member).published.load(Ordering::SeqCst) >= self.stage
    }

    /// The slot of `member` of the present stage, which is complete.
    pub fn slot(&self, member: usize) -> &[u8] {
        self.slot_of(member, self.stage)
    }

    fn slot_of(&self, member: usize, stage: u64) -> &[u8] {
        assert!(self.member(member).published.load(Ordering::Acquire) >= stage, "the slot is published");
        self.mapping.bytes(self.slot_place(member, stage), self.slot_bytes)
    }

    /// Waits until all members have published the present stage, the group fails, or it is time to look after the others.
    /// Returns whether the stage is complete.
    pub fn wait_for_stage(&self) -> bool {
        wait(self.bell(), || self.is_complete(), || self.has_failed());
        self.is_complete()
    }

    /// Waits until all members are there, the group fails, or it is time to look after the others.
    pub fn wait_for_members(&self) -> bool {
        let all = || (0..self.members).all(|member| self.presence(member) != Presence::Absent);
        wait(self.bell(), all, || self.has_failed());
        all()
    }

    /// Leaves the group: others that count on this member fail.
    pub fn leave(&self) {
        self.member(self.own).state.store(2, Ordering::SeqCst);
        self.bell().call_all();
    }

    /// Makes the group fail, also from other threads.
    pub fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// Whether the group has failed.
    pub fn has_failed(&self) -> bool {
        self.alarm.has_failed()
    }

    /// Appends bytes to the mailbox from this member to `to`, as many as there is room for; how many it took.
    pub fn post(&mut self, to: usize, bytes: &[u8]) -> usize {
        let mailbox = self.mailbox(self.own, to);
        let written = mailbox.written.load(Ordering::Relaxed);
        let unread = (written - mailbox.read.load(Ordering::Acquire)) as usize;
        let taken = bytes.len().min(MAILBOX_BYTES.saturating_sub(unread));
        let at = written as usize % MAILBOX_BYTES;
        let first = taken.min(MAILBOX_BYTES - at);
        let data = self.mailbox_place(self.own, to) + PAGE;
        self.mapping.write(data + at, &bytes[..first]);
        self.mapping.write(data, &bytes[first..taken]);
        mailbox.written.store(written + taken as u64, Ordering::SeqCst);
        mailbox.bell.call_all();
        taken
    }

    /// Takes bytes out of the mailbox from `from` to this member, as many as there are; how many it gave.
    pub fn collect(&mut self, from: usize, bytes: &mut [u8]) -> usize {
        let mailbox = self.mailbox(from, self.own);
        let read = mailbox.read.load(Ordering::Relaxed);
        let unread = (mailbox.written.load(Ordering::Acquire) - read) as usize;
        let given = bytes.len().min(unread).min(MAILBOX_BYTES);
        let at = read as usize % MAILBOX_BYTES;
        let first = given.min(MAILBOX_BYTES - at);
        let data = self.mailbox_place(from, self.own) + PAGE;
        bytes[..first].copy_from_slice(self.mapping.bytes(data + at, first));
        bytes[first..given].copy_from_slice(self.mapping.bytes(data, given - first));
        mailbox.read.store(read + given as u64, Ordering::SeqCst);
        mailbox.bell.call_all();
        given
    }

    /// Waits until there is room for a post to `to`, or it is time to look after the others.
    pub fn wait_for_room(&self, to: usize) {
        let mailbox = self.mailbox(self.own, to);
        wait(&mailbox.bell, || mailbox.unread() < MAILBOX_BYTES, || self.has_failed());
    }

    /// Waits until `from` has posted something, or it is time to look after the others.
    pub fn wait_for_post(&self, from: usize) {
        let mailbox = self.mailbox(from, self.own);
        wait(&mailbox.bell, || mailbox.unread() > 0, || self.has_failed());
    }

    /// Whether something from `from` has not been read.
    pub fn has_post(&self, from: usize) -> bool {
        self.mailbox(from, self.own).unread() > 0
    }

    fn header(&self) -> &Header {
        self.mapping.at(0)
    }

    fn bell(&self) -> &Doorbell {
        &self.header().bell
    }

    fn member(&self, member: usize) -> &Member {
        assert!(member < self.members);
        self.mapping.at(PAGE + member * size_of::<Member>())
    }

    fn slot_place(&self, member: usize, stage: u64) -> usize {
        layout(self.members, self.slot_bytes).slots + (member * 2 + stage as usize % 2) * self.slot_bytes
    }

    fn mailbox_place(&self, from: usize, to: usize) -> usize {
        assert!(from < self.members && to < self.members);
        let mailboxes = layout(self.members, self.slot_bytes).mailboxes;
        mailboxes + (from * self.members + to) * (PAGE + MAILBOX_BYTES)
    }

    fn mailbox(&self, from: usize, to: usize) -> &Mailbox {
        self.mapping.at(self.mailbox_place(from, to))
    }
}

impl Alarm {
    /// Whether a member has left on purpose.
    pub fn has_left(&self, member: usize) -> bool {
        let members = self.header().members.load(Ordering::Relaxed) as usize;
        assert!(member < members.min(BOARD_MEMBERS_MAX));
        let member: &Member = self.mapping.at(PAGE + member * size_of::<Member>());
        member.state.load(Ordering::SeqCst) == 2
    }

    /// Writes down why the group failed, unless it has failed before. All waiting members wake up.
    pub fn fail(&self, reason: &[u8]) {
        let header = self.header();
        if header.failure_state.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            let reason = &reason[..reason.len().min(FAILURE_BYTES_MAX)];
            for (word, bytes) in header.failure.iter().zip(reason.chunks(8)) {
                let mut padded = [0; 8];
                padded[..bytes.len()].copy_from_slice(bytes);
                word.store(u64::from_le_bytes(padded), Ordering::Relaxed);
            }
            header.failure_bytes.store(reason.len() as u32, Ordering::Relaxed);
            header.failure_state.store(2, Ordering::SeqCst);
        }
        header.bell.call_all();
    }

    /// Whether the group has failed.
    pub fn has_failed(&self) -> bool {
        self.header().failure_state.load(Ordering::SeqCst) == 2
    }

    /// Why the group failed.
    pub fn failure(&self) -> Option<Vec<u8>> {
        if !self.has_failed() {
            return None;
        }
        let header = self.header();
        let bytes = (header.failure_bytes.load(Ordering::Relaxed) as usize).min(FAILURE_BYTES_MAX);
        let words = header.failure.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes());
        Some(words.take(bytes).collect())
    }

    fn header(&self) -> &Header {
        self.mapping.at(0)
    }
}

impl Mailbox {
    fn unread(&self) -> usize {
        (self.written.load(Ordering::SeqCst) - self.read.load(Ordering::SeqCst)) as usize
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // A fork of this process has a copy of this value, and is no member.
        if self.pid(self.own) == std::process::id() {
            self.leave();
        }
    }
}

/// Where the parts of a board begin.
struct Layout {
    slots: usize,
    mailboxes: usize,
    end: usize,
}

fn layout(members: usize, slot_bytes: usize) -> Layout {
    let slots = PAGE + (members * size_of::<Member>()).next_multiple_of(PAGE);
    let mailboxes = slots + members * 2 * slot_bytes;
    Layout { slots, mailboxes, end: mailboxes + members * members * (PAGE + MAILBOX_BYTES) }
}

/// Spins, then gives the core to others, then sleeps for a while: until `done`, or at the latest after one sleep.
fn wait(bell: &Doorbell, done: impl Fn() -> bool, failed: impl Fn() -> bool) {
    for _ in 0..SPINS {
        if done() {
            return;
        }
        std::hint::spin_loop();
    }
    let began = Instant::now();
    while began.elapsed() < YIELD_TIME {
        if done() || failed() {
            return;
        }
        std::thread::yield_now();
    }
    let ticket = bell.prepare();
    if done() || failed() {
        bell.stay(ticket);
    } else {
        bell.sleep(ticket, Some(SLEEP_MAX));
    }
}
