//! Metrics in Prometheus' text form.

use std::fmt::{Arguments, Write as _};

/// A page of metrics in the making.
#[derive(Debug, Default)]
pub struct Page(String);

impl Page {
    /// Begins a metric: its kind is `counter`, `gauge` or `histogram`.
    pub fn kind(&mut self, name: &str, kind: &str, help: &str) {
        self.put(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// One value of it.
    pub fn line(&mut self, name: &str, labels: &[(&str, &str)], value: &str) {
        self.put(format_args!("{name}"));
        for (position, (label, text)) in labels.iter().enumerate() {
            let before = if position == 0 { '{' } else { ',' };
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            self.put(format_args!("{before}{label}=\"{text}\""));
        }
        let close = if labels.is_empty() { "" } else { "}" };
        self.put(format_args!("{close} {value}\n"));
    }

    /// The page's text.
    pub fn into_text(self) -> String {
        self.0
    }

    fn put(&mut self, text: Arguments<'_>) {
        // Writing to a string can't fail.
        if self.0.write_fmt(text).is_err() {
            self.0.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_a_label_or_a_line_is_escaped() {
        let mut page = Page::default();
        page.line("m", &[("a", "x\"y\\z\n"), ("b", "")], "1");
        assert_eq!(page.into_text(), "m{a=\"x\\\"y\\\\z\\n\",b=\"\"} 1\n");
    }
}
