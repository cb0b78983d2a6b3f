//! Actors as their callers see them: creating, calling, ending, and passing handles around.
//!
//! A *light* actor is known to its creator and its host alone: creating and ending it are messages in the
//! same channel as its calls. It becomes *managed*, known to the node, when it has a name, a resource,
//! restarts or a process of its own, or when a handle of it travels inside a value.

mod places;

use crate::codec::Arguments;
use crate::entry::{Entry, Later};
use crate::error::Error;
use crate::handle::{ActorHandle, Handle, Stream};
use crate::options::{ActorOptions, CallOptions};
use crate::payload::{Payload, Returns, Verb};
use crate::registry::Function;
use crate::runtime::Inner;
use crate::submit::{ActorSlot, Shell};
use aktis_logic::machine::remote_node::LocalEvent;
use aktis_logic::machine::submitter::{ActorIndex, Place, Record, Route, Stage, Submitter};
use aktis_protocol::actors::{ActorPlace, ActorSpec, FoundActor};
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::hot::{CallHeader, Message, MessageKind};
use aktis_protocol::{
    ActorId, DeathCause, Failure, FailureKind, FunctionId, ProcessSlot, Strategy, TaskId, TaskKey, limits,
};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use zerocopy::IntoBytes;

/// How often it is looked whether the order to create an actor could be sent.
const CREATION_AGAIN: Duration = Duration::from_micros(200);

/// An actor in this process; it lives while a handle does.
pub(crate) struct ActorEntry {
    pub(crate) id: ActorId,
    pub(crate) runtime: Arc<Inner>,
    index: ActorIndex,
    call_retries: u32,
    managed: AtomicBool,
    /// The order to create it, if this process gives that.
    creation: Option<TaskKey>,
    /// What the constructor was given, kept alive until the actor is dead: a restart needs it again.
    kept: Mutex<Option<Box<Arguments>>>,
}

impl Drop for ActorEntry {
    fn drop(&mut self) {
        if !self.runtime.fork.is_forked() && !self.runtime.is_closed() {
            let runtime = self.runtime.clone();
            runtime.release_actor(self);
        }
    }
}

impl Inner {
    /// Creates an actor.
    pub(crate) fn create_actor(
        self: &Arc<Self>,
        constructor: &'static Function,
        options: &ActorOptions,
        arguments: Arguments,
    ) -> Result<ActorHandle, Error> {
        self.check_usable()?;
        let light = options.resources.is_empty()
            && !options.isolated
            && !options.detached
            && options.strategy == Strategy::Default
            && options.group.is_none()
            && options.name.is_none()
            && options.restarts == 0;
        if light {
            return self.create_light_actor(constructor, options, arguments);
        }
        self.create_managed_actor(constructor, options, arguments)
    }

    fn create_light_actor(
        self: &Arc<Self>,
        constructor: &'static Function,
        options: &ActorOptions,
        arguments: Arguments,
    ) -> Result<ActorHandle, Error> {
        let task = self.next_task();
        let id = ActorId::created_by(task);
        let index = self.submitter.lock().open_light_actor(self, id);
        let payload = Payload::creation(constructor, arguments, options.concurrency);
        let creation = self.record_call(task, index, payload, 1, 0);
        let entry = self.actor_entry(id, index, options.call_retries, false, Some(creation), None);
        // Nobody refers to what the constructor returns: its record goes with the answer.
        self.on_handle_dropped(creation);
        self.tend_after_submit(creation, 0)?;
        Ok(ActorHandle { entry })
    }

