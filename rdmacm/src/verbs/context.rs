//! Opened devices.

use std::sync::{Arc, Mutex, OnceLock, Weak};

use nix::errno::Errno;
use verbs_abi::{
    AlignedU64, Command, IB_USER_VERBS_CMD_ALLOC_MW, IB_USER_VERBS_CMD_ALLOC_PD,
    IB_USER_VERBS_CMD_CREATE_AH, IB_USER_VERBS_CMD_CREATE_CQ, IB_USER_VERBS_CMD_CREATE_QP,
    IB_USER_VERBS_CMD_CREATE_SRQ, IB_USER_VERBS_CMD_CREATE_XSRQ, IB_USER_VERBS_CMD_OPEN_QP,
    ib_uverbs_ex_query_device, ib_uverbs_ex_query_device_resp, ib_uverbs_query_device,
    ib_uverbs_query_device_resp, ib_uverbs_query_port, ib_uverbs_query_port_resp,
};

use super::event_file::{EventFile, EventOwner, READ};
use super::same::equal_if_same;
use crate::device::{self, Chardev, Device, DriverId, GidEntry, Guid, Transport};
use crate::driver::{Capabilities, CommandContext, CreateError, DeviceInfo, Opened};
use crate::drivers::any::AnyDriver;
use crate::engine::DeviceContext;
use crate::error::{Error, ErrorKind, IntoError as _, Result, Wait, hint, node_error};
use crate::lock::unpoisoned;
use crate::sys::command::Refused;
use crate::sys::per_process::PerProcess;
use crate::sys::uverbs::UverbsFile;

/// An opened device: one open `/dev/infiniband/uverbsN`.
///
/// A clone is the same context. The context closes when the last of its clones and of the objects
/// made in it is gone.
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
    device: Device,
    completion_vectors: u32,
    depths: OnceLock<Depths>,
}

/// How many RDMA reads and atomics a queue pair can have outstanding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Depths {
    /// As the responder: `max_qp_rd_atom` of a device.
    pub(crate) responder_resources: u8,
    /// As the initiator: `max_qp_init_rd_atom` of a device.
    pub(crate) initiator_depth: u8,
}

impl Depths {
    /// More than any device can do, and not what means the maximum.
    pub(crate) const MOST: Self = Self { responder_resources: 254, initiator_depth: 254 };

    /// What a device says that it can do. One that can do more than 254 is as good as one that can
    /// do that: the connection manager has a byte for it, and 255 in it means the maximum.
    fn of_device(responder_resources: u32, initiator_depth: u32) -> Self {
        let byte = |depth: u32| u8::try_from(depth.min(254)).expect("at most 254");
        Self {
            responder_resources: byte(responder_resources),
            initiator_depth: byte(initiator_depth),
        }
    }

    /// What is within both.
    pub(crate) fn within(self, other: Self) -> Self {
        Self {
            responder_resources: self.responder_resources.min(other.responder_resources),
            initiator_depth: self.initiator_depth.min(other.initiator_depth),
        }
    }
}

static WAIT: Wait = Wait { operation: READ, subject: "the asynchronous events" };

/// The contexts that ids share, one for each device that is in use.
static SHARED: PerProcess<Mutex<Vec<Weak<Inner>>>> = PerProcess::new();

impl Context {
    /// Opens a device.
    ///
    /// `IB_USER_VERBS_CMD_GET_CONTEXT`. Completion queues and queue pairs are to be had on rxe,
    /// siw, and devices whose driver keeps its queues in the kernel (hfi1, qib); on another driver's
    /// device they are [`ErrorKind::Unsupported`]. So is opening where the driver asks for more than the plain
    /// command (mlx4, mlx5, irdma and others): of such a device the connection manager alone is to be had, for queue
    /// pairs that the program has by other means.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Remedy`] with ENOENT where the node is missing, with EACCES where it is closed
    /// to the user, with EMFILE where the process has no more descriptors, with EAGAIN where its rdma cgroup has
    /// no more contexts, or mlx5 is not ready; EIO or ENXIO where the device went; [`ErrorKind::Unsupported`] where a
    /// driver that this crate does not know says EINVAL or EFAULT.
    #[doc(alias = "ibv_open_device")]
    pub fn open(device: &Device) -> Result<Self> {
        const OPERATION: &str = "open the device";
        let subject = || device.name().to_owned();
        let Some(node) = device.uverbs() else {
            let reason = format!("it has no verbs node; {}", hint::MODULES);
            let kind = ErrorKind::Invalid { errno: Errno::ENODEV as i32, reason: reason.into() };
            return Err(Error::new(OPERATION, subject(), kind));
        };
        let driver = device.driver().unwrap_or(DriverId::RDMA_DRIVER_UNKNOWN);
        let path = node.path();
        let file = UverbsFile::open(&path, node.device_number(), driver)
            .map_err(|failure| node_error(failure, &path))?;
        let info = DeviceInfo { driver: device.driver(), abi_version: node.abi_version() };
        let (engine, opened) = DeviceContext::open(file, &info).map_err(|error| {
            let refused = match error {
                CreateError::Command(refused) => refused,
                CreateError::Map(errno) => Refused::Os(errno),
                CreateError::Unsupported(_) | CreateError::UnknownDriver => {
                    let what = format!("{} wants more than the plain command", driver_name(device));
                    return Error::new(OPERATION, subject(), ErrorKind::Unsupported(what.into()));
                }
            };
            refused.during(OPERATION, subject()).with_remedy(Errno::EAGAIN, hint::CONTEXTS)
        })?;
        Ok(Self::of(device, engine, opened))
    }

