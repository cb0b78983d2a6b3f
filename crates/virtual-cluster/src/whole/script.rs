//! What the program of the virtual cluster does: how long a task runs, what it needs, submits and returns.

use crate::random::Random;
use crate::world::World;
use aktis_protocol::control::{decode, encode};
use aktis_protocol::resources::CPU;
use aktis_protocol::{Amount, FunctionId, NodeId, ProgramId, Resources, Shape, Strategy};

/// The program.
pub(super) const PROGRAM: ProgramId = ProgramId::from_hash([7; 16]);
/// Different shapes of tasks.
pub(super) const SHAPES: usize = 5;
/// The shape of tasks that need a licence.
pub(super) const LICENCE_SHAPE: usize = 3;
/// A resource that few nodes have.
pub(super) const LICENCE: &str = "licence";
/// Bytes of a stored value at most.
const VALUE_BYTES_MAX: u64 = 300 << 10;

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Script {
    /// Which shape it has.
    pub(super) shape: usize,
    /// How long it runs, besides waiting.
    pub(super) run_microseconds: u64,
    /// How many tasks it submits, and waits for.
    pub(super) children: u8,
    /// How many levels of tasks these may be the first of.
    pub(super) depth: u8,
    /// The size of its value, if that is stored; else 0.
    pub(super) stored_bytes: u64,
}

impl Script {
    /// A task that a driver may submit.
    pub(super) fn random(random: &mut Random) -> Self {
        let depth = if random.chance(25) { 1 + random.below(2) as u8 } else { 0 };
        let stored_bytes = if random.chance(35) { 1 + random.below(VALUE_BYTES_MAX) } else { 0 };
        Self { stored_bytes, ..Self::of_depth(random, depth) }
    }

    /// A task that another one submits.
    pub(super) fn child(self, random: &mut Random) -> Self {
        Self::of_depth(random, self.depth - 1)
    }

    fn of_depth(random: &mut Random, depth: u8) -> Self {
        // Heavy-tailed: most are short, and the few long ones take most of the time.
        let run_microseconds = match random.below(100) {
            0..75 => 100 + random.below(4_000),
            75..97 => 5_000 + random.below(60_000),
            _ => 100_000 + random.below(1_500_000),
        };
        let children = if depth > 0 { 1 + random.below(3) as u8 } else { 0 };
        let shape = [0, 0, 0, 0, 1, 1, 2, 3, 4][random.below(9) as usize];
        Self { shape, run_microseconds, children, depth, stored_bytes: 0 }
    }

    /// What run times are told apart by.
    pub(super) fn function(self) -> FunctionId {
        FunctionId(1 + u64::from(self.run_microseconds.ilog10()))
    }

    pub(super) fn encode(self) -> Vec<u8> {
        let Self { shape, run_microseconds, children, depth, stored_bytes } = self;
        encode(&(shape as u64, run_microseconds, children, depth, stored_bytes))
    }

    pub(super) fn decode(bytes: &[u8]) -> Self {
        let (shape, run_microseconds, children, depth, stored_bytes): (u64, _, _, _, _) =
            decode(bytes).expect("a script");
        Self { shape: shape as usize, run_microseconds, children, depth, stored_bytes }
    }
}

/// A shape, as the processes of a node ask for it.
pub(super) fn shape(number: usize, world: &World) -> Shape {
    let cpus = |units| Resources::none().with(CPU, Amount::units(units));
    let (resources, strategy) = match number {
        0 => (cpus(1), Strategy::Default),
        1 => (cpus(1), Strategy::Spread),
        2 => (cpus(2), Strategy::Default),
        LICENCE_SHAPE => (cpus(1).with(LICENCE, Amount::ONE), Strategy::Default),
        _ => {
            // Rather on the next node; also if that is gone.
            let [number, _] = world.id().to_words();
            (cpus(1), Strategy::Node { node: NodeId::from_words([1 + number % 4, 0]), soft: true })
        }
    };
    Shape { resources, program: PROGRAM, strategy, ..Shape::default() }
}
