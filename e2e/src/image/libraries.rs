//! The shared libraries that a program needs, and the loader that it names.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A shared library, or the loader.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Library {
    /// Where a program of this machine finds it, links and all.
    pub path: PathBuf,
}

/// What `program` needs to start; nothing for a static one.
pub fn libraries(program: &Path) -> Result<BTreeSet<Library>> {
    let output = Command::new("ldd")
        .arg(program)
        .env("LC_ALL", "C")
        .output()
        .context("`ldd` can't be run")?;
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if complained.contains("not a dynamic executable") || said.contains("statically linked") {
        return Ok(BTreeSet::new());
    }
    if !output.status.success() {
        bail!("`ldd {}`: {}", program.display(), complained.trim());
    }
    parse(&said).with_context(|| format!("`{}` can't start on this machine", program.display()))
}

fn parse(listing: &str) -> Result<BTreeSet<Library>> {
    let mut found = BTreeSet::new();
    for line in listing.lines() {
        // `name => path (address)`, for the loader `path (address)`, for the kernel's `name (address)`.
        let wanted = line.split_once("=>").map_or(line, |(_, path)| path).trim();
        if wanted == "not found" {
            bail!("a library is missing: `{}`", line.trim());
        }
        let path = wanted.split_whitespace().next().unwrap_or_default();
        if path.starts_with('/') {
            found.insert(Library { path: PathBuf::from(path) });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_loader_are_found_and_the_kernels_own_is_not() {
        let listing = "\tlinux-vdso.so.1 (0x00007f3cf7e4c000)\n\
            \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f3cf781e000)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f3cf7e4e000)\n";
        let paths: Vec<_> =
            parse(listing).unwrap().into_iter().map(|library| library.path).collect();
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(paths, expected.map(PathBuf::from));
    }

    #[test]
    fn a_missing_library_is_named() {
        let error = parse("\tlibgone.so.1 => not found\n").unwrap_err();
        assert!(error.to_string().contains("libgone.so.1"), "{error}");
    }

    #[test]
    fn this_very_program_needs_a_loader_or_nothing() {
        let found = libraries(&std::env::current_exe().unwrap()).unwrap();
        let is_loader = |library: &Library| library.path.to_string_lossy().contains("ld-linux");
        assert_eq!(found.iter().any(is_loader), !found.is_empty());
        assert!(found.iter().all(|library| library.path.exists()));
    }
}
