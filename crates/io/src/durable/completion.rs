//! What is called with an answer, exactly once: if nobody gives one, with the news that there is none.

use super::StoreError;
use aktis_protocol::tables::Answer;
use std::fmt;

/// A function that waits for an answer.
pub(super) struct Completion(Option<Callback>);

type Callback = Box<dyn FnOnce(Result<Answer, StoreError>) + Send>;

impl Completion {
    pub(super) fn new(done: impl FnOnce(Result<Answer, StoreError>) + Send + 'static) -> Self {
        Self(Some(Box::new(done)))
    }

    pub(super) fn answer(mut self, answer: Answer) {
        if let Some(done) = self.0.take() {
            done(Ok(answer));
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(StoreError::Stopped));
        }
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Completion")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn it_is_called_once_with_an_answer_or_without() {
        let (sender, receiver) = channel();
        let completion = || {
            let sender = sender.clone();
            Completion::new(move |answer| sender.send(answer).expect("somebody listens"))
        };
        completion().answer(Answer::Row(None));
        drop(completion());
        let answers: Vec<_> = receiver.try_iter().collect();
        assert_eq!(answers, [Ok(Answer::Row(None)), Err(StoreError::Stopped)]);
    }
}
