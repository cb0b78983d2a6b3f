//! The port of a proxy's machine: its runtime, and the programs of this node.

use super::Inbox;
use aktis_logic::machine::remote_node::{Claimed, LocalAnswer, LocalNode, LocalProcesses, SubmitError};
use aktis_protocol::actors::ActorSpec;
use aktis_protocol::control::{SharedValue, ToNode};
use aktis_protocol::hot::Message;
use aktis_protocol::peer::{Inside, PeerArgument, PeerCall, Ticket};
use aktis_protocol::{
    ActorId, EntryRef, FailureKind, NodeId, ObjectId, ProcessSlot, ProgramId, ProgramSpec, Shape, ShapeId,
    TaskId, TaskKey,
};
use aktis_runtime::bridge::{Bridge, inside_of, to_peer};
use aktis_runtime::{ActorHandle, Arguments, Error, Handle};
use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;

/// The programs of this node.
pub(crate) trait Programs: Send + Sync {
    /// Whether the node can run it.
    fn knows(&self, program: ProgramId) -> bool;

    /// What it is, with its executable if it has one.
    fn find(&self, program: ProgramId) -> Result<(ProgramSpec, Option<File>), String>;

    /// Has the node serve it from now on. That may take long: an executable is copied.
    fn add(&self, spec: ProgramSpec, executable: Option<File>) -> Result<(), String>;
}

/// See the module.
pub(crate) struct LocalProcess {
    pub(super) bridge: Bridge,
    pub(super) programs: Arc<dyn Programs>,
    pub(super) inbox: Arc<Inbox>,
}

impl LocalProcesses for LocalProcess {
    fn is_alive(&self, process: ProcessSlot) -> bool {
        self.bridge.is_alive(process)
    }

    fn push(&self, to: ProcessSlot, message: &Message, payload: &[u8]) -> bool {
        self.bridge.push(to, message, &[payload])
    }

    fn tell(&self, message: ToNode) {
        self.bridge.send(message);
    }
}

impl LocalNode for LocalProcess {
    type Object = Handle;
    type Actor = ActorHandle;
    type Arguments = Arguments;
    type Executable = File;

    fn process(&self) -> ProcessSlot {
        self.bridge.runtime().process()
    }

    fn node(&self) -> NodeId {
        NodeId::of_session(self.bridge.runtime().session())
    }

    fn claim(&self, shape: ShapeId, cell: Option<usize>) -> Option<Claimed> {
        self.bridge.claim(shape, cell)
    }

    fn clear_cell(&self, cell: usize) {
        self.bridge.clear_cell(cell);
    }

    fn arguments_in(&self, bytes: &[u8]) -> Result<Vec<PeerArgument>, String> {
        to_peer(bytes)
    }

    fn references_in(&self, bytes: &[u8]) -> Result<Inside, String> {
        inside_of(bytes)
    }

    fn submit(&self, ticket: Ticket, call: &PeerCall, shape: &Arc<Shape>) -> Result<TaskKey, SubmitError> {
        self.bridge.submit(ticket, call, shape).map_err(|error| match error {
            Error::Failed(failure) if failure.kind == FailureKind::Refused => SubmitError::NoQueue,
            error => SubmitError::Failed(error.to_string()),
        })
    }

    fn call(&self, ticket: Ticket, actor: &ActorHandle, group: u16, call: &PeerCall) -> TaskKey {
        self.bridge.call(ticket, actor, group, call)
    }

    fn cancel(&self, key: TaskKey, force: bool, recursive: bool) -> Option<(ProcessSlot, Message)> {
        self.bridge.cancel(key, force, recursive)
    }

    fn withdraw(&self, shape: ShapeId, keys: &[TaskKey]) -> Vec<TaskKey> {
        self.bridge.withdraw(shape, keys)
    }

    fn kill_worker_of(&self, task: TaskId, key: TaskKey) {
        self.bridge.kill_worker_of(task, key);
    }

    fn arguments(&self, items: &[PeerArgument]) -> Arguments {
        self.bridge.arguments(items)
    }

