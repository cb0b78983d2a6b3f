//! The head, told by members that say whatever they like.

mod trust;

use super::*;
use aktis_protocol::actors::FoundActor;
use aktis_protocol::limits::NODE_LEASE_MICROSECONDS;
use aktis_protocol::member::{NamedActor, Question, Reply};
use aktis_protocol::placement::ToPlacer;
use aktis_protocol::tables::{Change, Key, Table};
use aktis_protocol::{Amount, GroupSpec, Labels, Resources, SessionId, TaskId};
use std::collections::BTreeMap;

/// A head, and a disk on which everything is at once.
struct Scene {
    head: Head,
    now: Time,
    /// Whether the tables refuse to keep names.
    is_full: bool,
    /// Whether the test itself says when programs are ended.
    are_programs_slow: bool,
    sent: Vec<(LinkId, FromControl)>,
    others: Vec<HeadEffect>,
    epochs: BTreeMap<NodeId, Epoch>,
}

/// The key of all nodes, and one that none has.
const KEY: PublicKey = [1; 32];
const OTHER: PublicKey = [2; 32];

fn node(number: u64) -> NodeId {
    NodeId::from_words([number, 0])
}

fn named(name: &str, number: u64) -> NamedActor {
    let actor = ActorId::created_by(TaskId::root(SessionId(1)).child(number));
    let found = FoundActor { actor, type_name: String::new(), details: Vec::new(), abroad: false };
    NamedActor { name: name.to_owned(), found }
}

fn lives_abroad(NamedActor { name, found }: NamedActor) -> NamedActor {
    NamedActor { name, found: FoundActor { abroad: true, ..found } }
}

impl Scene {
    fn new(restored: Restored) -> Self {
        let mut others = Vec::new();
        let head = Head::new(Time(0), restored, &mut others);
        let (sent, epochs) = (Vec::new(), BTreeMap::new());
        Self { head, now: Time(0), is_full: false, are_programs_slow: false, sent, others, epochs }
    }

    fn step(&mut self, input: HeadInput) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let mut effects = Vec::new();
            self.head.step(self.now, input, &mut effects);
            self.head.check();
            for effect in effects {
                match effect {
                    HeadEffect::Send { link, message } => self.sent.push((link, message)),
                    HeadEffect::Write(write) => inputs.extend(self.written(&write)),
                    HeadEffect::EndPrograms { left, members } => {
                        if !self.are_programs_slow {
                            inputs.push_back(HeadInput::ProgramsEnded { left: left.clone() });
                        }
                        self.others.push(HeadEffect::EndPrograms { left, members });
                    }
                    effect => self.others.push(effect),
                }
            }
        }
    }

    fn written(&self, write: &HeadWrite) -> Option<HeadInput> {
        match write.clone() {
            HeadWrite::NodeJoined { info, .. } => {
                Some(HeadInput::NodeWritten { node: info.node, info: Some(info) })
            }
            HeadWrite::NodeLeft { sender, .. } => {
                Some(HeadInput::NodeWritten { node: sender.node, info: None })
            }
            HeadWrite::Name { claim, .. } => Some(HeadInput::NameWritten { claim, is_kept: !self.is_full }),
            HeadWrite::Token { .. }
            | HeadWrite::PutOut { .. }
            | HeadWrite::TrustForgotten { .. }
            | HeadWrite::Noted { .. } => None,
            HeadWrite::Group { group, write, .. } => {
                Some(HeadInput::GroupWritten { group, write, outcome: Ok(()) })
            }
            HeadWrite::NodeDied { .. }
            | HeadWrite::RecordsForgotten { .. }
            | HeadWrite::NamesFreed { .. } => None,
        }
    }

    /// A node says something, and hears this.
    fn say(&mut self, number: u64, link: u64, message: ToControl) -> Vec<FromControl> {
        self.sent.clear();
        let (from, link) = (node(number), LinkId(link));
        self.step(HeadInput::Received { from, key: KEY, link, message });
        self.sent.iter().filter(|(to, _)| *to == link).map(|(_, message)| message.clone()).collect()
    }

    fn join_with(&mut self, number: u64, link: u64, held: Option<Epoch>, names: Vec<NamedActor>) -> Epoch {
        let (labels, resources) = (Labels::default(), Resources::none());
        let address = ([127, 0, 0, 1], 1).into();
        let heard = self.say(number, link, ToControl::Joined { held, address, labels, resources, names });
        let welcome = heard.iter().find_map(|message| match message {
            FromControl::Welcome { epoch, .. } => Some(*epoch),
            _ => None,
        });
        let epoch = welcome.expect("welcomed");
        self.epochs.insert(node(number), epoch);
        epoch
    }

    fn join(&mut self, number: u64, link: u64) -> Epoch {
        self.join_with(number, link, None, Vec::new())
    }

    fn claim(&mut self, number: u64, link: u64, actor: NamedActor) -> Option<bool> {
        let heard = self.say(number, link, ToControl::NameClaimed { actor });
        heard.iter().find_map(|message| match message {
            FromControl::NameClaimed { granted, .. } => Some(*granted),
            _ => None,
        })
    }

    fn pass(&mut self, microseconds: u64) {
        self.now.0 += microseconds;
        self.step(HeadInput::Ticked);
    }
}

