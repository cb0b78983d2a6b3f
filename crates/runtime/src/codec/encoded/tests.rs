//! Values there and back, and everything that can be wrong with them.

use super::*;
use crate::codec::{Buffer, Value, decode, deserialize_buffer, serialize_buffer};
use serde::{Deserialize, Deserializer, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A stand-in for the array type of the API.
#[derive(Debug, Clone)]
struct Bytes(Buffer);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_buffer(&self.0, serializer)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_buffer(deserializer).map(Self)
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Model {
    name: String,
    weights: Vec<f64>,
    parent: Option<Box<Model>>,
}

/// Memory that starts at a multiple of 64, as the arena's does.
struct Aligned(Vec<u8>, usize);

impl Aligned {
    fn holding(encoded: &Encoded) -> Self {
        let mut memory = vec![0xff; encoded.len() + ALIGNMENT];
        let skip = memory.as_ptr().align_offset(ALIGNMENT);
        encoded.write_to(&mut memory[skip..skip + encoded.len()]);
        memory.truncate(skip + encoded.len());
        Self(memory, skip)
    }
}

impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        &self.0[self.1..]
    }
}

fn round_trip<T: Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
    decode(&Encoded::of(value).unwrap().into_value()).unwrap()
}

#[test]
fn plain_values_come_back() {
    assert_eq!(round_trip(&7_u64), 7);
    round_trip(&());
    assert_eq!(round_trip(&"text".repeat(100)), "text".repeat(100));
    let parent = Model { name: "a".into(), weights: vec![0.5; 3], parent: None };
    let model = Model { name: "b".into(), weights: vec![], parent: Some(Box::new(parent)) };
    assert_eq!(round_trip(&model), model);
    let map: BTreeMap<String, (u8, bool)> = [("k".to_owned(), (1, true))].into();
    assert_eq!(round_trip(&map), map);
}

#[test]
fn a_small_plain_value_is_its_postcard_bytes_and_three_more() {
    let encoded = Encoded::of(&300_u64).unwrap();
    assert_eq!(encoded.len(), 5);
    assert_eq!(encoded.as_plain(), Some(&encoded.to_vec()[..]));
    assert!(!encoded.contains());
}

#[test]
fn buffers_are_aligned_and_read_in_place() {
    let value = (1_u8, Bytes(Buffer::from_vec(vec![7_u32; 100])), Bytes(Buffer::from_vec(vec![1_u8, 2, 3])));
    let encoded = Encoded::of(&value).unwrap();
    let memory = Arc::new(Aligned::holding(&encoded));
    let range = (*memory).as_ref().as_ptr_range();
    let (one, numbers, bytes): (u8, Bytes, Bytes) = decode(&Value::pinned(memory.clone())).unwrap();
    assert_eq!(one, 1);
    assert_eq!(bytes.0.as_slice(), [1, 2, 3]);
    assert_eq!(numbers.0.as_slice().len(), 400);
    for buffer in [&numbers.0, &bytes.0] {
        assert!(range.contains(&buffer.as_slice().as_ptr()));
        assert_eq!(buffer.as_slice().as_ptr().align_offset(ALIGNMENT), 0);
    }
}

#[test]
fn buffers_keep_their_value_pinned() {
    let encoded = Encoded::of(&Bytes(Buffer::from_vec(vec![5_u8; 10]))).unwrap();
    let memory = Arc::new(encoded.to_vec());
    let buffer: Bytes = decode(&Value::pinned(memory.clone())).unwrap();
    assert_eq!(Arc::strong_count(&memory), 2, "the buffer holds on to the memory");
    drop(buffer);
    assert_eq!(Arc::strong_count(&memory), 1);
}

#[test]
fn decoding_as_another_type_is_an_error_that_names_it() {
    let value = Encoded::of(&"some text".to_owned()).unwrap().into_value();
    let message = decode::<Model>(&value).unwrap_err();
    assert!(message.contains("Model"), "{message}");
    assert!(decode::<u64>(&value).is_err());
    assert!(decode::<()>(&value).is_err());
    assert!(decode::<u64>(&Encoded::of(&1_i64).unwrap().into_value()).is_err());
}

#[test]
fn decoding_as_a_type_with_the_same_bytes_is_an_error() {
    let value = Encoded::of_owned(vec![1_u64; 1000]).unwrap().into_value();
    let message = decode::<Vec<i64>>(&value).unwrap_err();
    assert!(message.contains("Vec<i64>: it is a value of another type"), "{message}");
    crate::codec::note_cast_from::<Vec<u64>>();
    let message = decode::<Vec<i64>>(&value).unwrap_err();
    assert!(message.contains("as alloc::vec::Vec<i64>: it was made as alloc::vec::Vec<u64>"), "{message}");
    assert!(decode::<Vec<i64>>(&Encoded::of(&vec![1_u64]).unwrap().into_value()).is_err());
    assert_eq!(decode::<Vec<u64>>(&value).unwrap(), [1; 1000]);
}