    fn create_managed_actor(
        self: &Arc<Self>,
        constructor: &'static Function,
        options: &ActorOptions,
        arguments: Arguments,
    ) -> Result<ActorHandle, Error> {
        // The node keeps the arguments as bytes: the values of references among them must be known.
        for handle in arguments.handles() {
            handle.get(None)?;
        }
        let payload = Payload::creation(constructor, arguments, options.concurrency);
        let no_value = || Error::System("an argument of the constructor has no value".to_owned());
        let bytes = payload.final_bytes().ok_or_else(no_value)?.into_owned();
        if bytes.len() > limits::CONTROL_MESSAGE_BYTES_MAX / 2 {
            return Err(Error::Invalid(format!(
                "the arguments of the constructor take {} bytes, more than {}\nhint: put large arguments into the object store with put()",
                bytes.len(),
                limits::CONTROL_MESSAGE_BYTES_MAX / 2
            )));
        }
        let id = ActorId::created_by(self.next_task());
        let spec = ActorSpec {
            actor: id,
            program: self.program,
            constructor: constructor.id,
            arguments: bytes,
            type_name: options.type_name.clone().unwrap_or_else(|| constructor.name.to_owned()),
            name: options.name.clone(),
            resources: options.resources.clone(),
            isolated: options.isolated,
            detached: options.detached,
            ends_with_creator: options.ends_with_creator,
            awaits_arguments: options.awaits_arguments,
            restarts_max: options.restarts,
            may_move: false,
            lives: 0,
            group: options.group,
            strategy: options.strategy.clone(),
            near: self.near(payload.arguments.handles()),
            priority: options.priority,
            concurrency: options.concurrency.max(1),
            groups: options.groups.clone(),
            looped: options.looped,
            placement: options.placement.clone(),
            environment: options.environment.clone(),
            details: options.details.clone(),
            log: options.log.clone(),
            takeover: None,
        };
        let index = self.submitter.lock().open_actor(id, Place::Pending, true);
        let mut kept = Some(payload.arguments);
        if options.detached {
            // It may outlive all handles of its creator.
            self.kept.lock().extend(kept.take());
        }
        let entry = self.actor_entry(id, index, options.call_retries, true, None, kept);
        self.actors.lock().insert(id, Arc::downgrade(&entry));
        self.send_to_node(ToNode::ActorWanted { spec: Box::new(spec) });
        self.run_deferred();
        if let Some(name) = &options.name {
            self.check_name(name, id)?;
        }
        Ok(ActorHandle { entry })
    }

    /// Fails if another actor has the name. The node answers in order: it has seen the new actor.
    fn check_name(self: &Arc<Self>, name: &str, id: ActorId) -> Result<(), Error> {
        let wanted = name.to_owned();
        match self.ask(|request| ToNode::NameWanted { request, name: wanted })? {
            FromNode::ActorFound { found: Some(found), .. } if found.actor != id => {
                Err(Error::NameTaken(name.to_owned()))
            }
            _ => Ok(()),
        }
    }

    fn actor_entry(
        self: &Arc<Self>,
        id: ActorId,
        index: ActorIndex,
        call_retries: u32,
        managed: bool,
        creation: Option<TaskKey>,
        kept: Option<Arguments>,
    ) -> Arc<ActorEntry> {
        let managed = AtomicBool::new(managed);
        Arc::new(ActorEntry {
            id,
            runtime: self.clone(),
            index,
            call_retries,
            managed,
            creation,
            kept: Mutex::new(kept.map(Box::new)),
        })
    }

    fn record_call(
        self: &Arc<Self>,
        task: TaskId,
        index: ActorIndex,
        payload: Payload,
        returns: u32,
        retries: u32,
    ) -> TaskKey {
        self.record(task, Route::Actor(index), payload, returns, retries, |shell, later| {
            shell.flush_actor(self, index, later);
            shell.fail_if_dead(self, index, later);
        })
    }

    /// Calls a method.
    pub(crate) fn call_actor(
        self: &Arc<Self>,
        actor: &ActorEntry,
        function: &'static Function,
        options: &CallOptions,
        arguments: Arguments,
    ) -> Result<Handle, Error> {
        self.check_usable()?;
        self.check_own(arguments.handles())?;
        let task = self.next_task();
        let entry = Arc::new(Entry::new(task.returns(0), self.clone()));
        let returns = Returns::One(Arc::downgrade(&entry));
        let key = self.call_method(actor, task, function, options, arguments, returns, 1)?;
        entry.set_key(key);
        Ok(Handle { entry })
    }

    /// Calls a method with several return values.
    pub(crate) fn call_actor_several(
        self: &Arc<Self>,
        actor: &ActorEntry,
        function: &'static Function,
        options: &CallOptions,
        arguments: Arguments,
        count: u32,
    ) -> Result<Vec<Handle>, Error> {
        self.check_usable()?;
        let task = self.next_task();
        let (handles, returns) = self.several_returns(task, count)?;
        let key = self.call_method(actor, task, function, options, arguments, returns, count)?;
        handles.iter().for_each(|handle| handle.entry.set_key(key));
        Ok(handles)
    }

