//! `nvidia-smi`: the default table, `-L`, `-c` and the `--query` forms.
//!
//! Reads everything through `libnvidia-ml.so.1`, never from the simulator, so that it shows what
//! NVML shows. [`Node`] holds the values; [`table`] and [`csv`] only write them. The layout is that of
//! driver 535, whatever the version (it is the one that the ACK document prints).

mod csv;
mod error;
mod node;
mod table;

use std::io::{self, Write};

use clap::Parser;
use jiff::Zoned;
use nvml_wrapper::enum_wrappers::device::ComputeMode;
use nvml_wrapper::{Device, Nvml};

pub use error::{Error, ExitStatus};
pub use node::{Card, Kind, Node, Process};

/// The arguments that are understood, under their real names.
#[derive(Debug, Parser)]
#[command(name = "nvidia-smi", disable_version_flag = true)]
pub struct Arguments {
    /// Lists the cards.
    #[arg(short = 'L', long)]
    list_gpus: bool,
    /// Sets the compute mode: a name or `0`, `2`, `3`.
    #[arg(short = 'c', long, value_name = "MODE")]
    compute_mode: Option<String>,
    /// Only this card: an index, a UUID or a PCI bus id.
    #[arg(short, long, value_name = "GPU")]
    id: Option<String>,
    /// Fields of each card, as CSV.
    #[arg(long, value_name = "FIELDS", requires = "format")]
    query_gpu: Option<String>,
    /// Fields of each compute process, as CSV.
    #[arg(long, value_name = "FIELDS", requires = "format")]
    query_compute_apps: Option<String>,
    /// `csv`, with `noheader` and `nounits`.
    #[arg(long)]
    format: Option<String>,
}

/// Runs the program and says how to exit.
pub fn run(arguments: &Arguments) -> ExitStatus {
    let mut output = String::new();
    let status = match answer(arguments, &mut output) {
        Ok(()) => ExitStatus::SUCCESS,
        Err(error) => {
            // The real one complains on standard output, too.
            output.push_str(&error.to_string());
            output.push('\n');
            error.exit_status()
        }
    };
    match io::stdout().write_all(output.as_bytes()) {
        Ok(()) => status,
        Err(_) => ExitStatus::FAILURE,
    }
}

fn answer(arguments: &Arguments, output: &mut String) -> Result<(), Error> {
    let nvml = Nvml::init().map_err(Error::starting)?;
    if let Some(mode) = &arguments.compute_mode {
        return set_compute_mode(&nvml, mode, arguments.id.as_deref(), output);
    }
    let node = Node::read(&nvml, arguments.id.as_deref())?;
    let format = csv::Format::parse(arguments.format.as_deref())?;
    let text = if arguments.list_gpus {
        node.cards.iter().map(list_line).collect()
    } else if let Some(fields) = &arguments.query_gpu {
        csv::cards(&node, fields, format)?
    } else if let Some(fields) = &arguments.query_compute_apps {
        csv::processes(&node, fields, format)?
    } else {
        table::render(&node, &Zoned::now())
    };
    output.push_str(&text);
    Ok(())
}

fn list_line(card: &Card) -> String {
    format!("GPU {}: {} (UUID: {})\n", card.index, card.name, card.uuid)
}

fn set_compute_mode(
    nvml: &Nvml,
    mode: &str,
    id: Option<&str>,
    output: &mut String,
) -> Result<(), Error> {
    let (mode, name) = match mode.to_ascii_uppercase().as_str() {
        "0" | "DEFAULT" => (ComputeMode::Default, "DEFAULT"),
        "1" | "EXCLUSIVE_THREAD" => (ComputeMode::ExclusiveThread, "EXCLUSIVE_THREAD"),
        "2" | "PROHIBITED" => (ComputeMode::Prohibited, "PROHIBITED"),
        "3" | "EXCLUSIVE_PROCESS" => (ComputeMode::ExclusiveProcess, "EXCLUSIVE_PROCESS"),
        _ => return Err(Error::UnknownComputeMode(mode.to_owned())),
    };
    for device in node::devices(nvml, id)? {
        output.push_str(&switch(device, mode, name)?);
    }
    output.push_str("All done.\n");
    Ok(())
}

/// Sets one card and says so in a line.
fn switch(mut device: Device<'_>, mode: ComputeMode, name: &str) -> Result<String, Error> {
    let bus_id = device.pci_info()?.bus_id;
    if device.compute_mode()? == mode {
        return Ok(format!("Compute mode is already set to {name} for GPU {bus_id}.\n"));
    }
    match device.set_compute_mode(mode) {
        Ok(()) => Ok(format!("Set compute mode to {name} for GPU {bus_id}.\n")),
        Err(source) => Err(Error::ComputeMode { bus_id, source }),
    }
}
