//! What the state doesn't say about a product and NVML answers all the same.

use mpshare_sim_state::SimGpu;

/// NVML's `nvmlDeviceArchitecture_t`, from the compute capability.
pub(crate) fn architecture(gpu: &SimGpu) -> u32 {
    match gpu.compute_capability {
        (0..=4, _) => 2,
        (5, _) => 3,
        (6, _) => 4,
        (7, 0..=4) => 5,
        (7, _) => 6,
        (8, 0..=8) => 7,
        (8, _) => 8,
        (9, _) => 9,
        _ => 10,
    }
}

/// PCI device id in the upper half, NVIDIA's vendor id in the lower.
pub(crate) fn pci_device_id(gpu: &SimGpu) -> u32 {
    let device = match gpu.name.as_str() {
        "Tesla T4" => 0x1EB8,
        "Tesla V100-SXM2-32GB" => 0x1DB5,
        "NVIDIA A100-SXM4-40GB" => 0x20B0,
        "Tesla P4" => 0x1BB3,
        _ => 0x2330,
    };
    (device << 16) | 0x10DE
}

/// The enforced power limit in milliwatts.
pub(crate) fn power_limit_mw(gpu: &SimGpu) -> u32 {
    match gpu.name.as_str() {
        "Tesla T4" => 70_000,
        "Tesla V100-SXM2-32GB" => 300_000,
        "NVIDIA A100-SXM4-40GB" => 400_000,
        "Tesla P4" => 75_000,
        _ => 350_000,
    }
}

/// Power draw in milliwatts: a card at rest takes about a fifth of its limit.
pub(crate) fn power_usage_mw(gpu: &SimGpu) -> u32 {
    power_limit_mw(gpu) / 5
}

/// Degrees Celsius.
pub(crate) const TEMPERATURE: u32 = 37;
