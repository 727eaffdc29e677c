//! Command numbers and the headers in front of a request.
//!
//! A plain command consists of [`ib_uverbs_cmd_hdr`], the request and the driver's request. The request starts with the
//! address of the response, if there is one. The sizes count 4-byte words and include the header. An extended command
//! has [`ib_uverbs_ex_cmd_hdr`] between header and request, which carries that address. Its sizes count 8-byte words
//! and include no header. The driver's response follows the core response in the same buffer.

use zerocopy::{Immutable, IntoBytes};

use crate::AlignedU64;

crate::abi_constants! {
    table: COMMAND_CONSTANTS, header: "rdma/ib_user_verbs.h";

    /// Version of the whole ABI, as `class/infiniband_verbs/abi_version` shows it.
    IB_USER_VERBS_ABI_VERSION: u32 = 6;
    /// Set in the command number of an extended command.
    IB_USER_VERBS_CMD_FLAG_EXTENDED: u32 = 0x8000_0000;

    /// Opens the user context: the first command on a descriptor.
    IB_USER_VERBS_CMD_GET_CONTEXT: u32 = 0;
    /// Device attributes.
    IB_USER_VERBS_CMD_QUERY_DEVICE: u32 = 1;
    /// Port attributes.
    IB_USER_VERBS_CMD_QUERY_PORT: u32 = 2;
    /// Protection domain.
    IB_USER_VERBS_CMD_ALLOC_PD: u32 = 3;
    /// Frees a protection domain.
    IB_USER_VERBS_CMD_DEALLOC_PD: u32 = 4;
    /// Address handle.
    IB_USER_VERBS_CMD_CREATE_AH: u32 = 5;
    /// Never implemented.
    IB_USER_VERBS_CMD_MODIFY_AH: u32 = 6;
    /// Never implemented.
    IB_USER_VERBS_CMD_QUERY_AH: u32 = 7;
    /// Destroys an address handle.
    IB_USER_VERBS_CMD_DESTROY_AH: u32 = 8;
    /// Memory region.
    IB_USER_VERBS_CMD_REG_MR: u32 = 9;
    /// Never implemented.
    IB_USER_VERBS_CMD_REG_SMR: u32 = 10;
    /// Changes a memory region.
    IB_USER_VERBS_CMD_REREG_MR: u32 = 11;
    /// Never implemented.
    IB_USER_VERBS_CMD_QUERY_MR: u32 = 12;
    /// Deregisters a memory region.
    IB_USER_VERBS_CMD_DEREG_MR: u32 = 13;
    /// Memory window.
    IB_USER_VERBS_CMD_ALLOC_MW: u32 = 14;
    /// Never implemented.
    IB_USER_VERBS_CMD_BIND_MW: u32 = 15;
    /// Frees a memory window.
    IB_USER_VERBS_CMD_DEALLOC_MW: u32 = 16;
    /// Completion channel.
    IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL: u32 = 17;
    /// Completion queue.
    IB_USER_VERBS_CMD_CREATE_CQ: u32 = 18;
    /// Resizes a completion queue.
    IB_USER_VERBS_CMD_RESIZE_CQ: u32 = 19;
    /// Destroys a completion queue.
    IB_USER_VERBS_CMD_DESTROY_CQ: u32 = 20;
    /// Polls a completion queue by way of the kernel.
    IB_USER_VERBS_CMD_POLL_CQ: u32 = 21;
    /// Never implemented.
    IB_USER_VERBS_CMD_PEEK_CQ: u32 = 22;
    /// Arms a completion queue by way of the kernel.
    IB_USER_VERBS_CMD_REQ_NOTIFY_CQ: u32 = 23;
    /// Queue pair.
    IB_USER_VERBS_CMD_CREATE_QP: u32 = 24;
    /// Queue pair attributes.
    IB_USER_VERBS_CMD_QUERY_QP: u32 = 25;
    /// Changes a queue pair, mainly its state.
    IB_USER_VERBS_CMD_MODIFY_QP: u32 = 26;
    /// Destroys a queue pair.
    IB_USER_VERBS_CMD_DESTROY_QP: u32 = 27;
    /// Posts sends by way of the kernel; the doorbell of software devices.
    IB_USER_VERBS_CMD_POST_SEND: u32 = 28;
    /// Posts receives by way of the kernel.
    IB_USER_VERBS_CMD_POST_RECV: u32 = 29;
    /// Attaches a queue pair to a multicast group.
    IB_USER_VERBS_CMD_ATTACH_MCAST: u32 = 30;
    /// Detaches a queue pair from a multicast group.
    IB_USER_VERBS_CMD_DETACH_MCAST: u32 = 31;
    /// Shared receive queue.
    IB_USER_VERBS_CMD_CREATE_SRQ: u32 = 32;
    /// Changes a shared receive queue.
    IB_USER_VERBS_CMD_MODIFY_SRQ: u32 = 33;
    /// Shared receive queue attributes.
    IB_USER_VERBS_CMD_QUERY_SRQ: u32 = 34;
    /// Destroys a shared receive queue.
    IB_USER_VERBS_CMD_DESTROY_SRQ: u32 = 35;
    /// Posts receives to a shared receive queue by way of the kernel.
    IB_USER_VERBS_CMD_POST_SRQ_RECV: u32 = 36;
    /// XRC domain.
    IB_USER_VERBS_CMD_OPEN_XRCD: u32 = 37;
    /// Closes an XRC domain.
    IB_USER_VERBS_CMD_CLOSE_XRCD: u32 = 38;
    /// Shared receive queue of an XRC domain, or with tag matching.
    IB_USER_VERBS_CMD_CREATE_XSRQ: u32 = 39;
    /// Opens the target queue pair of another process of the XRC domain.
    IB_USER_VERBS_CMD_OPEN_QP: u32 = 40;

    /// Extended: device attributes, all of them.
    IB_USER_VERBS_EX_CMD_QUERY_DEVICE: u32 = 1;
    /// Extended: completion queue with flags.
    IB_USER_VERBS_EX_CMD_CREATE_CQ: u32 = 18;
    /// Extended: queue pair with creation flags.
    IB_USER_VERBS_EX_CMD_CREATE_QP: u32 = 24;
    /// Extended: as `IB_USER_VERBS_CMD_MODIFY_QP`, with a rate limit.
    IB_USER_VERBS_EX_CMD_MODIFY_QP: u32 = 26;
}

