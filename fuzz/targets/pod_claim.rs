//! Any text as a pod's allocation: what is read is written and read as the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mpshare_api::pod_allocation::{claim, read, text};
use mpshare_core::ledger::Claim;

fuzz_target!(|annotation: &str| {
    match claim(Some(annotation)) {
        Claim::Absent => panic!("there is one"),
        Claim::Of(allocation) => assert_eq!(read(&text(&allocation)), Some(allocation)),
        Claim::Unreadable => {}
    }
});
