//! A group as one of its members sees it: the operations, put together from those on a machine and those between machines.

use crate::data::Data;
use crate::element::{DataType, Element, ReduceOp};
use crate::error::{CollectiveError, Result};
use crate::guard::Guard;
use crate::local::Local;
use crate::net::{Net, Purpose};
use crate::operation::{Kind, Operation};
use crate::seat::{Card, Seat};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// How long an operation waits for the other members, if nothing else is said.
pub const TIMEOUT: Duration = Duration::from_secs(300);

/// How a group behaves.
pub struct Options {
    /// How long an operation waits for the other members.
    pub timeout: Duration,
    /// Asked while an operation waits; if it says so, the operation ends, and the group with it.
    pub interrupted: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Default for Options {
    fn default() -> Self {
        Self { timeout: TIMEOUT, interrupted: Box::new(|| false) }
    }
}

/// One member of a group. See [the crate](crate) for an example.
///
/// All members make the same calls in the same order. Dropping a member is leaving the group.
pub struct Group {
    rank: usize,
    size: usize,
    /// The card of this member.
    card: Card,
    /// The ranks on each machine.
    places: Vec<Vec<usize>>,
    own_place: usize,
    /// Before `local`: it says farewell to the other machines while the board is there.
    net: Option<Net>,
    local: Local,
    options: Options,
    number: u64,
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Group(rank {} of {}, {} machines)", self.rank, self.size, self.places.len())
    }
}

impl Group {
    pub(crate) fn new(
        rank: usize,
        card: Card,
        places: Vec<Vec<usize>>,
        own_place: usize,
        local: Local,
        net: Option<Net>,
        options: Options,
    ) -> Self {
        let size = places.iter().map(Vec::len).sum();
        Self { rank, size, card, places, own_place, net, local, options, number: 0 }
    }

    /// Which member this is.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many members there are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// How many machines the members are on.
    pub fn machines(&self) -> usize {
        self.places.len()
    }

