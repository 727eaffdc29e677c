//! The context of an opened device ([`Context`]).
//!
//! [`DeviceContext`] does the work; this module adds shared ownership, the contexts that ids share,
//! and errors that name the device.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use nix::errno::Errno;
use verbs_abi::{
    AlignedU64, Command, IB_USER_VERBS_CMD_ALLOC_MW, IB_USER_VERBS_CMD_ALLOC_PD,
    IB_USER_VERBS_CMD_CREATE_AH, IB_USER_VERBS_CMD_CREATE_CQ, IB_USER_VERBS_CMD_CREATE_QP,
    IB_USER_VERBS_CMD_CREATE_SRQ, IB_USER_VERBS_CMD_CREATE_XSRQ, IB_USER_VERBS_CMD_OPEN_QP,
    ib_uverbs_ex_query_device, ib_uverbs_ex_query_device_resp, ib_uverbs_query_device,
    ib_uverbs_query_device_resp, ib_uverbs_query_port, ib_uverbs_query_port_resp,
};

use super::depths::Depths;
use super::event_file::{EventFile, EventOwner, READ};
use super::read_ahead::ReadAhead;
use super::same::impl_ptr_eq;
use crate::device::{self, CharDevice, Device, DriverId, GidEntry, Guid, Transport};
use crate::driver::{Capabilities, CommandContext, CreateError, DeviceInfo, Opened};
use crate::drivers::any::AnyDriver;
use crate::engine::DeviceContext;
use crate::error::{Error, ErrorKind, IntoError as _, Result, Wait, hint, node_error};
use crate::lock::ignore_poison;
use crate::sys::command::CommandError;
use crate::sys::per_process::PerProcess;
use crate::sys::uverbs::UverbsFile;

/// An opened device: one open `/dev/infiniband/uverbsN`.
///
/// A clone refers to the same context. The context closes when its last clone and the last object
/// created in it have been dropped.
///
/// # Examples
///
/// ```no_run
/// use rdmacm::device;
/// use rdmacm::verbs::Context;
///
/// let device = device::list()?.into_iter().next().expect("an RDMA device");
/// let context = Context::open(&device)?;
/// # Ok::<(), rdmacm::Error>(())
/// ```
#[doc(alias = "ibv_close_device")]
#[doc(alias = "ibv_context")]
#[derive(Debug, Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    engine: DeviceContext,
    async_file: EventFile,
    read_ahead: Mutex<ReadAhead>,
    device: Device,
    completion_vectors: u32,
    depths: OnceLock<Depths>,
}

/// Subject of errors about the asynchronous events of a context.
pub(super) const ASYNC_EVENTS: &str = "the asynchronous events";

static WAIT: Wait = Wait { operation: READ, subject: ASYNC_EVENTS };

/// The contexts that ids share: one for each device in use.
static SHARED: PerProcess<Mutex<Vec<Weak<Inner>>>> = PerProcess::new();

