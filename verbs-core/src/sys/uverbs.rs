//! `/dev/infiniband/uverbsN`: one open file is one verbs context.
//!
//! # Safety
//!
//! A request holds the address of its response. This module sets that address, and the response lives until the write
//! returns. Other addresses are in requests that register memory, in the driver's part of MODIFY_SRQ, and in the work
//! requests of a post. No safe function sends those. Descriptors in responses are wrapped at once, each once.
#![expect(unsafe_code, reason = "issues commands and takes descriptors from responses")]

mod ioctl_call;
mod queue;
#[cfg(any(test, feature = "null"))]
mod recording;

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use verbs_abi::ioctl::{
    RDMA_VERBS_IOCTL, UVERBS_ATTR_CORE_IN, UVERBS_ATTR_CORE_OUT, UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS,
    UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, UVERBS_ATTR_QUERY_GID_ENTRY_PORT,
    UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE,
    UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES,
    UVERBS_ATTR_UHW_IN, UVERBS_ATTR_UHW_OUT, UVERBS_ATTR_WRITE_CMD, UVERBS_METHOD_INVOKE_WRITE,
    UVERBS_METHOD_QUERY_GID_ENTRY, UVERBS_METHOD_QUERY_GID_TABLE, ib_uverbs_gid_entry,
};
use verbs_abi::{
    AlignedU64, Command, IB_USER_VERBS_CMD_CREATE_CQ, IB_USER_VERBS_CMD_CREATE_QP,
    IB_USER_VERBS_CMD_CREATE_SRQ, IB_USER_VERBS_CMD_CREATE_XSRQ, IB_USER_VERBS_CMD_FLAG_EXTENDED,
    IB_USER_VERBS_CMD_MODIFY_SRQ, IB_USER_VERBS_CMD_POST_RECV, IB_USER_VERBS_CMD_POST_SEND,
    IB_USER_VERBS_CMD_POST_SRQ_RECV, IB_USER_VERBS_CMD_REG_MR, IB_USER_VERBS_CMD_REREG_MR,
    IB_USER_VERBS_CMD_RESIZE_CQ, ib_uverbs_cmd_hdr, ib_uverbs_create_comp_channel,
    ib_uverbs_ex_cmd_hdr, ib_uverbs_get_context, ib_uverbs_modify_srq, ib_uverbs_reg_mr,
    ib_uverbs_reg_mr_resp, ib_uverbs_rereg_mr, ib_uverbs_rereg_mr_resp, rdma_driver_id,
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use self::ioctl_call::Call;
pub use self::queue::{MOST_POSTED, Polled};
#[cfg(any(test, feature = "null"))]
pub use self::recording::Recorder;
use super::command::{self, CommandError, Joined, address};
use super::node::{NodeFailure, open_node};
use super::ownership::NotOwner;
use super::process::Process;
#[cfg(debug_assertions)]
use crate::lock;

/// The value of each byte of a response before the command.
///
/// Fields that an older kernel does not store are zero.
const ZERO: u8 = 0;

/// The value of each byte of a response with a descriptor before the command: -1, as 0 is a descriptor.
const NO_DESCRIPTOR: u8 = u8::MAX;

/// The bytes in front of the request of a plain command, and of an extended one.
const HEADER: usize = size_of::<ib_uverbs_cmd_hdr>();
const HEADERS: usize = HEADER + size_of::<ib_uverbs_ex_cmd_hdr>();

const WHOLE_WORDS: &str = "requests and responses are short and whole numbers of words";

/// A kind of object of a driver.
///
/// Its methods give the device no memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DriverObject {
    /// The number of the object.
    pub(crate) object: u16,
    /// The numbers of the method that creates an object, and of the attribute with its handle.
    pub(crate) create: (u16, u16),
    /// The numbers of the method that destroys an object, and of the attribute with its handle.
    pub(crate) destroy: (u16, u16),
}

/// An open verbs file.
///
/// Commands are issued by `write`, which the kernel accepts only with the credentials that opened the
/// file. After a change of the credentials, commands are issued by ioctl, which has no such check.
#[derive(Debug)]
pub struct UverbsFile {
    fd: OwnedFd,
    process: Process,
    driver: rdma_driver_id,
    /// The node that was opened; an empty path in tests without a device.
    node: Node,
}

