//! `/dev/infiniband/rdma_cm`: one open file is one event channel.
//!
//! # Safety
//!
//! This module sets the addresses in requests: the addresses of responses, and of the values of options. Both live
//! until the write returns.
#![expect(unsafe_code, reason = "issues commands")]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;

use nix::errno::Errno;
use ucma_abi::{Command, RDMA_USER_CM_CMD_SET_OPTION, rdma_ucm_cmd_hdr, rdma_ucm_set_option};
use verbs_abi::AlignedU64;
use zerocopy::{FromZeros, IntoBytes};

use super::command::{self, CommandError, Joined};
use super::process::Process;

/// An open connection-manager file.
#[derive(Debug)]
pub(crate) struct UcmaFile {
    fd: OwnedFd,
    process: Process,
}

impl UcmaFile {
    /// Takes the node that was just opened.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd, process: Process::current() }
    }

    /// Returns an error in a forked child, which must not use the file of its parent.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<(), CommandError> {
        self.process.check()
    }

    /// Sends `request` and returns the kernel's response.
    ///
    /// Fields that an older kernel does not store are zero.
    pub(crate) fn command<C: Command>(&self, request: C) -> Result<C::Response, CommandError> {
        let mut response = C::Response::new_zeroed();
        self.command_over(request, &mut response)?;
        Ok(response)
    }

    /// Sends `request` and stores the kernel's response in `response`.
    ///
    /// Fields that an older kernel does not store keep their values.
    pub(crate) fn command_over<C: Command>(
        &self,
        mut request: C,
        response: &mut C::Response,
    ) -> Result<(), CommandError> {
        const { assert!(C::NUMBER != RDMA_USER_CM_CMD_SET_OPTION, "its value has an address") };
        if let Some(address) = request.response_mut() {
            *address = address_of(ptr::from_mut(response).cast_const());
        }
        // SAFETY: the address in the request is that of `response`, which is of its type and borrowed for as long as
        // the call lasts. The one command with another address is not sent here.
        unsafe { self.send(request) }
    }

    /// Sends SET_OPTION with `value`, whose address and length are put into `request`.
    pub(crate) fn set_option(
        &self,
        mut request: rdma_ucm_set_option,
        value: &[u8],
    ) -> Result<(), CommandError> {
        request.optval = address_of(value.as_ptr());
        // A length above this is above the kernel's maximum.
        request.optlen = u32::try_from(value.len()).map_err(|_| CommandError::Os(Errno::EINVAL))?;
        // SAFETY: the address in the request is that of `value`. The kernel reads the length in the request. There is
        // no response.
        unsafe { self.send(request) }
    }

    /// Sends `request` as it is.
    ///
    /// # Safety
    ///
    /// The addresses in the request must be valid while the call lasts:
    ///
    /// - that of a response for writes of a `C::Response`;
    /// - that of data for reads of the length that the request gives.
    unsafe fn send<C: Command>(&self, request: C) -> Result<(), CommandError> {
        self.check_process()?;
        let header = rdma_ucm_cmd_hdr {
            cmd: C::NUMBER,
            r#in: u16::try_from(size_of::<C>()).expect("requests are short"),
            out: u16::try_from(size_of::<C::Response>()).expect("responses are short"),
        };
        let command = Joined(header, request);
        // SAFETY: the caller's contract, for a response of the length in the header.
        unsafe { command::write(self.fd.as_fd(), command.as_bytes()) }
    }
}

/// Returns the address of memory for the kernel.
fn address_of<T>(memory: *const T) -> AlignedU64 {
    let address = u64::try_from(memory.expose_provenance());
    address.expect("an address has at most 64 bits").into()
}

impl AsFd for UcmaFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
