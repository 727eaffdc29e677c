use super::*;

fn plan() -> Plan {
    Plan {
        modules: vec!["ib_core.ko".into(), "siw.ko".into()],
        devices: vec![Device::Siw],
        work: Work::Command(HostCommand {
            module_tree: "/a b/lib/modules/6.1".into(),
            has_programs: true,
            directory: "/".into(),
            environment: vec![("EMPTY".into(), "".into()), ("LINES".into(), "a\nb".into())],
            arguments: vec!["sh".into(), "".into(), OsString::from_vec(vec![0xff])],
            joins_output: true,
        }),
    }
}

#[test]
fn plan_survives_round_trip() {
    assert_eq!(Plan::from_bytes(&plan().to_bytes()), Ok(plan()));
    for work in [Work::Demo(5), Work::DemoOnly(5)] {
        let demo = Plan { work, ..plan() };
        assert_eq!(Plan::from_bytes(&demo.to_bytes()), Ok(demo));
    }
}

#[test]
fn damaged_plan_is_rejected() {
    let file = plan().to_bytes();
    assert!(Plan::from_bytes(&file[..file.len() - 1]).is_err());
    assert!(Plan::from_bytes(b"").is_err());
    assert!(Plan::from_bytes(b"surprise\0x\0").is_err());
    assert!(Plan::from_bytes(b"variable\0NAME\0").is_err());
    assert!(Plan::from_bytes(b"device\0mlx4\0").is_err());
}
