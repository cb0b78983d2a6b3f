//! One line of a story, taken apart.

use std::collections::BTreeMap;

/// Words, options, and who does it.
#[derive(Debug, Default)]
pub(super) struct Line {
    words: Vec<String>,
    options: BTreeMap<String, String>,
    by: Option<String>,
}

impl Line {
    /// `None` for an empty line.
    pub(super) fn parse(source: &str) -> Result<Option<Self>, String> {
        let mut line = Self::default();
        let mut tokens = tokens(source)?.into_iter();
        while let Some((token, quoted)) = tokens.next() {
            if quoted {
                line.words.push(token);
            } else if token == "by" {
                line.by = Some(tokens.next().ok_or("a process is missing after `by`")?.0);
            } else if let Some((key, value)) = token.split_once('=') {
                line.options.insert(key.to_owned(), value.to_owned());
            } else {
                line.words.push(token);
            }
        }
        Ok((!line.words.is_empty()).then_some(line))
    }

    pub(super) fn command(&self) -> &str {
        &self.words[0]
    }

    /// The word at a position; the command is at 0.
    pub(super) fn word(&self, position: usize) -> Result<&str, String> {
        self.words.get(position).map(String::as_str).ok_or_else(|| format!("word {position} is missing"))
    }

    /// All words from a position on.
    pub(super) fn words_from(&self, position: usize) -> &[String] {
        self.words.get(position..).unwrap_or_default()
    }

    /// Whether a word is there, at or after the second position.
    pub(super) fn says(&self, word: &str) -> bool {
        self.words_from(2).iter().any(|found| found == word)
    }

    pub(super) fn by(&self) -> &str {
        self.by.as_deref().unwrap_or("driver")
    }

    pub(super) fn option(&self, key: &str) -> Option<&str> {
        self.options.get(key).map(String::as_str)
    }

    /// An option that is a whole number.
    pub(super) fn number(&self, key: &str, default: u64) -> Result<u64, String> {
        self.option(key).map_or(Ok(default), parse_number)
    }

    /// An option that is a number of bytes.
    pub(super) fn bytes(&self, key: &str, default: u64) -> Result<u64, String> {
        self.option(key).map_or(Ok(default), parse_bytes)
    }

    pub(super) fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        self.options.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

/// Words, and whether they were in quotes.
fn tokens(source: &str) -> Result<Vec<(String, bool)>, String> {
    let mut tokens = Vec::new();
    let mut rest = source.trim_start();
    while !rest.is_empty() && !rest.starts_with('#') {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (token, after) = quoted.split_once('"').ok_or("a quote is not closed")?;
            tokens.push((token.to_owned(), true));
            rest = after.trim_start();
        } else {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            tokens.push((rest[..end].to_owned(), false));
            rest = rest[end..].trim_start();
        }
    }
    Ok(tokens)
}

pub(super) fn parse_number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is not a whole number"))
}

/// `4096`, `300K`, `1M`, `2G`.
pub(super) fn parse_bytes(text: &str) -> Result<u64, String> {
    let shift = match text.chars().last() {
        Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        _ => return parse_number(text),
    };
    Ok(parse_number(&text[..text.len() - 1])? << shift)
}

/// `20ms`, `3s`, in microseconds.
pub(super) fn parse_duration(text: &str) -> Result<u64, String> {
    match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => Ok(parse_number(number)? * 1000),
        (None, Some(number)) => Ok(parse_number(number)? * 1_000_000),
        (None, None) => Err(format!("{text:?} is not a duration such as 20ms or 3s")),
    }
}
