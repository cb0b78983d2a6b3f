//! A proxy whose other side is the test.

use super::*;

/// A wire that keeps what is sent.
#[derive(Default)]
pub(super) struct Kept(pub(super) Mutex<Vec<Frame>>);

impl Wire for Kept {
    fn send(&self, frame: &Frame) {
        self.0.lock().push(frame.clone());
    }

    fn flush(&self) {}

    fn has_room(&self) -> bool {
        true
    }
}

/// When all happens in tests that are not about time.
pub(super) const NOW: Time = Time(0);

/// A proxy whose other side is the test, and an actor that both know.
pub(super) struct OneSide {
    pub(super) runtime: Runtime,
    pub(super) wire: Arc<Kept>,
    pub(super) proxy: Arc<Proxy>,
    pub(super) machine: Machine,
    pub(super) actor: ActorId,
}

impl OneSide {
    pub(super) fn new() -> Self {
        Self::with_programs(Arc::new(OneProgram))
    }

    pub(super) fn with_programs(programs: Arc<dyn Programs>) -> Self {
        let (runtime, wire) = (node(0), Arc::new(Kept::default()));
        let proxy = Proxy::new(Bridge::new(open_peer(&runtime)), wire.clone(), programs);
        proxy.begin();
        let machine = proxy.machine.lock().take().expect("it has begun");
        Self { runtime, wire, proxy, machine, actor: ActorId::created_by(some_task()) }
    }

    /// Does something with the machine, and sends what follows.
    pub(super) fn step<T>(&mut self, work: impl FnOnce(&mut Machine) -> T) -> T {
        let given = work(&mut self.machine);
        self.proxy.send(&mut self.machine);
        given
    }

    pub(super) fn frame(&mut self, frame: Frame) {
        self.step(|machine| machine.on_frame(NOW, frame));
    }

    pub(super) fn event(&mut self, event: LocalEvent) {
        self.step(|machine| machine.on_event(event));
    }

    pub(super) fn export(&mut self, inside: &Inside) {
        self.step(|machine| machine.export_inside(inside));
    }

    /// The process that the proxy is.
    pub(super) fn me(&self) -> ProcessSlot {
        self.proxy.bridge().runtime().process()
    }

    /// How many objects and actors are held for the other side, and how many actors that side holds for this one.
    pub(super) fn held(&self) -> (usize, usize, usize) {
        let counts = self.machine.counts();
        (counts.exported_objects, counts.exported_actors, counts.imported_actors)
    }

    /// It waits for a CPU, of which there is none.
    pub(super) fn spec(&self) -> ActorSpec {
        let resources = Resources::none().with(resources::CPU, Amount::ONE);
        ActorSpec { actor: self.actor, resources, concurrency: 1, ..ActorSpec::default() }
    }

    pub(super) fn inside(&self) -> Inside {
        Inside { objects: Vec::new(), actors: vec![self.actor] }
    }

    /// The other side names the actor in something that the driver gets.
    pub(super) fn hear_of_it(&mut self) -> ActorHandle {
        let inside = self.inside();
        self.step(|machine| machine.import_inside(&inside));
        let passed_on = self.proxy.bridge().adopt_actor(self.actor);
        self.proxy.bridge().runtime().state(StateKind::Actors).expect("the node answers");
        let held = self.runtime.adopt_actor(self.actor);
        self.runtime.state(StateKind::Actors).expect("the node answers");
        drop(passed_on);
        held
    }

    /// How far the actor is, as this side's node says after all that the peer has told it.
    pub(super) fn state(&self) -> Option<ActorState> {
        match self.proxy.bridge().runtime().state(StateKind::Actors).expect("the node answers").0 {
            StateRows::Actors(rows) => rows.iter().find(|row| row.actor == self.actor).map(|row| row.state),
            other => panic!("asked for actors, told {other:?}"),
        }
    }

    /// Deals with what happens until this is so.
    pub(super) fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "not {what}: {:?}", self.wire.0.lock());
            let events = self.proxy.bridge().take();
            events.into_iter().for_each(|event| self.event(event));
            std::thread::yield_now();
        }
    }

    /// How often the other side was told that this one has let go of the actor.
    pub(super) fn released(&self) -> u64 {
        let count = |frame: &Frame| match frame {
            Frame::ActorReleased { count, .. } => *count,
            _ => 0,
        };
        self.wire.0.lock().iter().map(count).sum()
    }

    pub(super) fn has_said_that_it_ended(&self) -> bool {
        self.wire.0.lock().iter().any(|frame| matches!(frame, Frame::ActorEnded { .. }))
    }
}
