//! What an actor with checkpoints keeps on disk: its last checkpoint, and a log of the calls that came after it.
//!
//! A call is logged when it has run and before it is answered. After a death the next life of the actor restores the
//! checkpoint and runs the logged calls again. Callers send the calls again that were not answered: those that had run get
//! the answer from the log, the others run now.
//!
//! Invariants:
//! 1. An answer leaves the process only after the log or a checkpoint has its call.
//! 2. A logged call can be run again: its arguments are complete in the log, and it has submitted nothing. A checkpoint takes
//!    the place of the record of any other call.

use crate::codec::{ArgumentReader, Encoded, ShortBytes, are_self_contained};
use crate::registry::{self, ActorState, Call, Function, FunctionBody, Remembered};
use crate::runtime::{IdMap, Inner};
use crate::worker::context::TaskContext;
use crate::worker::mailbox::{Item, Mailbox};
use crate::worker::reply::Answer;
use crate::worker::run::{self, CallContext, Outcome, catch};
use crate::worker::runner::RunnerState;
use aktis_protocol::actor_log::{
    Checkpoint, KEPT_ANSWERS_MAX, KEPT_BYTES_MAX, KeptAnswer, KeptCall, LOG_BYTES_MAX, LogSpec, LoggedCall,
    RECORD_BYTES_MAX, STATE_BYTES_MAX, read_log,
};
use aktis_protocol::control::{decode, encode};
use aktis_protocol::hot::MessageKind;
use aktis_protocol::{ActorId, Failure, FailureKind, FunctionId, TaskId, TaskKey};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long answers are kept for callers that ask again. Callers do so as soon as they hear of a restart.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// How long a life of an actor waits for the end of the life before, which may run on at a node that is cut off.
const LOCK_WAIT: Duration = Duration::from_secs(60);
/// The pause between two attempts to take the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// The files of one actor.
pub(crate) struct Memory {
    actor: ActorId,
    spec: LogSpec,
    folder: PathBuf,
    remembered: Option<&'static Remembered>,
    /// Locked as long as this life of the actor may write.
    lock: Option<File>,
    /// Open while the actor takes calls.
    log: Option<File>,
    log_bytes: u64,
    /// The number of the next record.
    next: u64,
    calls_since_checkpoint: u32,
    last_checkpoint: Instant,
    /// Calls to run again before the actor takes others.
    to_replay: Vec<LoggedCall>,
    /// Answers that callers may ask for again.
    answers: IdMap<TaskId, KeptAnswer>,
    /// The calls of `answers`, oldest first, and since when each is kept.
    answered: VecDeque<(TaskId, Instant)>,
    answer_bytes: usize,
}

impl Memory {
    pub(crate) fn new(actor: ActorId, spec: LogSpec, constructor: FunctionId) -> Self {
        Self {
            actor,
            folder: Path::new(&spec.directory).join(actor.to_string()),
            spec,
            remembered: registry::remembered(constructor),
            lock: None,
            log: None,
            log_bytes: 0,
            next: 0,
            calls_since_checkpoint: 0,
            last_checkpoint: Instant::now(),
            to_replay: Vec::new(),
            answers: IdMap::default(),
            answered: VecDeque::new(),
            answer_bytes: 0,
        }
    }

