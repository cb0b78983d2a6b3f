//! Lines of `log` and `tracing` in a worker whose program has set up neither: they go to standard error, which the driver
//! shows.

/// What is printed: `AKTIS_LOG`, else `RUST_LOG`, such as `info` or `warn,my_crate=debug`.
struct Filter {
    default: u8,
    /// Levels of targets that begin so.
    rules: Vec<(String, u8)>,
}

/// Levels by their verbosity, as `log` and `tracing` number them.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
const INFO: u8 = 3;

impl Filter {
    fn from_environment() -> Self {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self::parse(&variable("AKTIS_LOG").or_else(|| variable("RUST_LOG")).unwrap_or_default())
    }

    /// What cannot be read is left out: a program must not fail by its log.
    fn parse(text: &str) -> Self {
        let level = |word: &str| LEVELS.iter().position(|level| level.eq_ignore_ascii_case(word.trim()));
        let (mut default, mut rules) = (None, Vec::new());
        for directive in text.split(',').filter(|directive| !directive.trim().is_empty()) {
            match directive.split_once('=') {
                None => match level(directive) {
                    Some(level) => default = Some(level as u8),
                    // A bare target means all of it.
                    None => rules.push((directive.trim().to_owned(), (LEVELS.len() - 1) as u8)),
                },
                Some((target, word)) => {
                    rules.extend(level(word).map(|level| (target.trim().to_owned(), level as u8)));
                }
            }
        }
        // Naming targets alone silences the others, as elsewhere.
        let default = default.unwrap_or(if rules.is_empty() { INFO } else { 0 });
        Self { default, rules }
    }

    fn allows(&self, level: u8, target: &str) -> bool {
        let fits = self.rules.iter().filter(|(prefix, _)| target.starts_with(prefix.as_str()));
        let rule = fits.max_by_key(|(prefix, _)| prefix.len());
        level <= rule.map_or(self.default, |(_, level)| *level)
    }

    fn most(&self) -> u8 {
        self.rules.iter().map(|(_, level)| *level).fold(self.default, u8::max)
    }
}

/// Sets up whichever of the two the program has not.
pub(super) fn install() {
    #[cfg(feature = "log")]
    of_log::install();
    #[cfg(feature = "tracing")]
    of_tracing::install();
}

/// A line that other threads do not cut in two.
fn print(level: u8, target: &str, message: std::fmt::Arguments<'_>) {
    use std::io::Write;
    let level = LEVELS[usize::from(level).min(LEVELS.len() - 1)].to_ascii_uppercase();
    let line = format!("{level} {target}: {message}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

#[cfg(feature = "log")]
mod of_log {
    use super::{Filter, print};
    use log::{LevelFilter, Log, Metadata, Record};

    struct Logger(Filter);

    pub(super) fn install() {
        let filter = Filter::from_environment();
        let most = LevelFilter::iter().nth(usize::from(filter.most())).unwrap_or(LevelFilter::Trace);
        // One logger for the whole life of the process.
        if log::set_logger(Box::leak(Box::new(Logger(filter)))).is_ok() {
            log::set_max_level(most);
        }
    }

    impl Log for Logger {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            self.0.allows(metadata.level() as u8, metadata.target())
        }

        fn log(&self, record: &Record<'_>) {
            if self.enabled(record.metadata()) {
                print(record.level() as u8, record.target(), *record.args());
            }
        }

        fn flush(&self) {}
    }
}

#[cfg(feature = "tracing")]
mod of_tracing {
    use super::{Filter, print};
    use std::fmt::{Debug, Write};
    use tracing_core::field::{Field, Visit};
    use tracing_core::span::{Attributes, Current, Id, Record};
    use tracing_core::{Dispatch, Event, Level, LevelFilter, Metadata, Subscriber, dispatcher};

    /// Prints events; spans are not kept.
    struct Printer(Filter);

    pub(super) fn install() {
        let _ = dispatcher::set_global_default(Dispatch::new(Printer(Filter::from_environment())));
    }

    fn number(level: &Level) -> u8 {
        match *level {
            Level::ERROR => 1,
            Level::WARN => 2,
            Level::INFO => 3,
            Level::DEBUG => 4,
            Level::TRACE => 5,
        }
    }

    impl Subscriber for Printer {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.is_event() && self.0.allows(number(metadata.level()), metadata.target())
        }

        fn max_level_hint(&self) -> Option<LevelFilter> {
            Some(match self.0.most() {
                0 => LevelFilter::OFF,
                1 => LevelFilter::ERROR,
                2 => LevelFilter::WARN,
                3 => LevelFilter::INFO,
                4 => LevelFilter::DEBUG,
                _ => LevelFilter::TRACE,
            })
        }

        fn event(&self, event: &Event<'_>) {
            let mut line = Line::default();
            event.record(&mut line);
            let metadata = event.metadata();
            print(
                number(metadata.level()),
                metadata.target(),
                format_args!("{}{}", line.message, line.fields),
            );
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}

        fn current_span(&self) -> Current {
            Current::none()
        }
    }

    /// An event's message, and its other fields as ` name=value`.
    #[derive(Default)]
    struct Line {
        message: String,
        fields: String,
    }

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            let _ = match field.name() {
                "message" => write!(self.message, "{value:?}"),
                name => write!(self.fields, " {name}={value:?}"),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_precise_rule_counts() {
        let filter = Filter::parse("warn,my_crate=debug, my_crate::noisy = off");
        assert!(filter.allows(2, "other") && !filter.allows(3, "other"));
        assert!(filter.allows(4, "my_crate::part") && !filter.allows(5, "my_crate"));
        assert!(!filter.allows(1, "my_crate::noisy"));
        assert_eq!(filter.most(), 4);
    }

    #[test]
    fn info_is_printed_unless_said_otherwise() {
        assert!(Filter::parse("").allows(INFO, "any") && !Filter::parse("").allows(INFO + 1, "any"));
        assert!(!Filter::parse("OFF").allows(1, "any"));
        let only = Filter::parse("my_crate");
        assert!(only.allows(5, "my_crate") && !only.allows(1, "other"));
        assert!(Filter::parse("my_crate=loud").allows(INFO, "my_crate"), "what cannot be read is left out");
    }
}