    /// A context on the null driver, which needs no kernel: for tests, and for benchmarks of what the library itself costs.
    ///
    /// Its sends complete at once and take receives of their own queue pair; no data moves.
    #[cfg(feature = "null")]
    pub fn null() -> Self {
        Self::on_null(AnyDriver::Null(crate::drivers::null::Null::default()))
    }

    /// A context on a driver that issues no commands of its own. Other commands succeed and return zeros.
    #[cfg(any(test, feature = "null"))]
    pub(super) fn on_null(driver: AnyDriver) -> Self {
        Self::on_file(UverbsFile::silent(), driver)
    }

    /// A context on a driver that issues no commands of its own, whose other commands go to `file`.
    #[cfg(any(test, feature = "null"))]
    pub(super) fn on_file(file: UverbsFile, driver: AnyDriver) -> Self {
        let async_events = std::fs::File::open("/dev/null").expect("/dev/null").into();
        let engine = DeviceContext::new(file, driver);
        Self::of(&Device::named("null0"), engine, Opened { async_events, completion_vectors: 1 })
    }

    /// Takes a context of `device` that was opened.
    fn of(device: &Device, engine: DeviceContext, opened: Opened) -> Self {
        let inner = Inner {
            engine,
            async_file: EventFile::new(opened.async_events, &WAIT),
            device: device.clone(),
            completion_vectors: opened.completion_vectors,
            depths: OnceLock::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The context that the process's ids of a device share, which is what their
    /// [`CmId::context`](crate::cm::CmId::context) returns: for what is made before there is an id,
    /// or serves several of them. Opened by the first who asks, closed by the last who holds it.
    ///
    /// The C library's `rdma_get_devices` returns one for each device.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Self::open).
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

    /// The same for the device that the kernel names to an id.
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
        let mut shared = unpoisoned(SHARED.lock());
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

    /// The device.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Whether the device is known to be gone: an id that uses this context was told so
    /// ([`DeviceRemoval`](crate::cm::EventType::DeviceRemoval)), or an
    /// [asynchronous event](Self::async_events) said that the device failed
    /// (`IB_EVENT_DEVICE_FATAL`).
    ///
    /// Posts and commands are [`ErrorKind::DeviceGone`] from then on, and [`shared`](Self::shared)
    /// does not hand out the context again. What is left to do is done as before: queue pairs go to
    /// ERR and are drained, what has completed is polled, events are read, objects are destroyed
    /// and dropped. The kernel keeps a removed device until its contexts are closed, and rxe and
    /// siw do not let go of theirs before: drop them, and all that was made in them.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.inner.engine.is_removed()
    }

    /// Marks the device as gone, for ever: one that comes back is another, with contexts of its own.
    pub(crate) fn mark_gone(&self) {
        self.inner.engine.set_removed();
    }

    /// Which protocol is under the verbs. A node that the kernel's connection manager does not
    /// serve counts as InfiniBand.
    pub fn transport(&self) -> Transport {
        self.inner.device.transport_of_verbs()
    }

    /// How many completion vectors the device has, at least 1: see
    /// [`CompletionQueue::on_vector`](super::CompletionQueue::on_vector).
    #[doc(alias = "num_comp_vectors")]
    pub fn completion_vectors(&self) -> u32 {
        self.inner.completion_vectors
    }

    /// The device's attributes.
    ///
    /// `IB_USER_VERBS_CMD_QUERY_DEVICE`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DeviceGone`], [`ErrorKind::WrongProcess`].
    #[doc(alias = "ibv_query_device")]
    pub fn query_device(&self) -> Result<ib_uverbs_query_device_resp> {
        let request = ib_uverbs_query_device { response: AlignedU64::default() };
        self.command("query", "", request)
    }

    /// The same with what came later: on-demand paging, flags above the 32nd and more; zero where
    /// the kernel does not know them.
    ///
    /// `IB_USER_VERBS_EX_CMD_QUERY_DEVICE`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DeviceGone`], [`ErrorKind::WrongProcess`].
    #[doc(alias = "ibv_query_device_ex")]
    pub fn query_device_extended(&self) -> Result<ib_uverbs_ex_query_device_resp> {
        self.command("query", "", ib_uverbs_ex_query_device::default())
    }

    /// The attributes of port `port`, counted from 1.
    ///
    /// `IB_USER_VERBS_CMD_QUERY_PORT`.
    ///
    /// # Errors
    ///
    /// EINVAL where there is no such port; [`ErrorKind::DeviceGone`], [`ErrorKind::WrongProcess`].
    #[doc(alias = "ibv_query_port")]
    pub fn query_port(&self, port: u8) -> Result<ib_uverbs_query_port_resp> {
        let request = ib_uverbs_query_port {
            response: AlignedU64::default(),
            port_num: port,
            reserved: [0; 7],
        };
        self.command("query", "port", request)
    }

    /// The entries of the GID table of port `port`, counted from 1, that are in use, in order.
    ///
    /// The ioctl's method `QUERY_GID_TABLE`, one call; where the kernel has none (it came with Linux
    /// 5.10) or refuses it, [`Port::gids`](device::Port::gids), which reads sysfs, with calls for each
    /// slot. The network device of an entry is known from sysfs only.
    ///
    /// # Errors
    ///
    /// EINVAL where there is no such port; ENOENT where the ioctl is refused and sysfs is not mounted;
    /// [`ErrorKind::DeviceGone`], [`ErrorKind::WrongProcess`].
    #[doc(alias = "ibv_query_gid")]
    #[doc(alias = "ibv_query_gid_ex")]
    #[doc(alias = "ibv_query_gid_table")]
    pub fn gids(&self, port: u8) -> Result<Vec<GidEntry>> {
        /// Most devices have fewer, and so many take little to clear.
        const FEW: u16 = 64;
        /// As many as fit in 16 bits of length.
        const MANY: u16 = 2047;
        self.check_usable("query", || "the GID table".to_owned())?;
        let file = self.file();
        device::gids_of_opened(&self.inner.device, port.into(), || match file.gid_table(FEW) {
            // Among other reasons, where they are more.
            Err(Refused::Os(Errno::EINVAL)) => file.gid_table(MANY),
            listed => listed,
        })
    }

    /// What [`query_device`](Self::query_device) says of depths, asked once.
    pub(crate) fn depth_limits(&self) -> Result<Depths> {
        if let Some(depths) = self.inner.depths.get() {
            return Ok(*depths);
        }
        let answer = self.query_device()?;
        let depths = Depths::of_device(answer.max_qp_rd_atom, answer.max_qp_init_rd_atom);
        Ok(*self.inner.depths.get_or_init(|| depths))
    }

    /// Where the kernel's asynchronous events come from.
    pub(super) fn async_file(&self) -> &EventFile {
        &self.inner.async_file
    }

    /// The open device without its owners.
    #[inline]
    pub(super) fn engine(&self) -> &DeviceContext {
        &self.inner.engine
    }

    /// The driver of the device.
    pub(super) fn driver(&self) -> &AnyDriver {
        self.inner.engine.driver()
    }

    /// The facts in which the driver differs from others.
    pub(crate) fn driver_capabilities(&self) -> &Capabilities {
        self.inner.engine.capabilities()
    }

    /// The name of the driver, with the version of its ABI.
    pub(super) fn driver_name(&self) -> String {
        driver_name(&self.inner.device)
    }

    /// The way of commands to the kernel.
    pub(super) fn commands(&self) -> CommandContext<'_> {
        self.inner.engine.commands()
    }

