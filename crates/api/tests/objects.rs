//! Objects: put and get, arrays without copies, references inside values, spilling, freeing.

mod support;

use aktis::Error;
use aktis::prelude::*;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use support::{PATIENCE, start};

const MEGABYTE: usize = 1 << 20;

#[remote]
fn sum(numbers: Array<f32>) -> f64 {
    numbers.iter().map(|x| f64::from(*x)).sum()
}

#[remote]
fn address_is_aligned(numbers: Array<f32>) -> bool {
    (numbers.as_ptr() as usize).is_multiple_of(64)
}

#[remote]
fn zeros(megabytes: usize) -> Array<u8> {
    vec![0; megabytes << 20].into()
}

/// Makes objects of its own, and returns references to them.
#[remote]
fn put_each(numbers: Vec<u64>) -> aktis::Result<Vec<ObjectRef<u64>>> {
    numbers.into_iter().map(aktis::put).collect()
}

#[remote]
fn get_each(refs: Vec<ObjectRef<u64>>) -> aktis::Result<u64> {
    Ok(aktis::get_all(&refs)?.into_iter().sum())
}

#[remote]
fn square(x: u64) -> u64 {
    x * x
}

#[test]
fn what_is_put_comes_back() {
    let session = start();
    let _entered = session.enter();
    assert_eq!(aktis::put(7_u64).unwrap().get().unwrap(), 7);
    let text = "long".repeat(100_000);
    assert_eq!(session.put(text.clone()).unwrap().get().unwrap(), text);
    let object = session.put(()).unwrap();
    assert!(object.is_ready());
}

#[test]
fn arrays_are_read_in_place() {
    let session = start();
    let _entered = session.enter();
    let object = session.put(Array::from(vec![0.5_f32; MEGABYTE])).unwrap();
    let (first, second) = (object.get().unwrap(), object.get().unwrap());
    assert_eq!(first.as_ptr(), second.as_ptr(), "two reads see one copy");
    assert!((first.as_ptr() as usize).is_multiple_of(64));
    assert!(address_is_aligned::remote(&object).get().unwrap());
    assert_eq!(sum::remote(&object).get().unwrap(), 0.5 * MEGABYTE as f64);
    // Also when the array was an argument by value, large or small.
    assert_eq!(sum::remote(Array::from(vec![2.0_f32; MEGABYTE])).get().unwrap(), 2.0 * MEGABYTE as f64);
    assert_eq!(sum::remote(Array::from(vec![1.0_f32, 2.0])).get().unwrap(), 3.0);
}

#[test]
fn an_array_stays_readable_after_its_references_are_gone() {
    let session = start();
    let _entered = session.enter();
    let object = session.put(Array::from(vec![7_u8; MEGABYTE])).unwrap();
    let array = object.get().unwrap();
    drop(object);
    for _ in 0..100 {
        session.put(Array::from(vec![1_u8; MEGABYTE])).unwrap();
    }
    assert!(array.iter().all(|byte| *byte == 7));
}

#[test]
fn references_travel_inside_values() {
    let session = start();
    let _entered = session.enter();
    let refs: Vec<_> = (1..=3).map(square::remote).collect();
    assert_eq!(get_each::remote(refs.clone()).get().unwrap(), 14);
    let nested = session.put((1_u8, Some(refs))).unwrap();
    let (_, refs) = nested.get().unwrap();
    drop(nested);
    assert_eq!(refs.unwrap()[2].get().unwrap(), 9);
}

#[test]
fn references_outlive_the_task_that_made_the_objects() {
    let session = start();
    let _entered = session.enter();
    let container = put_each::remote(vec![1, 2, 3]);
    let refs = container.get().unwrap();
    drop(container);
    assert_eq!(get_each::remote(refs.clone()).get().unwrap(), 6);
    assert_eq!(session.get_all(&refs).unwrap(), [1, 2, 3]);
    let through = get_each::remote(put_each::remote(vec![4, 5]));
    assert_eq!(through.get().unwrap(), 9);
}

