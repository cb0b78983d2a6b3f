//! Programs that travel: what the other node wants run here, and this node lacks.
//!
//! What is of a program that is not here yet waits until it is.

use super::Peer;
use aktis_protocol::actors::ActorSpec;
use aktis_protocol::peer::{Frame, PeerArgument, PeerCall, Ticket};
use aktis_protocol::{ActorId, Failure, FailureKind, ProgramId, ProgramSpec, Shape};
use aktis_runtime::Arguments;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::sync::Arc;

/// Bytes of one part of an executable.
const PART_BYTES: usize = 1 << 20;

/// The programs of this node.
pub(crate) trait Programs: Send + Sync {
    /// Whether the node can run it.
    fn knows(&self, program: ProgramId) -> bool;

    /// What it is, with its executable if it has one.
    fn find(&self, program: ProgramId) -> Result<(ProgramSpec, Option<File>), String>;

    /// Has the node serve it from now on. That may take long: an executable is copied.
    fn add(&self, spec: ProgramSpec, executable: Option<File>) -> Result<(), String>;
}

/// A program on its way here.
#[derive(Default)]
struct Coming {
    spec: Option<ProgramSpec>,
    /// Its executable, as far as it is there.
    file: Option<File>,
    /// What is of it, in order.
    waiting: Vec<Waiting>,
}

/// What waits for its program.
struct Waiting {
    wanted: PutOff,
    /// Holds what its arguments refer to. The other side says what becomes of that without waiting for the program, and
    /// whoever gets it later has to know.
    _held: Arguments,
}

/// What the other side wants done, of a program that may have to come first.
pub(super) enum PutOff {
    /// A task; its shape as it was meant when it was sent.
    Task { ticket: Ticket, shape: Arc<Shape>, call: PeerCall },
    /// An actor to be hosted.
    Actor { spec: Box<ActorSpec>, arguments: Vec<PeerArgument>, incarnation: u32 },
}

impl PutOff {
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
#[derive(Default)]
pub(super) struct ProgramsAcross {
    coming: HashMap<ProgramId, Coming>,
    /// Programs that were here when some frames of this turn asked.
    here: HashSet<ProgramId>,
    /// Executables that the other node wants, as far as they are not sent.
    going: VecDeque<(ProgramId, File)>,
}

impl ProgramsAcross {
    /// The node may forget programs between two turns.
    pub(super) fn begin_turn(&mut self) {
        self.here.clear();
    }
}

impl Peer {
    /// Does what the other side wants, or puts it off if its program is not here yet.
    pub(super) fn put_off(&mut self, wanted: PutOff) {
        self.note_arguments(wanted.arguments());
        let program = wanted.program();
        let is_coming = self.programs_across.coming.contains_key(&program);
        if !is_coming && self.has_program(program) {
            return self.carry_out(wanted);
        }
        let held = self.bridge.arguments(wanted.arguments());
        let coming = self.programs_across.coming.entry(program).or_default();
        coming.waiting.push(Waiting { wanted, _held: held });
        if !is_coming {
            self.wire.send(&Frame::ProgramWanted { program });
        }
    }

    fn has_program(&mut self, program: ProgramId) -> bool {
        let here = &mut self.programs_across.here;
        here.contains(&program) || (self.programs.knows(program) && here.insert(program))
    }

    fn carry_out(&mut self, wanted: PutOff) {
        match wanted {
            PutOff::Task { ticket, shape, call } => self.on_task(ticket, &shape, &call),
            PutOff::Actor { spec, arguments, incarnation } => {
                self.on_host_actor(*spec, &arguments, incarnation);
            }
        }
    }

    /// A task that waits for its program, or to go back, is not wanted any more.
    pub(super) fn cancel_put_off(&mut self, cancelled: Ticket) {
        let is_it = |wanted: &PutOff| matches!(wanted, PutOff::Task { ticket, .. } if *ticket == cancelled);
        let unqueued = self.full.iter().position(|(_, ticket)| *ticket == cancelled);
        let unqueued = unqueued.and_then(|place| self.full.remove(place)).is_some();
        if unqueued || self.take_put_off(is_it).is_some() {
            self.refuse_task(cancelled, FailureKind::Cancelled, "it was cancelled".to_owned());
        }
    }

    /// An actor that waits for its program is not wanted any more; gives which life it would have been.
    pub(super) fn take_put_off_actor(&mut self, actor: ActorId) -> Option<u32> {
        let is_it = |wanted: &PutOff| matches!(wanted, PutOff::Actor { spec, .. } if spec.actor == actor);
        match self.take_put_off(is_it)? {
            PutOff::Actor { incarnation, .. } => Some(incarnation),
            PutOff::Task { .. } => None,
        }
    }

