//! What is added to a container's specification.

use std::io;
use std::path::PathBuf;

use mpshare_sim_state::{SimGpu, Store};
use serde_json::{Value, json};
use thiserror::Error;

use crate::cdi::request::{self as cdi, Edits};
use crate::config::Config;
use crate::driver::{self, Mount};
use crate::request::{self, Request, UnknownCapability};
use crate::select::{self, UnknownDevice};

/// Why a container can't have what it asks for.
#[derive(Debug, Error)]
pub(crate) enum Error {
    /// A CDI device can't be had.
    #[error(transparent)]
    Cdi(#[from] cdi::Error),
    /// A part of the driver that there isn't.
    #[error(transparent)]
    Capability(#[from] UnknownCapability),
    /// A card that the node hasn't.
    #[error(transparent)]
    Device(#[from] UnknownDevice),
    /// The driver isn't installed. In the words of the real one, which people search for.
    #[error(
        "nvidia-container-cli: initialization error: load library failed: \
         libnvidia-ml.so.1: cannot open shared object file: `{path}`"
    )]
    NoLibrary {
        /// Where it should be.
        path: PathBuf,
        /// Why it isn't.
        source: io::Error,
    },
    /// The driver is installed and doesn't answer.
    #[error("nvidia-container-cli: initialization error: nvml error: driver not loaded")]
    NoDriver(#[from] mpshare_sim_state::Error),
    /// The specification isn't what the OCI says.
    #[error("the container's specification has no place for `{0}`")]
    NoPlace(&'static str),
}

/// Adds to `specification` what the container asks for. Says whether that was anything.
pub(crate) fn apply(config: &Config, specification: &mut Value) -> Result<bool, Error> {
    let by_cdi = cdi::edits(&config.cdi_dirs, &cdi::devices(specification))?;
    let request = if by_cdi == Edits::default() { request::read(specification)? } else { None };
    let mounts = mounts(config, specification, request)?;
    let mounts = mounts.iter().map(|mount| {
        json!({
            "type": "bind",
            "source": mount.source,
            "destination": mount.destination,
            "options": mount.access.options(),
        })
    });
    let mounts: Vec<Value> = by_cdi.mounts().chain(mounts).collect();
    if mounts.is_empty() && by_cdi.env.is_empty() {
        return Ok(false);
    }
    let there = list(specification, "mounts")?;
    for mount in mounts {
        // What is there already, by another specification say, stays.
        if !there.iter().any(|other| other.get("destination") == mount.get("destination")) {
            there.push(mount);
        }
    }
    let process = specification.get_mut("process").ok_or(Error::NoPlace("process"))?;
    list(process, "env")?.extend(by_cdi.env.into_iter().map(Value::from));
    Ok(true)
}

/// The list of that name, made if there is none.
fn list<'a>(object: &'a mut Value, name: &'static str) -> Result<&'a mut Vec<Value>, Error> {
    let object = object.as_object_mut().ok_or(Error::NoPlace(name))?;
    let list = object.entry(name).or_insert_with(|| json!([]));
    list.as_array_mut().ok_or(Error::NoPlace(name))
}

fn mounts(
    config: &Config,
    specification: &Value,
    request: Option<Request>,
) -> Result<Vec<Mount>, Error> {
    let privileged = request::is_privileged(specification);
    if request.is_none() && !privileged {
        return Ok(Vec::new());
    }
    let root = &config.driver_root;
    let mut mounts = Vec::new();
    let gpus = if let Some(request) = &request {
        find_nvml(config)?;
        mounts.extend(driver::file_mounts(root, &request.capabilities));
        gpus(config)?
    } else {
        // A privileged container has every device node that there is, asked for or not, and no
        // other part of the driver.
        gpus(config).unwrap_or_default()
    };
    let open: Vec<&SimGpu> = match request {
        Some(request) if !privileged => select::cards(&gpus, &request.cards)?,
        Some(request) => {
            select::cards(&gpus, &request.cards)?;
            gpus.iter().collect()
        }
        None => gpus.iter().collect(),
    };
    mounts.extend(driver::control_mounts(root, &config.state_dir));
    mounts.extend(open.into_iter().map(|gpu| driver::gpu_mount(root, gpu)));
    mounts.retain(|mount| mount.source.exists());
    Ok(mounts)
}

fn gpus(config: &Config) -> Result<Vec<SimGpu>, Error> {
    Ok(Store::at(&config.state_dir).read()?.gpus)
}

fn find_nvml(config: &Config) -> Result<(), Error> {
    let path = config.driver_root.join(driver::NVML.path());
    match path.metadata() {
        Ok(_) => Ok(()),
        Err(source) => Err(Error::NoLibrary { path, source }),
    }
}
