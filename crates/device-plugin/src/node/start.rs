//! The first look: what a former process recorded, what the node looks like now.

use std::sync::Mutex;
use std::time::Instant;

use tokio::sync::{Notify, watch};

use super::{Footing, Node, State, log_changes};
use crate::Options;
use crate::activity::Activity;
use crate::handoff::Come;
use crate::ledger::{Ledger, Origin};
use crate::problems::Problems;
use crate::view::View;
use mpshare_telemetry::Failures;

impl Node {
    /// Reads everything once.
    pub(crate) fn start(options: Options, now: Instant) -> Self {
        let root = options.root();
        let (ledger, origin) = Ledger::load(root.allocations(), now);
        let footing = match &origin {
            Origin::File => Footing::Sound,
            Origin::Nothing | Origin::Damaged(_) => Footing::Unknown,
        };
        let records = ledger.records().len();
        tracing::info!(records, "allocations of a former process: {origin}");
        let view = View::read(&root, &View::default());
        log_changes(&View::default(), &view);
        let node = Self {
            options,
            state: Mutex::new(State {
                view,
                plan: None,
                ledger,
                footing,
                activity: Activity::default(),
                ledger_failures: Failures::new("allocations can't be written"),
                checkpoint_failures: Failures::new("kubelet checkpoint can't be used"),
                told: None,
                is_untold: false,
                come: Come::default(),
                holdings_failures: Failures::new("holdings can't be written"),
            }),
            changed: watch::Sender::new(()),
            look: Notify::new(),
            problems: Problems::new(&root),
        };
        let mut state = node.state();
        node.take_evidence(&mut state, None, now);
        drop(state);
        node
    }
}
