//! Failures of loops: said once and then counted.

/// Failures of one kind, each said once and counted until it is over.
#[derive(Debug)]
pub struct Failures {
    what: &'static str,
    last: Option<String>,
    count: u64,
}

impl Failures {
    /// Failures that logs call `what`.
    pub const fn new(what: &'static str) -> Self {
        Self { what, last: None, count: 0 }
    }

    /// Notes a failure, and says it if it is news.
    pub fn failed(&mut self, problem: &str) {
        if self.is_news(problem) {
            tracing::warn!(problem, "{}", self.what);
        }
    }

    /// Notes a success, and says so if failures came before it.
    pub fn over(&mut self) {
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
