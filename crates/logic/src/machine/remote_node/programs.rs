//! Programs that travel: the other node wants a task or actor run here, and this node lacks its program.
//!
//! Tasks and actors of a program wait until the program is here. Their arguments are imported and held when they arrive:
//! the other side says what becomes of an imported actor or object without waiting for the program.

use super::{LocalNode, PlantedBug, RemoteNode};
use crate::Time;
use aktis_protocol::actors::ActorSpec;
use aktis_protocol::peer::{Frame, PeerArgument, PeerCall, Ticket};
use aktis_protocol::{ActorId, Failure, FailureKind, ProgramId, ProgramSpec, Shape};
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of one part of an executable.
const PART_BYTES: usize = 1 << 20;

/// A program on its way here.
struct Coming<N: LocalNode> {
    spec: Option<ProgramSpec>,
    /// Its executable, as far as it is there.
    executable: Option<N::Executable>,
    /// The tasks and actors of it, in order.
    waiting: Vec<Waiting<N::Arguments>>,
}

impl<N: LocalNode> Default for Coming<N> {
    fn default() -> Self {
        Self { spec: None, executable: None, waiting: Vec::new() }
    }
}

/// A task or actor that waits for its program, and holds what its arguments refer to.
struct Waiting<A> {
    work: ProgramWork,
    _held: A,
}

/// Something that needs a program.
pub(super) enum ProgramWork {
    /// A task; its shape as it was meant when it was sent.
    Task { ticket: Ticket, shape: Arc<Shape>, call: PeerCall },
    /// An actor to be hosted.
    Actor { spec: Box<ActorSpec>, arguments: Vec<PeerArgument>, incarnation: u32 },
}

impl ProgramWork {
    fn program(&self) -> ProgramId {
        match self {
            Self::Task { shape, .. } => shape.program,
            Self::Actor { spec, .. } => spec.program,
        }
    }

    fn arguments(&self) -> &[PeerArgument] {
        match self {
            Self::Task { call, .. } => &call.arguments,
            Self::Actor { arguments, .. } => arguments,
        }
    }
}

/// See the module.
pub(super) struct Programs<N: LocalNode> {
    coming: BTreeMap<ProgramId, Coming<N>>,
    /// Programs that were here when a frame of this turn asked.
    here: BTreeSet<ProgramId>,
    /// Executables that the other node wants, as far as they are not sent.
    going: VecDeque<(ProgramId, N::Executable)>,
}

impl<N: LocalNode> Default for Programs<N> {
    fn default() -> Self {
        Self { coming: BTreeMap::new(), here: BTreeSet::new(), going: VecDeque::new() }
    }
}

impl<N: LocalNode> Programs<N> {
    /// How many tasks and actors wait.
    pub(super) fn waiting(&self) -> usize {
        self.coming.values().map(|coming| coming.waiting.len()).sum()
    }
}

impl<N: LocalNode> RemoteNode<N> {
    /// A batch of inputs begins. The node may have forgotten programs since the last one.
    pub fn begin_turn(&mut self) {
        self.programs.here.clear();
    }

    /// Does what the other side wants, now or when its program is here.
    pub(super) fn await_program(&mut self, work: ProgramWork) {
        let is_late = self.has_bug(PlantedBug::LateImports);
        if !is_late {
            self.import_arguments(work.arguments());
        }
        let program = work.program();
        let is_coming = self.programs.coming.contains_key(&program);
        if !is_coming && self.has_program(program) {
            if is_late {
                self.import_arguments(work.arguments());
            }
            return self.carry_out(work);
        }
        let held = self.node.arguments(if is_late { &[] } else { work.arguments() });
        let coming = self.programs.coming.entry(program).or_default();
        coming.waiting.push(Waiting { work, _held: held });
        if !is_coming {
            self.send(Frame::ProgramWanted { program });
        }
    }

    fn has_program(&mut self, program: ProgramId) -> bool {
        let here = &mut self.programs.here;
        here.contains(&program) || (self.node.knows_program(program) && here.insert(program))
    }

    fn carry_out(&mut self, work: ProgramWork) {
        match work {
            ProgramWork::Task { ticket, shape, call } => self.on_task(ticket, &shape, &call),
            ProgramWork::Actor { spec, arguments, incarnation } => {
                self.on_host_actor(*spec, &arguments, incarnation);
            }
        }
    }

    /// The other side does not want a task any more that waits for its program, or to be returned.
    pub(super) fn cancel_waiting(&mut self, cancelled: Ticket) {
        let is_it =
            |work: &ProgramWork| matches!(work, ProgramWork::Task { ticket, .. } if *ticket == cancelled);
        let unqueued = self.unqueued.iter().position(|(_, ticket)| *ticket == cancelled);
        let unqueued = unqueued.and_then(|place| self.unqueued.remove(place)).is_some();
        let waited = self.take_waiting(is_it).is_some() && !self.has_bug(PlantedBug::SilentCancel);
        if unqueued || waited {
            self.refuse_task(cancelled, FailureKind::Cancelled, "it was cancelled".to_owned());
        }
    }

