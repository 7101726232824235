use std::path::Path;

use mpshare_core::ThreadPercent;

use super::*;

fn site(dir: &str) -> DaemonSite {
    DaemonSite {
        gpu: "GPU-cb1213a3".parse().unwrap(),
        pipe: PipeDirectory::new(format!("{dir}/pipe")).unwrap(),
        log: format!("{dir}/log").into(),
        shm: format!("{dir}/shm").into(),
    }
}

fn made(inherited: &[(&str, &str)], programs: &Programs) -> Vec<(String, String)> {
    let settings = DaemonSettings {
        driver: None,
        percent: ThreadPercent::from_tenths(125).ok(),
        users: Users::One,
        protocol: Some(2),
    };
    let inherited = inherited.iter().map(|(name, value)| (name.into(), value.into()));
    let text = |text: OsString| text.into_string().unwrap();
    environment(inherited, programs, &site("/run/x"), &settings)
        .into_iter()
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}

fn value<'a>(environment: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let mut values = environment.iter().filter(|(n, _)| n == name);
    let value = values.next().map(|(_, value)| value.as_str());
    assert_eq!(values.next(), None, "{name} is there twice");
    value
}

#[test]
fn the_daemon_gets_its_card_its_directories_and_its_percentage() {
    let environment = made(&[], &Programs::default());
    assert_eq!(value(&environment, "CUDA_VISIBLE_DEVICES"), Some("GPU-cb1213a3"));
    assert_eq!(value(&environment, "CUDA_MPS_PIPE_DIRECTORY"), Some("/run/x/pipe"));
    assert_eq!(value(&environment, "CUDA_MPS_LOG_DIRECTORY"), Some("/run/x/log"));
    assert_eq!(value(&environment, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), Some("12.5"));
    assert_eq!(value(&environment, "CUDA_MPS_PROTOCOL_VERSION"), Some("2"));
    assert_eq!(value(&environment, "LD_LIBRARY_PATH"), None);
}

#[test]
fn settings_of_the_starter_that_would_change_the_daemon_are_not_passed_on() {
    let environment = made(
        &[
            ("HOME", "/root"),
            ("NVML_MPS_DEVICE_ENUMERATION", "1"),
            ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G"),
            ("CUDA_MPS_PIPE_DIRECTORY", "/elsewhere"),
            ("CUDA_VISIBLE_DEVICES", "7"),
        ],
        &Programs::default(),
    );
    assert_eq!(value(&environment, "HOME"), Some("/root"));
    assert_eq!(value(&environment, "NVML_MPS_DEVICE_ENUMERATION"), None);
    assert_eq!(value(&environment, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), None);
    assert_eq!(value(&environment, "CUDA_MPS_PIPE_DIRECTORY"), Some("/run/x/pipe"));
    assert_eq!(value(&environment, "CUDA_VISIBLE_DEVICES"), Some("GPU-cb1213a3"));
}

#[test]
fn the_drivers_directories_come_first_in_the_search_paths() {
    let programs = Programs {
        directory: Some("/driver/bin".into()),
        libraries: vec!["/driver/lib".into()],
        canary: None,
    };
    let environment = made(&[("PATH", "/usr/bin:/bin")], &programs);
    assert_eq!(value(&environment, "PATH"), Some("/driver/bin:/usr/bin:/bin"));
    assert_eq!(value(&environment, "LD_LIBRARY_PATH"), Some("/driver/lib"));
}

/// A directory with a control program that is this script.
fn scripted(text: &str) -> (tempfile::TempDir, DaemonSite, OwnSession) {
    let dir = tempfile::tempdir().unwrap();
    script(&dir.path().join(CONTROL), text);
    let launcher = OwnSession::new(Programs {
        directory: Some(dir.path().to_owned()),
        libraries: Vec::new(),
        canary: None,
    });
    let site = site(dir.path().to_str().unwrap());
    (dir, site, launcher)
}

/// Writes a program, through another process: one that this process had open for writing, even
/// before, could not be run while another thread's child still holds the copy of the descriptor.
fn script(path: &Path, text: &str) {
    let written = Command::new("sh")
        .args(["-c", "printf %s \"$2\" >\"$1\" && chmod 755 \"$1\"", "sh"])
        .arg(path)
        .arg(format!("#!/bin/sh\n{text}\n"))
        .status();
    assert!(written.unwrap().success(), "{}", path.display());
}

fn launch(
    (_dir, site, launcher): &(tempfile::TempDir, DaemonSite, OwnSession),
    users: Users,
) -> String {
    let settings = DaemonSettings { users, ..DaemonSettings::default() };
    match launcher.launch(site, &settings, Duration::from_secs(20)) {
        Err(LaunchError::Failed { message, .. }) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_daemon_leads_a_session_of_its_own() {
    let stat = launch(&scripted("cat /proc/$$/stat; exit 1"), Users::One);
    let (pid, _) = stat.split_once(' ').unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    // State, parent, process group, session.
    assert_eq!(fields.split(' ').nth(3), Some(pid), "{stat}");
}

#[test]
fn the_flag_for_all_users_is_given_only_where_it_is_known() {
    let program = scripted("echo \"$@\"; exit 1");
    assert_eq!(launch(&program, Users::One), "-d");
    assert_eq!(launch(&program, Users::All), "-d -multiuser-server");
}

#[test]
fn a_daemon_that_keeps_its_output_open_does_not_hold_the_launch_up() {
    let begin = Instant::now();
    let message = launch(&scripted("echo up; sleep 10 & exit 1"), Users::One);
    assert_eq!(message, "up");
    assert!(begin.elapsed() < Duration::from_secs(9));
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let launcher = OwnSession::new(Programs {
        directory: Some(dir.path().join("bin")),
        libraries: Vec::new(),
        canary: None,
    });
    let site = site(dir.path().to_str().unwrap());
    let error =
        launcher.launch(&site, &DaemonSettings::default(), Duration::from_secs(5)).unwrap_err();
    assert!(matches!(error, LaunchError::Spawn { .. }));
    assert!(error.to_string().contains("bin/nvidia-cuda-mps-control"), "{error}");
}
