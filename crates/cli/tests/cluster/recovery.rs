//! Values whose only copy died with a machine: made again by running their tasks again, when somebody wants them.

use crate::Counter;
use crate::machines::{Cluster, PATIENCE, until};
use aktis::Error;
use aktis::prelude::*;
use std::path::Path;

pub(crate) const BYTES: usize = 2 << 20;

/// Notes that a task has run.
pub(crate) fn note(board: &str, name: &str) {
    let place = Path::new(board).join(format!("{name}-{}", std::process::id()));
    let unique = (0..).map(|number| place.with_extension(number.to_string()));
    let created = |path: &std::path::PathBuf| std::fs::File::create_new(path).is_ok();
    unique.into_iter().find(created).expect("a place");
}

/// How often tasks have run whose notes begin like this.
pub(crate) fn runs(cluster: &Cluster, name: &str) -> usize {
    let begins = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(name);
    std::fs::read_dir(cluster.board()).expect("a directory").flatten().filter(begins).count()
}

#[remote]
pub(crate) fn fill(board: String, number: u8) -> Vec<u8> {
    note(&board, &format!("fill-{number}"));
    vec![number; BYTES]
}

#[remote]
pub(crate) fn increased(board: String, bytes: Vec<u8>) -> Vec<u8> {
    note(&board, "increased");
    bytes.into_iter().map(|byte| byte + 1).collect()
}

/// Adds both up.
#[remote]
fn sum(left: Vec<u8>, right: Vec<u8>) -> Vec<u8> {
    left.into_iter().zip(right).map(|(left, right)| left + right).collect()
}

/// Adds all up that its arguments refer to.
#[remote]
fn total(board: String, parts: Vec<ObjectRef<Vec<u8>>>) -> aktis::Result<Vec<u8>> {
    note(&board, "total");
    let mut total = vec![0; BYTES];
    for part in parts {
        total.iter_mut().zip(part.get()?).for_each(|(total, byte)| *total += byte);
    }
    Ok(total)
}

#[remote]
fn repeated(number: u64) -> Vec<u8> {
    vec![number as u8; BYTES]
}

