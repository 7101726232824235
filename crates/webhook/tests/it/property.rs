//! At least ten thousand random pods, each decided by a seed, admitted or refused as an API server
//! does it: an admitted one never yields a client with more than its share, or outside MPS.
//!
//! `MPSHARE_POD_SEED=<seed>` tries one alone and prints what happened. A pod goes only to nodes that
//! are there when it is admitted: what a later one would make of it isn't looked at here.

mod fleet;
mod pods;
mod runtime;

use std::collections::BTreeSet;
use std::error::Error;

use mpshare_api::admission_review::Request;
use mpshare_webhook::{Mode, Rules, mutate, validate};
use serde_json::{Value, json};

use self::fleet::{Cluster, GPU, MEMORY};
use self::pods::{Author, units};
use self::runtime::{Client, list};
use crate::scene::{patch, review};

const SEEDS: u64 = 10_000;
const SEED: &str = "MPSHARE_POD_SEED";

const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

type Tried<T> = Result<T, Box<dyn Error>>;

#[derive(Debug, Default)]
struct Tally {
    patched: u64,
    admitted: u64,
    sharing: u64,
    clients: u64,
}

#[test]
fn an_admitted_pod_has_no_more_than_its_share_and_nothing_outside_mps() {
    let mut tally = Tally::default();
    if let Some(seed) = std::env::var(SEED).ok().and_then(|text| text.parse().ok()) {
        let mut story = Some(Vec::new());
        let tried = try_pod(seed, &mut tally, &mut story);
        story.iter().flatten().for_each(|line| println!("{line}"));
        tried.unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
        return;
    }
    for seed in 0..SEEDS {
        let tried = try_pod(seed, &mut tally, &mut None);
        tried.unwrap_or_else(|problem| panic!("seed {seed}: {problem}; hint: set {SEED}={seed}"));
    }
    println!("{SEEDS} pods, seeds 0 to {}: {tally:?}", SEEDS - 1);
    let Tally { patched, admitted, sharing, clients } = tally;
    let is_busy = [patched, admitted, sharing].into_iter().all(|count| count > SEEDS / 10);
    assert!(is_busy && admitted < SEEDS * 9 / 10 && clients > SEEDS, "too quiet: {tally:?}");
}

fn try_pod(seed: u64, tally: &mut Tally, story: &mut Option<Vec<String>>) -> Tried<()> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let cluster = Cluster::random(&mut rng);
    let pod = Author::new(&mut rng).pod();
    if let Some(story) = story {
        story.push(format!("{:?}\n{:?}\n{pod:#}", cluster.policy, cluster.fleet));
    }
    let changed = mutated(&cluster, &pod)?;
    let again = mutated(&cluster, &changed)?;
    if again != changed {
        return Err(format!("the second time more is changed: {again:#}").into());
    }
    unchanged_beside(&pod, &changed)?;
    tally.patched += u64::from(changed != pod);
    let response = asked(&cluster, validate, &changed)?;
    if let Some(story) = story {
        story.push(format!("{changed:#}\n{response:#}"));
    }
    if response["allowed"] != true {
        return Ok(());
    }
    tally.admitted += 1;
    let clients = check(&cluster, &changed, &mut rng)?;
    tally.clients += clients;
    tally.sharing += u64::from(clients > 0);
    Ok(())
}

type Verb = fn(
    Rules<'_>,
    Mode,
    &Request,
) -> Result<mpshare_webhook::Reviewed, mpshare_webhook::Unanswerable>;

/// The `response` to a review, from bytes to bytes.
fn asked(cluster: &Cluster, verb: Verb, pod: &Value) -> Tried<Value> {
    let request = Request::read(&review(&json!({"object": pod})))?;
    let Cluster { policy, fleet, .. } = cluster;
    let rules = Rules { policy, fleet, own_accounts: &BTreeSet::new() };
    let body = verb(rules, Mode::Enforce, &request)?.response.to_body()?;
    let whole: Value = serde_json::from_slice(&body)?;
    Ok(whole["response"].clone())
}

/// The pod as the API server has it after mutation.
fn mutated(cluster: &Cluster, pod: &Value) -> Tried<Value> {
    let response = asked(cluster, mutate, pod)?;
    if response["allowed"] != true {
        return Err(format!("mutation refuses it: {response:#}").into());
    }
    let mut pod = pod.clone();
    if response.get("patch").is_some() {
        let operations: json_patch::Patch = serde_json::from_value(patch(&response))?;
        json_patch::patch(&mut pod, &operations)
            .map_err(|error| format!("{error}: {operations} of {pod:#}"))?;
    }
    Ok(pod)
}

/// Nothing is changed but the scheduler and the values of variables; new ones are behind the others.
fn unchanged_beside(before: &Value, after: &Value) -> Tried<()> {
    let mut rest = after.clone();
    put_back(&mut rest["spec"], &before["spec"], "schedulerName");
    for name in LISTS {
        let containers = rest["spec"].get_mut(name).and_then(Value::as_array_mut);
        let containers = containers.into_iter().flatten();
        for (container, before) in containers.zip(list(&before["spec"], name)) {
            let known = list(before, "env");
            match container.get_mut("env").and_then(Value::as_array_mut) {
                Some(env) if !known.is_empty() => {
                    env.truncate(known.len());
                    env.iter_mut().zip(known).for_each(|(it, old)| put_back(it, old, "value"));
                }
                _ => put_back(container, before, "env"),
            }
        }
    }
    let is_same = rest == *before;
    is_same.then_some(()).ok_or_else(|| format!("more is changed: {after:#} of {before:#}").into())
}

/// Makes a member what it was, absent too.
fn put_back(object: &mut Value, before: &Value, key: &str) {
    let object = object.as_object_mut().unwrap();
    match before.get(key) {
        Some(value) => drop(object.insert(key.to_owned(), value.clone())),
        None => drop(object.remove(key)),
    }
}

/// How often each of them starts, every time with other variables that admission didn't see.
const STARTS: usize = 4;

/// Starts every container on every card where it may come, and says how many those are.
fn check(cluster: &Cluster, pod: &Value, rng: &mut fastrand::Rng) -> Tried<u64> {
    let mut clients = 0;
    let containers = LISTS.into_iter().flat_map(|name| list(&pod["spec"], name));
    for container in containers {
        for resource in [MEMORY, GPU] {
            let Some(amount) = container["resources"]["limits"].get(resource) else { continue };
            let units = units(amount);
            let nodes = cluster.nodes.iter().filter(|node| node.takes(pod));
            let cards = nodes.flat_map(|node| &node.cards);
            for card in cards.filter(|it| it.resource == resource && it.units >= units) {
                let client = Client { container, card, units, policy: &cluster.policy };
                let problem = (0..STARTS).find_map(|_| client.problem(rng));
                if let Some(problem) = problem {
                    let uuid = &card.uuid;
                    return Err(
                        format!("{container:#} with {units} units of {uuid}: {problem}").into()
                    );
                }
                clients += 1;
            }
        }
    }
    Ok(clients)
}
