//! The limits of a device on outstanding RDMA reads and atomics ([`Depths`]).

/// Limits on the RDMA reads and atomics that a queue pair can have outstanding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Depths {
    /// Number of operations accepted as the responder: `max_qp_rd_atom` of a device.
    pub(crate) responder_resources: u8,
    /// Number of operations issued as the initiator: `max_qp_init_rd_atom` of a device.
    pub(crate) initiator_depth: u8,
}

impl Depths {
    /// The largest depths that do not encode "the maximum" (255).
    ///
    /// No device supports more.
    pub(crate) const MOST: Self = Self { responder_resources: 254, initiator_depth: 254 };

    /// Returns the depths that a device reports, capped at 254.
    ///
    /// The connection manager has one byte for each depth, and 255 in that byte encodes the
    /// maximum.
    pub(super) fn of_device(responder_resources: u32, initiator_depth: u32) -> Self {
        let byte = |depth: u32| u8::try_from(depth.min(254)).expect("at most 254");
        Self {
            responder_resources: byte(responder_resources),
            initiator_depth: byte(initiator_depth),
        }
    }

    /// Returns the smaller of each pair of depths.
    pub(crate) fn within(self, other: Self) -> Self {
        Self {
            responder_resources: self.responder_resources.min(other.responder_resources),
            initiator_depth: self.initiator_depth.min(other.initiator_depth),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_beyond_byte_are_cut_to_254() {
        for (reported, kept) in
            [(0, 0), (128, 128), (254, 254), (255, 254), (256, 254), (u32::MAX, 254)]
        {
            let depths = Depths::of_device(reported, 1);
            assert_eq!(
                (depths.responder_resources, depths.initiator_depth),
                (kept, 1),
                "{reported}"
            );
            let depths = Depths::of_device(1, reported);
            assert_eq!(
                (depths.responder_resources, depths.initiator_depth),
                (1, kept),
                "{reported}"
            );
        }
    }
}
