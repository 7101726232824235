//! At least ten thousand orders of events, each decided by a seed, over the real ledger, the real
//! rules of the hand-off, and small models of everything around them: API server, watches, kubelets,
//! kube-scheduler.
//!
//! `MPSHARE_SCHEDULE_SEED=<seed>` plays one alone and prints what happened. What the real extender
//! does over HTTP with a whole API server is in `tests/extender/schedules.rs`.
#![expect(
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test says by a panic what went wrong, and how much it has tried"
)]

mod api;
mod extender;
mod kubelet;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use world::{Tally, World};

const SEEDS: u64 = 10_000;
const SEED: &str = "MPSHARE_SCHEDULE_SEED";

#[test]
fn no_schedule_over_commits_a_card_or_leaves_a_pod_behind() {
    if let Some(seed) = std::env::var(SEED).ok().and_then(|text| text.parse().ok()) {
        let mut world = World::new(seed);
        world.story = Some(Vec::new());
        let ended = world.run();
        println!("seed {seed}, troubles {:?}", world.troubles());
        world.story.iter().flatten().for_each(|line| println!("{line}"));
        ended.unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
        return;
    }
    let begun = Instant::now();
    let tally = play_all();
    let Tally { schedules, calm, steps, bound, refused, .. } = tally;
    println!(
        "{schedules} schedules ({calm} without trouble) of {steps} steps in {:.1} s: {bound} bound, \
         {refused} refused, {} admitted, {} failed, {} corrected, {} restarts, {} waiting at the end",
        begun.elapsed().as_secs_f64(),
        tally.admitted,
        tally.failed,
        tally.corrected,
        tally.restarts,
        tally.waiting,
    );
    assert!(schedules >= 10_000 && calm >= 3_000, "too few schedules: {schedules}");
    let often = [bound, tally.admitted];
    let at_times = [refused, tally.corrected, tally.restarts, tally.waiting].map(|it| it * 50);
    let is_busy = often.into_iter().chain(at_times).all(|count| count > schedules);
    assert!(is_busy && tally.failed > 0, "too quiet: {tally:?}");
}

/// Plays all seeds on all processors.
fn play_all() -> Tally {
    let next = AtomicU64::new(0);
    let workers = thread::available_parallelism().map_or(1, usize::from).min(4);
    thread::scope(|scope| {
        let work = || {
            let mut tally = Tally::default();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= SEEDS {
                    return tally;
                }
                let mut world = World::new(seed);
                if let Err(problem) = world.run() {
                    let troubles = world.troubles().to_vec();
                    panic!(
                        "seed {seed}, troubles {troubles:?}: {problem}; hint: set {SEED}={seed}"
                    );
                }
                tally.add(&world.tally);
            }
        };
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let mut all = Tally::default();
        for worker in workers {
            let tally = worker.join().unwrap_or_else(|problem| std::panic::resume_unwind(problem));
            all.add(&tally);
        }
        all
    })
}
