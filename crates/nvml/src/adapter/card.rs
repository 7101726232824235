//! The facts of one card.

use std::fs;
use std::path::Path;

use mpshare_core::{ComputeCapability, Gpu, Memory, MigMode};
use nvml_wrapper::error::NvmlError as Code;
use nvml_wrapper::{Device, Nvml};

use super::refusal::{Subject, refusal};
use crate::error::NvmlError;

/// Reads the card with this index.
pub(super) fn read(nvml: &Nvml, index: u32, sysfs: &Path) -> Result<Gpu, NvmlError> {
    let failed = |action: &'static str| move |code| refusal(code, Subject::Index(index), action);
    let device = nvml.device_by_index(index).map_err(failed("look the card up"))?;
    let uuid = device.uuid().map_err(failed("read the UUID"))?.parse()?;
    let capability =
        device.cuda_compute_capability().map_err(failed("read the compute capability"))?;
    let memory = device.memory_info().map_err(failed("read the memory"))?;
    Ok(Gpu {
        uuid,
        index,
        minor: device.minor_number().map_err(failed("read the minor number"))?,
        model: device.name().map_err(failed("read the name"))?,
        memory: Memory::from_bytes_floor(memory.total),
        compute_capability: ComputeCapability {
            major: capability.major.unsigned_abs(),
            minor: capability.minor.unsigned_abs(),
        },
        mig: mig(&device).map_err(failed("read the MIG mode"))?,
        numa_node: numa_node(&device, sysfs),
    })
}

fn mig(device: &Device<'_>) -> Result<MigMode, Code> {
    match device.mig_mode() {
        Ok(mode) if mode.current == 0 => Ok(MigMode::Disabled),
        Ok(_) => Ok(MigMode::Enabled),
        // Old libraries don't have the function at all.
        Err(Code::NotSupported | Code::FailedToLoadSymbol(_)) => Ok(MigMode::Unsupported),
        Err(code) => Err(code),
    }
}

/// From sysfs: the library names a NUMA node only for cards that are one themselves.
fn numa_node(device: &Device<'_>, sysfs: &Path) -> Option<u32> {
    let bus_id = device.pci_info().ok()?.bus_id;
    let path = sysfs.join("bus/pci/devices").join(sysfs_name(&bus_id)?).join("numa_node");
    // -1: the machine names none.
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// `00000000:3B:00.0` is `0000:3b:00.0` in sysfs.
fn sysfs_name(bus_id: &str) -> Option<String> {
    let (domain, rest) = bus_id.split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    let plain = rest.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'));
    plain.then(|| format!("{domain:04x}:{}", rest.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bus_id_becomes_a_name_in_sysfs_and_never_a_path() {
        assert_eq!(sysfs_name("00000000:3B:00.0").as_deref(), Some("0000:3b:00.0"));
        assert_eq!(sysfs_name("00010000:00:07.0").as_deref(), Some("10000:00:07.0"));
        for text in ["", "3B", "0000:../../etc", "zz:00:07.0"] {
            assert_eq!(sysfs_name(text), None, "{text}");
        }
    }
}