crate::abi_structs! {
    table: HEADER_LAYOUT, header: "rdma/ib_user_verbs.h";

    /// The first bytes of every write.
    #[derive(PartialEq, Eq, IntoBytes, Immutable)]
    pub struct ib_uverbs_cmd_hdr: size 8, align 4 {
        /// Command number, with `IB_USER_VERBS_CMD_FLAG_EXTENDED` for an extended one.
        0 => command: u32,
        /// Words of the request: of the whole write if plain, of the core request if extended.
        4 => in_words: u16,
        /// Words of the response: with the driver's if plain, of the core response if extended.
        6 => out_words: u16,
    }

    /// The second header, of an extended command.
    #[derive(PartialEq, Eq, IntoBytes, Immutable)]
    pub struct ib_uverbs_ex_cmd_hdr: size 16, align 8 {
        /// Address of the response; 0 if and only if the response has no word.
        0 => response: AlignedU64,
        /// Words of the driver's request.
        8 => provider_in_words: u16,
        /// Words of the driver's response.
        10 => provider_out_words: u16,
        /// 0; otherwise the kernel returns EINVAL.
        12 => cmd_hdr_reserved: u32,
    }
}

/// Bytes in a word of a plain command.
const PLAIN_WORD: usize = 4;
/// Bytes in a word of an extended command.
const EXTENDED_WORD: usize = 8;

impl ib_uverbs_cmd_hdr {
    /// Returns the header of plain command `number`.
    ///
    /// `request` and `response` are lengths in bytes, with the driver's part and without this header. Returns `None` if
    /// a length is not a multiple of 4 or does not fit.
    pub fn plain(number: u32, request: usize, response: usize) -> Option<Self> {
        Some(Self {
            command: number,
            in_words: words(request.checked_add(size_of::<Self>())?, PLAIN_WORD)?,
            out_words: words(response, PLAIN_WORD)?,
        })
    }

    /// Returns the header of extended command `number`.
    ///
    /// `request` and `response` are lengths in bytes of the core parts. Returns `None` if a length is not a multiple of
    /// 8 or does not fit.
    pub fn extended(number: u32, request: usize, response: usize) -> Option<Self> {
        Some(Self {
            command: number | IB_USER_VERBS_CMD_FLAG_EXTENDED,
            in_words: words(request, EXTENDED_WORD)?,
            out_words: words(response, EXTENDED_WORD)?,
        })
    }
}

impl ib_uverbs_ex_cmd_hdr {
    /// Creates the second header.
    ///
    /// `request` and `response` are lengths in bytes of the driver's parts. `address` is the address of both responses.
    pub fn new(address: u64, request: usize, response: usize) -> Option<Self> {
        Some(Self {
            response: address.into(),
            provider_in_words: words(request, EXTENDED_WORD)?,
            provider_out_words: words(response, EXTENDED_WORD)?,
            cmd_hdr_reserved: 0,
        })
    }
}

fn words(bytes: usize, word: usize) -> Option<u16> {
    if bytes % word == 0 { u16::try_from(bytes / word).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_header_counts_words_of_4_bytes() {
        let header = ib_uverbs_cmd_hdr::plain(IB_USER_VERBS_CMD_ALLOC_PD, 8, 4).unwrap();
        assert_eq!((header.command, header.in_words, header.out_words), (3, 4, 1));
    }

    #[test]
    fn extended_headers_count_payload_in_words_of_8() {
        let header = ib_uverbs_cmd_hdr::extended(IB_USER_VERBS_EX_CMD_CREATE_CQ, 32, 16).unwrap();
        assert_eq!((header.command, header.in_words, header.out_words), (0x8000_0012, 4, 2));
        let second = ib_uverbs_ex_cmd_hdr::new(0x1234_5678, 8, 16).unwrap();
        assert_eq!(second.response.get(), 0x1234_5678);
        assert_eq!((second.provider_in_words, second.provider_out_words), (1, 2));
    }

    #[test]
    fn lengths_not_countable_in_words_are_refused() {
        assert_eq!(ib_uverbs_cmd_hdr::plain(0, 6, 0), None);
        assert_eq!(ib_uverbs_cmd_hdr::plain(0, 8, 3), None);
        assert_eq!(ib_uverbs_cmd_hdr::plain(0, 4 * 0xffff, 0), None);
        assert_eq!(ib_uverbs_cmd_hdr::extended(1, 12, 0), None);
        assert_eq!(ib_uverbs_ex_cmd_hdr::new(0, 0, 4), None);
        assert_eq!(ib_uverbs_cmd_hdr::extended(1, 8 * 0xffff, 0).unwrap().in_words, 0xffff);
    }
}
