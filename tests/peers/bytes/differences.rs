//! Permitted differences, each with its reason.

/// A command that only rdma-core (`-`) or only this library (`+`) sends, and the reason.
///
/// A command with different values in a field counts as two commands, one of each library.
pub(crate) type Difference = (&'static str, &'static str);

const PROBE: &str = "a trial bind detects AF_IB; this library requires a kernel with AF_IB";
const LAZY: &str = "addresses, GIDs and paths are queried when the program needs them";
const DEVICE: &str = "the device is queried when the program needs it, and not with each event";

const ENDED: &str = "both libraries move the queue pair first, so the driver closes the connection, and the kernel has \
                     no work left";

/// Commands with which rdma-core examines the kernel before it makes the first id.
pub(crate) const TRIAL: &[Difference] = &[
    ("- CREATE_ID in=24 out=4 uid=own ps=319 qp_type=2", PROBE),
    (
        "- BIND in=136 out=0 id=#0 addr_size=48 \
         addr=1b00000000000000000000000000000000000000000000000000000001060000ffffffffffff",
        PROBE,
    ),
    ("- QUERY in=16 out=280 id=#0 option=0", PROBE),
    ("- QUERY in=16 out=280 id=#0 option=2", PROBE),
    ("- DESTROY_ID in=16 out=4 id=#0", PROBE),
];

/// Differences of a resolved id.
///
/// rdma-core queries with ADDR_RESOLVED and with ROUTE_RESOLVED. This library sends one query in place of these.
pub(crate) const RESOLVED: &[Difference] = &[
    ("- QUERY in=16 out=280 id=#0 option=0", LAZY),
    ("- QUERY in=16 out=280 id=#0 option=2", LAZY),
    ("- QUERY in=16 out=440 id=#0 option=1", LAZY),
    ("+ QUERY in=16 out=280 id=#0 option=0", DEVICE),
];

/// Differences of a resolved id on iWARP, where rdma-core requests no GIDs and paths.
pub(crate) const RESOLVED_ON_IWARP: &[Difference] = &[
    ("- QUERY in=16 out=280 id=#0 option=0", LAZY),
    ("+ QUERY in=16 out=280 id=#0 option=0", DEVICE),
];

/// Differences at the end of an established connection on iWARP.
pub(crate) const CLOSED: &[Difference] = &[("- DISCONNECT in=4 out=0 id=#0", ENDED)];

/// Differences of a resolved id that has migrated meanwhile.
pub(crate) const RESOLVED_ON_TWO_CHANNELS: &[Difference] = &[
    ("- QUERY in=16 out=280 id=#0 option=0", LAZY),
    ("- QUERY in=16 out=280 id=#0 option=2", LAZY),
    ("- QUERY in=16 out=440 channel=1 id=#0 option=1", LAZY),
    ("+ QUERY in=16 out=280 channel=1 id=#0 option=0", DEVICE),
];

/// Differences after BIND to an address of a device.
pub(crate) const BOUND: &[Difference] = &[("- QUERY in=16 out=280 id=#0 option=2", LAZY)];

/// Differences after BIND and after LISTEN.
pub(crate) const LISTENING: &[Difference] = &[
    ("- QUERY in=16 out=280 id=#0 option=0", LAZY),
    ("- QUERY in=16 out=280 id=#0 option=2", LAZY),
    ("- QUERY in=16 out=280 id=#0 option=0", LAZY),
];

/// Differences when CONNECT_REQUEST arrives.
pub(crate) const REQUESTED: &[Difference] = &[
    ("- QUERY in=16 out=280 id=#1 option=2", LAZY),
    ("- QUERY in=16 out=440 id=#1 option=1", LAZY),
];

/// Differences of a request whose id has a channel of its own.
pub(crate) const REQUESTED_ON_ITS_CHANNEL: &[Difference] = &[
    ("- QUERY in=16 out=280 channel=1 id=#1 option=2", LAZY),
    ("- QUERY in=16 out=440 channel=1 id=#1 option=1", LAZY),
];
