//! The checkpoint as kubelets write it, and as nobody should.

use super::*;

/// `envs {A: "1"}`: field 1, a map entry of key `A` and value `1`.
const REPLY: &str = "CgYKAUESATE=";

fn file(reply: &str) -> String {
    let entry = format!(
        r#"{{"PodUID":"u","ContainerName":"c","ResourceName":"nvidia.com/gpu",
        "DeviceIDs":{{"-1":["d1"],"0":["d0"]}},"AllocResp":"{reply}"}}"#
    );
    format!(
        r#"{{"Data":{{"PodDeviceEntries":[{entry}],"RegisteredDevices":{{"nvidia.com/gpu":["d0"]}}}},"Checksum":2764313389}}"#
    )
}

#[test]
fn an_entry_has_ids_of_all_numa_nodes_and_the_reply() {
    let entries = parse(file(REPLY).as_bytes()).unwrap();
    let entry = &entries[0];
    assert_eq!(entry.pod_uid, "u");
    assert_eq!(entry.container, "c");
    assert_eq!(entry.resource, "nvidia.com/gpu");
    assert_eq!(entry.device_ids, BTreeSet::from(["d0".into(), "d1".into()]));
    assert_eq!(entry.reply.as_ref().unwrap().envs["A"], "1");
    assert_eq!(entries.len(), 1);
}

#[test]
fn a_node_without_pods_has_no_entries() {
    let json = br#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}"#;
    assert_eq!(parse(json).unwrap(), []);
}

#[test]
fn nulls_that_go_writes_are_empty() {
    let json = br#"{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"r","DeviceIDs":{"0":null},"AllocResp":null}]}}"#;
    let entries = parse(json).unwrap();
    assert!(entries[0].device_ids.is_empty());
    assert!(entries[0].reply.as_ref().unwrap().envs.is_empty());
}

#[test]
fn damage_is_an_error_value() {
    let check = |json: &str, expected: &str| {
        let error = parse(json.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{json}: {error}");
    };
    check("", "unknown shape");
    check("[]", "unknown shape");
    check(r#"{"Data":{"PodDeviceEntries":[{}]}}"#, "unknown shape");
}

#[test]
fn a_reply_that_cannot_be_decoded_costs_nobody_their_ids() {
    for reply in ["%", "Cv8="] {
        let entries = parse(file(reply).as_bytes()).unwrap();
        assert_eq!(entries[0].reply, None, "{reply}");
        assert_eq!(entries[0].device_ids.len(), 2);
    }
}

#[test]
fn a_missing_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = read(dir.path()).unwrap_err().to_string();
    assert!(error.contains(FILE_NAME), "{error}");
}

#[test]
fn a_file_is_read() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(FILE_NAME), file(REPLY)).unwrap();
    assert_eq!(read(dir.path()).unwrap().len(), 1);
}
