//! The RDMA links that the plan asks for, and the wait until a program can use them.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use guest::plan::Device;
use nix::sys::socket::SockProtocol;

use crate::netlink::{Request, Socket};
use guest::error::{Context, Error, Result};

/// RDMA_NLDEV_CMD_NEWLINK of the client RDMA_NL_NLDEV, and its attributes (rdma/rdma_netlink.h).
const NEWLINK: u16 = (5 << 10) | 3;
const DEV_NAME: u16 = 2;
const NDEV_NAME: u16 = 51;
const LINK_TYPE: u16 = 65;

const PATIENCE: Duration = Duration::from_secs(20);

/// Makes the links and returns when their ports are active and their GIDs are there.
pub(crate) fn set_up(devices: &[Device]) -> Result<()> {
    let socket = Socket::open(SockProtocol::NetlinkRDMA).context("open an RDMA netlink socket")?;
    for device in devices {
        let request = Request::new(NEWLINK, 0)
            .string(DEV_NAME, device.name())
            .string(LINK_TYPE, device.link_type())
            .string(NDEV_NAME, device.network_device());
        socket.request(request).with_context(|| format!("make the RDMA link {}", device.name()))?;
    }
    let deadline = Instant::now() + PATIENCE;
    for device in devices {
        while let Some(missing) = missing(*device) {
            if Instant::now() > deadline {
                return Err(Error::new(format!("{} still has no {missing}", device.name())));
            }
            sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}

/// What a program would miss if it used the device now.
fn missing(device: Device) -> Option<String> {
    let port = PathBuf::from(format!("/sys/class/infiniband/{}/ports/1", device.name()));
    let state = fs::read_to_string(port.join("state")).unwrap_or_default();
    if !state.contains("ACTIVE") {
        return Some("active port".into());
    }
    if !Path::new("/dev/infiniband/rdma_cm").exists() {
        return Some("/dev/infiniband/rdma_cm".into());
    }
    // An iWARP port has one GID, made from the MAC address, which is there from the start.
    let wanted: &[&str] = match device {
        Device::Rxe => &["10.0.0.1", "fd00::1"],
        Device::Siw => &[],
    };
    let gids = gids(&port);
    let absent = wanted.iter().find(|address| {
        let gid = match address.parse().expect("an address of this module") {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        !gids.contains(&gid)
    });
    absent.map(|address| format!("GID of {address}"))
}

/// The port's GIDs; an entry that is not in use cannot be read or is zero.
fn gids(port: &Path) -> Vec<Ipv6Addr> {
    let entries = (0..16).map(|index| port.join(format!("gids/{index}")));
    entries.filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok()).collect()
}