    /// How long an operation waits for the other members from now on.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.options.timeout = timeout;
    }

    /// Why the group is broken, if it is.
    pub fn failure(&self) -> Option<CollectiveError> {
        self.local.failure()
    }

    /// Leaves the group and opens a seat for a new one, at the same place and address. The members that are left
    /// exchange the cards of their seats and join, as they did at first.
    ///
    /// ```
    /// use aktis_collective::{Options, Seat};
    ///
    /// let seat = Seat::open("this machine", None)?;
    /// let cards = [seat.card().clone()];
    /// let broken = seat.join(0, &cards, Options::default())?;
    /// let seat = broken.regroup()?;
    /// let cards = [seat.card().clone()];
    /// let group = seat.join(0, &cards, Options::default())?;
    /// assert_eq!(group.size(), 1);
    /// # Ok::<(), aktis_collective::CollectiveError>(())
    /// ```
    pub fn regroup(self) -> Result<Seat> {
        Seat::open(self.card.place(), self.card.address().map(|address| address.ip()))
    }

    /// Combines the arrays of all members, in place.
    pub fn all_reduce<T: Element>(&mut self, array: &mut [T], op: ReduceOp) -> Result<()> {
        self.all_reduce_bytes(T::DATA_TYPE, op, None, array.as_mut_bytes())
    }

    /// Combines the arrays of all members into `output`.
    pub fn all_reduce_into<T: Element>(&mut self, input: &[T], output: &mut [T], op: ReduceOp) -> Result<()> {
        self.all_reduce_bytes(T::DATA_TYPE, op, Some(input.as_bytes()), output.as_mut_bytes())
    }

    /// Combines the arrays of all members, in place at `root`. The arrays of the others stay as they are.
    pub fn reduce<T: Element>(&mut self, array: &mut [T], op: ReduceOp, root: usize) -> Result<()> {
        self.reduce_bytes(T::DATA_TYPE, op, root, None, array.as_mut_bytes())
    }

    /// Combines the arrays of all members; each gets the part of its rank.
    pub fn reduce_scatter<T: Element>(&mut self, input: &[T], output: &mut [T], op: ReduceOp) -> Result<()> {
        self.reduce_scatter_bytes(T::DATA_TYPE, op, input.as_bytes(), output.as_mut_bytes())
    }

    /// Puts the arrays of all members behind each other, in the order of ranks.
    pub fn all_gather<T: Element>(&mut self, input: &[T], output: &mut [T]) -> Result<()> {
        self.all_gather_bytes(T::DATA_TYPE, input.as_bytes(), output.as_mut_bytes())
    }

    /// Gives the array of `root` to all members.
    pub fn broadcast<T: Element>(&mut self, array: &mut [T], root: usize) -> Result<()> {
        self.broadcast_bytes(T::DATA_TYPE, root, array.as_mut_bytes())
    }

    /// Sends an array to one member, which receives it.
    pub fn send<T: Element>(&mut self, array: &[T], to: usize) -> Result<()> {
        self.send_bytes(T::DATA_TYPE, to, array.as_bytes())
    }

    /// Receives an array of the same length that one member sends.
    pub fn receive<T: Element>(&mut self, array: &mut [T], from: usize) -> Result<()> {
        self.receive_bytes(T::DATA_TYPE, from, array.as_mut_bytes())
    }

    /// Waits for all members.
    pub fn barrier(&mut self) -> Result<()> {
        let operation = self.begin(Kind::Barrier, DataType::U8, None, 0, &[&[]])?;
        let Self { local, net, options, .. } = self;
        let guard = guard(operation, options);
        local.barrier(&guard)?;
        if let Some(net) = net {
            if net.leaders[net.position] == self.rank {
                net.barrier(&guard)?;
            }
            local.barrier(&guard)?;
        }
        Ok(())
    }

    /// [`all_reduce`](Self::all_reduce) of bytes, in place without an `input`.
    pub fn all_reduce_bytes(
        &mut self,
        data_type: DataType,
        op: ReduceOp,
        input: Option<&[u8]>,
        output: &mut [u8],
    ) -> Result<()> {
        check_equal(input, output)?;
        check_mean(data_type, op)?;
        let operation =
            self.begin(Kind::AllReduce, data_type, Some(op), 0, &[output, input.unwrap_or(&[])])?;
        let (is_leader, size, leader) = (self.is_leader(), self.size, 0);
        let Self { local, net, options, .. } = self;
        let guard = guard(operation, options);
        let Some(net) = net else {
            return local.reduce(&mut data(input, output), Some(size), &guard);
        };
        if is_leader {
            local.reduce(&mut data(input, output), None, &guard)?;
            net.all_reduce(output, op, size, &guard)?;
        } else {
            local.reduce(&mut Data::Only(input.unwrap_or(output)), None, &guard)?;
        }
        local.broadcast(leader, output, &guard)
    }

    /// [`reduce`](Self::reduce) of bytes, in place without an `input`.
    pub fn reduce_bytes(
        &mut self,
        data_type: DataType,
        op: ReduceOp,
        root: usize,
        input: Option<&[u8]>,
        output: &mut [u8],
    ) -> Result<()> {
        self.check_rank("root", root)?;
        if self.rank == root {
            check_equal(input, output)?;
        }
        check_mean(data_type, op)?;
        let array = input.unwrap_or(output);
        let operation = self.begin(Kind::Reduce, data_type, Some(op), root, &[array])?;
        let (is_leader, is_root, size) = (self.is_leader(), self.rank == root, self.size);
        let Self { local, net, options, .. } = self;
        let guard = guard(operation, options);
        let Some(net) = net else {
            let mut data = if is_root { data(input, output) } else { Data::Only(array) };
            return local.reduce(&mut data, Some(size), &guard);
        };
        let mut words = vec![0_u64; if is_leader && !is_root { array.len().div_ceil(8) } else { 0 }];
        if is_leader && is_root {
            local.reduce(&mut data(input, output), None, &guard)?;
            net.all_reduce(output, op, size, &guard)
        } else if is_leader {
            let total = &mut words[..].as_mut_bytes()[..array.len()];
            local.reduce(&mut Data::Into(array, total), None, &guard)?;
            net.all_reduce(total, op, size, &guard)?;
            let place = local.place_of(root);
            place.map_or(Ok(()), |place| local.send(place, total, &guard))
        } else {
            local.reduce(&mut Data::Only(array), None, &guard)?;
            if is_root { local.receive(0, output, &guard) } else { Ok(()) }
        }
    }

    /// [`reduce_scatter`](Self::reduce_scatter) of bytes.
    pub fn reduce_scatter_bytes(
        &mut self,
        data_type: DataType,
        op: ReduceOp,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<()> {
        self.check_parts("reduce_scatter", "input", "output", input.len(), output.len(), data_type)?;
        check_mean(data_type, op)?;
        let operation = self.begin(Kind::ReduceScatter, data_type, Some(op), 0, &[input, output])?;
        let (is_leader, rank, size) = (self.is_leader(), self.rank, self.size);
        let Self { local, net, options, .. } = self;
        let guard = guard(operation, options);
        let Some(net) = net else {
            return local.reduce_scatter(input, output, &guard);
        };
        let mut words = vec![0_u64; input.len().div_ceil(8)];
        let total = &mut words[..].as_mut_bytes()[..input.len()];
        if is_leader {
            local.reduce(&mut Data::Into(input, total), None, &guard)?;
            net.all_reduce(total, op, size, &guard)?;
        } else {
            local.reduce(&mut Data::Only(input), None, &guard)?;
        }
        local.broadcast(0, total, &guard)?;
        output.copy_from_slice(&total[rank * output.len()..][..output.len()]);
        Ok(())
    }

    /// [`all_gather`](Self::all_gather) of bytes.
    pub fn all_gather_bytes(&mut self, data_type: DataType, input: &[u8], output: &mut [u8]) -> Result<()> {
        self.check_parts("allgather", "output", "input", output.len(), input.len(), data_type)?;
        let operation = self.begin(Kind::AllGather, data_type, None, 0, &[input, output])?;
        let (is_leader, own_place) = (self.is_leader(), self.own_place);
        let Self { local, net, options, places, .. } = self;
        let guard = guard(operation, options);
        let part = input.len();
        let Some(net) = net else {
            return local.all_gather(&mut Data::Into(input, output), part, &guard);
        };
        if is_leader {
            // Machine by machine; the ranks of a machine need not follow each other.
            let segments: Vec<usize> = places.iter().map(|ranks| ranks.len() * part).collect();
            let start: usize = segments[..own_place].iter().sum();
            let mut by_place = vec![0; output.len()];
            let own = &mut by_place[start..start + segments[own_place]];
            local.all_gather(&mut Data::Into(input, own), part, &guard)?;
            net.all_gather(&mut by_place, &segments, &guard)?;
            for (index, rank) in places.iter().flatten().enumerate() {
                output[rank * part..][..part].copy_from_slice(&by_place[index * part..][..part]);
            }
        } else {
            local.all_gather(&mut Data::Only(input), part, &guard)?;
        }
        local.broadcast(0, output, &guard)
    }

    /// [`broadcast`](Self::broadcast) of bytes.
    pub fn broadcast_bytes(&mut self, data_type: DataType, root: usize, array: &mut [u8]) -> Result<()> {
        self.check_rank("root", root)?;
        let operation = self.begin(Kind::Broadcast, data_type, None, root, &[array])?;
        let is_leader = self.is_leader();
        let Self { local, net, options, places, .. } = self;
        let guard = guard(operation, options);
        let root_place = local.place_of(root);
        if let Some(place) = root_place {
            local.broadcast(place, array, &guard)?;
        }
        let Some(net) = net else { return Ok(()) };
        if is_leader {
            let position = places.iter().position(|ranks| ranks.contains(&root)).expect("it has a place");
            net.broadcast(position, array, &guard)?;
        }
        if root_place.is_none() { local.broadcast(0, array, &guard) } else { Ok(()) }
    }

    /// [`send`](Self::send) of bytes.
    pub fn send_bytes(&mut self, data_type: DataType, to: usize, array: &[u8]) -> Result<()> {
        self.check_other("to", to)?;
        let operation = self.begin_pair(data_type, array)?;
        let Self { local, net, options, .. } = self;
        let guard = guard(operation, options);
        match (local.place_of(to), net) {
            (Some(place), _) => local.send(place, array, &guard),
            (None, Some(net)) => net.send_to(to, Purpose::Pair, array, &guard),
            (None, None) => unreachable!("without other machines all members are here"),
        }
    }

    /// [`receive`](Self::receive) of bytes.
    pub fn receive_bytes(&mut self, data_type: DataType, from: usize, array: &mut [u8]) -> Result<()> {
        self.check_other("from", from)?;
        let operation = self.begin_pair(data_type, array)?;
        let Self { local, net, options, .. } = self;
        let guard = guard(operation, options);
        match (local.place_of(from), net) {
            (Some(place), _) => local.receive(place, array, &guard),
            (None, Some(net)) => net.receive_from(from, Purpose::Pair, array, &guard),
            (None, None) => unreachable!("without other machines all members are here"),
        }
    }

    fn is_leader(&self) -> bool {
        self.local.ranks()[0] == self.rank
    }

    fn begin(
        &mut self,
        kind: Kind,
        data_type: DataType,
        op: Option<ReduceOp>,
        root: usize,
        arrays: &[&[u8]],
    ) -> Result<Operation> {
        check_layout(data_type, arrays)?;
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        self.number += 1;
        let elements = arrays[0].len() / data_type.bytes();
        Ok(Operation { kind, data_type, op, root, elements, number: self.number })
    }

    /// Operations of two members are not counted: the others do not know of them.
    fn begin_pair(&mut self, data_type: DataType, array: &[u8]) -> Result<Operation> {
        let number = self.number;
        let operation = self.begin(Kind::Send, data_type, None, 0, &[array])?;
        self.number = number;
        Ok(Operation { number: 0, ..operation })
    }

    fn check_rank(&self, what: &str, rank: usize) -> Result<()> {
        if rank < self.size {
            return Ok(());
        }
        Err(CollectiveError::Invalid(format!(
            "`{what}` must be a rank below {}, got {rank}\nhint: ranks begin with 0",
            self.size
        )))
    }

    fn check_other(&self, what: &str, rank: usize) -> Result<()> {
        self.check_rank(what, rank)?;
        if rank != self.rank {
            return Ok(());
        }
        Err(CollectiveError::Invalid(format!(
            "`{what}` is this member itself (rank {rank})\nhint: copy the array instead"
        )))
    }

    fn check_parts(
        &self,
        operation: &str,
        whole: &str,
        part: &str,
        whole_bytes: usize,
        part_bytes: usize,
        data_type: DataType,
    ) -> Result<()> {
        if part_bytes.checked_mul(self.size) == Some(whole_bytes) {
            return Ok(());
        }
        let elements = |bytes: usize| bytes / data_type.bytes();
        Err(CollectiveError::Invalid(format!(
            "{operation}: the {whole} has {} elements and the {part} {}, in a group of {}\n\
             hint: the {whole} has the {part}'s elements times the size of the group",
            elements(whole_bytes),
            elements(part_bytes),
            self.size
        )))
    }
}

