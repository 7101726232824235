//! A text of somebody else, fit for a sentence of ours.

/// The begin of a text, of bounded length, in one line and without what would end its quotes.
pub(crate) fn printable(text: &str, longest: usize) -> String {
    let shown = text.chars().take(longest);
    shown.map(|c| if c.is_control() || c == '`' { ' ' } else { c }).collect()
}