    /// Takes out what waits for its program, and releases what its arguments refer to.
    fn take_put_off(&mut self, is_it: impl Fn(&PutOff) -> bool) -> Option<PutOff> {
        let taken = self.programs_across.coming.values_mut().find_map(|coming| {
            let place = coming.waiting.iter().position(|waiting| is_it(&waiting.wanted))?;
            Some(coming.waiting.remove(place))
        });
        taken.map(|waiting| waiting.wanted)
    }

    pub(super) fn on_program_wanted(&mut self, program: ProgramId) {
        match self.programs.find(program) {
            Ok((spec, executable)) => {
                self.wire.send(&Frame::Program { program, spec: Ok(spec) });
                self.programs_across.going.extend(executable.map(|executable| (program, executable)));
            }
            Err(problem) => self.wire.send(&Frame::Program { program, spec: Err(problem) }),
        }
    }

    /// Sends a part of an executable, if one is wanted: tasks and answers are not kept waiting for all of it.
    pub(super) fn send_program_part(&mut self) -> bool {
        let Some((program, executable)) = self.programs_across.going.front_mut() else { return false };
        let (program, mut bytes) = (*program, Vec::with_capacity(PART_BYTES));
        let read = executable.take(PART_BYTES as u64).read_to_end(&mut bytes);
        // A file that cannot be read to its end gives a copy that is not what its name says, and is refused as such.
        let last = read.map_or(true, |length| length < PART_BYTES);
        if last {
            self.programs_across.going.pop_front();
        }
        self.wire.send(&Frame::ProgramPart { program, bytes, last });
        true
    }

    pub(super) fn on_program(&mut self, program: ProgramId, spec: Result<ProgramSpec, String>) {
        let spec = spec.and_then(|spec| spec.obstacle().map_or(Ok(spec), Err));
        match spec {
            Ok(spec) if spec.has_shared_worker() => match tempfile() {
                Ok(file) => {
                    if let Some(coming) = self.programs_across.coming.get_mut(&program) {
                        (coming.spec, coming.file) = (Some(spec), Some(file));
                    }
                }
                Err(error) => self.refuse_program(program, &error.to_string()),
            },
            Ok(spec) => {
                let added = self.programs.add(spec, None);
                self.on_program_added(program, added);
            }
            Err(problem) => self.refuse_program(program, &problem),
        }
    }

    pub(super) fn on_program_part(&mut self, program: ProgramId, bytes: &[u8], last: bool) {
        let Some(coming) = self.programs_across.coming.get_mut(&program) else { return };
        let Some(file) = &mut coming.file else { return };
        if let Err(error) = file.write_all(bytes).and_then(|()| file.stream_position()) {
            return self.refuse_program(program, &error.to_string());
        }
        if last && let (Some(spec), Some(file)) = (coming.spec.take(), coming.file.take()) {
            self.add_program(program, spec, file);
        }
    }

    /// All of an executable is here. It is copied on a thread of its own: the link's would be silent for too long.
    fn add_program(&mut self, program: ProgramId, spec: ProgramSpec, executable: File) {
        let (programs, doorway) = (self.programs.clone(), self.doorway.clone());
        let run = move || doorway.on_added(program, programs.add(spec, Some(executable)));
        let spawned = std::thread::Builder::new().name("aktis-program".into()).spawn(run);
        if let Err(error) = spawned {
            self.refuse_program(program, &format!("a thread could not be started: {error}"));
        }
    }

    /// What is of the program can run now, unless it could not be added.
    pub(super) fn on_program_added(&mut self, program: ProgramId, outcome: Result<(), String>) {
        if let Err(problem) = outcome {
            return self.refuse_program(program, &problem);
        }
        let coming = self.programs_across.coming.remove(&program).unwrap_or_default();
        for Waiting { wanted, _held } in coming.waiting {
            self.carry_out(wanted);
        }
    }

    /// The program cannot run here: what is of it fails.
    fn refuse_program(&mut self, program: ProgramId, problem: &str) {
        let text = format!("its program cannot run on the other node: {problem}");
        while let Some(wanted) = self.take_put_off(|wanted| wanted.program() == program) {
            match wanted {
                PutOff::Task { ticket, .. } => {
                    self.refuse_task(ticket, FailureKind::UnknownFunction, text.clone());
                }
                PutOff::Actor { spec, incarnation, .. } => {
                    let failure = Failure::new(FailureKind::ActorDied, text.clone());
                    self.wire.send(&Frame::ActorEnded { actor: spec.actor, incarnation, failure });
                }
            }
        }
        self.programs_across.coming.remove(&program);
    }
}

/// A file without a name, which goes when it is closed.
fn tempfile() -> std::io::Result<File> {
    let name = rustix::fs::memfd_create("aktis-program", rustix::fs::MemfdFlags::CLOEXEC)?;
    Ok(File::from(name))
}