fn guard(operation: Operation, options: &Options) -> Guard<'_> {
    Guard { operation, began: Instant::now(), timeout: options.timeout, interrupted: &*options.interrupted }
}

fn data<'a>(input: Option<&'a [u8]>, output: &'a mut [u8]) -> Data<'a> {
    match input {
        Some(input) => Data::Into(input, output),
        None => Data::InPlace(output),
    }
}

fn check_equal(input: Option<&[u8]>, output: &[u8]) -> Result<()> {
    match input {
        Some(input) if input.len() != output.len() => Err(CollectiveError::Invalid(format!(
            "the input has {} bytes and the output {}\nhint: they must have the same shape and type",
            input.len(),
            output.len()
        ))),
        _ => Ok(()),
    }
}

fn check_mean(data_type: DataType, op: ReduceOp) -> Result<()> {
    if op == ReduceOp::Mean && !data_type.is_float() {
        return Err(CollectiveError::Invalid(format!(
            "the mean of {data_type} has fractions\nhint: use `sum` and divide, or an array of floating-point numbers"
        )));
    }
    Ok(())
}

fn check_layout(data_type: DataType, arrays: &[&[u8]]) -> Result<()> {
    let size = data_type.bytes();
    let fits = |array: &&[u8]| {
        array.is_empty()
            || (array.len().is_multiple_of(size) && (array.as_ptr() as usize).is_multiple_of(size))
    };
    if arrays.iter().all(fits) {
        return Ok(());
    }
    Err(CollectiveError::Invalid(format!(
        "the array is not aligned, or does not have whole elements of {data_type}\nhint: copy it to a new array"
    )))
}
