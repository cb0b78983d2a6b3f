//! Tokens, and nodes that are put out.

use super::*;
use aktis_protocol::admin::IdPrefix;
use aktis_protocol::limits::{EVENT_BYTES_MAX, TOKENS_MAX};
use aktis_protocol::tables::{Event, EventKind};
use aktis_protocol::trust::{PutOutKind, TokenId, TokenRow, TokenState};

const NOW: u64 = 1000;
const HOUR: u64 = 3600;

fn token(id: u64, uses_max: Option<u32>, lifetime: u64) -> TokenRow {
    let (id, expires_unix_seconds) = (TokenId(id), NOW + lifetime);
    TokenRow { id, made_unix_seconds: NOW, expires_unix_seconds, uses_max, uses: 0, is_revoked: false }
}

fn prefix(id: impl std::fmt::Display) -> IdPrefix {
    id.to_string().parse().expect("digits")
}

fn key(number: u64) -> PublicKey {
    [number as u8; 32]
}

/// A head, and the rows that it has written.
struct Keeper {
    scene: Scene,
    rows: BTreeMap<Key, Vec<u8>>,
    events: Vec<Event>,
}

impl Keeper {
    fn new() -> Self {
        Self { scene: Scene::new(Restored::default()), rows: BTreeMap::new(), events: Vec::new() }
    }

    fn keep(&mut self, write: &HeadWrite) {
        for change in write.changes(7) {
            match change {
                Change::RowPut { table: Table::Nodes, key, value, .. } => drop(self.rows.insert(key, value)),
                Change::RowDeleted { table: Table::Nodes, key } => drop(self.rows.remove(&key)),
                Change::EventNoted(event) => {
                    assert!(event.text.len() <= EVENT_BYTES_MAX);
                    self.events.push(event);
                }
                _ => {}
            }
        }
    }

    fn decide<Outcome>(
        &mut self,
        decide: impl FnOnce(&mut Head, &mut Effects<HeadEffect>) -> Outcome,
    ) -> Outcome {
        let mut effects = Vec::new();
        let outcome = decide(&mut self.scene.head, &mut effects);
        self.scene.head.check();
        self.carry_out(effects);
        outcome
    }

    fn carry_out(&mut self, effects: Effects<HeadEffect>) {
        for effect in effects {
            match effect {
                HeadEffect::Write(write) => {
                    self.keep(&write);
                    let input = self.scene.written(&write);
                    input.into_iter().for_each(|input| self.step(input));
                }
                HeadEffect::Send { link, message } => self.scene.sent.push((link, message)),
                HeadEffect::EndPrograms { left, .. } => self.step(HeadInput::ProgramsEnded { left }),
                effect => self.scene.others.push(effect),
            }
        }
    }

    fn step(&mut self, input: HeadInput) {
        let mut effects = Vec::new();
        self.scene.head.step(self.scene.now, input, &mut effects);
        self.scene.head.check();
        self.carry_out(effects);
    }

    /// A node joins over a link with the same number; what it hears.
    fn join(&mut self, number: u64, key: PublicKey) -> Vec<FromControl> {
        self.scene.sent.clear();
        let (labels, resources) = (Labels::default(), Resources::none());
        let address = ([127, 0, 0, 1], 1).into();
        let message = ToControl::Joined { held: None, address, labels, resources, names: Vec::new() };
        self.step(HeadInput::Received { from: node(number), key, link: LinkId(number), message });
        let of_link = self.scene.sent.iter().filter(|(link, _)| *link == LinkId(number));
        of_link.map(|(_, message)| message.clone()).collect()
    }

    fn show(&mut self, at: u64, token: u64, key: PublicKey) -> Result<(), NotLetIn> {
        let address = "10.0.0.9:9".to_owned();
        let shown = TokenShown { token: TokenId(token), node: node(77), key, address };
        self.decide(|head, out| head.on_token_shown(at, shown, out))
    }

    fn put_out(&mut self, id: impl std::fmt::Display, kind: PutOutKind) -> Result<NodeId, TrustError> {
        let (now, prefix) = (self.scene.now, prefix(id));
        self.decide(|head, out| head.on_put_out(now, (NOW, HOUR), &prefix, kind, out))
    }

    fn go_back(&mut self, before: u64, key: PublicKey) -> Result<(), String> {
        let address = "127.0.0.1:1".to_owned();
        let back = Returning { before: node(before), shown: key, wanted: key, node: node(90), address };
        self.decide(|head, out| head.on_returned(back, out))
    }

    /// The next life of the control process.
    fn restart(&mut self) {
        let mut restored = Restored::default();
        for (key, value) in &self.rows {
            restored.on_row(Table::Nodes, key, value).expect("a row");
        }
        self.scene = Scene::new(restored);
    }

    fn kinds(&self) -> Vec<EventKind> {
        self.events.iter().map(|event| event.kind).collect()
    }
}