    fn ask_for(&self, arguments: &Arguments) {
        arguments.handles().iter().for_each(|handle| drop(self.bridge.value_of(handle)));
    }

    fn are_known(&self, arguments: &Arguments) -> bool {
        arguments.handles().iter().all(Handle::has_outcome)
    }

    fn hold(&self, object: ObjectId) -> Handle {
        self.bridge.hold(object)
    }

    fn held(&self, object: ObjectId) -> Option<Handle> {
        self.bridge.handle_of(object)
    }

    fn look_up(&self, object: ObjectId) -> Option<Handle> {
        self.bridge.look_up(object).ok().flatten()
    }

    fn import(
        &self,
        object: ObjectId,
        bytes: u64,
        holder: ProcessSlot,
        exported: bool,
    ) -> Result<EntryRef, String> {
        self.bridge.import(object, bytes, holder, exported).map_err(|error| error.to_string())
    }

    fn take_result(&self, object: ObjectId, answer: &LocalAnswer) -> Handle {
        self.bridge.take_result(object, answer)
    }

    fn value_of(&self, object: &Handle) -> Option<SharedValue> {
        self.bridge.value_of(object)
    }

    fn renew(&self, object: &Handle) -> Option<Handle> {
        self.bridge.renew(object)
    }

    fn origin_of(&self, object: ObjectId) -> Option<ProcessSlot> {
        self.bridge.origin_of(object)
    }

    fn contents_of(&self, object: ObjectId) -> Result<Inside, String> {
        self.bridge.contents_of(object).map_err(|error| error.to_string())
    }

    fn size_of(&self, object: &Handle) -> Result<(u64, bool), String> {
        self.bridge.size_of(object).map_err(|error| error.to_string())
    }

    fn host_actor(&self, spec: ActorSpec, arguments: Arguments) -> Result<ActorHandle, String> {
        self.bridge.host_actor(spec, arguments).map_err(|error| error.to_string())
    }

    fn hold_actor(&self, actor: ActorId) -> ActorHandle {
        self.bridge.adopt_actor(actor)
    }

    fn look_at(&self, actor: &ActorHandle) {
        self.bridge.look_at(actor);
    }

    fn on_actor_found(&self, actor: ActorId) {
        self.inbox.on_actor_found(actor);
    }

    fn knows_program(&self, program: ProgramId) -> bool {
        self.programs.knows(program)
    }

    fn find_program(&self, program: ProgramId) -> Result<(ProgramSpec, Option<File>), String> {
        self.programs.find(program)
    }

    fn read_part(&self, executable: &mut File, bytes_max: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(bytes_max);
        // After an error, what was read is less than a part: it counts as the last.
        let _ = executable.take(bytes_max as u64).read_to_end(&mut bytes);
        bytes
    }

    /// A file without a name, which is freed when it is closed.
    fn new_executable(&self) -> Result<File, String> {
        let file = rustix::fs::memfd_create("aktis-program", rustix::fs::MemfdFlags::CLOEXEC);
        file.map(File::from).map_err(|error| error.to_string())
    }

    fn append(&self, executable: &mut File, bytes: &[u8]) -> Result<(), String> {
        executable.write_all(bytes).map_err(|error| error.to_string())
    }

    /// An executable is copied on a thread of its own: the link's thread would be silent for too long.
    fn add_program(&self, program: ProgramId, spec: ProgramSpec, executable: Option<File>) {
        let Some(executable) = executable else {
            return self.inbox.on_program_added(program, self.programs.add(spec, None));
        };
        let (programs, inbox) = (self.programs.clone(), self.inbox.clone());
        let run = move || inbox.on_program_added(program, programs.add(spec, Some(executable)));
        let spawned = std::thread::Builder::new().name("aktis-program".into()).spawn(run);
        if let Err(error) = spawned {
            let problem = format!("a thread could not be started: {error}");
            self.inbox.on_program_added(program, Err(problem));
        }
    }
}