impl Context {
    /// Opens a device.
    ///
    /// Completion queues and queue pairs need a driver whose data path this crate knows. These are
    /// rxe, siw, mlx5, and drivers that keep their queues in the kernel (hfi1, qib). On a device of
    /// another driver, creating them fails with [`ErrorKind::Unsupported`].
    ///
    /// Some drivers that this crate does not know (mlx4, irdma and others) require more than the
    /// plain command, so opening their devices fails. On these devices only the connection manager
    /// is available, for queue pairs that the program creates by other means.
    ///
    /// # Errors
    ///
    /// - ENOENT if the device node is missing, with a [hint](crate::Error::hint).
    /// - EACCES if the user may not open the node, with a hint.
    /// - EMFILE if the process has no more descriptors, with a hint.
    /// - EAGAIN if the rdma cgroup of the process has no more contexts, or if mlx5 is not ready,
    ///   with a hint.
    /// - EIO or ENXIO if the device was removed in the meantime.
    /// - [`ErrorKind::InvalidInput`] with ENODEV if the device has no verbs node.
    /// - [`ErrorKind::Unsupported`] if a driver that this crate does not know requires more than
    ///   the plain command, or answers EINVAL or EFAULT.
    /// - [`ErrorKind::Unsupported`] if the driver's answer has a version that this crate does not
    ///   know.
    /// - [`ErrorKind::MalformedResponse`] if the driver's answer is impossible, for example if the
    ///   registers do not fit their page.
    /// - The errno of `mmap` if the registers of the device cannot be mapped (mlx5), with a hint for
    ///   ENOMEM.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_GET_CONTEXT`.
    #[doc(alias = "ibv_open_device")]
    pub fn open(device: &Device) -> Result<Self> {
        const OPERATION: &str = "open the device";
        let subject = || device.name().to_owned();
        let Some(node) = device.uverbs() else {
            let reason = format!("the device has no verbs node; {}", hint::MODULES);
            let kind =
                ErrorKind::InvalidInput { errno: Errno::ENODEV as i32, reason: reason.into() };
            return Err(Error::new(OPERATION, subject(), kind));
        };
        let driver = device.driver().unwrap_or(DriverId::RDMA_DRIVER_UNKNOWN);
        let path = node.path();
        let file = UverbsFile::open(&path, node.device_number(), driver)
            .map_err(|failure| node_error(failure, &path))?;
        let info = DeviceInfo { driver: device.driver(), abi_version: node.abi_version() };
        let (engine, opened) = DeviceContext::open(file, &info).map_err(|error| {
            let refused = match error {
                CreateError::Command(_) | CreateError::Size(_) => error.into_refused(),
                // No system call returns this errno, which reports a failed check of the answer
                // here.
                CreateError::Map(Errno::EPROTO) => {
                    let what = "the answer of the kernel's driver describes registers that cannot be mapped";
                    return Error::malformed(OPERATION, subject(), what);
                }
                CreateError::Map(errno) => {
                    return Error::os("map the registers of", subject(), errno)
                        .with_hint(Errno::ENOMEM, hint::MAPPINGS);
                }
                CreateError::Unsupported(what) => {
                    return Error::new(OPERATION, subject(), ErrorKind::Unsupported(what.into()));
                }
                CreateError::UnknownDriver => {
                    let driver = driver_name(device);
                    let what = format!("the command interface of the driver {driver}");
                    return Error::new(OPERATION, subject(), ErrorKind::Unsupported(what.into()));
                }
            };
            refused.into_error(OPERATION, subject()).with_hint(Errno::EAGAIN, hint::CONTEXTS)
        })?;
        Ok(Self::of(device, engine, opened))
    }

    /// Creates a context on the null driver, which needs no kernel.
    ///
    /// It is for tests, and for benchmarks of the library's own overhead. Sends complete at once
    /// and consume receives of their own queue pair. No data is transferred.
    #[cfg(feature = "null")]
    pub fn null() -> Self {
        Self::on_null(AnyDriver::Null(crate::drivers::null::Null::default()))
    }

    /// Creates a context on a driver that issues no commands of its own.
    ///
    /// Other commands succeed and return zeros.
    #[cfg(any(test, fuzzing, feature = "null"))]
    pub(crate) fn on_null(driver: AnyDriver) -> Self {
        Self::on_file(UverbsFile::silent(), driver)
    }

    /// Creates a context on a driver without commands of its own.
    ///
    /// Other commands go to `file`.
    #[cfg(any(test, fuzzing, feature = "null"))]
    pub(crate) fn on_file(file: UverbsFile, driver: AnyDriver) -> Self {
        let async_events = std::fs::File::open("/dev/null").expect("/dev/null").into();
        Self::on_file_with_events(file, driver, async_events)
    }

    /// Creates a context like [`on_file`](Self::on_file) that reads asynchronous events from
    /// `async_events`.
    #[cfg(any(test, fuzzing, feature = "null"))]
    pub(super) fn on_file_with_events(
        file: UverbsFile,
        driver: AnyDriver,
        async_events: std::os::fd::OwnedFd,
    ) -> Self {
        let engine = DeviceContext::new(file, driver);
        Self::of(&Device::named("null0"), engine, Opened { async_events, completion_vectors: 1 })
    }

