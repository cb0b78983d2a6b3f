//! One thing that is shown: fields for programs, and columns for people.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

/// The fields and columns of one thing. Fields are printed as JSON, in order; columns are a row of a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    fields: Vec<(&'static str, Item)>,
    columns: Vec<Column>,
}

/// What a field holds. Records are not made values: those would forget the order of their fields.
#[derive(Clone, Debug)]
enum Item {
    Value(Value),
    Records(Vec<Record>),
}

/// One cell of a table.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) heading: &'static str,
    pub(crate) text: String,
    /// Whether it is a number, whose digits stand below each other.
    pub(crate) is_number: bool,
}

impl Record {
    /// Adds what only programs get.
    pub(crate) fn field(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.fields.push((name, Item::Value(value.into())));
        self
    }

    /// Adds a list of others.
    pub(crate) fn records(mut self, name: &'static str, records: Vec<Record>) -> Self {
        self.fields.push((name, Item::Records(records)));
        self
    }

    /// Adds what only people get.
    pub(crate) fn column(mut self, heading: &'static str, value: impl Into<Value>) -> Self {
        let value = value.into();
        let is_number = value.is_number();
        let text = match value {
            Value::Null => String::new(),
            Value::String(text) => text,
            value => value.to_string(),
        };
        self.columns.push(Column { heading, text, is_number });
        self
    }

    /// Adds what both get as it is.
    pub(crate) fn both(self, name: &'static str, heading: &'static str, value: impl Into<Value>) -> Self {
        let value = value.into();
        self.column(heading, value.clone()).field(name, value)
    }

    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.fields.len()))?;
        for (name, item) in &self.fields {
            match item {
                Item::Value(value) => map.serialize_entry(name, value)?,
                Item::Records(records) => map.serialize_entry(name, records)?,
            }
        }
        map.end()
    }
}
