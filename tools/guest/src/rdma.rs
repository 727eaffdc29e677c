//! The RDMA links that the plan asks for, and the wait until a program can use them.

use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use guest::plan::Device;
use rdmacm::device::link::{self, LinkKind};
use rdmacm::device::{Gid, PortState};
use tool_error::{Context, Error, Result};

const PATIENCE: Duration = Duration::from_secs(20);

/// Makes the links and returns when their ports are active and their GIDs are there.
pub(crate) fn set_up(devices: &[Device]) -> Result<()> {
    for device in devices {
        let kind = match device {
            Device::Rxe => LinkKind::Rxe,
            Device::Siw => LinkKind::Siw,
        };
        link::add(device.name(), kind, device.network_device())
            .context("give the guest a device")?;
    }
    let deadline = Instant::now() + PATIENCE;
    for device in devices {
        while let Some(missing) = missing(*device).context("watch the guest's devices")? {
            if Instant::now() > deadline {
                return Err(Error::new(format!("{} still has no {missing}", device.name())));
            }
            sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}

/// What a program would miss if it used the device now.
fn missing(device: Device) -> rdmacm::Result<Option<String>> {
    if !Path::new(&rdmacm::device::rdma_cm().path()).exists() {
        return Ok(Some("/dev/infiniband/rdma_cm".into()));
    }
    let ports = link::list()?;
    let active = |port: &&rdmacm::device::Port| {
        port.device_name() == device.name() && port.state() == Some(PortState::IB_PORT_ACTIVE)
    };
    let Some(port) = ports.iter().find(active) else {
        return Ok(Some("active port".into()));
    };
    // An iWARP port has one GID, made from the MAC address, which is there from the start.
    let wanted: &[&str] = match device {
        Device::Rxe => &["10.0.0.1", "fd00::1"],
        Device::Siw => &[],
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
