//! The recorded sessions of three real drivers, byte for byte.

use std::fmt::Write;

use crate::node::Node;

const COMMANDS: &str = include_str!("../data/cmds1.txt");

fn check(driver: &str, recorded: &str) {
    let Some(node) = Node::of(driver) else {
        return;
    };
    node.start();
    let mut transcript = String::new();
    for command in COMMANDS.lines() {
        let said = node.ui(&format!("{command}\n"));
        writeln!(transcript, ">>> {command}\n   rc={}", said.code.unwrap()).unwrap();
        for line in said.out.lines() {
            writeln!(transcript, "   out|{line}").unwrap();
        }
        assert_eq!(said.err, "", "`{command}`");
    }
    assert_eq!(transcript, recorded);
}

#[test]
fn transcript_535_is_byte_for_byte_the_real_one() {
    check("535.261.03", include_str!("../data/out535.txt"));
}

#[test]
fn transcript_550_is_byte_for_byte_the_real_one() {
    check("550.163.01", include_str!("../data/out550.txt"));
}

#[test]
fn transcript_555_is_byte_for_byte_the_real_one() {
    check("555.58.02", include_str!("../data/out555.txt"));
}
