//! Records of the subnet administrator: paths and services (`ib_user_sa.h`).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Be16, Be32, Be64};

crate::abi_flags! {
    table: IB_PATH_FLAGS, header: "rdma/ib_user_sa.h";

    /// The purpose of a path of [`ib_path_rec_data`].
    pub struct ib_path_flags: u32 {
        /// The path carries management datagrams.
        IB_PATH_GMP = 1;
        /// The path is the primary one.
        IB_PATH_PRIMARY = 1 << 1;
        /// The path is the alternate one.
        IB_PATH_ALTERNATE = 1 << 2;
        /// The path leads from here to the peer.
        IB_PATH_OUTBOUND = 1 << 3;
        /// The path leads from the peer to here.
        IB_PATH_INBOUND = 1 << 4;
        /// The path leads from here to the peer, and its reverse is the way back.
        IB_PATH_INBOUND_REVERSE = 1 << 5;
        /// The path serves both ways.
        IB_PATH_BIDIRECTIONAL = 1 << 3 | 1 << 5;
    }
}

crate::abi_structs! {
    table: SA_LAYOUT, header: "rdma/ib_user_sa.h";

    /// A path record in the format of the wire, with its flags.
    #[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_path_rec_data: size 72, align 4 {
        /// The purpose of the path.
        ///
        /// The kernel takes only `IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL`, and reports the same.
        0 => flags: ib_path_flags,
        /// Zero.
        4 => reserved: u32,
        /// A PathRecord attribute in the format of the subnet administrator.
        ///
        /// It has 64 packed bytes in network byte order.
        8 => path_rec: [u32; 16],
    }

    /// A path record, unpacked.
    #[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    pub struct ib_user_path_rec: size 64, align 4 {
        /// GID of the destination.
        0 => dgid: [u8; 16],
        /// GID of the source.
        16 => sgid: [u8; 16],
        /// LID of the destination.
        32 => dlid: Be16,
        /// LID of the source.
        34 => slid: Be16,
        /// 1 for raw traffic.
        36 => raw_traffic: u32,
        /// Flow label, 20 bits.
        40 => flow_label: Be32,
        /// 1 if the reverse of the path works too.
        44 => reversible: u32,
        /// MTU, an `ib_mtu`.
        48 => mtu: u32,
        /// P_Key.
        52 => pkey: Be16,
        /// Hop limit.
        54 => hop_limit: u8,
        /// Traffic class.
        55 => traffic_class: u8,
        /// Requested number of paths.
        56 => numb_path: u8,
        /// Service level.
        57 => sl: u8,
        /// Comparison of the MTU, an `ib_sa_selector`.
        58 => mtu_selector: u8,
        /// Comparison of the rate.
        59 => rate_selector: u8,
        /// Rate, an `ib_rate`.
        60 => rate: u8,
        /// Comparison of the packet lifetime.
        61 => packet_life_time_selector: u8,
        /// Packet life time: 4.096 us times two to this power.
        62 => packet_life_time: u8,
        /// Preference among paths, 0 is best.
        63 => preference: u8,
    }

    /// A service record. Linux 6.18.
    #[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[since("6.18")]
    pub struct ib_user_service_rec: size 176, align 8, i386 4 {
        /// Service id.
        0 => id: Be64,
        /// GID of the port that offers the service.
        8 => gid: [u8; 16],
        /// P_Key of the service.
        24 => pkey: Be16,
        /// Zero.
        26 => reserved: [u8; 2],
        /// Lease in seconds; all ones means unlimited.
        28 => lease: Be32,
        /// Key that protects the record.
        32 => key: [u8; 16],
        /// Name, ends at the first zero byte.
        48 => name: [u8; 64],
        /// Data of the service, as bytes.
        112 => data_8: [u8; 16],
        /// Data of the service, as 16-bit integers.
        128 => data_16: [Be16; 8],
        /// Data of the service, as 32-bit integers.
        144 => data_32: [Be32; 4],
        /// Data of the service, as 64-bit integers.
        160 => data_64: [Be64; 2],
    }
}

impl ib_path_rec_data {
    /// Returns the bytes of the PathRecord attribute in wire format.
    pub fn path_rec_bytes(&self) -> &[u8] {
        self.path_rec.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_keep_unknown_bits() {
        let mut bytes = [0; 72];
        bytes[0] = 0x2b;
        bytes[3] = 0x80;
        bytes[8] = 0xfe;
        let record = ib_path_rec_data::read_from_bytes(&bytes).unwrap();
        assert!(record.flags.contains(
            ib_path_flags::IB_PATH_GMP
                | ib_path_flags::IB_PATH_PRIMARY
                | ib_path_flags::IB_PATH_BIDIRECTIONAL
        ));
        assert!(!record.flags.contains(ib_path_flags::IB_PATH_INBOUND));
        assert_eq!(record.flags.bits(), 0x8000_002b_u32.to_le());
        assert_eq!(record.path_rec_bytes()[0], 0xfe);
    }
}
