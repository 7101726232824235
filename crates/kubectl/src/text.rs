//! The report as people read it: the document's table, its details, and a wide form with what
//! those have no room for. The first two are what other tools and their users' scripts expect, to
//! the byte (facts/aliyun-gpushare.md 4.2, 4.3).

use mpshare_core::Memory;

use crate::elastic::align;
use crate::placement::Place;
use crate::report::{Card, NodeReport, PodReport, Report, percent};

/// One row per node.
pub(crate) fn summary(report: &Report) -> String {
    let columns = report.nodes.iter().map(NodeReport::columns).max().unwrap_or(0);
    let has_pending = report.nodes.iter().any(NodeReport::has_pending);
    let mut header = vec!["NAME".to_owned(), "IPADDRESS".to_owned()];
    header.extend((0..columns).map(|index| format!("GPU{index}(Allocated/Total)")));
    if has_pending {
        header.push("PENDING(Allocated)".to_owned());
    }
    header.push(format!("GPU Memory({})", unit_label(report)));
    let rows: Vec<String> = report
        .nodes
        .iter()
        .map(|node| row(&summary_cells(report, node, columns, has_pending)))
        .collect();
    // As long as the first row before its columns are made wide, and 20 more.
    let dashes = rows.first().map_or(0, |first| first.len() + 20);
    let (used, total) = (report.allocated(), report.total());
    align(&format!(
        "{}{}{}\nAllocated/Total GPU Memory In Cluster:\n{used}/{total} ({}%)\t\n",
        row(&header),
        rows.concat(),
        "-".repeat(dashes),
        percent(used, total),
    ))
}

fn summary_cells(
    report: &Report,
    node: &NodeReport,
    columns: u32,
    has_pending: bool,
) -> Vec<String> {
    let amount = |units| report.amount(node, units);
    let mut cells = vec![node.name.clone(), address(node)];
    cells.extend((0..columns).map(|index| {
        let total = node.card(index).map_or(0, |card| card.total);
        format!("{}/{}", amount(node.allocated_on(index)), amount(total))
    }));
    if has_pending {
        let pending = amount(node.pending());
        cells.push(if node.has_pending() { pending.to_string() } else { String::new() });
    }
    cells.push(format!("{}/{}", amount(node.allocated()), amount(node.total())));
    cells
}

/// One block per node, one row per pod.
pub(crate) fn details(report: &Report) -> String {
    // As long as all rows of the first node's pods, and 10 more, below every node.
    let first = report.nodes.first().map_or(0, |node| pod_rows(report, node).len());
    let dashes = "-".repeat(first + 10) + "\n";
    let blocks = report.nodes.iter().map(|node| details_of(report, node) + &dashes);
    let (used, total) = (report.allocated(), report.total());
    let sum = format!("{used}/{total} ({}%)", percent(used, total));
    let sum = full_row(&["Allocated/Total GPU Memory In Cluster:".to_owned(), sum]);
    align(&(blocks.collect::<String>() + "\n\n" + &sum))
}

fn details_of(report: &Report, node: &NodeReport) -> String {
    let mut header = vec!["NAME".to_owned(), "NAMESPACE".to_owned()];
    header.extend((0..node.columns()).map(|index| format!("GPU{index}(Allocated)")));
    if node.has_pending() {
        header.push("Pending(Allocated)".to_owned());
    }
    let (used, total) = (node.allocated(), node.total());
    let used = format!("{} ({}%)", report.amount(node, used), percent(used, total));
    let total = format!("{} ", report.amount(node, total));
    [
        "\n".to_owned(),
        row(&["NAME:".to_owned(), node.name.clone()]),
        row(&["IPADDRESS:".to_owned(), address(node)]),
        "\n".to_owned(),
        full_row(&header),
        pod_rows(report, node),
        full_row(&["Allocated :".to_owned(), used]),
        full_row(&["Total :".to_owned(), total]),
    ]
    .concat()
}

fn pod_rows(report: &Report, node: &NodeReport) -> String {
    let rows = node.pods.iter().map(|pod| {
        let mut cells = vec![pod.name.clone(), pod.namespace.clone()];
        let units = (0..node.columns()).map(|index| pod.on(index));
        let pending = node.has_pending().then(|| pod.pending());
        cells.extend(units.chain(pending).map(|units| report.amount(node, units).to_string()));
        full_row(&cells)
    });
    rows.collect()
}

