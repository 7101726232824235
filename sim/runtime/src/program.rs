//! The program: changes the bundle of a container that is being made, then becomes runc.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use thiserror::Error;

use crate::config::Config;
use crate::{arguments, bundle, config, inject, log};

/// Why runc wasn't called.
#[derive(Debug, Error)]
enum Error {
    #[error("the program's own directory is unknown")]
    NoDirectory(#[source] io::Error),
    #[error(transparent)]
    Config(#[from] config::Error),
    #[error(transparent)]
    Bundle(#[from] bundle::Error),
    #[error(transparent)]
    Inject(#[from] inject::Error),
    #[error("`{runc}` can't be run")]
    Exec { runc: PathBuf, source: io::Error },
}

/// Runs with a whole command line, the program's name included. Returns only when it fails.
pub fn run(command_line: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut words = command_line.into_iter();
    let name = words.next().unwrap_or_default();
    let words: Vec<OsString> = words.collect();
    let arguments = arguments::parse(&words);
    let error = match prepare(Path::new(&name), arguments.bundle.as_deref()) {
        Ok(config) => become_runc(config.runc, &words),
        Err(error) => error,
    };
    log::report(&error, arguments.log.as_deref());
    ExitCode::FAILURE
}

fn prepare(name: &Path, bundle: Option<&Path>) -> Result<Config, Error> {
    let config = Config::read(&directory(name)?)?;
    if let Some(bundle) = bundle {
        let mut specification = bundle::read(bundle)?;
        if inject::apply(&config, &mut specification)? {
            bundle::replace(bundle, &specification)?;
        }
    }
    Ok(config)
}

/// The directory that the program was called from, whatever it is a link to; if it was found in
/// `PATH`, the directory of the program itself.
fn directory(name: &Path) -> Result<PathBuf, Error> {
    match name.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => Ok(directory.to_path_buf()),
        _ => {
            let program = std::env::current_exe().map_err(Error::NoDirectory)?;
            Ok(program.parent().unwrap_or(Path::new("/")).to_path_buf())
        }
    }
}

fn become_runc(runc: PathBuf, words: &[OsString]) -> Error {
    let source = Command::new(&runc).args(words).exec();
    Error::Exec { runc, source }
}
