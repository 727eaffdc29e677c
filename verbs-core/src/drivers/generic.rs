//! Drivers that keep their queues in the kernel: hfi1 and qib.
//!
//! There is no ring. Requests are collected here and posted by a command when the doorbell rings: POST_SEND, POST_RECV
//! or POST_SRQ_RECV. Such a command takes any number of requests, and reports the first one that the driver refuses.
//! POLL_CQ fetches completions. (`drivers/infiniband/core/uverbs_cmd.c`.)
//!
//! POST_SEND has fewer operations than the rings of other drivers. It has no inline data, and no field for the number
//! of an XRC shared receive queue.
//!
//! # Safety
//!
//! See [`driver`](crate::driver). Only the posts are unsafe, because they give memory to the device.
#![expect(unsafe_code, reason = "posting gives memory to the device")]

use verbs_abi::{
    AlignedU64, Command, IB_USER_VERBS_CMD_POLL_CQ, ib_send_flags, ib_uverbs_create_ah,
    ib_uverbs_create_ah_resp, ib_uverbs_create_cq, ib_uverbs_ex_create_qp, ib_uverbs_post_recv,
    ib_uverbs_post_recv_resp, ib_uverbs_post_send, ib_uverbs_post_send_resp,
    ib_uverbs_post_srq_recv, ib_uverbs_post_srq_recv_resp, ib_uverbs_recv_wr, ib_uverbs_send_wr,
    ib_uverbs_send_wr_atomic, ib_uverbs_send_wr_rdma, ib_uverbs_send_wr_ud,
    ib_uverbs_wr_opcode as Opcode, rdma_driver_id,
};
use zerocopy::{Immutable, IntoBytes};

use crate::driver::checks::{check_send, count, inline, length, total};
use crate::driver::commands::{self, ArmedByCommand, get_context};
use crate::driver::{
    BuiltIn, Capabilities, CommandContext, CqControls, CqOps, CreateError, CreateSrq, CreatedCq,
    CreatedQp, CreatedSrq, DeviceInfo, Doorbell, Driver, Opened, PollError, PostError, Posted,
    RecvOps, SendOps,
};
use crate::sys::uverbs::{MOST_POSTED, Polled, UverbsFile};
use crate::work::{
    AddressVector, Completion, Payload, PdNumber, QpState, QpType, ReceiveRequest, SendOperation,
    SendRequest, Sge,
};

/// Maximum number of scatter/gather entries of a request, so that a request fits into a command.
const MOST_SGES: u32 = 1024;

/// The reason why an XRC initiator sends nothing.
const NO_SRQ_NUMBER: &str =
    "XRC sends, because the kernel's command has no field for the peer's shared receive queue";

/// The driver of devices that keep their queues in the kernel.
#[derive(Debug)]
pub struct Generic {
    /// `true` if the requests of a shared receive queue survive resizing.
    ///
    /// `rvt_modify_srq` carries over the requests of a ring that programs have mapped, but this crate posts by
    /// commands.
    srq_resize_keeps_requests: bool,
}

impl BuiltIn for Generic {
    /// Returns `true` if the driver serves POLL_CQ, which drivers of user-space queues refuse.
    ///
    /// Since Linux 5.11 the driver itself declares the support, and not a table. Only rdmavt, with hfi1 and qib,
    /// serves POLL_CQ.
    fn supports(_: &DeviceInfo, file: &UverbsFile) -> bool {
        file.offers(IB_USER_VERBS_CMD_POLL_CQ)
    }

    fn open(device: &DeviceInfo, file: &mut UverbsFile) -> Result<(Self, Opened), CreateError> {
        let is_rdmavt = matches!(
            device.driver,
            Some(rdma_driver_id::RDMA_DRIVER_HFI1 | rdma_driver_id::RDMA_DRIVER_QIB)
        );
        Ok((Self { srq_resize_keeps_requests: !is_rdmavt }, get_context::<()>(file)?))
    }
}

