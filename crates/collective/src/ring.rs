//! Operations among the leaders of machines: trees for small arrays, rings over several streams for large ones.
//!
//! In a ring each leader receives from the one before and sends to the one behind, both at once. An array is cut into
//! stripes, one for each stream, and each stripe into a segment for each leader. A thread of its own sends; blocks go to
//! it, and come back, through queues. So each block has one owner at a time.
//!
//! Invariant: leaders agree on the operation before the first block is sent. Each operation begins with a tree, and the
//! frames of a tree carry the operation; two leaders that would use different streams meet there.

use crate::element::{DataType, ReduceOp};
use crate::error::{CollectiveError, Result};
use crate::guard::Guard;
use crate::net::{Key, Net, Purpose};
use crate::reduce::{combine, finish};
use aktis_io::PinnedStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use zerocopy::IntoBytes;

/// Arrays up to this size go through a tree: fewer, larger steps.
const TREE_BYTES_MAX: usize = 64 << 10;
/// The most streams between two machines in one direction.
const STREAMS_MAX: usize = 4;
/// A stream is worth its threads from so many bytes on.
const STRIPE_BYTES_MIN: usize = 2 << 20;
/// Bytes of one frame; the next leader begins with a segment when it has its first block.
const BLOCK_BYTES: usize = 256 << 10;
/// Stripes and segments begin at multiples of this: whole elements.
const ALIGNMENT: usize = 64;

type Blocks<'a> = Vec<&'a mut [u8]>;

/// What a ring does with the segments.
#[derive(Clone, Copy)]
enum Plan {
    /// Combines all, and gives the result to all.
    Reduce { data_type: DataType, op: ReduceOp, count: usize },
    /// Gives each leader's segment to all.
    Gather,
    /// Gives the array of the leader at this position to all.
    Broadcast { root: usize },
}

impl Net {
    /// Combines the arrays of all leaders; all get the result. `count` is what a mean divides by.
    pub(crate) fn all_reduce(
        &self,
        array: &mut [u8],
        op: ReduceOp,
        count: usize,
        guard: &Guard<'_>,
    ) -> Result<()> {
        let data_type = guard.operation.data_type;
        if array.len() <= TREE_BYTES_MAX {
            self.tree_reduce(array, op, guard)?;
            finish(data_type, op, array, count);
            return self.tree_broadcast(0, array, guard);
        }
        self.barrier(guard)?;
        let stripes = stripes(array, &self.even_segments(array.len()));
        self.run(stripes, Plan::Reduce { data_type, op, count }, guard)
    }

    /// Each leader has filled the segment of its position; all get all.
    pub(crate) fn all_gather(&self, array: &mut [u8], segments: &[usize], guard: &Guard<'_>) -> Result<()> {
        self.barrier(guard)?;
        self.run(stripes(array, segments), Plan::Gather, guard)
    }

    /// All get the array of the leader at position `root`.
    pub(crate) fn broadcast(&self, root: usize, array: &mut [u8], guard: &Guard<'_>) -> Result<()> {
        self.barrier(guard)?;
        if array.len() <= TREE_BYTES_MAX {
            return self.tree_broadcast(root, array, guard);
        }
        let whole = [array.len()];
        self.run(stripes(array, &whole), Plan::Broadcast { root }, guard)
    }

    /// Waits for all leaders.
    pub(crate) fn barrier(&self, guard: &Guard<'_>) -> Result<()> {
        self.tree_reduce(&mut [], ReduceOp::Sum, guard)?;
        self.tree_broadcast(0, &mut [], guard)
    }

    fn even_segments(&self, bytes: usize) -> Vec<usize> {
        let leaders = self.leaders.len();
        let segment = bytes.div_ceil(leaders).next_multiple_of(ALIGNMENT);
        (0..leaders).map(|index| segment.min(bytes.saturating_sub(index * segment))).collect()
    }

    /// The leader at position 0 gets the combined arrays; the others keep what they have combined on the way.
    fn tree_reduce(&self, array: &mut [u8], op: ReduceOp, guard: &Guard<'_>) -> Result<()> {
        let (own, leaders) = (self.position, self.leaders.len());
        let mut received = vec![0_u64; array.len().div_ceil(8)];
        let received = &mut received[..].as_mut_bytes()[..array.len()];
        let mut step = 1;
        while step < leaders {
            if own & step != 0 {
                return self.send_to(self.leaders[own - step], Purpose::Tree, array, guard);
            }
            if own + step < leaders {
                self.receive_from(self.leaders[own + step], Purpose::Tree, received, guard)?;
                combine(guard.operation.data_type, op, array, received);
            }
            step *= 2;
        }
        Ok(())
    }

