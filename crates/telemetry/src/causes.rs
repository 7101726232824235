//! What an error says to people: itself and everything that caused it, since logs, Events and
//! gRPC replies show one line and no more.

use std::error::Error;

/// An error with its causes, from the outermost in.
pub fn sentence(error: &dyn Error) -> String {
    let mut sentence = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        sentence.push_str(": ");
        sentence.push_str(&cause.to_string());
        next = cause.source();
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("can't read `{path}`")]
    struct Outer {
        path: &'static str,
        source: std::io::Error,
    }

    #[test]
    fn causes_follow_what_they_caused() {
        let error = Outer { path: "a", source: std::io::Error::other("disk is gone") };
        assert_eq!(sentence(&error), "can't read `a`: disk is gone");
    }
}
