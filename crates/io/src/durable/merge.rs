//! The answers of several shards as one.

use super::completion::Completion;
use aktis_protocol::tables::{Answer, Query};
use parking_lot::Mutex;
use std::sync::Arc;

/// Waits for all shards that have a part of an answer. If one of them gives none, there is none.
pub(super) struct Gather {
    state: Mutex<State>,
}

struct State {
    whole: Option<Answer>,
    missing: usize,
    completion: Option<Completion>,
    limit: usize,
}

impl Gather {
    /// So many parts are to come.
    pub(super) fn new(parts: usize, limit: usize, completion: Completion) -> Arc<Self> {
        let completion = Some(completion);
        Arc::new(Self { state: Mutex::new(State { whole: None, missing: parts, completion, limit }) })
    }

    /// What takes one part. `translate` makes it a part of the whole.
    pub(super) fn part(self: &Arc<Self>, translate: impl FnOnce(&mut Answer) + Send + 'static) -> Completion {
        let gather = self.clone();
        Completion::new(move |answer| match answer {
            Ok(mut answer) => {
                translate(&mut answer);
                gather.add(answer);
            }
            // Dropped where no lock is held: it is the caller's function that hears of it.
            Err(_) => drop(gather.take()),
        })
    }

    fn add(&self, part: Answer) {
        let mut state = self.state.lock();
        state.missing -= 1;
        state.whole = Some(match state.whole.take() {
            Some(whole) => merge(whole, part, state.limit),
            None => part,
        });
        if state.missing == 0
            && let (Some(completion), Some(whole)) = (state.completion.take(), state.whole.take())
        {
            drop(state);
            completion.answer(whole);
        }
    }

    fn take(&self) -> Option<Completion> {
        self.state.lock().completion.take()
    }
}

/// How many rows the whole answer may have.
pub(super) fn limit_of(query: &Query) -> usize {
    match query {
        Query::Rows { limit, .. } | Query::Objects { limit, .. } | Query::Events { limit } => *limit as usize,
        _ => usize::MAX,
    }
}

fn merge(whole: Answer, part: Answer, limit: usize) -> Answer {
    match (whole, part) {
        (Answer::Applied { refused: mut all }, Answer::Applied { refused }) => {
            all.extend(refused);
            all.sort_unstable_by_key(|refusal| refusal.change);
            Answer::Applied { refused: all }
        }
        (rejected @ Answer::Rejected(_), _) | (_, rejected @ Answer::Rejected(_)) => rejected,
        (Answer::Rows { rows: mut all, more: before }, Answer::Rows { rows, more }) => {
            all.extend(rows);
            all.sort_unstable();
            let cut = all.len() > limit;
            all.truncate(limit);
            Answer::Rows { rows: all, more: before || more || cut }
        }
        (Answer::Objects(mut all), Answer::Objects(objects)) => {
            all.extend(objects);
            all.sort_unstable_by_key(|(object, _)| *object);
            all.truncate(limit);
            Answer::Objects(all)
        }
        (Answer::Events(mut all), Answer::Events(events)) => {
            all.extend(events);
            all.sort_by_key(|event| event.at_microseconds);
            let skipped = all.len().saturating_sub(limit);
            Answer::Events(all.split_off(skipped))
        }
        (Answer::Counts(mut all), Answer::Counts(counts)) => {
            all.rows += counts.rows;
            all.row_bytes += counts.row_bytes;
            all.objects += counts.objects;
            all.tasks += counts.tasks;
            all.task_bytes += counts.task_bytes;
            all.events += counts.events;
            Answer::Counts(all)
        }
        (whole, _) => whole,
    }
}
