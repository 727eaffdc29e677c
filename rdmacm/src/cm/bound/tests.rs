use super::*;
use crate::addr::port_space::PortSpace;
use crate::cm::id::tests::{commands, fake_channel, fake_id};

#[test]
fn unreported_device_index_is_none() {
    let (channel, kernel) = fake_channel();
    let inner = fake_id(&channel, PortSpace::Tcp);
    // This fake kernel stores nothing at all.
    assert_eq!(inner.query_addr().expect("the query should be answered").ibdev_index, NO_INDEX);
    drop((channel, inner));
    assert_eq!(commands(kernel), [19], "QUERY");
}