#[test]
fn a_vector_of_numbers_comes_back_at_every_length() {
    for length in [0, 1, 63, 64, 65, 127, 128, 129, 5000] {
        let doubles: Vec<f64> = (0..length).map(f64::from).collect();
        let value = Encoded::of_owned(doubles.clone()).unwrap().into_value();
        assert_eq!(decode::<Vec<f64>>(&value).unwrap(), doubles);
        assert_eq!(value.raw().unwrap().buffers(), u32::from(length >= 64), "{length}");
        let bytes: Vec<u8> = (0..length).map(|i| i as u8).collect();
        assert_eq!(round_trip(&bytes), bytes);
        let value = Encoded::of_owned(bytes.clone()).unwrap();
        let mut shifted = vec![0; value.len() + 1];
        value.write_to(&mut shifted[1..]);
        assert_eq!(decode::<Vec<u8>>(&Value::inline(&shifted[1..])).unwrap(), bytes);
    }
}

#[test]
fn damaged_vectors_of_numbers_are_errors() {
    let good = Encoded::of_owned(vec![7_u32; 200]).unwrap().to_vec();
    for cut in 0..good.len() {
        assert!(decode::<Vec<u32>>(&Value::inline(&good[..cut])).is_err(), "cut at {cut}");
    }
    let mut bad = good;
    let table = Table::of(&bad).unwrap().unwrap();
    write_words(&mut bad, table.buffer_at(0), [128, 3]);
    assert!(decode::<Vec<u32>>(&Value::inline(&bad)).is_err());
}

#[test]
fn without_a_mark_short_and_trailing_bytes_are_errors_still() {
    let mut bytes = vec![0, 3, b'a', b'b', b'c'];
    assert_eq!(decode::<String>(&Value::inline(&bytes)).unwrap(), "abc");
    let message = decode::<String>(&Value::inline(&bytes[..3])).unwrap_err();
    assert!(message.contains("end too early"), "{message}");
    bytes.push(1);
    let message = decode::<String>(&Value::inline(&bytes)).unwrap_err();
    assert!(message.contains("1 bytes are left over"), "{message}");
    assert!(decode::<String>(&Value::inline(&[])).is_err());
}

#[test]
fn damaged_attachments_are_errors() {
    let good = Encoded::of(&Bytes(Buffer::from_vec(vec![5_u8; 10]))).unwrap().to_vec();
    for cut in 0..good.len() {
        assert!(decode::<Bytes>(&Value::inline(&good[..cut])).is_err(), "cut at {cut}");
    }
    for at in 1..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0xff;
        // Whatever comes out, nothing may panic.
        let _ = decode::<Bytes>(&Value::inline(&bad));
    }
    let mut bad = good;
    let table = Table::of(&bad).unwrap().unwrap();
    write_words(&mut bad, table.buffer_at(0), [u64::MAX, 2]);
    let message = decode::<Bytes>(&Value::inline(&bad)).unwrap_err();
    assert!(message.contains("an Array that is not in it"), "{message}");
}

#[test]
fn attachments_outside_a_value_are_errors() {
    let bytes = Bytes(Buffer::from_vec(vec![1_u8]));
    assert!(postcard::to_stdvec(&bytes).is_err());
    assert!(postcard::from_bytes::<Bytes>(&[0]).is_err());
}

struct Refuses;

impl Serialize for Refuses {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("the file is open"))
    }
}

#[test]
fn a_refusal_keeps_its_message() {
    let message = Encoded::of(&vec![Some((1, Refuses))]).unwrap_err();
    assert!(message.contains("Refuses") && message.ends_with("the file is open"), "{message}");
}

/// Panics when asked, in both directions, and encodes another value within its own encoding.
struct Nested(bool);

impl Serialize for Nested {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let inner = Encoded::of(&Bytes(Buffer::from_vec(vec![1_u8; 3]))).unwrap();
        assert!(self.0, "asked to panic");
        (inner.to_vec(), Bytes(Buffer::from_vec(vec![2_u8; 2]))).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Nested {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (inner, outer): (Vec<u8>, Bytes) = Deserialize::deserialize(deserializer)?;
        let inner: Bytes = decode(&Value::inline(&inner)).unwrap();
        assert_eq!((inner.0.as_slice(), outer.0.as_slice()), (&[1; 3][..], &[2; 2][..]));
        Ok(Self(true))
    }
}

#[test]
fn scopes_nest_and_survive_panics() {
    let outcome =
        std::panic::catch_unwind(|| Encoded::of(&(Bytes(Buffer::from_vec(vec![1_u8])), Nested(false))));
    assert!(outcome.is_err());
    assert!(postcard::to_stdvec(&Bytes(Buffer::from_vec(vec![1_u8]))).is_err(), "the scope has ended");
    let first = Bytes(Buffer::from_vec(vec![9_u8]));
    let (first, _): (Bytes, Nested) =
        decode(&Encoded::of(&(first, Nested(true))).unwrap().into_value()).unwrap();
    assert_eq!(first.0.as_slice(), [9]);
}