/// A device node.
#[derive(Debug, Default)]
struct Node {
    path: Box<str>,
    /// The device number that the node must have, if it is known.
    number: Option<u64>,
}

#[cfg(any(test, fuzzing, feature = "null"))]
impl UverbsFile {
    /// Opens a file that accepts every command and answers none, for tests without a kernel.
    ///
    /// # Panics
    ///
    /// Panics if `/dev/null` cannot be opened.
    pub fn silent() -> Self {
        let null =
            std::fs::File::options().read(true).write(true).open("/dev/null").expect("/dev/null");
        Self::without_device(null.into())
    }

    /// Takes a file that is not a device.
    fn without_device(fd: OwnedFd) -> Self {
        let driver = rdma_driver_id::RDMA_DRIVER_UNKNOWN;
        Self { fd, process: Process::current(), driver, node: Node::default() }
    }
}

impl UverbsFile {
    /// Opens the node at `path`, which must have the device number `dev` if that is known.
    ///
    /// `driver` is that of the device.
    pub fn open(path: &str, dev: Option<u64>, driver: rdma_driver_id) -> Result<Self, NodeFailure> {
        let fd = open_node(path, dev)?;
        let node = Node { path: path.into(), number: dev };
        Ok(Self { fd, process: Process::current(), driver, node })
    }

    /// Opens the node again, for another context.
    pub fn reopen(&self) -> Result<Self, NodeFailure> {
        Self::open(&self.node.path, self.node.number, self.driver)
    }

    /// Returns `true` if commands and rings may be used.
    ///
    /// A child of the process that opened the file may not use them.
    #[inline]
    pub fn is_owner(&self) -> bool {
        self.process.is_current()
    }

    /// Returns `true` if commands and rings surely may be used. After `false`,
    /// [`is_owner`](Self::is_owner) decides.
    #[inline]
    pub fn is_owner_fast(&self) -> bool {
        self.process.is_surely_current()
    }

    /// Returns an error in a forked child, which must not use the file of its parent.
    #[inline]
    pub fn check_process(&self) -> Result<(), CommandError> {
        self.process.check()
    }

    /// Sends `request`, which has no part for the driver.
    pub fn command<C: Command>(&self, request: C) -> Result<C::Response, CommandError> {
        self.driver_command::<C, (), ()>(request, ()).map(|(response, ())| response)
    }

    /// Sends `request` followed by the driver's part, and returns the core's response and the driver's.
    pub fn driver_command<C, I, O>(
        &self,
        request: C,
        driver_request: I,
    ) -> Result<(C::Response, O), CommandError>
    where
        C: Command,
        I: IntoBytes + Immutable,
        O: FromBytes + IntoBytes + Immutable + KnownLayout,
    {
        const { assert_has_no_memory::<C>() };
        const { assert!(size_of::<I>() == 0 || !has_addresses_behind::<C>()) };
        // SAFETY: as was just asserted, the request has no memory for the device, and the bytes after it have no
        // address.
        unsafe { self.send(request, driver_request, ZERO) }
    }

    /// Registers memory, with the driver's part after the request.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`Driver::register`](crate::driver::Driver::register).
    pub unsafe fn register_memory<I, O>(
        &self,
        request: ib_uverbs_reg_mr,
        driver_request: I,
    ) -> Result<(ib_uverbs_reg_mr_resp, O), CommandError>
    where
        I: IntoBytes + Immutable,
        O: FromBytes + IntoBytes + Immutable + KnownLayout,
    {
        // SAFETY: the caller is responsible for the memory in the request.
        unsafe { self.send(request, driver_request, ZERO) }
    }

