//! Addresses of datagrams, as entries of a send queue have them.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use verbs_abi::ib_uverbs_ah_attr;
use verbs_abi::ioctl::{IB_UVERBS_GID_TYPE_ROCE_V2, ib_uverbs_gid_entry};

use super::memory::{Unit, pair};
use crate::sys::command::CommandError;

/// The kind of network that an address is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Network {
    InfiniBand,
    /// RoCE, to the destination's MAC address.
    ///
    /// Packets of version 2 have a source port, those of version 1 have none.
    Ethernet {
        mac: [u8; 6],
        has_source_port: bool,
    },
}

impl Network {
    /// Returns the network of a destination with the MAC address `mac`.
    ///
    /// `source` is the answer to the query for the source GID. If the query fails, the GID counts as one of RoCE v2:
    /// Linux 5.9 and earlier lack the query. Packets of RoCE v1 have no source port, so a wrong guess changes nothing.
    pub(super) fn ethernet(
        mac: [u8; 6],
        source: Result<ib_uverbs_gid_entry, CommandError>,
    ) -> Self {
        let has_source_port =
            source.map_or(true, |entry| entry.gid_type == IB_UVERBS_GID_TYPE_ROCE_V2);
        Self::Ethernet { mac, has_source_port }
    }
}

/// The bit of the word with the flow label that marks a global route on InfiniBand.
const GLOBAL_ROUTE: u32 = 1 << 30;

/// The smallest source port.
const FIRST_PORT: u32 = 0xc000;

/// The device's codes of the static rates of InfiniBand (`enum ib_rate`).
///
/// A rate that the device lacks has the code of the next higher rate; 0 means no limit.
///
/// | Code | 7 | 8 | 9 | 10 | 11 | 12 | 13 | 14 | 15 |
/// |---|---|---|---|---|---|---|---|---|---|
/// | Gb/s | 2.5 | 10 | 30 | 5 | 20 | 40 | 60 | 80 | 120 |
const RATES: [u8; 23] =
    [0, 0, 7, 8, 9, 10, 11, 12, 13, 14, 15, 11, 13, 15, 0, 9, 15, 0, 0, 9, 13, 0, 0];

/// Returns the device's code of a static rate. An unknown rate has no limit.
fn rate(static_rate: u8) -> u32 {
    RATES.get(usize::from(static_rate)).copied().unwrap_or(0).into()
}

/// Returns the source port of packets.
///
/// It is a function of the flow label, as in the kernel. Without a flow label it is a random port, so that the network
/// spreads the packets of many addresses over its paths.
fn source_port(flow_label: u32) -> u32 {
    let label = match flow_label {
        #[expect(clippy::cast_possible_truncation, reason = "random bits are left")]
        0 => RandomState::new().build_hasher().finish() as u32,
        label => label ^ (label >> 14),
    };
    label & 0x3fff | FIRST_PORT
}

/// Returns the address in the device's format, without the queue pair number and its key, which each request adds.
pub(super) fn vector(attributes: &ib_uverbs_ah_attr, network: Network) -> [Unit; 3] {
    let route = &attributes.grh;
    let flow_label = route.flow_label & 0xf_ffff;
    let rate = rate(attributes.static_rate) << 4;
    let (sl, path) = (u32::from(attributes.sl), u32::from(attributes.src_path_bits & 0x7f));
    // Rate and service level, source path, and destination or source port.
    let head = match network {
        Network::InfiniBand => (rate | sl & 15) << 24 | path << 16 | u32::from(attributes.dlid),
        Network::Ethernet { has_source_port, .. } => {
            let port = if has_source_port { source_port(flow_label) } else { 0 };
            (rate | (sl & 7) << 1) << 24 | port
        }
    };
    let mac = match network {
        Network::InfiniBand => [0; 6],
        Network::Ethernet { mac, .. } => mac,
    };
    let is_global = attributes.is_global != 0;
    let (hop_limit, traffic_class) = match is_global {
        true => (u32::from(route.hop_limit), u32::from(route.traffic_class)),
        false => (0, 0),
    };
    let [a, b, c, d, e, f] = mac.map(u32::from);
    let route_word = match (is_global, network) {
        (false, _) => 0,
        (true, Network::InfiniBand) => {
            GLOBAL_ROUTE | u32::from(route.sgid_index) << 20 | flow_label
        }
        (true, Network::Ethernet { .. }) => u32::from(route.sgid_index) << 20 | flow_label,
    };
    let [high, low] = [0, 8].map(|from| {
        let mut half = [0; 8];
        half.copy_from_slice(&route.dgid[from..from + 8]);
        u64::from_ne_bytes(if is_global { half } else { [0; 8] })
    });
    let first = [0, pair(0, head)];
    let second_low = pair(e << 24 | f << 16 | traffic_class << 8 | hop_limit, route_word);
    [first, [pair(0, a << 24 | b << 16 | c << 8 | d), second_low], [high, low]]
}

#[cfg(test)]
mod tests;
