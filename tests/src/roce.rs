//! The RoCE device of the tests: rxe0, or the emulated card in a guest that has it.

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