    /// Wraps a context of `device` that is already open.
    fn of(device: &Device, engine: DeviceContext, opened: Opened) -> Self {
        let inner = Inner {
            engine,
            async_file: EventFile::new(opened.async_events, &WAIT),
            read_ahead: Mutex::default(),
            device: device.clone(),
            completion_vectors: opened.completion_vectors,
            depths: OnceLock::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the context that the process's ids of a device share.
    ///
    /// It is the context that [`CmId::context`](crate::cm::CmId::context) returns. Use it for
    /// objects that are created before there is an id, or that serve several ids. The first call
    /// opens the context. It closes when the last reference to it is dropped.
    ///
    /// The C library's `rdma_get_devices` returns one such context for each device.
    ///
    /// # Errors
    ///
    /// The errors of [`open`](Self::open).
    #[doc(alias = "rdma_get_devices")]
    #[doc(alias = "rdma_free_devices")]
    pub fn shared(device: &Device) -> Result<Self> {
        let index = |known: &Device| known.index().zip(device.index());
        let is_meant = |known: &Device| {
            let same = index(known).is_none_or(|(known, meant)| known == meant);
            same && known.node_guid() == device.node_guid()
        };
        Self::share(is_meant, || Ok(device.clone()))
    }

    /// Returns the shared context of the device that the kernel reported for an id.
    pub(crate) fn shared_by(guid: Guid, index: Option<u32>) -> Result<Self> {
        let missing = || {
            let index = index.map_or_else(String::new, |index| format!(" and index {index}"));
            Error::os("find the device", format!("with GUID {guid}{index}"), Errno::ENODEV)
        };
        let find = || device::find(guid, index)?.ok_or_else(missing);
        Self::share(|device| device.is(guid, index), find)
    }

    fn share(
        is_meant: impl Fn(&Device) -> bool,
        find: impl FnOnce() -> Result<Device>,
    ) -> Result<Self> {
        // Held while opening: two threads must not open a device twice.
        let mut shared = ignore_poison(SHARED.lock());
        shared.retain(|context| context.strong_count() > 0);
        let open = shared
            .iter()
            .filter_map(Weak::upgrade)
            .find(|inner| is_meant(&inner.device) && !inner.engine.is_removed());
        if let Some(inner) = open {
            return Ok(Self { inner });
        }
        let context = Self::open(&find()?)?;
        shared.push(Arc::downgrade(&context.inner));
        Ok(context)
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Returns `true` if the device is known to be removed.
    ///
    /// The library detects the removal in two cases:
    /// - An id that uses this context received
    ///   [`DeviceRemoval`](crate::cm::EventType::DeviceRemoval).
    /// - An [asynchronous event](Self::async_events) reported that the device failed
    ///   (`IB_EVENT_DEVICE_FATAL`).
    ///
    /// From then on, posts and commands fail with [`ErrorKind::DeviceRemoved`], and
    /// [`shared`](Self::shared) no longer returns this context. Cleanup still works: queue pairs move
    /// to ERR and are drained, completions are polled, events are read, and objects are destroyed
    /// and dropped.
    ///
    /// # Driver notes
    ///
    /// The kernel keeps a removed device until its contexts are closed. rxe and siw do not release
    /// their devices earlier, so drop the context and all objects created in it.
    #[inline]
    pub fn is_device_removed(&self) -> bool {
        self.inner.engine.is_removed()
    }

    /// Marks the device as removed.
    ///
    /// The mark is permanent: a device that returns is a new device with new contexts.
    pub(crate) fn mark_removed(&self) {
        self.inner.engine.set_removed();
    }

    /// Returns the protocol beneath the verbs.
    ///
    /// A node that the kernel's connection manager does not serve counts as InfiniBand.
    pub fn transport(&self) -> Transport {
        self.inner.device.transport_of_verbs()
    }

    /// Returns the number of completion vectors of the device, at least 1.
    ///
    /// See [`CompletionQueue::with_comp_vector`](super::CompletionQueue::with_comp_vector).
    #[doc(alias = "num_comp_vectors")]
    pub fn completion_vectors(&self) -> u32 {
        self.inner.completion_vectors
    }

    /// Returns the device's attributes.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_QUERY_DEVICE`.
    #[doc(alias = "ibv_query_device")]
    pub fn query_device(&self) -> Result<ib_uverbs_query_device_resp> {
        let request = ib_uverbs_query_device { response: AlignedU64::default() };
        self.command("query", "", request)
    }

    /// Returns the device's attributes, including those that were added later.
    ///
    /// The additions are on-demand paging, device flags above the 32nd and more. A field that the
    /// kernel does not know is zero.
    ///
    /// # Errors
    ///
    /// The errors of [`query_device`](Self::query_device).
    ///
    /// Kernel command: `IB_USER_VERBS_EX_CMD_QUERY_DEVICE`.
    #[doc(alias = "ibv_query_device_ex")]
    pub fn query_device_extended(&self) -> Result<ib_uverbs_ex_query_device_resp> {
        self.command("query", "", ib_uverbs_ex_query_device::default())
    }

    /// Returns the attributes of port `port`, counted from 1.
    ///
    /// # Errors
    ///
    /// - EINVAL if the device has no such port.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `IB_USER_VERBS_CMD_QUERY_PORT`.
    #[doc(alias = "ibv_query_port")]
    pub fn query_port(&self, port: u8) -> Result<ib_uverbs_query_port_resp> {
        let request = ib_uverbs_query_port {
            response: AlignedU64::default(),
            port_num: port,
            reserved: [0; 7],
        };
        self.command("query", "port", request)
    }

    /// Returns the used entries of the GID table of port `port`, counted from 1, in order.
    ///
    /// One ioctl reads the whole table. The kernel has this ioctl since Linux 5.10. If the kernel
    /// lacks or refuses it, [`Port::gids`](device::Port::gids) reads sysfs instead, with several
    /// system calls for each slot. The network device of an entry is known from sysfs only.
    ///
    /// # Errors
    ///
    /// - EINVAL if the device has no such port.
    /// - ENOENT if the ioctl is refused and sysfs is not mounted.
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: ioctl method `QUERY_GID_TABLE`.
    #[doc(alias = "ibv_query_gid")]
    #[doc(alias = "ibv_query_gid_ex")]
    #[doc(alias = "ibv_query_gid_table")]
    pub fn gids(&self, port: u8) -> Result<Vec<GidEntry>> {
        /// Number of entries requested first.
        ///
        /// Most devices have fewer, and a buffer of this size is cheap to clear.
        const INITIAL_CAPACITY: u16 = 64;
        /// Number of entries requested otherwise: as many as fit in 16 bits of length.
        const MAX_CAPACITY: u16 = 2047;
        self.check_usable("query", || "the GID table".to_owned())?;
        let file = self.file();
        device::gids_of_opened(&self.inner.device, port.into(), || {
            match file.gid_table(INITIAL_CAPACITY) {
                // One of the causes is a table that has more entries.
                Err(CommandError::Os(Errno::EINVAL)) => file.gid_table(MAX_CAPACITY),
                listed => listed,
            }
        })
    }

    /// Returns the depths that [`query_device`](Self::query_device) reports, queried once.
    pub(crate) fn depth_limits(&self) -> Result<Depths> {
        if let Some(depths) = self.inner.depths.get() {
            return Ok(*depths);
        }
        let answer = self.query_device()?;
        let depths = Depths::of_device(answer.max_qp_rd_atom, answer.max_qp_init_rd_atom);
        Ok(*self.inner.depths.get_or_init(|| depths))
    }

    /// Locks the asynchronous events that the library has read ahead.
    ///
    /// Must not be called in a forked child, because the lock may never be released there.
    pub(super) fn lock_read_ahead(&self) -> MutexGuard<'_, ReadAhead> {
        ignore_poison(self.inner.read_ahead.lock())
    }

    /// Returns the file from which the kernel's asynchronous events are read.
    pub(super) fn async_file(&self) -> &EventFile {
        &self.inner.async_file
    }

    /// Returns the driver-level context, without the state that this type adds.
    #[inline]
    pub(super) fn engine(&self) -> &DeviceContext {
        &self.inner.engine
    }

    /// Returns the driver of the device.
    pub(super) fn driver(&self) -> &AnyDriver {
        self.inner.engine.driver()
    }

    /// Returns the properties in which the driver differs from other drivers.
    pub(crate) fn driver_capabilities(&self) -> &Capabilities {
        self.inner.engine.capabilities()
    }

    /// Returns the name of the driver, with the version of its ABI.
    pub(super) fn driver_name(&self) -> String {
        driver_name(&self.inner.device)
    }

    /// Returns the interface through which commands are issued.
    pub(super) fn commands(&self) -> CommandContext<'_> {
        self.inner.engine.commands()
    }

    pub(crate) fn file(&self) -> &UverbsFile {
        self.inner.engine.file()
    }

    /// Issues a command for `operation` on `what` of this device.
    pub(crate) fn command<C: Command>(
        &self,
        operation: &'static str,
        what: &str,
        request: C,
    ) -> Result<C::Response> {
        let answered = self.commands().command(request);
        answered.map(|(response, ())| response).map_err(|refused| match makes_object::<C>() {
            true => self.creation_error(operation, what, refused),
            false => self.refused(operation, what, refused),
        })
    }

    /// Returns an error for `operation` on `what` in a child of the process that opened the device.
    ///
    /// Called first in functions that take a lock or write to a ring. A lock that another thread
    /// held during the fork stays locked in the child.
    #[inline]
    pub(crate) fn check_process(
        &self,
        operation: &'static str,
        what: impl FnOnce() -> String,
    ) -> Result<()> {
        match self.file().is_owner_fast() {
            true => Ok(()),
            false => self.check_process_slow(operation, what),
        }
    }

    #[cold]
    #[inline(never)]
    fn check_process_slow(
        &self,
        operation: &'static str,
        what: impl FnOnce() -> String,
    ) -> Result<()> {
        let checked = self.file().check_process();
        checked.map_err(|refused| self.refused(operation, &what(), refused))
    }

    /// Returns an error if [`check_process`](Self::check_process) does, or if the device was
    /// removed.
    pub(crate) fn check_usable(
        &self,
        operation: &'static str,
        what: impl FnOnce() -> String,
    ) -> Result<()> {
        let checked = self.commands().check();
        checked.map_err(|refused| self.refused(operation, &what(), refused))
    }
}

impl EventOwner for Context {
    fn check_process(&self, operation: &'static str, what: &'static str) -> Result<()> {
        self.check_process(operation, || what.to_owned())
    }

