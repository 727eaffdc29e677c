//! The data path of each driver: how its queues are made, posted to, polled and armed.
//!
//! The provider is chosen once, when a context is opened. A driver is one folder here and one
//! variant of each enum.
//!
//! # Safety
//!
//! Rings are memory that the kernel shares and may change at any time: indices are read and written
//! as atomics, elements copied by raw pointers, and no reference to an element is made. Nothing
//! that the kernel stores there is trusted to be in range.
#![expect(unsafe_code, reason = "registering and posting give memory to the device")]

mod error;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod generic;
mod kernel;
mod request;
mod rxe;
mod siw;

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use verbs_abi::siw::siw_uresp_alloc_ctx;
use verbs_abi::{
    Command, IB_USER_VERBS_CMD_POLL_CQ, ib_uverbs_create_ah, ib_uverbs_create_ah_resp,
    ib_uverbs_create_cq, ib_uverbs_create_cq_resp, ib_uverbs_create_qp_resp,
    ib_uverbs_create_srq_resp, ib_uverbs_ex_create_qp, ib_uverbs_modify_srq, ib_uverbs_reg_mr,
    ib_uverbs_reg_mr_resp, ib_uverbs_resize_cq,
};

pub(crate) use self::error::{PollError, PostError, Posted};
pub(crate) use self::kernel::Doorbell;
pub(crate) use self::siw::Leftovers;
use crate::device::{Chardev, Device, DriverId};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::command::Refused;
use crate::sys::remedy;
use crate::sys::uverbs::UverbsFile;
use crate::verbs::{Completion, Context, QpState, QpType, ReceiveRequest, SendRequest, Sge};

/// Which driver's data path a context has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Provider {
    /// Software RoCE.
    Rxe,
    /// Software iWARP.
    Siw,
    /// A driver that keeps its queues in the kernel.
    Generic,
    /// A driver whose rings this crate does not know.
    Unknown,
}

impl Provider {
    /// The provider of `device`, if its driver has the ABI version that is spoken here. `file` is the
    /// device's.
    ///
    /// What a driver of user-space queues has no use for, and refuses, is POLL_CQ. Since Linux 5.11 it is
    /// the driver that says so and not the author of a table: rdmavt, with hfi1 and qib, is the only one that
    /// serves it.
    pub(crate) fn of(device: &Device, file: &UverbsFile) -> Self {
        let version = device.uverbs().and_then(Chardev::abi_version);
        let speaks = |known: u32| version.is_none_or(|version| version == known);
        match device.driver() {
            Some(DriverId::RDMA_DRIVER_RXE) if speaks(2) => Self::Rxe,
            Some(DriverId::RDMA_DRIVER_SIW) if speaks(1) => Self::Siw,
            _ if file.offers(IB_USER_VERBS_CMD_POLL_CQ) => Self::Generic,
            _ => Self::Unknown,
        }
    }

    /// Whether a queue pair and its connection end together: the kernel moves the one to ERR as the other
    /// ends, and ends the connection as the program moves the queue pair there. It never leaves
    /// that state: the kernel ignores steps out of it, and says that they went well.
    pub(crate) fn ends_queue_pairs(self) -> bool {
        match self {
            Self::Siw => true,
            Self::Rxe | Self::Generic | Self::Unknown => false,
        }
    }

    /// Whether the kernel does not survive all that may be done with memory windows of type 2. rxe lets
    /// go of the queue pair of a window that is invalidated, where there is none too; and of that of a
    /// window that goes, where that went first: as a process ends, the newer one of two objects does.
    pub(crate) fn trips_over_windows(self) -> bool {
        match self {
            Self::Rxe => true,
            Self::Siw | Self::Generic | Self::Unknown => false,
        }
    }

