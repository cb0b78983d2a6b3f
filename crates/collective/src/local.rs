//! Operations among the members on one machine, through a shared board.
//!
//! Large arrays go through the board in chunks that stay in the caches: each member copies its chunk in, reduces its own
//! part of the chunk before, and copies out the parts that the others have reduced.
//!
//! Invariants:
//! 1. The first stage of each operation compares what the members do; no data is taken before they agree.
//! 2. Arrays are combined in the order of ranks, whatever their size: all members get the same bits.

use crate::data::Data;
use crate::error::{CollectiveError, Result};
use crate::guard::Guard;
use crate::operation::Operation;
use crate::reduce::{combine_all, finish};
use aktis_store::{Alarm, Board, Presence};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ops::Range;
use zerocopy::IntoBytes;

/// Arrays up to this size are reduced by every member for itself: one stage instead of two.
const SMALL_BYTES: usize = 48 << 10;
/// Parts of a chunk begin at multiples of this: whole cache lines, whole elements.
const PART_ALIGNMENT: usize = 64;
/// Chunks of all members together take about so much: they should stay in a cache that the cores share.
const CHUNKS_BYTES: usize = 4 << 20;
const CHUNK_BYTES_MIN: usize = 64 << 10;
const CHUNK_BYTES_MAX: usize = 1 << 20;

/// Bytes of an array that a board of `members` members moves in one stage.
fn chunk_bytes(members: usize) -> usize {
    (CHUNKS_BYTES / members).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX) / PART_ALIGNMENT * PART_ALIGNMENT
}

/// Bytes of a slot: a chunk, and the part of one that a member has reduced.
pub(crate) fn slot_bytes(members: usize) -> usize {
    let chunk = chunk_bytes(members);
    chunk + chunk.div_ceil(members).next_multiple_of(PART_ALIGNMENT)
}

/// The members of a group that are on this machine.
pub(crate) struct Local {
    board: Board,
    /// The rank of each member of the board.
    ranks: Vec<usize>,
    /// What tells of the end of each member's process; of its own it has none.
    processes: Vec<Option<OwnedFd>>,
    chunk: usize,
}

impl Local {
    /// `board` has all its members.
    pub(crate) fn new(board: Board, ranks: Vec<usize>) -> Result<Self> {
        let chunk = chunk_bytes(board.members());
        let mut local = Self { processes: Vec::new(), board, ranks, chunk };
        for member in 0..local.board.members() {
            let pid = local.board.pid(member);
            let process = if pid == std::process::id() { None } else { Some(local.watch(member, pid)?) };
            local.processes.push(process);
        }
        Ok(local)
    }