// SAFETY: the kernel completes a request when the device no longer uses its memory, and reports each completion once.
unsafe impl Driver for Generic {
    type CqRing = Box<CqRing>;
    type CqControl = ArmedByCommand;
    type SendRing = Box<SendRing>;
    type RecvRing = Box<RecvRing>;
    type QpData = ();

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            srq_resize_keeps_requests: self.srq_resize_keeps_requests,
            ..Capabilities::default()
        }
    }

    fn create_cq(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_create_cq,
    ) -> Result<CreatedCq<Self>, CreateError> {
        let (response, ()) = cx.command(request)?;
        let ring = Box::new(CqRing { handle: response.cq_handle, polled: Polled::new() });
        Ok(CreatedCq { response, ring, control: ArmedByCommand, memory: None })
    }

    fn create_qp(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_ex_create_qp,
        _: CqControls<'_, Self>,
    ) -> Result<CreatedQp<Self>, CreateError> {
        let qp_type = request.qp_type;
        let receives = request.is_srq == 0 && qp_type != QpType::IB_UVERBS_QPT_XRC_INI;
        let (mut response, ()) = commands::create_qp(cx, request)?;
        response.max_inline_data = 0;
        let batch = Batch::new(response.max_send_wr, response.max_send_sge);
        let send = Box::new(SendRing { qp_type, batch });
        let batch = Batch::new(response.max_recv_wr, response.max_recv_sge);
        let recv = receives.then(|| Box::new(RecvRing { shared: false, batch }));
        Ok(CreatedQp { response, send, recv, data: (), ece_options: 0, memory: None })
    }

    fn create_srq(
        &self,
        cx: CommandContext<'_>,
        request: CreateSrq,
        _: Option<&Self::CqControl>,
    ) -> Result<CreatedSrq<Self>, CreateError> {
        let (response, ()) = commands::create_srq(cx, request)?;
        let batch = Batch::new(response.max_wr, response.max_sge);
        let ring = Box::new(RecvRing { shared: true, batch });
        Ok(CreatedSrq { response, ring, on_destroyed: None, memory: None })
    }

    /// Sends name an address handle by its handle.
    fn create_ah(
        &self,
        cx: CommandContext<'_>,
        pd: PdNumber,
        request: ib_uverbs_create_ah,
    ) -> Result<(ib_uverbs_create_ah_resp, AddressVector), CreateError> {
        let (response, ()): (ib_uverbs_create_ah_resp, ()) = cx.command(request)?;
        Ok((response, AddressVector::new(pd, &response.ah_handle)))
    }
}

/// The part of a completion queue from which completions are fetched.
#[derive(Debug)]
pub struct CqRing {
    handle: u32,
    polled: Box<Polled>,
}

impl CqOps for CqRing {
    fn poll(&mut self, file: &UverbsFile, into: &mut [Completion]) -> Result<usize, PollError> {
        let mut taken = 0;
        while taken < into.len() {
            let rest = &mut into[taken..];
            let most = rest.len().min(Polled::MOST);
            let fetched = file.poll_cq(self.handle, most, &mut self.polled);
            let fetched = fetched
                .map_err(PollError::Command)
                .and_then(|fetched| fetched.map_err(PollError::Malformed));
            let fetched = match fetched {
                Ok(fetched) => fetched,
                // The completions that were taken before belong to the caller; the next poll fails again.
                Err(_) if taken > 0 => break,
                Err(error) => return Err(error),
            };
            rest.iter_mut().zip(fetched).for_each(|(place, wc)| *place = Completion(*wc));
            taken += fetched.len();
            if fetched.len() < most {
                break;
            }
        }
        Ok(taken)
    }
}

fn unsupported<T>(what: &'static str) -> Posted<T> {
    Err(PostError::Unsupported(what))
}

/// Requests that are collected.
#[derive(Debug)]
struct Batch<W> {
    requests: Vec<W>,
    /// Number of scatter/gather entries of each request.
    counts: Vec<u32>,
    /// The scatter/gather entries of all requests.
    sges: Vec<Sge>,
    frame: Vec<u8>,
    max_wr: u32,
    max_sge: u32,
}

