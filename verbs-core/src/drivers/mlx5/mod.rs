//! NVIDIA ConnectX-4 and later, and BlueField (`mlx5`).
//!
//! Queues are memory of this process, whose addresses the create commands pass to the kernel. A request is stored in a
//! ring; a doorbell record in memory holds the number of posted blocks; and a store to a doorbell register makes the
//! device process them. Completions are polled from a ring that the device writes. Write commands and mappings of the
//! context's descriptor are enough for data; newer kernels allocate registers by ioctl. (`drivers/infiniband/hw/mlx5`,
//! uapi `mlx5-abi.h`; layouts of entries: `include/linux/mlx5/{qp,device,cq}.h`.)
//!
//! # Safety
//!
//! See [`driver`](crate::driver). The memory of a queue is that of a mapping which its owner keeps until the kernel has
//! destroyed the queue. Stores are ordered by [`driver::dma`](crate::driver::dma).
#![expect(unsafe_code, reason = "creates queues in memory of this process")]

mod address;
mod completion;
mod context;
#[cfg(fuzzing)]
pub mod fuzzing;
mod geometry;
mod memory;
mod opcode;
mod queue_pair;
mod receive;
mod register;
mod registers;
mod send;
mod table;
mod window;

use std::sync::{Arc, Mutex, Weak};

use nix::errno::Errno;
use verbs_abi::mlx5::{
    MLX5_IB_UVERBS_ABI_VERSION, mlx5_ib_alloc_pd_resp, mlx5_ib_create_ah_resp, mlx5_ib_create_cq,
    mlx5_ib_create_cq_flags, mlx5_ib_create_cq_resp, mlx5_ib_create_qp, mlx5_ib_create_qp_resp,
    mlx5_ib_create_srq, mlx5_ib_create_srq_resp, mlx5_ib_modify_qp, mlx5_ib_modify_qp_resp,
    mlx5_ib_qp_flags,
};
use verbs_abi::{
    AlignedU64, ib_uverbs_ah_attr, ib_uverbs_alloc_pd, ib_uverbs_alloc_pd_resp,
    ib_uverbs_create_ah, ib_uverbs_create_ah_resp, ib_uverbs_create_cq, ib_uverbs_create_cq_resp,
    ib_uverbs_ex_create_qp, ib_uverbs_ex_modify_qp, rdma_driver_id, rdma_link_layer,
};

use self::address::Network;
use self::completion::{CqControl, CqRing, Shared};
use self::context::Facts;
use self::geometry::{Limits, ReceiveSize, SendSize};
use self::memory::{CompletionRing, Links, QueueMemory};
use self::queue_pair::{Current, distinct};
use self::receive::RecvRing;
use self::send::SendRing;
use self::table::{SharedTable, Table, UserIndex};
use crate::driver::commands::{create_qp_in_memory, create_srq_in_memory, discard_qp};
use crate::driver::{
    BuiltIn, Capabilities, CommandContext, CqControls, CreateError, CreateSrq, CreatedCq,
    CreatedQp, CreatedSrq, DeviceInfo, Driver, FlushMode, OnDestroyed, Opened,
};
use crate::lock::ignore_poison;
use crate::sys::command::CommandError;
use crate::sys::uverbs::UverbsFile;
use crate::work::{AddressVector, PdNumber, QpType};

/// The driver of an mlx5 device.
#[derive(Debug)]
pub struct Mlx5 {
    facts: Facts,
    /// The link layers of the ports that were queried.
    link_layers: Mutex<Vec<(u8, rdma_link_layer)>>,
    /// The shared receive queues by their handles.
    shared_tables: Mutex<Vec<(u32, Weak<SharedTable>)>>,
}

impl BuiltIn for Mlx5 {
    fn supports(device: &DeviceInfo, _: &UverbsFile) -> bool {
        device.is(rdma_driver_id::RDMA_DRIVER_MLX5, MLX5_IB_UVERBS_ABI_VERSION)
    }

    fn open(_: &DeviceInfo, file: &mut UverbsFile) -> Result<(Self, Opened), CreateError> {
        let (facts, opened) = context::open(file)?;
        let (link_layers, shared_tables) = (Mutex::default(), Mutex::default());
        Ok((Self { facts, link_layers, shared_tables }, opened))
    }
}

/// The options of enhanced connection establishment (ECE) that CREATE_QP requests, as rdma-core does.
///
/// The device answers with those that it has.
const ECE_OPTIONS: u32 = 0x1000_0000;

/// The vendor of the options: the PCI vendor number of Mellanox, as rdma-core has it.
const ECE_VENDOR: u32 = 0x15b3;

