//! Vectors of plain numbers behind a type parameter: recognised by their type, and taken out or put in as they are.
//!
//! `Any` does this for types that are `'static`. A value that can be serialised need not say so, so lifetimes are left out
//! of the comparison; a vector of numbers has none, which makes the answer exact.

#![allow(unsafe_code)]

use std::any::TypeId;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

mod sealed {
    pub trait Sealed {}
}

/// A number of a plain type.
pub trait Number: sealed::Sealed + Copy + 'static {}

macro_rules! numbers {
    ($($number:ty)*) => {
        $(impl sealed::Sealed for $number {}
        impl Number for $number {})*
    };
}

numbers! { u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 usize isize f32 f64 }

/// The id that a type has without its lifetimes.
#[inline]
fn id_without_lifetimes<T>() -> TypeId {
    trait Identified {
        fn id(&self) -> TypeId
        where
            Self: 'static;
    }
    impl<T> Identified for PhantomData<T> {
        fn id(&self) -> TypeId
        where
            Self: 'static,
        {
            TypeId::of::<T>()
        }
    }
    let phantom = PhantomData::<T>;
    let short: &dyn Identified = &phantom;
    // SAFETY: the two types differ in lifetimes alone, which code and tables of methods do not depend on. The method reads
    // nothing, and what it gives holds no lifetime.
    let long = unsafe { std::mem::transmute::<&dyn Identified, &(dyn Identified + 'static)>(short) };
    long.id()
}

/// Whether a `T` is a vector of this number: a constant to the optimiser.
#[inline]
pub fn is_vec_of<T, N: Number>() -> bool {
    id_without_lifetimes::<T>() == TypeId::of::<Vec<N>>()
}

/// The vector, if the value is one of this number; else the value.
#[inline]
pub fn into_vec_of<T, N: Number>(value: T) -> Result<Vec<N>, T> {
    if !is_vec_of::<T, N>() {
        return Err(value);
    }
    let value = ManuallyDrop::new(value);
    // SAFETY: `T` is `Vec<N>` but for lifetimes, and that has none: they are the same type. The original is not dropped.
    Ok(unsafe { std::ptr::read((&raw const *value).cast::<Vec<N>>()) })
}

/// The vector as a `T`, if that is a vector of this number.
#[inline]
pub fn from_vec_of<T, N: Number>(numbers: Vec<N>) -> Option<T> {
    if !is_vec_of::<T, N>() {
        return None;
    }
    let numbers = ManuallyDrop::new(numbers);
    // SAFETY: as in `into_vec_of`.
    Some(unsafe { std::ptr::read((&raw const *numbers).cast::<T>()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Something that is not `'static`, through a function that does not know.
    fn is_bytes<T>(_: &T) -> bool {
        is_vec_of::<T, u8>()
    }

    #[test]
    fn vectors_are_told_apart_by_their_numbers() {
        assert!(is_vec_of::<Vec<u8>, u8>() && is_vec_of::<Vec<f32>, f32>());
        assert!(!is_vec_of::<Vec<i8>, u8>() && !is_vec_of::<u8, u8>() && !is_vec_of::<[u8; 24], u8>());
        let text = String::from("text");
        let borrowed: Vec<&str> = vec![&text];
        assert!(!is_bytes(&borrowed) && !is_bytes(&text.as_str()) && is_bytes(&vec![1_u8]));
    }

    #[test]
    fn a_vector_comes_out_and_goes_in_as_it_is() {
        let numbers = vec![1_u64, 2, 3];
        let place = numbers.as_ptr();
        let taken: Vec<u64> = into_vec_of(numbers).unwrap();
        let back: Vec<u64> = from_vec_of(taken).unwrap();
        assert_eq!((back.as_ptr(), &back[..]), (place, &[1, 2, 3][..]));
        assert_eq!(into_vec_of::<_, u64>("text".to_owned()), Err("text".to_owned()));
        assert_eq!(from_vec_of::<String, u8>(vec![1]), None);
    }
}
