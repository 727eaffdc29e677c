use verbs_abi::{ib_uverbs_wc, ib_wc_flags};

use super::*;

/// Each field has its own value, so that no function can return another one.
#[test]
fn functions_return_their_fields() {
    let completion = Completion(ib_uverbs_wc {
        wr_id: 21.into(),
        status: WcStatus::IB_WC_LOC_PROT_ERR,
        opcode: WcOpcode::IB_WC_RECV_RDMA_WITH_IMM,
        vendor_err: 22,
        byte_len: 23,
        ex: 24_u32.to_be_bytes(),
        qp_num: 25,
        src_qp: 26,
        wc_flags: ib_wc_flags::IB_WC_GRH | ib_wc_flags::IB_WC_WITH_IMM,
        pkey_index: 27,
        slid: 28,
        sl: 29,
        dlid_path_bits: 30,
        port_num: 31,
        ..ib_uverbs_wc::default()
    });
    assert_eq!(completion.wr_id(), 21);
    assert_eq!(completion.status(), WcStatus::IB_WC_LOC_PROT_ERR);
    assert_eq!(completion.opcode(), WcOpcode::IB_WC_RECV_RDMA_WITH_IMM);
    assert_eq!((completion.vendor_err(), completion.byte_len()), (22, 23));
    assert_eq!((completion.imm_data(), completion.invalidated_rkey()), (Some(24), None));
    assert_eq!((completion.qp_num(), completion.src_qp()), (25, 26));
    assert_eq!((completion.pkey_index(), completion.slid(), completion.sl()), (27, 28, 29));
    assert_eq!((completion.dlid_path_bits(), completion.port_num()), (30, 31));
    assert!(completion.has_grh() && completion.is_receive() && !completion.is_success());
    assert_eq!(completion.flags(), ib_wc_flags::IB_WC_GRH | ib_wc_flags::IB_WC_WITH_IMM);
    let sent = Completion(ib_uverbs_wc { opcode: WcOpcode::IB_UVERBS_WC_SEND, ..completion.0 });
    assert!(!sent.is_receive() && sent.imm_data().is_none(), "only receives have immediate data");
    let plain = Completion::default();
    assert!(plain.is_success() && !plain.has_grh() && plain.imm_data().is_none());
}

#[test]
fn invalidated_key_is_that_of_receive() {
    let received = Completion(ib_uverbs_wc {
        opcode: WcOpcode::IB_WC_RECV,
        ex: 7_u32.to_ne_bytes(),
        wc_flags: ib_wc_flags::IB_WC_WITH_INVALIDATE,
        ..ib_uverbs_wc::default()
    });
    assert_eq!((received.invalidated_rkey(), received.imm_data()), (Some(7), None));
    let sent = Completion(ib_uverbs_wc { opcode: WcOpcode::IB_UVERBS_WC_SEND, ..received.0 });
    assert_eq!(sent.invalidated_rkey(), None);
}
