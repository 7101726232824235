//! The libraries' names and exported symbols, read from the ELF files.

use std::collections::BTreeSet;
use std::fs;

use crate::node::built;

/// Every function of the table in facts/nvml.md, and the probes that NVIDIA's Go programs make for
/// versions that they prefer.
const NVML: &[&str] = &[
    "nvmlInit_v2",
    "nvmlInit",
    "nvmlShutdown",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetPciInfo_v2",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlEventSetCreate",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetHandleByPciBusId_v2",
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlDeviceRegisterEvents",
    "nvmlEventSetWait_v2",
    "nvmlEventSetFree",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetNVMLVersion",
    "nvmlSystemGetCudaDriverVersion",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlDeviceGetGpuFabricInfo",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlErrorString",
    "nvmlDeviceGetIndex",
    "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetTopologyCommonAncestor",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
    "nvmlDeviceGetAttributes_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceSetComputeMode",
];

#[test]
fn nvml_exports_every_symbol_that_the_programs_call() {
    let exported = exported_symbols(&fs::read(built("libnvidia_ml_sim.so")).unwrap());
    let missing: Vec<_> = NVML.iter().filter(|name| !exported.contains(**name)).collect();
    assert_eq!(missing, Vec::<&&str>::new());
}

const CUDA: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetUuid",
    "cuDeviceGetUuid_v2",
    "cuDeviceGetAttribute",
    "cuCtxCreate_v2",
    "cuCtxDestroy_v2",
    "cuCtxSetCurrent",
    "cuCtxGetCurrent",
    "cuCtxSynchronize",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemcpyHtoD_v2",
    "cuMemcpyDtoH_v2",
    "cuMemsetD8_v2",
    "cuModuleLoadData",
    "cuModuleGetFunction",
    "cuLaunchKernel",
    "cuGetErrorName",
    "cuGetErrorString",
];

#[test]
fn cuda_exports_every_symbol_that_a_small_program_calls() {
    let exported = exported_symbols(&fs::read(built("libcuda_sim.so")).unwrap());
    let missing: Vec<_> = CUDA.iter().filter(|name| !exported.contains(**name)).collect();
    assert_eq!(missing, Vec::<&&str>::new());
}

/// The defined symbols of an ELF64 file's dynamic symbol table.
fn exported_symbols(elf: &[u8]) -> BTreeSet<String> {
    const DYNSYM: u64 = 11;
    let (table, entry, number) = (word(elf, 0x28, 8), word(elf, 0x3a, 2), word(elf, 0x3c, 2));
    let header = |index: usize| table + index * entry;
    let dynsym = (0..number).map(header).find(|at| as_u64(elf, at + 4, 4) == DYNSYM).unwrap();
    let strings = word(elf, header(word(elf, dynsym + 0x28, 4)) + 0x18, 8);
    let (start, size) = (word(elf, dynsym + 0x18, 8), word(elf, dynsym + 0x20, 8));
    (start..start + size)
        .step_by(24)
        .filter(|symbol| word(elf, symbol + 6, 2) != 0)
        .map(|symbol| {
            let name = &elf[strings + word(elf, symbol, 4)..];
            let end = name.iter().position(|byte| *byte == 0).unwrap();
            String::from_utf8(name[..end].to_vec()).unwrap()
        })
        .collect()
}

fn word(elf: &[u8], at: usize, size: usize) -> usize {
    usize::try_from(as_u64(elf, at, size)).unwrap()
}

fn as_u64(elf: &[u8], at: usize, size: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes[..size].copy_from_slice(&elf[at..at + size]);
    u64::from_le_bytes(bytes)
}