impl<W: IntoBytes + Immutable> Batch<W> {
    fn new(max_wr: u32, max_sge: u32) -> Self {
        let max_sge = max_sge.min(MOST_SGES);
        let (requests, counts, sges, frame) = Default::default();
        Self { requests, counts, sges, frame, max_wr, max_sge }
    }

    /// Returns the number of scatter/gather entries, if there is room for a request with these entries.
    fn room_for(&self, sges: &[Sge]) -> Posted<u32> {
        let count = count(sges, self.max_sge)?;
        length(total(sges))?;
        match self.requests.len() < self.max_wr as usize {
            true => Ok(count),
            false => Err(PostError::Full(self.max_wr)),
        }
    }

    fn store(&mut self, request: W, sges: &[Sge]) {
        self.requests.push(request);
        self.counts.push(u32::try_from(sges.len()).expect("at most 1024"));
        self.sges.extend_from_slice(sges);
    }

    /// Posts the collected requests by a command.
    ///
    /// `request` creates the command from the number of requests, the number of scatter/gather entries, and the length
    /// of a request.
    ///
    /// `bad_wr` is the number, from 1, of the first one that the kernel did not post.
    ///
    /// # Safety
    ///
    /// The caller keeps the contract of [`SendOps::store`] or [`RecvOps::store`], for all requests that were stored.
    unsafe fn post<C: Command>(
        &mut self,
        file: &UverbsFile,
        request: impl Fn(u32, u32, u32) -> C,
        bad_wr: fn(C::Response) -> u32,
    ) -> Posted {
        let (mut first, mut first_sge) = (0, 0);
        let mut outcome = Ok(());
        while first < self.requests.len() && outcome.is_ok() {
            let (count, sges) = self.fitting(first);
            let behind = [
                self.requests[first..first + count].as_bytes(),
                self.sges[first_sge..first_sge + sges].as_bytes(),
            ];
            let number = |length: usize| u32::try_from(length).expect("a command is short");
            let request = request(number(count), number(sges), number(size_of::<W>()));
            // SAFETY: the contract of this function is that of the callee.
            let (response, posted) = unsafe { file.post(request, behind, &mut self.frame) };
            outcome = posted.map_err(|refused| {
                let bad = usize::try_from(bad_wr(response)).unwrap_or(usize::MAX);
                // Zero means that the kernel did not call the driver.
                let posted = bad.clamp(1, count) - 1;
                (refused, self.requests.len() - first - posted)
            });
            first += count;
            first_sge += sges;
        }
        self.requests.clear();
        self.counts.clear();
        self.sges.clear();
        outcome.map_err(|(refused, unposted)| PostError::PartiallyPosted { refused, unposted })
    }

    /// Returns the number of requests from `first` on that fit into one command, and of their entries.
    fn fitting(&self, first: usize) -> (usize, usize) {
        let (mut count, mut sges, mut length) = (0, 0, 0);
        for more in self.counts[first..].iter().map(|more| *more as usize) {
            length += size_of::<W>() + more * size_of::<Sge>();
            if length > MOST_POSTED {
                break;
            }
            count += 1;
            sges += more;
        }
        (count, sges)
    }
}

/// Sends that are collected for the kernel.
#[derive(Debug)]
pub struct SendRing {
    qp_type: QpType,
    batch: Batch<ib_uverbs_send_wr>,
}