    pub(crate) fn file(&self) -> &UverbsFile {
        self.inner.engine.file()
    }

    /// Sends a command for `operation` on `what` of this device.
    pub(crate) fn command<C: Command>(
        &self,
        operation: &'static str,
        what: &str,
        request: C,
    ) -> Result<C::Response> {
        let answered = self.commands().command(request);
        answered.map(|(response, ())| response).map_err(|refused| match makes_object::<C>() {
            true => self.not_made(operation, what, refused),
            false => self.refused(operation, what, refused),
        })
    }

    /// Refuses `operation` on `what` of this device in a child of the process that opened it. First
    /// in calls that take a lock or store to a ring: a lock that another thread held while the
    /// process forked stays locked in the child.
    #[inline]
    pub(crate) fn check_process(
        &self,
        operation: &'static str,
        what: impl FnOnce() -> String,
    ) -> Result<()> {
        match self.file().surely_belongs_here() {
            true => Ok(()),
            false => self.check_process_with_care(operation, what),
        }
    }

    #[cold]
    #[inline(never)]
    fn check_process_with_care(
        &self,
        operation: &'static str,
        what: impl FnOnce() -> String,
    ) -> Result<()> {
        let checked = self.file().check_process();
        checked.map_err(|refused| self.refused(operation, &what(), refused))
    }

