//! Names, errors and output that try to command the terminal of whoever looks at them.

use crate::fixed::Fixed;
use crate::snapshot::Transcript;
use aktis_protocol::admin::{ClusterStatus, Rows};
use aktis_protocol::text::is_order;
use aktis_protocol::{Amount, GroupState, Resources};

/// What each would do, raw: set the title, clear the screen, overwrite the line, ring, turn letters around, begin a row.
const HOSTILE: &[&str] = &[
    "evil\x1b]0;PWNED\x1b\\",
    "\x1b[2J\x1b[31mred",
    "over\rwritten\x08\x07\x7f",
    "C1 \u{9b}31m \u{90}q\u{9c}",
    "gnp.\u{202e}exe \u{2066}isolate\u{2069} \u{200f}\u{061c}",
    "line\u{2028}paragraph\u{2029}",
];
const TWO_LINES: &str = "name\nFAKE_ROW  alive";

/// All commands that show what others have named or printed.
const COMMANDS: &[&str] = &[
    "status",
    "list nodes",
    "list tasks",
    "list actors",
    "list objects",
    "list workers",
    "list jobs",
    "list programs",
    "list groups",
    "explain 5a5a",
    "logs",
    "audit",
];

pub(crate) fn spoil_status(status: &mut ClusterStatus, text: &str) {
    status.address = Some(text.into());
    status.head_lost = Some(text.into());
    for node in status.nodes.iter_mut().chain(&mut status.dead) {
        (node.host, node.address, node.version) = (text.into(), text.into(), text.into());
        node.labels = [(text.to_owned(), text.to_owned())].into();
        node.resources.iter_mut().for_each(|resource| resource.name = text.into());
        node.reason = node.reason.as_ref().map(|_| text.into());
    }
    for row in &mut status.demand {
        (row.resources, row.reason) = (Resources::none().with(text, Amount::ONE), text.into());
    }
}

pub(crate) fn spoil_rows(rows: &mut Rows, text: &str) {
    match rows {
        Rows::Tasks(rows) => rows
            .iter_mut()
            .for_each(|task| (task.row.name, task.row.error) = (text.into(), Some(text.into()))),
        Rows::Actors(rows) => rows.iter_mut().for_each(|actor| {
            (actor.row.type_name, actor.row.name) = (text.into(), Some(text.into()));
            actor.row.reason = text.into();
        }),
        Rows::Workers(rows) => rows
            .iter_mut()
            .for_each(|worker| worker.row.resources = Resources::none().with(text, Amount::ONE)),
        Rows::Jobs(rows) => rows.iter_mut().for_each(|job| job.row.command = text.into()),
        Rows::Programs(rows) => rows.iter_mut().for_each(|program| {
            (program.row.version, program.row.architecture) = (Some(text.into()), text.into());
        }),
        Rows::Groups(rows) => rows.iter_mut().for_each(|group| {
            (group.row.name, group.row.state) = (Some(text.into()), GroupState::Pending(text.into()));
            group.row.bundles = vec![Resources::none().with(text, Amount::ONE)];
        }),
        // Their rows have no text of their own, or come spoilt with the status.
        Rows::Objects(_) | Rows::Nodes(_) => {}
    }
}

/// Both outputs of a command.
fn printed(transcript: &Transcript, line: &str) -> String {
    let output = transcript.command().args(line.split(' ')).output().expect("it runs");
    String::from_utf8([output.stdout, output.stderr].concat()).expect("text")
}

#[test]
fn no_command_passes_orders_on_to_a_terminal() {
    for text in HOSTILE {
        let transcript = Transcript::with(Fixed::Hostile(text));
        for command in COMMANDS {
            for line in [(*command).to_owned(), format!("{command} --json")] {
                let printed = printed(&transcript, &line);
                assert!(!printed.is_empty(), "{line} prints something");
                let order = printed.chars().find(|character| *character != '\n' && is_order(*character));
                assert_eq!(order, None, "{line} of {text:?}: {printed:?}");
            }
        }
    }
}

#[test]
fn no_name_begins_a_line_of_its_own() {
    let transcript = Transcript::with(Fixed::Hostile(TWO_LINES));
    // The daemon marks the lines of an explanation, of which it knows which are its own.
    for command in COMMANDS.iter().filter(|command| !command.starts_with("explain")) {
        let printed = printed(&transcript, command);
        let forged = printed.lines().find(|line| line.starts_with("FAKE_ROW"));
        assert_eq!(forged, None, "{command}: {printed}");
    }
}

#[test]
fn orders_in_json_are_escapes_that_programs_read_back() {
    let transcript = Transcript::with(Fixed::Hostile(HOSTILE[4]));
    let document: serde_json::Value =
        serde_json::from_str(&printed(&transcript, "list tasks --json")).expect("JSON");
    assert_eq!(document["tasks"][0]["name"], HOSTILE[4]);
}