    /// Changes a shared receive queue, with the driver's part after the request.
    ///
    /// # Safety
    ///
    /// An address in the driver's part must be valid for the writes of the driver, while the call lasts.
    pub unsafe fn modify_srq<I>(
        &self,
        request: ib_uverbs_modify_srq,
        driver_request: I,
    ) -> Result<(), CommandError>
    where
        I: IntoBytes + Immutable,
    {
        // SAFETY: the request gives no memory to the device, and the caller is responsible for an address in the
        // driver's part.
        unsafe { self.send::<_, _, ()>(request, driver_request, ZERO) }.map(drop)
    }

    /// Changes registered memory.
    ///
    /// # Safety
    ///
    /// If `request` changes the memory or the access of the region, the caller keeps the contract of
    /// [`Driver::register`](crate::driver::Driver::register) for the new memory and access. The memory that a device
    /// may access by the old ones stays valid until the command has succeeded.
    pub unsafe fn reregister_memory(
        &self,
        request: ib_uverbs_rereg_mr,
    ) -> Result<ib_uverbs_rereg_mr_resp, CommandError> {
        // SAFETY: the caller is responsible for the memory in the request.
        let changed: Result<(_, ()), _> = unsafe { self.send(request, (), ZERO) };
        changed.map(|(response, ())| response)
    }

    /// Creates or resizes a queue in memory of this process.
    ///
    /// The addresses of the memory are in the driver's part behind the request.
    ///
    /// # Safety
    ///
    /// From the call until the queue is destroyed, the memory that the driver's part names is valid for reads and
    /// writes. This process accesses the memory only in ways that cope with a device that writes to it. For a ring,
    /// this is required only until another request has given the queue another ring.
    pub unsafe fn create_in_memory<C, I, O>(
        &self,
        request: C,
        driver_request: I,
    ) -> Result<(C::Response, O), CommandError>
    where
        C: Command,
        I: IntoBytes + Immutable,
        O: FromBytes + IntoBytes + Immutable + KnownLayout,
    {
        const { assert_has_no_memory::<C>() };
        // SAFETY: as was just asserted, the request itself has no memory for the device. The caller is responsible
        // for the memory that the driver's part names.
        unsafe { self.send(request, driver_request, ZERO) }
    }

    /// Sends a command that is answered with a descriptor.
    fn open_descriptor<C, I, O>(
        &self,
        request: C,
        driver_request: I,
    ) -> Result<(C::Response, O), CommandError>
    where
        C: Command,
        I: IntoBytes + Immutable,
        O: FromBytes + IntoBytes + Immutable + KnownLayout,
    {
        const { assert_has_no_memory::<C>() };
        const { assert!(size_of::<I>() == 0 || !has_addresses_behind::<C>()) };
        // SAFETY: as was just asserted, the request has no memory for the device, and the bytes behind it have no
        // address.
        unsafe { self.send(request, driver_request, NO_DESCRIPTOR) }
    }

    /// Sends `request` with the driver's part behind it.
    ///
    /// `unwritten` is the value of the bytes of the core's response that the kernel does not store. Such bytes of the
    /// driver's response are zero.
    ///
    /// # Safety
    ///
    /// For memory that the request gives to the device, the caller keeps the contract of
    /// [`Driver::register`](crate::driver::Driver::register). Addresses in the driver's part must be valid for the
    /// accesses of the driver while the call lasts. This function sets the address of the response.
    unsafe fn send<C, I, O>(
        &self,
        mut request: C,
        driver_request: I,
        unwritten: u8,
    ) -> Result<(C::Response, O), CommandError>
    where
        C: Command,
        I: IntoBytes + Immutable,
        O: FromBytes + IntoBytes + Immutable + KnownLayout,
    {
        self.check_process()?;
        let mut response = Joined::<C::Response, O>::new_zeroed();
        response.as_mut_bytes()[..size_of::<C::Response>()].fill(unwritten);
        // The kernel takes a missing response only as a zero address.
        let address = match size_of_val(&response) {
            0 => 0,
            _ => address(&raw mut response),
        };
        if let Some(field) = request.response_mut() {
            *field = address.into();
        }
        let lengths = [size_of::<C::Response>(), size_of::<O>()];
        let sent = [size_of::<C>(), size_of::<I>()];
        let parts = Joined(request, driver_request);
        if C::EXTENDED {
            let header =
                ib_uverbs_cmd_hdr::extended(C::NUMBER, sent[0], lengths[0]).expect(WHOLE_WORDS);
            let second =
                ib_uverbs_ex_cmd_hdr::new(address, sent[1], lengths[1]).expect(WHOLE_WORDS);
            let core = HEADERS..HEADERS + sent[0];
            let command = Joined(Joined(header, second), parts);
            // SAFETY: the address of the response is that of `response`, a live local as long as the two lengths
            // together. The other addresses are those of memory to register and in the driver's part, for which the
            // caller is responsible.
            unsafe { self.issue(command_word::<C>(), command.as_bytes(), core, address, lengths) }?;
        } else {
            let [sent, stored] = [sent, lengths].map(|lengths| lengths[0] + lengths[1]);
            let header = ib_uverbs_cmd_hdr::plain(C::NUMBER, sent, stored).expect(WHOLE_WORDS);
            let core = HEADER..HEADER + size_of::<C>();
            let command = Joined(header, parts);
            // SAFETY: as above.
            unsafe { self.issue(C::NUMBER, command.as_bytes(), core, address, lengths) }?;
        }
        let Joined(response, driver_response) = response;
        Ok((response, driver_response))
    }