#[test]
fn a_token_that_is_used_up_revoked_or_expired_lets_nobody_in_and_says_which() {
    let mut keeper = Keeper::new();
    for row in [token(0x1111_0000_0000_0000, Some(2), HOUR), token(0x2222_0000_0000_0000, None, HOUR)] {
        keeper.decide(|head, out| head.on_token_made(NOW, row, out));
    }
    let (twice, often) = (0x1111_0000_0000_0000, 0x2222_0000_0000_0000);
    for _ in 0..2 {
        assert_eq!(keeper.show(NOW, twice, key(9)), Ok(()));
        keeper.restart();
    }
    assert_eq!(keeper.show(NOW, twice, key(9)), Err(NotLetIn::Token(TokenState::UsedUp)));
    for _ in 0..5 {
        assert_eq!(keeper.show(NOW, often, key(9)), Ok(()));
    }
    assert_eq!(keeper.show(NOW + HOUR, often, key(9)), Err(NotLetIn::Token(TokenState::Expired)));
    let revoked = keeper.decide(|head, out| head.on_token_revoked(&prefix("2222"), out));
    assert_eq!(revoked, Ok(TokenId(often)));
    keeper.restart();
    assert_eq!(keeper.show(NOW, often, key(9)), Err(NotLetIn::Token(TokenState::Revoked)));
    assert_eq!(keeper.show(NOW, 5, key(9)), Err(NotLetIn::Forgotten), "a good token that is not on record");
    let unknown = keeper.decide(|head, out| head.on_token_revoked(&prefix("ffff"), out)).expect_err("none");
    assert!(unknown.to_string().contains("hint: `aktis token list`"), "{unknown}");
    let uses = |kind| keeper.kinds().iter().filter(|noted| **noted == kind).count();
    assert_eq!((uses(EventKind::TokenMade), uses(EventKind::TokenUsed)), (2, 7));
    assert_eq!(uses(EventKind::TokenRevoked), 1);
}

#[test]
fn tokens_have_an_end_and_useless_ones_make_room() {
    let mut keeper = Keeper::new();
    let make = |keeper: &mut Keeper, id, lifetime| {
        keeper.decide(|head, out| head.on_token_made(NOW, token(id, Some(1), lifetime), out))
    };
    let id_of = |number: u64| 0xaa00_0000_0000_0000 + number;
    for number in 0..TOKENS_MAX as u64 {
        make(&mut keeper, id_of(number), if number == 5 { HOUR - 1 } else { HOUR });
    }
    keeper.show(NOW, id_of(7), key(9)).expect("good");
    for (made, gone, why) in [(1, 7, "the one that is used up"), (2, 5, "the one that expires first")] {
        make(&mut keeper, made, HOUR);
        assert_eq!(keeper.show(NOW, id_of(gone), key(9)), Err(NotLetIn::Forgotten), "{why}");
        assert_eq!(keeper.scene.head.tokens().len(), TOKENS_MAX);
    }
    let later = token(3, None, 3 * HOUR);
    keeper.decide(|head, out| head.on_token_made(NOW + 2 * HOUR, later, out));
    assert_eq!(keeper.scene.head.tokens().len(), 1, "all others have expired");
    keeper.restart();
    assert_eq!(keeper.scene.head.tokens().len(), 1, "on disk as well");
}

#[test]
fn rotation_ends_all_tokens() {
    let mut keeper = Keeper::new();
    for row in [token(1, None, HOUR), token(2, Some(1), HOUR), token(3, None, 1)] {
        keeper.decide(|head, out| head.on_token_made(NOW, row, out));
    }
    keeper.show(NOW, 2, key(9)).expect("good");
    assert_eq!(
        keeper.decide(|head, out| head.on_tokens_rotated(NOW + 1, out)),
        1,
        "one was used up, one expired"
    );
    keeper.restart();
    assert_eq!(keeper.show(NOW, 1, key(9)), Err(NotLetIn::Forgotten));
    assert_eq!(keeper.kinds().last(), Some(&EventKind::Rotated));
}

