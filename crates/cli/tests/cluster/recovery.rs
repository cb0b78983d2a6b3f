//! Values whose only copy died with a machine: made again by running their tasks again, when somebody wants them.

use crate::machines::{Cluster, PATIENCE, until};
use aktis::Error;
use aktis::prelude::*;
use std::path::Path;

const BYTES: usize = 2 << 20;

/// Notes that a task has run.
fn note(board: &str, name: &str) {
    let place = Path::new(board).join(format!("{name}-{}", std::process::id()));
    let unique = (0..).map(|number| place.with_extension(number.to_string()));
    let created = |path: &std::path::PathBuf| std::fs::File::create_new(path).is_ok();
    unique.into_iter().find(created).expect("a place");
}

/// How often tasks have run whose notes begin like this.
fn runs(cluster: &Cluster, name: &str) -> usize {
    let begins = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(name);
    std::fs::read_dir(cluster.board()).expect("a directory").flatten().filter(begins).count()
}

#[remote]
fn fill(board: String, number: u8) -> Vec<u8> {
    note(&board, &format!("fill-{number}"));
    vec![number; BYTES]
}

#[remote]
fn increased(board: String, bytes: Vec<u8>) -> Vec<u8> {
    note(&board, "increased");
    bytes.into_iter().map(|byte| byte + 1).collect()
}

#[remote]
fn first(bytes: Vec<u8>) -> u8 {
    bytes[0]
}

/// Submits tasks, waits until it may go on, and gives what they gave.
#[remote]
fn parent(board: String) -> aktis::Result<Vec<u8>> {
    let children: Vec<_> = (0..3).map(|number| fill::remote(board.clone(), number)).collect();
    let (children, _) = aktis::wait(children, 3, PATIENCE)?;
    note(&board, "waits");
    until("it may go on", || Path::new(&board).join("go").exists());
    children.iter().map(|child| Ok(child.get()?[0])).collect()
}

#[remote]
fn keeps(board: String) -> aktis::Result<Vec<ObjectRef<Vec<u8>>>> {
    note(&board, "keeps");
    Ok(vec![aktis::put(vec![7_u8; BYTES])?])
}

/// Waits until all have values.
fn all_ready<T>(session: &Session, objects: Vec<ObjectRef<T>>) -> Vec<ObjectRef<T>> {
    let count = objects.len();
    let (ready, rest) = session.wait(objects, count, PATIENCE).unwrap();
    assert!(rest.is_empty());
    ready
}

#[test]
fn results_that_died_with_their_machine_are_made_again() {
    let mut cluster = Cluster::new(0, &[2]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let made: Vec<_> = (0..8).map(|number| fill::remote(cluster.board(), number)).collect();
    let made = all_ready(&session, made);
    assert_eq!(runs(&cluster, "fill"), 8);
    cluster.machines[1].kill();
    cluster.join(2);
    for (number, object) in made.iter().enumerate() {
        assert_eq!(object.get_timeout(PATIENCE).unwrap(), vec![number as u8; BYTES]);
    }
    for (number, object) in made.iter().enumerate() {
        assert_eq!(first::remote(object.clone()).get_timeout(PATIENCE).unwrap(), number as u8);
    }
    assert_eq!(runs(&cluster, "fill"), 16, "each once more, and only once");
    drop(made);
    cluster.machines.remove(1);
    cluster.wait_until_empty();
}

#[test]
fn inputs_that_are_gone_are_made_again_first() {
    let mut cluster = Cluster::new(0, &[1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let mut last = fill::remote(cluster.board(), 0);
    for _ in 0..5 {
        last = increased::remote(cluster.board(), last);
    }
    let mut last = all_ready(&session, vec![last]);
    let last = last.pop().unwrap();
    cluster.machines[1].kill();
    cluster.join(1);
    assert_eq!(last.get_timeout(PATIENCE).unwrap(), vec![5; BYTES]);
    assert_eq!((runs(&cluster, "fill"), runs(&cluster, "increased")), (2, 10));
}

#[test]
fn a_task_whose_input_is_gone_gets_it_made_again_with_a_single_cpu() {
    let mut cluster = Cluster::new(0, &[1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let made: Vec<_> = (0..3).map(|number| fill::remote(cluster.board(), number)).collect();
    let made = all_ready(&session, made);
    cluster.machines[1].kill();
    cluster.join(1);
    let firsts: Vec<_> = made.iter().map(|object| first::remote(object.clone())).collect();
    for (number, object) in firsts.into_iter().enumerate() {
        assert_eq!(object.get_timeout(PATIENCE).unwrap(), number as u8);
    }
    assert_eq!(runs(&cluster, "fill"), 6);
}

#[test]
fn a_value_is_made_again_as_often_as_its_task_may_be_retried() {
    let mut cluster = Cluster::new(0, &[1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let made = fill::options().retries(1).remote(cluster.board(), 3);
    let made = all_ready(&session, vec![made]).pop().unwrap();
    cluster.machines[1].kill();
    cluster.join(1);
    assert_eq!(first::remote(made.clone()).get_timeout(PATIENCE).unwrap(), 3);
    cluster.machines[2].kill();
    cluster.join(1);
    let error = made.get_timeout(PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Lost(_)), "{error:?}");
    assert!(error.to_string().contains("no retry is left after 2 runs"), "{error}");
    assert_eq!(runs(&cluster, "fill"), 2);
}

#[test]
fn what_a_task_has_submitted_is_made_again_for_it() {
    let mut cluster = Cluster::new(1, &[1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let parent = parent::remote(cluster.board());
    until("its children are done", || runs(&cluster, "waits") == 1);
    let before = runs(&cluster, "fill");
    cluster.machines[1].kill();
    std::fs::write(Path::new(&cluster.board()).join("go"), "").expect("written");
    assert_eq!(parent.get_timeout(PATIENCE).unwrap(), [0, 1, 2]);
    assert!(before >= 3 && runs(&cluster, "fill") <= 2 * before);
}

#[test]
fn a_value_that_was_put_on_a_machine_that_died_is_lost_with_words() {
    let mut cluster = Cluster::new(0, &[1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let inner = keeps::remote(cluster.board()).get_timeout(PATIENCE).unwrap();
    cluster.machines[1].kill();
    cluster.join(1);
    let error = inner[0].get_timeout(PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Lost(_)), "{error:?}");
}
