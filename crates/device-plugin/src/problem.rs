//! Failures of loops: an error and its causes in one line, said once and then counted.

use std::error::Error;

/// An error with its causes, from the outermost in.
pub(crate) fn sentence(error: &dyn Error) -> String {
    let mut sentence = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        sentence.push_str(": ");
        sentence.push_str(&cause.to_string());
        next = cause.source();
    }
    sentence
}

/// A loop's failures: tells whether one is news.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    last: Option<String>,
    count: u64,
}

impl Failures {
    /// Notes a failure; true when it has to be said.
    pub(crate) fn is_news(&mut self, sentence: &str) -> bool {
        let news = self.last.as_deref() != Some(sentence);
        self.count = if news { 1 } else { self.count + 1 };
        self.last = Some(sentence.to_owned());
        news
    }

    /// Notes a success; how many failures of the same kind came before it.
    pub(crate) fn over(&mut self) -> u64 {
        self.last = None;
        std::mem::take(&mut self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_failure_is_said_once_and_counted() {
        let mut failures = Failures::default();
        assert!(failures.is_news("a"));
        assert!(!failures.is_news("a"));
        assert!(!failures.is_news("a"));
        assert!(failures.is_news("b"));
        assert!(!failures.is_news("b"));
        assert_eq!(failures.over(), 2);
        assert!(failures.is_news("b"), "after a success it is news again");
    }
}