    /// Calls a method that streams.
    pub(crate) fn call_actor_stream(
        self: &Arc<Self>,
        actor: &ActorEntry,
        function: &'static Function,
        options: &CallOptions,
        arguments: Arguments,
    ) -> Result<Stream, Error> {
        self.check_usable()?;
        let task = self.next_task();
        let stream = self.new_stream(task);
        let key = self.call_method(actor, task, function, options, arguments, stream.returns(), 1)?;
        stream.set_key(key);
        Ok(stream)
    }

    #[expect(clippy::too_many_arguments, reason = "what a call is, part by part")]
    fn call_method(
        self: &Arc<Self>,
        actor: &ActorEntry,
        task: TaskId,
        function: &'static Function,
        options: &CallOptions,
        arguments: Arguments,
        returns: Returns,
        count: u32,
    ) -> Result<TaskKey, Error> {
        let stream = matches!(returns, Returns::Stream(..));
        let ahead = options.stream_ahead.unwrap_or(limits::STREAM_AHEAD_DEFAULT).max(1);
        let payload = Payload {
            function: Some(function),
            arguments,
            returns,
            name: options.name.clone(),
            verb: Verb::Call,
            group: options.group,
            kind: 0,
            number: if stream { ahead } else { 0 },
        };
        // A stream that was partly consumed cannot begin anew without repeating items.
        let retries = if stream { 0 } else { options.retries.unwrap_or(actor.call_retries) };
        let key = self.record_call(task, actor.index, payload, count, retries);
        if let Some(allowed) = options.deadline {
            self.set_deadline(key, allowed);
        }
        self.tend_after_submit(key, count)?;
        Ok(key)
    }

    /// Calls a method on behalf of another node.
    pub(crate) fn record_foreign_call(
        self: &Arc<Self>,
        task: TaskId,
        actor: &ActorEntry,
        payload: Payload,
        returns: u32,
    ) -> TaskKey {
        self.record_call(task, actor.index, payload, returns, 0)
    }

    /// Starts an actor on behalf of another node.
    pub(crate) fn start_foreign_actor(self: &Arc<Self>, spec: ActorSpec, kept: Arguments) -> ActorHandle {
        let id = spec.actor;
        let mut shell = self.submitter.lock();
        let index = match shell.actor_index.get(&id) {
            Some(&index) => {
                shell.machine.reopen_actor(index);
                index
            }
            None => shell.open_actor(id, Place::Pending, true),
        };
        drop(shell);
        let entry = self.actor_entry(id, index, 0, true, None, Some(kept));
        self.actors.lock().insert(id, Arc::downgrade(&entry));
        self.send_to_node(ToNode::ActorWanted { spec: Box::new(spec) });
        self.run_deferred();
        ActorHandle { entry }
    }

    /// The last handle in this process is gone.
    fn release_actor(self: &Arc<Self>, actor: &ActorEntry) {
        if actor.managed.load(Ordering::Acquire) {
            let mut actors = self.actors.lock();
            match actors.get(&actor.id) {
                Some(last) if std::ptr::eq(last.as_ptr(), actor) => actors.remove(&actor.id),
                // Somebody got a new handle in the meantime, and may have dropped that too.
                _ => return,
            };
            let mut later = Later::default();
            let mut shell = self.submitter.lock();
            shell.step(self, &mut later, |machine, out| machine.close_actor(actor.index, out));
            drop(shell);
            drop(actors);
            later.run(self);
            return;
        }
        if self.close_if_dead(actor.index) {
            return;
        }
        let payload = Payload {
            function: None,
            arguments: Arguments::new(),
            returns: Returns::Nothing,
            name: None,
            verb: Verb::Release,
            group: 0,
            kind: 0,
            number: 0,
        };
        self.record_call(self.next_task(), actor.index, payload, 0, 0);
    }

