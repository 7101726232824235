//! Any text as a config file: it is read, or the report names a place in it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mpshare_api::config::{config_map_texts, parse};

fuzz_target!(|text: &str| {
    match parse("fuzzed", text) {
        Ok(config) => drop(config.meaning()),
        Err(error) => drop(error.to_string()),
    }
    drop(config_map_texts(text));
});
