//! `--query-gpu` and `--query-compute-apps` with `--format=csv[,noheader][,nounits]`.

use nvml_wrapper::enum_wrappers::device::ComputeMode;

use super::{Card, Error, Node, Process};

/// What `--format` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Format {
    header: Header,
    units: Units,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Header {
    Shown,
    Hidden,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Units {
    Shown,
    Hidden,
}

impl Format {
    /// Reads the option's value.
    pub(super) fn parse(value: Option<&str>) -> Result<Self, Error> {
        let mut format = Self { header: Header::Shown, units: Units::Shown };
        for word in value.unwrap_or("csv").split(',') {
            match word.trim() {
                "csv" => {}
                "noheader" => format.header = Header::Hidden,
                "nounits" => format.units = Units::Hidden,
                other => return Err(Error::UnknownFormat(other.to_owned())),
            }
        }
        Ok(format)
    }
}

/// A value, with its unit apart from it.
enum Value {
    Text(String),
    Mib(u64),
    Percent(u32),
}

impl Value {
    fn write(self, units: Units) -> String {
        match (self, units) {
            (Self::Text(text), _) => text,
            (Self::Mib(amount), Units::Hidden) => amount.to_string(),
            (Self::Mib(amount), Units::Shown) => format!("{amount} MiB"),
            (Self::Percent(amount), Units::Hidden) => amount.to_string(),
            (Self::Percent(amount), Units::Shown) => format!("{amount} %"),
        }
    }
}

/// One line for each card.
pub(super) fn cards(node: &Node, fields: &str, format: Format) -> Result<String, Error> {
    let fields = parse_fields(fields, CARD_FIELDS)?;
    Ok(write(&fields, format, node.cards.iter(), |field, card| card_value(node, field, card)))
}

/// One line for each compute process, MPS clients included.
pub(super) fn processes(node: &Node, fields: &str, format: Format) -> Result<String, Error> {
    let fields = parse_fields(fields, PROCESS_FIELDS)?;
    let rows = node
        .cards
        .iter()
        .flat_map(|card| card.processes.iter().map(move |process| (card, process)));
    Ok(write(&fields, format, rows, |field, (card, process)| process_value(field, card, process)))
}

const CARD_FIELDS: &[&str] = &[
    "index",
    "uuid",
    "gpu_uuid",
    "name",
    "gpu_name",
    "count",
    "memory.total",
    "memory.used",
    "memory.free",
    "compute_mode",
    "driver_version",
    "compute_cap",
    "mig.mode.current",
    "persistence_mode",
    "pci.bus_id",
    "gpu_bus_id",
    "temperature.gpu",
    "utilization.gpu",
];

const PROCESS_FIELDS: &[&str] = &[
    "pid",
    "process_name",
    "name",
    "used_memory",
    "used_gpu_memory",
    "gpu_uuid",
    "gpu_name",
    "gpu_bus_id",
];

/// The fields by name; an unknown one is an error even where there is no row.
fn parse_fields<'a>(fields: &'a str, known: &[&str]) -> Result<Vec<&'a str>, Error> {
    let checked = fields.split(',').map(str::trim).map(|field| {
        if known.contains(&field) { Ok(field) } else { Err(Error::UnknownField(field.to_owned())) }
    });
    checked.collect()
}

fn write<R: Copy>(
    fields: &[&str],
    format: Format,
    rows: impl Iterator<Item = R>,
    value: impl Fn(&str, R) -> Option<Value>,
) -> String {
    let head = (format.header == Header::Shown)
        .then(|| fields.iter().map(|field| head(field)).collect::<Vec<_>>().join(", "));
    let rows = rows.map(|row| {
        let values = fields.iter().filter_map(|field| value(field, row));
        values.map(|value| value.write(format.units)).collect::<Vec<_>>().join(", ")
    });
    head.into_iter().chain(rows).map(|line| line + "\n").collect()
}

/// The unit stays in the heading even where `nounits` takes it from the values.
fn head(field: &str) -> String {
    match field {
        "used_memory" => "used_gpu_memory [MiB]".to_owned(),
        "memory.total" | "memory.used" | "memory.free" | "used_gpu_memory" => {
            format!("{field} [MiB]")
        }
        "utilization.gpu" => format!("{field} [%]"),
        _ => field.to_owned(),
    }
}

fn card_value(node: &Node, field: &str, card: &Card) -> Option<Value> {
    let text = |text: &str| Some(Value::Text(text.to_owned()));
    let (major, minor) = card.compute_capability;
    match field {
        "index" => text(&card.index.to_string()),
        "uuid" | "gpu_uuid" => text(&card.uuid),
        "name" | "gpu_name" => text(&card.name),
        "count" => text(&node.cards.len().to_string()),
        "memory.total" => Some(Value::Mib(card.memory_total)),
        "memory.used" => Some(Value::Mib(card.memory_used)),
        "memory.free" => Some(Value::Mib(card.memory_free)),
        "compute_mode" => text(match card.compute_mode {
            ComputeMode::Default => "Default",
            ComputeMode::ExclusiveThread => "Exclusive_Thread",
            ComputeMode::Prohibited => "Prohibited",
            ComputeMode::ExclusiveProcess => "Exclusive_Process",
        }),
        "driver_version" => text(&node.driver_version),
        "compute_cap" => text(&format!("{major}.{minor}")),
        "mig.mode.current" => text(match card.mig_enabled {
            None => "[N/A]",
            Some(false) => "Disabled",
            Some(true) => "Enabled",
        }),
        "persistence_mode" => text(if card.persistence { "Enabled" } else { "Disabled" }),
        "pci.bus_id" | "gpu_bus_id" => text(&card.bus_id),
        "temperature.gpu" => text(&card.temperature.to_string()),
        "utilization.gpu" => Some(Value::Percent(card.utilization)),
        _ => None,
    }
}

fn process_value(field: &str, card: &Card, process: &Process) -> Option<Value> {
    match field {
        "pid" => Some(Value::Text(process.pid.to_string())),
        "process_name" | "name" => Some(Value::Text(process.name.clone())),
        "used_memory" | "used_gpu_memory" => {
            Some(process.used.map_or_else(|| Value::Text("[N/A]".to_owned()), Value::Mib))
        }
        "gpu_uuid" => Some(Value::Text(card.uuid.clone())),
        "gpu_name" => Some(Value::Text(card.name.clone())),
        "gpu_bus_id" => Some(Value::Text(card.bus_id.clone())),
        _ => None,
    }
}