    fn tree_broadcast(&self, root: usize, array: &mut [u8], guard: &Guard<'_>) -> Result<()> {
        let leaders = self.leaders.len();
        let own = (self.position + leaders - root) % leaders;
        let rank_at = |place: usize| self.leaders[(place + root) % leaders];
        let mut step = 1;
        while step < leaders && own & step == 0 {
            step *= 2;
        }
        if own != 0 {
            self.receive_from(rank_at(own - step), Purpose::Tree, array, guard)?;
        }
        while step > 1 {
            step /= 2;
            if own + step < leaders {
                self.send_to(rank_at(own + step), Purpose::Tree, array, guard)?;
            }
        }
        Ok(())
    }

    /// Runs all stripes at once, each with its own streams and threads.
    fn run(&self, stripes: Vec<Vec<Blocks<'_>>>, plan: Plan, guard: &Guard<'_>) -> Result<()> {
        let mut numbered = stripes.into_iter().enumerate();
        let Some((_, first)) = numbered.next() else { return Ok(()) };
        std::thread::scope(|scope| {
            let others: Vec<_> = numbered
                .map(|(index, stripe)| scope.spawn(move || self.run_stripe(index as u8, stripe, plan, guard)))
                .collect();
            let mut result = self.run_stripe(0, first, plan, guard);
            for other in others {
                result = result.and(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            result
        })
    }

    fn run_stripe(&self, index: u8, stripe: Vec<Blocks<'_>>, plan: Plan, guard: &Guard<'_>) -> Result<()> {
        let (own, leaders) = (self.position, self.leaders.len());
        let before = (self.leaders[(own + leaders - 1) % leaders], Purpose::Ring, index);
        let behind = (self.leaders[(own + 1) % leaders], Purpose::Ring, index);
        std::thread::scope(|scope| {
            let (to_send, blocks_to_send) = channel();
            let (sent, blocks_sent) = channel();
            let sender = scope.spawn(move || self.send_blocks(behind, &blocks_to_send, &sent, guard));
            let ring = Ring { net: self, before, stream: None, to_send, blocks_sent, guard };
            let received = match plan {
                Plan::Reduce { data_type, op, count } => ring.reduce(stripe, data_type, op, count),
                Plan::Gather => ring.gather(stripe),
                Plan::Broadcast { root } => ring.broadcast(stripe, root),
            };
            let sent = sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            received.and(sent)
        })
    }

    /// Sends blocks as they come, and gives them back.
    fn send_blocks<'a>(
        &self,
        key: Key,
        blocks: &Receiver<&'a mut [u8]>,
        sent: &Sender<&'a mut [u8]>,
        guard: &Guard<'_>,
    ) -> Result<()> {
        let mut stream = None;
        for block in blocks {
            let open = match stream.take() {
                Some(open) => open,
                None => self.outgoing(key, guard)?,
            };
            let open = stream.insert(open);
            self.send(open, key.0, block, guard)?;
            let _ = sent.send(block);
        }
        if let Some(stream) = stream {
            self.keep_outgoing(key, stream);
        }
        Ok(())
    }
}

/// The receiving half of one stripe.
struct Ring<'a, 'b, 'c> {
    net: &'b Net,
    before: Key,
    /// Taken when the first block is due: a stripe may have none.
    stream: Option<PinnedStream>,
    to_send: Sender<&'a mut [u8]>,
    blocks_sent: Receiver<&'a mut [u8]>,
    guard: &'b Guard<'c>,
}

impl<'a> Ring<'a, '_, '_> {
    fn position(&self) -> usize {
        self.net.position
    }

    fn leaders(&self) -> usize {
        self.net.leaders.len()
    }

