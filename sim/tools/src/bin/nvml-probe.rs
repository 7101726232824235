//! Prints what a program sees through NVML, as one JSON object: what `nvidia-smi` has no place for.
//!
//! `nvml-probe` describes every card; `nvml-probe --wait-ms N` waits for one event of any card and
//! says what came, how long it took and how much CPU time that cost.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::TopologyLevel;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

#[derive(Debug, Parser)]
struct Arguments {
    /// Waits this long for an event instead.
    #[arg(long)]
    wait_ms: Option<u32>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let answer = Nvml::init().and_then(|nvml| match arguments.wait_ms {
        Some(timeout) => wait(&nvml, timeout),
        None => describe(&nvml),
    });
    let (value, code) = match answer {
        Ok(value) => (value, ExitCode::SUCCESS),
        Err(error) => (json!({ "error": format!("{error:?}") }), ExitCode::FAILURE),
    };
    match writeln!(io::stdout(), "{value}") {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

fn describe(nvml: &Nvml) -> Result<Value, NvmlError> {
    let cards: Result<Vec<_>, _> = (0..nvml.device_count()?)
        .map(|index| nvml.device_by_index(index).and_then(|device| card(nvml, &device)))
        .collect();
    Ok(json!({
        "driver": nvml.sys_driver_version()?,
        "nvml": nvml.sys_nvml_version()?,
        "cuda": nvml.sys_cuda_driver_version()?,
        "cards": cards?,
    }))
}

fn card(nvml: &Nvml, device: &Device<'_>) -> Result<Value, NvmlError> {
    let memory = device.memory_info()?;
    let capability = device.cuda_compute_capability()?;
    let pci = device.pci_info()?;
    let by_uuid = nvml.device_by_uuid(device.uuid()?)?;
    let by_bus_id = nvml.device_by_pci_bus_id(pci.bus_id.as_str())?;
    Ok(json!({
        "index": device.index()?,
        "uuid": device.uuid()?,
        "name": device.name()?,
        "minor": device.minor_number()?,
        "bus_id": pci.bus_id,
        "found_by": [by_uuid.index()?, by_bus_id.index()?],
        "memory": {
            "total": memory.total,
            "reserved": memory.reserved,
            "used": memory.used,
            "free": memory.free,
            "version": memory.version,
        },
        "compute_capability": [capability.major, capability.minor],
        "compute_mode": format!("{:?}", device.compute_mode()?),
        "persistence": device.is_in_persistent_mode()?,
        "architecture": format!("{:?}", device.architecture()?),
        "mig": outcome(device.mig_mode().map(|mode| mode.current != 0)),
        "mig_devices": outcome(device.mig_device_count()),
        "attributes": outcome(device.attributes().map(|_| "some")),
        "topology": outcome(device.topology_nearest_gpus(TopologyLevel::Single).map(|_| "some")),
        "events": format!("{:?}", device.supported_event_types()?),
        "compute": processes(device.running_compute_processes()?),
        "mps": processes(device.mps_running_compute_processes()?),
        "graphics": processes(device.running_graphics_processes()?),
        "samples": outcome(device.process_utilization_stats(None).map(|samples| samples.len())),
    }))
}

fn processes(infos: Vec<ProcessInfo>) -> Value {
    let process = |info: ProcessInfo| {
        let used = match info.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        };
        json!({ "pid": info.pid, "used": used, "gpu_instance": info.gpu_instance_id })
    };
    infos.into_iter().map(process).collect()
}

fn outcome(result: Result<impl Into<Value>, NvmlError>) -> Value {
    result.map_or_else(|error| json!({ "error": format!("{error:?}") }), Into::into)
}

fn wait(nvml: &Nvml, timeout_ms: u32) -> Result<Value, NvmlError> {
    let mut events = nvml.create_event_set()?;
    for index in 0..nvml.device_count()? {
        let device = nvml.device_by_index(index)?;
        events = device
            .register_events(EventTypes::CRITICAL_XID_ERROR, events)
            .map_err(|error| error.error)?;
    }
    // Whoever started this waits for the line: events count from here on.
    drop(writeln!(io::stdout(), "{}", json!({ "registered": true })));
    let (start, cpu) = (Instant::now(), cpu_microseconds());
    let event = events.wait(timeout_ms);
    let cost = json!({
        "waited_ms": u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
        "cpu_us": cpu_microseconds() - cpu,
    });
    let event = match event {
        Ok(event) => json!({
            "uuid": event.device.uuid()?,
            "xid": event.event_data.map(|error| match error {
                XidError::Value(xid) => json!(xid),
                XidError::Unknown => json!("unknown"),
            }),
        }),
        Err(error) => json!({ "error": format!("{error:?}") }),
    };
    Ok(json!({ "event": event, "cost": cost }))
}

fn cpu_microseconds() -> i64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec * 1_000_000 + time.tv_nsec / 1000
}
