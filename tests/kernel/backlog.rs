//! More requests than a listener has room for.

use std::fs;

use rdmacm::cm::{ConnParam, EventType};

use crate::bed::{LONG, ask, channel, id, ids, rxe};

/// How often the kernel's connection manager has sent requests again.
fn asked_again() -> u64 {
    let counter = "/sys/class/infiniband/rxe0/ports/1/cm_tx_retries/req";
    let count = fs::read_to_string(counter).expect("the kernel counts");
    count.trim().parse().expect("a number")
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn requests_beyond_it_come_again_and_none_is_lost() {
    const CLIENTS: usize = 4;
    let (ours, theirs) = (channel(), channel());
    let before = ids();
    let listener = id(&theirs);
    listener.bind(rxe(0)).expect("bind");
    listener.listen(1).expect("listen");
    let address = listener.local_addr().expect("query").expect("bound");
    let again = asked_again();
    let clients = [(); CLIENTS].map(|()| ask(&ours, address, &ConnParam::default()));
    let mut requests = Vec::new();
    for _ in 0..CLIENTS {
        let event =
            theirs.get_event_timeout(LONG).expect("read").expect("each asks until it is heard");
        assert_eq!(event.event_type(), EventType::ConnectRequest);
        requests.push(event);
    }
    drop(requests);
    for _ in 0..CLIENTS {
        let event = ours.get_event().expect("an answer");
        assert_eq!(event.event_type(), EventType::Rejected);
    }
    // Counted when the answer is there.
    assert!(asked_again() > again, "there was room for one, and somebody had to ask again");
    drop(clients);
    // A request that was sent again while its answer was under way may have come as one more.
    drop(listener);
    assert_eq!(ids(), before);
}
