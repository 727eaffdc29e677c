//! The commands of queues that a driver keeps in the kernel.
//!
//! Their requests and responses have variable lengths.
//!
//! # Safety
//!
//! A command holds the address of its response, which this module sets, as in the module above. Posting gives memory to
//! the device.

use std::os::fd::AsFd;
use std::ptr;

use nix::errno::Errno;
use verbs_abi::{
    Command, IB_USER_VERBS_CMD_POLL_CQ, IB_USER_VERBS_CMD_POST_RECV, IB_USER_VERBS_CMD_POST_SEND,
    IB_USER_VERBS_CMD_POST_SRQ_RECV, ib_uverbs_cmd_hdr, ib_uverbs_poll_cq, ib_uverbs_poll_cq_resp,
    ib_uverbs_post_send, ib_uverbs_post_send_resp, ib_uverbs_send_wr, ib_uverbs_wc,
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::{HEADER, UverbsFile};
use crate::sys::command::{self, CommandError, Joined, address};

/// Maximum number of bytes after the request of a post: the ioctl counts in 16 bits.
pub const MOST_POSTED: usize = 60_000;

/// The response of POLL_CQ.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Polled {
    header: ib_uverbs_poll_cq_resp,
    completions: [ib_uverbs_wc; Self::MOST],
}

impl Polled {
    /// Maximum number of completions in a response.
    pub const MOST: usize = 16;

    /// Returns room for an answer.
    pub fn new() -> Box<Self> {
        Box::new(Self::new_zeroed())
    }

    /// Reads completions from any bytes.
    #[cfg(fuzzing)]
    pub fn hold(input: &mut crate::testing::Input<'_>) {
        let most = usize::from(input.byte()) % (Self::MOST + 1);
        let polled: Self = input.value();
        assert!(polled.stored(most).map_or(0, <[_]>::len) <= most);
    }

    /// Returns the completions that the kernel has stored, at most `most`.
    fn stored(&self, most: usize) -> Result<&[ib_uverbs_wc], &'static str> {
        let count = usize::try_from(self.header.count).unwrap_or(usize::MAX);
        let within = self.completions[..most].get(..count);
        within.ok_or("more completions than requested")
    }
}

impl UverbsFile {
    /// Returns `true` if the driver may serve the plain command `number`.
    ///
    /// The check sends a header alone, which is too short for any of these commands. The kernel checks other conditions
    /// first.
    pub fn offers(&self, number: u32) -> bool {
        let header = ib_uverbs_cmd_hdr::plain(number, 0, 0).expect("nothing fits");
        // SAFETY: a header holds no address.
        let written = unsafe { command::write(self.fd.as_fd(), header.as_bytes()) };
        written == Err(CommandError::Os(Errno::ENOSPC))
    }

    /// Makes the kernel process the send queue of `qp_handle`, by POST_SEND without requests.
    #[inline(always)]
    pub fn ring(&self, qp_handle: u32) -> Result<(), CommandError> {
        let mut response = ib_uverbs_post_send_resp::new_zeroed();
        let request = ib_uverbs_post_send {
            response: address(ptr::from_mut(&mut response)).into(),
            qp_handle,
            wr_count: 0,
            sge_count: 0,
            // The kernel refuses a smaller size, even without requests.
            wqe_size: u32::try_from(size_of::<ib_uverbs_send_wr>()).expect("56 fits"),
        };
        let lengths = (size_of::<ib_uverbs_post_send>(), size_of::<ib_uverbs_post_send_resp>());
        let header = ib_uverbs_cmd_hdr::plain(IB_USER_VERBS_CMD_POST_SEND, lengths.0, lengths.1);
        let frame = Joined(header.expect("short, and whole words"), request);
        // SAFETY: the request holds the address of `response`, a live local of the length in the header, and posts
        // nothing.
        unsafe { self.exchange(frame.as_bytes(), response.as_mut_bytes()) }
    }

