//! The worker in the stories: it does as [`MANNERS`](crate::MANNERS) says.

use aktis_node::{ForkOutcome, WorkerLink, serve_template};
use aktis_protocol::control::{FromNode, SharedValue, ToNode};
use aktis_protocol::{ObjectId, ProcessSlot, SessionId, TaskId};
use std::process::Command;

/// An object whose value a worker tells when it has its first lease.
pub(crate) fn sign_of_life(session: SessionId) -> ObjectId {
    TaskId::root(session).child(77).returns(0)
}

/// An object whose value a forked worker in this place tells when it has started.
pub(crate) fn sign_of_place(session: SessionId, process: ProcessSlot) -> ObjectId {
    TaskId::root(session).child(100 + u64::from(process.0)).returns(0)
}

/// What a template does: as [`MANNERS`](crate::MANNERS) says, too.
pub(crate) fn be_template() -> ! {
    let manners = std::env::var(crate::MANNERS).unwrap_or_default();
    eprintln!("a template's words");
    let fork = || match manners.as_str() {
        "cannot fork" => Err(std::io::Error::other("there is no fork today")),
        "dies of the fork" => std::process::exit(7),
        _ => Ok(aktis_store::fork::fork()?.map_or(ForkOutcome::Child, ForkOutcome::Parent)),
    };
    let forked = serve_template(|| (), fork, || ());
    let worker = forked.expect("a worker or nothing");
    println!("set up as {:?} with {:?}", worker.environment, worker.variables);
    work(&worker.link)
}

/// How many descriptors a child of this process finds.
pub(crate) fn inherited_descriptors() -> usize {
    let listing = Command::new("ls").arg("/proc/self/fd").output().expect("ls");
    String::from_utf8_lossy(&listing.stdout).split_whitespace().count()
}

/// Works until the end of the process.
pub(crate) fn work(link: &WorkerLink) -> ! {
    let manners = std::env::var(crate::MANNERS).unwrap_or_default();
    println!("hello from a worker");
    eprintln!("these are my words");
    match manners.as_str() {
        "exits" => std::process::exit(3),
        "starts processes" => {
            println!("a child process has {} descriptors", inherited_descriptors());
            println!(
                "the input holds {} bytes",
                std::io::read_to_string(std::io::stdin()).expect("read").len()
            );
        }
        "chatters" => drop(std::thread::spawn(|| {
            loop {
                println!("{}", "chatter ".repeat(1000));
            }
        })),
        _ => {}
    }
    link.send(&ToNode::Started).expect("the node listens");
    if std::env::var_os(crate::TEMPLATE).is_some() {
        tell(link, sign_of_place(link.session(), link.slot()));
    }
    let mut told = false;
    while let Some(message) = link.receive() {
        match message {
            FromNode::LeaseGranted { .. } if !told => {
                told = true;
                if manners == "impersonates" {
                    crate::impostor::speak_as_the_driver(link.session());
                }
                tell(link, sign_of_life(link.session()));
            }
            FromNode::Shutdown if manners != "deaf" => std::process::exit(0),
            _ => {}
        }
    }
    std::process::exit(1)
}

fn tell(link: &WorkerLink, object: ObjectId) {
    let bytes = std::process::id().to_le_bytes().to_vec();
    let value = Some(SharedValue::Inline { bytes, contains: false });
    link.send(&ToNode::Escaped { object, value }).expect("the node listens");
}
