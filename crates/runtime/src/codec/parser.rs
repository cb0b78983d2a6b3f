//! The deserialiser: reads what the writer has written, and says in words why bytes are not a value of the type.
//!
//! Invariants:
//! 1. It never trusts its bytes: whatever they are, the outcome is a value or a problem.
//! 2. A value is read with as many elements of structs and tuples as it was written with. serde does not tell the writer of a
//!    field that a tuple struct leaves out, nor of one with `skip_serializing`; such a value is a problem here, and never
//!    a wrong value.

use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, Visitor};
use std::fmt::Display;

/// Reads a value that `bytes` hold and nothing else.
#[inline]
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let mut parser = Parser { bytes, elements: 0 };
    let value = T::deserialize(&mut parser)?;
    parser.end()?;
    Ok(value)
}

/// Why bytes are not a value of the type that is asked for.
#[derive(Debug)]
pub(super) enum Problem {
    /// They end in the middle.
    End,
    /// There are more than the value needs.
    Left(usize),
    /// They hold another number of elements than the type has.
    Elements {
        written: u64,
        read: u64,
    },
    Bool,
    Character,
    Text,
    Option,
    Number,
    /// The type asks them what they are.
    Untyped,
    /// The type has refused them.
    Refused(Box<str>),
}

/// The likely reason if a value of the right type has too few or too many fields.
const LEFT_OUT: &str = "hint: `skip_serializing_if` in a tuple struct, and `skip_serializing` or `skip_deserializing` \
                        alone, leave fields out on one side; drop them, or use `skip`";

impl Display for Problem {
    #[cold]
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self {
            Self::End => return write!(f, "its bytes end too early\n{LEFT_OUT}"),
            Self::Left(bytes) => return write!(f, "{bytes} bytes are left over\n{LEFT_OUT}"),
            Self::Elements { written, read } => {
                return write!(f, "{written} fields were written, and {read} are read\n{LEFT_OUT}");
            }
            Self::Bool => "found neither true nor false where a bool was expected",
            Self::Character => "found no character where a char was expected",
            Self::Text => "found text that is not UTF-8",
            Self::Option => "found neither None nor Some where an Option was expected",
            Self::Number => "found a number that is too large for its type",
            Self::Untyped => {
                "its Deserialize asks the bytes for their type, which they do not tell\n\
                 hint: avoid #[serde(flatten)], #[serde(untagged)] and self-describing types in remote values"
            }
            Self::Refused(text) => text,
        };
        f.write_str(text)
    }
}

impl std::error::Error for Problem {}

impl de::Error for Problem {
    #[cold]
    fn custom<T: Display>(message: T) -> Self {
        Self::Refused(message.to_string().into())
    }
}

/// What is left of the bytes, and what was read from them.
struct Parser<'de> {
    bytes: &'de [u8],
    /// Elements of structs and tuples so far.
    elements: u64,
}

impl<'de> Parser<'de> {
    #[inline]
    fn byte(&mut self) -> Result<u8, Problem> {
        let (first, rest) = self.bytes.split_first().ok_or(Problem::End)?;
        self.bytes = rest;
        Ok(*first)
    }

    #[inline]
    fn take(&mut self, count: usize) -> Result<&'de [u8], Problem> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(Problem::End)?;
        self.bytes = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(Problem::End)?;
        self.bytes = rest;
        Ok(*taken)
    }

    /// A number of up to `bits` bits, seven in each byte.
    #[inline]
    fn varint(&mut self, bits: u32) -> Result<u64, Problem> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if shift >= bits || part >> (bits - shift).min(7) != 0 {
                return Err(Problem::Number);
            }
            number |= part << shift;
            if byte < 0x80 {
                return Ok(number);
            }
            shift += 7;
        }
    }

    fn long_varint(&mut self) -> Result<u128, Problem> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            let part = u128::from(byte & 0x7f);
            if shift >= 128 || part >> (128 - shift).min(7) != 0 {
                return Err(Problem::Number);
            }
            number |= part << shift;
            if byte < 0x80 {
                return Ok(number);
            }
            shift += 7;
        }
    }

    #[inline]
    fn length(&mut self) -> Result<usize, Problem> {
        self.varint(usize::BITS).map(|length| length as usize)
    }

    #[inline]
    fn block(&mut self) -> Result<&'de [u8], Problem> {
        let length = self.length()?;
        self.take(length)
    }

    #[inline]
    fn text(&mut self) -> Result<&'de str, Problem> {
        std::str::from_utf8(self.block()?).map_err(|_| Problem::Text)
    }

    fn character(&mut self) -> Result<char, Problem> {
        let mut characters = std::str::from_utf8(self.block()?).map_err(|_| Problem::Character)?.chars();
        match (characters.next(), characters.next()) {
            (Some(character), None) => Ok(character),
            _ => Err(Problem::Character),
        }
    }

    /// Elements of a struct or a tuple, which count.
    #[inline]
    fn elements(&mut self, count: usize) -> Elements<'_, 'de> {
        self.elements += count as u64;
        Elements { parser: self, left: count }
    }

    /// After the value: how many elements of structs and tuples were written, if there were any.
    #[inline]
    fn end(&mut self) -> Result<(), Problem> {
        let read = self.elements;
        if read > 0 {
            let written = self.varint(u64::BITS)?;
            if written != read && self.bytes.is_empty() {
                return Err(Problem::Elements { written, read });
            }
        }
        if self.bytes.is_empty() { Ok(()) } else { Err(Problem::Left(self.bytes.len())) }
    }
}

