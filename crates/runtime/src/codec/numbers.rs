//! Vectors of plain numbers, which are copied as a whole: serde would take their elements one by one.
//!
//! Such a vector, if it is not short, is encoded as one buffer and nothing else. Only a value that *is* such a vector is
//! recognised, by its type: what is inside another value goes through serde.

use super::buffer::Buffer;
use super::table::Table;
use aktis_store::numbers::{from_vec_of, into_vec_of, is_vec_of};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes from which the elements are copied as a whole; below, a table of buffers costs more than it saves.
const BYTES_MIN: usize = 512;

/// Calls a macro with every type of number.
macro_rules! for_each_number {
    ($do:ident) => {
        $do!(u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 usize isize f32 f64)
    };
}

/// Whether a `T` is a vector of plain numbers: a constant to the optimiser.
#[inline]
fn is_numbers<T>() -> bool {
    macro_rules! is_any {
        ($($number:ty)*) => { false $(|| is_vec_of::<T, $number>())* };
    }
    for_each_number!(is_any)
}

/// The elements as a buffer, without a copy, if the value is a long vector of plain numbers; else the value.
#[inline]
pub(super) fn into_buffer<T>(value: T) -> Result<Buffer, T> {
    if is_numbers::<T>() { numbers_into_buffer(value) } else { Err(value) }
}

fn numbers_into_buffer<T>(value: T) -> Result<Buffer, T> {
    macro_rules! take {
        ($($number:ty)*) => {{
            $(let value = match into_vec_of::<T, $number>(value) {
                Ok(numbers) if size_of_val(&numbers[..]) >= BYTES_MIN => return Ok(Buffer::from_vec(numbers)),
                Ok(numbers) => from_vec_of::<T, $number>(numbers).expect("it was one"),
                Err(value) => value,
            };)*
            Err(value)
        }};
    }
    for_each_number!(take)
}

/// The value, if a `T` is a vector of plain numbers and the encoded value is one buffer.
#[inline]
pub(super) fn from_encoded<T>(value: &[u8], table: &Table) -> Option<T> {
    if is_numbers::<T>() { numbers_from_encoded(value, table) } else { None }
}

fn numbers_from_encoded<T>(value: &[u8], table: &Table) -> Option<T> {
    if *table != (Table { buffers: 1, objects: 0, actors: 0, postcard_bytes: 0 }) {
        return None;
    }
    let bytes = value.get(table.buffer(value, 0)?)?;
    macro_rules! copy {
        ($($number:ty)*) => {
            $(if is_vec_of::<T, $number>() {
                return from_vec_of::<T, $number>(copied(bytes)?);
            })*
        };
    }
    for_each_number!(copy);
    None
}

/// The numbers in these bytes, which may be anywhere.
fn copied<N: FromBytes + IntoBytes + Immutable + Copy>(bytes: &[u8]) -> Option<Vec<N>> {
    if !bytes.len().is_multiple_of(size_of::<N>()) {
        return None;
    }
    let mut numbers = vec![N::new_zeroed(); bytes.len() / size_of::<N>()];
    numbers.as_mut_slice().as_mut_bytes().copy_from_slice(bytes);
    Some(numbers)
}
