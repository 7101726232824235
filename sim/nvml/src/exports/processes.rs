//! The process lists, in the three versions that programs ask for.

use std::ffi::{c_uint, c_ulonglong};

use super::nvml;
use crate::abi::{Handle, Out, ProcessInfo, ProcessInfoV1, ProcessUtilizationSample};
use crate::processes::{self, List};

nvml! {
    fn nvmlDeviceGetComputeRunningProcesses_v3(
        device: Handle,
        count: Out<c_uint>,
        infos: Out<ProcessInfo>
    ) {
        infos.fill(count, &processes::running(device, List::Compute)?)
    }
    fn nvmlDeviceGetComputeRunningProcesses_v2(
        device: Handle,
        count: Out<c_uint>,
        infos: Out<ProcessInfo>
    ) {
        infos.fill(count, &processes::running(device, List::Compute)?)
    }
    fn nvmlDeviceGetComputeRunningProcesses(
        device: Handle,
        count: Out<c_uint>,
        infos: Out<ProcessInfoV1>
    ) {
        infos.fill(count, &processes::running_v1(device, List::Compute)?)
    }
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
        device: Handle,
        count: Out<c_uint>,
        infos: Out<ProcessInfo>
    ) {
        infos.fill(count, &processes::running(device, List::Mps)?)
    }
    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(
        device: Handle,
        count: Out<c_uint>,
        infos: Out<ProcessInfo>
    ) {
        infos.fill(count, &processes::running(device, List::Mps)?)
    }
    fn nvmlDeviceGetMPSComputeRunningProcesses(
        device: Handle,
        count: Out<c_uint>,
        infos: Out<ProcessInfoV1>
    ) {
        infos.fill(count, &processes::running_v1(device, List::Mps)?)
    }
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(
        device: Handle,
        count: Out<c_uint>,
        infos: Out<ProcessInfo>
    ) {
        infos.fill(count, &processes::running(device, List::Graphics)?)
    }
    fn nvmlDeviceGetGraphicsRunningProcesses_v2(
        device: Handle,
        count: Out<c_uint>,
        infos: Out<ProcessInfo>
    ) {
        infos.fill(count, &processes::running(device, List::Graphics)?)
    }
    fn nvmlDeviceGetGraphicsRunningProcesses(
        device: Handle,
        count: Out<c_uint>,
        infos: Out<ProcessInfoV1>
    ) {
        infos.fill(count, &processes::running_v1(device, List::Graphics)?)
    }
    fn nvmlDeviceGetProcessUtilization(
        device: Handle,
        samples: Out<ProcessUtilizationSample>,
        count: Out<c_uint>,
        _last_seen: c_ulonglong
    ) {
        samples.fill(count, &processes::utilization(device)?)
    }
}
