//! The route of an id: paths, GIDs and P_Key.

use ucma_abi::{rdma_ucm_query_gid, rdma_ucm_query_path};
use verbs_abi::{ib_path_flags, ib_path_rec_data};
use zerocopy::IntoBytes;

use super::id::CmId;
use crate::addr::{self, Address, IbAddress};
use crate::device::Gid;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};

/// The route to the peer as far as the kernel knows it: `route` of the C library's id.
#[doc(alias = "rdma_route")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// The local port as an InfiniBand address: its GID, and the service id of the port number.
    ///
    /// On RoCE the GID is the IP address. On iWARP the GID is derived from the hardware address.
    pub local: IbAddress,
    /// The peer's port, in the same form as `local`.
    pub peer: IbAddress,
    /// The partition of the interface that has the address.
    ///
    /// It is 0 for Ethernet, and while the id has no device. The partition of the connection is that of the path.
    pub pkey: u16,
    /// Port number of the device, from 1; 0 while the id has no device.
    pub port_num: u8,
    /// The path, followed by the alternate path if there is one.
    ///
    /// Empty before `RouteResolved`, and on iWARP.
    pub paths: Vec<PathRecord>,
}

/// A path as the subnet administrator records it: `struct ibv_sa_path_rec`.
///
/// Numbers are in host order.
#[doc(alias = "ibv_sa_path_rec")]
#[doc(alias = "ibv_path_record")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathRecord {
    /// The service of the path; 0 if it does not matter.
    pub service_id: u64,
    /// GID of the destination.
    pub dgid: Gid,
    /// GID of the source.
    pub sgid: Gid,
    /// LID of the destination; meaningless on RoCE.
    pub dlid: u16,
    /// LID of the source; meaningless on RoCE.
    pub slid: u16,
    /// `true` if the path is for raw traffic.
    pub raw_traffic: bool,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// `true` if the reverse of the path works too.
    pub reversible: bool,
    /// Number of paths, 7 bits.
    pub numb_path: u8,
    /// The partition.
    pub pkey: u16,
    /// Class of service, 12 bits.
    pub qos_class: u16,
    /// Service level, 4 bits.
    pub sl: u8,
    /// Meaning of `mtu`: an `ib_sa_selector`, 2 bits; 2 is exactly.
    pub mtu_selector: u8,
    /// MTU, an `ib_mtu`, 6 bits: 1 is 256 bytes, 5 is 4096.
    pub mtu: u8,
    /// Meaning of `rate`, as in `mtu_selector`.
    pub rate_selector: u8,
    /// Rate, an `ib_rate`, 6 bits.
    pub rate: u8,
    /// Meaning of `packet_life_time`, as in `mtu_selector`.
    pub packet_life_time_selector: u8,
    /// Packet lifetime, 6 bits: 4.096 us times two to this power.
    pub packet_life_time: u8,
    /// Preference among paths, 0 is best.
    pub preference: u8,
}

impl PathRecord {
    /// The flags of a path that [`CmId::set_ib_path`] uses: management, primary, both directions.
    ///
    /// The kernel reports these flags too.
    pub const FLAGS: ib_path_flags = ib_path_flags::IB_PATH_GMP
        .union(ib_path_flags::IB_PATH_PRIMARY)
        .union(ib_path_flags::IB_PATH_BIDIRECTIONAL);
}