#[test]
fn only_the_link_of_the_last_join_speaks_for_a_member() {
    let mut scene = Scene::new(Restored::default());
    let epoch = scene.join_with(1, 1, None, vec![named("a", 1)]);
    let before = scene.head.membership().next_wakeup();
    scene.now.0 += 10;
    let NamedActor { name, found } = named("a", 1);
    let group = GroupId::created_by(TaskId::root(SessionId(1)).child(1));
    let bundles = vec![Resources::none().with("CPU", Amount::ONE)];
    let spec = GroupSpec { group, bundles, ..GroupSpec::default() };
    for message in [
        ToControl::Heartbeat { epoch },
        ToControl::Placer { epoch, message: ToPlacer::GroupWanted { spec } },
        ToControl::NameFreed { name, actor: found.actor },
        ToControl::NameClaimed { actor: named("b", 2) },
        ToControl::CertificateWanted { public_key: KEY },
        ToControl::Asked { number: 1, question: Question::Names },
    ] {
        assert_eq!(scene.say(1, 2, message), [], "link 2 has not joined");
    }
    assert!(!scene.others.iter().any(|effect| matches!(effect, HeadEffect::Certify { .. })));
    assert_eq!(scene.head.membership().next_wakeup(), before, "the lease is not renewed");
    assert_eq!((scene.head.names(), scene.head.placer().groups()), (vec!["a".to_owned()], 0));
    let stale = Epoch(epoch.0 + 7);
    let expelled = scene.say(1, 2, ToControl::Heartbeat { epoch: stale });
    assert_eq!(expelled, [FromControl::Expelled { epoch: stale }], "the one message that is answered");

    assert_eq!(scene.join_with(1, 2, Some(epoch), Vec::new()), epoch);
    let ask = ToControl::Asked { number: 2, question: Question::Names };
    assert_eq!(scene.say(1, 1, ask.clone()), [], "the first link is over for the head");
    let reply = Reply::Names(Vec::new());
    assert_eq!(scene.say(1, 2, ask), [FromControl::Answered { number: 2, reply }]);
    scene.step(HeadInput::LinkEnded { node: node(1), link: LinkId(1), leaves: true });
    assert!(scene.head.membership().is_current(node(1), epoch), "an old link cannot leave for it");
}

#[test]
fn a_stale_epoch_changes_nothing() {
    let mut scene = Scene::new(Restored::default());
    let (first, second) = (scene.join(1, 1), scene.join(1, 1));
    assert!(second > first);
    let heard = scene.say(1, 1, ToControl::Heartbeat { epoch: first });
    assert_eq!(heard, [FromControl::Expelled { epoch: first }]);
    let group = GroupId::created_by(TaskId::root(SessionId(1)).child(1));
    let spec = GroupSpec { group, ..GroupSpec::default() };
    let wanted = ToPlacer::GroupWanted { spec };
    assert_eq!(scene.say(1, 1, ToControl::Placer { epoch: first, message: wanted }), []);
    assert_eq!(scene.head.placer().groups(), 0);
}

