//! `run`: starts the worker, keeps the time, puts everything back, and tells what came of it.

use std::fs;
use std::io::{BufRead as _, BufReader, IsTerminal as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tempfile::TempDir;

use crate::itself;
use crate::marked::MARK;
use crate::report::{CheckReport, News, Outcome, Report};
use crate::rig::ms_since;
use crate::simulated::Simulated;

/// For how long the worker may work: a run ends within eight minutes, the putting back included.
const BUDGET: Duration = Duration::from_secs(440);

/// For how long the putting back may take.
const RESTORING: Duration = Duration::from_secs(30);

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Try the simulated driver in place of the machine's.
    #[arg(long)]
    simulator: bool,
    /// The version of the simulated driver.
    #[arg(long, default_value = "555.58.02", requires = "simulator")]
    simulated_driver: String,
    /// What is wrong with the simulated driver, as JSON; so that a run can be seen to fail.
    #[arg(long, hide = true, requires = "simulator")]
    simulated_faults: Option<String>,
    /// Make cgroups of this machine also for the simulated driver; takes root.
    #[arg(long, hide = true, requires = "simulator")]
    real_cgroups: bool,
    /// Write a JSON document to this file.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The card to try: the beginning of its UUID. Without it the first that can do it.
    #[arg(long, value_name = "UUID")]
    gpu: Option<String>,
    /// Only say whether there is a card to try, and try nothing.
    #[arg(long)]
    look: bool,
    /// A shorter time for each check, so that one can be seen to run out of it.
    #[arg(long, hide = true)]
    check_limit_ms: Option<u64>,
    /// Words of which one is in a check's name.
    words: Vec<String>,
}

/// Runs the checks.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    // Before anything is there that a signal could leave behind.
    let (sender, events) = mpsc::channel();
    heed_signals(sender.clone())?;
    let run = Run::prepare(options)?;
    let mut report = run.work(options, sender, &events);
    report.judge();
    if let Some(path) = &options.report {
        let text = serde_json::to_string_pretty(&report)? + "\n";
        fs::write(path, text).with_context(|| format!("can't write `{}`", path.display()))?;
    }
    Ok(tell(&report))
}

