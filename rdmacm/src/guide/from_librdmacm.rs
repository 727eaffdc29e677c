//! From C: every function of librdmacm and its counterpart.
//!
//! Search these docs for a C name: functions and types have it as an alias. If a row lists several counterparts, the
//! first is on the lower level, which follows C call by call. The others are in [`endpoint`](crate::endpoint).
//!
//! # Channels, ids, events
//!
//! | C | here |
//! |---|---|
//! | `rdma_create_event_channel` | [`EventChannel::new`](crate::cm::EventChannel::new) |
//! | `rdma_destroy_event_channel` | dropping it |
//! | `rdma_create_id` | [`CmId::new`](crate::cm::CmId::new); without a channel [`CmId::new_sync`](crate::cm::CmId::new_sync); the id's `context` is [`set_user_data`](crate::cm::CmId::set_user_data) |
//! | `rdma_destroy_id` | [`CmId::destroy`](crate::cm::CmId::destroy), which waits until the events of the id are acknowledged; or dropping it, which does not wait |
//! | `rdma_migrate_id` | [`CmId::migrate`](crate::cm::CmId::migrate), [`CmId::migrate_to_sync`](crate::cm::CmId::migrate_to_sync) |
//! | `rdma_get_cm_event` | [`EventChannel::get_event`](crate::cm::EventChannel::get_event), and with a [timeout](crate::cm::EventChannel::get_event_timeout) |
//! | `rdma_ack_cm_event` | dropping the [`Event`](crate::cm::Event) |
//! | `rdma_event_str` | [`EventType::name`](crate::cm::EventType::name) |
//! | `rdma_set_option` | [`set_tos`](crate::cm::CmId::set_tos), [`set_reuseaddr`](crate::cm::CmId::set_reuseaddr), [`set_afonly`](crate::cm::CmId::set_afonly), [`set_ack_timeout`](crate::cm::CmId::set_ack_timeout), [`set_ib_path`](crate::cm::CmId::set_ib_path); [`Connector::tos`](crate::endpoint::Connector::tos), [`ack_timeout`](crate::endpoint::Connector::ack_timeout) |
//!
//! # Addresses
//!
//! | C | here |
//! |---|---|
//! | `rdma_bind_addr` | [`CmId::bind`](crate::cm::CmId::bind), [`Listener::bind`](crate::endpoint::Listener::bind), [`Connector::local_addr`](crate::endpoint::Connector::local_addr), [`DatagramSocket::bind`](crate::endpoint::DatagramSocket::bind) |
//! | `rdma_resolve_addr` | [`CmId::resolve_addr`](crate::cm::CmId::resolve_addr), [`Connector::connect`](crate::endpoint::Connector::connect), [`DatagramSocket::start_resolve_peer`](crate::endpoint::DatagramSocket::start_resolve_peer) |
//! | `rdma_resolve_route` | [`CmId::resolve_route`](crate::cm::CmId::resolve_route), [`Connector::connect`](crate::endpoint::Connector::connect), [`DatagramSocket::start_resolve_peer`](crate::endpoint::DatagramSocket::start_resolve_peer) |
//! | `rdma_getaddrinfo` | [`getaddrinfo`](crate::cm::getaddrinfo) |
//! | `rdma_freeaddrinfo` | dropping the results |
//! | `rdma_resolve_addrinfo` | [`CmId::resolve_addrinfo`](crate::cm::CmId::resolve_addrinfo) |
//! | `rdma_query_addrinfo` | [`CmId::query_addrinfo`](crate::cm::CmId::query_addrinfo) |
//! | `rdma_get_local_addr` | [`CmId::local_addr`](crate::cm::CmId::local_addr), [`Connection::local_addr`](crate::endpoint::Connection::local_addr) |
//! | `rdma_get_peer_addr` | [`CmId::peer_addr`](crate::cm::CmId::peer_addr), [`Connection::peer_addr`](crate::endpoint::Connection::peer_addr) |
//! | `rdma_get_src_port` | the port of the local address |
//! | `rdma_get_dst_port` | the port of the peer's address |
//!
//! # Connections
//!
//! | C | here |
//! |---|---|
//! | `rdma_listen` | [`CmId::listen`](crate::cm::CmId::listen), [`Listener::bind`](crate::endpoint::Listener::bind) |
//! | `rdma_get_request` | [`CmId::get_request`](crate::cm::CmId::get_request), [`Listener::accept`](crate::endpoint::Listener::accept) |
//! | `rdma_connect` | [`CmId::connect`](crate::cm::CmId::connect), [`Connector::connect`](crate::endpoint::Connector::connect) |
//! | `rdma_accept` | [`CmId::accept`](crate::cm::CmId::accept), [`Incoming::accept`](crate::endpoint::Incoming::accept) |
//! | `rdma_reject` | [`CmId::reject`](crate::cm::CmId::reject), [`Incoming::reject`](crate::endpoint::Incoming::reject) |
//! | `rdma_reject_ece` | [`CmId::reject_ece`](crate::cm::CmId::reject_ece), [`Incoming::reject`](crate::endpoint::Incoming::reject) |
//! | `rdma_establish` | [`CmId::establish`](crate::cm::CmId::establish) |
//! | `rdma_notify` | [`CmId::notify`](crate::cm::CmId::notify) |
//! | `rdma_disconnect` | [`CmId::disconnect`](crate::cm::CmId::disconnect), [`Connection::close`](crate::endpoint::Connection::close) |
//! | `rdma_set_local_ece` | [`CmId::set_local_ece`](crate::cm::CmId::set_local_ece) |
//! | `rdma_get_remote_ece` | [`CmId::remote_ece`](crate::cm::CmId::remote_ece) |
//! | `rdma_write_cm_event` | [`CmId::write_event`](crate::cm::CmId::write_event) |
//! | `rdma_create_ep` | [`CmId::create_ep`](crate::cm::CmId::create_ep), [`Connector::connect`](crate::endpoint::Connector::connect), [`Listener::bind`](crate::endpoint::Listener::bind) |
//! | `rdma_destroy_ep` | dropping the id, or [`CmId::destroy`](crate::cm::CmId::destroy), [`Connection::close`](crate::endpoint::Connection::close) |
//! | `rdma_join_multicast` | [`CmId::join_multicast`](crate::cm::CmId::join_multicast), [`DatagramSocket::start_join_multicast`](crate::endpoint::DatagramSocket::start_join_multicast) |
//! | `rdma_join_multicast_ex` | [`CmId::join_multicast`](crate::cm::CmId::join_multicast) with its [`Membership`](crate::cm::Membership) |
//! | `rdma_leave_multicast` | [`CmId::leave_multicast`](crate::cm::CmId::leave_multicast), [`MulticastGroup::leave`](crate::endpoint::MulticastGroup::leave) |
//!
//! # Queue pairs and devices
//!
//! | C | here |
//! |---|---|
//! | `rdma_create_qp` | [`CmId::create_qp`](crate::cm::CmId::create_qp); together with its completion queues [`CmId::create_ep_qp`](crate::cm::CmId::create_ep_qp) |
//! | `rdma_create_qp_ex` | [`CmId::create_qp`](crate::cm::CmId::create_qp); an XRC target is [`CmId::create_xrc_target`](crate::cm::CmId::create_xrc_target) |
//! | `rdma_destroy_qp` | [`CmId::destroy_qp`](crate::cm::CmId::destroy_qp) |
//! | `rdma_init_qp_attr` | [`CmId::init_qp_attr`](crate::cm::CmId::init_qp_attr) |
//! | `rdma_create_srq` | [`CmId::create_srq`](crate::cm::CmId::create_srq) |
//! | `rdma_create_srq_ex` | [`CmId::create_srq`](crate::cm::CmId::create_srq); in an XRC domain [`CmId::create_xrc_srq`](crate::cm::CmId::create_xrc_srq) |
//! | `rdma_destroy_srq` | [`CmId::destroy_srq`](crate::cm::CmId::destroy_srq) |
//! | `rdma_get_devices` | [`device::list`](crate::device::list), and [`Context::shared`](crate::verbs::Context::shared) for each |
//! | `rdma_free_devices` | dropping them |
//!
//! # Helper functions of `rdma_verbs.h`
//!
//! | C | here |
//! |---|---|
//! | `rdma_reg_msgs` | [`MemoryRegion::register`](crate::verbs::MemoryRegion::register), [`alloc`](crate::verbs::MemoryRegion::alloc); the buffers of a connection are registered already |
//! | `rdma_reg_read` | [`MemoryRegion::register`](crate::verbs::MemoryRegion::register) with the right to read, [`Connection::export`](crate::endpoint::Connection::export) |
//! | `rdma_reg_write` | [`MemoryRegion::register`](crate::verbs::MemoryRegion::register) with the right to write, [`Connection::export`](crate::endpoint::Connection::export) |
//! | `rdma_dereg_mr` | dropping the [`MemoryRegion`](crate::verbs::MemoryRegion), [`ExportedMemory::revoke`](crate::endpoint::ExportedMemory::revoke) |
//! | `rdma_post_recv` | [`QueuePair::post_recv`](crate::verbs::QueuePair::post_recv); a connection posts its receives itself |
//! | `rdma_post_recvv` | [`QueuePair::post_recv`](crate::verbs::QueuePair::post_recv) |
//! | `rdma_post_send` | [`QueuePair::post_send`](crate::verbs::QueuePair::post_send), [`Connection::post_send`](crate::endpoint::Connection::post_send), [`Connection::post_bytes`](crate::endpoint::Connection::post_bytes) |
//! | `rdma_post_sendv` | [`QueuePair::post_send`](crate::verbs::QueuePair::post_send) |
//! | `rdma_post_read` | [`QueuePair::post_send`](crate::verbs::QueuePair::post_send) with [`SendOperation::Read`](crate::verbs::SendOperation::Read), [`Connection::start_read`](crate::endpoint::Connection::start_read) |
//! | `rdma_post_readv` | [`QueuePair::post_send`](crate::verbs::QueuePair::post_send) with [`SendOperation::Read`](crate::verbs::SendOperation::Read) |
//! | `rdma_post_write` | [`QueuePair::post_send`](crate::verbs::QueuePair::post_send) with [`SendOperation::Write`](crate::verbs::SendOperation::Write), [`Connection::start_write`](crate::endpoint::Connection::start_write) |
//! | `rdma_post_writev` | [`QueuePair::post_send`](crate::verbs::QueuePair::post_send) with [`SendOperation::Write`](crate::verbs::SendOperation::Write) |
//! | `rdma_post_ud_send` | [`QueuePair::post_send`](crate::verbs::QueuePair::post_send) with [`SendOperation::SendTo`](crate::verbs::SendOperation::SendTo), [`DatagramSocket::post_send_to`](crate::endpoint::DatagramSocket::post_send_to) |
//! | `rdma_get_send_comp` | [`CompletionQueue::wait`](crate::verbs::CompletionQueue::wait); [`Connection::flush`](crate::endpoint::Connection::flush) |
//! | `rdma_get_recv_comp` | [`CompletionQueue::wait`](crate::verbs::CompletionQueue::wait); [`Connection::recv`](crate::endpoint::Connection::recv), [`DatagramSocket::recv_from`](crate::endpoint::DatagramSocket::recv_from) |
//! | `rdma_seterrno` | [`Error::errno`](crate::Error::errno) |
//!
//! # Sockets
//!
//! `rsocket` and the calls on its sockets have no counterpart yet: `rsocket`, `rbind`, `rlisten`, `raccept`,
//! `rconnect`, `rshutdown`, `rclose`, `rrecv`, `rrecvfrom`, `rrecvmsg`, `rsend`, `rsendto`, `rsendmsg`, `rread`,
//! `rreadv`, `rwrite`, `rwritev`, `rpoll`, `rselect`, `rgetpeername`, `rgetsockname`, `rsetsockopt`, `rgetsockopt`,
//! `rfcntl`, `riomap`, `riounmap`, `riowrite`, `repoll_create`, `repoll_ctl`, `repoll_wait`.
//!
//! # See also
//!
//! - [From libibverbs](super::from_libibverbs) has the functions of the queues.
//! - [The RDMA connection manager](super::rdma_cm) explains the terms.
