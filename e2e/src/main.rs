//! `mpshare-e2e`: starts the cluster and runs the scenarios on it.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command for people")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use mpshare_e2e::cluster::{self, Cluster, Parts};
use mpshare_e2e::image::catalogue;
use mpshare_e2e::scenarios::{self, NEXT_IMAGE, Scenario};
use mpshare_e2e::{bench, campaign, driver_root, image, machine};
use mpshare_sim_runtime::Config;
use mpshare_sim_state::Store;
use signal_hook::consts::TERM_SIGNALS;
use signal_hook::flag;

#[derive(Debug, Parser)]
#[command(name = "mpshare-e2e", about = "mpshare on a real Kubernetes with simulated GPUs")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Start the cluster, run scenarios, stop it.
    Run(Run),
    /// Name the scenarios.
    List,
    /// Measure how many pods kube-scheduler binds with our extender.
    BenchExtender(BenchExtender),
    /// Be PID 1 of a machine.
    #[command(hide = true)]
    Init {
        /// A directory, and where the machine has it.
        #[arg(long, num_args = 2, value_names = ["FROM", "TO"])]
        bind: Vec<String>,
    },
    /// Print what the simulated driver knows.
    #[command(hide = true)]
    DriverState { dir: PathBuf },
    /// Write the CDI specification of this machine's driver.
    #[command(hide = true)]
    WriteCdi { toolkit: PathBuf, dir: PathBuf },
}

#[derive(Debug, clap::Args)]
struct Run {
    /// The directory of Kubernetes' programs and helm, which `e2e/cluster/build` made.
    #[arg(long)]
    programs: PathBuf,
    /// The directory of our programs and the simulator's.
    #[arg(long)]
    built: PathBuf,
    /// The repository.
    #[arg(long, default_value = ".")]
    repository: PathBuf,
    /// Where logs and images go.
    #[arg(long)]
    output: PathBuf,
    /// Leave the cluster up after the last scenario, until Ctrl-C.
    #[arg(long)]
    keep: bool,
    /// Run a campaign of so many minutes after the install, and no other scenario.
    #[arg(long, conflicts_with = "filter", value_name = "MINUTES")]
    campaign: Option<u64>,
    /// The campaign's seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run only scenarios whose name contains one of these, after the install that all need.
    filter: Vec<String>,
}

