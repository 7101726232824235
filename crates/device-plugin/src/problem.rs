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

/// Failures of one kind, each said once and counted until it is over.
#[derive(Debug)]
pub(crate) struct Failures {
    what: &'static str,
    last: Option<String>,
    count: u64,
}

impl Failures {
    /// Failures that logs call `what`.
    pub(crate) const fn new(what: &'static str) -> Self {
        Self { what, last: None, count: 0 }
    }

    /// Notes a failure, and says it if it is news.
    pub(crate) fn failed(&mut self, problem: &str) {
        if self.is_news(problem) {
            tracing::warn!(problem, "{}", self.what);
        }
    }

    /// Notes a success, and says so if failures came before it.
    pub(crate) fn over(&mut self) {
        let failures = self.end();
        if failures > 0 {
            tracing::info!(failures, "over: {}", self.what);
        }
    }

    fn is_news(&mut self, problem: &str) -> bool {
        let news = self.last.as_deref() != Some(problem);
        self.count += 1;
        self.last = Some(problem.to_owned());
        news
    }

    fn end(&mut self) -> u64 {
        self.last = None;
        std::mem::take(&mut self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_failure_is_said_once_and_counted() {
        let mut failures = Failures::new("test");
        assert!(failures.is_news("a"));
        assert!(!failures.is_news("a"));
        assert!(failures.is_news("b"));
        assert!(!failures.is_news("b"));
        assert_eq!(failures.end(), 4);
        assert_eq!(failures.end(), 0);
        assert!(failures.is_news("b"), "after a success it is news again");
    }
}