    /// A dead actor needs no farewell: its place is freed.
    fn close_if_dead(self: &Arc<Self>, index: ActorIndex) -> bool {
        let mut later = Later::default();
        let mut shell = self.submitter.lock();
        let dead = matches!(shell.machine.actor_place(index), Place::Dead(_));
        if dead {
            shell.step(self, &mut later, |machine, out| machine.close_actor(index, out));
        }
        drop(shell);
        later.run(self);
        dead
    }

    /// Waits until the order to create a light actor is on its way to its worker. Whoever gets a handle may call the actor
    /// at once, and its worker must have heard of it by then.
    fn wait_until_created(self: &Arc<Self>, actor: &ActorEntry) {
        let Some(creation) = actor.creation else { return };
        while !self.is_closed() {
            let shell = self.submitter.of(creation).lock();
            let is_unsent = |record: &&Record<Payload>| {
                matches!(record.stage(), Stage::Waiting | Stage::Resting | Stage::Queued)
            };
            let unsent = shell.machine.record(creation).filter(is_unsent).and_then(Record::payload);
            let inputs = unsent.map(|payload| payload.arguments.handles().to_vec());
            drop(shell);
            self.run_deferred();
            let Some(inputs) = inputs else { return };
            // If one has failed, the actor is not created, as its callers will learn.
            inputs.iter().for_each(|input| drop(input.get(None)));
            // The worker may have to start, or to read what it was sent before.
            self.flush_outbox();
            self.drain();
            self.flush_everything();
            std::thread::sleep(CREATION_AGAIN);
        }
    }

    /// A handle is written into a value: the node must know the actor.
    pub(crate) fn escape_actor(self: &Arc<Self>, entry: &Arc<ActorEntry>) {
        if !entry.managed.load(Ordering::Acquire) {
            self.wait_until_created(entry);
        }
        let mut actors = self.actors.lock();
        if entry.managed.swap(true, Ordering::AcqRel) {
            return;
        }
        actors.insert(entry.id, Arc::downgrade(entry));
        let mut shell = self.submitter.lock();
        shell.manage_actor(entry.index);
        // One that has no home yet is announced when it gets one; one that is dead has none.
        if let Place::Alive(host) = shell.machine.actor_place(entry.index) {
            self.outbox.push(ToNode::ActorEscaped { actor: entry.id, host: *host });
        }
        drop(shell);
        drop(actors);
        self.flush_outbox();
        self.run_deferred();
    }

    /// A handle of an actor that was found inside a value, or by name.
    pub(crate) fn adopt_actor(self: &Arc<Self>, id: ActorId) -> ActorHandle {
        let mut actors = self.actors.lock();
        if let Some(entry) = actors.get(&id).and_then(Weak::upgrade) {
            return ActorHandle { entry };
        }
        let mut shell = self.submitter.lock();
        let index = match shell.actor_index.get(&id) {
            Some(&index) => {
                shell.machine.reopen_actor(index);
                index
            }
            None => shell.open_actor(id, Place::Pending, true),
        };
        self.outbox.push(ToNode::ActorHeld { actor: id });
        drop(shell);
        let entry = self.actor_entry(id, index, 0, true, None, None);
        actors.insert(id, Arc::downgrade(&entry));
        drop(actors);
        self.flush_outbox();
        self.run_deferred();
        ActorHandle { entry }
    }

    /// The actor with this name, and what is said about it.
    pub(crate) fn find_actor(
        self: &Arc<Self>,
        name: &str,
    ) -> Result<Option<(ActorHandle, FoundActor)>, Error> {
        self.check_usable()?;
        let name = name.to_owned();
        match self.ask(|request| ToNode::NameWanted { request, name })? {
            FromNode::ActorFound { found, .. } => {
                Ok(found.map(|found| (self.adopt_actor(found.actor), found)))
            }
            other => Err(Error::System(format!("the node answered {other:?} to a question about a name"))),
        }
    }

    /// The names of all actors that a job in this namespace may find, as many as an answer holds.
    pub(crate) fn actor_names(self: &Arc<Self>, namespace: &str) -> Result<Vec<String>, Error> {
        self.check_usable()?;
        match self.ask(|request| ToNode::NamesWanted { request, namespace: namespace.to_owned() })? {
            FromNode::Names { names, .. } => Ok(names),
            other => Err(Error::System(format!("the node answered {other:?} to a question about names"))),
        }
    }

