//! Members are processes, and some are killed: the others are told which one, at once, and make a new group.

mod support;

use aktis_collective::{Card, CollectiveError, Group, Options, ReduceOp, Seat};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use support::LOOPBACK;

/// Tells this program that it is a member, and where.
const PLACE: &str = "AKTIS_TEST_MEMBER";
const PATIENCE: Duration = Duration::from_secs(20);

/// A process that does what its standard input says, line by line.
struct Member {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Member {
    fn start(place: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "members_are_processes", "--nocapture"]).env(PLACE, place);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // The test runner prints lines of its own.
                if let Some((_, line)) = line.split_once("member:") {
                    let _ = sender.send(line.to_owned());
                }
            }
        });
        Self { child, input, lines }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("it listens");
    }

    fn hear(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("an answer in time")
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test of its own: what the processes run.
#[test]
fn members_are_processes() {
    let Ok(place) = std::env::var(PLACE) else { return };
    let mut seat = None;
    let mut group: Option<Group> = None;
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let (verb, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match verb {
            "open" | "regroup" => {
                let opened = match group.take() {
                    Some(broken) if verb == "regroup" => broken.regroup(),
                    _ => Seat::open(&place, Some(LOOPBACK)),
                }
                .expect("a seat");
                println!("member:{}", hex(&opened.card().to_bytes()));
                seat = Some(opened);
            }
            "join" => {
                let mut words = rest.split(' ');
                let rank = words.next().and_then(|word| word.parse().ok()).expect("a rank");
                let cards: Vec<Card> =
                    words.map(|word| Card::from_bytes(&bytes(word)).expect("a card")).collect();
                let joined = seat.take().expect("open before").join(rank, &cards, Options::default());
                match joined {
                    Ok(joined) => {
                        println!("member:joined");
                        group = Some(joined);
                    }
                    Err(error) => println!("member:{}", error.to_string().replace('\n', " ")),
                }
            }
            "sum" => {
                let mut array = vec![1.0_f32; rest.parse().expect("a length")];
                let group = group.as_mut().expect("joined before");
                println!(
                    "member:{}",
                    match group.all_reduce(&mut array, ReduceOp::Sum) {
                        Ok(()) => format!("{}", array[array.len() - 1]),
                        Err(CollectiveError::MemberDied { rank, reason }) => format!("rank {rank}: {reason}"),
                        Err(error) => format!("{error:?}"),
                    }
                );
            }
            other => panic!("{other}"),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal"))
        .collect()
}

fn form(members: &mut [Member], seat: &str) {
    members.iter_mut().for_each(|member| member.say(seat));
    let cards: Vec<String> = members.iter().map(Member::hear).collect();
    for (rank, member) in members.iter_mut().enumerate() {
        member.say(&format!("join {rank} {}", cards.join(" ")));
    }
    members.iter().for_each(|member| assert_eq!(member.hear(), "joined"));
}

fn sum(members: &mut [Member], length: usize) -> Vec<String> {
    members.iter_mut().for_each(|member| member.say(&format!("sum {length}")));
    members.iter().map(Member::hear).collect()
}

/// Kills one member while the others wait for it, or all work; the others are told, and go on without it.
fn kill_one(places: &[&str], victim: usize, length: usize, in_the_middle: bool) {
    let mut members: Vec<Member> = places.iter().map(|place| Member::start(place)).collect();
    form(&mut members, "open");
    assert_eq!(sum(&mut members, 100), vec![places.len().to_string(); places.len()]);
    let mut dead = members.remove(victim);
    if in_the_middle {
        dead.say(&format!("sum {length}"));
    }
    members.iter_mut().for_each(|member| member.say(&format!("sum {length}")));
    dead.child.kill().expect("killed");
    let began = Instant::now();
    for member in &members {
        let answer = member.hear();
        // If it was quick, it is missed in the next operation.
        let is_done = in_the_middle && answer == places.len().to_string();
        assert!(is_done || answer.starts_with(&format!("rank {victim}: ")), "{places:?} {victim}: {answer}");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "they were told after {:?}", began.elapsed());
    form(&mut members, "regroup");
    assert_eq!(sum(&mut members, length), vec![(places.len() - 1).to_string(); places.len() - 1]);
}

#[test]
fn all_others_are_told_which_member_was_killed_on_one_machine() {
    for victim in [0, 2] {
        kill_one(&["a", "a", "a"], victim, 1000, false);
    }
}

#[test]
fn all_others_are_told_which_member_was_killed_between_machines() {
    for victim in [0, 1, 3] {
        kill_one(&["a", "b", "b", "c", "a"], victim, 300_000, false);
    }
}

#[test]
fn a_member_may_die_in_the_middle_of_an_operation() {
    for round in 0..3 {
        kill_one(&["a", "a", "a"], round, 40_000_000, true);
        kill_one(&["a", "b", "b"], round, 4_000_000, true);
    }
}

#[test]
fn a_member_that_dies_before_it_joins_is_named() {
    let mut members: Vec<Member> = (0..3).map(|_| Member::start("a")).collect();
    members.iter_mut().for_each(|member| member.say("open"));
    let cards: Vec<String> = members.iter().map(Member::hear).collect();
    let mut dead = members.remove(1);
    dead.child.kill().expect("killed");
    dead.child.wait().expect("ended");
    members[0].say(&format!("join 0 {}", cards.join(" ")));
    assert!(members[0].hear().contains("rank 1 is gone"));
}
