//! Dispatch to the drivers: a type for all drivers, and one for each associated type of a driver.
//!
//! Each function is one `match` that calls the function of the driver. The types have an explicit tag. A tag that is
//! hidden in a field takes several instructions to read.
//!
//! # Safety
//!
//! Each unsafe function calls the function of the driver with its own arguments.
#![expect(unsafe_code, reason = "passes posts and registrations on")]

use std::sync::Arc;

use verbs_abi::{
    ib_uverbs_alloc_pd_resp, ib_uverbs_create_ah, ib_uverbs_create_ah_resp, ib_uverbs_create_cq,
    ib_uverbs_ex_create_qp, ib_uverbs_ex_modify_qp, ib_uverbs_modify_srq, ib_uverbs_reg_mr,
    ib_uverbs_reg_mr_resp, ib_uverbs_resize_cq,
};

use super::generic::Generic;
use super::mlx5::Mlx5;
#[cfg(any(test, feature = "null"))]
use super::null::Null;
use super::rxe::Rxe;
use super::siw::Siw;
use super::unknown::Unknown;
use crate::driver::{
    Arm, BuiltIn, Capabilities, CommandContext, CqControlOps, CqControls, CqOps, CreateError,
    CreateSrq, CreatedCq, CreatedQp, CreatedSrq, DeviceInfo, Doorbell, Driver, External, Opened,
    OrphanedRequests, PollError, PostError, Posted, RecvOps, SendOps,
};
use crate::sys::command::CommandError;
use crate::sys::mapping::Mapping;
use crate::sys::uverbs::UverbsFile;
use crate::work::{AddressVector, Completion, PdNumber, QpState, ReceiveRequest, SendRequest, Sge};

/// The reason of an error for a resized queue whose new ring cannot be used.
const RING_UNUSABLE: &str =
    "the new ring could not be mapped or taken into use when the queue was resized";

const OTHER_DRIVER: &str = "a completion queue belongs to another driver";

/// A call with the send ring of a driver, which the compiler translates for each driver.
///
/// A function that calls several drivers saves the registers that any of them needs. So each driver can have a function
/// of its own.
pub trait SendRingCall {
    /// The result of the call.
    type Output;

    /// Makes the call with `ring`.
    fn on(self, ring: &mut impl SendOps) -> Self::Output;
}

/// A call of [`SendOps::try_store`].
struct TryStore<'a> {
    state: QpState,
    request: &'a SendRequest<'a>,
}

impl<'a> TryStore<'a> {
    /// Creates a call for the ring of one queue pair.
    ///
    /// # Safety
    ///
    /// The caller makes the call with this ring, and keeps the contract of [`SendOps::store`].
    #[inline(always)]
    unsafe fn new(state: QpState, request: &'a SendRequest<'a>) -> Self {
        Self { state, request }
    }
}

impl SendRingCall for TryStore<'_> {
    type Output = bool;

    #[inline(always)]
    fn on(self, ring: &mut impl SendOps) -> bool {
        // SAFETY: the creator of the call keeps the contract of the callee.
        unsafe { ring.try_store(self.state, self.request) }
    }
}

/// Makes `call` in the function of its caller, which saves a function call.
///
/// The driver that needs the most registers uses this function.
#[inline(always)]
fn call_inline<C: SendRingCall>(call: C, ring: &mut impl SendOps) -> C::Output {
    call.on(ring)
}

/// Makes `call` in a separate function, which saves only the registers that the driver needs.
#[inline(never)]
fn call_out_of_line<C: SendRingCall>(call: C, ring: &mut impl SendOps) -> C::Output {
    call.on(ring)
}

