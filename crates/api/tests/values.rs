//! Values that serde's formats of this kind cannot carry, values that are read as another type, and rows of numbers.

mod support;

use aktis::Error;
use aktis::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use support::start;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Request {
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u8>,
    page: u8,
    body: Vec<u8>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Command {
    Fetch {
        #[serde(skip_serializing_if = "Vec::is_empty")]
        names: Vec<String>,
        count: u8,
    },
}

#[remote]
fn echo(request: Request) -> Request {
    request
}

#[remote]
fn without_limit(page: u8) -> Request {
    Request { limit: None, page, body: vec![9, 2, 5, 6] }
}

#[remote]
fn count_of(command: Command) -> u8 {
    let Command::Fetch { count, .. } = command;
    count
}

fn refused<T: std::fmt::Debug>(outcome: aktis::Result<T>) -> String {
    match outcome {
        Err(Error::Codec(message)) => message,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn a_value_that_leaves_a_field_out_is_refused_in_words() {
    let session = start();
    let _entered = session.enter();
    let whole = || Request { limit: Some(3), page: 1, body: vec![9, 2, 5, 6] };
    assert_eq!(echo::remote(whole()).get().unwrap(), whole());

    let part = || Request { limit: None, ..whole() };
    let argument = refused(echo::remote(part()).get());
    assert!(argument.contains("argument `request`") && argument.contains("`Request`"), "{argument}");
    for message in [argument, refused(without_limit::remote(1).get()), refused(aktis::put(part()))] {
        assert!(message.contains("leaves its field `limit` out"), "{message}");
        assert!(message.contains("hint: drop `skip_serializing_if`"), "{message}");
    }
    let message = refused(count_of::remote(Command::Fetch { names: Vec::new(), count: 4 }).get());
    assert!(message.contains("`Command::Fetch` leaves its field `names` out"), "{message}");
    let command = Command::Fetch { names: vec!["a".to_owned()], count: 4 };
    assert_eq!(count_of::remote(command).get().unwrap(), 4);
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Span(#[serde(skip_serializing_if = "Option::is_none")] Option<u8>, u8, u8, u8);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Step {
    Turn(#[serde(skip_serializing_if = "Option::is_none")] Option<u8>, u8, u8, u8),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Cached {
    #[serde(skip_serializing, default)]
    total: u8,
    parts: (u8, u8),
}

#[remote]
fn end_of(span: Span) -> u8 {
    span.3
}

#[test]
fn a_tuple_that_left_a_field_out_is_refused_when_it_is_read() {
    let session = start();
    let _entered = session.enter();
    let whole = Span(Some(7), 1, 2, 3);
    assert_eq!(aktis::put(whole).unwrap().get().unwrap(), Span(Some(7), 1, 2, 3));

    // Its bytes begin like those of Span(Some(2), 3, ..).
    let messages = [
        refused(aktis::put(Span(None, 1, 2, 3)).unwrap().get()),
        refused(aktis::put(Span(None, 0, 0, 0)).unwrap().get()),
        refused(aktis::put(Step::Turn(None, 1, 2, 3)).unwrap().get()),
        refused(aktis::put(vec![Cached { total: 5, parts: (0, 1) }]).unwrap().get()),
        refused(end_of::remote(Span(None, 1, 2, 3)).get()),
    ];
    for message in &messages {
        assert!(message.contains("hint: `skip_serializing_if` in a tuple struct"), "{message}");
    }
    assert!(messages[4].contains("argument `span`"), "{}", messages[4]);
}

#[remote]
fn sum(numbers: Vec<i64>) -> i64 {
    numbers.iter().sum()
}

#[remote]
fn cast_inside(reference: ObjectRef<()>) -> Vec<bool> {
    let reads = |outcome: aktis::Result<u64>| outcome.is_ok();
    vec![reads(reference.clone().cast::<u64>().get()), reference.cast::<i64>().get().is_ok()]
}

#[remote]
fn fallible(number: u64) -> Result<u64, String> {
    Ok(number)
}

#[test]
fn a_reference_that_is_cast_reads_its_own_type_only() {
    let session = start();
    let _entered = session.enter();
    for length in [0, 3, 100_000] {
        let unsigned = aktis::put(vec![u64::MAX; length]).unwrap();
        let message = refused(unsigned.clone().cast::<Vec<i64>>().get());
        assert!(message.contains("Vec<i64>") && message.contains("Vec<u64>"), "{message}");
        assert!(message.contains("hint:"), "{message}");
        let message = refused(sum::remote(unsigned.clone().cast::<Vec<i64>>()).get());
        assert!(message.contains("argument `numbers`") && message.contains("Vec<i64>"), "{message}");
        assert_eq!(unsigned.cast::<()>().cast::<Vec<u64>>().get().unwrap().len(), length);
    }
    let unsigned = aktis::put(1_u64).unwrap();
    assert!(unsigned.clone().cast::<i64>().get().is_err());
    assert_eq!(cast_inside::remote(vec_free(unsigned)).get().unwrap(), [true, false]);
    assert_eq!(fallible::remote(5).cast::<()>().cast::<u64>().get().unwrap(), 5, "a result's own value");
    let array = aktis::put(Array::from([1.0_f32; 1000])).unwrap();
    assert!(array.clone().cast::<Vec<f32>>().get().is_err());
    assert_eq!(array.cast::<()>().cast::<Array<f32>>().get().unwrap().len(), 1000);
}

/// A reference inside a value stays one.
fn vec_free(reference: ObjectRef<u64>) -> ObjectRef<ObjectRef<()>> {
    aktis::put(reference.cast::<()>()).unwrap()
}

type Weights = Vec<f32>;

#[remote]
fn doubled(weights: Weights) -> Vec<f32> {
    weights.iter().map(|weight| weight * 2.0).collect()
}

#[remote]
fn reversed(bytes: Vec<u8>) -> Vec<u8> {
    bytes.into_iter().rev().collect()
}

#[remote]
fn several(lengths: Vec<usize>) -> HashMap<usize, Vec<i16>> {
    lengths.into_iter().map(|length| (length, vec![-7; length])).collect()
}

#[test]
fn rows_of_numbers_of_every_length_come_back() {
    let session = start();
    let _entered = session.enter();
    for length in [0, 1, 127, 128, 129, 5000, 1 << 20] {
        let weights: Vec<f32> = (0..length).map(|i| i as f32).collect();
        let twice = doubled::remote(weights.clone());
        let again = doubled::remote(&twice).get().unwrap();
        assert!(again.iter().zip(&weights).all(|(again, weight)| *again == weight * 4.0));
        assert_eq!(again.len(), weights.len());
        let bytes: Vec<u8> = (0..length).map(|i| i as u8).collect();
        let stored = aktis::put(bytes.clone()).unwrap();
        assert_eq!(reversed::remote(reversed::remote(stored)).get().unwrap(), bytes);
    }
    let inside = several::remote(vec![0, 10, 100_000]).get().unwrap();
    assert!(
        inside.iter().all(|(length, row)| row.len() == *length && row.iter().all(|number| *number == -7))
    );
}

#[test]
#[expect(clippy::mutable_key_type, reason = "the id, which is compared, never changes")]
fn references_are_keys_of_maps_and_sets() {
    let session = start();
    let _entered = session.enter();
    let references: Vec<ObjectRef<u64>> = (0..4).map(|i| aktis::put(i).unwrap()).collect();
    let positions: HashMap<ObjectRef<u64>, usize> = references.iter().cloned().zip(0..).collect();
    assert!(references.iter().enumerate().all(|(at, reference)| positions[reference] == at));
    let ordered: BTreeSet<&ObjectRef<u64>> = references.iter().chain(&references).collect();
    assert_eq!(ordered.len(), 4);
    let (first, second) = (&references[0], &references[1]);
    assert_eq!(first.cmp(second), first.id().cmp(&second.id()));
}

#[test]
fn arrays_are_made_of_arrays_and_boxed_slices() {
    let boxed: Box<[u16]> = vec![1, 2, 3].into();
    let place = boxed.as_ptr();
    let array = Array::from(boxed);
    assert_eq!((array.as_ptr(), &array[..]), (place, &[1, 2, 3][..]));
    assert_eq!(Array::from([1_u16, 2, 3]), array);
}
