//! The Linux ucma ABI (`rdma_user_cm.h`), written by hand: the commands of `/dev/infiniband/rdma_cm`.
//!
//! Names are the kernel's. Structures are plain memory of exactly the kernel's layout. The crate does no I/O, allocates
//! nothing and has no unsafe code. A structure that is sent implements `IntoBytes`, and one that the kernel stores also
//! `FromBytes`. A [`Command`] links a request to its number and its response. Integers that the kernel fills hold any
//! value.
//!
//! A request is written as a [`rdma_ucm_cmd_hdr`] followed by the structure. The `write` returns the whole length. The
//! response is then stored at the address in the request's `response` field.
//!
//! | # | Command | Request | Response |
//! |---|---|---|---|
//! | 0 | CREATE_ID | [`rdma_ucm_create_id`] | [`rdma_ucm_create_id_resp`] |
//! | 1 | DESTROY_ID | [`rdma_ucm_destroy_id`] | [`rdma_ucm_destroy_id_resp`] |
//! | 2 | BIND_IP | [`rdma_ucm_bind_ip`] | |
//! | 3 | RESOLVE_IP | [`rdma_ucm_resolve_ip`] | |
//! | 4 | RESOLVE_ROUTE | [`rdma_ucm_resolve_route`] | |
//! | 5 | QUERY_ROUTE | [`rdma_ucm_query_route`] | [`rdma_ucm_query_route_resp`] |
//! | 6 | CONNECT | [`rdma_ucm_connect`] | |
//! | 7 | LISTEN | [`rdma_ucm_listen`] | |
//! | 8 | ACCEPT | [`rdma_ucm_accept`] | |
//! | 9 | REJECT | [`rdma_ucm_reject`] | |
//! | 10 | DISCONNECT | [`rdma_ucm_disconnect`] | |
//! | 11 | INIT_QP_ATTR | [`rdma_ucm_init_qp_attr`] | [`ib_uverbs_qp_attr`](verbs_abi::ib_uverbs_qp_attr) |
//! | 12 | GET_EVENT | [`rdma_ucm_get_event`] | [`rdma_ucm_event_resp`] |
//! | 13 | GET_OPTION | never implemented | |
//! | 14 | SET_OPTION | [`rdma_ucm_set_option`] | |
//! | 15 | NOTIFY | [`rdma_ucm_notify`] | |
//! | 16 | JOIN_IP_MCAST | [`rdma_ucm_join_ip_mcast`] | [`rdma_ucm_create_id_resp`] |
//! | 17 | LEAVE_MCAST | [`rdma_ucm_leave_mcast`] | [`rdma_ucm_destroy_id_resp`] |
//! | 18 | MIGRATE_ID | [`rdma_ucm_migrate_id`] | [`rdma_ucm_migrate_resp`] |
//! | 19 | QUERY | [`rdma_ucm_query_addr`] | [`rdma_ucm_query_addr_resp`] |
//! | | | [`rdma_ucm_query_path`] | [`rdma_ucm_query_path_records`] |
//! | | | [`rdma_ucm_query_gid`] | [`rdma_ucm_query_addr_resp`] |
//! | | | [`rdma_ucm_query_ib_service`], Linux 6.18 | [`rdma_ucm_query_ib_service_records`] |
//! | 20 | BIND | [`rdma_ucm_bind`] | |
//! | 21 | RESOLVE_ADDR | [`rdma_ucm_resolve_addr`] | |
//! | 22 | JOIN_MCAST | [`rdma_ucm_join_mcast`] | [`rdma_ucm_create_id_resp`] |
//! | 23 | RESOLVE_IB_SERVICE | [`rdma_ucm_resolve_ib_service`], Linux 6.18 | |
//! | 24 | WRITE_CM_EVENT | [`rdma_ucm_write_cm_event`], Linux 6.18 | |
#![no_std]
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout)]
#![expect(non_camel_case_types, reason = "the kernel's spelling")]

pub mod address;
pub mod command;
pub mod connection;
pub mod event;
pub mod id;
pub mod multicast;
pub mod option;
pub mod query;
pub mod reason;
pub mod service;

use verbs_abi::layout::{Constant, Struct};

#[doc(no_inline)]
pub use self::{
    address::*, command::*, connection::*, event::*, id::*, multicast::*, option::*, query::*,
    reason::*, service::*,
};

/// The layout of every structure of the crate.
pub const LAYOUT: &[&[Struct]] = &[
    COMMAND_LAYOUT,
    ID_LAYOUT,
    ADDRESS_LAYOUT,
    QUERY_LAYOUT,
    CONNECTION_LAYOUT,
    MULTICAST_LAYOUT,
    EVENT_LAYOUT,
    OPTION_LAYOUT,
    SERVICE_LAYOUT,
];

/// Every constant of the crate, the values of its enumerations too.
pub const CONSTANTS: &[&[Constant]] = &[
    COMMAND_CONSTANTS,
    ID_CONSTANTS,
    QUERY_CONSTANTS,
    CONNECTION_CONSTANTS,
    MULTICAST_CONSTANTS,
    EVENT_TYPE,
    REJ_REASON,
    SIDR_STATUS,
    OPTION_CONSTANTS,
    SERVICE_CONSTANTS,
    SERVICE_FLAGS,
];