    /// Restores the actor, or constructs it for the first time.
    fn begin(
        &mut self,
        call: &mut Call,
        construct: fn(&mut Call) -> Result<ActorState, Failure>,
    ) -> Result<ActorState, Failure> {
        let Some(remembered) = self.remembered else {
            let hint =
                "in Rust, its attribute says `checkpoint`, as in `#[actor(restarts = 3, checkpoint = 100)]`";
            return Err(failed("actors of this type cannot have checkpoints", hint));
        };
        self.lock()?;
        let path = self.folder.join("checkpoint");
        let file = match std::fs::read(&path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.spec.started => None,
            Err(error) => return Err(self.unreadable(&path, &error)),
        };
        let Some(file) = file else {
            let state = construct(call)?;
            self.open_log().map_err(|error| self.unwritten(&error))?;
            self.checkpoint(&state)?;
            return Ok(state);
        };
        let checkpoint =
            Checkpoint::from_file(self.actor, &file).map_err(|fault| self.unreadable(&path, &fault))?;
        let path = self.folder.join("log");
        let log = std::fs::read(&path).map_err(|error| self.unreadable(&path, &error))?;
        let (calls, whole) =
            read_log(checkpoint.position, &log).map_err(|fault| self.unreadable(&path, &fault))?;
        let state = (remembered.restore)(call, &checkpoint.state)
            .map_err(|cause| described("its checkpoint could not be restored", cause))?;
        self.open_log().map_err(|error| self.unwritten(&error))?;
        self.cut_log(whole as u64).map_err(|error| self.unwritten(&error))?;
        self.next = checkpoint.position + calls.len() as u64;
        self.calls_since_checkpoint = calls.len() as u32;
        for KeptCall { task, answer } in checkpoint.kept {
            self.keep(task, answer);
        }
        for call in &calls {
            self.keep(call.task, call.answer.clone());
        }
        self.to_replay = calls;
        Ok(state)
    }

