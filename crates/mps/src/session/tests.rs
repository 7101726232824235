use std::convert::Infallible;
use std::process::Command;

use mpshare_core::ThreadPercent;
use proptest::prelude::*;

use super::*;

fn wrote(stdout: &str, stderr: &str) -> Outcome {
    outcome(&Exchange { stdout: stdout.to_owned(), stderr: stderr.to_owned(), timed_out: false })
}

#[test]
fn only_a_session_with_the_sentinels_reply_is_answered() {
    let answered = Outcome::Answered {
        lines: vec!["7".to_owned()],
        sentinel: PercentDisplay::Tenths(ThreadPercent::FULL),
    };
    assert_eq!(wrote("7\n100.0\n", ""), answered);
    assert_eq!(wrote("100.0\n7\n", ""), Outcome::Busy);
    // A percentage of 0.04, set by somebody else, is still an answer.
    assert!(matches!(wrote("0.0\n", ""), Outcome::Answered { .. }));
}

#[test]
fn an_empty_reply_is_a_busy_daemon_and_not_an_empty_list() {
    assert_eq!(wrote("", ""), Outcome::Busy);
    assert_eq!(wrote("7\n", ""), Outcome::Busy);
    let busy = "Cannot send command to MPS control daemon process\n";
    assert_eq!(wrote("", busy), Outcome::Busy);
}

#[test]
fn an_absent_daemon_and_a_broken_front_end_are_told_apart() {
    let absent = "Cannot find MPS control daemon process\n";
    assert_eq!(wrote("", absent), Outcome::NoDaemon);
    let broken = "error while loading shared libraries: libc.so.6";
    assert_eq!(wrote("", broken), Outcome::Failed(broken.to_owned()));
}

#[test]
fn a_hung_front_end_is_killed_at_the_deadline() {
    let mut front_end = Command::new("sh");
    front_end.args(["-c", "echo 7; exec sleep 600"]);
    let deadline = Instant::now() + Duration::from_millis(300);
    let exchange = exchange(front_end, "get_server_list\n", deadline).unwrap();
    assert!(exchange.timed_out);
    assert_eq!(exchange.stdout, "7\n");
    assert_eq!(outcome(&exchange), Outcome::TimedOut);
}

#[test]
fn an_answer_counts_even_if_the_front_end_hangs_afterwards() {
    let exchange =
        Exchange { stdout: "100.0\n".to_owned(), stderr: String::new(), timed_out: true };
    assert!(matches!(outcome(&exchange), Outcome::Answered { .. }));
}

#[test]
fn a_front_end_that_reads_nothing_is_no_error() {
    let mut front_end = Command::new("sh");
    front_end.args(["-c", "exec <&-; echo Cannot find MPS control daemon process >&2; exit 1"]);
    let commands = "get_server_list\n".repeat(10_000);
    let exchange = exchange(front_end, &commands, Instant::now() + Duration::from_secs(20));
    assert_eq!(outcome(&exchange.unwrap()), Outcome::NoDaemon);
}

#[test]
fn a_busy_daemon_is_asked_again_until_it_answers() {
    let mut left = 5;
    let session = || {
        left -= 1;
        Ok::<_, Infallible>(if left == 0 { Outcome::NoDaemon } else { Outcome::Busy })
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    assert_eq!(until_answered(deadline, session), Ok((Outcome::NoDaemon, 5)));
}

#[test]
fn a_daemon_that_stays_busy_is_given_up_at_the_deadline() {
    let begin = Instant::now();
    let session = || Ok::<_, Infallible>(Outcome::Busy);
    let (outcome, attempts) = until_answered(begin + Duration::from_millis(50), session).unwrap();
    assert_eq!(outcome, Outcome::Busy);
    assert!(attempts > 1);
    assert!(begin.elapsed() < Duration::from_secs(5));
}

proptest! {
    #[test]
    fn any_output_is_judged(stdout in "(?s).*", stderr in "(?s).*") {
        let _outcome = wrote(&stdout, &stderr);
    }
}
