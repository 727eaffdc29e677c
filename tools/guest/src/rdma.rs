//! The RDMA links of the plan, and the wait until a program can use them.

use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use guest::plan::Device;
use rdmacm::device::link::{self, LinkType};
use rdmacm::device::{Gid, PortState};
use tool_error::{Context, Error, Result};

const READY_TIMEOUT: Duration = Duration::from_secs(20);

/// Creates the links and waits until their ports are active and their GIDs exist.
pub(crate) fn set_up(devices: &[Device]) -> Result<()> {
    for device in devices {
        let kind = match device {
            Device::Rxe => LinkType::Rxe,
            Device::Siw => LinkType::Siw,
            Device::Mlx5 => LinkType::Other("mlx5_card"),
        };
        link::add(device.name(), kind, device.network_device()).context("create an RDMA link")?;
    }
    let deadline = Instant::now() + READY_TIMEOUT;
    for device in devices {
        while let Some(missing) = missing(*device).context("read the state of an RDMA device")? {
            if Instant::now() > deadline {
                return Err(Error::new(format!(
                    "cannot set up {}: the device has no {missing}",
                    device.name()
                )));
            }
            sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}

/// Returns the missing resource that makes the device unusable, or `None` if the device is usable.
fn missing(device: Device) -> rdmacm::Result<Option<String>> {
    if !Path::new(&rdmacm::device::cm_char_device().path()).exists() {
        return Ok(Some("/dev/infiniband/rdma_cm".into()));
    }
    let ports = link::list()?;
    let active = |port: &&rdmacm::device::Port| {
        port.device_name() == device.name() && port.state() == Some(PortState::IB_PORT_ACTIVE)
    };
    let Some(port) = ports.iter().find(active) else {
        return Ok(Some("active port".into()));
    };
    // An iWARP port has a single GID, derived from the MAC address, which exists from the start.
    let wanted: &[&str] = match device {
        Device::Rxe => &["10.0.0.1", "fd00::1"],
        Device::Siw => &[],
        Device::Mlx5 => &["10.0.0.3", "fd00::3"],
    };
    for address in wanted {
        let gid = Gid::from(mapped(address));
        if !port.gids()?.any(|entry| entry.gid == gid) {
            return Ok(Some(format!("GID of {address}")));
        }
    }
    Ok(None)
}

fn mapped(address: &str) -> Ipv6Addr {
    match address.parse().expect("an address of this module") {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}