    /// Waits until no other life of the actor can write. Locks of `fcntl` are not inherited by processes that an actor forks.
    fn lock(&mut self) -> Result<(), Failure> {
        if self.spec.started && !self.folder.exists() {
            return Err(self.lost());
        }
        let path = self.folder.join("lock");
        let lock = std::fs::create_dir_all(&self.folder)
            .and_then(|()| if self.spec.synced { sync_directory(&self.spec.directory) } else { Ok(()) })
            .and_then(|()| File::options().create(true).truncate(false).write(true).open(&path))
            .map_err(|error| self.unwritten(&error))?;
        let deadline = Instant::now() + LOCK_WAIT;
        loop {
            match fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::AGAIN | Errno::ACCESS) if Instant::now() < deadline => {
                    std::thread::sleep(LOCK_PAUSE);
                }
                Err(Errno::AGAIN | Errno::ACCESS) => return Err(self.held(&path)),
                Err(error) => return Err(self.unwritten(&error)),
            }
        }
        self.lock = Some(lock);
        Ok(())
    }

    /// This life writes no more.
    pub(super) fn close(&mut self) {
        (self.log, self.lock) = (None, None);
    }

    fn open_log(&mut self) -> io::Result<()> {
        let log = File::options().create(true).append(true).open(self.folder.join("log"))?;
        self.log_bytes = log.metadata()?.len();
        self.log = Some(log);
        Ok(())
    }

    /// Drops what is in the log after this many bytes.
    fn cut_log(&mut self, bytes: u64) -> io::Result<()> {
        self.log_bytes = bytes;
        self.log.as_ref().map_or(Ok(()), |log| log.set_len(bytes))
    }

    fn keep(&mut self, task: TaskId, answer: KeptAnswer) {
        if answer == KeptAnswer::RunAgain {
            return;
        }
        self.answer_bytes += answer.bytes();
        if let Some(before) = self.answers.insert(task, answer) {
            self.answer_bytes -= before.bytes();
            return;
        }
        self.answered.push_back((task, Instant::now()));
        while self.answered.len() > KEPT_ANSWERS_MAX || self.answer_bytes > KEPT_BYTES_MAX {
            self.drop_oldest_answer();
        }
    }

    fn drop_oldest_answer(&mut self) {
        let oldest = self.answered.pop_front().and_then(|(task, _)| self.answers.remove(&task));
        self.answer_bytes -= oldest.map_or(0, |answer| answer.bytes());
    }

    /// The answer of the last call is in the memory of its caller, which lives on this node.
    fn drop_delivered(&mut self, task: TaskId) {
        if self.answered.back().is_some_and(|(last, _)| *last == task) {
            self.answered.pop_back();
            let answer = self.answers.remove(&task);
            self.answer_bytes -= answer.map_or(0, |answer| answer.bytes());
        }
    }

    /// Writes a checkpoint, which takes the place of the log.
    fn checkpoint(&mut self, state: &ActorState) -> Result<(), Failure> {
        let Some(remembered) = self.remembered else { return Ok(()) };
        let state =
            (remembered.save)(state).map_err(|cause| described("its state could not be saved", cause))?;
        if state.len() > STATE_BYTES_MAX {
            let text = format!("its state takes {} bytes, more than {STATE_BYTES_MAX}", state.len());
            return Err(failed(
                &text,
                "put large values into the object store, or leave out what can be computed",
            ));
        }
        while self.answered.front().is_some_and(|(_, since)| since.elapsed() > KEPT_FOR) {
            self.drop_oldest_answer();
        }
        let kept = self.answered.iter().filter_map(|(task, _)| {
            self.answers.get(task).map(|answer| KeptCall { task: *task, answer: answer.clone() })
        });
        let file = Checkpoint { position: self.next, kept: kept.collect(), state }.to_file(self.actor);
        self.replace_checkpoint(&file)
            .and_then(|()| self.cut_log(0))
            .map_err(|error| self.unwritten(&error))?;
        self.calls_since_checkpoint = 0;
        self.last_checkpoint = Instant::now();
        Ok(())
    }

    fn replace_checkpoint(&self, bytes: &[u8]) -> io::Result<()> {
        let (new, path) = (self.folder.join("checkpoint.new"), self.folder.join("checkpoint"));
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        if self.spec.synced {
            file.sync_all()?;
        }
        std::fs::rename(&new, &path)?;
        match self.spec.synced {
            true => sync_directory(&self.folder),
            false => Ok(()),
        }
    }

    /// Appends a record; false if the log has no room for it.
    fn append(&mut self, call: &LoggedCall) -> Result<bool, Failure> {
        let record = call.to_record(self.next);
        if record.len() > RECORD_BYTES_MAX || self.log_bytes + record.len() as u64 > LOG_BYTES_MAX {
            return Ok(false);
        }
        let Some(log) = &mut self.log else { return Ok(false) };
        let written = log.write_all(&record).and_then(|()| match self.spec.synced {
            true => log.sync_data(),
            false => Ok(()),
        });
        if let Err(error) = written {
            // A part of it may be there.
            let _ = self.cut_log(self.log_bytes);
            return Err(self.unwritten(&error));
        }
        self.log_bytes += record.len() as u64;
        self.next += 1;
        self.calls_since_checkpoint += 1;
        Ok(true)
    }

    fn is_due(&self) -> bool {
        let (calls, milliseconds) = (self.spec.every_calls, self.spec.every_milliseconds);
        (calls > 0 && self.calls_since_checkpoint >= calls)
            || (milliseconds > 0 && self.last_checkpoint.elapsed() >= Duration::from_millis(milliseconds))
    }

    fn lost(&self) -> Failure {
        let text = format!("its checkpoint is not on this node: {} does not exist", self.folder.display());
        failed(
            &text,
            "checkpoints are lost with their node, unless `checkpoint_directory` names a directory that all nodes share",
        )
    }

    fn held(&self, path: &Path) -> Failure {
        let seconds = LOCK_WAIT.as_secs();
        let text = format!(
            "another process has run the actor for {seconds} s after its node was lost: it holds {}",
            path.display()
        );
        failed(&text, "end that process: two of them must not count the same calls")
    }

    fn unreadable(&self, path: &Path, cause: &dyn Display) -> Failure {
        let text = format!("its checkpoint cannot be read: {}: {cause}", path.display());
        failed(
            &text,
            "the state of the actor is lost, and the actor must be created again; no other program may use its directory",
        )
    }

    fn unwritten(&self, cause: &dyn Display) -> Failure {
        let text = format!("its calls cannot be logged in {}: {cause}", self.folder.display());
        failed(&text, "free space there, or name another `checkpoint_directory`")
    }
}

/// Has the disk know which files a directory has.
fn sync_directory(directory: impl AsRef<Path>) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn failed(text: &str, hint: &str) -> Failure {
    Failure::new(FailureKind::ActorDied, format!("{text}\nhint: {hint}"))
}

/// The failure of user code that saves or restores an actor.
fn described(what: &str, cause: Failure) -> Failure {
    let hint =
        "`__checkpoint__` and `__restore__` say what of an actor is saved; in Rust, serde's attributes do";
    let told = cause.message.trim_end();
    Failure { cause: cause.cause, ..failed(&format!("{what}: {told}"), hint) }
}

