//! Numbers in a row, shared and read without a copy, straight from shared memory.

use aktis_runtime::Buffer;
use aktis_runtime::codec::{deserialize_buffer, serialize_buffer};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::any::type_name;
use std::fmt::{Debug, Formatter};
use std::ops::Deref;
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// What an [`Array`] can hold: plain numbers, and structs of them that derive zerocopy's traits.
#[diagnostic::on_unimplemented(
    message = "an `Array` cannot hold `{Self}`",
    label = "not plain numbers",
    note = "arrays hold numbers (u8, i32, f32, f64, ...), arrays of numbers, and structs that derive zerocopy's \
            `FromBytes`, `IntoBytes` and `Immutable`; for anything else use a `Vec`"
)]
pub trait Element: Copy + Send + Sync + 'static {
    #[doc(hidden)]
    fn buffer_of(elements: &Arc<Vec<Self>>) -> Buffer;
    #[doc(hidden)]
    fn view(bytes: &[u8]) -> Option<&[Self]>;
    #[doc(hidden)]
    fn copied(bytes: &[u8]) -> Vec<Self>;
}

#[diagnostic::do_not_recommend]
impl<T: FromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static> Element for T {
    fn buffer_of(elements: &Arc<Vec<Self>>) -> Buffer {
        Buffer::from_shared(elements.clone())
    }

    #[inline]
    fn view(bytes: &[u8]) -> Option<&[Self]> {
        <[T]>::ref_from_bytes(bytes).ok()
    }

    fn copied(bytes: &[u8]) -> Vec<Self> {
        let mut elements = vec![T::new_zeroed(); bytes.len() / size_of::<T>()];
        for (element, bytes) in elements.iter_mut().zip(bytes.chunks_exact(size_of::<T>())) {
            *element = T::read_from_bytes(bytes).expect("a chunk has the element's size");
        }
        elements
    }
}

/// An immutable row of numbers that derefs to a slice. Cheap to clone: clones share the memory.
///
/// Made from a `Vec` without a copy; written into the object store once, 64-byte aligned; read there in
/// place by every process. In a hot loop over single elements, take the slice once: `let numbers = &array[..];`.
///
/// ```
/// use aktis::Array;
/// let numbers = Array::from(vec![1.0_f32, 2.0, 3.0]);
/// assert_eq!(numbers.iter().sum::<f32>(), 6.0);
/// assert_eq!(numbers[1], 2.0);
/// assert_eq!(Array::from([1.0_f32, 2.0, 3.0]), numbers);
/// ```
#[derive(Clone)]
pub struct Array<T: Element>(Place<T>);

#[derive(Clone)]
enum Place<T> {
    /// A vector of this process.
    Vector(Arc<Vec<T>>),
    /// Part of an encoded value, of the right size and alignment.
    Value(Buffer),
}

impl<T: Element> Array<T> {
    /// An array with a copy of these elements.
    pub fn from_slice(elements: &[T]) -> Self {
        elements.to_vec().into()
    }

    /// The elements.
    #[inline]
    pub fn as_slice(&self) -> &[T] {
        match &self.0 {
            Place::Vector(elements) => elements,
            Place::Value(buffer) => {
                T::view(buffer.as_slice()).expect("size and alignment were checked when the array was made")
            }
        }
    }
}

impl<T: Element> Deref for Array<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        self.as_slice()
    }
}

impl<T: Element> AsRef<[T]> for Array<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T: Element> From<Vec<T>> for Array<T> {
    /// Without a copy.
    fn from(elements: Vec<T>) -> Self {
        const { assert!(size_of::<T>() > 0, "an Array cannot hold elements without a size") }
        Self(Place::Vector(Arc::new(elements)))
    }
}

impl<T: Element> From<Box<[T]>> for Array<T> {
    /// Without a copy.
    fn from(elements: Box<[T]>) -> Self {
        elements.into_vec().into()
    }
}

impl<T: Element, const N: usize> From<[T; N]> for Array<T> {
    fn from(elements: [T; N]) -> Self {
        Vec::from(elements).into()
    }
}

impl<T: Element> Default for Array<T> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<T: Element> FromIterator<T> for Array<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        Vec::from_iter(elements).into()
    }
}

