//! Device attributes: numbers of `CUdevice_attribute` that programs ask for.

use mpshare_sim_state::{ComputeMode, SimGpu};

use crate::runtime::Runtime;
use crate::status::Status;

/// The value of one attribute of a visible card.
pub(crate) fn get(runtime: &Runtime, ordinal: i32, attribute: i32) -> Result<i32, Status> {
    let gpu = runtime.gpu(ordinal)?;
    let (major, minor) = gpu.compute_capability;
    let value = match attribute {
        1 => 1024,                                             // MAX_THREADS_PER_BLOCK
        10 => 32,                                              // WARP_SIZE
        16 => multiprocessors(&gpu, runtime.percent_tenths()), // MULTIPROCESSOR_COUNT
        18 => 0,                                               // INTEGRATED
        20 => compute_mode(gpu.compute_mode),                  // COMPUTE_MODE
        33 => pci(&gpu, 1)?,                                   // PCI_BUS_ID
        34 => pci(&gpu, 2)?,                                   // PCI_DEVICE_ID
        39 => {
            if gpu.compute_capability == (7, 5) {
                1024
            } else {
                2048
            }
        } // MAX_THREADS_PER_MULTIPROCESSOR
        41 => 1,                                               // UNIFIED_ADDRESSING
        50 => pci(&gpu, 0)?,                                   // PCI_DOMAIN_ID
        75 => major,
        76 => minor,
        133 => u32::from(runtime.session.is_some()), // MPS_ENABLED
        _ => return Err(Status::INVALID_VALUE),
    };
    i32::try_from(value).map_err(|_| Status::UNKNOWN)
}

/// What the active thread percentage leaves of the card: whole pairs of multiprocessors, rounded
/// down and never none (facts/mps.md 1.5: 25 % of 188 is 46). Before Volta there is no such limit.
fn multiprocessors(gpu: &SimGpu, percent_tenths: u32) -> u32 {
    if percent_tenths >= 1000 || gpu.compute_capability < (7, 0) {
        return gpu.sm_count;
    }
    let share = gpu.sm_count * percent_tenths / 1000;
    (share / 2 * 2).max(2)
}

fn compute_mode(mode: ComputeMode) -> u32 {
    match mode {
        ComputeMode::Default => 0,
        ComputeMode::Prohibited => 2,
        ComputeMode::ExclusiveProcess => 3,
    }
}

/// A part of `domain:bus:device.function`.
fn pci(gpu: &SimGpu, part: usize) -> Result<u32, Status> {
    let text = gpu.pci_bus_id.split([':', '.']).nth(part).ok_or(Status::UNKNOWN)?;
    u32::from_str_radix(text, 16).map_err(|_| Status::UNKNOWN)
}

/// The 16 bytes of a UUID, read from its hexadecimal digits.
pub(crate) fn uuid_bytes(uuid: &str) -> [u8; 16] {
    let digits = uuid.trim_start_matches("GPU-").chars().filter_map(|digit| digit.to_digit(16));
    let digits: Vec<u8> = digits.filter_map(|digit| u8::try_from(digit).ok()).collect();
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = pair.iter().fold(0, |value, digit| value << 4 | digit);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_leaves_whole_pairs_of_multiprocessors() {
        let mut card = SimGpu::of_model("v100", 0, "GPU-v100").unwrap();
        assert_eq!(multiprocessors(&card, 1000), 80);
        assert_eq!(multiprocessors(&card, 250), 20);
        assert_eq!(multiprocessors(&card, 1), 2);
        card.sm_count = 188;
        assert_eq!(multiprocessors(&card, 250), 46);
        assert_eq!(multiprocessors(&card, 750), 140);
    }

    #[test]
    fn a_card_older_than_volta_is_always_whole() {
        let card = SimGpu::of_model("p4", 0, "GPU-p4").unwrap();
        assert_eq!(multiprocessors(&card, 250), 20);
    }

    #[test]
    fn a_uuid_is_sixteen_bytes() {
        let bytes = uuid_bytes("GPU-cb1213a3-2222-4a4a-8b8b-0000000000ff");
        assert_eq!(bytes[..6], [0xcb, 0x12, 0x13, 0xa3, 0x22, 0x22]);
        assert_eq!(bytes[15], 0xff);
    }
}
