//! Combines arrays element by element.
//!
//! Loops are plain, so that the compiler turns them into vector instructions.

use crate::element::{Bf16, DataType, Element, F16, ReduceOp};
use zerocopy::FromBytes;

/// Several arrays are combined by blocks of so many bytes, which stay in the innermost cache.
const BLOCK_BYTES: usize = 8 << 10;

/// A number that can be combined.
trait Combine: Element {
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn least(self, other: Self) -> Self;
    fn greatest(self, other: Self) -> Self;
    fn divided_by(self, count: u32) -> Self;
}

macro_rules! integers {
    ($($number:ty)*) => {
        $(impl Combine for $number {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn least(self, other: Self) -> Self {
                if other < self { other } else { self }
            }
            #[inline(always)]
            fn greatest(self, other: Self) -> Self {
                if other > self { other } else { self }
            }
            #[inline(always)]
            fn divided_by(self, _count: u32) -> Self {
                self
            }
        })*
    };
}

integers! { i32 i64 u8 }

macro_rules! floats {
    ($($number:ty)*) => {
        $(impl Combine for $number {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn product(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn least(self, other: Self) -> Self {
                if other < self || other.is_nan() { other } else { self }
            }
            #[inline(always)]
            fn greatest(self, other: Self) -> Self {
                if other > self || other.is_nan() { other } else { self }
            }
            #[inline(always)]
            fn divided_by(self, count: u32) -> Self {
                self / count as $number
            }
        })*
    };
}

floats! { f32 f64 }

macro_rules! short_floats {
    ($($number:ty)*) => {
        $(impl Combine for $number {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                f32::from(self).sum(f32::from(other)).into()
            }
            #[inline(always)]
            fn product(self, other: Self) -> Self {
                f32::from(self).product(f32::from(other)).into()
            }
            #[inline(always)]
            fn least(self, other: Self) -> Self {
                f32::from(self).least(f32::from(other)).into()
            }
            #[inline(always)]
            fn greatest(self, other: Self) -> Self {
                f32::from(self).greatest(f32::from(other)).into()
            }
            #[inline(always)]
            fn divided_by(self, count: u32) -> Self {
                f32::from(self).divided_by(count).into()
            }
        })*
    };
}

short_floats! { F16 Bf16 }

#[inline(always)]
fn each<T: Element>(total: &mut [u8], other: &[u8], combine: impl Fn(T, T) -> T) {
    let total = <[T]>::mut_from_bytes(total).expect("aligned and whole elements");
    let other = <[T]>::ref_from_bytes(other).expect("aligned and whole elements");
    for (total, other) in total.iter_mut().zip(other) {
        *total = combine(*total, *other);
    }
}

fn combine_as<T: Combine>(op: ReduceOp, total: &mut [u8], other: &[u8]) {
    match op {
        ReduceOp::Sum | ReduceOp::Mean => each(total, other, T::sum),
        ReduceOp::Product => each(total, other, T::product),
        ReduceOp::Min => each(total, other, T::least),
        ReduceOp::Max => each(total, other, T::greatest),
    }
}

fn divide_as<T: Combine>(total: &mut [u8], count: u32) {
    for number in <[T]>::mut_from_bytes(total).expect("aligned and whole elements") {
        *number = number.divided_by(count);
    }
}

macro_rules! by_type {
    ($data_type:expr, $function:ident($($argument:expr),*)) => {
        match $data_type {
            DataType::F32 => $function::<f32>($($argument),*),
            DataType::F64 => $function::<f64>($($argument),*),
            DataType::F16 => $function::<F16>($($argument),*),
            DataType::Bf16 => $function::<Bf16>($($argument),*),
            DataType::I32 => $function::<i32>($($argument),*),
            DataType::I64 => $function::<i64>($($argument),*),
            DataType::U8 => $function::<u8>($($argument),*),
        }
    };
}

/// `total` becomes `total` and `other` combined; `Mean` sums.
pub(crate) fn combine(data_type: DataType, op: ReduceOp, total: &mut [u8], other: &[u8]) {
    assert_eq!(total.len(), other.len());
    // An empty array need not be aligned.
    if !total.is_empty() {
        by_type!(data_type, combine_as(op, total, other));
    }
}

/// The last step of a `Mean` over `count` members; nothing for other operations.
pub(crate) fn finish(data_type: DataType, op: ReduceOp, total: &mut [u8], count: usize) {
    if op == ReduceOp::Mean && !total.is_empty() {
        by_type!(data_type, divide_as(total, count as u32));
    }
}

/// `total` becomes all of `inputs` combined, in their order; `Mean` sums.
pub(crate) fn combine_all<'a>(
    data_type: DataType,
    op: ReduceOp,
    total: &mut [u8],
    inputs: impl Iterator<Item = &'a [u8]> + Clone,
) {
    for (index, block) in total.chunks_mut(BLOCK_BYTES).enumerate() {
        let place = index * BLOCK_BYTES..index * BLOCK_BYTES + block.len();
        for (number, input) in inputs.clone().enumerate() {
            match number {
                0 => block.copy_from_slice(&input[place.clone()]),
                _ => combine(data_type, op, block, &input[place.clone()]),
            }
        }
    }
}