impl SendRing {
    /// Returns the element of a request, without its scatter/gather entries.
    fn element(&self, request: &SendRequest<'_>) -> Posted<ib_uverbs_send_wr> {
        let base = ib_uverbs_send_wr {
            wr_id: request.wr_id.into(),
            send_flags: ib_send_flags::from_bits_retain(request.flags.bits()),
            ..ib_uverbs_send_wr::default()
        };
        let of = |opcode| ib_uverbs_send_wr { opcode, ..base };
        let remote = |opcode, remote_addr: u64, rkey| {
            let memory =
                ib_uverbs_send_wr_rdma { remote_addr: remote_addr.into(), rkey, reserved: 0 };
            ib_uverbs_send_wr { wr: memory.into(), ..of(opcode) }
        };
        let atomic = |opcode, remote_addr: u64, rkey, compare_add: u64, swap: u64| {
            let atomic = ib_uverbs_send_wr_atomic {
                remote_addr: remote_addr.into(),
                compare_add: compare_add.into(),
                swap: swap.into(),
                rkey,
                reserved: 0,
            };
            ib_uverbs_send_wr { wr: atomic.into(), ..of(opcode) }
        };
        Ok(match request.operation {
            SendOperation::Send
            | SendOperation::SendWithImm { .. }
            | SendOperation::SendWithInvalidate { .. }
            | SendOperation::WriteWithImm { .. }
                if self.qp_type == QpType::IB_UVERBS_QPT_XRC_INI =>
            {
                return unsupported(NO_SRQ_NUMBER);
            }
            SendOperation::AtSharedQueue { .. } => return unsupported(NO_SRQ_NUMBER),
            // Only a drain marker has no destination here.
            SendOperation::Send if self.qp_type == QpType::IB_UVERBS_QPT_UD => {
                return unsupported("a datagram without an address handle");
            }
            SendOperation::Send => of(Opcode::IB_UVERBS_WR_SEND),
            SendOperation::SendWithImm { imm_data } => {
                let ex = imm_data.to_be_bytes();
                ib_uverbs_send_wr { ex, ..of(Opcode::IB_UVERBS_WR_SEND_WITH_IMM) }
            }
            SendOperation::SendWithInvalidate { rkey } => {
                let ex = rkey.to_ne_bytes();
                ib_uverbs_send_wr { ex, ..of(Opcode::IB_UVERBS_WR_SEND_WITH_INV) }
            }
            SendOperation::SendTo { destination, imm_data } => {
                let datagram = ib_uverbs_send_wr_ud {
                    ah: destination.address.get(),
                    remote_qpn: destination.qp_num,
                    remote_qkey: destination.qkey,
                    reserved: 0,
                };
                let (opcode, ex) = match imm_data {
                    None => (Opcode::IB_UVERBS_WR_SEND, [0; 4]),
                    Some(number) => (Opcode::IB_UVERBS_WR_SEND_WITH_IMM, number.to_be_bytes()),
                };
                ib_uverbs_send_wr { wr: datagram.into(), ex, ..of(opcode) }
            }
            SendOperation::Write { remote_addr, rkey } => {
                remote(Opcode::IB_UVERBS_WR_RDMA_WRITE, remote_addr, rkey)
            }
            SendOperation::WriteWithImm { remote_addr, rkey, imm_data } => {
                let opcode = Opcode::IB_UVERBS_WR_RDMA_WRITE_WITH_IMM;
                let ex = imm_data.to_be_bytes();
                ib_uverbs_send_wr { ex, ..remote(opcode, remote_addr, rkey) }
            }
            SendOperation::Read { remote_addr, rkey } => {
                remote(Opcode::IB_UVERBS_WR_RDMA_READ, remote_addr, rkey)
            }
            SendOperation::CompareSwap { remote_addr, rkey, compare, swap } => {
                let opcode = Opcode::IB_UVERBS_WR_ATOMIC_CMP_AND_SWP;
                atomic(opcode, remote_addr, rkey, compare, swap)
            }
            SendOperation::FetchAdd { remote_addr, rkey, add } => {
                atomic(Opcode::IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD, remote_addr, rkey, add, 0)
            }
            SendOperation::AtomicWrite { .. }
            | SendOperation::Flush { .. }
            | SendOperation::LocalInvalidate { .. }
            | SendOperation::BindWindow(_) => {
                return unsupported("the kernel's command does not carry it");
            }
        })
    }
}

impl SendOps for SendRing {
    /// Collects a request.
    unsafe fn store(
        &mut self,
        _: Doorbell<'_>,
        state: QpState,
        request: &SendRequest<'_>,
    ) -> Posted {
        check_send(state)?;
        let sges = match request.payload {
            Payload::Gather(sges) => sges,
            Payload::Inline(bytes) => {
                inline(bytes, 0)?;
                &[]
            }
        };
        let mut element = self.element(request)?;
        element.num_sge = self.batch.room_for(sges)?;
        self.batch.store(element, sges);
        Ok(())
    }

