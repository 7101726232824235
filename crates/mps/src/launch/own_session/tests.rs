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
        percent: ThreadPercent::from_tenths(125).ok(),
        users: Users::One,
        protocol: Some(2),
    };
    let inherited = inherited
        .iter()
        .map(|(name, value)| (name.into(), value.into()));
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
    assert_eq!(
        value(&environment, "CUDA_VISIBLE_DEVICES"),
        Some("GPU-cb1213a3")
    );
    assert_eq!(
        value(&environment, "CUDA_MPS_PIPE_DIRECTORY"),
        Some("/run/x/pipe")
    );
    assert_eq!(
        value(&environment, "CUDA_MPS_LOG_DIRECTORY"),
        Some("/run/x/log")
    );
    assert_eq!(
        value(&environment, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
        Some("12.5")
    );
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
    assert_eq!(
        value(&environment, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"),
        None
    );
    assert_eq!(
        value(&environment, "CUDA_MPS_PIPE_DIRECTORY"),
        Some("/run/x/pipe")
    );
    assert_eq!(
        value(&environment, "CUDA_VISIBLE_DEVICES"),
        Some("GPU-cb1213a3")
    );
}

#[test]
fn the_drivers_directories_come_first_in_the_search_paths() {
    let programs = Programs {
        directory: Some("/driver/bin".into()),
        libraries: vec!["/driver/lib".into()],
    };
    let environment = made(&[("PATH", "/usr/bin:/bin")], &programs);
    assert_eq!(
        value(&environment, "PATH"),
        Some("/driver/bin:/usr/bin:/bin")
    );
    assert_eq!(value(&environment, "LD_LIBRARY_PATH"), Some("/driver/lib"));
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let launcher = OwnSession::new(Programs {
        directory: Some(dir.path().join("bin")),
        libraries: Vec::new(),
    });
    let site = site(dir.path().to_str().unwrap());
    let error = launcher
        .launch(&site, &DaemonSettings::default(), Duration::from_secs(5))
        .unwrap_err();
    assert!(matches!(error, LaunchError::Spawn { .. }));
    assert!(
        error.to_string().contains("bin/nvidia-cuda-mps-control"),
        "{error}"
    );
}