    fn receive(&mut self, block: &mut [u8]) -> Result<()> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.net.incoming(self.before, self.guard)?,
        };
        self.net.receive(self.stream.insert(stream), self.before.0, block, self.guard)
    }

    fn keep_stream(self) {
        if let Some(stream) = self.stream {
            self.net.keep_incoming(self.before, stream);
        }
    }

    fn forward(&self, block: &'a mut [u8]) {
        // If the sender has failed, its error counts.
        let _ = self.to_send.send(block);
    }

    fn forward_all(&self, blocks: &mut Blocks<'a>) {
        blocks.drain(..).for_each(|block| self.forward(block));
    }

    /// Segment `p - step` for the leader at position `p`.
    fn segment(&self, step: usize) -> usize {
        (self.position() + 2 * self.leaders() - step) % self.leaders()
    }

    fn reduce(
        mut self,
        mut stripe: Vec<Blocks<'a>>,
        data_type: DataType,
        op: ReduceOp,
        count: usize,
    ) -> Result<()> {
        let last = self.leaders() - 1;
        let lengths: Vec<Vec<usize>> =
            stripe.iter().map(|blocks| blocks.iter().map(|block| block.len()).collect()).collect();
        self.forward_all(&mut stripe[self.position()]);
        let mut words = vec![0_u64; BLOCK_BYTES / 8];
        let scratch = words[..].as_mut_bytes();
        for step in 1..=last {
            for block in std::mem::take(&mut stripe[self.segment(step)]) {
                let received = &mut scratch[..block.len()];
                self.receive(received)?;
                combine(data_type, op, block, received);
                if step == last {
                    finish(data_type, op, block, count);
                }
                self.forward(block);
            }
        }
        // Segments come back from the sender in the order in which their results arrive.
        for step in 0..last {
            for _ in &lengths[self.segment(step)] {
                let Ok(block) = self.blocks_sent.recv() else { return self.interrupted() };
                self.receive(block)?;
                if step + 1 < last {
                    self.forward(block);
                }
            }
        }
        self.keep_stream();
        Ok(())
    }

    fn gather(mut self, mut stripe: Vec<Blocks<'a>>) -> Result<()> {
        let last = self.leaders() - 1;
        self.forward_all(&mut stripe[self.position()]);
        for step in 1..=last {
            for block in std::mem::take(&mut stripe[self.segment(step)]) {
                self.receive(block)?;
                if step < last {
                    self.forward(block);
                }
            }
        }
        self.keep_stream();
        Ok(())
    }

    fn broadcast(mut self, mut stripe: Vec<Blocks<'a>>, root: usize) -> Result<()> {
        if self.position() == root {
            stripe.iter_mut().for_each(|blocks| self.forward_all(blocks));
            return Ok(());
        }
        let is_last = (self.position() + 1) % self.leaders() == root;
        for block in stripe.into_iter().flatten() {
            self.receive(block)?;
            if !is_last {
                self.forward(block);
            }
        }
        self.keep_stream();
        Ok(())
    }

    /// The sender has failed, and gives the reason.
    fn interrupted(&self) -> Result<()> {
        Err(CollectiveError::Setup("the sender has ended".to_owned()))
    }
}

/// Cuts an array of these segments into stripes of equal share, and those into blocks.
fn stripes<'a>(array: &'a mut [u8], segments: &[usize]) -> Vec<Vec<Blocks<'a>>> {
    let count = (array.len() / STRIPE_BYTES_MIN).clamp(1, STREAMS_MAX);
    let mut stripes: Vec<Vec<Blocks<'a>>> = (0..count).map(|_| Vec::new()).collect();
    let mut rest = array;
    for segment in segments {
        let (mut segment, behind) = std::mem::take(&mut rest).split_at_mut(*segment);
        rest = behind;
        let share = segment.len().div_ceil(count).next_multiple_of(ALIGNMENT);
        for stripe in &mut stripes {
            let (part, others) = segment.split_at_mut(share.min(segment.len()));
            segment = others;
            stripe.push(part.chunks_mut(BLOCK_BYTES).collect());
        }
    }
    stripes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_cover_the_array_once() {
        for bytes in [0, 8, 1000, 5 << 20, (9 << 20) + 24] {
            for segments in [vec![bytes], vec![bytes / 2, 0, bytes - bytes / 2]] {
                let mut array = vec![0; bytes];
                for block in stripes(&mut array, &segments).into_iter().flatten().flatten() {
                    assert!(block.len() <= BLOCK_BYTES);
                    block.iter_mut().for_each(|byte| *byte += 1);
                }
                assert!(array.iter().all(|byte| *byte == 1), "{bytes} bytes, {segments:?}");
            }
        }
    }
}
