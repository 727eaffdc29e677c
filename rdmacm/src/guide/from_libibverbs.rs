//! From C: the functions of libibverbs and their counterparts.
//!
//! The tables have all functions of rdma-core 44, and most later ones. Search these docs for a C name: functions and
//! types have it as an alias. A connection of [`endpoint`](crate::endpoint) creates its queues and registers its
//! buffers itself, so it has no rows here.
//!
//! The C functions that convert a number into text return a description, also for unknown numbers. Here `name` returns
//! the name of the kernel's constant, or `None` if there is none, and `Display` shows any number.
//!
//! # Devices
//!
//! | C | here |
//! |---|---|
//! | `ibv_get_device_list` | [`device::list`](crate::device::list) |
//! | `ibv_free_device_list` | dropping it |
//! | `ibv_get_device_name` | [`Device::name`](crate::device::Device::name) |
//! | `ibv_get_device_guid` | [`Device::node_guid`](crate::device::Device::node_guid) |
//! | `ibv_get_device_index` | [`Device::index`](crate::device::Device::index) |
//! | `ibv_open_device` | [`Context::open`](crate::verbs::Context::open), [`Context::shared`](crate::verbs::Context::shared) |
//! | `ibv_close_device` | dropping the last object that uses it |
//! | `ibv_query_device` | [`Context::query_device`](crate::verbs::Context::query_device) |
//! | `ibv_query_device_ex` | [`Context::query_device_extended`](crate::verbs::Context::query_device_extended) |
//! | `ibv_query_port` | [`Context::query_port`](crate::verbs::Context::query_port); without a context [`Device::port`](crate::device::Device::port) |
//! | `ibv_query_gid`, `ibv_query_gid_ex`, `ibv_query_gid_table` | [`Context::gids`](crate::verbs::Context::gids); without a context [`Port::gids`](crate::device::Port::gids) |
//! | `ibv_query_pkey`, `ibv_get_pkey_index` | [`Port::pkeys`](crate::device::Port::pkeys) |
//! | `ibv_node_type_str` | [`NodeType::name`](crate::device::NodeType::name) |
//! | `ibv_port_state_str` | [`PortState::name`](crate::device::PortState::name) |
//! | `ibv_get_async_event` | [`AsyncEventChannel::get_event`](crate::verbs::AsyncEventChannel::get_event) of [`Context::async_events`](crate::verbs::Context::async_events) |
//! | `ibv_ack_async_event` | dropping the [`AsyncEvent`](crate::verbs::AsyncEvent) |
//! | `ibv_event_type_str` | [`AsyncEventType::name`](crate::verbs::AsyncEventType::name) |
//! | `ibv_fork_init` | not needed since Linux 5.12, which copies registered memory for the child. On older kernels, registered memory is the responsibility of the program: see [`MemoryRegion`](crate::verbs::MemoryRegion#forking). The library itself marks the memory of its queues |
//! | `ibv_is_fork_initialized` | [`supports_copy_on_fork`](crate::device::supports_copy_on_fork) |
//!
//! # Memory
//!
//! | C | here |
//! |---|---|
//! | `ibv_alloc_pd` | [`ProtectionDomain::new`](crate::verbs::ProtectionDomain::new) |
//! | `ibv_dealloc_pd` | dropping it, or [`destroy`](crate::verbs::ProtectionDomain::destroy), which fails with EBUSY while the domain has objects |
//! | `ibv_reg_mr` | [`MemoryRegion::alloc`](crate::verbs::MemoryRegion::alloc), which owns its memory, [`register_shared`](crate::verbs::MemoryRegion::register_shared), [`register`](crate::verbs::MemoryRegion::register) |
//! | `ibv_reg_mr_iova`, `ibv_reg_mr_iova2` | [`MemoryRegion::alloc_with_iova`](crate::verbs::MemoryRegion::alloc_with_iova), [`register_with_iova`](crate::verbs::MemoryRegion::register_with_iova) |
//! | `ibv_rereg_mr` | [`MemoryRegion::reregister`](crate::verbs::MemoryRegion::reregister) |
//! | `ibv_dereg_mr` | dropping it, or [`MemoryRegion::destroy`](crate::verbs::MemoryRegion::destroy) |
//! | `ibv_alloc_mw` | [`MemoryWindow::new`](crate::verbs::MemoryWindow::new) |
//! | `ibv_bind_mw` | [`QueuePair::bind_window`](crate::verbs::QueuePair::bind_window) |
//! | `ibv_inc_rkey` | none: binding gives the window its next [key](crate::verbs::MemoryWindow::rkey) |
//! | `ibv_dealloc_mw` | dropping it, or [`MemoryWindow::destroy`](crate::verbs::MemoryWindow::destroy) |
//!
//! # Completions
//!
//! | C | here |
//! |---|---|
//! | `ibv_create_comp_channel` | [`CompletionChannel::new`](crate::verbs::CompletionChannel::new) |
//! | `ibv_destroy_comp_channel` | dropping it |
//! | `ibv_get_cq_event` | [`CompletionChannel::get_event`](crate::verbs::CompletionChannel::get_event), and with a [timeout](crate::verbs::CompletionChannel::get_event_timeout) |
//! | `ibv_ack_cq_events` | dropping the [`CompletionEvent`](crate::verbs::CompletionEvent) |
//! | `ibv_create_cq` | [`CompletionQueue::new`](crate::verbs::CompletionQueue::new), [`with_comp_vector`](crate::verbs::CompletionQueue::with_comp_vector) |
//! | `ibv_resize_cq` | [`CompletionQueue::resize`](crate::verbs::CompletionQueue::resize) |
//! | `ibv_destroy_cq` | dropping it, or [`CompletionQueue::destroy`](crate::verbs::CompletionQueue::destroy) |
//! | `ibv_poll_cq` | [`CompletionQueue::poll`](crate::verbs::CompletionQueue::poll), [`Poller::poll`](crate::verbs::Poller::poll) |
//! | `ibv_req_notify_cq` | [`CompletionQueue::request_notify`](crate::verbs::CompletionQueue::request_notify); [`wait`](crate::verbs::CompletionQueue::wait) polls, arms and waits |
//! | `ibv_wc_status_str` | [`WcStatus::name`](crate::verbs::WcStatus::name) |
//!
//! # Queues
//!
//! | C | here |
//! |---|---|
//! | `ibv_create_qp` | [`QueuePair::new`](crate::verbs::QueuePair::new), [`with_type`](crate::verbs::QueuePair::with_type) |
//! | `ibv_create_qp_ex` | [`QueuePair::with_type`](crate::verbs::QueuePair::with_type) with the flags of [`QueuePairInit`](crate::verbs::QueuePairInit); an XRC target is [`XrcTarget::new`](crate::verbs::XrcTarget::new) |
//! | `ibv_modify_qp` | [`QueuePair::modify`](crate::verbs::QueuePair::modify) |
//! | `ibv_modify_qp_rate_limit` | [`QueuePair::modify`](crate::verbs::QueuePair::modify) with [`rate_limit`](crate::verbs::QueuePairAttributes::rate_limit), without sizes of bursts and packets |
//! | `ibv_query_qp` | [`QueuePair::query`](crate::verbs::QueuePair::query) |
//! | `ibv_query_ece` | [`QueuePair::ece`](crate::verbs::QueuePair::ece) |
//! | `ibv_set_ece` | [`QueuePair::set_ece`](crate::verbs::QueuePair::set_ece) |
//! | `ibv_destroy_qp` | dropping it, or [`QueuePair::destroy`](crate::verbs::QueuePair::destroy) |
//! | `ibv_post_send` | [`QueuePair::post_send`](crate::verbs::QueuePair::post_send), [`SendQueueGuard::post`](crate::verbs::SendQueueGuard::post) |
//! | `ibv_post_recv` | [`QueuePair::post_recv`](crate::verbs::QueuePair::post_recv), [`ReceiveQueueGuard::post`](crate::verbs::ReceiveQueueGuard::post) |
//! | `ibv_create_srq` | [`SharedReceiveQueue::new`](crate::verbs::SharedReceiveQueue::new) |
//! | `ibv_create_srq_ex` | [`SharedReceiveQueue::new`](crate::verbs::SharedReceiveQueue::new); in an XRC domain [`with_xrc_domain`](crate::verbs::SharedReceiveQueue::with_xrc_domain) |
//! | `ibv_modify_srq` | [`SharedReceiveQueue::resize`](crate::verbs::SharedReceiveQueue::resize), [`set_limit`](crate::verbs::SharedReceiveQueue::set_limit) |
//! | `ibv_query_srq` | [`SharedReceiveQueue::query`](crate::verbs::SharedReceiveQueue::query) |
//! | `ibv_get_srq_num` | [`SharedReceiveQueue::number`](crate::verbs::SharedReceiveQueue::number) |
//! | `ibv_destroy_srq` | dropping it, or [`SharedReceiveQueue::destroy`](crate::verbs::SharedReceiveQueue::destroy) |
//! | `ibv_post_srq_recv` | [`SharedReceiveQueue::post_recv`](crate::verbs::SharedReceiveQueue::post_recv), [`SharedReceiveQueueGuard::post`](crate::verbs::SharedReceiveQueueGuard::post) |
//! | `ibv_create_ah` | [`AddressHandle::new`](crate::verbs::AddressHandle::new) |
//! | `ibv_create_ah_from_wc`, `ibv_init_ah_from_wc` | [`AddressHandle::for_reply`](crate::verbs::AddressHandle::for_reply) |
//! | `ibv_destroy_ah` | dropping it, or [`AddressHandle::destroy`](crate::verbs::AddressHandle::destroy) |
//! | `ibv_attach_mcast` | [`QueuePair::attach_multicast`](crate::verbs::QueuePair::attach_multicast) |
//! | `ibv_detach_mcast` | [`QueuePair::detach_multicast`](crate::verbs::QueuePair::detach_multicast) |
//!
//! # XRC
//!
//! | C | here |
//! |---|---|
//! | `ibv_open_xrcd` | [`XrcDomain::new`](crate::verbs::XrcDomain::new), [`XrcDomain::open`](crate::verbs::XrcDomain::open) |
//! | `ibv_close_xrcd` | dropping it, or [`XrcDomain::close`](crate::verbs::XrcDomain::close) |
//! | `ibv_open_qp` | [`XrcTarget::open`](crate::verbs::XrcTarget::open) |
//!
//! The calls of `ibv_create_xrc_rcv_qp(3)` are an older interface; [`XrcTarget`](crate::verbs::XrcTarget) names their
//! counterparts.
//!
//! # Lists of requests
//!
//! A [`SendQueueGuard`](crate::verbs::SendQueueGuard) does the work of `ibv_qp_ex`: it posts many requests with one
//! doorbell. Each [`push`](crate::verbs::SendQueueGuard::push) adds a request;
//! [`ring_doorbell`](crate::verbs::SendQueueGuard::ring_doorbell) or dropping the guard rings the doorbell. A push
//! writes its request into the ring at once, so it cannot be aborted.
//!
//! | C | here |
//! |---|---|
//! | `ibv_qp_to_qp_ex`, `ibv_wr_start` | [`QueuePair::lock_send_queue`](crate::verbs::QueuePair::lock_send_queue) |
//! | `ibv_wr_complete` | [`SendQueueGuard::ring_doorbell`](crate::verbs::SendQueueGuard::ring_doorbell) |
//! | `ibv_wr_send`, `ibv_wr_send_imm`, `ibv_wr_send_inv` | [`Send`](crate::verbs::SendOperation::Send), [`SendWithImm`](crate::verbs::SendOperation::SendWithImm), [`SendWithInvalidate`](crate::verbs::SendOperation::SendWithInvalidate) |
//! | `ibv_wr_rdma_read` | [`Read`](crate::verbs::SendOperation::Read) |
//! | `ibv_wr_rdma_write`, `ibv_wr_rdma_write_imm` | [`Write`](crate::verbs::SendOperation::Write), [`WriteWithImm`](crate::verbs::SendOperation::WriteWithImm) |
//! | `ibv_wr_atomic_cmp_swp`, `ibv_wr_atomic_fetch_add` | [`CompareSwap`](crate::verbs::SendOperation::CompareSwap), [`FetchAdd`](crate::verbs::SendOperation::FetchAdd) |
//! | `ibv_wr_atomic_write` | [`AtomicWrite`](crate::verbs::SendOperation::AtomicWrite) |
//! | `ibv_wr_flush` | [`Flush`](crate::verbs::SendOperation::Flush) |
//! | `ibv_wr_local_inv` | [`LocalInvalidate`](crate::verbs::SendOperation::LocalInvalidate) |
//! | `ibv_wr_set_xrc_srqn` | [`AtSharedQueue`](crate::verbs::SendOperation::AtSharedQueue) |
//! | `ibv_wr_bind_mw` | [`SendQueueGuard::bind_window`](crate::verbs::SendQueueGuard::bind_window) |
//! | `ibv_wr_set_sge`, `ibv_wr_set_sge_list` | [`Payload::Gather`](crate::verbs::Payload::Gather) |
//! | `ibv_wr_set_inline_data`, `ibv_wr_set_inline_data_list` | [`Payload::Inline`](crate::verbs::Payload::Inline), one part |
//! | `ibv_wr_set_ud_addr` | [`Destination`](crate::verbs::Destination) of [`SendTo`](crate::verbs::SendOperation::SendTo) |
//!
//! # Functions without a counterpart
//!
//! - `ibv_wr_abort`, for the reason above; `ibv_wr_send_tso`.
//! - Extended completion queues with the time stamps of a device: `ibv_create_cq_ex`, `ibv_cq_ex_to_cq`,
//!   `ibv_start_poll`, `ibv_next_poll`, `ibv_end_poll`, `ibv_wc_read_completion_ts`,
//!   `ibv_wc_read_completion_wallclock_ns`, `ibv_wc_read_cvlan`, `ibv_wc_read_flow_tag`, `ibv_wc_read_tm_info`, and the
//!   clock for comparison, `ibv_query_rt_values_ex`. A [`Completion`](crate::verbs::Completion) has the other values:
//!   `ibv_wc_read_opcode`, `ibv_wc_read_wc_flags`, `ibv_wc_read_vendor_err`, `ibv_wc_read_byte_len`,
//!   `ibv_wc_read_imm_data`, `ibv_wc_read_invalidated_rkey`, `ibv_wc_read_qp_num`, `ibv_wc_read_src_qp`,
//!   `ibv_wc_read_slid`, `ibv_wc_read_sl`, `ibv_wc_read_dlid_path_bits`.
//! - Moderation of a completion queue's events: `ibv_modify_cq`.
//! - Thread domains, and allocators of the program: `ibv_alloc_td`, `ibv_dealloc_td`, `ibv_alloc_parent_domain`. A
//!   queue that one thread uses exclusively is a [`SendQueueGuard`](crate::verbs::SendQueueGuard),
//!   [`ReceiveQueueGuard`](crate::verbs::ReceiveQueueGuard) or [`Poller`](crate::verbs::Poller).
//! - Flow steering, separate work queues, tag matching: `ibv_create_flow`, `ibv_destroy_flow`,
//!   `ibv_create_flow_action_esp`, `ibv_modify_flow_action_esp`, `ibv_destroy_flow_action`, `ibv_create_wq`,
//!   `ibv_modify_wq`, `ibv_destroy_wq`, `ibv_post_wq_recv`, `ibv_create_rwq_ind_table`, `ibv_destroy_rwq_ind_table`,
//!   `ibv_post_srq_ops`.
//! - Memory of the device, regions of dma-buf or without memory, and advice: `ibv_alloc_dm`, `ibv_free_dm`,
//!   `ibv_memcpy_to_dm`, `ibv_memcpy_from_dm`, `ibv_reg_dm_mr`, `ibv_reg_dmabuf_mr`, `ibv_alloc_null_mr`,
//!   `ibv_advise_mr`.
//! - Counters: `ibv_create_counters`, `ibv_destroy_counters`, `ibv_attach_counters_point_flow`, `ibv_read_counters`.
//! - Objects of another process: `ibv_import_device`, `ibv_import_pd`, `ibv_unimport_pd`, `ibv_import_mr`,
//!   `ibv_unimport_mr`, `ibv_import_dm`, `ibv_unimport_dm`.
//! - Helpers: `ibv_is_qpt_supported`, `ibv_query_qp_data_in_order`, `ibv_get_sysfs_path`, `ibv_read_sysfs_file`,
//!   `ibv_resolve_eth_l2_from_gid`, `ibv_dontfork_range`, `ibv_dofork_range`, `ibv_static_providers`,
//!   `ibv_rate_to_mbps`, `ibv_rate_to_mult`, `mbps_to_ibv_rate`, `mult_to_ibv_rate`, `ibv_flow_label_to_udp_sport`;
//!   conversions of the kernel's structures, which this library uses unchanged: `ibv_copy_ah_attr_from_kern`,
//!   `ibv_copy_qp_attr_from_kern`, `ibv_copy_path_rec_from_kern`, `ibv_copy_path_rec_to_kern`.
//!
//! # See also
//!
//! - [From librdmacm](super::from_librdmacm) has the functions of the connection manager.
//! - [Using memory](super::memory) describes how the owner of a buffer is represented.
