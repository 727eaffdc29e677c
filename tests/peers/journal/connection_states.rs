//! Comparison of the attributes that the connection managers of both libraries give to queue pairs on the card.
//!
//! rdma-core moves a queue pair to INIT twice: the second time with the access rights of the peer. This library has these rights in
//! the change to RTR. So the test compares the attributes that a queue pair has in RTR, RTS and ERR instead of the single
//! commands.

use std::collections::BTreeMap;

use rdmacm::verbs::QpState;
use rdmacm_tests::roce::roce_ip;
use verbs_abi::ib_qp_attr_mask as Mask;

use super::mount_debugfs;
use crate::datagram;
use crate::rping::{Program, Server, connect, listening};

/// The attributes of a command, and the flag that makes each of them valid.
const FIELDS: [(&str, Mask); 29] = [
    ("port", Mask::IB_QP_PORT),
    ("pkey", Mask::IB_QP_PKEY_INDEX),
    ("access", Mask::IB_QP_ACCESS_FLAGS),
    ("qkey", Mask::IB_QP_QKEY),
    ("mtu", Mask::IB_QP_PATH_MTU),
    ("dest", Mask::IB_QP_DEST_QPN),
    ("rq_psn", Mask::IB_QP_RQ_PSN),
    ("sq_psn", Mask::IB_QP_SQ_PSN),
    ("rd", Mask::IB_QP_MAX_QP_RD_ATOMIC),
    ("dest_rd", Mask::IB_QP_MAX_DEST_RD_ATOMIC),
    ("rnr_timer", Mask::IB_QP_MIN_RNR_TIMER),
    ("timeout", Mask::IB_QP_TIMEOUT),
    ("retry", Mask::IB_QP_RETRY_CNT),
    ("rnr_retry", Mask::IB_QP_RNR_RETRY),
    ("sgid", Mask::IB_QP_AV),
    ("flow", Mask::IB_QP_AV),
    ("hop", Mask::IB_QP_AV),
    ("tclass", Mask::IB_QP_AV),
    ("sl", Mask::IB_QP_AV),
    ("rate", Mask::IB_QP_AV),
    ("path_bits", Mask::IB_QP_AV),
    ("dmac", Mask::IB_QP_AV),
    ("cur_state", Mask::IB_QP_CUR_STATE),
    ("drained", Mask::IB_QP_EN_SQD_ASYNC_NOTIFY),
    ("migration", Mask::IB_QP_PATH_MIG_STATE),
    ("alt_port", Mask::IB_QP_ALT_PATH),
    ("alt_pkey", Mask::IB_QP_ALT_PATH),
    ("alt_timeout", Mask::IB_QP_ALT_PATH),
    ("bytes", Mask::IB_QP_AV),
];

/// The attributes of a queue pair, by the name in the journal.
type Attributes = BTreeMap<&'static str, String>;

/// The number of a queue pair, and the states to which commands move it, in their order. Each state has all attributes that the
/// queue pair then has.
type QueuePair = (String, Vec<(QpState, Attributes)>);

/// Returns the queue pairs that change states during `run`, in the order of their first commands.
fn observe(run: impl FnOnce()) -> Vec<QueuePair> {
    mount_debugfs();
    let seen = super::observe(|| {
        run();
        String::new()
    });
    queue_pairs(&seen.journal)
}

fn queue_pairs(journal: &str) -> Vec<QueuePair> {
    let mut queue_pairs: Vec<QueuePair> = Vec::new();
    for line in journal.lines().filter_map(|line| line.strip_prefix("modify_qp ")) {
        let values: BTreeMap<&str, &str> =
            line.split(' ').map(|word| word.split_once('=').expect("a name and a value")).collect();
        let mask = u32::from_str_radix(&values["mask"][2..], 16).expect("a hexadecimal mask");
        let mask = Mask::from_bits_retain(mask);
        let number = values["qpn"];
        let at = queue_pairs.iter().position(|(of, _)| of == number).unwrap_or_else(|| {
            queue_pairs.push((number.to_owned(), Vec::new()));
            queue_pairs.len() - 1
        });
        let states = &mut queue_pairs[at].1;
        let mut attributes = states.last().map(|(_, last)| last.clone()).unwrap_or_default();
        let valid = FIELDS.iter().filter(|(_, flag)| mask.contains(*flag));
        attributes.extend(valid.map(|(name, _)| (*name, values[name].to_owned())));
        assert!(mask.contains(Mask::IB_QP_STATE), "command should change the state: {line}");
        states.push((QpState(values["state"].parse().expect("a state")), attributes));
    }
    queue_pairs
}

