//! `/dev/infiniband/uverbsN`: one open file is one verbs context.
//!
//! # Safety
//!
//! Requests are built here, and the addresses in them are those of responses that live until the write returns. Descriptors in
//! responses are wrapped at once, each once.
#![expect(unsafe_code, reason = "issues commands and takes descriptors from responses")]

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use verbs_abi::{
    AlignedU64, Command, IB_USER_VERBS_CMD_FLAG_EXTENDED, ib_uverbs_cmd_hdr,
    ib_uverbs_create_comp_channel, ib_uverbs_ex_cmd_hdr, ib_uverbs_get_context,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::command::{self, Frame, Refused};
use super::node::open_node;
use super::process::Process;
use crate::error::{Result, WrongProcess};

/// Room for every core response together with its driver's part, in 8-byte words.
const RESPONSE_WORDS: usize = 64;

/// An open verbs file.
#[derive(Debug)]
pub(crate) struct UverbsFile {
    fd: OwnedFd,
    process: Process,
}

impl UverbsFile {
    /// Opens the node at `path`, which must have the device number `dev` where that is known.
    pub(crate) fn open(path: &str, dev: Option<u64>) -> Result<Self> {
        let fd = open_node(path, dev, "load the module: modprobe ib_uverbs")?;
        Ok(Self { fd, process: Process::current() })
    }

    /// Whether commands and rings may be used at all: not in a child of the process that opened the file.
    #[inline]
    pub(crate) fn belongs_here(&self) -> bool {
        self.process.is_current()
    }

    /// Sends `request`, which has no part for the driver.
    pub(crate) fn command<C: Command>(&self, request: C) -> Result<C::Response, Refused> {
        self.driver_command::<C, (), ()>(request, &()).map(|(response, ())| response)
    }

    /// Sends `request` with the driver's part behind it, and returns the core's response and the driver's.
    pub(crate) fn driver_command<C, I, O>(
        &self,
        mut request: C,
        driver_request: &I,
    ) -> Result<(C::Response, O), Refused>
    where
        C: Command,
        I: IntoBytes + Immutable,
        O: FromBytes + IntoBytes + Immutable + KnownLayout,
    {
        const {
            assert!(HEADERS + size_of::<C>() + size_of::<I>() <= Frame::CAPACITY);
            assert!(size_of::<C::Response>() + size_of::<O>() <= 8 * RESPONSE_WORDS);
        }
        if !self.belongs_here() {
            return Err(Refused::WrongProcess(WrongProcess::Forked));
        }
        let mut words = [AlignedU64::default(); RESPONSE_WORDS];
        let length = size_of::<C::Response>() + size_of::<O>();
        // The kernel takes a missing response only as a zero address.
        let address = match length {
            0 => AlignedU64::default(),
            _ => u64::try_from(words.as_mut_ptr().expose_provenance())
                .expect("an address has at most 64 bits")
                .into(),
        };
        if let Some(field) = request.response_mut() {
            *field = address;
        }
        let frame = if C::EXTENDED {
            let header = ib_uverbs_cmd_hdr {
                command: C::NUMBER | IB_USER_VERBS_CMD_FLAG_EXTENDED,
                in_words: units(size_of::<C>(), 8),
                out_words: units(size_of::<C::Response>(), 8),
            };
            let extended = ib_uverbs_ex_cmd_hdr {
                response: address,
                provider_in_words: units(size_of::<I>(), 8),
                provider_out_words: units(size_of::<O>(), 8),
                cmd_hdr_reserved: 0,
            };
            let parts = [header.as_bytes(), extended.as_bytes(), request.as_bytes()];
            Frame::new(&[parts[0], parts[1], parts[2], driver_request.as_bytes()])
        } else {
            let sent = size_of::<ib_uverbs_cmd_hdr>() + size_of::<C>() + size_of::<I>();
            let header = ib_uverbs_cmd_hdr {
                command: C::NUMBER,
                in_words: units(sent, 4),
                out_words: units(length, 4),
            };
            Frame::new(&[header.as_bytes(), request.as_bytes(), driver_request.as_bytes()])
        };
        // SAFETY: the only address in the command is that of `words`, a live local at least as long as the header says.
        unsafe { command::write(self.fd.as_fd(), frame.as_bytes()) }?;
        let stored = &words.as_bytes()[..length];
        let (response, rest) =
            C::Response::read_from_prefix(stored).expect("the buffer holds the response");
        let driver_response = O::read_from_bytes(rest).expect("the buffer holds the driver's part");
        Ok((response, driver_response))
    }

    /// Makes the file a verbs context and returns the descriptor of its asynchronous events.
    pub(crate) fn get_context<O>(&self) -> Result<(OwnedFd, O), Refused>
    where
        O: FromBytes + IntoBytes + Immutable + KnownLayout,
    {
        let request = ib_uverbs_get_context { response: AlignedU64::default() };
        let (response, driver_response) = self.driver_command::<_, (), O>(request, &())?;
        Ok((owned(response.async_fd)?, driver_response))
    }

    /// Makes a completion channel, which is a descriptor.
    pub(crate) fn create_comp_channel(&self) -> Result<OwnedFd, Refused> {
        let request = ib_uverbs_create_comp_channel { response: AlignedU64::default() };
        owned(self.command(request)?.fd)
    }
}

const HEADERS: usize = size_of::<ib_uverbs_cmd_hdr>() + size_of::<ib_uverbs_ex_cmd_hdr>();

/// A length in the header's units.
fn units(bytes: usize, unit: usize) -> u16 {
    debug_assert_eq!(bytes % unit, 0, "commands are whole numbers of units");
    u16::try_from(bytes / unit).expect("commands are short")
}

/// Wraps the descriptor of a response.
fn owned(fd: u32) -> Result<OwnedFd, Refused> {
    let fd = i32::try_from(fd).map_err(|_| Refused::Os(Errno::EBADF))?;
    // SAFETY: the kernel has just installed this descriptor for us in this very response, so it is open, nobody else owns
    // it, and each response is wrapped once.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl AsFd for UverbsFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
