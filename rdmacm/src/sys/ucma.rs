//! `/dev/infiniband/rdma_cm`: one open file is one event channel.
//!
//! # Safety
//!
//! Requests are built here, and the addresses in them are those of responses and data that live
//! until the write returns.
#![expect(unsafe_code, reason = "issues commands")]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;

use ucma_abi::{Command, RDMA_USER_CM_ABI_VERSION, rdma_ucm_cmd_hdr};
use zerocopy::{FromZeros, IntoBytes};

use super::command::{self, Frame, Refused};
use super::node::open_node;
use super::process::Process;
use crate::device;
use crate::error::{Result, WrongProcess};

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

    /// Whether commands can have success at all: not in a child of the process that opened the
    /// file.
    #[inline]
    pub(crate) fn belongs_here(&self) -> bool {
        self.process.is_current()
    }

    /// Refuses what a forked child must not do with its parent's file.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<(), Refused> {
        match self.belongs_here() {
            true => Ok(()),
            false => Err(Refused::WrongProcess(WrongProcess::Forked)),
        }
    }

    /// Sends `request` and returns the kernel's response, whose fields past what an older kernel
    /// stores are zero.
    pub(crate) fn command<C: Command>(&self, request: C) -> Result<C::Response, Refused> {
        const { assert!(size_of::<rdma_ucm_cmd_hdr>() + size_of::<C>() <= Frame::CAPACITY) };
        let mut response = C::Response::new_zeroed();
        // SAFETY: the response is a live local of the size that the header will give, and it is
        // sealed to its request.
        unsafe { self.command_with(request, &mut response) }?;
        Ok(response)
    }

    /// Sends `request` and has the response stored in `response`.
    ///
    /// # Safety
    ///
    /// Every address in `request` other than that of the response must be valid for what the kernel
    /// does with it.
    pub(crate) unsafe fn command_with<C: Command, R: IntoBytes>(
        &self,
        mut request: C,
        response: &mut R,
    ) -> Result<(), Refused> {
        self.check_process()?;
        if let Some(address) = request.response_mut() {
            *address = u64::try_from(ptr::from_mut(response).expose_provenance())
                .expect("an address has at most 64 bits")
                .into();
        }
        let header = rdma_ucm_cmd_hdr {
            cmd: C::NUMBER,
            r#in: u16::try_from(size_of::<C>()).expect("requests are short"),
            out: u16::try_from(size_of::<R>()).expect("responses are short"),
        };
        let frame = Frame::new(&[header.as_bytes(), request.as_bytes()]);
        // SAFETY: the only address that this function puts in is that of `response`, which is
        // exclusively borrowed, live until the end of the call and as long as the header
        // says; the caller answers for any other.
        unsafe { command::write(self.fd.as_fd(), frame.as_bytes()) }
    }
}

impl AsFd for UcmaFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