#[derive(Debug, clap::Args)]
struct BenchExtender {
    /// The directory of Kubernetes' programs, which `e2e/cluster/build` made.
    #[arg(long)]
    programs: PathBuf,
    /// The directory of the extender.
    #[arg(long)]
    built: PathBuf,
    /// Where logs go.
    #[arg(long)]
    logs: PathBuf,
    /// How many nodes with 8 GPUs; may be given several times.
    #[arg(long, default_values_t = [100, 1_000])]
    nodes: Vec<usize>,
    /// How many pods.
    #[arg(long, default_value_t = 2_000)]
    pods: usize,
    /// How often with, and how often without.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Print one JSON document instead.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let result = match Args::parse().task {
        Task::Run(run) => run.run(),
        Task::List => {
            for scenario in scenarios::ALL {
                println!("{}", scenario.name);
            }
            Ok(ExitCode::SUCCESS)
        }
        Task::BenchExtender(args) => args.run(),
        Task::Init { bind } => {
            let pairs = bind.chunks_exact(2).filter_map(|pair| match pair {
                [from, to] => Some((from.clone(), to.clone())),
                _ => None,
            });
            cluster::init(&pairs.collect::<Vec<_>>()).map(|()| ExitCode::SUCCESS)
        }
        Task::DriverState { dir } => driver_state(dir),
        Task::WriteCdi { toolkit, dir } => write_cdi(&toolkit, &dir),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn driver_state(dir: PathBuf) -> Result<ExitCode> {
    println!("{}", serde_json::to_string(&Store::at(dir).read()?)?);
    Ok(ExitCode::SUCCESS)
}

fn write_cdi(toolkit: &Path, dir: &Path) -> Result<ExitCode> {
    let config = Config::read(toolkit)?;
    let state = Store::from_env().read()?;
    driver_root::write_cdi(dir, &config, &state.gpus)?;
    Ok(ExitCode::SUCCESS)
}

impl BenchExtender {
    fn run(&self) -> Result<ExitCode> {
        machine::check()?;
        let options = bench::Options {
            programs: std::path::absolute(&self.programs)?,
            built: std::path::absolute(&self.built)?,
            logs: std::path::absolute(&self.logs)?,
            nodes: self.nodes.clone(),
            pods: self.pods,
            rounds: self.rounds,
        };
        let reports = bench::run(&options, |line| eprintln!("{line}"))?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&reports)?);
        } else {
            for report in &reports {
                println!("{report}");
            }
        }
        let is_met = reports.iter().all(bench::Report::is_met);
        Ok(if is_met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Run {
    fn run(&self) -> Result<ExitCode> {
        machine::check()?;
        std::env::set_current_dir(&self.repository).context("no such repository")?;
        let is_named = |scenario: &&Scenario| self.filter.iter().any(|f| scenario.name.contains(f));
        let named = scenarios::ALL.iter().filter(is_named).count();
        anyhow::ensure!(
            self.filter.is_empty() || named > 0,
            "no scenario's name contains {:?}",
            self.filter
        );
        let is_chosen = |scenario: &&Scenario| {
            self.filter.is_empty() && self.campaign.is_none()
                || scenario.name == scenarios::INSTALL
                || is_named(scenario)
        };
        let chosen: Vec<&Scenario> = scenarios::ALL.iter().filter(is_chosen).collect();
        let is_over = until_signal()?;
        let mut cluster = timed("start the cluster", || self.start())?;
        let mut told = tell(&chosen, &mut cluster, &is_over);
        if let (Some(minutes), Ok([])) = (self.campaign, told.as_deref()) {
            told = self.campaign(&mut cluster, Duration::from_mins(minutes)).map(|()| Vec::new());
        }
        if self.keep && !is_over() {
            println!("the cluster stays until Ctrl-C; `kubectl` for it:\n  {}", cluster.hint());
            while !is_over() {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        // Also after a failure: cgroups outlive this process.
        timed("stop the cluster", || cluster.stop())?;
        let failed = told?;
        for name in &failed {
            println!("failed: {name}; logs are in {}", self.output.join("logs").display());
        }
        println!("{} passed, {} failed", chosen.len() - failed.len(), failed.len());
        Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn campaign(&self, cluster: &mut Cluster, time: Duration) -> Result<()> {
        let run = timed("campaign", || campaign::run(cluster, self.seed, time));
        if run.is_err() {
            cluster.collect("campaign")?;
        }
        run
    }

    fn start(&self) -> Result<Cluster> {
        let images = self.output.join("images");
        let logs = self.output.join("logs");
        // Logs of a former run would be taken for this one's.
        if logs.exists() {
            std::fs::remove_dir_all(&logs)?;
        }
        std::fs::create_dir_all(&images)?;
        let parts = Parts {
            programs: std::path::absolute(&self.programs)?,
            simulator: std::path::absolute(&self.built)?,
            images: self.pack_images(&images)?,
            logs: std::path::absolute(logs)?,
        };
        Cluster::start(parts, &scenarios::nodes())
    }

    /// Packs what the nodes run, and says how large it is.
    fn pack_images(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        let upgraded = catalogue::mpshare(NEXT_IMAGE, &self.built, dir)?;
        let upgraded = upgraded.env("MPSHARE_E2E", "next");
        let images = [
            catalogue::pause(),
            catalogue::mpshare(catalogue::MPSHARE, &self.built, dir)?,
            upgraded,
            catalogue::kube_scheduler(&self.programs)?,
            catalogue::cuda(&self.built, dir)?,
            catalogue::tensorflow(&self.built, dir)?,
        ];
        let pack = |(index, image): (usize, &image::Image)| {
            let archive = std::path::absolute(dir.join(format!("{index}.tar")))?;
            let bytes = image::pack(image, &archive)?;
            println!("image {}: {} KiB", image.name, bytes / 1024);
            Ok(archive)
        };
        images.iter().enumerate().map(pack).collect()
    }
}

/// Runs scenarios and returns the names of those that failed.
fn tell(
    chosen: &[&Scenario],
    cluster: &mut Cluster,
    is_over: &impl Fn() -> bool,
) -> Result<Vec<&'static str>> {
    let mut failed = Vec::new();
    for scenario in chosen {
        let outcome = timed(scenario.name, || (scenario.run)(cluster));
        anyhow::ensure!(!is_over(), "ended by a signal during `{}`", scenario.name);
        if let Err(error) = outcome {
            println!("{}: FAILED: {error:#}", scenario.name);
            cluster.collect(scenario.name)?;
            failed.push(scenario.name);
            if scenario.name == scenarios::INSTALL {
                // Everything else would only wait in vain.
                break;
            }
            timed("reset", || scenarios::reset(cluster))?;
        }
    }
    Ok(failed)
}

/// Whether this process was told to end. The second signal ends it at once.
fn until_signal() -> Result<impl Fn() -> bool> {
    let is_told = Arc::new(AtomicBool::new(false));
    for signal in TERM_SIGNALS {
        flag::register_conditional_shutdown(*signal, 1, Arc::clone(&is_told))?;
        flag::register(*signal, Arc::clone(&is_told))?;
    }
    Ok(move || is_told.load(Ordering::Relaxed))
}

fn timed<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    println!("==> {name}");
    let start = Instant::now();
    let result = work();
    println!("==> {name}: {:.1} s", start.elapsed().as_secs_f64());
    result
}
