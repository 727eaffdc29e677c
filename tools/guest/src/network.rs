//! The guest's network: `lo`, and the veth pairs below the RDMA devices.

use std::fs;
use std::net::IpAddr;

use guest::plan::Device;
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::SockProtocol;

use crate::netlink::{Request, Socket};
use tool_error::{Context, Result};

/// IFLA_LINKINFO and its nested attributes for a veth pair (linux/if_link.h, linux/veth.h).
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;

/// A veth pair, and the addresses of its ends with the lengths of their prefixes.
struct Pair {
    ends: [&'static str; 2],
    addresses: &'static [(&'static str, &'static str, u8)],
}

/// The pair of the software devices.
const PAIR: Pair = Pair {
    ends: ["v0", "v1"],
    addresses: &[
        ("v0", "10.0.0.1", 24),
        ("v0", "fd00::1", 64),
        ("v1", "10.0.0.2", 24),
        ("v1", "fd00::2", 64),
    ],
};

/// The pair of the emulated card, which uses one end.
const CARD_PAIR: Pair =
    Pair { ends: ["v2", "v3"], addresses: &[("v2", "10.0.0.3", 24), ("v2", "fd00::3", 64)] };

/// Sets up the network of `devices`.
///
/// Every address is usable on return: no duplicate address detection runs.
pub(crate) fn set_up(devices: &[Device]) -> Result<()> {
    fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0")
        .context("turn off duplicate address detection")?;
    let socket = Socket::open(SockProtocol::NetlinkRoute).context("open a rtnetlink socket")?;
    link_up(&socket, "lo").context("bring lo up")?;
    // The pairs have one subnet: without its device, a pair would only attract traffic.
    if devices != [Device::Mlx5] {
        add_pair(&socket, &PAIR)?;
    }
    if devices.contains(&Device::Mlx5) {
        add_pair(&socket, &CARD_PAIR)?;
    }
    Ok(())
}

fn add_pair(socket: &Socket, pair: &Pair) -> Result<()> {
    let [first, second] = pair.ends;
    socket
        .request(veth_pair(first, second))
        .with_context(|| format!("create the veth pair {first}/{second}"))?;
    for name in pair.ends {
        link_up(socket, name).with_context(|| format!("bring {name} up"))?;
    }
    for (name, address, prefix) in pair.addresses {
        add_address(socket, name, address, *prefix)
            .with_context(|| format!("give {name} the address {address}/{prefix}"))?;
    }
    Ok(())
}

fn veth_pair(name: &str, peer: &str) -> Request {
    Request::new(libc::RTM_NEWLINK, libc::NLM_F_CREATE | libc::NLM_F_EXCL)
        .body(&ifinfomsg(0, false))
        .string(libc::IFLA_IFNAME, name)
        .nested(IFLA_LINKINFO, |info| {
            info.string(IFLA_INFO_KIND, "veth").nested(IFLA_INFO_DATA, |data| {
                data.nested(VETH_INFO_PEER, |end| {
                    end.body(&ifinfomsg(0, false)).string(libc::IFLA_IFNAME, peer)
                })
            })
        })
}

fn link_up(socket: &Socket, name: &str) -> nix::Result<()> {
    let index = if_nametoindex(name)?;
    socket.request(Request::new(libc::RTM_NEWLINK, 0).body(&ifinfomsg(index, true)))
}

fn add_address(socket: &Socket, name: &str, address: &str, prefix: u8) -> nix::Result<()> {
    let address: IpAddr = address.parse().map_err(|_| Errno::EINVAL)?;
    let (family, bytes) = match address {
        IpAddr::V4(v4) => (libc::AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6, v6.octets().to_vec()),
    };
    let family = u8::try_from(family).map_err(|_| Errno::EAFNOSUPPORT)?;
    // struct ifaddrmsg: family, prefix length, flags, scope (0 is global), index.
    let mut header = vec![family, prefix, 0, 0];
    header.extend_from_slice(&if_nametoindex(name)?.to_le_bytes());
    let request = Request::new(libc::RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_EXCL)
        .body(&header)
        .attribute(libc::IFA_LOCAL, &bytes)
        .attribute(libc::IFA_ADDRESS, &bytes);
    socket.request(request)
}

/// Returns a struct ifinfomsg: family, pad, type (u16), index, flags, mask of the flags to change.
fn ifinfomsg(index: u32, up: bool) -> [u8; 16] {
    let mut message = [0; 16];
    message[4..8].copy_from_slice(&index.to_le_bytes());
    if up {
        message[8..12].copy_from_slice(&libc::IFF_UP.to_le_bytes());
        message[12..16].copy_from_slice(&libc::IFF_UP.to_le_bytes());
    }
    message
}
