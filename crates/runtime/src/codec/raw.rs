//! An encoded value in its parts, for who reads it without serde.

use super::buffer::Buffer;
use super::decode::plain_body;
use super::table::Table;
use super::value::Value;
use aktis_protocol::{ActorId, ObjectId};

/// The parts of a value.
pub struct RawValue<'a> {
    value: &'a Value,
    table: Option<Table>,
}

impl<'a> RawValue<'a> {
    pub(super) fn new(value: &'a Value) -> Result<Self, String> {
        Ok(Self { value, table: Table::of(value.bytes())? })
    }

    /// The bytes without flags, table and buffers.
    pub fn body(&self) -> &'a [u8] {
        match &self.table {
            None => plain_body(self.value.bytes()),
            Some(table) => &self.value.bytes()[table.postcard_at()],
        }
    }

    /// How many buffers there are.
    pub fn buffers(&self) -> u32 {
        self.table.map_or(0, |table| table.buffers)
    }

    /// Buffer number `index`, without a copy.
    pub fn buffer(&self, index: u32) -> Option<Buffer> {
        let range = self.table?.buffer(self.value.bytes(), index)?;
        Buffer::part_of(self.value.clone(), range)
    }

    /// How many references to objects there are.
    pub fn objects(&self) -> u32 {
        self.table.map_or(0, |table| table.objects)
    }

    /// How many handles of actors there are.
    pub fn actors(&self) -> u32 {
        self.table.map_or(0, |table| table.actors)
    }

    /// The object that reference number `index` refers to.
    pub fn object(&self, index: u32) -> Option<ObjectId> {
        self.table?.object(self.value.bytes(), index)
    }

    /// The actor that handle number `index` refers to.
    pub fn actor(&self, index: u32) -> Option<ActorId> {
        self.table?.actor(self.value.bytes(), index)
    }
}

#[cfg(test)]
mod tests {
    use super::super::encoded::Encoded;
    use super::*;

    #[test]
    fn a_raw_value_comes_back_in_its_parts() {
        let buffers = vec![Buffer::from_vec(vec![1_u8, 2, 3]), Buffer::from_vec(vec![7_u8; 100])];
        let value = Encoded::from_raw(b"body", buffers, Vec::new(), Vec::new()).into_value();
        let raw = value.raw().unwrap();
        assert_eq!((raw.body(), raw.buffers(), raw.objects()), (&b"body"[..], 2, 0));
        assert_eq!(raw.buffer(0).unwrap().as_slice(), [1, 2, 3]);
        assert_eq!(raw.buffer(1).unwrap().as_slice(), [7; 100]);
        assert!(raw.buffer(2).is_none() && raw.object(0).is_none() && raw.actor(0).is_none());
    }

    #[test]
    fn a_plain_raw_value_is_its_body() {
        let value = Encoded::from_raw(b"plain", Vec::new(), Vec::new(), Vec::new()).into_value();
        assert_eq!(value.raw().unwrap().body(), b"plain");
        assert!(Value::inline(&[]).raw().is_err());
    }
}