#[test]
fn a_name_that_the_tables_refuse_stays_free() {
    let mut scene = Scene::new(Restored::default());
    scene.join(1, 1);
    scene.join(2, 2);
    scene.is_full = true;
    assert_eq!(scene.claim(1, 1, named("a", 1)), Some(false));
    assert_eq!(scene.head.find_name("a"), None, "its actor was told that it has no name");
    scene.is_full = false;
    assert_eq!(scene.claim(2, 2, named("a", 2)), Some(true));
    assert_eq!(scene.claim(1, 1, named("a", 1)), Some(false));
}

#[test]
fn a_certificate_is_renewed_for_the_key_of_the_link_only() {
    let mut scene = Scene::new(Restored::default());
    scene.join(1, 1);
    scene.others.clear();
    scene.say(1, 1, ToControl::CertificateWanted { public_key: KEY });
    let certify = HeadEffect::Certify { link: LinkId(1), node: node(1), public_key: KEY };
    assert_eq!(scene.others, [certify]);
    scene.others.clear();
    scene.say(1, 1, ToControl::CertificateWanted { public_key: OTHER });
    assert!(matches!(&scene.others[..], [HeadEffect::Close { link: LinkId(1), .. }]), "{:?}", scene.others);
    let back = |shown, wanted| {
        let address = "127.0.0.1:1".to_owned();
        Returning { before: node(1), shown, wanted, node: node(9), address }
    };
    assert_eq!(scene.head.on_returned(back(KEY, KEY), &mut Vec::new()), Ok(()));
    assert!(scene.head.on_returned(back(KEY, OTHER), &mut Vec::new()).is_err());
}

#[test]
fn a_refused_claim_does_not_undo_a_later_one() {
    let mut scene = Scene::new(Restored::default());
    scene.join(1, 1);
    let mut claims = Vec::new();
    for _ in 0..2 {
        let (from, link, mut effects) = (node(1), LinkId(1), Vec::new());
        let message = ToControl::NameClaimed { actor: named("a", 1) };
        scene.head.step(scene.now, HeadInput::Received { from, key: KEY, link, message }, &mut effects);
        for effect in effects {
            let HeadEffect::Write(HeadWrite::Name { claim, .. }) = effect else { panic!("{effect:?}") };
            claims.push(claim);
        }
    }
    let [first, second] = claims.try_into().expect("two claims");
    scene.step(HeadInput::NameWritten { claim: first, is_kept: false });
    assert!(scene.head.find_name("a").is_some());
    scene.step(HeadInput::NameWritten { claim: second, is_kept: true });
    assert!(scene.head.find_name("a").is_some());
}

#[test]
fn names_of_a_departed_node_are_free_but_those_to_take_over() {
    let mut scene = Scene::new(Restored::default());
    scene.join_with(1, 1, None, vec![named("own", 1), lives_abroad(named("abroad", 2))]);
    scene.join(2, 2);
    scene.step(HeadInput::LinkEnded { node: node(1), link: LinkId(1), leaves: true });
    assert_eq!(scene.head.names(), ["abroad"]);
    assert_eq!(scene.claim(2, 2, named("abroad", 3)), Some(false), "another actor has to wait");
    assert_eq!(scene.claim(2, 2, named("abroad", 2)), Some(true), "the same actor is taken over");
    scene.pass(TAKEOVER);
    assert_eq!(scene.head.names(), ["abroad"]);
    // The first owner comes back, and has not heard of the takeover.
    scene.join_with(1, 3, None, vec![lives_abroad(named("abroad", 2))]);
    let NamedActor { name, found } = named("abroad", 2);
    scene.say(1, 3, ToControl::NameFreed { name, actor: found.actor });
    assert_eq!(scene.head.find_name("abroad").map(|(home, _)| home), Some(node(2)));
}