    fn watch(&self, member: usize, pid: u32) -> Result<OwnedFd> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let opened = pid.ok_or(rustix::io::Errno::SRCH).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
        opened
            .map_err(|error| self.fail(self.died(member, &format!("its process cannot be watched: {error}"))))
    }

    pub(crate) fn alarm(&self) -> &Alarm {
        self.board.alarm()
    }

    pub(crate) fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    pub(crate) fn processes(&self) -> impl Iterator<Item = (usize, u32, &OwnedFd)> {
        let all = self.processes.iter().enumerate();
        all.filter_map(|(member, fd)| Some((self.ranks[member], self.board.pid(member), fd.as_ref()?)))
    }

    /// The place of a rank on this machine.
    pub(crate) fn place_of(&self, rank: usize) -> Option<usize> {
        self.ranks.iter().position(|other| *other == rank)
    }

    /// Makes the group fail for all members on this machine. Gives the first failure, which may be another.
    pub(crate) fn fail(&self, error: CollectiveError) -> CollectiveError {
        self.board.alarm().fail(&error.encode());
        self.failure().unwrap_or(error)
    }

    /// Why the group has failed, if it has.
    pub(crate) fn failure(&self) -> Option<CollectiveError> {
        self.board.alarm().failure().map(|bytes| CollectiveError::decode(&bytes))
    }

    fn died(&self, member: usize, reason: &str) -> CollectiveError {
        CollectiveError::MemberDied { rank: self.ranks[member], reason: reason.to_owned() }
    }

    /// Whether the group can go on although these members are missing.
    pub(crate) fn look_after(&self, missing: &[usize], guard: &Guard<'_>) -> Result<()> {
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        for member in missing {
            if self.board.presence(*member) == Presence::Left {
                return Err(self.fail(self.died(*member, "it has left the group")));
            }
            if self.processes[*member].as_ref().is_some_and(has_ended) {
                let reason = format!("its process (pid {}) has ended", self.board.pid(*member));
                return Err(self.fail(self.died(*member, &reason)));
            }
        }
        let rank = self.ranks[self.board.own()];
        if (guard.interrupted)() {
            return Err(self.fail(CollectiveError::Interrupted { rank }));
        }
        if guard.is_late() {
            let late: Vec<usize> = missing.iter().map(|member| self.ranks[*member]).collect();
            let operation = guard.operation.to_string();
            return Err(self.fail(CollectiveError::timed_out(operation, rank, guard.began.elapsed(), &late)));
        }
        Ok(())
    }

    /// Publishes this member's stage and waits for the others.
    fn complete(&mut self, guard: &Guard<'_>) -> Result<()> {
        self.board.publish();
        while !self.board.wait_for_stage() {
            let members = 0..self.board.members();
            let missing: Vec<usize> = members.filter(|member| !self.board.has_published(*member)).collect();
            // A stage may have become complete just now.
            if !missing.is_empty() {
                self.look_after(&missing, guard)?;
            }
        }
        Ok(())
    }

    /// The same for the first stage of an operation: all members do the same.
    fn complete_first(&mut self, guard: &Guard<'_>) -> Result<()> {
        self.board.write_note(guard.operation.to_words());
        self.complete(guard)?;
        let agreed = self.board.note(0);
        match (1..self.board.members()).find(|member| self.board.note(*member) != agreed) {
            None => Ok(()),
            Some(other) => {
                let theirs = Operation::from_words(self.board.note(other));
                Err(self.fail(mismatch(
                    self.ranks[0],
                    Operation::from_words(agreed),
                    self.ranks[other],
                    theirs,
                )))
            }
        }
    }

    fn complete_stage(&mut self, index: usize, guard: &Guard<'_>) -> Result<()> {
        if index == 0 { self.complete_first(guard) } else { self.complete(guard) }
    }

    /// Waits for all members.
    pub(crate) fn barrier(&mut self, guard: &Guard<'_>) -> Result<()> {
        self.complete_first(guard)
    }

    /// Combines the arrays of all members. The result goes to those that have a place for it. `count` is what a mean divides
    /// by; without it, the result stays a sum.
    pub(crate) fn reduce(
        &mut self,
        data: &mut Data<'_>,
        count: Option<usize>,
        guard: &Guard<'_>,
    ) -> Result<()> {
        if self.is_alone() {
            return self.reduce_alone(data, count, guard);
        }
        if guard.operation.bytes() <= SMALL_BYTES.min(self.board.slot_bytes()) {
            self.reduce_small(data, count, guard)
        } else {
            self.reduce_large(data, count, guard)
        }
    }

    fn is_alone(&self) -> bool {
        self.board.members() == 1
    }

    fn reduce_alone(&self, data: &mut Data<'_>, count: Option<usize>, guard: &Guard<'_>) -> Result<()> {
        if let Data::Into(input, output) = data {
            output.copy_from_slice(input);
        }
        if let (Some(output), Some(count), Some(op)) = (data.output(), count, guard.operation.op) {
            finish(guard.operation.data_type, op, output, count);
        }
        Ok(())
    }

    fn reduce_small(&mut self, data: &mut Data<'_>, count: Option<usize>, guard: &Guard<'_>) -> Result<()> {
        let bytes = data.input().len();
        self.board.prepare().slot[..bytes].copy_from_slice(data.input());
        self.complete_first(guard)?;
        let (data_type, Some(op)) = (guard.operation.data_type, guard.operation.op) else { return Ok(()) };
        if let Some(output) = data.output() {
            let inputs = (0..self.board.members()).map(|member| &self.board.slot(member)[..bytes]);
            combine_all(data_type, op, output, inputs);
            if let Some(count) = count {
                finish(data_type, op, output, count);
            }
        }
        Ok(())
    }

    fn reduce_large(&mut self, data: &mut Data<'_>, count: Option<usize>, guard: &Guard<'_>) -> Result<()> {
        let (data_type, Some(op)) = (guard.operation.data_type, guard.operation.op) else { return Ok(()) };
        let (own, members, chunk) = (self.board.own(), self.board.members(), self.chunk);
        let chunks = Chunks { bytes: data.input().len(), chunk, members };
        for index in 0..=chunks.count() {
            let stage = self.board.prepare();
            let (copied, reduced) = stage.slot.split_at_mut(chunk);
            if index < chunks.count() {
                let all = chunks.range(index);
                let mine = chunks.part(index, own);
                let input = data.input();
                // A member reads its own part where it is.
                for range in [all.start..mine.start, mine.end..all.end] {
                    copied[range.start - all.start..range.end - all.start].copy_from_slice(&input[range]);
                }
            }
            if let Some(before) = index.checked_sub(1) {
                let start = chunks.range(before).start;
                let part = chunks.part(before, own);
                let total = &mut reduced[..part.len()];
                let input_of = |member: usize| match member == own {
                    true => &data.input()[part.clone()],
                    false => {
                        // The stage borrows the slots of the others, not `total`.
                        let slot: &[u8] = stage.previous.slot(member);
                        &slot[part.start - start..part.end - start]
                    }
                };
                combine_all(data_type, op, total, (0..members).map(input_of));
                if let Some(count) = count {
                    finish(data_type, op, total, count);
                }
                if let Some(output) = data.output() {
                    output[part].copy_from_slice(total);
                }
            }
            self.complete_stage(index, guard)?;
            if let (Some(before), Some(output)) = (index.checked_sub(1), data.output()) {
                for member in (0..members).filter(|member| *member != own) {
                    let part = chunks.part(before, member);
                    let length = part.len();
                    output[part].copy_from_slice(&self.board.slot(member)[chunk..chunk + length]);
                }
            }
        }
        Ok(())
    }

    /// Each member gets its part of the combined arrays: the part of its rank.
    pub(crate) fn reduce_scatter(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        guard: &Guard<'_>,
    ) -> Result<()> {
        let (data_type, Some(op)) = (guard.operation.data_type, guard.operation.op) else { return Ok(()) };
        if self.is_alone() {
            return self.reduce_alone(&mut Data::Into(input, output), Some(1), guard);
        }
        let (own, members) = (self.board.own(), self.board.members());
        let part = output.len();
        let step = (self.chunk / members / PART_ALIGNMENT * PART_ALIGNMENT).max(PART_ALIGNMENT);
        for index in 0..part.div_ceil(step).max(1) {
            let range = index * step..((index + 1) * step).min(part);
            let slot = self.board.prepare().slot;
            for member in 0..members {
                let from = member * part + range.start..member * part + range.end;
                slot[member * step..][..range.len()].copy_from_slice(&input[from]);
            }
            self.complete_stage(index, guard)?;
            let inputs = (0..members).map(|member| &self.board.slot(member)[own * step..][..range.len()]);
            combine_all(data_type, op, &mut output[range.clone()], inputs);
            finish(data_type, op, &mut output[range], members);
        }
        Ok(())
    }

    /// Each member gets the arrays of all, in the order of the board.
    pub(crate) fn all_gather(&mut self, data: &mut Data<'_>, part: usize, guard: &Guard<'_>) -> Result<()> {
        if let (true, Data::Into(input, output)) = (self.is_alone(), &mut *data) {
            output.copy_from_slice(input);
            return Ok(());
        }
        let members = self.board.members();
        let step = self.chunk;
        for index in 0..part.div_ceil(step).max(1) {
            let range = index * step..((index + 1) * step).min(part);
            self.board.prepare().slot[..range.len()].copy_from_slice(&data.input()[range.clone()]);
            self.complete_stage(index, guard)?;
            if let Some(output) = data.output() {
                for member in 0..members {
                    let to = member * part + range.start..member * part + range.end;
                    output[to].copy_from_slice(&self.board.slot(member)[..range.len()]);
                }
            }
        }
        Ok(())
    }

    /// All members get the array of the one at place `root`.
    pub(crate) fn broadcast(&mut self, root: usize, array: &mut [u8], guard: &Guard<'_>) -> Result<()> {
        if self.is_alone() {
            return Ok(());
        }
        let is_root = self.board.own() == root;
        let step = self.chunk;
        for index in 0..array.len().div_ceil(step).max(1) {
            let range = index * step..((index + 1) * step).min(array.len());
            if is_root {
                self.board.prepare().slot[..range.len()].copy_from_slice(&array[range.clone()]);
            }
            self.complete_stage(index, guard)?;
            if !is_root {
                let length = range.len();
                array[range].copy_from_slice(&self.board.slot(root)[..length]);
            }
        }
        Ok(())
    }

    /// Sends an array to the member at place `to`.
    pub(crate) fn send(&mut self, to: usize, array: &[u8], guard: &Guard<'_>) -> Result<()> {
        let header = guard.operation.to_words();
        for mut bytes in [header.as_bytes(), array] {
            while !bytes.is_empty() {
                let taken = self.board.post(to, bytes);
                bytes = &bytes[taken..];
                if taken == 0 {
                    self.look_after(&[to], guard)?;
                    self.board.wait_for_room(to);
                }
            }
        }
        Ok(())
    }

    /// Receives an array from the member at place `from`.
    pub(crate) fn receive(&mut self, from: usize, array: &mut [u8], guard: &Guard<'_>) -> Result<()> {
        let mut header = [0_u64; 4];
        self.collect(from, header.as_mut_bytes(), guard)?;
        let theirs = Operation::from_words(header);
        let own = guard.operation;
        let agrees = theirs.is_some_and(|theirs| Operation { number: own.number, ..theirs } == own);
        if !agrees {
            let rank = self.ranks[self.board.own()];
            return Err(self.fail(mismatch(rank, Some(own), self.ranks[from], theirs)));
        }
        self.collect(from, array, guard)
    }

    fn collect(&mut self, from: usize, array: &mut [u8], guard: &Guard<'_>) -> Result<()> {
        let mut filled = 0;
        while filled < array.len() {
            let given = self.board.collect(from, &mut array[filled..]);
            filled += given;
            if given == 0 {
                self.board.wait_for_post(from);
                if !self.board.has_post(from) {
                    self.look_after(&[from], guard)?;
                }
            }
        }
        Ok(())
    }
}

