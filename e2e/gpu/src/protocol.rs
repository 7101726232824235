//! What a check tells a client, and what comes back: a line of JSON each.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Something to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Tell the driver's CUDA version; needs no card.
    Version,
    /// Initialise, and make a context on the first card.
    Open,
    /// Allocate one block.
    Take {
        /// Its size.
        mib: u64,
    },
    /// Allocate blocks of each of these sizes, one size after the other, until there is no more
    /// memory or `at_most` is reached.
    TakeAll {
        /// Sizes in MiB.
        steps: Vec<u64>,
        /// All together, in MiB.
        at_most: u64,
    },
    /// Keep one multiprocessor busy for a quarter of a second, so many times, and wait for it.
    Work {
        /// How often.
        launches: u32,
    },
    /// Write where no memory is.
    Fault,
}

/// What came of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// It is done; what there is to tell.
    Done(Value),
    /// The driver refused.
    Refused {
        /// In which function.
        call: String,
        /// The `CUresult`.
        code: i32,
        /// Both, and the result's name.
        message: String,
    },
    /// It couldn't be tried.
    Failed(String),
}