    /// Ends an actor now. If it may live again, calls that come after this are of its next life: they are not sent before
    /// the node has said that this one is over.
    pub(crate) fn kill_actor(self: &Arc<Self>, actor: &ActorEntry, restart: bool) {
        if actor.managed.load(Ordering::Acquire) {
            let killed = |request| ToNode::ActorKilled { actor: actor.id, restart, request };
            match restart {
                false => self.send_to_node(killed(None)),
                // Without an answer the session is over, as the next call will say.
                true => drop(self.request(|request| killed(Some(request)))),
            }
            return;
        }
        let failure = Failure::new(FailureKind::ActorDied, "its actor was killed");
        let mut later = Later::default();
        let mut shell = self.submitter.lock();
        let host = match shell.machine.actor_place(actor.index) {
            Place::Alive(process) => Some(*process),
            _ => None,
        };
        shell.step(self, &mut later, |machine, out| machine.on_actor_dead(actor.index, &failure, out));
        drop(shell);
        later.run(self);
        if let Some(host) = host {
            self.send_kill(host, actor.id);
        }
    }

    fn send_kill(self: &Arc<Self>, host: ProcessSlot, actor: ActorId) {
        let key = TaskKey { index: u32::MAX, generation: 0 };
        let kind = MessageKind::ActorKill;
        let message = Message { kind: kind as u8, form: 0, contains: 0, reserved: 0, index: 0, key };
        let header = CallHeader {
            actor,
            task: TaskId::default(),
            function: FunctionId::default(),
            attempt: 0,
            stream_ahead: 0,
            concurrency: 0,
            group: 0,
            returns: 0,
            reserved: 0,
        };
        if host == self.me {
            self.deliver_locally(&message, &header, &[]);
            return;
        }
        while !self.push_message(host, &message, &[header.as_bytes()]) {
            if self.is_closed() || !self.control.is_alive(host) {
                return;
            }
            self.flush_outbox();
            self.drain();
            std::thread::yield_now();
        }
        self.control.notify(host);
    }

    /// Hands a message to an actor in this very process.
    pub(crate) fn deliver_locally(
        self: &Arc<Self>,
        message: &Message,
        header: &CallHeader,
        bytes: &[u8],
    ) -> bool {
        let (Some(executor), Some(kind)) = (&self.executor, MessageKind::from_u8(message.kind)) else {
            return true;
        };
        executor.deliver(self, self.me, kind, message.key, header, bytes);
        true
    }

    /// The process that an actor lives in, as far as this one knows.
    fn home_of(&self, actor: ActorId) -> Option<ProcessSlot> {
        let shell = self.submitter.lock();
        match shell.machine.actor_place(*shell.actor_index.get(&actor)?) {
            Place::Alive(process) if *process != self.me => Some(*process),
            _ => None,
        }
    }

    /// What the actor answered before the node said something about it counts, also if its process is dead by now.
    pub(crate) fn take_answers_of(self: &Arc<Self>, actor: ActorId) {
        self.drain_fully();
        if let Some(process) = self.home_of(actor) {
            self.drain_process(process);
        }
    }