const TAKEOVER: u64 = 1_000_000;

#[test]
fn a_name_that_nobody_takes_over_is_free() {
    let mut scene = Scene::new(Restored::default());
    scene.join_with(1, 1, None, vec![lives_abroad(named("abroad", 2))]);
    scene.step(HeadInput::LinkEnded { node: node(1), link: LinkId(1), leaves: true });
    scene.pass(TAKEOVER - 1);
    assert_eq!(scene.head.names(), ["abroad"]);
    scene.pass(1);
    assert_eq!(scene.head.names(), Vec::<String>::new());
}

#[test]
fn a_silent_member_is_expelled_and_the_others_hear_of_it() {
    let mut scene = Scene::new(Restored::default());
    let (silent, other) = (scene.join(1, 1), scene.join(2, 2));
    scene.now.0 += NODE_LEASE_MICROSECONDS / 2;
    assert_eq!(scene.say(2, 2, ToControl::Heartbeat { epoch: other }), []);
    scene.sent.clear();
    scene.pass(NODE_LEASE_MICROSECONDS / 2);
    let left = FromControl::NodeLeft { node: node(1), epoch: silent };
    assert_eq!(
        scene.sent,
        [(LinkId(1), FromControl::Expelled { epoch: silent }), (LinkId(2), left)],
        "each is told once"
    );
    let late = scene.say(1, 1, ToControl::Heartbeat { epoch: silent });
    assert_eq!(late, [FromControl::Expelled { epoch: silent }]);
    let sender = Sender { node: node(1), epoch: silent.0 };
    scene.pass(RECORDS_KEPT_MICROSECONDS);
    assert!(scene.others.contains(&HeadEffect::ForgetRecords { sender }));
}

#[test]
fn a_member_is_welcomed_and_told_of_only_when_its_row_is_on_disk() {
    let mut scene = Scene::new(Restored::default());
    scene.join(2, 2);
    let (from, link, mut effects) = (node(1), LinkId(1), Vec::new());
    let (labels, resources) = (Labels::default(), Resources::none());
    let address = ([127, 0, 0, 1], 1).into();
    let message = ToControl::Joined { held: None, address, labels, resources, names: Vec::new() };
    scene.head.step(scene.now, HeadInput::Received { from, key: KEY, link, message }, &mut effects);
    let [HeadEffect::Write(write)] = effects.as_slice() else { panic!("{effects:?}") };
    // The disk is slow: the lease does not lapse meanwhile.
    scene.pass(10 * NODE_LEASE_MICROSECONDS);
    let written = scene.written(write).expect("answered");
    scene.sent.clear();
    scene.step(written);
    let heard_by = |link| scene.sent.iter().filter(|(to, _)| *to == LinkId(link)).count();
    assert_eq!((heard_by(1), heard_by(2)), (1, 0), "node 2 was silent for too long: {:?}", scene.sent);
}

#[test]
fn nodes_do_not_write_the_tables_of_the_head() {
    let mut scene = Scene::new(Restored::default());
    scene.join(1, 1);
    for table in [Table::Nodes, Table::Actors, Table::Groups] {
        let change = Change::RowDeleted { table, key: Key::from(node(2)) };
        let question = Question::Change(vec![change]);
        assert_eq!(scene.say(1, 1, ToControl::Asked { number: 1, question }), []);
        let closed = scene.others.pop().expect("an effect");
        assert!(matches!(closed, HeadEffect::Close { link: LinkId(1), .. }), "{closed:?}");
    }
}

#[test]
fn changes_carry_the_membership_of_the_sender() {
    let mut scene = Scene::new(Restored::default());
    let epoch = scene.join(1, 1);
    let (table, key) = (Table::Jobs, Key::from("job"));
    let question = Question::Change(vec![Change::RowDeleted { table, key }]);
    scene.say(1, 1, ToControl::Asked { number: 7, question });
    let asked = scene.others.pop().expect("an effect");
    let HeadEffect::AskTables { number: 7, request: TableRequest::Change(batch), .. } = asked else {
        panic!("{asked:?}")
    };
    assert_eq!((batch.sender, batch.sequence), (Sender { node: node(1), epoch: epoch.0 }, 7));
}

