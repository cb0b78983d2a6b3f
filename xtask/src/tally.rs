//! Passed and failed tests, read from the summaries that test runners print.

/// Whose summary is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runner {
    /// `cargo nextest`: one summary in all.
    Nextest,
    /// `cargo test`: one summary per test binary.
    Cargo,
}

/// How many tests passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Tests that passed.
    pub(crate) passed: u64,
    /// Tests that failed, timed out or could not be started.
    pub(crate) failed: u64,
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
                Some("failed" | "timed" | "exec") => self.failed += count,
                _ => {}
            }
        }
    }
}

/// The part of a summary with the counts. Neither runner's summary may be indented further than here: nextest
/// repeats the output of failed tests, indented, and the summaries in there are counted already.
fn counts_of(runner: Runner, line: &str) -> Option<&str> {
    match runner {
        Runner::Nextest => {
            let rest = line.trim_start().strip_prefix("Summary [")?;
            rest.split_once("run: ").map(|(_, counts)| counts)
        }
        Runner::Cargo => line.strip_prefix("test result: "),
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
    fn other_lines_count_for_nothing() {
        let mut tally = Tally::default();
        tally.on_line(Runner::Nextest, "    test result: FAILED. 0 passed; 1 failed; 0 ignored");
        tally.on_line(Runner::Nextest, "        PASS [   0.003s] aktis-protocol ids::tests::round_trip");
        tally.on_line(Runner::Cargo, "    test result: ok. 2 passed; 0 failed");
        tally.on_line(Runner::Cargo, "test tests::a ... ok");
        assert_eq!(tally, Tally::default());
    }
}