    /// Posts the stored requests: `IB_USER_VERBS_CMD_POST_SEND`.
    #[inline(never)]
    fn ring(&mut self, at: Doorbell<'_>) -> Posted {
        let qp_handle = at.handle;
        let request = |wr_count, sge_count, wqe_size| ib_uverbs_post_send {
            response: AlignedU64::default(),
            qp_handle,
            wr_count,
            sge_count,
            wqe_size,
        };
        let bad_wr = |response: ib_uverbs_post_send_resp| response.bad_wr;
        // SAFETY: the callers that stored the requests guarantee the validity of their memory.
        unsafe { self.batch.post(at.file, request, bad_wr) }
    }
}

/// Receives that are collected for the kernel.
#[derive(Debug)]
pub struct RecvRing {
    shared: bool,
    batch: Batch<ib_uverbs_recv_wr>,
}

impl RecvOps for RecvRing {
    /// Collects a request.
    unsafe fn store(&mut self, request: &ReceiveRequest<'_>) -> Posted {
        let num_sge = self.batch.room_for(request.scatter)?;
        let element = ib_uverbs_recv_wr { wr_id: request.wr_id.into(), num_sge, reserved: 0 };
        self.batch.store(element, request.scatter);
        Ok(())
    }

    /// Posts the stored requests: `IB_USER_VERBS_CMD_POST_RECV` or `IB_USER_VERBS_CMD_POST_SRQ_RECV`.
    #[inline(never)]
    fn ring(&mut self, file: &UverbsFile, handle: u32) -> Posted {
        let response = AlignedU64::default();
        if self.shared {
            let request = |wr_count, sge_count, wqe_size| ib_uverbs_post_srq_recv {
                response,
                srq_handle: handle,
                wr_count,
                sge_count,
                wqe_size,
            };
            let bad_wr = |response: ib_uverbs_post_srq_recv_resp| response.bad_wr;
            // SAFETY: the callers that stored the requests guarantee the validity of their memory.
            return unsafe { self.batch.post(file, request, bad_wr) };
        }
        let request = |wr_count, sge_count, wqe_size| ib_uverbs_post_recv {
            response,
            qp_handle: handle,
            wr_count,
            sge_count,
            wqe_size,
        };
        let bad_wr = |response: ib_uverbs_post_recv_resp| response.bad_wr;
        // SAFETY: as above.
        unsafe { self.batch.post(file, request, bad_wr) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::SendFlags;

    #[test]
    fn command_has_requests_that_fit() {
        let fitting = |counts: &[u32], first| {
            let mut batch = Batch::<ib_uverbs_send_wr>::new(16, MOST_SGES);
            batch.counts.extend(counts);
            batch.fitting(first)
        };
        assert_eq!(fitting(&[1, 2, 3], 1), (2, 5));
        // Two requests of 56 bytes and 3743 entries of 16 bytes fill a command of 60,000 bytes.
        assert_eq!(fitting(&[1871, 1872], 0), (2, 3743));
        assert_eq!(fitting(&[1871, 1873], 0), (1, 1871));
        assert_eq!(fitting(&[1871, 1873], 1), (1, 1873));
    }

    #[test]
    fn element_has_remote_address() {
        let batch = Batch::new(1, MOST_SGES);
        let ring = SendRing { qp_type: QpType::IB_UVERBS_QPT_RC, batch };
        let (remote_addr, rkey) = (0x1000, 7);
        let operation = SendOperation::Read { remote_addr, rkey };
        let (payload, flags) = (Payload::Gather(&[]), SendFlags::empty());
        let request = SendRequest { wr_id: 5, operation, payload, flags };
        let element = ring.element(&request).expect("the request should be valid");
        let memory = ib_uverbs_send_wr_rdma { remote_addr: remote_addr.into(), rkey, reserved: 0 };
        assert_eq!(element.wr, <[u8; 32]>::from(memory));
    }
}