impl Mlx5 {
    fn user_index(&self) -> Result<Arc<UserIndex>, CreateError> {
        let Some(indices) = &self.facts.user_indices else { return Ok(Arc::new(UserIndex::NONE)) };
        indices.take().map(Arc::new).ok_or(CreateError::Command(CommandError::Os(Errno::ENOMEM)))
    }

    /// Returns the table of the shared receive queue with `handle`.
    fn shared_table(&self, handle: u32) -> Result<Arc<SharedTable>, CreateError> {
        let tables = ignore_poison(self.shared_tables.lock());
        let table =
            tables.iter().find(|(of, _)| *of == handle).and_then(|(_, table)| table.upgrade());
        table.ok_or(CreateError::Command(CommandError::Os(Errno::EINVAL)))
    }

    fn remember_shared(&self, handle: u32, table: &Arc<SharedTable>) {
        let mut tables = ignore_poison(self.shared_tables.lock());
        // The kernel reuses the handle of a destroyed queue.
        tables.retain(|(of, table)| *of != handle && table.strong_count() > 0);
        tables.push((handle, Arc::downgrade(table)));
    }

    /// Returns the link layer of `port`, for which the kernel is asked once.
    fn link_layer(
        &self,
        cx: CommandContext<'_>,
        port: u8,
    ) -> Result<rdma_link_layer, CommandError> {
        let mut known = ignore_poison(self.link_layers.lock());
        if let Some((_, layer)) = known.iter().find(|(of, _)| *of == port) {
            return Ok(*layer);
        }
        let layer = context::link_layer(cx, port)?;
        known.push((port, layer));
        Ok(layer)
    }

    /// Returns the kind of network that an address is for.
    ///
    /// `mac` is the MAC address from the answer of CREATE_AH.
    fn network(
        &self,
        cx: CommandContext<'_>,
        attributes: &ib_uverbs_ah_attr,
        mac: [u8; 6],
    ) -> Result<Network, CreateError> {
        if self.link_layer(cx, attributes.port_num)? == rdma_link_layer::IB_LINK_LAYER_INFINIBAND {
            return Ok(Network::InfiniBand);
        }
        if !self.facts.resolves_addresses {
            let what = "a kernel that does not resolve the addresses of datagrams";
            return Err(CreateError::Unsupported(what));
        }
        let (port, index) = (attributes.port_num.into(), attributes.grh.sgid_index.into());
        Ok(Network::ethernet(mac, cx.file().gid_entry(port, index)))
    }
}

/// Returns the ring sizes of a queue pair, or the reason why there is none.
fn sizes(
    limits: &Limits,
    request: &ib_uverbs_ex_create_qp,
) -> Result<(SendSize, ReceiveSize), CreateError> {
    let ib_uverbs_ex_create_qp { qp_type, max_send_wr, max_send_sge, max_inline_data, .. } =
        *request;
    match qp_type {
        QpType::IB_UVERBS_QPT_RC
        | QpType::IB_UVERBS_QPT_UC
        | QpType::IB_UVERBS_QPT_UD
        | QpType::IB_UVERBS_QPT_XRC_INI => {}
        _ => return Err(CreateError::Unsupported("queue pairs of this type by mlx5")),
    }
    let send = SendSize::new(limits, qp_type, max_send_wr, max_send_sge, max_inline_data)?;
    let has_receives = request.is_srq == 0 && qp_type != QpType::IB_UVERBS_QPT_XRC_INI;
    let receives = if has_receives { request.max_recv_wr } else { 0 };
    let receive = ReceiveSize::new(limits, receives, request.max_recv_sge)?;
    Ok((send, receive))
}

