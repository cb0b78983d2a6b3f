//! Passed and failed tests, read from the summaries that test runners print.

/// Whose summary is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runner {
    /// `cargo nextest`: one summary in all.
    Nextest,
    /// `cargo test`: one summary per test binary.
    Cargo,
    /// `pytest`: one summary in all, the last line.
    Pytest,
}

/// How many tests passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Tests that passed.
    pub(crate) passed: u64,
    /// Tests that failed, timed out or could not be started.
    pub(crate) failed: u64,
}

impl Runner {
    /// Whether the line is a summary.
    pub(crate) fn is_summary(self, line: &str) -> bool {
        counts_of(self, line).is_some()
    }
}

impl Tally {
    /// Adds the counts of the line, if it is a summary of `runner`.
    pub(crate) fn on_line(&mut self, runner: Runner, line: &str) {
        let Some(counts) = counts_of(runner, line) else { return };
        for part in counts.split([',', ';', '.']) {
            let mut words = part.split_whitespace();
            let Some(Ok(count)) = words.next().map(str::parse::<u64>) else { continue };
            match words.next() {
                Some("passed") => self.passed += count,
                Some("failed" | "timed" | "exec" | "error" | "errors") => self.failed += count,
                _ => {}
            }
        }
    }
}

/// The part of a summary with the counts. No runner's summary may be indented further than here: nextest
/// repeats the output of failed tests, indented, and the summaries in there are counted already.
fn counts_of(runner: Runner, line: &str) -> Option<&str> {
    match runner {
        Runner::Nextest => {
            let rest = line.trim_start().strip_prefix("Summary [")?;
            rest.split_once("run: ").map(|(_, counts)| counts)
        }
        Runner::Cargo => line.strip_prefix("test result: "),
        Runner::Pytest => {
            // There is a rule around it, unless the output is to be short.
            let line = line.trim_matches('=');
            let (counts, time) = line.strip_prefix(' ').unwrap_or(line).rsplit_once(" in ")?;
            time.split_whitespace().next()?.strip_suffix('s')?.parse::<f64>().ok().map(|_| counts)
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_add_up() {
        let mut tally = Tally::default();
        tally.on_line(
            Runner::Nextest,
            "     Summary [   1.205s] 9 tests run: 5 passed (1 slow), 2 failed, 2 timed out, 3 skipped",
        );
        assert_eq!(tally.to_string(), "5 passed, 4 failed");
        tally.on_line(
            Runner::Cargo,
            "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        );
        tally.on_line(Runner::Cargo, "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s");
        assert_eq!(tally, Tally { passed: 8, failed: 5 });
    }

    #[test]
    fn pytest_tells_failures_and_errors_apart() {
        let mut tally = Tally::default();
        for line in [
            "===== 1 failed, 12 passed, 3 skipped, 2 warnings, 1 error in 8.31s =====",
            "2 passed in 61.20s (0:01:01)",
            "==== no tests ran in 0.01s ====",
        ] {
            tally.on_line(Runner::Pytest, line);
        }
        assert_eq!(tally, Tally { passed: 14, failed: 2 });
    }

    #[test]
    fn other_lines_count_for_nothing() {
        let mut tally = Tally::default();
        tally.on_line(Runner::Nextest, "    test result: FAILED. 0 passed; 1 failed; 0 ignored");
        tally.on_line(Runner::Nextest, "        PASS [   0.003s] aktis-protocol ids::tests::round_trip");
        tally.on_line(Runner::Cargo, "    test result: ok. 2 passed; 0 failed");
        tally.on_line(Runner::Cargo, "test tests::a ... ok");
        tally.on_line(Runner::Pytest, "python/tests/test_tasks.py ....... [ 12%]");
        tally.on_line(Runner::Pytest, "    2 passed in a row, said the test");
        tally.on_line(Runner::Pytest, "SKIPPED [1] test_a.py:3: 2 failed in 3s elsewhere");
        assert_eq!(tally, Tally::default());
    }
}