    /// The same, and where the device is gone.
    pub(crate) fn check_usable(
        &self,
        operation: &'static str,
        what: impl FnOnce() -> String,
    ) -> Result<()> {
        let checked = self.commands().check();
        checked.map_err(|refused| self.refused(operation, &what(), refused))
    }

    /// How errors name `what` of this device, or the device itself.
    pub(super) fn subject(&self, what: &str) -> String {
        let name = self.inner.device.name();
        if what.is_empty() { name.to_owned() } else { format!("{what} on {name}") }
    }

    /// The error of `operation` on `what` of this device.
    pub(crate) fn refused(&self, operation: &'static str, what: &str, refused: Refused) -> Error {
        let subject = self.subject(what);
        match refused {
            // The kernel took the driver away from under the context.
            Refused::Os(Errno::EIO) => {
                Error::new(operation, subject, ErrorKind::DeviceGone(Errno::EIO as i32))
            }
            refused => refused.during(operation, subject),
        }
    }

    /// The same of what makes an object, which the rdma cgroup counts.
    pub(crate) fn not_made(&self, operation: &'static str, what: &str, refused: Refused) -> Error {
        self.refused(operation, what, refused).with_remedy(Errno::EAGAIN, hint::OBJECTS)
    }

    /// The same of something that not every driver does, which `does` says.
    pub(super) fn refused_or_unsupported(
        &self,
        operation: &'static str,
        what: &str,
        does: &str,
        refused: Refused,
    ) -> Error {
        match refused {
            Refused::Os(Errno::EOPNOTSUPP) => {
                let name = self.inner.device.name();
                let kind = ErrorKind::Unsupported(format!("{does} by the driver of {name}").into());
                Error::new(operation, self.subject(what), kind)
            }
            refused => self.refused(operation, what, refused),
        }
    }
}

impl EventOwner for Context {
    fn check_process(&self, operation: &'static str, what: &'static str) -> Result<()> {
        self.check_process(operation, || what.to_owned())
    }

    fn refused(&self, operation: &'static str, what: &'static str, refused: Refused) -> Error {
        self.refused(operation, what, refused)
    }
}

/// The name of the driver of `device`, with the version of its ABI.
fn driver_name(device: &Device) -> String {
    let driver = device.driver().unwrap_or(DriverId::RDMA_DRIVER_UNKNOWN);
    let version = device.uverbs().and_then(Chardev::abi_version);
    let version = version.map_or_else(String::new, |version| format!(", ABI version {version}"));
    format!("{driver}{version}")
}

/// Whether `C` makes an object whenever it succeeds, so that EAGAIN is the rdma cgroup's word. OPEN_XRCD has
/// another meaning for it.
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

equal_if_same!(Context, inner);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_that_no_byte_holds_are_cut_below_the_one_that_means_the_maximum() {
        for (said, kept) in
            [(0, 0), (128, 128), (254, 254), (255, 254), (256, 254), (u32::MAX, 254)]
        {
            let depths = Depths::of_device(said, 1);
            assert_eq!((depths.responder_resources, depths.initiator_depth), (kept, 1), "{said}");
            let depths = Depths::of_device(1, said);
            assert_eq!((depths.responder_resources, depths.initiator_depth), (1, kept), "{said}");
        }
    }
}
