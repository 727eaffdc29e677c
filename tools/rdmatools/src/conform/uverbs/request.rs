//! Encoding of the requests of uverbs: plain, extended, and by ioctl.

use std::mem::offset_of;

use verbs_abi::ioctl::{
    UVERBS_ATTR_CORE_IN, UVERBS_ATTR_CORE_OUT, UVERBS_ATTR_F_MANDATORY, UVERBS_ATTR_WRITE_CMD,
};
use verbs_abi::{
    IB_USER_VERBS_CMD_FLAG_EXTENDED, ib_uverbs_cmd_hdr, ib_uverbs_ex_cmd_hdr, rdma_driver_id,
};

use super::super::kernel::{Call, SystemCall, Target};

/// A handle that no object has ever had.
pub(super) const UNKNOWN_HANDLE: u32 = 0x7fff_fff0;

/// Length of the header in bytes, and below it of both headers of an extended command.
pub(super) const HEADER: usize = size_of::<ib_uverbs_cmd_hdr>();
pub(super) const HEADERS: usize = HEADER + size_of::<ib_uverbs_ex_cmd_hdr>();

/// Returns the unit of the sizes in a header.
pub(super) const fn word(is_extended: bool) -> usize {
    if is_extended { 8 } else { 4 }
}

pub(super) const fn wire_number(number: u32, is_extended: bool) -> u32 {
    if is_extended { number | IB_USER_VERBS_CMD_FLAG_EXTENDED } else { number }
}

/// Returns the bytes of a header.
pub(super) fn bytes(header: &Option<ib_uverbs_cmd_hdr>) -> Vec<u8> {
    let header = header.as_ref().expect("sizes should be whole words, and small");
    let mut bytes = header.command.to_ne_bytes().to_vec();
    bytes.extend(header.in_words.to_ne_bytes());
    bytes.extend(header.out_words.to_ne_bytes());
    bytes
}

/// Creates a write of `core` with room for `room` bytes.
///
/// The command has a response if `response` is not 0.
pub(super) fn write(number: u32, core: Vec<u8>, response: usize, room: usize) -> Call {
    let is_extended = number & IB_USER_VERBS_CMD_FLAG_EXTENDED != 0;
    let has_response = response > 0;
    if !is_extended {
        let header = ib_uverbs_cmd_hdr::plain(number, core.len(), room);
        let call = Call::write([bytes(&header), core].concat());
        return if has_response { call.pointing(HEADER, Target::Response) } else { call };
    }
    let header = ib_uverbs_cmd_hdr::extended(number, core.len(), room);
    let call = Call::write([bytes(&header), vec![0; HEADERS - HEADER], core].concat());
    if has_response { call.pointing(HEADER, Target::Response) } else { call }
}

/// Returns the bytes of a field: offset, length in bytes, value.
pub(super) fn field((_, length, value): (usize, usize, u64)) -> Vec<u8> {
    match length {
        1 => vec![u8::try_from(value).expect("the value should fit in a byte")],
        2 => u16::try_from(value).expect("the value should fit in 2 bytes").to_ne_bytes().to_vec(),
        4 => u32::try_from(value).expect("the value should fit in 4 bytes").to_ne_bytes().to_vec(),
        _ => value.to_ne_bytes().to_vec(),
    }
}

/// Room for a driver's addition to a response.
pub(super) const DRIVERS: u8 = 64;

/// Creates a write of `core` with room for the driver's part after the response.
pub(super) fn with_driver_room(number: u32, core: Vec<u8>, response: usize) -> Call {
    let is_extended = number & IB_USER_VERBS_CMD_FLAG_EXTENDED != 0;
    if !is_extended {
        return write(number, core, response, response + usize::from(DRIVERS));
    }
    let mut call = write(number, core, response, response);
    let words = offset_of!(ib_uverbs_ex_cmd_hdr, provider_out_words);
    call.bytes[HEADER + words..][..2].copy_from_slice(&u16::from(DRIVERS / 8).to_ne_bytes());
    call
}