#[test]
fn objects_are_freed_when_the_last_reference_goes() {
    let session = Session::builder().cpus(2).store_bytes(32 << 20).spill_bytes_max(0).start().unwrap();
    let _entered = session.enter();
    for round in 0..50_u8 {
        let object = session.put(Array::from(vec![round; 10 * MEGABYTE])).unwrap();
        assert_eq!(object.get().unwrap()[0], round);
        assert_eq!(zeros::remote(10).get().unwrap().len(), 10 * MEGABYTE);
    }
}

#[test]
fn what_does_not_fit_is_spilled_and_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let session =
        Session::builder().cpus(2).store_bytes(32 << 20).spill_directory(directory.path()).start().unwrap();
    let _entered = session.enter();
    let refs: Vec<_> = (0..12_u8).map(|n| session.put(Array::from(vec![n; 8 * MEGABYTE])).unwrap()).collect();
    for (n, object) in (0..).zip(&refs) {
        let array = object.get().unwrap();
        assert!(array.len() == 8 * MEGABYTE && array.iter().all(|byte| *byte == n));
    }
    drop((refs, _entered));
    session.shutdown();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left on disk");
}

#[test]
fn a_full_disk_is_an_error_that_says_so() {
    let session = Session::builder().cpus(2).store_bytes(16 << 20).spill_bytes_max(8 << 20).start().unwrap();
    let _entered = session.enter();
    let mut kept = Vec::new();
    let error = loop {
        assert!(kept.len() < 20, "the store and the disk have to be full some time");
        match session.put(Array::from(vec![0_u8; 4 * MEGABYTE])) {
            Ok(object) => kept.push(object),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Store(_)), "{error:?}");
    // Those that were put first are on disk by now; with room for them, they come back.
    kept.truncate(2);
    for object in &kept {
        assert_eq!(object.get_timeout(PATIENCE).unwrap().len(), 4 * MEGABYTE);
    }
}

#[test]
fn reading_a_value_as_another_type_is_an_error() {
    let session = start();
    let _entered = session.enter();
    let number = session.put(7_u64).unwrap();
    let outcome = number.clone().cast::<String>().get();
    assert!(matches!(&outcome, Err(Error::Codec(message)) if message.contains("String")), "{outcome:?}");
    let array = session.put(Array::from(vec![1.0_f32; 100_000])).unwrap();
    let outcome = array.cast::<Array<u32>>().get();
    assert!(matches!(outcome, Err(Error::Codec(_))), "{outcome:?}");
    let outcome = sum::remote(number.cast::<Array<f32>>()).get();
    assert!(matches!(&outcome, Err(Error::Codec(message)) if message.contains("`numbers`")), "{outcome:?}");
}

/// Cannot be serialised when it is odd, and cannot be deserialised when it is 4.
#[derive(Debug, PartialEq)]
struct Fussy(u64);

impl Serialize for Fussy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 % 2 == 1 {
            return Err(serde::ser::Error::custom("odd numbers stay at home"));
        }
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Fussy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u64::deserialize(deserializer)? {
            4 => Err(serde::de::Error::custom("not four")),
            number => Ok(Self(number)),
        }
    }
}

#[remote]
fn fuss(fussy: Fussy) -> Fussy {
    Fussy(fussy.0 + 1)
}

#[test]
fn values_that_refuse_to_travel_say_why() {
    let session = start();
    let _entered = session.enter();
    let outcome = session.put(Fussy(1));
    assert!(matches!(&outcome, Err(Error::Codec(text)) if text.contains("stay at home")), "{outcome:?}");
    let outcome = fuss::remote(Fussy(1)).get();
    assert!(matches!(&outcome, Err(Error::Codec(text)) if text.contains("`fussy`")), "{outcome:?}");
    let outcome = fuss::remote(Fussy(2)).get();
    assert!(matches!(&outcome, Err(Error::Codec(text)) if text.contains("return value")), "{outcome:?}");
    let outcome = fuss::remote(Fussy(4)).get();
    assert!(matches!(&outcome, Err(Error::Codec(text)) if text.contains("`fussy`")), "{outcome:?}");
}

#[test]
fn a_reference_has_no_meaning_outside_of_values() {
    let session = start();
    let _entered = session.enter();
    let object = session.put(1_u8).unwrap();
    assert!(postcard::to_stdvec(&object).is_err());
    assert!(postcard::from_bytes::<ObjectRef<u8>>(&[0]).is_err());
    assert_eq!(object.get().unwrap(), 1);
}
