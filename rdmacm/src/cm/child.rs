//! Calls of a forked child on its parent's channels and ids.
//!
//! The library refuses them, regardless of the locks that the parent's threads held at the fork.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ucma_abi::{rdma_cm_event_type, rdma_ucm_event_resp};
use verbs_abi::ib_event_type;
use zerocopy::FromZeros;

use super::channel::EventChannel;
use super::endpoint_qp::EndpointQpInit;
use super::group::Membership;
use super::id::CmId;
use super::id::tests::{fake_channel, fake_id};
use super::mode::SyncMode;
use super::param::ConnParam;
use super::parse::RawEvent;
use super::record::Inner;
use crate::addr::port_space::PortSpace;
use crate::addr::{AddrInfoFlags, AddrInfoHints};
use crate::error::{Error, ErrorKind, NotOwner, Result};
use crate::lock::ignore_poison;
use crate::sys::process::in_child;
use crate::verbs::{Ece, QpState, SharedReceiveQueueAttributes};

fn refused<T>(result: Result<T>) -> bool {
    let forked = |error: Error| matches!(error.kind(), ErrorKind::NotOwner(NotOwner::Forked));
    result.is_err_and(forked)
}

/// Holds every lock of `id`, as the parent's threads may at the fork.
fn hold(id: &Inner) -> impl Sized + '_ {
    let groups = ignore_poison(id.groups.lock());
    let migration = ignore_poison(id.migration.lock());
    (groups, migration, id.state(), id.binding_mut(), id.acks.hold())
}

#[test]
fn every_call_is_refused_at_once() {
    let [(channel, _kernel), (other, _other_kernel)] = [(); 2].map(|()| fake_channel());
    let address = SocketAddr::from((Ipv4Addr::new(239, 1, 2, 3), 0));
    let (long, param) = (Duration::from_secs(60), ConnParam::default());
    let hints = AddrInfoHints { flags: AddrInfoFlags::SA, ..AddrInfoHints::default() };
    let ece = Ece { vendor_id: 1, options: 0 };
    let attributes = SharedReceiveQueueAttributes::default();
    for (port_space, is_sync) in
        [(PortSpace::Tcp, false), (PortSpace::Tcp, true), (PortSpace::Udp, false)]
    {
        let inner = fake_id(&channel, port_space);
        if is_sync {
            let own = EventChannel { inner: Arc::clone(&channel.inner) };
            inner.binding_mut().sync = Some(Arc::new(SyncMode::new(own)));
        }
        let id = &CmId::from_inner(Arc::clone(&inner));
        let copy = || CmId::from_inner(Arc::clone(&inner));
        let connects = port_space == PortSpace::Tcp;
        let _held = hold(&inner);
        let calls: &[(&str, &dyn Fn() -> bool)] = &[
            ("new", &|| refused(CmId::new(&channel, port_space))),
            ("destroy", &|| refused(copy().destroy().map_err(Error::from))),
            ("drop", &|| {
                drop(copy());
                true
            }),
            ("context", &|| refused(id.context())),
            ("default_pd", &|| refused(id.default_pd())),
            ("bind", &|| refused(id.bind(address))),
            ("resolve_addr", &|| refused(id.resolve_addr(None, address, long))),
            ("resolve_route", &|| refused(id.resolve_route(long))),
            ("listen", &|| refused(id.listen(0))),
            ("local_addr", &|| refused(id.local_addr())),
            ("create_xrc_target", &|| refused(id.create_xrc_target(None))),
            ("create_xrc_srq", &|| refused(id.create_xrc_srq(None, None, None, attributes))),
            ("create_srq", &|| refused(id.create_srq(None, attributes))),
            ("create_ep_qp", &|| refused(id.create_ep_qp(&EndpointQpInit::default()))),
            ("default_xrc_domain", &|| refused(id.default_xrc_domain())),
            ("connect", &|| refused(id.connect(&param))),
            ("accept", &|| refused(id.accept(&param))),
            ("reject", &|| refused(id.reject(b""))),
            ("disconnect", &|| !connects || refused(id.disconnect())),
            ("establish", &|| !connects || refused(id.establish())),
            ("init_qp_attr", &|| refused(id.init_qp_attr(QpState::IB_QPS_INIT))),
            ("notify", &|| refused(id.notify(ib_event_type::IB_EVENT_COMM_EST))),
            ("set_local_ece", &|| refused(id.set_local_ece(ece))),
            ("remote_ece", &|| refused(id.remote_ece())),
            ("set_tos", &|| refused(id.set_tos(0))),
            ("route", &|| refused(id.route())),
            ("join", &|| connects || refused(id.join_multicast(address, Membership::Full))),
            ("leave", &|| refused(id.leave_multicast(address))),
            ("write_event", &|| refused(id.write_event(0, 0))),
            ("resolve_addrinfo", &|| refused(id.resolve_addrinfo(None, Some("7"), Some(&hints)))),
            ("query_addrinfo", &|| refused(id.query_addrinfo())),
            ("ib_services", &|| refused(id.ib_services())),
            ("migrate", &|| refused(id.migrate(&other))),
            ("migrate_to_sync", &|| refused(id.migrate_to_sync())),
            ("wait_pending", &|| refused(id.wait_pending())),
            ("get_request", &|| refused(id.get_request())),
            ("qp", &|| id.qp().is_none() && id.xrc_target().is_none()),
            ("destroy_qp", &|| {
                id.destroy_qp();
                id.set_timeout(None);
                id.timeout().is_none()
            }),
            ("is_sync", &|| !id.is_sync()),
            ("pending_call", &|| id.pending_event().is_none() && id.last_event().is_none()),
        ];
        for (name, call) in calls {
            assert!(in_child(call), "{name} of an id of {port_space:?}, synchronous: {is_sync}");
        }
    }
}

#[test]
fn event_drop_in_forked_child_does_not_wait() {
    let (channel, _kernel) = fake_channel();
    let inner = fake_id(&channel, PortSpace::Tcp);
    let mut raw = rdma_ucm_event_resp::new_zeroed();
    raw.event = rdma_cm_event_type::RDMA_CM_EVENT_ADDR_RESOLVED;
    raw.uid = inner.token.get().into();
    let event = RefCell::new(channel.deliver(&RawEvent::new(raw)));
    assert!(event.borrow().is_some());
    let _held = hold(&inner);
    assert!(in_child(|| event.take().is_some()));
}