    /// The other side does not want an actor any more that waits for its program; gives which life it would have been.
    pub(super) fn take_waiting_actor(&mut self, actor: ActorId) -> Option<u32> {
        let is_it =
            |work: &ProgramWork| matches!(work, ProgramWork::Actor { spec, .. } if spec.actor == actor);
        match self.take_waiting(is_it)? {
            ProgramWork::Actor { incarnation, .. } => Some(incarnation),
            ProgramWork::Task { .. } => None,
        }
    }

    /// Takes out a task or actor that waits for its program, and releases what its arguments refer to.
    fn take_waiting(&mut self, is_it: impl Fn(&ProgramWork) -> bool) -> Option<ProgramWork> {
        let taken = self.programs.coming.values_mut().find_map(|coming| {
            let place = coming.waiting.iter().position(|waiting| is_it(&waiting.work))?;
            Some(coming.waiting.remove(place))
        });
        taken.map(|waiting| waiting.work)
    }

    pub(super) fn on_program_wanted(&mut self, program: ProgramId) {
        match self.node.find_program(program) {
            Ok((spec, executable)) => {
                self.send(Frame::Program { program, spec: Ok(spec) });
                self.programs.going.extend(executable.map(|executable| (program, executable)));
            }
            Err(problem) => self.send(Frame::Program { program, spec: Err(problem) }),
        }
    }

    /// The link has room: sends a part of an executable, if one is wanted. Tasks and answers do not wait for all of it.
    pub fn send_program_part(&mut self) -> bool {
        let Some((program, executable)) = self.programs.going.front_mut() else { return false };
        let (program, bytes) = (*program, self.node.read_part(executable, PART_BYTES));
        // A file that cannot be read to its end gives a copy that does not match its id, and is refused as such.
        let last = bytes.len() < PART_BYTES;
        if last {
            self.programs.going.pop_front();
        }
        self.send(Frame::ProgramPart { program, bytes, last });
        true
    }

    pub(super) fn on_program(&mut self, program: ProgramId, spec: Result<ProgramSpec, String>) {
        let spec = spec.and_then(|spec| spec.obstacle().map_or(Ok(spec), Err));
        match spec {
            Ok(spec) if spec.has_shared_worker() => match self.node.new_executable() {
                Ok(executable) => {
                    if let Some(coming) = self.programs.coming.get_mut(&program) {
                        (coming.spec, coming.executable) = (Some(spec), Some(executable));
                    }
                }
                Err(problem) => self.refuse_program(program, &problem),
            },
            Ok(spec) => self.node.add_program(program, spec, None),
            Err(problem) => self.refuse_program(program, &problem),
        }
    }

    pub(super) fn on_program_part(&mut self, program: ProgramId, bytes: &[u8], last: bool) {
        let Some(coming) = self.programs.coming.get_mut(&program) else { return };
        let Some(executable) = &mut coming.executable else { return };
        if let Err(problem) = self.node.append(executable, bytes) {
            return self.refuse_program(program, &problem);
        }
        if last && let (Some(spec), Some(executable)) = (coming.spec.take(), coming.executable.take()) {
            self.node.add_program(program, spec, Some(executable));
        }
    }

    /// The node serves a program, or cannot.
    pub fn on_program_added(&mut self, now: Time, program: ProgramId, outcome: Result<(), String>) {
        self.now = now;
        if let Err(problem) = outcome {
            return self.refuse_program(program, &problem);
        }
        let coming = self.programs.coming.remove(&program).unwrap_or_default();
        for Waiting { work, _held } in coming.waiting {
            if self.has_bug(PlantedBug::LateImports) {
                self.import_arguments(work.arguments());
            }
            self.carry_out(work);
        }
    }

    /// The program cannot run here: its tasks and actors fail.
    fn refuse_program(&mut self, program: ProgramId, problem: &str) {
        let text = format!("its program cannot run on the other node: {problem}");
        while let Some(work) = self.take_waiting(|work| work.program() == program) {
            match work {
                ProgramWork::Task { ticket, .. } => {
                    self.refuse_task(ticket, FailureKind::UnknownFunction, text.clone());
                }
                ProgramWork::Actor { spec, incarnation, .. } => {
                    let failure = Failure::new(FailureKind::ActorDied, text.clone());
                    self.send(Frame::ActorEnded { actor: spec.actor, incarnation, failure });
                }
            }
        }
        self.programs.coming.remove(&program);
    }
}