    /// Posts work requests by `request`, followed by `behind`, at most [`MOST_POSTED`] bytes.
    ///
    /// The kernel's response is valid even if it refuses. `frame` is the buffer for the command.
    ///
    /// # Safety
    ///
    /// For each of the requests, the caller keeps the contract of [`SendOps::store`](crate::driver::SendOps::store) or
    /// [`RecvOps::store`](crate::driver::RecvOps::store).
    pub unsafe fn post<C: Command>(
        &self,
        mut request: C,
        behind: [&[u8]; 2],
        frame: &mut Vec<u8>,
    ) -> (C::Response, Result<(), CommandError>) {
        const {
            assert!(
                C::NUMBER == IB_USER_VERBS_CMD_POST_SEND
                    || C::NUMBER == IB_USER_VERBS_CMD_POST_RECV
                    || C::NUMBER == IB_USER_VERBS_CMD_POST_SRQ_RECV,
                "only these are longer than their request"
            );
        }
        let mut response = C::Response::new_zeroed();
        if let Some(field) = request.response_mut() {
            *field = address(ptr::from_mut(&mut response)).into();
        }
        let length = size_of::<C>() + behind[0].len() + behind[1].len();
        let header = ib_uverbs_cmd_hdr::plain(C::NUMBER, length, size_of::<C::Response>());
        frame.clear();
        frame.extend_from_slice(header.expect("64 KiB are few words").as_bytes());
        frame.extend_from_slice(request.as_bytes());
        behind.iter().for_each(|part| frame.extend_from_slice(part));
        // SAFETY: the request holds the address of `response`, a live local of the length in the header. The caller is
        // responsible for the memory of the work requests.
        let sent = unsafe { self.exchange(frame, response.as_mut_bytes()) };
        (response, sent)
    }

    /// Takes at most `most` completions off the queue with the kernel's `cq_handle`.
    ///
    /// Fails with a reason if the response is malformed.
    pub fn poll_cq<'a>(
        &self,
        cq_handle: u32,
        most: usize,
        polled: &'a mut Polled,
    ) -> Result<Result<&'a [ib_uverbs_wc], &'static str>, CommandError> {
        let most = most.min(Polled::MOST);
        // The completions of the last response are taken.
        polled.header.count = 0;
        let request = ib_uverbs_poll_cq {
            response: address(ptr::from_mut(polled)).into(),
            cq_handle,
            ne: u32::try_from(most).expect("16 fits"),
        };
        let lengths = (size_of::<ib_uverbs_poll_cq>(), size_of::<Polled>());
        let header = ib_uverbs_cmd_hdr::plain(IB_USER_VERBS_CMD_POLL_CQ, lengths.0, lengths.1);
        let header = header.expect("short, and whole words");
        let frame = Joined(header, request);
        // SAFETY: the request holds the address of `polled`, which has room for `MOST` completions after their number.
        // It requests no more.
        unsafe { self.exchange(frame.as_bytes(), polled.as_mut_bytes()) }?;
        Ok(polled.stored(most))
    }

    /// Sends a plain command, `frame` with its header, which holds the address of `response`.
    ///
    /// # Safety
    ///
    /// The bytes that the kernel stores at that address must fit into `response`. Memory that the command gives to the
    /// device must satisfy the contracts of the commands above.
    #[inline(always)]
    unsafe fn exchange(&self, frame: &[u8], response: &mut [u8]) -> Result<(), CommandError> {
        self.check_process()?;
        let number = u32::from_ne_bytes(frame[..4].try_into().expect("four bytes"));
        let (address, lengths) = (address(response.as_mut_ptr()), [response.len(), 0]);
        // SAFETY: the caller is responsible for the contents of the command. `response` lives as long as the call and
        // has the length that belongs to its address.
        unsafe { self.issue(number, frame, HEADER..frame.len(), address, lengths) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excessive_completion_count_is_ignored() {
        let mut polled = Polled::new();
        for most in [0, 1, 5, Polled::MOST] {
            for count in 0..=most {
                polled.header.count = u32::try_from(count).expect("16 fits");
                assert_eq!(polled.stored(most).map(<[_]>::len), Ok(count));
            }
            for more in [most + 1, Polled::MOST + 1, u32::MAX as usize] {
                polled.header.count = u32::try_from(more).expect("32 bits");
                polled.stored(most).expect_err("more than there can be");
            }
        }
    }

    #[test]
    fn completions_not_stored_by_kernel_are_none() {
        let mut polled = Polled::new();
        polled.header.count = 3;
        let stored = UverbsFile::silent()
            .poll_cq(0, Polled::MOST, &mut polled)
            .expect("the silent file takes every command");
        assert_eq!(stored.map(<[_]>::len), Ok(0));
    }
}