    /// Writes a command.
    ///
    /// The core's part of the request is the range `core`, with the headers before it and the driver's part after it.
    ///
    /// If the kernel refuses it from these credentials, it is sent by ioctl, with the number `word`.
    ///
    /// # Safety
    ///
    /// The contract is that of [`invoke_write`](Self::invoke_write).
    #[inline(always)]
    unsafe fn issue(
        &self,
        word: u32,
        command: &[u8],
        core: Range<usize>,
        address: u64,
        lengths: [usize; 2],
    ) -> Result<(), CommandError> {
        // SAFETY: the caller is responsible for the addresses in the command.
        let Err(refused) = (unsafe { command::write(self.fd.as_fd(), command) }) else {
            return Ok(());
        };
        let parts = (&command[core.clone()], &command[core.end..]);
        // SAFETY: the contract of this function is that of the callee.
        unsafe { self.issue_otherwise(refused, word, parts, address, lengths) }
    }

    /// Issues the command by ioctl after the kernel has `refused` the write.
    ///
    /// # Safety
    ///
    /// The contract is that of [`invoke_write`](Self::invoke_write).
    #[cold]
    #[inline(never)]
    unsafe fn issue_otherwise(
        &self,
        refused: CommandError,
        word: u32,
        parts: (&[u8], &[u8]),
        address: u64,
        lengths: [usize; 2],
    ) -> Result<(), CommandError> {
        match refused {
            // The ioctl must name the driver.
            CommandError::NotOwner(NotOwner::Credentials)
                if self.driver != rdma_driver_id::RDMA_DRIVER_UNKNOWN =>
            {
                // SAFETY: the contract of this function is that of the callee.
                let invoked = unsafe { self.invoke_write(word, parts, address, lengths) };
                invoked.map_err(|by_ioctl| match by_ioctl {
                    // A kernel before 5.0 has no other way to issue a command.
                    CommandError::Os(Errno::ENOTTY | Errno::EPROTONOSUPPORT) => refused,
                    by_ioctl => by_ioctl,
                })
            }
            refused => Err(refused),
        }
    }

    /// Sends a write command by the ioctl that does not compare credentials: INVOKE_WRITE.
    ///
    /// `parts` are the core's request and the driver's. `lengths` are the lengths of the two responses, which are
    /// stored at `address` one after the other.
    ///
    /// # Safety
    ///
    /// `address` must be valid for writes of both lengths together while the call lasts. The parts must be as
    /// [`send`](Self::send) requires.
    unsafe fn invoke_write(
        &self,
        command: u32,
        parts: (&[u8], &[u8]),
        address: u64,
        lengths: [usize; 2],
    ) -> Result<(), CommandError> {
        let mut call = Call::new(UVERBS_METHOD_INVOKE_WRITE, self.driver);
        call.input(UVERBS_ATTR_WRITE_CMD, u64::from(command).as_bytes());
        call.input(UVERBS_ATTR_CORE_IN, parts.0);
        call.input(UVERBS_ATTR_UHW_IN, parts.1);
        let behind = u64::try_from(lengths[0]).expect("responses are short");
        call.output(UVERBS_ATTR_CORE_OUT, address, lengths[0]);
        call.output(UVERBS_ATTR_UHW_OUT, address + behind, lengths[1]);
        // SAFETY: inputs are slices that outlive the call. The caller is responsible for the outputs and for the
        // addresses in the parts.
        unsafe { self.call(&mut call) }
    }

