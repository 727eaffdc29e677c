//! Programs whose system calls fail.

use std::process::Command;
use std::time::Duration;

use rdmacm_tests::roce::roce_name;
use rdmacm_tests::{Process, promised, promised_device, skip};

/// The time for some hundred runs of two programs. strace traces one of them.
const LIMIT: Duration = Duration::from_secs(400);

/// Fails each command, mapping or wait on a device node once, and kills the program at each fourth.
///
/// The program ends by itself and reports the failed operation. Its peer does so too, and the kernel keeps no object of
/// either. One kernel is enough, since this side alone is examined.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn programs_survive_each_failed_device_call() {
    promised_device(roce_name());
    if promised("RDMACM_TEST_KERNEL") != "6.12" {
        return skip("the faults are injected on 6.12");
    }
    let mut driver = Command::new(env!("CARGO_BIN_EXE_fault-driver"));
    driver.arg(promised("RDMACM_TEST_RDMATOOLS")).arg("devices");
    let ended = Process::start(&mut driver, LIMIT).finish();
    let table = ended.stdout.join("\n");
    assert!(ended.status.success(), "{table}\n{}", ended.stderr);
    // A run in which no call fails would succeed, too.
    let kinds = ended.stdout.iter().filter(|line| line.starts_with("rping")).count();
    let tried = |line: &String| line.split(' ').next()?.parse::<u32>().ok();
    assert!(kinds == 4 && ended.stdout.last().and_then(tried) > Some(60), "{table}");
}
