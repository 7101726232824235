//! Which Xids say that a card is ill, and not just that a program on it failed.

use std::collections::BTreeSet;

/// Xids of failing programs: they say nothing about the card
/// (facts/nvidia-device-plugin.md 2.6).
const APPLICATION_ERRORS: [u64; 6] = [13, 31, 43, 45, 68, 109];

/// Which Xids make a card unhealthy.
///
/// The two texts are NVIDIA's `DP_DISABLE_HEALTHCHECKS` and `DP_ENABLE_HEALTHCHECKS`: comma lists
/// of Xids, `all` or `xids`. A number wins over `all`, and enabling over disabling: `all` disabled
/// and `79` enabled leaves 79 (in NVIDIA's plugin that is documented but doesn't work). Errors of
/// programs become critical only by number.
///
/// ```
/// use mpshare_nvml::XidPolicy;
/// let policy = XidPolicy::new("all", "79");
/// assert!(policy.is_critical(79));
/// assert!(!policy.is_critical(48));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XidPolicy {
    others: Others,
    ignored: BTreeSet<u64>,
    enabled: BTreeSet<u64>,
    unreadable: Vec<String>,
}

/// What Xids do that no list names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Others {
    Critical,
    Ignored,
}

impl Default for XidPolicy {
    fn default() -> Self {
        Self::new("", "")
    }
}

impl XidPolicy {
    /// Reads the two texts; an empty one changes nothing.
    pub fn new(disable: &str, enable: &str) -> Self {
        let (disable, enable) = (List::parse(disable), List::parse(enable));
        let mut ignored = disable.xids;
        ignored.extend(APPLICATION_ERRORS);
        Self {
            others: if disable.all && !enable.all { Others::Ignored } else { Others::Critical },
            ignored,
            enabled: enable.xids,
            unreadable: [disable.unreadable, enable.unreadable].concat(),
        }
    }

    /// Whether this Xid makes its card unhealthy.
    pub fn is_critical(&self, xid: u64) -> bool {
        self.enabled.contains(&xid)
            || (self.others == Others::Critical && !self.ignored.contains(&xid))
    }

    /// The words of the texts that name no Xid; they were passed over.
    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }
}

#[derive(Default)]
struct List {
    all: bool,
    xids: BTreeSet<u64>,
    unreadable: Vec<String>,
}

impl List {
    fn parse(text: &str) -> Self {
        let mut list = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            if word.eq_ignore_ascii_case("all") || word.eq_ignore_ascii_case("xids") {
                list.all = true;
            } else if let Ok(xid) = word.parse() {
                list.xids.insert(xid);
            } else {
                list.unreadable.push(word.to_owned());
            }
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(disable: &str, enable: &str, critical: &[u64], ignored: &[u64]) {
        let policy = XidPolicy::new(disable, enable);
        for xid in critical {
            assert!(policy.is_critical(*xid), "{disable:?} {enable:?} {xid}");
        }
        for xid in ignored {
            assert!(!policy.is_critical(*xid), "{disable:?} {enable:?} {xid}");
        }
    }

    #[test]
    fn errors_of_programs_are_ignored_and_the_rest_is_critical() {
        check("", "", &[48, 62, 79, 94, 119, 999], &[13, 31, 43, 45, 68, 109]);
    }

    #[test]
    fn a_list_ignores_more() {
        check("48, 79", "", &[62], &[13, 48, 79]);
    }

    #[test]
    fn all_and_xids_ignore_everything_wherever_they_stand() {
        for word in ["all", "xids", "ALL", "48,xids"] {
            check(word, "", &[], &[13, 48, 79]);
        }
    }

    #[test]
    fn an_enabled_xid_wins_over_every_way_of_disabling() {
        check("all", "79,48", &[79, 48], &[62, 13]);
        check("79", "79,13", &[79, 13, 62], &[31]);
    }

    #[test]
    fn enabling_all_takes_back_disabling_all_and_nothing_that_was_named() {
        check("all", "all", &[48, 79], &[13, 31]);
        check("48", "xids", &[79], &[13, 48]);
    }

    #[test]
    fn words_that_name_no_xid_are_told() {
        let policy = XidPolicy::new("48,many,,", "-1");
        assert_eq!(policy.unreadable(), ["many", "-1"]);
        assert!(!policy.is_critical(48));
    }

    proptest! {
        #[test]
        fn an_enabled_number_is_critical_whatever_is_disabled(disable in ".*", xid: u64) {
            prop_assert!(XidPolicy::new(&disable, &xid.to_string()).is_critical(xid));
        }

        #[test]
        fn any_text_is_read(disable in ".*", enable in ".*", xid: u64) {
            let policy = XidPolicy::new(&disable, &enable);
            let _critical = policy.is_critical(xid);
        }
    }
}