/// Large numbers of both signs, from the writer's small ones.
#[inline]
fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

macro_rules! values {
    ($($method:ident => $visit:ident($parser:ident: $value:expr);)*) => {
        $(#[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
            let $parser = self;
            visitor.$visit($value)
        })*
    };
}

macro_rules! untyped {
    ($($method:ident)*) => {
        $(#[cold]
        fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Problem> {
            Err(Problem::Untyped)
        })*
    };
}

impl<'de> de::Deserializer<'de> for &mut Parser<'de> {
    type Error = Problem;

    values! {
        deserialize_bool => visit_bool(parser: match parser.byte()? {
            0 => false,
            1 => true,
            _ => return Err(Problem::Bool),
        });
        deserialize_u8 => visit_u8(parser: parser.byte()?);
        deserialize_i8 => visit_i8(parser: parser.byte()? as i8);
        deserialize_u16 => visit_u16(parser: parser.varint(16)? as u16);
        deserialize_u32 => visit_u32(parser: parser.varint(32)? as u32);
        deserialize_u64 => visit_u64(parser: parser.varint(64)?);
        deserialize_u128 => visit_u128(parser: parser.long_varint()?);
        deserialize_i16 => visit_i16(parser: unzigzag(parser.varint(16)?) as i16);
        deserialize_i32 => visit_i32(parser: unzigzag(parser.varint(32)?) as i32);
        deserialize_i64 => visit_i64(parser: unzigzag(parser.varint(64)?));
        deserialize_i128 => visit_i128(parser: {
            let number = parser.long_varint()?;
            (number >> 1) as i128 ^ -((number & 1) as i128)
        });
        deserialize_f32 => visit_f32(parser: f32::from_le_bytes(parser.array()?));
        deserialize_f64 => visit_f64(parser: f64::from_le_bytes(parser.array()?));
        deserialize_char => visit_char(parser: parser.character()?);
        deserialize_str => visit_borrowed_str(parser: parser.text()?);
        deserialize_string => visit_borrowed_str(parser: parser.text()?);
        deserialize_bytes => visit_borrowed_bytes(parser: parser.block()?);
        deserialize_byte_buf => visit_borrowed_bytes(parser: parser.block()?);
        deserialize_seq => visit_seq(parser: { let left = parser.length()?; Elements { parser, left } });
        deserialize_map => visit_map(parser: { let left = parser.length()?; Elements { parser, left } });
    }

    untyped! { deserialize_any deserialize_identifier deserialize_ignored_any }

    #[inline]
    fn is_human_readable(&self) -> bool {
        false
    }
    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.byte()? {
            0 => visitor.visit_none(),
            1 => visitor.visit_some(self),
            _ => Err(Problem::Option),
        }
    }
    #[inline]
    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_unit()
    }
    #[inline]
    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Problem> {
        visitor.visit_unit()
    }
    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Problem> {
        visitor.visit_newtype_struct(self)
    }
    #[inline]
    fn deserialize_tuple<V: Visitor<'de>>(self, count: usize, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_seq(self.elements(count))
    }
    #[inline]
    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, Problem> {
        visitor.visit_seq(self.elements(count))
    }
    #[inline]
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        visitor.visit_seq(self.elements(fields.len()))
    }
    #[inline]
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        visitor.visit_enum(self)
    }
}

/// So many elements that follow each other.
struct Elements<'a, 'de> {
    parser: &'a mut Parser<'de>,
    left: usize,
}

impl Elements<'_, '_> {
    #[inline]
    fn has_next(&mut self) -> bool {
        let has_next = self.left > 0;
        self.left -= usize::from(has_next);
        has_next
    }
}

impl<'de> de::SeqAccess<'de> for Elements<'_, 'de> {
    type Error = Problem;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Problem> {
        if self.has_next() { seed.deserialize(&mut *self.parser).map(Some) } else { Ok(None) }
    }
    #[inline]
    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> de::MapAccess<'de> for Elements<'_, 'de> {
    type Error = Problem;

    #[inline]
    fn next_key_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Problem> {
        if self.has_next() { seed.deserialize(&mut *self.parser).map(Some) } else { Ok(None) }
    }
    #[inline]
    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Problem> {
        seed.deserialize(&mut *self.parser)
    }
    #[inline]
    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'a, 'de> de::EnumAccess<'de> for &'a mut Parser<'de> {
    type Error = Problem;
    type Variant = &'a mut Parser<'de>;

    #[inline]
    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Problem> {
        let variant = self.varint(32)? as u32;
        let variant: de::value::U32Deserializer<Problem> = variant.into_deserializer();
        Ok((seed.deserialize(variant)?, self))
    }
}

impl<'de> de::VariantAccess<'de> for &mut Parser<'de> {
    type Error = Problem;

    #[inline]
    fn unit_variant(self) -> Result<(), Problem> {
        Ok(())
    }
    #[inline]
    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Problem> {
        seed.deserialize(self)
    }
    #[inline]
    fn tuple_variant<V: Visitor<'de>>(self, count: usize, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_seq(self.elements(count))
    }
    #[inline]
    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        visitor.visit_seq(self.elements(fields.len()))
    }
}