/// What the log says about an outcome, and whether that is all of it.
fn kept_answer(function: &Function, task: TaskId, outcome: &Outcome) -> KeptAnswer {
    let failed = |failure: &Failure| match failure.retriable {
        true => KeptAnswer::RunAgain,
        false => KeptAnswer::Failed(encode(&failure.clone().or_at(function.name, task))),
    };
    let values = |values: &[&Encoded]| {
        let too_large = values.iter().map(|value| value.len()).sum::<usize>() > RECORD_BYTES_MAX / 2;
        match too_large || values.iter().any(|value| value.contains()) {
            true => KeptAnswer::NotKept,
            false => KeptAnswer::Values(values.iter().map(|value| value.to_vec()).collect()),
        }
    };
    match outcome {
        Outcome::One(Ok(value)) => values(&[value]),
        Outcome::Several(Ok(several)) => values(&several.iter().collect::<Vec<_>>()),
        Outcome::One(Err(failure)) | Outcome::Several(Err(failure)) | Outcome::Stream(Err(failure)) => {
            failed(failure)
        }
        Outcome::Stream(Ok(_)) => KeptAnswer::NotKept,
    }
}

impl Mailbox {
    /// Whether the actor logs calls of this function.
    pub(super) fn logs(&self, function: &Function) -> bool {
        self.memory.is_some() && !matches!(function.body, FunctionBody::Method { read_only: true, .. })
    }

    /// Constructs the actor, or restores it.
    pub(super) fn construct_or_restore(
        &self,
        call: &mut Call,
        construct: fn(&mut Call) -> Result<ActorState, Failure>,
    ) -> Result<ActorState, Failure> {
        match &self.memory {
            Some(memory) => memory.lock().begin(call, construct),
            None => construct(call),
        }
    }

    /// Answers a call that the actor has run before; false if it has not.
    pub(super) fn answer_again(&self, runtime: &Arc<Inner>, item: &Item) -> bool {
        let kept = self.memory.as_ref().and_then(|memory| memory.lock().answers.get(&item.task).cloned());
        let Some(kept) = kept else { return false };
        let (first, send) = (item.task.returns(0), MessageKind::Returned);
        match kept {
            KeptAnswer::RunAgain => return false,
            KeptAnswer::Values(values) => {
                for (index, value) in (0..).zip(values) {
                    let value = Ok(Encoded::from_bytes(value));
                    let answer = Answer::new(runtime, item.from, item.task.returns(index), value);
                    answer.send(runtime, item.from, send, item.key, index);
                }
            }
            KeptAnswer::Failed(bytes) => {
                let failure = decode(&bytes)
                    .unwrap_or_else(|_| Failure::new(FailureKind::Codec, "its failure cannot be read"));
                Answer::failed(first, failure).send(runtime, item.from, send, item.key, 0);
            }
            KeptAnswer::NotKept => {
                let text = "the call ran before its actor was restarted, and its answer is lost: it was too large to \
                            be logged, or held references\nhint: ask the actor for what the call has done";
                let failure = Failure::new(FailureKind::ActorCrashed(None), text).at("", item.task);
                Answer::failed(first, failure).send(runtime, item.from, send, item.key, 0);
            }
        }
        true
    }

    /// A call has run, and its context is still that of the thread: logs it, or takes a checkpoint. If neither can be done,
    /// the failure is the answer and the actor ends.
    pub(super) fn remember(
        &self,
        runtime: &Inner,
        item: &Item,
        function: &'static Function,
        arguments: &ShortBytes,
        state: &ActorState,
        outcome: &mut Outcome,
    ) -> Option<Failure> {
        // A stream has not run yet.
        let memory = self.memory.as_ref().filter(|_| !matches!(outcome, Outcome::Stream(Ok(_))))?;
        let mut memory = memory.lock();
        let answer = kept_answer(function, item.task, outcome);
        let replays = are_self_contained(arguments.as_slice())
            && answer != KeptAnswer::NotKept
            && !TaskContext::needs_checkpoint();
        let mut logged = Ok(false);
        if replays {
            let (task, group, arguments) = (item.task, item.group, arguments.as_slice().to_vec());
            let call = LoggedCall { task, function: function.id, group, arguments, answer: answer.clone() };
            logged = memory.append(&call);
        }
        // The answer may be lost on its way to another node, also after the next checkpoint.
        if !matches!(logged, Ok(true)) || runtime.control.is_elsewhere(item.from) {
            memory.keep(item.task, answer);
        }
        let outcome_of_save = logged.and_then(|logged| match logged {
            true => Ok(()),
            false => catch(|| memory.checkpoint(state)),
        });
        let failure = outcome_of_save.err()?;
        *outcome = Outcome::One(Err(failure.clone()));
        Some(failure)
    }