/// Two members do different things.
pub(crate) fn mismatch(
    own_rank: usize,
    own: Option<Operation>,
    rank: usize,
    theirs: Option<Operation>,
) -> CollectiveError {
    let shown =
        |operation: Option<Operation>| operation.map_or("something else".to_owned(), |it| it.to_string());
    CollectiveError::Mismatch {
        number: own.map_or(0, |own| own.number),
        own_rank,
        own: shown(own),
        rank,
        theirs: shown(theirs),
    }
}

/// Whether a process has ended.
pub(crate) fn has_ended(process: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    matches!(rustix::event::poll(&mut fds, Some(&Timespec::default())), Ok(1..))
}

/// How an array is cut into chunks, and each chunk into a part for each member.
struct Chunks {
    bytes: usize,
    chunk: usize,
    members: usize,
}

impl Chunks {
    fn count(&self) -> usize {
        self.bytes.div_ceil(self.chunk)
    }

    fn range(&self, index: usize) -> Range<usize> {
        index * self.chunk..((index + 1) * self.chunk).min(self.bytes)
    }

    /// The part of a chunk that `member` reduces; it may be empty.
    fn part(&self, index: usize, member: usize) -> Range<usize> {
        let chunk = self.range(index);
        let part = chunk.len().div_ceil(self.members).next_multiple_of(PART_ALIGNMENT);
        let at = |member: usize| (chunk.start + member * part).min(chunk.end);
        at(member)..at(member + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_chunks_cover_the_array_once() {
        for members in [1, 2, 3, 7] {
            for bytes in [0, 1, 64, 1000, 4096, 4097, 10_000] {
                let chunks = Chunks { bytes, chunk: 4096, members };
                let mut end = 0;
                for index in 0..chunks.count() {
                    for member in 0..members {
                        let part = chunks.part(index, member);
                        assert_eq!(part.start, end);
                        assert!(
                            part.len() <= chunks.chunk.div_ceil(members).next_multiple_of(PART_ALIGNMENT)
                        );
                        end = part.end;
                    }
                }
                assert_eq!(end, bytes);
            }
        }
    }
}
