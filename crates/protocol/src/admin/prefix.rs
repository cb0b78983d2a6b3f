//! The first digits of an id: enough for people to say which one they mean.

use crate::ids::ParseIdError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The first digits of an id, or all of them: enough for people to say which one they mean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IdPrefix(String);

impl IdPrefix {
    /// Fewer digits than this mean nobody in particular.
    pub const DIGITS_MIN: usize = 4;
    /// The digits of a whole id.
    pub const DIGITS_MAX: usize = 32;

    /// The whole of an id.
    pub fn of(words: [u64; 2]) -> Self {
        Self(format!("{:016x}{:016x}", words[0], words[1]))
    }

    /// Whether `id`, as it is displayed, begins like this.
    pub fn is_start_of(&self, id: &impl fmt::Display) -> bool {
        id.to_string().starts_with(&self.0)
    }

    /// The same for the two words of an id, without writing them down: for those who look through many.
    pub fn is_start_of_words(&self, words: [u64; 2]) -> bool {
        let id = u128::from(words[0]) << 64 | u128::from(words[1]);
        let unsaid = 4 * (Self::DIGITS_MAX - self.0.len()) as u32;
        u128::from_str_radix(&self.0, 16).is_ok_and(|digits| id >> unsaid == digits)
    }
}

impl fmt::Display for IdPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for IdPrefix {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let length = (Self::DIGITS_MIN..=Self::DIGITS_MAX).contains(&text.len());
        let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        (length && digits).then(|| Self(text.to_ascii_lowercase())).ok_or(ParseIdError)
    }
}

impl TryFrom<String> for IdPrefix {
    type Error = ParseIdError;

    fn try_from(text: String) -> Result<Self, ParseIdError> {
        text.parse()
    }
}

impl From<IdPrefix> for String {
    fn from(prefix: IdPrefix) -> Self {
        prefix.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{SessionId, TaskId};

    #[test]
    fn the_start_of_an_id_is_some_hexadecimal_digits() {
        let id = TaskId::root(SessionId(0xabcd_ef01_2345_6789));
        for (text, means) in
            [("abcd", true), ("ABCDEF", true), ("abce", false), (&*format!("{id}"), true), ("0000", false)]
        {
            let prefix = text.parse::<IdPrefix>().expect("digits");
            assert_eq!(prefix.is_start_of(&id), means, "{text}");
            assert_eq!(prefix.is_start_of_words(id.to_words()), means, "{text}");
        }
        for text in ["", "abc", "ghij", "12 34", &"1".repeat(33)] {
            assert_eq!(text.parse::<IdPrefix>(), Err(ParseIdError), "{text}");
        }
    }
}