    /// Makes `file` the context of `device`; the descriptor of its asynchronous events, and how many completion
    /// vectors it has.
    pub(crate) fn get_context(self, file: &UverbsFile, device: &Device) -> Result<(OwnedFd, u32)> {
        const OPERATION: &str = "open the device";
        let made = match self {
            Self::Siw => file.get_context::<siw_uresp_alloc_ctx>(),
            Self::Rxe | Self::Generic | Self::Unknown => file.get_context::<()>(),
        };
        made.map_err(|refused| match (self, refused) {
            // Drivers that look for a request, or a place for an answer, of their own.
            (Self::Unknown, Refused::Os(Errno::EINVAL | Errno::EFAULT)) => {
                let what = format!("{} wants more than the plain command", driver(device));
                let kind = ErrorKind::Unsupported(what.into());
                Error::new(OPERATION, device.name().to_owned(), kind)
            }
            (_, refused) => refused
                .during(OPERATION, device.name().to_owned())
                .with_remedy(Errno::EAGAIN, remedy::CONTEXTS),
        })
    }

    /// Registers memory.
    ///
    /// # Safety
    ///
    /// That of [`MemoryRegion::register`](crate::verbs::MemoryRegion::register), for the range of
    /// addresses in `request`.
    pub(crate) unsafe fn register_memory(
        self,
        context: &Context,
        request: ib_uverbs_reg_mr,
    ) -> Result<ib_uverbs_reg_mr_resp> {
        const OPERATION: &str = "register";
        let (file, length) = (context.file(), request.length.get());
        let what = || format!("{length} bytes of memory");
        context.check_usable(OPERATION, what)?;
        let registered = match self {
            // Its kernel would say nothing, and know the memory by its own addresses.
            Self::Siw if request.hca_va != request.start => {
                let how = "memory under other addresses than its own by siw";
                return Err(Error::new(OPERATION, what(), ErrorKind::Unsupported(how.into())));
            }
            // SAFETY: the contract is the same.
            Self::Siw => unsafe { siw::register_memory(file, request) },
            Self::Rxe | Self::Generic | Self::Unknown => {
                // SAFETY: as above.
                let registered = unsafe { file.register_memory(request, ()) };
                registered.map(|(response, ())| response)
            }
        };
        registered.map_err(|refused| context.not_made(OPERATION, &what(), refused))
    }

    /// Makes an address handle; the number that sends name it by.
    pub(crate) fn create_ah(
        self,
        context: &Context,
        request: ib_uverbs_create_ah,
    ) -> Result<(ib_uverbs_create_ah_resp, u32)> {
        match self {
            Self::Rxe => rxe::create_ah(context, request),
            Self::Generic => generic::create_ah(context, request),
            Self::Siw | Self::Unknown => Err(unsupported("create an address handle", context)),
        }
    }

    /// Makes a completion queue.
    pub(crate) fn create_cq(
        self,
        context: &Context,
        request: ib_uverbs_create_cq,
    ) -> Result<(ib_uverbs_create_cq_resp, CompletionRing, Arming)> {
        match self {
            Self::Rxe => {
                let (response, ring) = rxe::create_cq(context, request)?;
                Ok((response, CompletionRing::Rxe(ring), Arming::Command))
            }
            Self::Generic => {
                let (response, ring) = generic::create_cq(context, request)?;
                Ok((response, CompletionRing::Generic(Box::new(ring)), Arming::Command))
            }
            Self::Siw => {
                let (response, ring, arming) = siw::create_cq(context, request)?;
                Ok((response, CompletionRing::Siw(ring), Arming::Siw(arming)))
            }
            Self::Unknown => Err(unsupported("create a completion queue", context)),
        }
    }

    /// Makes a queue pair, with a receive queue of its own where it has no shared one.
    pub(crate) fn create_qp(
        self,
        context: &Context,
        request: ib_uverbs_ex_create_qp,
    ) -> Result<(ib_uverbs_create_qp_resp, SendRing, ReceiveRing)> {
        let absent = match request.qp_type {
            QpType::IB_UVERBS_QPT_XRC_INI => INITIATES,
            _ => SHARES,
        };
        match self {
            Self::Rxe => {
                let (response, send, receive) = rxe::create_qp(context, request)?;
                let receive = receive.map_or(ReceiveRing::Absent(absent), ReceiveRing::Rxe);
                Ok((response, SendRing::Rxe(send), receive))
            }
            Self::Siw => {
                let (response, send, receive) = siw::create_qp(context, request)?;
                let receive = receive.map_or(ReceiveRing::Absent(absent), ReceiveRing::Siw);
                Ok((response, SendRing::Siw(send), receive))
            }
            Self::Generic => {
                let (response, send, receive) = generic::create_qp(context, request)?;
                let receive = receive.map_or(ReceiveRing::Absent(absent), |receive| {
                    ReceiveRing::Generic(Box::new(receive))
                });
                Ok((response, SendRing::Generic(Box::new(send)), receive))
            }
            Self::Unknown => Err(unsupported("create a queue pair", context)),
        }
    }