/// Removes the attributes that differ between two runs of one program from all states: numbers of packets and queue pairs, and the
/// flow label, which the kernel chooses. Checks in the last state of each queue pair that both sides agree on them.
fn take_agreed(queue_pairs: &mut [QueuePair]) {
    let [one, other] = queue_pairs else {
        panic!("a connection has two queue pairs: {queue_pairs:?}")
    };
    let last = |of: &QueuePair| of.1.last().expect("a state").1.clone();
    let (attributes, of_peer) = (last(one), last(other));
    assert_eq!(attributes["flow"], of_peer["flow"], "flow labels of both sides");
    assert_eq!(attributes["sq_psn"], of_peer["rq_psn"], "packets from the client");
    assert_eq!(attributes["rq_psn"], of_peer["sq_psn"], "packets from the server");
    assert_eq!((&attributes["dest"], &of_peer["dest"]), (&other.0, &one.0), "peers");
    for (_, states) in queue_pairs {
        for (_, attributes) in states {
            for name in ["dest", "flow", "rq_psn", "sq_psn"] {
                attributes.remove(name);
            }
        }
    }
}

/// Returns the number of commands to `state`.
fn count(queue_pair: &QueuePair, state: QpState) -> usize {
    queue_pair.1.iter().filter(|(of, _)| *of == state).count()
}

/// Returns the attributes after the last command to `state`.
fn attributes_in(queue_pair: &QueuePair, state: QpState) -> &Attributes {
    let found = queue_pair.1.iter().rfind(|(of, _)| *of == state);
    &found.unwrap_or_else(|| panic!("{state:?} of {queue_pair:?}")).1
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn connected_queue_pairs_match_c() {
    let [c, ours] = [Program::C, Program::Ours].map(|program| {
        let mut queue_pairs = observe(|| {
            let server = Server::start(program, roce_ip(), &["-C", "1"]);
            let client = connect(program, &server, 64, 1, &[]).finish();
            assert!(client.status.success(), "{}", client.stderr);
            let served = server.process.finish();
            assert!(served.status.success(), "{}", served.stderr);
        });
        take_agreed(&mut queue_pairs);
        queue_pairs
    });
    assert_eq!(c.len(), ours.len(), "number of queue pairs");
    for (c, ours) in c.iter().zip(&ours) {
        let inits = [c, ours].map(|of| count(of, QpState::IB_QPS_INIT));
        assert_eq!(inits, [2, 1], "changes to INIT of {c:?} and {ours:?}");
        assert_eq!(c.1[0], ours.1[0], "first change to INIT");
        for state in [QpState::IB_QPS_RTR, QpState::IB_QPS_RTS, QpState::IB_QPS_ERR] {
            assert_eq!(attributes_in(c, state), attributes_in(ours, state), "{state:?}");
        }
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn datagram_queue_pairs_match_c() {
    let [c, ours] = [Program::C, Program::Ours].map(|program| {
        observe(|| {
            let address = roce_ip();
            let line = format!("udaddy -b {address} -C 1");
            let server = listening(datagram::start(program, &line));
            let client = datagram::start(program, &format!("udaddy -s {address} -C 1")).finish();
            assert!(client.status.success(), "{}", client.stderr);
            let served = server.finish();
            assert!(served.status.success(), "{}", served.stderr);
        })
    });
    assert_eq!((c.len(), ours.len()), (2, 2), "number of queue pairs");
    let states = |of: Vec<QueuePair>| of.into_iter().map(|(_, states)| states).collect::<Vec<_>>();
    assert_eq!(states(c), states(ours));
}