    /// The node says where an actor is.
    pub(crate) fn on_actor_changed(self: &Arc<Self>, actor: ActorId, place: ActorPlace) {
        self.take_answers_of(actor);
        if let Some(queue) = self.bridge.get() {
            queue.push(LocalEvent::ActorChanged { actor, place: place.clone() });
            queue.wake();
        }
        let is_dead = matches!(place, ActorPlace::Dead(_));
        let is_moved = matches!(place, ActorPlace::Moved(_));
        let mut later = Later::default();
        let mut shell = self.submitter.lock();
        let Some(&index) = shell.actor_index.get(&actor) else {
            drop(shell);
            return self.run_deferred();
        };
        shell.actors[index.0 as usize].pending = match &place {
            ActorPlace::Pending(reason) | ActorPlace::Moved(reason) => Some(reason.as_str().into()),
            _ => None,
        };
        match place {
            ActorPlace::Alive { process, remembers, .. } => {
                shell.machine.set_remembers(index, remembers);
                if process != self.me {
                    self.want_channel_later(process, &mut later.messages);
                }
                shell.step(self, &mut later, |machine, out| machine.on_actor_alive(index, process, out));
            }
            ActorPlace::Pending(reason) | ActorPlace::Moved(reason) => {
                if is_moved {
                    // No call without an answer has begun: all are sent again, whatever their retries.
                    shell.machine.set_remembers(index, true);
                }
                let text = format!("its actor died: {reason}");
                let failure = Failure::new(FailureKind::ActorCrashed(None), text);
                // One that was thought dead may be pending again, if it was only out of reach.
                if !matches!(shell.machine.actor_place(index), Place::Pending) {
                    shell.step(self, &mut later, |machine, out| {
                        machine.on_actor_restarting(index, &failure, out);
                    });
                }
            }
            ActorPlace::Dead(failure) => {
                shell.step(self, &mut later, |machine, out| machine.on_actor_dead(index, &failure, out));
            }
        }
        drop(shell);
        later.run(self);
        if is_dead {
            // Nothing constructs it again: what its arguments refer to need not stay for the handles' sake.
            let entry = self.actors.lock().get(&actor).and_then(Weak::upgrade);
            let kept = entry.as_ref().and_then(|entry| entry.kept.lock().take());
            drop((kept, entry));
        }
    }

    /// A process died: the actors in it are gone, or wait for the node to start them again.
    pub(crate) fn on_host_died(
        self: &Arc<Self>,
        shell: &mut Shell,
        dead: ProcessSlot,
        cause: &DeathCause,
        later: &mut Later,
    ) {
        let shared = &self.shared_worker;
        let _ = shared.compare_exchange(dead.0, 0, Ordering::AcqRel, Ordering::Relaxed);
        for index in shell.machine.actors_in(dead) {
            let managed = shell.actors[index.0 as usize].managed;
            let failure = Submitter::<Payload>::actor_failure(cause, (!managed).then_some(0));
            shell.step(self, later, |machine, out| {
                if managed {
                    machine.on_actor_restarting(index, &failure, out);
                } else {
                    machine.on_actor_dead(index, &failure, out);
                }
            });
        }
    }
}

impl Shell {
    /// Adds a light actor to the table; it lives in the shared worker, once there is one.
    fn open_light_actor(&mut self, runtime: &Inner, id: ActorId) -> ActorIndex {
        let host = match &runtime.executor {
            Some(executor) if executor.hosts_actors() => runtime.me,
            _ => ProcessSlot(runtime.shared_worker.load(Ordering::Acquire)),
        };
        if host.0 != 0 {
            return self.open_actor(id, Place::Alive(host), false);
        }
        let index = self.open_actor(id, Place::Pending, false);
        self.homeless.push(index);
        index
    }

    /// Adds an actor to the table.
    fn open_actor(&mut self, id: ActorId, place: Place, managed: bool) -> ActorIndex {
        let index = self.machine.open_actor(place);
        if self.actors.len() <= index.0 as usize {
            self.actors.resize_with(index.0 as usize + 1, ActorSlot::default);
        }
        self.actors[index.0 as usize] = ActorSlot { id, managed, pending: None };
        if managed {
            self.actor_index.insert(id, index);
        }
        index
    }

    fn manage_actor(&mut self, index: ActorIndex) {
        let slot = &mut self.actors[index.0 as usize];
        slot.managed = true;
        self.actor_index.insert(slot.id, index);
    }

    /// An actor's place is free: the node is told that this process holds no handle any more, and that before anybody can
    /// get another.
    pub(crate) fn on_actor_closed(&mut self, runtime: &Inner, index: ActorIndex) {
        let slot = std::mem::take(&mut self.actors[index.0 as usize]);
        if slot.managed {
            self.actor_index.remove(&slot.id);
            runtime.outbox.push(ToNode::ActorReleased { actor: slot.id });
        }
    }

    /// Calls of a dead actor fail at once.
    fn fail_if_dead(&mut self, runtime: &Arc<Inner>, index: ActorIndex, later: &mut Later) {
        if let Place::Dead(failure) = self.machine.actor_place(index) {
            let failure = (**failure).clone();
            self.step(runtime, later, |machine, out| machine.on_actor_dead(index, &failure, out));
        }
    }
}