impl<'a, T: Element> IntoIterator for &'a Array<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: Element + PartialEq> PartialEq for Array<T> {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl<T: Element + Debug> Debug for Array<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 6;
        write!(f, "Array<{}>[{}](", type_name::<T>(), self.len())?;
        for (i, element) in self.iter().take(SHOWN).enumerate() {
            write!(f, "{}{element:?}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str(if self.len() > SHOWN { ", ...)" } else { ")" })
    }
}

/// Tells arrays of different types apart, where their bytes could not.
fn type_mark<T>() -> u32 {
    let bytes = type_name::<T>().bytes().chain(size_of::<T>().to_le_bytes());
    bytes.fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// A buffer, as serde sees it.
struct Attached(Buffer);

impl Serialize for Attached {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_buffer(&self.0, serializer)
    }
}

impl<'de> Deserialize<'de> for Attached {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_buffer(deserializer).map(Self)
    }
}

impl<T: Element> Serialize for Array<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let buffer = match &self.0 {
            Place::Vector(elements) => T::buffer_of(elements),
            Place::Value(buffer) => buffer.clone(),
        };
        (type_mark::<T>(), Attached(buffer)).serialize(serializer)
    }
}

impl<'de, T: Element> Deserialize<'de> for Array<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (mark, Attached(buffer)) = <(u32, Attached)>::deserialize(deserializer)?;
        let bytes = buffer.as_slice();
        if mark != type_mark::<T>() || !bytes.len().is_multiple_of(size_of::<T>()) {
            return Err(D::Error::custom(format!("an array of another type than {}", type_name::<T>())));
        }
        // Values in the heap are aligned for numbers, but not for every struct of them.
        if T::view(bytes).is_none() {
            return Ok(T::copied(bytes).into());
        }
        Ok(Self(Place::Value(buffer)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aktis_runtime::Encoded;
    use aktis_runtime::codec::decode;

    #[test]
    fn a_vector_becomes_an_array_without_a_copy() {
        let vector = vec![1_u32, 2, 3];
        let place = vector.as_ptr();
        let array = Array::from(vector);
        assert_eq!(array.clone().as_ptr(), place);
        assert_eq!(&array[1..], [2, 3]);
    }

    #[test]
    fn arrays_travel_inside_values_and_stay_in_place() {
        let value = Encoded::of(&(7_u8, Array::from(vec![0.5_f64; 1000]))).unwrap().into_value();
        let (seven, array): (u8, Array<f64>) = decode(&value).unwrap();
        assert_eq!((seven, array.len()), (7, 1000));
        assert!(value.bytes().as_ptr_range().contains(&array.as_ptr().cast()));
        let again = Encoded::of(&array).unwrap().into_value();
        assert_eq!(decode::<Array<f64>>(&again).unwrap(), array);
    }

    #[test]
    fn empty_arrays_travel() {
        let value = Encoded::of(&Array::<f64>::default()).unwrap().into_value();
        assert!(decode::<Array<f64>>(&value).unwrap().is_empty());
    }

    #[test]
    fn misaligned_bytes_are_copied() {
        let value = Encoded::of(&Array::from(vec![3_u64; 5])).unwrap();
        let mut bytes = vec![0; value.len() + 1];
        value.write_to(&mut bytes[1..]);
        struct Shifted(Vec<u8>);
        impl AsRef<[u8]> for Shifted {
            fn as_ref(&self) -> &[u8] {
                &self.0[1..]
            }
        }
        let array: Array<u64> = decode(&aktis_runtime::Value::pinned(Arc::new(Shifted(bytes)))).unwrap();
        assert_eq!(array[..], [3; 5]);
    }

    #[test]
    fn an_array_of_another_type_is_an_error() {
        let value = Encoded::of(&Some(Array::from(vec![1_f32; 4]))).unwrap().into_value();
        assert!(decode::<Option<Array<u32>>>(&value).is_err());
        assert!(decode::<Option<Array<f64>>>(&value).is_err());
    }

    #[test]
    fn debug_shows_the_length_and_the_first_few() {
        assert_eq!(format!("{:?}", Array::from(vec![1_u8, 2])), "Array<u8>[2](1, 2)");
        assert_eq!(format!("{:?}", Array::from(vec![0_u8; 9])), "Array<u8>[9](0, 0, 0, 0, 0, 0, ...)");
    }
}
