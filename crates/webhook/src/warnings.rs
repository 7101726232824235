//! Sentences in the form in which an API server passes warnings on.
//!
//! It drops a warning with a control character in it. When all of them together have more than
//! 4,096 characters it cuts each after 256 and drops what comes after 4,096 in all
//! (`endpoints/filters/warning.go` of k8s.io/apiserver); the end of a sentence is its hint, so that
//! it is better cut here.

use mpshare_core::Reason;

/// The most characters of all warnings of a request that are passed on uncut.
const IN_ALL: usize = 4096;

/// The most characters of each when there are more.
const EACH: usize = 256;

/// The separator of what is and what to do about it.
const HINT: &str = "; hint: ";

/// One warning per finding, each once, as short as they have to be.
pub(crate) fn warnings(findings: &[Reason]) -> Vec<String> {
    let mut texts: Vec<String> = Vec::with_capacity(findings.len());
    for finding in findings {
        let text = printable(&finding.to_string());
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    if texts.iter().map(|text| text.chars().count()).sum::<usize>() <= IN_ALL {
        return texts;
    }
    let most = IN_ALL / EACH;
    let left_out = texts.len().saturating_sub(most);
    if left_out > 0 {
        texts.truncate(most - 1);
    }
    let mut texts: Vec<String> = texts.iter().map(|text| shortened(text)).collect();
    if left_out > 0 {
        texts.push(format!("and {} more findings; hint: repair these first", left_out + 1));
    }
    texts
}

/// A text of at most so many characters that keeps its hint where that leaves room for the rest.
fn shortened(text: &str) -> String {
    if text.chars().count() <= EACH {
        return text.to_owned();
    }
    let (what, hint) = match text.rfind(HINT) {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let hint: String = hint.chars().take(EACH / 2).collect();
    let room = EACH.saturating_sub(hint.chars().count() + 1);
    let what: String = what.chars().take(room).collect();
    format!("{what}…{hint}")
}

fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(label: String) -> Reason {
        Reason::SeveralGpusAsked { label }
    }

    #[test]
    fn a_few_findings_are_shown_as_they_are_and_none_twice() {
        let findings = [finding("2".to_owned()), finding("2".to_owned()), Reason::EmptyRequest];
        let expected = [findings[0].to_string(), findings[2].to_string()];
        assert_eq!(warnings(&findings), expected);
    }

    #[test]
    fn a_control_character_doesnt_make_an_api_server_drop_the_warning() {
        let texts = warnings(&[finding("a\nb\u{7f}".to_owned())]);
        assert!(texts[0].contains("`aliyun.com/gpu-count: a b `"), "{texts:?}");
    }

    #[test]
    fn many_findings_are_cut_so_that_each_keeps_its_hint() {
        let findings: Vec<Reason> =
            (0..30).map(|n| finding(format!("{n}{}", "x".repeat(500)))).collect();
        let texts = warnings(&findings);
        assert!(texts.iter().all(|text| text.chars().count() <= EACH));
        assert!(texts.iter().all(|text| text.contains("; hint: ")), "{texts:?}");
        assert!(texts.iter().map(|text| text.chars().count()).sum::<usize>() <= IN_ALL);
        assert_eq!(texts.last().unwrap(), "and 15 more findings; hint: repair these first");
        assert_eq!(texts.len(), 16);
    }
}