// SAFETY: the device writes a completion when it no longer uses the memory of the request. Each entry of a completion
// queue is taken once. Its identifier comes from the table of the queue pair that the entry names. Each posted
// request in a table completes at most once.
unsafe impl Driver for Mlx5 {
    // Boxed: an object has room for the largest ring of all drivers.
    type CqRing = Box<CqRing>;
    type CqControl = CqControl;
    type SendRing = Box<SendRing>;
    type RecvRing = Box<RecvRing>;
    type QpData = Arc<Current>;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            flush: FlushMode::Device,
            raises_event_per_read: true,
            pins_queue_memory: true,
            ece_vendor: self.facts.has_ece.then_some(ECE_VENDOR),
            ..Capabilities::default()
        }
    }

    fn create_cq(
        &self,
        cx: CommandContext<'_>,
        mut request: ib_uverbs_create_cq,
    ) -> Result<CreatedCq<Self>, CreateError> {
        let entries = geometry::completions(request.cqe)?;
        request.cqe = entries - 1;
        let memory = QueueMemory::new([(entries as usize) << self.facts.completion_shift]);
        let memory = memory.map_err(CreateError::Map)?;
        let mapping = memory.mapping.clone();
        let ring = CompletionRing::new(mapping, entries, self.facts.completion_shift);
        let arming_page = self.facts.registers.arming_page();
        let flags = match arming_page {
            Some(_) => mlx5_ib_create_cq_flags::MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX,
            None => mlx5_ib_create_cq_flags::empty(),
        };
        let driver_request = mlx5_ib_create_cq {
            buf_addr: memory.address().into(),
            db_addr: memory.record.address().into(),
            cqe_size: 1 << self.facts.completion_shift,
            flags,
            uar_page_index: arming_page.unwrap_or(0),
            ..mlx5_ib_create_cq::default()
        };
        cx.check()?;
        // SAFETY: the ring and the record are parts of the mapping, which the owner keeps until the queue is destroyed,
        // and which is accessed as atomics only.
        let created = unsafe { cx.file().create_in_memory(request, driver_request) };
        let (response, driver): (ib_uverbs_create_cq_resp, mlx5_ib_create_cq_resp) = created?;
        let names_user_index = self.facts.user_indices.is_some();
        let registers = Arc::clone(&self.facts.registers);
        let shared = Shared::new(ring, memory.record, names_user_index, registers, driver.cqn);
        let ring = Box::new(CqRing::new(Arc::clone(&shared)));
        let control = CqControl(shared);
        Ok(CreatedCq { response, ring, control, memory: Some(memory.mapping) })
    }

    fn create_qp(
        &self,
        cx: CommandContext<'_>,
        mut request: ib_uverbs_ex_create_qp,
        cqs: CqControls<'_, Self>,
    ) -> Result<CreatedQp<Self>, CreateError> {
        cx.check()?;
        let (send_size, receive_size) = sizes(&self.facts.limits, &request)?;
        let (signals_all, shares) = (request.sq_sig_all != 0, request.is_srq != 0);
        let is_initiator = request.qp_type == QpType::IB_UVERBS_QPT_XRC_INI;
        let max_send_sge = request.max_send_sge;
        let srq = match shares {
            true => Some(self.shared_table(request.srq_handle)?),
            false => None,
        };
        request.max_inline_data = send_size.max_inline;
        let user_index = self.user_index()?;
        let memory = QueueMemory::new([receive_size.bytes(), send_size.bytes()]);
        let memory = memory.map_err(CreateError::Map)?;
        let registers = &self.facts.registers;
        let chosen = registers.choose(|kind| registers::allocate(cx.file(), kind))?;
        let (flags, page) = match &chosen {
            Some(chosen) => (mlx5_ib_qp_flags::MLX5_QP_FLAG_UAR_PAGE_INDEX, chosen.page),
            None => (mlx5_ib_qp_flags::empty(), 0),
        };
        let driver_request = mlx5_ib_create_qp {
            buf_addr: memory.address().into(),
            db_addr: memory.record.address().into(),
            sq_wqe_count: send_size.blocks,
            rq_wqe_count: receive_size.entries,
            rq_wqe_shift: receive_size.shift,
            flags,
            bfreg_index: page,
            uidx: user_index.index,
            ece_options: if self.facts.has_ece { ECE_OPTIONS } else { 0 },
            ..mlx5_ib_create_qp::default()
        };
        // SAFETY: the rings and the record are parts of the mapping, which the owner keeps until the queue pair is
        // destroyed. If a later step fails, `discard_qp` keeps it unless the kernel destroys the queue pair. The device
        // only reads the rings.
        let created = unsafe { create_qp_in_memory(cx, request, driver_request) };
        let (mut response, driver): (_, mlx5_ib_create_qp_resp) = created?;
        let register = match registers.take(chosen, driver.bfreg_index) {
            Ok(register) => register,
            Err(errno) => {
                return Err(discard_qp(cx, response.qp_handle, Some(memory.mapping), errno));
            }
        };
        response.max_send_wr = send_size.requests;
        response.max_inline_data = send_size.max_inline;
        response.max_send_sge = max_send_sge;
        response.max_recv_wr = receive_size.entries;
        response.max_recv_sge = receive_size.max_sge;
        let table =
            Table::new(response.qpn, send_size.blocks, receive_size.entries, srq, user_index);
        let QueueMemory { mapping, rings: [receives, sends], record } = memory;
        let current = Current::new(table, record.clone());
        let (_, table) = current.get();
        distinct(cqs.send, cqs.recv).iter().for_each(|cq| cq.0.add(&table));
        let send = SendRing::new(
            sends,
            record.clone(),
            register,
            Arc::clone(&current),
            send_size,
            max_send_sge,
            send::Options::new(signals_all, is_initiator, self.facts.copies_inline_only),
        );
        let recv = RecvRing::own(receives, record, receive_size, Arc::clone(&current));
        let recv = (!shares && !is_initiator).then(|| Box::new(recv));
        let (send, memory, ece_options) = (Box::new(send), Some(mapping), driver.ece_options);
        Ok(CreatedQp { response, send, recv, data: current, ece_options, memory })
    }

    fn create_srq(
        &self,
        cx: CommandContext<'_>,
        mut request: CreateSrq,
        cq: Option<&CqControl>,
    ) -> Result<CreatedSrq<Self>, CreateError> {
        cx.check()?;
        let (max_wr, max_sge) = request.capacity();
        let (size, listed) = ReceiveSize::shared(&self.facts.limits, *max_wr, *max_sge)?;
        (*max_wr, *max_sge) = (size.entries - 1, size.max_sge);
        // If a queue has a completion queue of its own, its completions name it by that index.
        let user_index = match cq {
            Some(_) => Some(self.user_index()?),
            None => None,
        };
        let memory = QueueMemory::new([size.bytes()]).map_err(CreateError::Map)?;
        let driver_request = mlx5_ib_create_srq {
            buf_addr: memory.address().into(),
            db_addr: memory.record.address().into(),
            uidx: user_index.as_ref().map_or(0, |user_index| user_index.index),
            ..mlx5_ib_create_srq::default()
        };
        let links = Links::of(&memory.rings[0], size.shift);
        let table = Arc::new(SharedTable::new(links, size.entries, listed));
        // SAFETY: the ring and the record are parts of the mapping, which the owner keeps until the queue is destroyed.
        // The device only reads the ring.
        let created = unsafe { create_srq_in_memory(cx, request, driver_request) };
        let (mut response, driver): (_, mlx5_ib_create_srq_resp) = created?;
        let most = listed - 1;
        response.max_wr = most;
        response.max_sge = size.max_sge;
        self.remember_shared(response.srq_handle, &table);
        let on_destroyed = cq.zip(user_index).map(|(cq, user_index)| -> Box<dyn OnDestroyed> {
            Box::new(cq.0.add_shared(driver.srqn, &table, user_index))
        });
        let QueueMemory { mapping, rings: [ring], record } = memory;
        let ring = RecvRing::shared(ring, record, size, table, most);
        let ring = Box::new(ring);
        Ok(CreatedSrq { response, ring, on_destroyed, memory: Some(mapping) })
    }

    fn create_ah(
        &self,
        cx: CommandContext<'_>,
        pd: PdNumber,
        request: ib_uverbs_create_ah,
    ) -> Result<(ib_uverbs_create_ah_resp, AddressVector), CreateError> {
        let attributes = request.attr;
        let (response, driver): (ib_uverbs_create_ah_resp, mlx5_ib_create_ah_resp) =
            cx.command(request)?;
        match self.network(cx, &attributes, driver.dmac) {
            Ok(network) => {
                Ok((response, AddressVector::new(pd, &address::vector(&attributes, network))))
            }
            Err(error) => {
                let ah_handle = response.ah_handle;
                let _ = cx.file().command(verbs_abi::ib_uverbs_destroy_ah { ah_handle });
                Err(error)
            }
        }
    }

    /// Creates a protection domain.
    ///
    /// The kernel answers with the device's number of the domain, and fails if there is no room for the number.
    fn create_pd(&self, cx: CommandContext<'_>) -> Result<ib_uverbs_alloc_pd_resp, CommandError> {
        let request = ib_uverbs_alloc_pd { response: AlignedU64::default() };
        let (response, _): (_, mlx5_ib_alloc_pd_resp) = cx.command(request)?;
        Ok(response)
    }

    fn modify_qp_with_ece(
        &self,
        cx: CommandContext<'_>,
        request: ib_uverbs_ex_modify_qp,
        options: u32,
    ) -> Result<u32, CommandError> {
        let driver_request =
            mlx5_ib_modify_qp { ece_options: options, ..mlx5_ib_modify_qp::default() };
        let (_, driver): (_, mlx5_ib_modify_qp_resp) =
            cx.file().driver_command(request, driver_request)?;
        Ok(driver.ece_options)
    }

    fn on_reset(&self, qp: &Arc<Current>, cqs: CqControls<'_, Self>) {
        qp.reset(&distinct(cqs.send, cqs.recv));
    }

    fn on_destroyed(&self, qp: &Arc<Current>, cqs: CqControls<'_, Self>) {
        qp.end(&distinct(cqs.send, cqs.recv));
    }
}

#[cfg(test)]
mod tests;