#[remote]
pub(crate) fn first(bytes: Vec<u8>) -> u8 {
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
pub(crate) fn all_ready<T>(session: &Session, objects: Vec<ObjectRef<T>>) -> Vec<ObjectRef<T>> {
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

/// A cluster whose only member with CPUs has died and was followed by another.
fn replace_member(cluster: &mut Cluster) {
    let last = cluster.machines.len() - 1;
    cluster.machines[last].kill();
    cluster.join(1);
}

#[test]
fn what_an_input_was_made_from_is_made_again_before_it() {
    let mut cluster = Cluster::new(0, &[1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let made = fill::remote(cluster.board(), 1);
    let more = increased::remote(cluster.board(), made.clone());
    let both = sum::remote(made, more);
    let both = all_ready(&session, vec![both]).pop().unwrap();
    replace_member(&mut cluster);
    assert_eq!(both.get_timeout(PATIENCE).unwrap(), vec![3; BYTES]);
    assert_eq!((runs(&cluster, "fill"), runs(&cluster, "increased")), (2, 2));
}

#[test]
fn small_arguments_are_kept_for_another_run_whoever_has_made_them() {
    let mut cluster = Cluster::new(0, &[1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let counter = Counter::options().remote(3);
    let small = all_ready(&session, vec![session.put(2_u64).unwrap(), counter.add(1)]);
    let made = small.iter().map(|number| repeated::remote(number.clone())).collect();
    let made = all_ready(&session, made);
    // Those who have made them, and all other references, may go.
    drop((small, counter));
    replace_member(&mut cluster);
    for (object, number) in made.iter().zip([2, 4]) {
        assert_eq!(object.get_timeout(PATIENCE).unwrap(), vec![number; BYTES]);
    }
}

#[test]
fn references_inside_arguments_are_good_for_another_run() {
    let mut cluster = Cluster::new(0, &[1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let parts: Vec<_> = (1..4).map(|number| fill::remote(cluster.board(), number)).collect();
    let whole = total::remote(cluster.board(), all_ready(&session, parts));
    let whole = all_ready(&session, vec![whole]).pop().unwrap();
    replace_member(&mut cluster);
    assert_eq!(whole.get_timeout(PATIENCE).unwrap(), vec![6; BYTES]);
    assert_eq!((runs(&cluster, "fill"), runs(&cluster, "total")), (6, 2));
}

#[test]
fn large_arguments_passed_by_value_are_kept_within_a_bound() {
    let mut cluster = Cluster::new(0, &[1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    // The store has 128 MiB: an eighth of it keeps seven arguments of 2 MiB.
    let made = (0..10).map(|number| increased::remote(cluster.board(), vec![number; BYTES]));
    let made = all_ready(&session, made.collect());
    replace_member(&mut cluster);
    assert_eq!(made[9].get_timeout(PATIENCE).unwrap(), vec![10; BYTES]);
    assert_eq!(made[4].get_timeout(PATIENCE).unwrap(), vec![5; BYTES]);
    let error = made[0].get_timeout(PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Lost(_)), "{error:?}");
    assert!(error.to_string().contains("got a large argument by value"), "{error}");
    assert_eq!(runs(&cluster, "increased"), 12);
    drop(made);
    cluster.machines.remove(1);
    cluster.wait_until_empty();
}

/// Gives large items, and a small one in the second place.
#[remote(stream)]
fn items(board: String, count: u8) -> impl Iterator<Item = Vec<u8>> {
    note(&board, "items");
    (0..count).map(|number| vec![number; if number == 1 { 10 } else { BYTES }])
}

#[test]
fn lost_items_of_a_stream_are_reconstructed_by_another_run() {
    let mut cluster = Cluster::new(0, &[1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let mut stream = items::remote(cluster.board(), 4);
    let taken: Vec<_> = stream.by_ref().map(|item| item.unwrap()).collect();
    let dependent = first::remote(taken[3].clone());
    assert_eq!(dependent.get_timeout(PATIENCE).unwrap(), 3);
    replace_member(&mut cluster);
    assert_eq!(taken[2].get_timeout(PATIENCE).unwrap(), vec![2; BYTES]);
    assert_eq!(taken[0].get_timeout(PATIENCE).unwrap(), vec![0; BYTES]);
    assert_eq!(taken[1].get_timeout(PATIENCE).unwrap(), vec![1; 10]);
    assert_eq!(runs(&cluster, "items"), 2, "one run gives all of them");
    drop(stream);
    replace_member(&mut cluster);
    // The stream has ended and nobody has it any more.
    assert_eq!(first::remote(taken[3].clone()).get_timeout(PATIENCE).unwrap(), 3);
    assert_eq!(runs(&cluster, "items"), 3);
    drop(taken);
    cluster.machines.drain(1..3);
    cluster.wait_until_empty();
}

#[test]
fn an_endless_stream_runs_again_up_to_its_last_item() {
    let mut cluster = Cluster::new(0, &[1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let mut stream = items::options().stream_ahead(1).remote(cluster.board(), u8::MAX);
    let taken: Vec<_> = stream.by_ref().take(3).map(|item| item.unwrap()).collect();
    drop(stream);
    replace_member(&mut cluster);
    assert_eq!(taken[2].get_timeout(PATIENCE).unwrap(), vec![2; BYTES]);
    assert_eq!(first::remote(taken[0].clone()).get_timeout(PATIENCE).unwrap(), 0);
    // The machine may have died before the first run had heard that nobody wants more items: that is one run more.
    assert!((2..=3).contains(&runs(&cluster, "items")));
}

/// Gives three items in its first run, and one in each other.
#[remote(stream)]
fn fewer_items(board: String) -> impl Iterator<Item = Vec<u8>> {
    let again = Path::new(&board).join("again");
    let count = if again.exists() { 1 } else { 3 };
    std::fs::write(again, "").expect("written");
    (0..count).map(|number| vec![number; BYTES])
}

#[test]
fn a_stream_that_gives_fewer_items_again_says_so() {
    let mut cluster = Cluster::new(0, &[1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let taken: Vec<_> = fewer_items::remote(cluster.board()).map(|item| item.unwrap()).collect();
    replace_member(&mut cluster);
    let error = taken[2].get_timeout(PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Lost(_)), "{error:?}");
    assert!(error.to_string().contains("item 2 was lost"), "{error}");
    assert!(error.to_string().contains("gave 1 items when it ran again"), "{error}");
}

#[test]
fn a_reference_that_came_back_in_a_value_lives_as_long_as_it_does_when_its_value_is_made_again() {
    let mut cluster = Cluster::new(0, &[1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let made = fill::remote(cluster.board(), 1);
    let more = increased::remote(cluster.board(), made.clone());
    let more = all_ready(&session, vec![more]).pop().unwrap();
    let list = session.put(vec![made]).unwrap();
    let mut back = list.get_timeout(PATIENCE).unwrap();
    drop(list);
    let back = back.pop().unwrap();
    replace_member(&mut cluster);
    assert_eq!(more.get_timeout(PATIENCE).unwrap(), vec![2; BYTES]);
    drop(more);
    assert_eq!(first::remote(back.clone()).get_timeout(PATIENCE).unwrap(), 1);
    assert_eq!(back.get_timeout(PATIENCE).unwrap(), vec![1; BYTES]);
    assert_eq!((runs(&cluster, "fill"), runs(&cluster, "increased")), (2, 2));
    drop(back);
    cluster.machines.remove(1);
    cluster.wait_until_empty();
}

#[test]
fn a_task_is_run_again_though_its_queue_was_given_up() {
    let mut cluster = Cluster::new(0, &[1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let made = fill::options().cpus(0.5).remote(cluster.board(), 7);
    let made = all_ready(&session, vec![made]).pop().unwrap();
    for number in 1..=40 {
        let cpus = f64::from(number) / 100.0;
        let one = first::options().cpus(cpus).remote(vec![number as u8]);
        assert_eq!(one.get_timeout(PATIENCE).unwrap(), number as u8);
    }
    replace_member(&mut cluster);
    assert_eq!(made.get_timeout(PATIENCE).unwrap(), vec![7; BYTES]);
    assert_eq!(runs(&cluster, "fill"), 2);
}

#[test]
fn a_value_to_which_only_another_value_refers_is_made_again() {
    let mut cluster = Cluster::new(0, &[1]);
    let session = cluster.head().session();
    let _entered = session.enter();
    let made = all_ready(&session, (1..3).map(|number| fill::remote(cluster.board(), number)).collect());
    let list = session.put(made).unwrap();
    replace_member(&mut cluster);
    for (object, number) in list.get_timeout(PATIENCE).unwrap().iter().zip(1..) {
        assert_eq!(object.get_timeout(PATIENCE).unwrap(), vec![number; BYTES]);
    }
    assert_eq!(runs(&cluster, "fill"), 4);
    drop(list);
    cluster.machines.remove(1);
    cluster.wait_until_empty();
}
