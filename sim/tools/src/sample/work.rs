//! What one process does, from the first call to the last.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::driver::{self, Attribute, Driver};
use super::report::{Event, Report};
use super::{Amount, Arguments, Hold};

/// How often a holder asks whether its context still works.
const CHECK: Duration = Duration::from_millis(100);

#[derive(Debug, Error)]
enum Error {
    #[error("{0}")]
    Driver(#[from] driver::Error),
    #[error("can't write `{path}`: {source}")]
    SharedMemory { path: String, source: io::Error },
    #[error("can't open the report: {0}")]
    Report(#[source] io::Error),
}

/// Does the work and says how it went.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let result = Report::open(arguments.report.as_deref())
        .map_err(Error::Report)
        .and_then(|mut report| work(arguments, &mut report));
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    complain(&error);
    ExitCode::FAILURE
}

fn work(arguments: &Arguments, report: &mut Report) -> Result<(), Error> {
    if let Some(name) = &arguments.touch_shm {
        touch(name, report)?;
    }
    let driver = Driver::load()?;
    let result = compute(arguments, &driver, report);
    match &result {
        Ok(()) => report.say(&Event::Finished),
        Err(error) => {
            let (call, code, error) = error.parts();
            report.say(&Event::Failed { call, code, error });
        }
    }
    if let (true, Err(error)) = (arguments.linger, &result) {
        complain(error);
        // The library stays loaded, and with it the connection to MPS.
        loop {
            thread::park();
        }
    }
    Ok(result?)
}

fn complain(error: &impl std::fmt::Display) {
    // Nobody is left to tell if standard error is closed.
    drop(writeln!(io::stderr(), "cuda-sample: {error}"));
}

fn compute(
    arguments: &Arguments,
    driver: &Driver,
    report: &mut Report,
) -> Result<(), driver::Error> {
    start(driver, arguments.device, report)?;
    let mut all = 0;
    for amount in &arguments.alloc {
        allocate(driver, *amount, &mut all, report)?;
    }
    if let Some(step) = arguments.until_oom {
        exhaust(driver, step, &mut all, report)?;
    }
    if let Some(milliseconds) = arguments.launch_ms {
        let started = Instant::now();
        driver.launch(milliseconds)?;
        driver.synchronize()?;
        report.say(&Event::Launched { milliseconds: started.elapsed().as_millis() });
    }
    if arguments.fault {
        driver.fault()?;
    }
    match arguments.hold {
        Some(time) => hold(driver, time, all, report),
        None => Ok(()),
    }
}

fn start(driver: &Driver, device: i32, report: &mut Report) -> Result<(), driver::Error> {
    driver.init()?;
    driver.create_context(device)?;
    let (free, total) = driver.memory_info()?;
    report.say(&Event::Started {
        mps: driver.attribute(Attribute::MpsEnabled, device)? != 0,
        uuid: driver.uuid(device)?,
        name: driver.name(device)?,
        sm_count: driver.attribute(Attribute::MultiprocessorCount, device)?,
        free_mib: free >> 20,
        total_mib: total >> 20,
    });
    Ok(())
}

fn allocate(
    driver: &Driver,
    amount: Amount,
    all: &mut usize,
    report: &mut Report,
) -> Result<(), driver::Error> {
    driver.allocate(amount.bytes())?;
    *all += amount.mib();
    report.say(&Event::Allocated { mib: amount.mib(), all_mib: *all });
    Ok(())
}

fn exhaust(
    driver: &Driver,
    step: Amount,
    all: &mut usize,
    report: &mut Report,
) -> Result<(), driver::Error> {
    loop {
        match driver.allocate(step.bytes()) {
            Ok(()) => *all += step.mib(),
            Err(error) if error.is_out_of_memory() => {
                let (_, _, error) = error.parts();
                report.say(&Event::Exhausted { all_mib: *all, error });
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
}

/// Keeps everything, and fails as soon as the context does.
fn hold(
    driver: &Driver,
    time: Hold,
    all_mib: usize,
    report: &mut Report,
) -> Result<(), driver::Error> {
    report.say(&Event::Holding { all_mib });
    let started = Instant::now();
    loop {
        driver.synchronize()?;
        let left = match time {
            Hold::For(time) => time.saturating_sub(started.elapsed()),
            Hold::Forever => CHECK,
        };
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(CHECK));
    }
}

/// Writes a file into the shared memory directory, wherever that is mounted or stands in for.
fn touch(name: &str, report: &mut Report) -> Result<(), Error> {
    let dir = env::var_os("MPSHARE_SIM_SHM").map_or_else(|| "/dev/shm".into(), PathBuf::from);
    let path = dir.join(name);
    let shown = path.display().to_string();
    match fs::write(&path, b"cuda-sample\n") {
        Ok(()) => report.say(&Event::Touched { path: shown }),
        Err(source) => {
            return Err(Error::SharedMemory { path: shown, source });
        }
    }
    Ok(())
}