    /// Returns at most `room` used entries of the GID tables of all ports: method QUERY_GID_TABLE.
    pub fn gid_table(&self, room: u16) -> Result<Vec<ib_uverbs_gid_entry>, CommandError> {
        let size = size_of::<ib_uverbs_gid_entry>();
        let mut entries = vec![ib_uverbs_gid_entry::default(); usize::from(room)];
        let mut count = 0_u64;
        let mut call = Call::new(UVERBS_METHOD_QUERY_GID_TABLE, self.driver);
        let size_of_one = u64::try_from(size).expect("32 fits");
        call.input(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, size_of_one.as_bytes());
        let place = address(entries.as_mut_ptr());
        call.output(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, place, size * entries.len());
        let place = address(&raw mut count);
        call.output(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, place, size_of_val(&count));
        // SAFETY: the outputs are the entries and their number, which outlive the call and are valid as any bytes. The
        // input is passed by value.
        unsafe { self.call(&mut call) }?;
        entries.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        Ok(entries)
    }

    /// Returns an entry of the GID table of `port`: method QUERY_GID_ENTRY.
    pub fn gid_entry(&self, port: u32, index: u32) -> Result<ib_uverbs_gid_entry, CommandError> {
        let mut entry = ib_uverbs_gid_entry::default();
        let mut call = Call::new(UVERBS_METHOD_QUERY_GID_ENTRY, self.driver);
        // The kernel takes both numbers as constants, which have 64 bits.
        let (port, index) = (u64::from(port), u64::from(index));
        call.input(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, port.as_bytes());
        call.input(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, index.as_bytes());
        call.input(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, 0_u32.as_bytes());
        let place = address(&raw mut entry);
        call.output(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, place, size_of_val(&entry));
        // SAFETY: the output is the entry, which outlives the call and is valid as any bytes. The inputs are passed by
        // value.
        unsafe { self.call(&mut call) }?;
        Ok(entry)
    }

    /// Creates an object of the driver from a `constant`, which is an attribute's number and its value.
    ///
    /// Returns the handle.
    ///
    /// The kernel stores its answers in `outputs`, which are numbers of attributes and the bytes of their values. It
    /// destroys the object with the context.
    pub(crate) fn create_driver_object(
        &self,
        object: DriverObject,
        constant: (u16, u64),
        outputs: [(u16, &mut [u8]); 3],
    ) -> Result<u64, CommandError> {
        let mut call = Call::new(object.create.0, self.driver);
        call.header.object_id = object.object;
        let handle = call.handle(object.create.1, 0);
        call.input(constant.0, constant.1.as_bytes());
        for (attribute, bytes) in outputs {
            call.output(attribute, address(bytes.as_mut_ptr()), bytes.len());
        }
        // SAFETY: the outputs are slices that outlive the call and are valid as any bytes. The input is passed by
        // value, and is no address, as the methods of driver objects take none.
        unsafe { self.call(&mut call) }?;
        Ok(call.attributes[handle].data.into())
    }

    /// Destroys an object of the driver.
    pub(crate) fn destroy_driver_object(
        &self,
        object: DriverObject,
        handle: u64,
    ) -> Result<(), CommandError> {
        let mut call = Call::new(object.destroy.0, self.driver);
        call.header.object_id = object.object;
        call.handle(object.destroy.1, handle);
        // SAFETY: the call has no outputs, and the handle is passed by value.
        unsafe { self.call(&mut call) }
    }