/// Generates the types for `all` drivers.
///
/// The drivers in `fast paths` implement the functions `try_*`: a match over few drivers takes fewer instructions than
/// one over all. The function beside each driver makes the [`SendRingCall`]s of the driver.
macro_rules! drivers {
    (
        fast paths: { $($(#[$fast_attribute:meta])* $fast:ident: $post:ident,)+ }
        all: { $($(#[$attribute:meta])* $name:ident,)+ }
    ) => {
        /// The driver of an open device.
        #[derive(Debug)]
        pub enum AnyDriver { $($(#[$attribute])* #[doc = concat!("The variant of the driver `", stringify!($name), "`.")] $name($name),)+ }

        /// The polled end of a completion queue.
        #[derive(Debug)]
        #[repr(u8)]
        pub enum AnyCqRing {
            $($(#[$attribute])* #[doc = concat!("The variant of the driver `", stringify!($name), "`.")] $name(<$name as Driver>::CqRing),)+
            /// No ring exists. The text is the reason.
            Absent(&'static str),
        }

        /// The shared part of a completion queue.
        #[derive(Debug)]
        pub enum AnyCqControl {
            $($(#[$attribute])* #[doc = concat!("The variant of the driver `", stringify!($name), "`.")] $name(<$name as Driver>::CqControl),)+
        }

        /// The posted end of a send queue.
        #[derive(Debug)]
        #[repr(u8)]
        pub enum AnySendRing {
            $($(#[$attribute])* #[doc = concat!("The variant of the driver `", stringify!($name), "`.")] $name(<$name as Driver>::SendRing),)+
            /// No ring exists. The text is the reason.
            Absent(&'static str),
        }

        /// The posted end of a receive queue.
        #[derive(Debug)]
        #[repr(u8)]
        pub enum AnyRecvRing {
            $($(#[$attribute])* #[doc = concat!("The variant of the driver `", stringify!($name), "`.")] $name(<$name as Driver>::RecvRing),)+
            /// No ring exists. The text is the reason.
            Absent(&'static str),
        }

        /// The data of a queue pair that belongs to neither queue alone.
        #[derive(Debug)]
        pub enum AnyQpData {
            $($(#[$attribute])* #[doc = concat!("The variant of the driver `", stringify!($name), "`.")] $name(<$name as Driver>::QpData),)+
        }

        // SAFETY: each function passes on to a driver, which keeps the promise of `Driver`.
        unsafe impl Driver for AnyDriver {
            type CqRing = AnyCqRing;
            type CqControl = AnyCqControl;
            type SendRing = AnySendRing;
            type RecvRing = AnyRecvRing;
            type QpData = AnyQpData;

            fn capabilities(&self) -> Capabilities {
                match self { $($(#[$attribute])* Self::$name(driver) => driver.capabilities(),)+ }
            }

            fn create_cq(
                &self,
                cx: CommandContext<'_>,
                request: ib_uverbs_create_cq,
            ) -> Result<CreatedCq<Self>, CreateError> {
                match self {
                    $($(#[$attribute])* Self::$name(driver) => {
                        let CreatedCq { response, ring, control, memory } =
                            driver.create_cq(cx, request)?;
                        let (ring, control) =
                            (AnyCqRing::$name(ring), AnyCqControl::$name(control));
                        Ok(CreatedCq { response, ring, control, memory })
                    })+
                }
            }

            fn create_qp(
                &self,
                cx: CommandContext<'_>,
                request: ib_uverbs_ex_create_qp,
                cqs: CqControls<'_, Self>,
            ) -> Result<CreatedQp<Self>, CreateError> {
                match (self, cqs.send, cqs.recv) {
                    $($(#[$attribute])* (
                        Self::$name(driver),
                        AnyCqControl::$name(send),
                        AnyCqControl::$name(recv),
                    ) => {
                        let CreatedQp { response, send, recv, data, ece_options, memory } =
                            driver.create_qp(cx, request, CqControls { send, recv })?;
                        let (send, recv, data) = (
                            AnySendRing::$name(send),
                            recv.map(AnyRecvRing::$name),
                            AnyQpData::$name(data),
                        );
                        Ok(CreatedQp { response, send, recv, data, ece_options, memory })
                    })+
                    _ => Err(CreateError::Unsupported(OTHER_DRIVER)),
                }
            }

            fn create_srq(
                &self,
                cx: CommandContext<'_>,
                request: CreateSrq,
                cq: Option<&AnyCqControl>,
            ) -> Result<CreatedSrq<Self>, CreateError> {
                match self {
                    $($(#[$attribute])* Self::$name(driver) => {
                        let cq = match cq {
                            Some(AnyCqControl::$name(cq)) => Some(cq),
                            Some(_) => return Err(CreateError::Unsupported(OTHER_DRIVER)),
                            None => None,
                        };
                        let CreatedSrq { response, ring, on_destroyed, memory } =
                            driver.create_srq(cx, request, cq)?;
                        let ring = AnyRecvRing::$name(ring);
                        Ok(CreatedSrq { response, ring, on_destroyed, memory })
                    })+
                }
            }

            fn create_ah(
                &self,
                cx: CommandContext<'_>,
                pd: PdNumber,
                request: ib_uverbs_create_ah,
            ) -> Result<(ib_uverbs_create_ah_resp, AddressVector), CreateError> {
                match self {
                    $($(#[$attribute])* Self::$name(driver) => driver.create_ah(cx, pd, request),)+
                }
            }

            fn create_pd(
                &self,
                cx: CommandContext<'_>,
            ) -> Result<ib_uverbs_alloc_pd_resp, CommandError> {
                match self {
                    $($(#[$attribute])* Self::$name(driver) => driver.create_pd(cx),)+
                }
            }

            unsafe fn register(
                &self,
                cx: CommandContext<'_>,
                request: ib_uverbs_reg_mr,
            ) -> Result<ib_uverbs_reg_mr_resp, CommandError> {
                match self {
                    $($(#[$attribute])* Self::$name(driver) => {
                        // SAFETY: the contract of this function is that of the callee.
                        unsafe { driver.register(cx, request) }
                    })+
                }
            }

            fn set_srq_limit(
                &self,
                cx: CommandContext<'_>,
                request: ib_uverbs_modify_srq,
            ) -> Result<(), CommandError> {
                match self {
                    $($(#[$attribute])* Self::$name(driver) => driver.set_srq_limit(cx, request),)+
                }
            }

            fn modify_qp_with_ece(
                &self,
                cx: CommandContext<'_>,
                request: ib_uverbs_ex_modify_qp,
                options: u32,
            ) -> Result<u32, CommandError> {
                match self {
                    $($(#[$attribute])* Self::$name(driver) => {
                        driver.modify_qp_with_ece(cx, request, options)
                    })+
                }
            }

            fn on_reset(&self, qp: &AnyQpData, cqs: CqControls<'_, Self>) {
                match (self, qp, cqs.send, cqs.recv) {
                    $($(#[$attribute])* (
                        Self::$name(driver),
                        AnyQpData::$name(qp),
                        AnyCqControl::$name(send),
                        AnyCqControl::$name(recv),
                    ) => driver.on_reset(qp, CqControls { send, recv }),)+
                    _ => {}
                }
            }

            fn on_destroyed(&self, qp: &AnyQpData, cqs: CqControls<'_, Self>) {
                match (self, qp, cqs.send, cqs.recv) {
                    $($(#[$attribute])* (
                        Self::$name(driver),
                        AnyQpData::$name(qp),
                        AnyCqControl::$name(send),
                        AnyCqControl::$name(recv),
                    ) => driver.on_destroyed(qp, CqControls { send, recv }),)+
                    _ => {}
                }
            }
        }

        impl CqOps for AnyCqRing {
            #[inline(always)]
            fn poll(
                &mut self,
                file: &UverbsFile,
                into: &mut [Completion],
            ) -> Result<usize, PollError> {
                match self {
                    $($(#[$attribute])* Self::$name(ring) => ring.poll(file, into),)+
                    Self::Absent(why) => Err(PollError::Absent(why)),
                }
            }

            #[inline(always)]
            fn try_poll(&mut self, into: &mut [Completion]) -> Option<usize> {
                match self {
                    $($(#[$fast_attribute])* Self::$fast(ring) => ring.try_poll(into),)+
                    _ => None,
                }
            }

            #[inline(always)]
            fn try_take(&mut self, into: &mut [Completion]) -> Option<usize> {
                match self {
                    $($(#[$fast_attribute])* Self::$fast(ring) => ring.try_take(into),)+
                    _ => None,
                }
            }

            fn sweep(&mut self) {
                match self {
                    $($(#[$attribute])* Self::$name(ring) => ring.sweep(),)+
                    Self::Absent(_) => {}
                }
            }

            fn resize(
                &mut self,
                cx: CommandContext<'_>,
                request: ib_uverbs_resize_cq,
                memory: &mut Option<Arc<Mapping>>,
            ) -> Result<u32, CreateError> {
                let resized = match self {
                    $($(#[$attribute])* Self::$name(ring) => ring.resize(cx, request, memory),)+
                    Self::Absent(_) => Ok(cx.file().command(request)?.cqe),
                };
                if let Err(CreateError::Map(_)) = resized {
                    *self = Self::Absent(RING_UNUSABLE);
                }
                resized
            }
        }

        impl CqControlOps for AnyCqControl {
            fn arm(&self, cx: CommandContext<'_>, arm: &Arm<'_>) -> Result<(), CommandError> {
                match self { $($(#[$attribute])* Self::$name(control) => control.arm(cx, arm),)+ }
            }

            fn is_armed(&self) -> bool {
                match self { $($(#[$attribute])* Self::$name(control) => control.is_armed(),)+ }
            }
        }

        impl SendOps for AnySendRing {
            unsafe fn store(
                &mut self,
                at: Doorbell<'_>,
                state: QpState,
                request: &SendRequest<'_>,
            ) -> Posted {
                match self {
                    // SAFETY: the contract of this function is that of the callee.
                    $($(#[$attribute])* Self::$name(ring) => unsafe {
                        ring.store(at, state, request)
                    },)+
                    Self::Absent(why) => Err(PostError::Invalid(why)),
                }
            }

            #[inline(always)]
            unsafe fn try_store(&mut self, state: QpState, request: &SendRequest<'_>) -> bool {
                // SAFETY: the contract of this function is that of the callee.
                let call = unsafe { TryStore::new(state, request) };
                match self {
                    $($(#[$fast_attribute])* Self::$fast(ring) => $post(call, ring),)+
                    _ => false,
                }
            }

            #[inline(always)]
            fn ring(&mut self, at: Doorbell<'_>) -> Posted {
                match self {
                    $($(#[$attribute])* Self::$name(ring) => ring.ring(at),)+
                    Self::Absent(_) => Ok(()),
                }
            }

            fn orphans(&self) -> Option<Box<dyn OrphanedRequests>> {
                match self {
                    $($(#[$attribute])* Self::$name(ring) => ring.orphans(),)+
                    Self::Absent(_) => None,
                }
            }
        }

        impl AnySendRing {
            /// Makes `call` with the ring of the driver, or with this one if the driver has no fast path.
            #[inline(always)]
            pub fn dispatch<C: SendRingCall>(&mut self, call: C) -> C::Output {
                match self {
                    $($(#[$fast_attribute])* Self::$fast(ring) => $post(call, ring),)+
                    other => call_out_of_line(call, other),
                }
            }
        }

        impl RecvOps for AnyRecvRing {
            fn check(&self, state: QpState) -> Posted {
                match self {
                    $($(#[$attribute])* Self::$name(ring) => ring.check(state),)+
                    Self::Absent(_) => Ok(()),
                }
            }

            unsafe fn store(&mut self, request: &ReceiveRequest<'_>) -> Posted {
                match self {
                    // SAFETY: the contract of this function is that of the callee.
                    $($(#[$attribute])* Self::$name(ring) => unsafe { ring.store(request) },)+
                    Self::Absent(why) => Err(PostError::Invalid(why)),
                }
            }

            #[inline(always)]
            unsafe fn try_store(&mut self, wr_id: u64, sge: Sge) -> bool {
                match self {
                    // SAFETY: the contract of this function is that of the callee.
                    $($(#[$fast_attribute])* Self::$fast(ring) => unsafe {
                        ring.try_store(wr_id, sge)
                    },)+
                    _ => false,
                }
            }

            #[inline]
            fn ring(&mut self, file: &UverbsFile, handle: u32) -> Posted {
                match self {
                    $($(#[$attribute])* Self::$name(ring) => ring.ring(file, handle),)+
                    Self::Absent(_) => Ok(()),
                }
            }

            fn orphans(&self) -> Option<Box<dyn OrphanedRequests>> {
                match self {
                    $($(#[$attribute])* Self::$name(ring) => ring.orphans(),)+
                    Self::Absent(_) => None,
                }
            }

            fn resize(
                &mut self,
                cx: CommandContext<'_>,
                request: ib_uverbs_modify_srq,
            ) -> Result<(), CreateError> {
                let resized = match self {
                    $($(#[$attribute])* Self::$name(ring) => ring.resize(cx, request),)+
                    Self::Absent(_) => Ok(cx.file().command(request)?),
                };
                if let Err(CreateError::Map(_)) = resized {
                    *self = Self::Absent(RING_UNUSABLE);
                }
                resized
            }
        }
    };
}

drivers! {
    fast paths: {
        Rxe: call_out_of_line,
        Siw: call_out_of_line,
        Mlx5: call_inline,
        #[cfg(any(test, feature = "null"))]
        Null: call_inline,
    }
    all: {
        Rxe,
        Siw,
        Mlx5,
        #[cfg(any(test, feature = "null"))]
        Null,
        Generic,
        Unknown,
        External,
    }
}

impl AnyDriver {
    /// Makes `file` a context of `device`, by the first driver that supports the device.
    pub fn open(device: &DeviceInfo, file: &mut UverbsFile) -> Result<(Self, Opened), CreateError> {
        fn open<D: BuiltIn>(
            device: &DeviceInfo,
            file: &mut UverbsFile,
            any: fn(D) -> AnyDriver,
        ) -> Option<Result<(AnyDriver, Opened), CreateError>> {
            let opened = D::supports(device, file).then(|| D::open(device, file))?;
            Some(opened.map(|(driver, opened)| (any(driver), opened)))
        }
        open(device, file, Self::Rxe)
            .or_else(|| open(device, file, Self::Siw))
            .or_else(|| open(device, file, Self::Mlx5))
            .or_else(|| open(device, file, Self::Generic))
            .or_else(|| open(device, file, Self::Unknown))
            .expect("the last one supports every device")
    }
}

impl AnyRecvRing {
    /// Stores `request` if that is quick and needs no doorbell.
    ///
    /// Such a request has one scatter/gather entry, which is not empty.
    ///
    /// Returns `false`, and stores nothing, for any other request, and if the request is refused.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`RecvOps::store`].
    #[inline(always)]
    pub unsafe fn try_store_request(&mut self, request: &ReceiveRequest<'_>) -> bool {
        let [Sge { addr, length: length @ 1.., lkey }] = *request.scatter else { return false };
        // SAFETY: the contract of this function is that of the callee.
        unsafe { self.try_store(request.wr_id, Sge { addr, length, lkey }) }
    }

    /// Stores a request without memory.
    pub fn store_nothing(&mut self, wr_id: u64) -> Posted {
        // SAFETY: the request names no memory.
        unsafe { self.store(&ReceiveRequest { wr_id, scatter: &[] }) }
    }
}