#[test]
fn a_node_that_is_put_out_leaves_at_once_and_comes_back_by_nothing_that_it_has() {
    for kind in [PutOutKind::Expelled, PutOutKind::Revoked] {
        let mut keeper = Keeper::new();
        for number in [1, 2] {
            let heard = keeper.join(number, key(number));
            assert!(heard.iter().any(|message| matches!(message, FromControl::Welcome { .. })));
        }
        keeper.scene.sent.clear();
        assert_eq!(keeper.put_out(node(2), kind), Ok(node(2)));
        let told: Vec<_> = keeper.scene.sent.drain(..).collect();
        let left = |(link, message): &(LinkId, FromControl)| {
            *link == LinkId(1)
                && matches!(message, FromControl::NodeLeft { node: left, .. } if *left == node(2))
        };
        assert!(told.iter().any(left), "{told:?}");
        let is_told = |(link, message): &(LinkId, FromControl)| {
            *link == LinkId(2) && matches!(message, FromControl::Dismissed { .. })
        };
        assert!(told.iter().any(is_told), "{told:?}");
        let closed = |effect: &HeadEffect| matches!(effect, HeadEffect::Close { link: LinkId(2), .. });
        assert!(keeper.scene.others.iter().any(closed));

        keeper.restart();
        for (number, used) in [(2, key(2)), (2, key(5)), (3, key(2))] {
            let heard = keeper.join(number, used);
            assert!(matches!(&heard[..], [FromControl::Dismissed { .. }]), "{number}: {heard:?}");
            assert!(keeper.go_back(number, used).is_err_and(|why| why.contains(kind.word())));
        }
        assert!(keeper.scene.head.membership().epoch(node(2)).is_none());
        // Another machine, or another key of this one.
        let row = token(7, None, 100 * HOUR);
        keeper.decide(|head, out| head.on_token_made(NOW, row, out));
        assert_eq!(keeper.show(NOW, 7, key(6)), Ok(()));
        assert_eq!(keeper.show(NOW, 7, key(2)), Err(NotLetIn::PutOut(kind)));
        let dismissals = keeper.kinds().iter().filter(|kind| **kind == EventKind::Refused).count();
        assert_eq!(dismissals, 1, "whichever ids are tried with its key");
        keeper.join(2, key(2));
        let again = keeper.kinds().iter().filter(|kind| **kind == EventKind::Refused).count();
        assert_eq!(again, dismissals, "once a minute");
        keeper.scene.now.0 += 60_000_000;
        keeper.join(2, key(2));
        assert_eq!(keeper.kinds().iter().filter(|kind| **kind == EventKind::Refused).count(), dismissals + 1);

        // Its certificates have expired.
        keeper.decide(|head, out| head.on_token_made(NOW + HOUR, token(8, None, 100 * HOUR), out));
        let is_over = kind == PutOutKind::Expelled;
        assert_eq!(keeper.show(NOW + HOUR, 7, key(2)).is_ok(), is_over, "for good only if it was revoked");
    }
}

#[test]
fn only_one_node_is_put_out_and_only_one_that_is_known_unless_it_is_revoked() {
    let mut keeper = Keeper::new();
    let far = NodeId::from_words([0xabcd_0000_0000_0000, 1]);
    assert!(matches!(keeper.put_out(far, PutOutKind::Expelled), Err(TrustError::Unknown { .. })));
    assert_eq!(keeper.put_out(far, PutOutKind::Revoked), Ok(far), "whoever knows the whole id may");
    for number in [1, 2] {
        keeper.join(number, key(number));
    }
    let both = keeper.put_out("00000000", PutOutKind::Expelled).expect_err("two begin so");
    assert!(matches!(both, TrustError::Ambiguous { count: 2, .. }), "{both}");
    // It has left since, and its key is known.
    keeper.step(HeadInput::LinkEnded { node: node(2), link: LinkId(2), leaves: true });
    assert_eq!(keeper.put_out(node(2), PutOutKind::Revoked), Ok(node(2)));
    assert!(matches!(&keeper.join(3, key(2))[..], [FromControl::Dismissed { .. }]));
    keeper.put_out(node(2), PutOutKind::Expelled).expect("it is known");
    keeper.restart();
    assert!(keeper.go_back(3, key(2)).is_err_and(|why| why.contains("revoked")), "an expulsion is no pardon");
}

#[test]
fn a_node_tells_of_itself_only_and_of_nothing_that_the_head_does() {
    let event = |subject: NodeId, kind| {
        let (at_microseconds, subject, text) = (7, subject.into(), "it happened".to_owned());
        ToControl::Asked {
            number: 1,
            question: Question::Change(vec![Change::EventNoted(Event {
                at_microseconds,
                subject,
                kind,
                text,
            })]),
        }
    };
    let mut scene = Scene::new(Restored::default());
    scene.join(1, 1);
    for (message, is_refused) in [
        (event(node(1), EventKind::Attached), false),
        (event(node(2), EventKind::Attached), true),
        (event(node(1), EventKind::TokenUsed), true),
    ] {
        scene.others.clear();
        scene.say(1, 1, message);
        let is_closed = scene.others.iter().any(|effect| matches!(effect, HeadEffect::Close { .. }));
        assert_eq!(is_closed, is_refused, "{:?}", scene.others);
    }
}

/// Whatever the order of uses, revocations and restarts: all orders of a length.
#[test]
fn no_order_of_uses_lets_in_one_machine_too_many() {
    const STEPS: u32 = 6;
    for order in 0..3_u32.pow(STEPS) {
        let mut keeper = Keeper::new();
        let row = token(0xabcd, Some(2), HOUR);
        keeper.decide(|head, out| head.on_token_made(NOW, row, out));
        let (mut let_in, mut is_revoked) = (0, false);
        for step in 0..STEPS {
            match order / 3_u32.pow(step) % 3 {
                0 => keeper.restart(),
                1 => {
                    is_revoked = true;
                    let id = prefix(TokenId(0xabcd));
                    keeper.decide(|head, out| head.on_token_revoked(&id, out)).expect("it is there");
                }
                _ => {
                    let is_let_in = keeper.show(NOW, 0xabcd, key(9)).is_ok();
                    assert!(!(is_let_in && is_revoked), "order {order}");
                    let_in += u32::from(is_let_in);
                }
            }
        }
        assert!(let_in <= 2, "order {order}");
    }
}