    /// Makes the call.
    ///
    /// # Safety
    ///
    /// Inputs of `call` must be valid for reads and outputs for writes while it lasts. The contents of the inputs must
    /// be as the method requires.
    unsafe fn call(&self, call: &mut Call) -> Result<(), CommandError> {
        // A command that posts or polls was refused as a write before, which has asserted the rule.
        #[cfg(debug_assertions)]
        assert!(
            call.header.method_id == UVERBS_METHOD_INVOKE_WRITE || !lock::forbids_commands(),
            "method {} should not be called under the lock of an endpoint",
            call.header.method_id
        );
        let fd = self.fd.as_raw_fd();
        // The C libraries disagree on the type's size and sign. The kernel uses 32 bits.
        let request = RDMA_VERBS_IOCTL as libc::Ioctl;
        // SAFETY: the argument of this ioctl is the header, followed by its attributes, both of which `call` holds. The
        // kernel reads and writes them by the lengths and counts that `call` keeps. The caller is responsible for the
        // memory to which they point.
        let done = unsafe { libc::ioctl(fd, request, &raw mut *call) };
        Errno::result(done).map(drop).map_err(CommandError::last_os_error)
    }

    /// Makes the file a verbs context.
    ///
    /// Returns the descriptor of its asynchronous events, the number of its completion vectors, and the driver's part
    /// of the response.
    pub fn get_context<I, O>(&self, driver_request: I) -> Result<(OwnedFd, u32, O), CommandError>
    where
        I: IntoBytes + Immutable,
        O: FromBytes + IntoBytes + Immutable + KnownLayout,
    {
        let request = ib_uverbs_get_context { response: AlignedU64::default() };
        let (response, driver_response) = self.open_descriptor(request, driver_request)?;
        Ok((owned(response.async_fd)?, response.num_comp_vectors, driver_response))
    }

    /// Makes a completion channel, which is a descriptor.
    pub fn create_comp_channel(&self) -> Result<OwnedFd, CommandError> {
        let request = ib_uverbs_create_comp_channel { response: AlignedU64::default() };
        let (response, ()) = self.open_descriptor(request, ())?;
        owned(response.fd)
    }
}

/// Asserts that `C` is not one of the two commands whose requests give the device memory.
const fn assert_has_no_memory<C: Command>() {
    assert!(C::NUMBER != IB_USER_VERBS_CMD_REG_MR, "the device may write to its memory");
    assert!(C::NUMBER != IB_USER_VERBS_CMD_REREG_MR, "the device may write to its memory");
}

/// Returns `true` if the bytes behind `C` have addresses.
///
/// The bytes are the driver's part of MODIFY_SRQ and of the commands that create or resize a queue. For a post, the
/// bytes are the work requests, whose memory is given to the device.
const fn has_addresses_behind<C: Command>() -> bool {
    matches!(
        C::NUMBER,
        IB_USER_VERBS_CMD_CREATE_CQ
            | IB_USER_VERBS_CMD_RESIZE_CQ
            | IB_USER_VERBS_CMD_CREATE_QP
            | IB_USER_VERBS_CMD_CREATE_SRQ
            | IB_USER_VERBS_CMD_CREATE_XSRQ
            | IB_USER_VERBS_CMD_MODIFY_SRQ
            | IB_USER_VERBS_CMD_POST_SEND
            | IB_USER_VERBS_CMD_POST_RECV
            | IB_USER_VERBS_CMD_POST_SRQ_RECV
    )
}

/// Returns the number of the command in the form of headers and INVOKE_WRITE.
fn command_word<C: Command>() -> u32 {
    if C::EXTENDED { C::NUMBER | IB_USER_VERBS_CMD_FLAG_EXTENDED } else { C::NUMBER }
}

/// Wraps the descriptor of a response.
fn owned(fd: u32) -> Result<OwnedFd, CommandError> {
    let fd = i32::try_from(fd).map_err(|_| CommandError::Os(Errno::EBADF))?;
    // SAFETY: the kernel has stored a descriptor in range, because the response held `NO_DESCRIPTOR` before. It has
    // just installed the descriptor for this process, so the descriptor is open and has no other owner. Each response
    // is wrapped once.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl AsFd for UverbsFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests;
