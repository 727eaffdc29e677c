//! `/dev/infiniband/rdma_cm`: one open file is one event channel.
//!
//! # Safety
//!
//! The addresses in requests are put in here, and are those of responses that live until the write
//! returns.
#![expect(unsafe_code, reason = "issues commands")]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;

use ucma_abi::{Command, RDMA_USER_CM_ABI_VERSION, rdma_ucm_cmd_hdr};
use zerocopy::{FromZeros, IntoBytes};

use super::command::{self, Frame, Refused};
use super::node::open_node;
use super::process::Process;
use crate::device;
use crate::error::Result;

const PATH: &str = "/dev/infiniband/rdma_cm";

/// An open connection-manager file.
#[derive(Debug)]
pub(crate) struct UcmaFile {
    fd: OwnedFd,
    process: Process,
}

impl UcmaFile {
    /// Opens the node, whose ABI version must be the one that this crate speaks.
    pub(crate) fn open() -> Result<Self> {
        let chardev = device::rdma_cm();
        if let Some(found) = chardev.abi_version() {
            device::check_abi(PATH, found, RDMA_USER_CM_ABI_VERSION)?;
        }
        let missing = "load the module: modprobe rdma_ucm";
        let fd = open_node(PATH, chardev.device_number(), missing)?;
        Ok(Self { fd, process: Process::current() })
    }

    /// A file that takes every command and answers with zeros, to see what is sent.
    #[cfg(test)]
    pub(crate) fn fake(fd: OwnedFd) -> Self {
        Self { fd, process: Process::current() }
    }

    /// Whether commands can have success at all: not in a child of the process that opened the
    /// file.
    #[inline]
    pub(crate) fn belongs_here(&self) -> bool {
        self.process.is_current()
    }

    /// Refuses what a forked child must not do with its parent's file.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<(), Refused> {
        self.process.check()
    }

    /// Sends `request` and returns the kernel's response, whose fields past what an older kernel
    /// stores are zero.
    pub(crate) fn command<C: Command>(&self, mut request: C) -> Result<C::Response, Refused> {
        const { assert!(size_of::<rdma_ucm_cmd_hdr>() + size_of::<C>() <= Frame::CAPACITY) };
        self.check_process()?;
        let mut response = C::Response::new_zeroed();
        if let Some(address) = request.response_mut() {
            *address = u64::try_from(ptr::from_mut(&mut response).expose_provenance())
                .expect("an address has at most 64 bits")
                .into();
        }
        let header = rdma_ucm_cmd_hdr {
            cmd: C::NUMBER,
            r#in: u16::try_from(size_of::<C>()).expect("requests are short"),
            out: u16::try_from(size_of::<C::Response>()).expect("responses are short"),
        };
        let frame = Frame::new(&[header.as_bytes(), request.as_bytes()]);
        // SAFETY: the address in the command is that of `response`, a live local as long as the
        // header says. (SET_OPTION, the one command with another address, is not sent.)
        unsafe { command::write(self.fd.as_fd(), frame.as_bytes()) }?;
        Ok(response)
    }
}

impl AsFd for UcmaFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
