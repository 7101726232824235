//! What keeps daemons from being launched, found without launching one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::census::{CONTROL, SERVER};

/// Something that no launch gets around.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Obstacle {
    /// One of the driver's MPS programs isn't there.
    #[error("no executable `{program}` in {}", listed(tried))]
    NoProgram {
        /// Its name.
        program: String,
        /// The directories in which it was looked for, as the daemon would see them.
        tried: Vec<PathBuf>,
    },
    /// The place itself can't be used.
    #[error("{0}")]
    Place(String),
}

/// The programs that a launch needs.
pub const SEARCHED: [&str; 2] = [CONTROL, SERVER];

fn listed(directories: &[PathBuf]) -> String {
    let names = directories.iter().map(|directory| format!("`{}`", directory.display()));
    names.collect::<Vec<_>>().join(", ")
}

/// The first of `programs` that isn't in its directories.
pub fn missing_program<P: AsRef<str>>(
    programs: impl IntoIterator<Item = (P, Vec<PathBuf>)>,
) -> Option<Obstacle> {
    let missing = |(program, directories): &(P, Vec<PathBuf>)| {
        let program = program.as_ref();
        !directories.iter().any(|directory| is_executable(&directory.join(program)))
    };
    let (program, tried) = programs.into_iter().find(missing)?;
    Some(Obstacle::NoProgram { program: program.as_ref().to_owned(), tried })
}

pub(super) fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_missing_or_not_executable_is_named_with_where_it_was_looked_for() {
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &'static str| (name, vec![dir.path().to_owned(), "/nowhere".into()]);
        let missing = || missing_program([place("a"), place("b")]).map(|it| it.to_string());
        fs::write(dir.path().join("a"), "").unwrap();
        let tried = format!("`{}`, `/nowhere`", dir.path().display());
        assert_eq!(missing(), Some(format!("no executable `a` in {tried}")));
        for name in ["a", "b"] {
            fs::write(dir.path().join(name), "").unwrap();
            fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        assert_eq!(missing(), None);
    }
}