#[test]
fn a_member_of_an_earlier_life_keeps_its_epoch_and_names() {
    let mut first = Scene::new(Restored::default());
    let epoch = first.join_with(1, 1, None, vec![named("a", 1)]);
    let info = first.head.members.published().next().cloned().expect("one member");
    let home = first.head.find_name("a").expect("named");
    let gone = (node(9), named("b", 2).found);
    let names = vec![("a".to_owned(), home), ("b".to_owned(), gone)];
    let next_epoch = Epoch(epoch.0 + 2);
    let mut second = Scene::new(Restored { nodes: vec![info], names, next_epoch, ..Restored::default() });
    let freed = HeadWrite::NamesFreed { names: vec!["b".to_owned()] };
    assert!(second.others.contains(&HeadEffect::Write(freed)), "its node is no member");
    assert_eq!(second.join_with(1, 5, Some(epoch), vec![named("a", 1)]), epoch);
    assert_eq!(second.head.names(), ["a"]);
    assert_eq!(second.join(2, 6), next_epoch);
}

/// Found by the simulator: a job that ended while its node was given up was marked as lost afterwards.
#[test]
fn a_node_is_welcomed_again_only_after_its_programs_are_ended() {
    let mut scene = Scene::new(Restored::default());
    scene.join(1, 1);
    scene.are_programs_slow = true;
    scene.pass(NODE_LEASE_MICROSECONDS);
    let (labels, resources, address) = (Labels::default(), Resources::none(), ([127, 0, 0, 1], 1).into());
    let joined = ToControl::Joined { held: None, address, labels, resources, names: Vec::new() };
    assert_eq!(scene.say(1, 1, joined), []);
    scene.sent.clear();
    scene.step(HeadInput::ProgramsEnded { left: [node(1)].into() });
    assert!(matches!(scene.sent[..], [(LinkId(1), FromControl::Welcome { .. })]), "{:?}", scene.sent);
}

#[test]
fn members_are_told_of_other_authorities_until_they_have_taken_them_over() {
    let mut scene = Scene::new(Restored::default());
    scene.join(1, 1);
    scene.join(2, 2);
    assert_eq!(scene.head.authorities_unused(), (vec![], 2), "nothing has changed");
    let mut told = Vec::new();
    scene.head.on_authorities_changed(1, &mut told);
    let tell = |link| HeadEffect::Send { link: LinkId(link), message: FromControl::CertificateChanged };
    assert_eq!(told, [tell(1), tell(2)]);
    assert_eq!(scene.head.authorities_unused(), (vec![node(1), node(2)], 0));
    scene.say(1, 1, ToControl::CertificateUsed { serial: 1 });
    scene.say(2, 2, ToControl::CertificateUsed { serial: 0 });
    assert_eq!(scene.head.authorities_unused(), (vec![node(2)], 1), "that was the one before");
    // A link that was lost with the message, and a node that joins meanwhile.
    scene.step(HeadInput::LinkEnded { node: node(2), link: LinkId(2), leaves: false });
    let epoch = scene.epochs[&node(2)];
    scene.join_with(2, 3, Some(epoch), Vec::new());
    assert!(scene.sent.contains(&(LinkId(3), FromControl::CertificateChanged)), "{:?}", scene.sent);
    scene.join(4, 4);
    assert!(scene.sent.contains(&(LinkId(4), FromControl::CertificateChanged)), "{:?}", scene.sent);
    scene.say(2, 3, ToControl::CertificateUsed { serial: 1 });
    scene.say(4, 9, ToControl::CertificateUsed { serial: 1 });
    assert_eq!(scene.head.authorities_unused(), (vec![node(4)], 2), "link 9 has not joined");
    scene.step(HeadInput::LinkEnded { node: node(4), link: LinkId(4), leaves: true });
    assert_eq!(scene.head.authorities_unused(), (vec![], 2), "a node that has left is not waited for");
}