fn tell(report: &Report) -> ExitCode {
    match (report.outcome, &report.why) {
        (Outcome::Skipped, why) => {
            println!("skipped: {}", why.as_deref().unwrap_or_default());
            return ExitCode::SUCCESS;
        }
        (_, Some(why)) => eprintln!("error: {why}"),
        (_, None) => {}
    }
    print!("{}", report.table());
    if report.outcome == Outcome::Passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Something that the keeper is told.
enum Event {
    News(News),
    /// The worker's output has ended, and so it has.
    Ended,
    Signal(i32),
}

fn heed_signals(events: Sender<Event>) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("can't wait for signals")?;
    thread::spawn(move || {
        for signal in signals.forever() {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// A run's directory and what its processes are started with.
struct Run {
    directory: TempDir,
    built: PathBuf,
    simulated: Option<Simulated>,
}

impl Run {
    fn prepare(options: &Options) -> Result<Self> {
        let place = std::env::temp_dir();
        // Pipe directories may have 87 bytes in all.
        let place = if place.as_os_str().len() <= 24 { place } else { "/tmp".into() };
        let directory = tempfile::Builder::new().prefix("mpsgpu-").tempdir_in(place)?;
        let own = std::env::current_exe()?;
        let built = own.parent().context("no directory")?.to_owned();
        let (version, faults) = (&options.simulated_driver, options.simulated_faults.as_deref());
        let simulated = options
            .simulator
            .then(|| Simulated::lay_out(directory.path(), &built, version, faults))
            .transpose()?;
        Ok(Self { directory, built, simulated })
    }

    fn root(&self) -> &Path {
        self.directory.path()
    }

    /// This program as another part of the run.
    fn part(&self, name: &str) -> Command {
        let mut command = itself::part(name);
        command.arg("--root").arg(self.root()).env(MARK, self.root());
        // Ctrl-C is for the keeper alone, which ends the others in good order.
        command.process_group(0);
        if let Some(simulated) = &self.simulated {
            command.envs(&simulated.environment);
        }
        command
    }

    fn work(&self, options: &Options, sender: Sender<Event>, events: &Receiver<Event>) -> Report {
        let start = Instant::now();
        let mut report = Report {
            version: Report::VERSION,
            simulated: options.simulator,
            outcome: Outcome::Passed,
            why: None,
            machine: None,
            milliseconds: 0,
            checks: Vec::new(),
        };
        if let Err(error) = self.watch(options, sender, events, &mut report) {
            report.outcome = Outcome::Failed;
            report.why = Some(format!("{error:#}"));
        }
        match self.restore() {
            Ok(left) if left.is_empty() => {}
            // A broken-off run leaves something, as a matter of course.
            Ok(left) if report.why.is_some() => {
                report.why = report.why.map(|why| format!("{why}; put back: {}", left.join(", ")));
            }
            Ok(left) => report.checks.push(left_behind(&left)),
            Err(error) => report.checks.push(left_behind(&[format!("{error:#}")])),
        }
        report.milliseconds = ms_since(start);
        report
    }

    fn watch(
        &self,
        options: &Options,
        sender: Sender<Event>,
        events: &Receiver<Event>,
        report: &mut Report,
    ) -> Result<()> {
        let until = Instant::now() + BUDGET;
        let mut worker = Worker::start(self.worker(options), sender)?;
        loop {
            match events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Event::News(News::Machine(machine))) => report.machine = Some(machine),
                Ok(Event::News(News::Begun(name))) => progress(&name),
                Ok(Event::News(News::Check(check))) => report.checks.push(check),
                Ok(Event::News(News::Finished)) => return worker.wait(),
                Ok(Event::News(News::Skipped(why))) => {
                    report.outcome = Outcome::Skipped;
                    report.why = Some(why);
                    return worker.wait();
                }
                Ok(Event::News(News::Refused(why))) => bail!("{why}"),
                Ok(Event::Ended) => bail!("it ended early; see above"),
                Ok(Event::Signal(signal)) => bail!("broken off by signal {signal}"),
                Err(RecvTimeoutError::Timeout) => bail!("not done within {BUDGET:?}"),
                Err(RecvTimeoutError::Disconnected) => bail!("nobody tells anything any more"),
            }
        }
    }

    fn worker(&self, options: &Options) -> Command {
        let mut command = self.part("work");
        command.arg("--mpshare").arg(self.built.join("mpshare"));
        if options.look {
            command.arg("--look");
        }
        if let Some(limit) = options.check_limit_ms {
            command.args(["--check-limit-ms", &limit.to_string()]);
        }
        if let Some(gpu) = &options.gpu {
            command.args(["--gpu", gpu]);
        }
        if let Some(simulated) = self.simulated.as_ref().filter(|_| !options.real_cgroups) {
            command.arg("--proc-root").arg(&simulated.proc_root);
        }
        command.arg("--").args(&options.words);
        command
    }

    /// Puts everything back; what was still there.
    fn restore(&self) -> Result<Vec<String>> {
        let mut child = self.part("restore").stdout(Stdio::piped()).spawn()?;
        let until = Instant::now() + RESTORING;
        while child.try_wait()?.is_none() {
            if Instant::now() > until {
                child.kill()?;
                child.wait()?;
                bail!("putting everything back took longer than {RESTORING:?}");
            }
            thread::sleep(Duration::from_millis(10));
        }
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!("putting everything back failed; see above");
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// Only for people who wait.
fn progress(name: &str) {
    if std::io::stderr().is_terminal() {
        eprintln!("{name} ...");
    }
}

fn left_behind(left: &[String]) -> CheckReport {
    CheckReport {
        name: "nothing-is-left-behind".to_owned(),
        outcome: Outcome::Failed,
        milliseconds: 0,
        why: Some(left.join("\n")),
        measured: serde_json::Map::new(),
        guesses: Vec::new(),
    }
}

/// The worker; killed when it is dropped.
struct Worker {
    child: Child,
    /// When this closes, the worker knows that the keeper is gone.
    _stdin: Option<ChildStdin>,
}

impl Worker {
    fn start(mut command: Command, events: Sender<Event>) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().context("no output")?;
        let stdin = child.stdin.take();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                match serde_json::from_str(&line) {
                    Ok(news) => drop(events.send(Event::News(news))),
                    Err(_) => eprintln!("{line}"),
                }
            }
            drop(events.send(Event::Ended));
        });
        Ok(Self { child, _stdin: stdin })
    }

    /// Waits for its end, which it has told of.
    fn wait(&mut self) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait()? {
                anyhow::ensure!(status.success(), "the worker ended with {status}");
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
        }
        bail!("the worker doesn't end")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Both fail only when it is gone already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
