//! The RoCE device of the tests: rxe0, or the emulated card in a guest that has it.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::promised;

/// The name of the emulated card.
const CARD: &str = "mlx5_0";

/// Returns `true` if the RoCE device of the tests is the emulated card, and not rxe0.
pub fn is_card() -> bool {
    static IS_CARD: OnceLock<bool> = OnceLock::new();
    let has_card = || promised("RDMACM_TEST_DEVICES").split(',').any(|name| name == CARD);
    *IS_CARD.get_or_init(has_card)
}

/// Returns the name of the RoCE device of the tests.
pub fn roce_name() -> &'static str {
    if is_card() { CARD } else { "rxe0" }
}

/// Returns the IPv4 address of the RoCE device.
pub fn roce_ip() -> &'static str {
    if is_card() { "10.0.0.3" } else { "10.0.0.1" }
}

/// Returns the IPv6 address of the RoCE device.
pub fn roce_ip_v6() -> &'static str {
    if is_card() { "fd00::3" } else { "fd00::1" }
}

/// Returns the network device of the RoCE device, and the other end of its cable.
pub fn roce_ends() -> [&'static str; 2] {
    if is_card() { ["v2", "v3"] } else { ["v0", "v1"] }
}

/// A parameter of the card's kernel module, which is restored when this value is dropped.
#[derive(Debug)]
pub struct CardParameter {
    path: PathBuf,
    first: String,
}

impl CardParameter {
    /// Sets the parameter `name` to `value`, which it must not have yet.
    pub fn set(name: &str, value: &str) -> Self {
        let path = PathBuf::from("/sys/module/rdmacm_mlx5/parameters").join(name);
        let first = fs::read_to_string(&path).expect("the parameter");
        assert_ne!(first.trim(), value, "the parameter should have another value at first");
        fs::write(&path, value).expect("set the parameter");
        Self { path, first }
    }

    /// Makes the card count faults without lines in the kernel's log, which would fail the run.
    pub fn without_complaints() -> Self {
        Self::set("complains", "N")
    }
}

impl Drop for CardParameter {
    fn drop(&mut self) {
        fs::write(&self.path, &self.first).expect("restore the parameter");
    }
}

/// Returns the number of faults of programs that the card has counted. A correct driver causes none.
pub fn bad_requests() -> u64 {
    card_count("bad")
}

/// Returns a count of the card, by its name in `mlx5_card/stats`.
pub fn card_count(name: &str) -> u64 {
    let stats = fs::read_to_string("/sys/kernel/debug/mlx5_card/stats").expect("the counts");
    let count = stats
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        .expect("the card should have this count");
    count.parse().expect("a number")
}
