use super::*;

fn parsed(line: &str) -> Result<Task, clap::Error> {
    parse(format!("xtask {line}").split_whitespace().map(OsString::from))
}

#[test]
fn definition_is_consistent() {
    CommandLine::command().debug_assert();
}

#[test]
fn vm_takes_options_before_command() {
    let Ok(Task::Vm { guest, command }) = parsed(
        "vm --kernel 6.1 --device siw --timeout 7 --memory 512 --processors 3 --icount -- ls --kernel -- x",
    ) else {
        panic!("the line should be accepted");
    };
    assert_eq!(guest.kernel, Kernel::V6_1);
    assert_eq!(guest.devices, [Device::Siw]);
    assert_eq!(guest.limit, Duration::from_secs(7));
    assert_eq!((guest.memory_mb, guest.processors.get()), (512, 3));
    assert!(guest.counts_instructions);
    assert_eq!(command, ["ls", "--kernel", "--", "x"]);
    let Ok(Task::Vm { guest, .. }) = parsed("vm --device rxe --device rxe -- true") else {
        panic!("the line should be accepted");
    };
    assert_eq!(guest.devices, [Device::Rxe]);
}

#[test]
fn vm_without_device_has_all_of_kernel() {
    for (line, devices) in
        [("vm -- true", &Device::SOFTWARE[..]), ("vm --kernel latest -- true", &[Device::Rxe])]
    {
        let Ok(Task::Vm { guest, .. }) = parsed(line) else { panic!("{line} should be accepted") };
        assert!(!guest.counts_instructions, "{line}");
        assert_eq!(guest.devices, devices, "{line}");
    }
}

#[test]
fn demo_and_test_take_architecture() {
    for (line, kernel, device) in [
        ("demo", Kernel::V6_12, Device::Rxe),
        ("demo --device siw", Kernel::V6_12, Device::Siw),
        ("demo --arch aarch64 --device mlx5", Kernel::Aarch64, Device::Mlx5),
    ] {
        let Ok(Task::Demo(on, over)) = parsed(line) else { panic!("{line} should be accepted") };
        assert_eq!((on, over), (kernel, device), "{line}");
    }
    let Ok(Task::TestAarch64(selection)) = parsed("test --arch aarch64 srq") else {
        panic!("the line should be accepted");
    };
    assert_eq!(selection.filter.as_deref(), Some("srq"));
    assert!(matches!(parsed("test --arch x86_64 --all"), Ok(Task::Test(_))));
    let error = parsed("test --arch aarch64 --kernel 6.12")
        .expect_err("a kernel of x86-64 should be refused");
    assert!(error.to_string().contains("takes neither --all nor --kernel"), "{error}");
}

#[test]
fn test_takes_one_filter() {
    let Ok(Task::Test(selection)) = parsed("test reject --kernel 6.1 --timeout 9") else {
        panic!("the line should be accepted");
    };
    assert_eq!(selection.kernels, [Kernel::V6_1]);
    assert_eq!(selection.filter.as_deref(), Some("reject"));
    assert_eq!(selection.limit, Duration::from_secs(9));
    assert!(parsed("test a b").is_err());
    assert!(parsed("test --nocapture").is_err());
}

#[test]
fn fuzz_and_sanitize_take_one_filter() {
    let Ok(Task::Fuzz { filter, time }) = parsed("fuzz --seconds 9 ring") else {
        panic!("the line should be accepted");
    };
    assert_eq!((filter.as_deref(), time), (Some("ring"), Duration::from_secs(9)));
    assert!(parsed("fuzz a b").is_err() && parsed("fuzz --seconds").is_err());
    let Ok(Task::Sanitize(selection)) = parsed("sanitize rxe") else {
        panic!("the line should be accepted")
    };
    assert_eq!(selection.kernels, [Kernel::V6_12]);
    assert_eq!(selection.filter.as_deref(), Some("rxe"));
    assert!(parsed("sanitize --nocapture").is_err());
}

#[test]
fn bench_takes_subject_kernel_and_device() {
    let bench = |line| match parsed(line) {
        Ok(Task::Bench { subject, kernels, devices, renew: false }) => (subject, kernels, devices),
        other => panic!("{line}: {other:?}"),
    };
    let all = Device::SOFTWARE.to_vec();
    assert_eq!(bench("bench connect"), (Subject::Connect, Kernel::RELEASED.to_vec(), all));
    assert_eq!(bench("bench endpoint").0, Subject::Endpoint);
    assert!(matches!(parsed("bench null"), Ok(Task::BenchNull { renew: false })));
    assert!(matches!(parsed("bench null --renew"), Ok(Task::BenchNull { renew: true })));
    assert_eq!(
        bench("bench data --kernel 6.1 --device siw"),
        (Subject::Data, vec![Kernel::V6_1], vec![Device::Siw])
    );
}