    /// Makes a shared receive queue.
    pub(crate) fn create_srq<C>(
        self,
        context: &Context,
        request: C,
    ) -> Result<(ib_uverbs_create_srq_resp, ReceiveRing)>
    where
        C: Command<Response = ib_uverbs_create_srq_resp>,
    {
        match self {
            Self::Rxe => {
                let (response, ring) = rxe::create_srq(context, request)?;
                Ok((response, ReceiveRing::Rxe(ring)))
            }
            Self::Siw => {
                let (response, ring) = siw::create_srq(context, request)?;
                Ok((response, ReceiveRing::Siw(ring)))
            }
            Self::Generic => {
                let (response, ring) = generic::create_srq(context, request)?;
                Ok((response, ReceiveRing::Generic(Box::new(ring))))
            }
            Self::Unknown => Err(unsupported("create a shared receive queue", context)),
        }
    }

    /// Changes the limit of a shared receive queue.
    pub(crate) fn limit_srq(
        self,
        file: &UverbsFile,
        request: ib_uverbs_modify_srq,
    ) -> Result<(), Refused> {
        match self {
            Self::Rxe => rxe::limit_srq(file, request),
            Self::Siw | Self::Generic | Self::Unknown => file.command(request),
        }
    }
}

#[cold]
fn unsupported(operation: &'static str, context: &Context) -> Error {
    let device = context.device();
    let what = format!("the rings of {}", driver(device));
    Error::new(operation, format!("on {}", device.name()), ErrorKind::Unsupported(what.into()))
}

/// The driver of `device`, with the version of what it says to programs.
fn driver(device: &Device) -> String {
    let driver = device.driver().unwrap_or(DriverId::RDMA_DRIVER_UNKNOWN);
    let version = device.uverbs().and_then(Chardev::abi_version);
    let version = version.map_or_else(String::new, |version| format!(", ABI version {version}"));
    format!("{driver}{version}")
}

/// The program's end of a completion queue.
// With a tag of its own: one hidden in a field takes several instructions to read.
#[derive(Debug)]
#[repr(u8)]
pub(crate) enum CompletionRing {
    Rxe(rxe::CompletionRing),
    Siw(siw::CompletionRing),
    Generic(Box<generic::CompletionRing>),
    /// None, and why.
    Absent(&'static str),
}

impl CompletionRing {
    /// Takes completions off the ring; how many.
    #[inline(always)]
    pub(crate) fn poll(&mut self, into: &mut [Completion]) -> Result<usize, PollError> {
        match self {
            Self::Rxe(ring) => ring.poll(into).map_err(PollError::Malformed),
            Self::Siw(ring) => Ok(ring.poll(into)),
            Self::Generic(ring) => ring.poll(into),
            Self::Absent(why) => Err(PollError::Malformed(why)),
        }
    }

    /// The same where it takes least. `None`, and nothing is taken, where it fails or takes more.
    #[inline(always)]
    pub(crate) fn try_poll(&mut self, into: &mut [Completion]) -> Option<usize> {
        match self {
            Self::Rxe(ring) => ring.poll(into).ok(),
            Self::Siw(ring) => ring.is_empty().then_some(0),
            Self::Generic(_) | Self::Absent(_) => None,
        }
    }

