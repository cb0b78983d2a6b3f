//! Where things may run, from what Python says of it.

use crate::object_ref::id_words;
use aktis_protocol::{LabelRule, LabelTest, NodeId, Strategy};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The name of a label, what is asked of its value, and the values that matter.
pub(crate) type Rule = (String, String, Vec<String>);

/// A strategy as Python gives it: one of its kinds, with what belongs to it.
#[derive(FromPyObject)]
pub(crate) enum Wanted {
    /// `(node, soft)`.
    Node(Vec<u8>, bool),
    /// `(hard, soft)`.
    Labels(Vec<Rule>, Vec<Rule>),
    /// A word.
    Word(String),
}

impl Wanted {
    pub(crate) fn into_strategy(self) -> PyResult<Strategy> {
        match self {
            Self::Word(word) if word == "SPREAD" => Ok(Strategy::Spread),
            Self::Word(word) if word == "DEFAULT" => Ok(Strategy::Default),
            Self::Word(word) => Err(PyValueError::new_err(format!("there is no strategy {word:?}"))),
            Self::Node(node, soft) => Ok(Strategy::Node { node: NodeId::from_words(id_words(&node)?), soft }),
            Self::Labels(hard, soft) => Ok(Strategy::Labels { hard: rules(hard)?, soft: rules(soft)? }),
        }
    }
}

/// Conditions on labels.
pub(crate) fn rules(rules: Vec<Rule>) -> PyResult<Vec<LabelRule>> {
    rules.into_iter().map(rule).collect()
}

fn rule((name, test, values): Rule) -> PyResult<LabelRule> {
    let test = match test.as_str() {
        "in" => LabelTest::In(values),
        "not in" => LabelTest::NotIn(values),
        "exists" => LabelTest::Exists,
        "absent" => LabelTest::Absent,
        other => return Err(PyValueError::new_err(format!("labels cannot be tested with {other:?}"))),
    };
    Ok(LabelRule { name, test })
}
