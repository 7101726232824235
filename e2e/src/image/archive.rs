//! The archive itself: a layer, its configuration, and the manifest that names them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use super::{Content, Image};

/// The mode of directories that only hold something.
const DIRECTORY: u32 = 0o755;

/// Writes the image to `out`, for `ctr image import`, and returns the size of its layer in bytes. The
/// same image gives the same archive, byte by byte.
pub fn pack(image: &Image, out: &Path) -> Result<u64> {
    let layer = layer(image).with_context(|| format!("can't pack image `{}`", image.name))?;
    let config = serde_json::to_vec(&config(image, &layer))?;
    // containerd takes the short form for another name than the one that Kubernetes asks for.
    let manifest = json!([{
        "Config": "config.json",
        "RepoTags": [image.name],
        "Layers": ["layer.tar"],
    }]);
    let mut archive = Builder::new(Vec::new());
    add_bytes(&mut archive, Path::new("config.json"), &config, 0o644)?;
    add_bytes(&mut archive, Path::new("layer.tar"), &layer, 0o644)?;
    add_bytes(&mut archive, Path::new("manifest.json"), manifest.to_string().as_bytes(), 0o644)?;
    fs::write(out, archive.into_inner()?)
        .with_context(|| format!("can't write `{}`", out.display()))?;
    Ok(u64::try_from(layer.len())?)
}

fn config(image: &Image, layer: &[u8]) -> Value {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let words = |words: &[String]| if words.is_empty() { Value::Null } else { json!(words) };
    json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Env": image.env,
            "Entrypoint": words(&image.entrypoint),
            "Cmd": words(&image.cmd),
            "User": image.user.as_deref().unwrap_or_default(),
        },
        "rootfs": { "type": "layers", "diff_ids": [digest(layer)] },
        "history": [{}],
    })
}

fn digest(bytes: &[u8]) -> String {
    let hex = |text: String, byte: &u8| text + &format!("{byte:02x}");
    Sha256::digest(bytes).iter().fold("sha256:".to_owned(), hex)
}

fn layer(image: &Image) -> Result<Vec<u8>> {
    let mut entries: BTreeMap<PathBuf, Content> = BTreeMap::new();
    for entry in &image.entries {
        let path: PathBuf =
            entry.path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
        for parent in path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
            let directory = Content::Directory { mode: DIRECTORY };
            entries.entry(parent.to_path_buf()).or_insert(directory);
        }
        entries.insert(path, entry.content.clone());
    }
    let mut layer = Builder::new(Vec::new());
    for (path, content) in &entries {
        add(&mut layer, path, content).with_context(|| format!("`/{}`", path.display()))?;
    }
    Ok(layer.into_inner()?)
}

fn add(layer: &mut Builder<Vec<u8>>, path: &Path, content: &Content) -> Result<()> {
    match content {
        Content::File { source, mode } => {
            let bytes =
                fs::read(source).with_context(|| format!("can't read `{}`", source.display()))?;
            add_bytes(layer, path, &bytes, *mode)?;
        }
        Content::Bytes { bytes, mode } => add_bytes(layer, path, bytes, *mode)?,
        Content::Directory { mode } => {
            let mut header = header(EntryType::Directory, *mode);
            layer.append_data(&mut header, path, io::empty())?;
        }
        Content::Link { target } => {
            let mut header = header(EntryType::Symlink, 0o777);
            layer.append_link(&mut header, path, target)?;
        }
    }
    Ok(())
}

fn add_bytes(archive: &mut Builder<Vec<u8>>, path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let mut header = header(EntryType::Regular, mode);
    header.set_size(u64::try_from(bytes.len())?);
    archive.append_data(&mut header, path, bytes)?;
    Ok(())
}

/// Of root, and of no particular time.
fn header(kind: EntryType, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    header
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// Path, mode and content (of a link: its target) of every entry.
    fn unpack(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut archive = tar::Archive::new(bytes);
        let entry = |entry: io::Result<tar::Entry<'_, &[u8]>>| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            if let Some(target) = entry.link_name_bytes() {
                content = target.into_owned();
            }
            let path = entry.path().unwrap().to_string_lossy().into_owned();
            (path, entry.header().mode().unwrap(), content)
        };
        archive.entries().unwrap().map(entry).collect()
    }

    fn packed(image: &Image) -> Vec<(String, u32, Vec<u8>)> {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("image.tar");
        pack(image, &out).unwrap();
        unpack(&fs::read(out).unwrap())
    }

    fn file<'a>(archive: &'a [(String, u32, Vec<u8>)], name: &str) -> &'a [u8] {
        &archive.iter().find(|(path, ..)| path == name).unwrap().2
    }

    #[test]
    fn the_configuration_names_the_layer_by_its_digest_and_says_what_runs() {
        let image = Image::new("localhost/a:1").cmd(&["/a"]).env("A", "b").user("65532");
        let archive = packed(&image);
        let config: Value = serde_json::from_slice(file(&archive, "config.json")).unwrap();
        let layer = file(&archive, "layer.tar");
        assert_eq!(config["rootfs"]["diff_ids"], json!([digest(layer)]));
        assert_eq!(config["config"]["Cmd"], json!(["/a"]));
        assert_eq!(config["config"]["Env"][1], "A=b");
        assert_eq!(config["config"]["User"], "65532");
        let manifest: Value = serde_json::from_slice(file(&archive, "manifest.json")).unwrap();
        assert_eq!(manifest[0]["RepoTags"], json!(["localhost/a:1"]));
    }

    #[test]
    fn a_layer_has_its_directories_before_their_files_with_the_modes_that_were_asked_for() {
        let image = Image::new("localhost/a:1")
            .bytes("/opt/deep/program", "text", 0o755)
            .directory("/tmp", 0o1777);
        let archive = packed(&image);
        let layer = unpack(file(&archive, "layer.tar"));
        let position = |name: &str| layer.iter().position(|(path, ..)| path == name).unwrap();
        assert!(position("opt") < position("opt/deep"));
        assert!(position("opt/deep") < position("opt/deep/program"));
        assert_eq!(layer[position("opt/deep/program")].1, 0o755);
        assert_eq!(layer[position("opt/deep/program")].2, b"text");
        assert_eq!(layer[position("tmp")].1, 0o1777);
        assert_eq!(layer[position("lib")].2, b"usr/lib");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let image = Image::new("localhost/a:1").file("/a", dir.path().join("gone"), 0o755);
        let error = pack(&image, &dir.path().join("image.tar")).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("localhost/a:1") && text.contains("gone"), "{text}");
    }

    #[test]
    fn the_same_image_gives_the_same_bytes() {
        let image = Image::new("localhost/a:1").bytes("/a", "a", 0o644);
        assert_eq!(packed(&image), packed(&image));
    }
}
