//! Programs that travel: what the other node wants run here, and this node lacks.
//!
//! What is of a program that is not here yet waits until it is.

use super::Peer;
use aktis_protocol::peer::{Frame, PeerValue};
use aktis_protocol::{Failure, FailureKind, ProgramId, ProgramSpec};
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, Write};

/// Bytes of one part of an executable.
const PART_BYTES: usize = 1 << 20;

/// The programs of this node.
pub(crate) trait Programs: Send + Sync {
    /// Whether the node can run it.
    fn knows(&self, program: ProgramId) -> bool;

    /// What it is, with its executable if it has one.
    fn find(&self, program: ProgramId) -> Result<(ProgramSpec, Option<File>), String>;

    /// Has the node serve it from now on.
    fn add(&self, spec: ProgramSpec, executable: Option<File>) -> Result<(), String>;
}

/// A program on its way here.
#[derive(Default)]
struct Coming {
    spec: Option<ProgramSpec>,
    /// Its executable, as far as it is there.
    file: Option<File>,
    /// What is of it, in order.
    waiting: Vec<Frame>,
}

/// See the module.
#[derive(Default)]
pub(super) struct ProgramsAcross(HashMap<ProgramId, Coming>);

impl Peer {
    /// Puts a frame off that is of a program which is not here yet; gives it back if it is here.
    pub(super) fn put_off(&mut self, program: ProgramId, frame: Frame) -> Option<Frame> {
        if let Some(coming) = self.programs_across.0.get_mut(&program) {
            coming.waiting.push(frame);
            return None;
        }
        if self.programs.knows(program) {
            return Some(frame);
        }
        self.programs_across.0.entry(program).or_default().waiting.push(frame);
        self.wire.send(&Frame::ProgramWanted { program });
        None
    }

    pub(super) fn on_program_wanted(&mut self, program: ProgramId) {
        match self.programs.find(program) {
            Ok((spec, executable)) => {
                self.wire.send(&Frame::Program { program, spec: Ok(spec) });
                if let Some(executable) = executable {
                    self.send_executable(program, executable);
                }
            }
            Err(problem) => self.wire.send(&Frame::Program { program, spec: Err(problem) }),
        }
    }

    fn send_executable(&self, program: ProgramId, mut executable: File) {
        loop {
            let mut bytes = Vec::with_capacity(PART_BYTES);
            let read = (&mut executable).take(PART_BYTES as u64).read_to_end(&mut bytes);
            // A file that cannot be read to its end gives a copy that is not what its name says, and is refused as such.
            let last = read.map_or(true, |length| length < PART_BYTES);
            self.wire.send(&Frame::ProgramPart { program, bytes, last });
            if last {
                return;
            }
        }
    }

    pub(super) fn on_program(&mut self, program: ProgramId, spec: Result<ProgramSpec, String>) {
        let spec = spec.and_then(|spec| spec.obstacle().map_or(Ok(spec), Err));
        match spec {
            Ok(spec) if spec.has_shared_worker() => match tempfile() {
                Ok(file) => {
                    if let Some(coming) = self.programs_across.0.get_mut(&program) {
                        (coming.spec, coming.file) = (Some(spec), Some(file));
                    }
                }
                Err(error) => self.refuse_program(program, &error.to_string()),
            },
            Ok(spec) => self.add_program(program, spec, None),
            Err(problem) => self.refuse_program(program, &problem),
        }
    }

    pub(super) fn on_program_part(&mut self, program: ProgramId, bytes: &[u8], last: bool) {
        let Some(coming) = self.programs_across.0.get_mut(&program) else { return };
        let Some(file) = &mut coming.file else { return };
        if let Err(error) = file.write_all(bytes).and_then(|()| file.stream_position()) {
            return self.refuse_program(program, &error.to_string());
        }
        if last && let (Some(spec), Some(file)) = (coming.spec.take(), coming.file.take()) {
            self.add_program(program, spec, Some(file));
        }
    }

    fn add_program(&mut self, program: ProgramId, spec: ProgramSpec, executable: Option<File>) {
        if let Err(problem) = self.programs.add(spec, executable) {
            return self.refuse_program(program, &problem);
        }
        let coming = self.programs_across.0.remove(&program).unwrap_or_default();
        coming.waiting.into_iter().for_each(|frame| self.on_frame(frame));
    }

    /// The program cannot run here: what is of it fails.
    fn refuse_program(&mut self, program: ProgramId, problem: &str) {
        let coming = self.programs_across.0.remove(&program).unwrap_or_default();
        let text = format!("its program cannot run on the other node: {problem}");
        for frame in coming.waiting {
            match frame {
                Frame::Task { ticket, .. } => {
                    let value = PeerValue::Failed(Failure::new(FailureKind::UnknownFunction, text.clone()));
                    self.wire.send(&Frame::Returned { ticket, index: 0, value });
                }
                Frame::HostActor { spec, incarnation, .. } => {
                    let failure = Failure::new(FailureKind::ActorDied, text.clone());
                    self.wire.send(&Frame::ActorEnded { actor: spec.actor, incarnation, failure });
                }
                _ => {}
            }
        }
    }
}

/// A file without a name, which goes when it is closed.
fn tempfile() -> std::io::Result<File> {
    let name = rustix::fs::memfd_create("aktis-program", rustix::fs::MemfdFlags::CLOEXEC)?;
    Ok(File::from(name))
}