impl From<&ib_path_rec_data> for PathRecord {
    /// Unpacks the record of the wire format.
    fn from(data: &ib_path_rec_data) -> Self {
        let mut rest = Fields(data.path_rec_bytes());
        let service_id = u64::from_be_bytes(rest.next());
        let (dgid, sgid) = (Gid(rest.next()), Gid(rest.next()));
        let (dlid, slid) = (u16::from_be_bytes(rest.next()), u16::from_be_bytes(rest.next()));
        let flow_hop = u32::from_be_bytes(rest.next());
        let [traffic_class, reversible_paths] = rest.next();
        let pkey = u16::from_be_bytes(rest.next());
        let qos_sl = u16::from_be_bytes(rest.next());
        let [mtu, rate, life_time, preference] = rest.next();
        let byte = |number: u32| u8::try_from(number & 0xff).expect("8 bits");
        Self {
            service_id,
            dgid,
            sgid,
            dlid,
            slid,
            raw_traffic: flow_hop >> 31 != 0,
            flow_label: (flow_hop >> 8) & 0xf_ffff,
            hop_limit: byte(flow_hop),
            traffic_class,
            reversible: reversible_paths >> 7 != 0,
            numb_path: reversible_paths & 0x7f,
            pkey,
            qos_class: qos_sl >> 4,
            sl: byte(u32::from(qos_sl) & 0xf),
            mtu_selector: mtu >> 6,
            mtu: mtu & 0x3f,
            rate_selector: rate >> 6,
            rate: rate & 0x3f,
            packet_life_time_selector: life_time >> 6,
            packet_life_time: life_time & 0x3f,
            preference,
        }
    }
}

impl From<&PathRecord> for ib_path_rec_data {
    /// Packs the record into the wire format, with [`PathRecord::FLAGS`].
    ///
    /// A value that does not fit into its field is truncated.
    fn from(path: &PathRecord) -> Self {
        let flow_hop = (u32::from(path.raw_traffic) << 31)
            | ((path.flow_label & 0xf_ffff) << 8)
            | u32::from(path.hop_limit);
        let selected = |selector: u8, value: u8| (selector << 6) | (value & 0x3f);
        let mut bytes = Vec::with_capacity(64);
        bytes.extend(path.service_id.to_be_bytes());
        bytes.extend(path.dgid.0);
        bytes.extend(path.sgid.0);
        bytes.extend(path.dlid.to_be_bytes());
        bytes.extend(path.slid.to_be_bytes());
        bytes.extend(flow_hop.to_be_bytes());
        bytes.extend([
            path.traffic_class,
            (u8::from(path.reversible) << 7) | (path.numb_path & 0x7f),
        ]);
        bytes.extend(path.pkey.to_be_bytes());
        bytes.extend(((path.qos_class << 4) | u16::from(path.sl & 0xf)).to_be_bytes());
        bytes.push(selected(path.mtu_selector, path.mtu));
        bytes.push(selected(path.rate_selector, path.rate));
        bytes.push(selected(path.packet_life_time_selector, path.packet_life_time));
        bytes.push(path.preference);
        let mut path_rec = [0; 16];
        path_rec.as_mut_bytes()[..bytes.len()].copy_from_slice(&bytes);
        Self { flags: PathRecord::FLAGS, reserved: 0, path_rec }
    }
}

/// A reader of the fields of a record, in order.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn next<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk().expect("the record has 64 bytes");
        self.0 = rest;
        *field
    }
}

impl CmId {
    /// Returns the route to the peer: paths, GIDs, P_Key and port.
    ///
    /// A part that the kernel does not know yet is zero or missing. The C library queries the kernel when the address
    /// and the route are resolved, and stores the result in the id. This call queries the kernel each time.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_QUERY`, for the GIDs and for the paths.
    #[doc(alias = "ibaddr")]
    #[doc(alias = "path_rec")]
    pub fn route(&self) -> Result<Route> {
        const OPERATION: &str = "query the route of";
        let subject = || self.inner.to_string();
        let gids =
            self.inner.command(OPERATION, subject, rdma_ucm_query_gid::new(self.inner.handle))?;
        let paths =
            self.inner.command(OPERATION, subject, rdma_ucm_query_path::new(self.inner.handle))?;
        let address = |slot: &[u8]| match addr::decode(slot) {
            Some(Address::Ib(address)) => Ok(address),
            _ => Err(Error::malformed(OPERATION, subject(), "an address that is not AF_IB")),
        };
        Ok(Route {
            local: address(&gids.src_addr)?,
            peer: address(&gids.dst_addr)?,
            pkey: u16::from_be(gids.pkey),
            port_num: gids.port_num,
            paths: paths.paths().iter().map(PathRecord::from).collect(),
        })
    }
}

#[cfg(test)]
mod tests;
