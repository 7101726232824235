use super::*;
use crate::testing;

/// What was said of pods, and a clock.
struct Story {
    announcer: PodAnnouncer,
    start: Instant,
}

impl Story {
    fn new() -> Self {
        Self { announcer: PodAnnouncer::default(), start: Instant::now() }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.start + Duration::from_secs(seconds)
    }

    fn pods(&mut self, seconds: u64, uids: &[&str]) {
        let name = |uid: &&str| {
            let name = PodName { namespace: "ns".to_owned(), name: format!("name-of-{uid}") };
            ((*uid).to_owned(), name)
        };
        let names = uids.iter().map(name).collect();
        self.announcer.update(&names, self.at(seconds));
    }

    /// What is said of such findings: pod and sentence of each.
    fn find(&mut self, seconds: u64, findings: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut gpu = testing::gpu("GPU-ab", 0);
        let finding = |(pod, message): &(&str, &str)| reason(message, &[pod]);
        gpu.findings = findings.iter().map(finding).collect();
        let status = testing::status("", vec![gpu]);
        let news = self.announcer.news(&status, self.at(seconds));
        news.into_iter().map(|it| (it.name.name, it.announcement.message)).collect()
    }
}

fn reason(message: &str, pods: &[&str]) -> ReasonText {
    let pods = pods.iter().map(|pod| (*pod).to_owned()).collect();
    ReasonText { code: "ShareExceeded".to_owned(), message: message.to_owned(), pods }
}

fn said(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(pod, said)| (format!("name-of-{pod}"), (*said).to_owned())).collect()
}

#[test]
fn what_is_so_of_a_pod_is_said_once_and_again_when_it_was_over() {
    let mut story = Story::new();
    story.pods(0, &["a", "b"]);
    assert_eq!(story.find(0, &[("a", "7 MiB")]), said(&[("a", "7 MiB")]));
    assert_eq!(story.find(1, &[("a", "7 MiB"), ("b", "7 MiB")]), said(&[("b", "7 MiB")]));
    assert_eq!(story.find(2, &[("a", "7 MiB"), ("a", "8 MiB")]), said(&[("a", "8 MiB")]));
    assert_eq!(story.find(3, &[]), []);
    assert_eq!(story.find(4, &[("a", "7 MiB")]), said(&[("a", "7 MiB")]));
}

#[test]
fn a_card_in_trouble_is_told_to_all_pods_that_it_concerns_each_by_its_own_name() {
    let mut story = Story::new();
    story.pods(0, &["a", "b", "c"]);
    let mut gpus = [testing::gpu("GPU-ab", 0), testing::gpu("GPU-cd", 1)];
    for gpu in &mut gpus {
        gpu.reason = Some(reason("server is in FAULT", &["a", "c", "a"]));
    }
    let news = story.announcer.news(&testing::status("", gpus.into()), story.at(0));
    let told: Vec<_> =
        news.iter().map(|it| (it.uid.as_str(), it.name.namespace.as_str())).collect();
    assert_eq!(told, [("a", "ns"), ("c", "ns"), ("a", "ns"), ("c", "ns")], "on each of two cards");
    assert_eq!(news[0].announcement.severity, Severity::Warning);
    assert_eq!(news[0].announcement.reason, "ShareExceeded");
}

#[test]
fn nothing_is_said_of_a_pod_that_nobody_knows_until_it_is_known() {
    let mut story = Story::new();
    assert_eq!(story.find(0, &[("a", "x")]), []);
    story.pods(1, &["a"]);
    assert_eq!(story.find(1, &[("a", "x")]), said(&[("a", "x")]));
}

#[test]
fn a_pod_that_has_gone_is_known_for_a_while_and_not_for_ever() {
    let mut story = Story::new();
    story.pods(0, &["a"]);
    story.pods(10, &[]);
    story.pods(309, &[]);
    assert_eq!(story.find(309, &[("a", "x")]), said(&[("a", "x")]));
    assert_eq!(story.find(309, &[]), []);
    story.pods(310, &[]);
    assert_eq!(story.find(310, &[("a", "x")]), []);
}

#[test]
fn a_pod_that_is_talked_of_without_end_leaves_the_others_theirs() {
    let mut story = Story::new();
    story.pods(0, &["a", "b"]);
    let sentences: Vec<String> = (0..20).map(|n| format!("process {n}")).collect();
    let mut all: Vec<(&str, &str)> = sentences.iter().map(|it| ("a", it.as_str())).collect();
    all.push(("b", "x"));
    let told = story.find(0, &all);
    assert_eq!(told.len(), 5, "{told:?}");
    assert_eq!(told.last(), said(&[("b", "x")]).last());
    assert_eq!(story.find(29, &all), []);
    assert_eq!(story.find(60, &all).len(), 2, "the rest is said later, while it is so");
}

#[test]
fn no_more_is_remembered_than_a_node_can_have() {
    let mut story = Story::new();
    let uids: Vec<String> = (0..2000).map(|n| format!("pod-{n}")).collect();
    let all: Vec<&str> = uids.iter().map(String::as_str).collect();
    story.pods(0, &all);
    let findings: Vec<(&str, &str)> = all.iter().map(|uid| (*uid, "x")).collect();
    assert_eq!(story.find(0, &findings).len(), MOST_TOLD);
    story.pods(1, &["last"]);
    assert_eq!(story.announcer.gone.len(), MOST_GONE);
    story.find(1000, &[]);
    assert!(story.announcer.allowances.is_empty() && story.announcer.said.is_empty());
}
