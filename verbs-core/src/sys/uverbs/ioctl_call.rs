//! The argument of the ioctl of verbs files: a header, followed by attributes.

use verbs_abi::AlignedU64;
use verbs_abi::ioctl::{
    UVERBS_ATTR_F_MANDATORY, UVERBS_OBJECT_DEVICE, ib_uverbs_attr, ib_uverbs_ioctl_hdr,
};
use verbs_abi::rdma_driver_id;

use crate::sys::command::address;

/// The argument of the ioctl. The header has the number of attributes that are used.
#[repr(C)]
pub(super) struct Call {
    pub(super) header: ib_uverbs_ioctl_hdr,
    pub(super) attributes: [ib_uverbs_attr; 5],
}

impl Call {
    /// Creates a call of a method of the device object.
    pub(super) fn new(method_id: u16, driver: rdma_driver_id) -> Self {
        let header = ib_uverbs_ioctl_hdr {
            length: u16::try_from(size_of::<ib_uverbs_ioctl_hdr>()).expect("24 fits"),
            object_id: UVERBS_OBJECT_DEVICE,
            method_id,
            num_attrs: 0,
            reserved1: AlignedU64::default(),
            driver_id: driver,
            reserved2: 0,
        };
        Self { header, attributes: [ib_uverbs_attr::default(); 5] }
    }

    /// Adds an input, unless it is empty.
    ///
    /// Up to 8 bytes are passed by value.
    pub(super) fn input(&mut self, attr_id: u16, bytes: &[u8]) {
        let data = match bytes.len() {
            0 => return,
            length @ 1..=8 => {
                let mut value = [0; 8];
                value[..length].copy_from_slice(bytes);
                u64::from_ne_bytes(value)
            }
            _ => address(bytes.as_ptr().cast_mut()),
        };
        self.attribute(attr_id, data, bytes.len());
    }

    /// Adds the handle of an object, and returns the index of the attribute.
    ///
    /// The kernel stores the handle of a new object in the attribute.
    pub(super) fn handle(&mut self, attr_id: u16, handle: u64) -> usize {
        self.attribute(attr_id, handle, 0);
        usize::from(self.header.num_attrs) - 1
    }

    /// Adds an output, unless it is empty.
    pub(super) fn output(&mut self, attr_id: u16, address: u64, length: usize) {
        if length > 0 {
            self.attribute(attr_id, address, length);
        }
    }

    fn attribute(&mut self, attr_id: u16, data: u64, length: usize) {
        self.attributes[usize::from(self.header.num_attrs)] = ib_uverbs_attr {
            attr_id,
            len: u16::try_from(length).expect("requests and responses are short"),
            flags: UVERBS_ATTR_F_MANDATORY,
            attr_data: 0,
            data: data.into(),
        };
        self.header.num_attrs += 1;
        self.header.length += u16::try_from(size_of::<ib_uverbs_attr>()).expect("16 fits");
    }
}

#[cfg(test)]
mod tests;