#[test]
fn bench_renews_baselines_of_one_kernel() {
    for line in ["bench posts --renew", "bench posts --renew --kernel 6.12"] {
        let Ok(Task::Bench { kernels, renew: true, .. }) = parsed(line) else {
            panic!("{line} should renew");
        };
        assert_eq!(kernels, [bench::BASELINE_KERNEL]);
    }
    let error =
        parsed("bench posts --kernel 6.1 --renew").expect_err("6.1 should have no baseline");
    assert!(error.to_string().contains("baselines exist for Linux 6.12"), "{error}");
}

#[test]
fn soak_takes_minutes_kernel_and_devices() {
    let soak = |line| match parsed(line) {
        Ok(Task::Soak(time, guest)) => (time.as_secs(), guest.kernel, guest.devices),
        other => panic!("{line}: {other:?}"),
    };
    let both = vec![Device::Rxe, Device::Siw];
    assert_eq!(soak("soak"), (1800, Kernel::V6_12, both.clone()));
    assert_eq!(soak("soak --minutes 2 --kernel 6.1"), (120, Kernel::V6_1, both));
    assert_eq!(soak("soak --device mlx5"), (1800, Kernel::V6_12, vec![Device::Mlx5]));
    assert!(parsed("soak --minutes 0").is_err());
    assert!(parsed("soak 5").is_err());
}

#[test]
fn faults_takes_extent_kernel_device_and_words() {
    let faults = |line| match parsed(line) {
        Ok(Task::Faults(extent, guest, words)) => (extent, guest.kernel, guest.devices, words),
        other => panic!("{line}: {other:?}"),
    };
    let rxe = vec![Device::Rxe];
    assert_eq!(faults("faults"), (Extent::Devices, Kernel::V6_12, rxe.clone(), vec![]));
    let words = ["udaddy", "KILL"].map(OsString::from).to_vec();
    assert_eq!(
        faults("faults --all udaddy --kernel 6.1 KILL"),
        (Extent::All, Kernel::V6_1, rxe, words)
    );
    assert_eq!(faults("faults --device mlx5").2, [Device::Mlx5]);
    assert!(parsed("faults --device siw").is_err());
}

#[test]
fn api_compares_or_renews() {
    assert!(matches!(parsed("api"), Ok(Task::Api { renew: false })));
    assert!(matches!(parsed("api --renew"), Ok(Task::Api { renew: true })));
    assert!(matches!(parsed("static"), Ok(Task::Static)));
}

#[test]
fn help_is_shown_for_each_command() {
    for line in ["help", "--help", "-h", "demo --help", "vm -h", "test --help", "help bench"] {
        let help = parsed(line).expect_err("help should be no task");
        assert_eq!((help.kind(), help.exit_code()), (ErrorKind::DisplayHelp, 0), "{line}");
    }
    assert!(matches!(parsed("vm -- ls --help"), Ok(Task::Vm { .. })));
}

#[test]
fn wrong_command_line_is_reported() {
    for (line, part) in [
        ("bench", "<SUBJECT>"),
        ("bench latency", "invalid value 'latency'"),
        ("fuzz --quickly", "unexpected argument '--quickly'"),
        ("bench connect quickly", "unexpected argument 'quickly'"),
        ("bench null --device rxe", "takes neither a kernel nor a device"),
        ("faults --many", "unexpected argument '--many'"),
        ("fly", "unrecognized subcommand 'fly'"),
        ("tets", "a similar subcommand exists: 'test'"),
        ("test --kernal 6.1", "a similar argument exists: '--kernel'"),
        ("api --renew now", "unexpected argument 'now'"),
        ("static now", "unexpected argument 'now'"),
        ("vm", "<PROGRAM>"),
        ("vm true", "-- <PROGRAM>"),
        ("vm --kernel 5.4 -- true", "invalid value '5.4'"),
        ("vm --device mlx4 -- true", "invalid value 'mlx4'"),
        ("vm --timeout soon -- true", "invalid value 'soon'"),
    ] {
        let error = parsed(line).expect_err("the line should be rejected");
        assert_eq!(error.exit_code(), 2, "{line}");
        assert!(error.to_string().contains(part), "{line}: {error}");
    }
    assert_eq!(parsed("").expect_err("a missing command should be an error").exit_code(), 2);
}
