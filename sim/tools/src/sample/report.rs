//! What the program says: lines for people on standard output, lines of JSON in a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

/// Something that happened. Amounts are MiB.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event {
    /// There is a context.
    Started {
        mps: bool,
        uuid: String,
        name: String,
        sm_count: i32,
        free_mib: usize,
        total_mib: usize,
    },
    /// A file is below `/dev/shm`.
    Touched { path: String },
    /// More memory is allocated.
    Allocated { mib: usize, all_mib: usize },
    /// There was no more memory.
    Exhausted { all_mib: usize, error: String },
    /// A kernel ran for so long.
    Launched { milliseconds: u128 },
    /// Everything asked for is there.
    Holding { all_mib: usize },
    /// A call failed.
    Failed { call: String, code: i32, error: String },
    /// The end, without an error.
    Finished,
}

#[derive(Serialize)]
struct Line<'a> {
    pid: u32,
    #[serde(flatten)]
    event: &'a Event,
}

/// Where events go.
#[derive(Debug)]
pub(super) struct Report {
    file: Option<File>,
}

impl Report {
    /// Opens the file, if there is to be one.
    pub(super) fn open(path: Option<&Path>) -> io::Result<Self> {
        let open = |path| OpenOptions::new().create(true).append(true).open(path);
        Ok(Self { file: path.map(open).transpose()? })
    }

    /// Says what happened. A reader that went away doesn't stop the work.
    pub(super) fn say(&mut self, event: &Event) {
        let pid = std::process::id();
        drop(writeln!(io::stdout(), "[{pid}] {}", sentence(event)));
        if let Some(file) = &mut self.file
            && let Ok(mut line) = serde_json::to_string(&Line { pid, event })
        {
            line.push('\n');
            // One write, so that the lines of several processes don't mix.
            drop(file.write_all(line.as_bytes()));
        }
    }
}

fn sentence(event: &Event) -> String {
    match event {
        Event::Started { mps, uuid, name, sm_count, free_mib, total_mib } => {
            let way = if *mps { "through MPS" } else { "without MPS" };
            format!(
                "{name} {uuid} {way}: {sm_count} multiprocessors, {free_mib} of {total_mib} MiB \
                 free"
            )
        }
        Event::Touched { path } => format!("wrote `{path}`"),
        Event::Allocated { mib, all_mib } => format!("allocated {mib} MiB, {all_mib} MiB in all"),
        Event::Exhausted { all_mib, error } => format!("no more after {all_mib} MiB: {error}"),
        Event::Launched { milliseconds } => format!("kernel done after {milliseconds} ms"),
        Event::Holding { all_mib } => format!("holding {all_mib} MiB"),
        Event::Failed { call, code, error } => format!("{call} failed: {error} ({code})"),
        Event::Finished => "done".to_owned(),
    }
}