    /// Changes the size of the queue whose ring this is; what it holds then.
    pub(crate) fn resize(
        &mut self,
        file: &UverbsFile,
        request: ib_uverbs_resize_cq,
    ) -> Result<u32, Refused> {
        match self {
            Self::Rxe(ring) => {
                let (response, info) = rxe::resize_cq(file, request)?;
                match ring.remap(file, &info) {
                    Ok(()) => Ok(response.cqe),
                    Err(errno) => {
                        *self = Self::Absent(LOST);
                        Err(Refused::Os(errno))
                    }
                }
            }
            Self::Siw(_) | Self::Generic(_) | Self::Absent(_) => {
                file.command(request).map(|resized| resized.cqe)
            }
        }
    }
}

/// What arms a completion queue. It is no part of the ring: arming waits for no poll.
#[derive(Debug)]
pub(crate) enum Arming {
    Command,
    Siw(siw::Arming),
}

impl Arming {
    /// Whether somebody may sleep on the queue, as far as the program can see.
    pub(crate) fn is_armed(&self) -> bool {
        match self {
            Self::Command => false,
            Self::Siw(arming) => arming.is_armed(),
        }
    }

    /// Arms the queue that the kernel knows as `handle`.
    pub(crate) fn request_notify(
        &self,
        context: &Context,
        handle: u32,
        solicited_only: bool,
    ) -> Result<()> {
        match self {
            Self::Command => kernel::request_notify(context, handle, solicited_only),
            Self::Siw(arming) => {
                arming.arm();
                Ok(())
            }
        }
    }
}

/// The program's end of a send queue.
// With a tag of its own: one hidden in a field takes several instructions to read.
#[derive(Debug)]
#[repr(u8)]
pub(crate) enum SendRing {
    Rxe(rxe::SendRing),
    Siw(siw::SendRing),
    Generic(Box<generic::SendRing>),
}

impl SendRing {
    /// Stores `request` in the ring of the queue pair of `doorbell`, in `state`.
    /// The device may look at it at once, and does when it is [rung](Self::ring) for.
    ///
    /// # Safety
    ///
    /// That of [`QueuePair::post_send`](crate::verbs::QueuePair::post_send).
    pub(crate) unsafe fn store(
        &mut self,
        doorbell: Doorbell<'_>,
        state: QpState,
        request: &SendRequest<'_>,
    ) -> Posted {
        match self {
            // SAFETY: the contract is the same.
            Self::Rxe(ring) => unsafe { ring.store(doorbell.context, state, request) },
            // SAFETY: as above.
            Self::Siw(ring) => unsafe { ring.store(doorbell, state, request) },
            // SAFETY: as above.
            Self::Generic(ring) => unsafe { ring.store(state, request) },
        }
    }

    /// The same in the least time; whether it is stored. It is not where that fails, nor where more is
    /// to be done for it.
    ///
    /// # Safety
    ///
    /// That of [`store`](Self::store).
    #[inline(always)]
    pub(crate) unsafe fn try_store(
        &mut self,
        context: &Context,
        state: QpState,
        request: &SendRequest<'_>,
    ) -> bool {
        match self {
            // SAFETY: the contract is the same.
            Self::Rxe(ring) => unsafe { ring.try_store(context, state, request) },
            // SAFETY: as above.
            Self::Siw(ring) => unsafe { ring.try_store(state, request) },
            Self::Generic(_) => false,
        }
    }

    /// Has the device look at what was stored since the last time.
    #[inline(always)]
    pub(crate) fn ring(&mut self, doorbell: Doorbell<'_>) -> Posted {
        match self {
            Self::Rxe(ring) => ring.ring(doorbell),
            Self::Siw(ring) => ring.ring(doorbell),
            Self::Generic(ring) => ring.ring(doorbell.context, doorbell.handle),
        }
    }

