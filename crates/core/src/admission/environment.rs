//! The variables by which a container's process meets its share, as people write them.
//!
//! The driver takes a memory limit as `DEVICE=AMOUNT`, entries separated by commas, and passes over
//! an amount without a device: TKE's plain bytes do nothing (facts/mps.md 2). An entry with a device
//! that the process can't see is worse, it drops every limit. So all forms that people use are
//! read, and one is written: of device 0, which is the one that a container's daemon shows.

use crate::Memory;

pub(super) const MEMORY_LIMIT: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";
pub(super) const THREAD_PERCENTAGE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
pub(super) const PIPE_DIRECTORY: &str = "CUDA_MPS_PIPE_DIRECTORY";
pub(super) const NVIDIA_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
pub(super) const CUDA_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

const MIB: u64 = 1024 * 1024;

/// What a container may say to MPS itself: limits, which are looked at one by one, and what concerns
/// nobody else.
const OPEN: [&str; 5] = [
    MEMORY_LIMIT,
    THREAD_PERCENTAGE,
    "CUDA_MPS_CLIENT_PRIORITY",
    "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING",
    "CUDA_MPS_LOG_DIRECTORY",
];

/// Whether a variable says how the daemon is reached, or something of MPS that isn't a container's to
/// say.
pub(super) fn is_closed(name: &str) -> bool {
    name.starts_with("CUDA_MPS_") && !OPEN.contains(&name)
}

/// Where a container finds the daemon of its card: the path of NVIDIA's plugin.
pub(super) fn pipe_directory(resource: &crate::ResourceName) -> String {
    format!("/mps/{resource}/pipe")
}

/// A limit in the driver's form.
pub(super) fn memory_limit(memory: Memory) -> String {
    format!("0={}M", memory.mib())
}

/// Whether a limit is in a form that the driver takes for what it means, with device 0 alone.
pub(super) fn is_drivers_form(text: &str) -> bool {
    let amount = text.strip_prefix("0=").and_then(|it| it.strip_suffix(['M', 'G']));
    let is_number = |it: &str| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit());
    amount.is_some_and(is_number) && read_memory_limit(text).is_some()
}

/// The memory that a limit in any form leaves to a container with one card. Of several entries the
/// last for device 0 counts, or the last without a device; where all are for other devices, which
/// may be the card by another name, the smallest. `None` when it can't be read.
pub(super) fn read_memory_limit(text: &str) -> Option<Memory> {
    let mut own = None;
    let mut least: Option<Memory> = None;
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (device, amount) = match entry.split_once('=') {
            Some((device, amount)) => (Some(device.trim()), amount.trim()),
            None => (None, entry),
        };
        let amount = read_amount(amount)?;
        match device {
            None | Some("0") => own = Some(amount),
            Some(other) if is_device(other) => {
                least = Some(least.map_or(amount, |least| least.min(amount)));
            }
            Some(_) => return None,
        }
    }
    own.or(least)
}

fn is_device(name: &str) -> bool {
    let is_index = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    is_index || name.starts_with("GPU-")
}

/// An amount in bytes, or with a unit; `K`, `M`, `G` are powers of 1024 to the driver. At least 1 MiB.
fn read_amount(text: &str) -> Option<Memory> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let factor: u64 =
        match unit.trim().to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
            "" => 1,
            "K" => 1024,
            "M" => MIB,
            "G" => 1024 * MIB,
            "T" => 1024 * 1024 * MIB,
            _ => return None,
        };
    let whole: u64 = whole.parse().ok()?;
    // Three decimals are finer than a MiB of a GiB.
    let thousandths: u64 = match part.get(..part.len().min(3)).unwrap_or_default() {
        "" => 0,
        digits => format!("{digits:0<3}").parse().ok()?,
    };
    let bytes =
        whole.checked_mul(factor)?.checked_add(thousandths.saturating_mul(factor) / 1000)?;
    let memory = Memory::from_bytes_floor(bytes);
    (memory > Memory::ZERO).then_some(memory)
}

/// A thread percentage in tenths, rounded up; `None` where it isn't in (0, 100].
pub(super) fn read_percent(text: &str) -> Option<u32> {
    let (whole, part) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) {
        return None;
    }
    let tenth: u32 = part.get(..1).map_or(Some(0), |digit| digit.parse().ok())?;
    let rest = part.get(1..).unwrap_or_default().bytes().any(|byte| byte != b'0');
    let tenths = whole.parse::<u32>().ok()?.checked_mul(10)?.checked_add(tenth)?;
    let tenths = tenths.checked_add(u32::from(rest))?;
    (1..=1000).contains(&tenths).then_some(tenths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mib(text: &str) -> Option<u64> {
        read_memory_limit(text).map(Memory::mib)
    }

    #[test]
    fn every_documented_form_of_a_limit_is_read() {
        for (text, expected) in [
            ("4294967296", 4096),
            ("0=4G", 4096),
            ("0=4096M", 4096),
            ("0=4GB,1=512MB", 4096),
            ("1=512M,0=4G", 4096),
            ("GPU-74d43ed3=2G", 2048),
            ("GPU-a=2G,GPU-b=1G", 1024),
            ("1=3G", 3072),
            ("8192MB", 8192),
            ("4Gi", 4096),
            (" 0 = 1.5g , ", 1536),
            ("2097152K", 2048),
        ] {
            assert_eq!(mib(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_limit_is_told_apart() {
        for text in [
            "",
            ",",
            "much",
            "0=",
            "=4G",
            "x=4G",
            "0=4G,x=1",
            "-1",
            "0=4X",
            "1.2.3G",
            "1024",
            "0=0G",
            "99999999999999999999",
            "18446744073709551615G",
            "0=0=1G",
        ] {
            assert_eq!(mib(text), None, "{text}");
        }
    }

    #[test]
    fn a_percentage_is_above_0_and_at_most_100() {
        for (text, tenths) in [
            ("25", Some(250)),
            ("0.1", Some(1)),
            ("33.33", Some(334)),
            ("100", Some(1000)),
            ("100.0", Some(1000)),
            ("100.01", None),
            ("0", None),
            ("", None),
            ("-5", None),
            ("1e1", None),
            ("25%", None),
        ] {
            assert_eq!(read_percent(text), tenths, "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_that_is_written_is_read_as_something_else(mib in 1_u64..1 << 40) {
            let memory = Memory::from_mib(mib);
            prop_assert_eq!(read_memory_limit(&memory_limit(memory)), Some(memory));
        }

        #[test]
        fn any_text_can_be_read(text in ".*") {
            let _ = (read_memory_limit(&text), read_percent(&text));
        }
    }
}
