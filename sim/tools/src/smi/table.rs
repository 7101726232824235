//! The default table in the layout of driver 535.

use jiff::Zoned;
use nvml_wrapper::enum_wrappers::device::ComputeMode;

use super::{Card, Kind, Node, Process};

const EDGE: &str =
    "+---------------------------------------------------------------------------------------+\n";
const COLUMNS: &str =
    "+-----------------------------------------+----------------------+----------------------+\n";
const CARD_HEAD: &str = "\
|-----------------------------------------+----------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |         Memory-Usage | GPU-Util  Compute M. |
|                                         |                      |               MIG M. |
|=========================================+======================+======================|
";
const BLANK: &str =
    "                                                                                         \n";
const PROCESS_HEAD: &str = "\
| Processes:                                                                            |
|  GPU   GI   CI        PID   Type   Process name                            GPU Memory |
|        ID   ID                                                             Usage      |
|=======================================================================================|
";
const NO_PROCESSES: &str =
    "|  No running processes found                                                           |\n";
/// Where the name of a process is cut.
const NAME_WIDTH: usize = 41;

/// The whole output.
pub(super) fn render(node: &Node, now: &Zoned) -> String {
    let mut text = format!("{}       \n", now.strftime("%a %b %e %H:%M:%S %Y"));
    text.push_str(EDGE);
    text.push_str(&versions(node));
    text.push_str(CARD_HEAD);
    for card in &node.cards {
        text.push_str(&card_rows(card));
        text.push_str(COLUMNS);
    }
    text.push_str(BLANK);
    text.push_str(EDGE);
    text.push_str(PROCESS_HEAD);
    text.push_str(&process_rows(node));
    text.push_str(EDGE);
    text
}

fn versions(node: &Node) -> String {
    let (driver, cuda) = (&node.driver_version, &node.cuda_version);
    format!("| NVIDIA-SMI {driver:<23}Driver Version: {driver:<13}CUDA Version: {cuda:<8} |\n")
}

fn card_rows(card: &Card) -> String {
    let persistence = if card.persistence { "On" } else { "Off" };
    let power = format!("{}W / {:>3}W", card.power, card.power_limit);
    let mig = match card.mig_enabled {
        None => "N/A",
        Some(false) => "Disabled",
        Some(true) => "Enabled",
    };
    format!(
        "| {:>3}  {:<31}{persistence:<3} | {} Off | {:>20} |\n\
         | N/A {:>4}C    P0  {power:>22} | {:>6}MiB / {:>5}MiB | {:>6}% {:>12} |\n\
         | {:39} | {:20} | {mig:>20} |\n",
        card.index,
        clip_end(&card.name, 31),
        card.bus_id,
        0,
        card.temperature,
        card.memory_used,
        card.memory_total,
        card.utilization,
        compute_mode(card.compute_mode),
        "",
        "",
    )
}

fn compute_mode(mode: ComputeMode) -> &'static str {
    match mode {
        ComputeMode::Default => "Default",
        ComputeMode::ExclusiveThread => "E. Thread",
        ComputeMode::Prohibited => "Prohibited",
        ComputeMode::ExclusiveProcess => "E. Process",
    }
}

fn process_rows(node: &Node) -> String {
    let rows: String = node
        .cards
        .iter()
        .flat_map(|card| card.processes.iter().map(|process| process_row(card, process)))
        .collect();
    if rows.is_empty() { NO_PROCESSES.to_owned() } else { rows }
}

fn process_row(card: &Card, process: &Process) -> String {
    let kind = match process.kind {
        Kind::Compute => "C",
        Kind::MpsClient => "M+C",
    };
    let used = process.used.map_or_else(|| "N/A".to_owned(), |used| format!("{used}MiB"));
    format!(
        "| {:>4}   N/A  N/A {:>9}{kind:>7}   {:<NAME_WIDTH$}{used:>9} |\n",
        card.index,
        process.pid,
        clip_start(&process.name, NAME_WIDTH),
    )
}

/// Keeps the end of a long path, as the real one does.
fn clip_start(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.to_owned();
    }
    let kept: String = name.chars().skip(length + 3 - width).collect();
    format!("...{kept}")
}

fn clip_end(name: &str, width: usize) -> String {
    name.chars().take(width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, kind: Kind, name: &str, used: u64) -> Process {
        Process { pid, kind, name: name.to_owned(), used: Some(used) }
    }

    fn card() -> Card {
        Card {
            index: 0,
            name: "Tesla V100-SXM2-32GB".to_owned(),
            uuid: "GPU-cb1213a3".to_owned(),
            bus_id: "00000000:00:07.0".to_owned(),
            persistence: true,
            temperature: 37,
            power: 56,
            power_limit: 300,
            memory_total: 32768,
            memory_used: 345,
            memory_free: 32000,
            utilization: 0,
            compute_mode: ComputeMode::ExclusiveProcess,
            mig_enabled: None,
            compute_capability: (7, 0),
            processes: vec![
                process(197_792, Kind::Compute, "nvidia-cuda-mps-server", 30),
                process(387_820, Kind::MpsClient, "python", 312),
            ],
        }
    }

    fn render_cards(cards: Vec<Card>) -> String {
        let node = Node {
            driver_version: "535.161.07".to_owned(),
            cuda_version: "12.2".to_owned(),
            cards,
        };
        let now = jiff::civil::date(2024, 11, 12).at(11, 9, 35, 0).in_tz("UTC").unwrap();
        render(&node, &now)
    }

    /// The document's table, with a product's name in place of its placeholder.
    #[test]
    fn the_table_is_the_one_of_the_ack_document() {
        assert_eq!(render_cards(vec![card()]), include_str!("testdata/ack-table.txt"));
    }

    #[test]
    fn every_line_of_the_table_is_89_characters_wide() {
        let long = "/opt/conda/envs/training/lib/python3.12/site-packages/bin/python3.12";
        let mut card = card();
        card.persistence = false;
        card.mig_enabled = Some(false);
        card.processes.push(process(1, Kind::Compute, long, 100_000));
        for line in render_cards(vec![card]).lines().skip(1) {
            assert_eq!(line.chars().count(), 89, "{line}");
        }
    }

    #[test]
    fn a_card_at_rest_has_no_process_rows() {
        let rest = Card { processes: Vec::new(), ..card() };
        assert!(render_cards(vec![rest]).contains("No running processes found"));
    }
}