/// Appends the driver's part to a request, and adds its length to the header.
pub(super) fn with_driver_data(mut call: Call, is_extended: bool, data: &[u8]) -> Call {
    call.bytes.extend(data);
    let (count, unit) = match is_extended {
        true => (HEADER + offset_of!(ib_uverbs_ex_cmd_hdr, provider_in_words), 8),
        false => (offset_of!(ib_uverbs_cmd_hdr, in_words), 4),
    };
    let field = &mut call.bytes[count..count + 2];
    let words = u16::from_ne_bytes(field.try_into().expect("the slice should have 2 bytes"));
    let added = u16::try_from(data.len() / unit).expect("driver data should be short");
    field.copy_from_slice(&(words + added).to_ne_bytes());
    call
}

/// Makes the address of the response invalid.
pub(super) fn with_invalid_response(mut call: Call) -> Call {
    call.pointers.iter_mut().for_each(|(_, target)| *target = Target::Nowhere);
    call
}

/// Creates the command by ioctl, which omits the headers of a write.
pub(super) fn ioctl(driver: rdma_driver_id, number: u32, core: &[u8], response: usize) -> Call {
    let mut attributes = Attributes::default();
    attributes.inline(UVERBS_ATTR_WRITE_CMD, &u64::from(number).to_ne_bytes());
    let mut data = Vec::new();
    match core.len() {
        // Short attributes are passed by value.
        0..=8 => attributes.inline(UVERBS_ATTR_CORE_IN, core),
        _ => {
            attributes.pointing(UVERBS_ATTR_CORE_IN, core.len(), Target::Data);
            data = core.to_vec();
        }
    }
    if response > 0 {
        attributes.pointing(UVERBS_ATTR_CORE_OUT, response, Target::Response);
    }
    Call { means: SystemCall::Ioctl, data, ..attributes.call(driver) }
}

/// The header of an ioctl and its attributes.
#[derive(Default)]
struct Attributes {
    bytes: Vec<u8>,
    pointers: Vec<(usize, Target)>,
    count: u16,
}

impl Attributes {
    /// Length of the header in bytes.
    const HEADER: usize = size_of::<verbs_abi::ioctl::ib_uverbs_ioctl_hdr>();

    fn add(&mut self, id: u16, length: usize, value: [u8; 8]) {
        self.bytes.extend(id.to_ne_bytes());
        self.bytes.extend(u16::try_from(length).expect("attributes should be short").to_ne_bytes());
        self.bytes.extend(UVERBS_ATTR_F_MANDATORY.to_ne_bytes());
        self.bytes.extend([0; 2]);
        self.bytes.extend(value);
        self.count += 1;
    }

    fn inline(&mut self, id: u16, value: &[u8]) {
        let mut padded = [0; 8];
        padded[..value.len()].copy_from_slice(value);
        self.add(id, value.len(), padded);
    }

    fn pointing(&mut self, id: u16, length: usize, target: Target) {
        self.add(id, length, [0; 8]);
        self.pointers.push((Self::HEADER + self.bytes.len() - 8, target));
    }

    /// Returns the call of INVOKE_WRITE, whose object and method are 0.
    fn call(self, driver: rdma_driver_id) -> Call {
        let length =
            u16::try_from(Self::HEADER + self.bytes.len()).expect("requests should be short");
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend([0; 4]);
        bytes.extend(self.count.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(driver.0.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(self.bytes);
        Call { pointers: self.pointers, ..Call::write(bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_count_words() {
        let call = write(3, vec![0; 8], 4, 4);
        assert_eq!(call.bytes[..8], [3, 0, 0, 0, 4, 0, 1, 0]);
        assert_eq!((call.bytes.len(), &call.pointers[..]), (16, &[(8, Target::Response)][..]));
        let call = write(wire_number(1, true), vec![0; 8], 304, 304);
        assert_eq!(call.bytes[..8], [1, 0, 0, 0x80, 1, 0, 38, 0]);
        assert_eq!(call.bytes.len(), 32);
    }

    #[test]
    fn ioctl_contains_its_length() {
        let call = ioctl(rdma_driver_id::RDMA_DRIVER_RXE, 1, &[0; 16], 40);
        assert_eq!(call.bytes.len(), 24 + 3 * 16);
        assert_eq!(call.bytes[..8], [72, 0, 0, 0, 0, 0, 3, 0]);
        assert_eq!(call.bytes[16], 14);
        assert_eq!(call.pointers, [(48, Target::Data), (64, Target::Response)]);
        assert_eq!(ioctl(rdma_driver_id::RDMA_DRIVER_RXE, 4, &[0; 4], 0).pointers, []);
    }
}
