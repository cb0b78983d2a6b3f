//! What a member does: the description that members compare before they touch each other's data.

use crate::element::{DataType, ReduceOp};
use std::fmt;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    AllReduce = 1,
    Reduce = 2,
    ReduceScatter = 3,
    AllGather = 4,
    Broadcast = 5,
    Barrier = 6,
    Send = 7,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::AllReduce,
        Self::Reduce,
        Self::ReduceScatter,
        Self::AllGather,
        Self::Broadcast,
        Self::Barrier,
        Self::Send,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "allreduce",
            Self::Reduce => "reduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllGather => "allgather",
            Self::Broadcast => "broadcast",
            Self::Barrier => "barrier",
            Self::Send => "send",
        }
    }
}

/// One operation, as far as all members must agree on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) kind: Kind,
    pub(crate) data_type: DataType,
    pub(crate) op: Option<ReduceOp>,
    pub(crate) root: usize,
    /// Elements of the array of each member; of the larger one where two differ.
    pub(crate) elements: usize,
    /// The how many-th operation of the group it is.
    pub(crate) number: u64,
}

impl Operation {
    pub(crate) fn bytes(&self) -> usize {
        self.elements * self.data_type.bytes()
    }

    pub(crate) fn to_words(self) -> [u64; 4] {
        let op = self.op.map_or(0, |op| op as u8);
        let codes = u64::from(self.kind as u8) | u64::from(self.data_type as u8) << 8 | u64::from(op) << 16;
        [codes, self.root as u64, self.elements as u64, self.number]
    }

    pub(crate) fn from_words(words: [u64; 4]) -> Option<Self> {
        let [codes, root, elements, number] = words;
        let code = |shift: u32| (codes >> shift) as u8;
        Some(Self {
            kind: Kind::ALL.into_iter().find(|kind| *kind as u8 == code(0))?,
            data_type: DataType::from_code(code(8))?,
            op: ReduceOp::from_code(code(16)),
            root: root as usize,
            elements: elements as usize,
            number,
        })
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        match self.kind {
            Kind::Barrier => return Ok(()),
            Kind::Reduce => write!(f, "({}, to rank {})", self.op.map_or("?", ReduceOp::name), self.root)?,
            Kind::Broadcast => write!(f, "(from rank {})", self.root)?,
            _ => {
                if let Some(op) = self.op {
                    write!(f, "({op})")?;
                }
            }
        }
        write!(f, " of {} {}", self.elements, self.data_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_survive_the_way_to_words_and_back() {
        for kind in Kind::ALL {
            for op in [None, Some(ReduceOp::Mean)] {
                let data_type = DataType::Bf16;
                let operation = Operation { kind, data_type, op, root: 3, elements: 1 << 40, number: 7 };
                assert_eq!(Operation::from_words(operation.to_words()), Some(operation));
            }
        }
        assert_eq!(Operation::from_words([0; 4]), None);
    }
}