    /// Takes a checkpoint if it is time for one. The call before has been answered.
    pub(super) fn checkpoint_if_due(
        &self,
        runtime: &Inner,
        item: &Item,
        state: &ActorState,
        was_stream: bool,
    ) -> Option<Failure> {
        let mut memory = self.memory.as_ref()?.lock();
        if !runtime.control.is_elsewhere(item.from) {
            memory.drop_delivered(item.task);
        }
        match was_stream || memory.is_due() {
            true => catch(|| memory.checkpoint(state)).err(),
            false => None,
        }
    }

    /// Runs the logged calls of the actor's earlier lives again.
    pub(super) fn replay(
        &self,
        runtime: &Arc<Inner>,
        runner: &RunnerState,
        state: &ActorState,
    ) -> Result<(), Failure> {
        let Some(memory) = &self.memory else { return Ok(()) };
        let (calls, remembered) = {
            let mut memory = memory.lock();
            (std::mem::take(&mut memory.to_replay), memory.remembered)
        };
        for call in calls {
            let function = registry::find(call.function).ok_or_else(|| run::unknown(call.function))?;
            let outcome = self.run_again(runtime, runner, state, &call, function);
            let same = |a: &[u8], b: &[u8]| remembered.is_some_and(|remembered| (remembered.same)(a, b));
            if !is_same(&call.answer, &kept_answer(function, call.task, &outcome), same) {
                let text = format!("the replay of call {} of {} diverged", call.task, function.name);
                let hint = "a method of an actor with checkpoints must give the same answer for the same state and \
                            arguments; call checkpoint() in methods that use the time, random numbers or files";
                return Err(failed(&format!("{text}: it gave another answer than before"), hint));
            }
        }
        Ok(())
    }

    fn run_again(
        &self,
        runtime: &Arc<Inner>,
        runner: &RunnerState,
        state: &ActorState,
        logged: &LoggedCall,
        function: &'static Function,
    ) -> Outcome {
        let context = CallContext {
            runtime,
            task: logged.task,
            actor: self.actor,
            attempt: self.incarnation.unwrap_or(0),
            gpus: self.gpus.clone(),
            from: runtime.me,
            key: TaskKey { index: u32::MAX, generation: u32::MAX },
        };
        let before = context.enter(function.name, Arc::default());
        let reader = ArgumentReader::new(logged.arguments.as_slice(), &runner.runtime);
        let mut call = Call::new(reader).in_group(logged.group);
        let outcome = match function.body {
            FunctionBody::Method { run, .. } => Outcome::One(catch(|| run(&mut call, state))),
            FunctionBody::SeveralMethod(run) => Outcome::Several(catch(|| run(&mut call, state))),
            _ => Outcome::One(Err(Failure::new(FailureKind::UnknownFunction, "it cannot be run again"))),
        };
        drop(call);
        run::leave(runtime, before);
        outcome
    }
}

/// Whether a replay gave what the call had answered. Of failures only that there was one is compared.
fn is_same(logged: &KeptAnswer, replayed: &KeptAnswer, same: impl Fn(&[u8], &[u8]) -> bool) -> bool {
    match (logged, replayed) {
        (KeptAnswer::Values(logged), KeptAnswer::Values(replayed)) => {
            logged.len() == replayed.len() && logged.iter().zip(replayed).all(|(a, b)| a == b || same(a, b))
        }
        (KeptAnswer::Failed(_) | KeptAnswer::RunAgain, KeptAnswer::Failed(_) | KeptAnswer::RunAgain) => true,
        _ => false,
    }
}