    fn refused(&self, operation: &'static str, what: &'static str, refused: CommandError) -> Error {
        self.refused(operation, what, refused)
    }
}

/// Returns the name of the driver of `device`, with the version of its ABI.
fn driver_name(device: &Device) -> String {
    let driver = device.driver().unwrap_or(DriverId::RDMA_DRIVER_UNKNOWN);
    let version = device.uverbs().and_then(CharDevice::abi_version);
    let version = version.map_or_else(String::new, |version| format!(", ABI version {version}"));
    format!("{driver}{version}")
}

/// Returns `true` if `C` creates an object whenever it succeeds.
///
/// EAGAIN of such a command then means that the rdma cgroup's limit is reached. OPEN_XRCD returns
/// EAGAIN for another reason.
const fn makes_object<C: Command>() -> bool {
    matches!(
        C::NUMBER,
        IB_USER_VERBS_CMD_ALLOC_PD
            | IB_USER_VERBS_CMD_ALLOC_MW
            | IB_USER_VERBS_CMD_CREATE_AH
            | IB_USER_VERBS_CMD_CREATE_CQ
            | IB_USER_VERBS_CMD_CREATE_QP
            | IB_USER_VERBS_CMD_OPEN_QP
            | IB_USER_VERBS_CMD_CREATE_SRQ
            | IB_USER_VERBS_CMD_CREATE_XSRQ
    )
}

impl_ptr_eq!(Context, inner);