/// One row per card, with what is used, its health and the reason.
pub(crate) fn wide(report: &Report) -> String {
    let unit = unit_label(report);
    let share = format!("ALLOCATED/TOTAL({unit})");
    let header = [
        "NAME",
        "IPADDRESS",
        "GPU",
        "MODEL",
        "MEMORY(MiB)",
        &share,
        "USED(MiB)",
        "HEALTH",
        "REASON",
    ];
    let rows = report.nodes.iter().flat_map(|node| {
        let cards = node.cards.iter().map(|card| card_row(report, node, card));
        let pods = node.pods.iter().map(|pod| pending_row(report, node, pod));
        let problems = node.problems.iter();
        let problems = problems.map(|it| wide_row(node, ["-", "-", "-", "-", "-", "-", it]));
        cards.chain(pods).chain(problems)
    });
    let (used, total) = (report.allocated(), report.total());
    align(&format!(
        "{}{}\nAllocated/Total GPU Memory In Cluster:\n{used}/{total} ({}%)\n",
        row(&header.map(str::to_owned)),
        rows.collect::<String>(),
        percent(used, total)
    ))
}

/// One row per pod and card, for the wide form.
pub(crate) fn wide_pods(report: &Report) -> String {
    let amount = format!("ALLOCATED({})", unit_label(report));
    let header = ["NAMESPACE", "NAME", "NODE", "GPU", &amount, "REASON"].map(str::to_owned);
    let pods = report.nodes.iter().flat_map(|node| node.pods.iter().map(move |pod| (node, pod)));
    let rows = pods.map(|(node, pod)| {
        let line = |gpu: &str, units: u64, reason: &str| {
            let amount = report.amount(node, units).to_string();
            let cells = [&pod.namespace, &pod.name, &node.name, gpu, &amount, reason];
            row(&cells.map(str::to_owned))
        };
        match &pod.place {
            Place::On(shares) => {
                shares.iter().map(|(card, units)| line(&card.to_string(), *units, "-")).collect()
            }
            Place::Pending { units, reason } => line("PENDING", *units, reason),
        }
    });
    align(&format!("\n{}{}", row(&header), rows.collect::<String>()))
}

fn card_row(report: &Report, node: &NodeReport, card: &Card) -> String {
    let allocated = report.amount(node, node.allocated_on(card.index));
    let share = format!("{allocated}/{}", report.amount(node, card.total));
    let mib =
        |memory: Option<Memory>| memory.map_or("-".to_owned(), |memory| memory.mib().to_string());
    let used = match card.outside {
        Memory::ZERO => mib(card.used),
        outside => format!("{} ({} outside shares)", mib(card.used), outside.mib()),
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let cells = [
        &card.index.to_string(),
        &text(&card.model),
        &mib(card.memory),
        &share,
        &used,
        &text(&card.state),
        &text(&card.reason),
    ];
    wide_row(node, cells.map(String::as_str))
}

fn pending_row(report: &Report, node: &NodeReport, pod: &PodReport) -> String {
    let Place::Pending { units, reason } = &pod.place else { return String::new() };
    let share = format!("{}/-", report.amount(node, *units));
    let reason = format!("pod `{}/{}`: {reason}", pod.namespace, pod.name);
    wide_row(node, ["PENDING", "-", "-", &share, "-", "-", &reason])
}

fn wide_row(node: &NodeReport, cells: [&str; 7]) -> String {
    let mut all = vec![node.name.clone(), address(node)];
    all.extend(cells.map(str::to_owned));
    row(&all)
}

/// A row whose last cell isn't padded.
fn row(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|text| cell(text)).collect();
    cells.join("\t") + "\n"
}

/// A row whose last cell is padded too.
fn full_row(cells: &[String]) -> String {
    let mut cells = cells.to_vec();
    cells.push(String::new());
    row(&cells)
}

/// A text of somebody else in one line, without anything that a terminal would obey.
fn cell(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn address(node: &NodeReport) -> String {
    node.address.clone().unwrap_or_else(|| "unknown".to_owned())
}

/// `GiB`, `MiB`, or the size of a unit where it is another; empty without nodes.
pub(crate) fn unit_label(report: &Report) -> String {
    match report.unit().map(Memory::mib) {
        None => String::new(),
        Some(1) => "MiB".to_owned(),
        Some(1024) => "GiB".to_owned(),
        Some(mib) => Memory::from_mib(mib).to_string().replace(' ', ""),
    }
}

#[cfg(test)]
mod tests;