    /// What takes back requests that the driver does not complete, if it leaves any.
    pub(crate) fn leftovers(&self) -> Option<Leftovers> {
        match self {
            Self::Rxe(_) | Self::Generic(_) => None,
            Self::Siw(ring) => Some(ring.leftovers()),
        }
    }
}

/// Said of the receive queue of a queue pair that receives from a shared one.
const SHARES: &str = "it has no receive queue of its own, but a shared one";

/// Said of the receive queue of an XRC initiator.
const INITIATES: &str = "an XRC initiator only sends";

/// Said of a shared receive queue that the kernel has resized, and whose new ring is out of reach.
const LOST: &str = "its ring could not be mapped when it was resized";

/// The program's end of a receive queue.
// With a tag of its own: one hidden in a field takes several instructions to read.
#[derive(Debug)]
#[repr(u8)]
pub(crate) enum ReceiveRing {
    Rxe(rxe::ReceiveRing),
    Siw(siw::ReceiveRing),
    Generic(Box<generic::ReceiveRing>),
    /// There is none, and why.
    Absent(&'static str),
}

impl ReceiveRing {
    /// That the kernel looks at what is posted to a queue pair in `state`.
    pub(crate) fn check(&self, state: QpState) -> Posted {
        match self {
            Self::Rxe(_) | Self::Generic(_) => request::check_receive(state),
            Self::Siw(_) => siw::check_state(state),
            Self::Absent(_) => Ok(()),
        }
    }

    /// Stores `request`.
    ///
    /// # Safety
    ///
    /// That of [`QueuePair::post_recv`](crate::verbs::QueuePair::post_recv).
    pub(crate) unsafe fn store(&mut self, request: &ReceiveRequest<'_>) -> Posted {
        match self {
            // SAFETY: the contract is the same.
            Self::Rxe(ring) => unsafe { ring.store(request) },
            // SAFETY: as above.
            Self::Siw(ring) => unsafe { ring.store(request) },
            // SAFETY: as above.
            Self::Generic(ring) => unsafe { ring.store(request) },
            Self::Absent(why) => Err(PostError::Invalid(why)),
        }
    }

    /// The same in the least time; whether it is stored, and nobody need be told. It is not where that
    /// fails, nor with other than one piece of memory with something in it, nor where the driver keeps its queues in the
    /// kernel.
    ///
    /// # Safety
    ///
    /// That of [`store`](Self::store).
    #[inline(always)]
    pub(crate) unsafe fn try_store(&mut self, request: &ReceiveRequest<'_>) -> bool {
        let [Sge { addr, length: length @ 1.., lkey }] = *request.scatter else { return false };
        // A copy, of which is known what was just looked at.
        let scatter = &[Sge { addr, length, lkey }];
        let request = &ReceiveRequest { wr_id: request.wr_id, scatter };
        match self {
            // SAFETY: the contract is the same.
            Self::Rxe(ring) => unsafe { ring.store(request) }.is_ok(),
            // SAFETY: as above.
            Self::Siw(ring) => unsafe { ring.store(request) }.is_ok(),
            Self::Generic(_) | Self::Absent(_) => false,
        }
    }

    /// Tells the device of what was stored since the last time, where it does not see that. The kernel knows the
    /// queue pair, or the shared receive queue, as `handle`.
    #[inline]
    pub(crate) fn ring(&mut self, context: &Context, handle: u32) -> Posted {
        match self {
            Self::Rxe(_) | Self::Siw(_) | Self::Absent(_) => Ok(()),
            Self::Generic(ring) => ring.ring(context, handle),
        }
    }

    /// Stores a request without memory.
    pub(crate) fn store_nothing(&mut self, wr_id: u64) -> Posted {
        // SAFETY: the request names no memory.
        unsafe { self.store(&ReceiveRequest { wr_id, scatter: &[] }) }
    }

    /// As [`SendRing::leftovers`]. Without them the kernel looks for requests to flush only when the
    /// queue pair is told to go to ERR.
    pub(crate) fn leftovers(&self) -> Option<Leftovers> {
        match self {
            Self::Rxe(_) | Self::Generic(_) | Self::Absent(_) => None,
            Self::Siw(ring) => ring.leftovers(),
        }
    }

    /// Changes the size of the shared receive queue whose ring this is.
    pub(crate) fn resize(
        &mut self,
        file: &UverbsFile,
        request: ib_uverbs_modify_srq,
    ) -> Result<(), Refused> {
        match self {
            Self::Rxe(ring) => {
                let info = rxe::resize_srq(file, request)?;
                ring.remap(file, &info).map_err(|errno| {
                    *self = Self::Absent(LOST);
                    Refused::Os(errno)
                })
            }
            Self::Siw(_) | Self::Generic(_) | Self::Absent(_) => file.command(request),
        }
    }
}
