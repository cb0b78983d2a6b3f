//! Actors that the other side names while their program, or their release, is on its way.

use super::*;

/// A node that has never run the program.
struct NoProgram;

impl Programs for NoProgram {
    fn knows(&self, _: ProgramId) -> bool {
        false
    }

    fn find(&self, _: ProgramId) -> Result<(ProgramSpec, Option<File>), String> {
        Err("nobody asks".to_owned())
    }

    fn add(&self, _: ProgramSpec, _: Option<File>) -> Result<(), String> {
        Err("nobody asks".to_owned())
    }
}

impl OneSide {
    /// The other side wants an actor hosted here, with an object as the argument of its constructor.
    pub(super) fn host(&mut self, spec: ActorSpec, input: aktis_protocol::ObjectId) {
        let arguments = vec![PeerArgument::Object(input)];
        self.frame(Frame::HostActor { spec: Box::new(spec), arguments, incarnation: 0 });
    }

    /// The other side sends a task that gets a handle of the actor.
    fn send_task(&mut self, ticket: u64) {
        let resources = Resources::none().with(resources::CPU, Amount::ONE);
        let (shape, definition) = (ShapeId(1), Shape { resources, ..Shape::default() });
        let task = TaskId::root(SessionId(1)).child(ticket);
        let arguments = vec![PeerArgument::Value { bytes: Vec::new(), inside: self.inside() }];
        let (function, attempt, stream_ahead, returns, kind) = (FunctionId(1), 0, 0, 1, 0);
        let call = PeerCall { task, function, attempt, stream_ahead, returns, kind, arguments };
        self.frame(Frame::Shape { shape, definition });
        self.frame(Frame::Task { ticket: Ticket(ticket), shape, call });
    }
}

#[test]
fn an_actor_is_known_before_the_program_of_the_task_that_gets_it() {
    let mut side = OneSide::with_programs(Arc::new(NoProgram));
    side.send_task(1);
    assert!(side.wire.0.lock().iter().any(|frame| matches!(frame, Frame::ProgramWanted { .. })));
    // The other side says so once, and does not wait for the program.
    side.frame(Frame::ActorBack { actor: side.actor });
    assert_eq!(side.state(), Some(ActorState::Alive));
    let program = ProgramId::default();
    side.step(|machine| machine.on_program_added(NOW, program, Ok(())));
    assert_eq!(side.state(), Some(ActorState::Alive), "calls of the task reach it");
    assert_eq!((side.released(), side.held().2), (0, 1));
    side.runtime.shutdown();
}

#[test]
fn a_task_cancelled_before_its_program_came_releases_its_actors() {
    let mut side = OneSide::with_programs(Arc::new(NoProgram));
    side.send_task(1);
    side.frame(Frame::Cancel { ticket: Ticket(1), recursive: false, force: false });
    side.until("released", |side| side.released() == 1);
    assert!(side.held().2 == 0 && side.state().is_none());
    side.runtime.shutdown();
}

#[test]
fn an_actor_that_is_named_again_while_it_is_released_stays_known() {
    let mut side = OneSide::new();
    let held = side.hear_of_it();
    side.frame(Frame::ActorBack { actor: side.actor });
    // The node releases it; the other side names it again before this process has heard of the release.
    drop(held);
    side.runtime.state(StateKind::Actors).expect("the node answers");
    let held = side.hear_of_it();
    assert_eq!(side.released(), 0);
    side.until("released", |side| side.released() > 0);
    assert_eq!((side.released(), side.held().2), (1, 1));
    // The other side hears of the release, sees that it has named the actor since, and says again how it is.
    side.frame(Frame::ActorBack { actor: side.actor });
    assert_eq!(side.state(), Some(ActorState::Alive));
    drop(held);
    side.until("released again", |side| side.released() == 2);
    assert!(side.state().is_none());
    side.runtime.shutdown();
}
