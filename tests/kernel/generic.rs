//! The data path of drivers that keep their queues in the kernel.

use verbs_abi::ib_event_type;

use crate::kt::Kt;

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn the_device_comes_and_goes() {
    for _ in 0..2 {
        let kt = Kt::load();
        assert_eq!(kt.count("context"), 0);
        let context = kt.context();
        assert_eq!(kt.count("context"), 1);
        let port = context.query_port(1).expect("query the port");
        assert_eq!(port.lid, 1);
        kt.raise(ib_event_type::IB_EVENT_PORT_ERR, 1);
        drop(context);
        assert_eq!(kt.count("context"), 0);
    }
}
