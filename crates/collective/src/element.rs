//! The types of numbers that collective operations work on.

use std::fmt;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What the bytes of an array are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DataType {
    /// 32-bit floating point.
    F32 = 1,
    /// 64-bit floating point.
    F64 = 2,
    /// 16-bit floating point of IEEE 754.
    F16 = 3,
    /// 16-bit floating point with the range of `f32`.
    Bf16 = 4,
    /// 32-bit signed integer.
    I32 = 5,
    /// 64-bit signed integer.
    I64 = 6,
    /// Bytes.
    U8 = 7,
}

impl DataType {
    /// All of them.
    pub const ALL: [Self; 7] = [Self::F32, Self::F64, Self::F16, Self::Bf16, Self::I32, Self::I64, Self::U8];

    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::U8 => 1,
        }
    }

    /// The name that numpy and torch have for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F64 => "float64",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::U8 => "uint8",
        }
    }

    /// The type with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|data_type| data_type.name() == name)
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|data_type| *data_type as u8 == code)
    }

    /// Whether it has fractions.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64 | Self::F16 | Self::Bf16)
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How elements of several members become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReduceOp {
    /// Their sum. Integers wrap around.
    Sum = 1,
    /// Their product. Integers wrap around.
    Product = 2,
    /// The least. NaN if any is.
    Min = 3,
    /// The greatest. NaN if any is.
    Max = 4,
    /// Their sum divided by the number of members; of floating-point numbers only.
    Mean = 5,
}

impl ReduceOp {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Sum, Self::Product, Self::Min, Self::Max, Self::Mean];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Product => "product",
            Self::Min => "min",
            Self::Max => "max",
            Self::Mean => "mean",
        }
    }

    /// The operation with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.name() == name)
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|op| *op as u8 == code)
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A number that collective operations work on.
pub trait Element:
    sealed::Sealed + Copy + Send + FromBytes + IntoBytes + Immutable + KnownLayout + 'static
{
    /// What it is.
    const DATA_TYPE: DataType;
}

macro_rules! elements {
    ($($element:ty = $data_type:ident),*) => {
        $(impl sealed::Sealed for $element {}
        impl Element for $element {
            const DATA_TYPE: DataType = DataType::$data_type;
        })*
    };
}

elements! { f32 = F32, f64 = F64, F16 = F16, Bf16 = Bf16, i32 = I32, i64 = I64, u8 = U8 }

/// A 16-bit floating-point number of IEEE 754, as its bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct F16(pub u16);

/// A 16-bit floating-point number with the range of `f32`, as its bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Bf16(pub u16);

impl From<F16> for f32 {
    #[inline]
    fn from(number: F16) -> Self {
        let bits = u32::from(number.0);
        let sign = (bits & 0x8000) << 16;
        let exponent = (bits >> 10) & 0x1f;
        let fraction = bits & 0x3ff;
        let magnitude = match exponent {
            // Subnormal: the fraction in units of 2^-24, which is exact.
            0 => (fraction as f32 * f32::from_bits((127 - 24) << 23)).to_bits(),
            31 => 0x7f80_0000 | (fraction << 13),
            _ => ((exponent + 112) << 23) | (fraction << 13),
        };
        Self::from_bits(sign | magnitude)
    }
}

impl From<f32> for F16 {
    /// The nearest one; of two that are as near, the even one.
    #[inline]
    fn from(number: f32) -> Self {
        let bits = number.to_bits();
        let sign = ((bits >> 16) & 0x8000) as u16;
        let magnitude = bits & 0x7fff_ffff;
        if magnitude > 0x7f80_0000 {
            return Self(sign | 0x7e00);
        }
        // From 65520 on the nearest is infinity.
        if magnitude >= 0x477f_f000 {
            return Self(sign | 0x7c00);
        }
        if magnitude < 0x3880_0000 {
            // Subnormal: adding 2^-1 rounds to units of 2^-24 at the end of the fraction.
            let rounded = f32::from_bits(magnitude) + 0.5;
            return Self(sign | (rounded.to_bits() - 0x3f00_0000) as u16);
        }
        let odd = (magnitude >> 13) & 1;
        Self(sign | ((magnitude - 0x3800_0000 + 0xfff + odd) >> 13) as u16)
    }
}

impl From<Bf16> for f32 {
    #[inline]
    fn from(number: Bf16) -> Self {
        Self::from_bits(u32::from(number.0) << 16)
    }
}

impl From<f32> for Bf16 {
    /// The nearest one; of two that are as near, the even one.
    #[inline]
    fn from(number: f32) -> Self {
        let bits = number.to_bits();
        if number.is_nan() {
            return Self((bits >> 16) as u16 | 0x40);
        }
        Self(((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_survives_the_way_to_single_and_back() {
        for bits in 0..=u16::MAX {
            let number = f32::from(F16(bits));
            let back = F16::from(number);
            assert!(back.0 == bits || (number.is_nan() && f32::from(back).is_nan()), "{bits:#x}");
            let wide = f32::from(Bf16(bits));
            let back = Bf16::from(wide);
            assert!(back.0 == bits || (wide.is_nan() && f32::from(back).is_nan()), "{bits:#x}");
        }
    }

    #[test]
    fn single_precision_rounds_to_the_nearest_half() {
        for (number, bits) in [
            (65504.0, 0x7bff),
            (65519.0, 0x7bff),
            (65520.0, 0x7c00),
            (1e10, 0x7c00),
            (-1e10, 0xfc00),
            (1.0 + 1.0 / 2048.0, 0x3c00),
            (1.0 + 3.0 / 2048.0, 0x3c02),
            (5.960_464_5e-8, 0x0001),
            (2.9e-8, 0x0000),
            (3.1e-8, 0x0001),
        ] {
            assert_eq!(F16::from(number).0, bits, "{number}");
        }
        assert_eq!(Bf16::from(1.0 + 1.0 / 256.0).0, 0x3f80);
        assert_eq!(Bf16::from(1.0 + 3.0 / 256.0).0, 0x3f82);
        assert_eq!(Bf16::from(f32::MAX).0, 0x7f80);
    }
}
