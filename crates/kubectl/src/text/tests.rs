use std::collections::BTreeMap;

use super::*;

fn node(name: &str, address: &str, unit_mib: u64, cards: &[u64]) -> NodeReport {
    let cards = cards.iter().zip(0..);
    NodeReport {
        name: name.to_owned(),
        address: Some(address.to_owned()),
        unit: Memory::from_mib(unit_mib),
        cards: cards
            .map(|(total, index)| Card { index, total: *total, ..Card::default() })
            .collect(),
        pods: Vec::new(),
        problems: Vec::new(),
    }
}

fn pod(name: &str, shares: &[(u32, u64)]) -> PodReport {
    let shares = shares.iter().copied().collect::<BTreeMap<_, _>>();
    PodReport { namespace: "default".to_owned(), name: name.to_owned(), place: Place::On(shares) }
}

fn pending(name: &str, units: u64) -> PodReport {
    let place = Place::Pending { units, reason: "no annotation says which GPU".to_owned() };
    PodReport { namespace: "default".to_owned(), name: name.to_owned(), place }
}

fn with(mut node: NodeReport, pods: impl Into<Vec<PodReport>>) -> NodeReport {
    node.pods = pods.into();
    node
}

fn check(text: &str, expected: &str) {
    assert_eq!(text, expected, "\n{text}\nshould be\n{expected}");
}

#[test]
fn the_table_is_the_one_of_the_user_guide() {
    let b = node("cn-shanghai.i-uf61h64dz1tmlob9hmtb", "192.168.0.71", 1024, &[15]);
    let c = node("cn-shanghai.i-uf61h64dz1tmlob9hmtc", "192.168.0.70", 1024, &[15]);
    let nodes = vec![with(b, [pod("x", &[(0, 6)])]), with(c, [pod("y", &[(0, 3)])])];
    check(&summary(&Report { nodes }), include_str!("golden/user-guide.txt"));
}

#[test]
fn units_of_no_known_card_have_a_column_of_their_own() {
    let master = node("master", "192.168.4.15", 1, &[11178; 4]);
    let node6 = node("node6", "192.168.4.16", 1, &[11178; 4]);
    let nodes = vec![with(master, [pending("x", 18960)]), node6];
    check(&summary(&Report { nodes }), include_str!("golden/pending.txt"));
}

#[test]
fn the_details_are_those_of_the_document() {
    let node = node("cn-hangzhou.192.168.2.167", "192.168.2.167", 1024, &[15]);
    let pods = [pod("app-3g-v1-0", &[(0, 4)]), pod("app-3g-v1-1", &[(0, 4)])];
    let report = Report { nodes: vec![with(node, pods)] };
    check(&details(&report), include_str!("golden/details.txt"));
}

#[test]
fn without_nodes_there_are_a_header_and_no_dashes() {
    let report = Report { nodes: Vec::new() };
    let sum = "Allocated/Total GPU Memory In Cluster:";
    check(&summary(&report), &format!("NAME  IPADDRESS  GPU Memory()\n\n{sum}\n0/0 (0%)  \n"));
    check(&details(&report), &format!("\n\n{sum}  0/0 (0%)  \n"));
}

#[test]
fn nodes_with_fewer_cards_have_empty_ones_and_the_percentage_is_cut_off() {
    let nodes = vec![
        with(node("a", "10.0.0.1", 1024, &[15]), [pod("x", &[(0, 15)])]),
        node("b", "10.0.0.2", 1024, &[140, 80]),
    ];
    check(
        &summary(&Report { nodes }),
        "NAME  IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU Memory(GiB)\n\
         a     10.0.0.1   15/15                  0/0                    15/15\n\
         b     10.0.0.2   0/140                  0/80                   0/220\n\
         -----------------------------------------------\n\
         Allocated/Total GPU Memory In Cluster:\n\
         15/235 (6%)  \n",
    );
}

#[test]
fn nodes_of_different_units_are_added_in_mib() {
    let nodes = vec![
        with(node("a", "10.0.0.1", 1024, &[15]), [pod("x", &[(0, 7)])]),
        with(node("b", "10.0.0.2", 256, &[64]), [pod("y", &[(0, 1)])]),
    ];
    let text = summary(&Report { nodes });
    assert!(text.contains("GPU Memory(MiB)"), "{text}");
    assert!(text.contains("7168/15360") && text.contains("256/16384"), "{text}");
    assert!(text.ends_with("7424/31744 (23%)  \n"), "{text}");
    let nodes = vec![node("b", "10.0.0.2", 256, &[64])];
    assert!(summary(&Report { nodes }).contains("GPU Memory(256MiB)"));
}

#[test]
fn details_show_pods_on_several_cards_and_on_none_and_the_first_node_sets_the_dashes() {
    let nodes = vec![
        with(
            node("a", "10.0.0.1", 1024, &[15, 15]),
            [pod("x", &[(0, 2), (1, 3)]), pending("y", 4)],
        ),
        node("b", "10.0.0.2", 1024, &[15]),
    ];
    // Two rows of 17 bytes, and 10.
    let dashes = "-".repeat(44);
    check(
        &details(&Report { nodes }),
        &format!(
            "\nNAME:       a\nIPADDRESS:  10.0.0.1\n\n\
             NAME         NAMESPACE  GPU0(Allocated)  GPU1(Allocated)  Pending(Allocated)  \n\
             x            default    2                3                0                   \n\
             y            default    0                0                4                   \n\
             Allocated :  9 (30%)    \n\
             Total :      30         \n{dashes}\n\
             \nNAME:       b\nIPADDRESS:  10.0.0.2\n\n\
             NAME         NAMESPACE  GPU0(Allocated)  \n\
             Allocated :  0 (0%)     \n\
             Total :      15         \n{dashes}\n\
             \n\nAllocated/Total GPU Memory In Cluster:  9/45 (20%)  \n"
        ),
    );
}

#[test]
fn the_wide_form_has_used_memory_health_and_reasons() {
    let mut n =
        with(node("a", "10.0.0.1", 1024, &[15, 15]), [pod("x", &[(0, 7)]), pending("y", 4)]);
    n.cards[0] = Card {
        model: Some("Tesla T4".to_owned()),
        memory: Some(Memory::from_mib(15360)),
        used: Some(Memory::from_mib(6321)),
        outside: Memory::from_mib(1336),
        state: Some("Fault".to_owned()),
        reason: Some("fell off\tthe\u{1b}[31m bus\n".to_owned()),
        ..n.cards[0].clone()
    };
    n.problems.push("only 15 of 30 units can be allocated".to_owned());
    let report = Report { nodes: vec![n] };
    check(&(wide(&report) + &wide_pods(&report)), include_str!("golden/wide.txt"));
}
