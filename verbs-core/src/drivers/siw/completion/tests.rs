use super::*;

#[test]
fn every_opcode_and_status_is_translated() {
    let opcodes = [
        (siw_opcode::SIW_OP_WRITE, WcOpcode::IB_UVERBS_WC_RDMA_WRITE),
        (siw_opcode::SIW_OP_READ, WcOpcode::IB_UVERBS_WC_RDMA_READ),
        (siw_opcode::SIW_OP_READ_LOCAL_INV, WcOpcode::IB_UVERBS_WC_RDMA_READ),
        (siw_opcode::SIW_OP_SEND, WcOpcode::IB_UVERBS_WC_SEND),
        (siw_opcode::SIW_OP_SEND_WITH_IMM, WcOpcode::IB_UVERBS_WC_SEND),
        (siw_opcode::SIW_OP_SEND_REMOTE_INV, WcOpcode::IB_UVERBS_WC_SEND),
        (siw_opcode::SIW_OP_FETCH_AND_ADD, UNKNOWN),
        (siw_opcode::SIW_OP_COMP_AND_SWAP, UNKNOWN),
        (siw_opcode::SIW_OP_RECEIVE, WcOpcode::IB_WC_RECV),
        (siw_opcode::SIW_OP_READ_RESPONSE, UNKNOWN),
        (siw_opcode::SIW_OP_INVAL_STAG, UNKNOWN),
        (siw_opcode::SIW_OP_REG_MR, UNKNOWN),
        (siw_opcode(u8::MAX), UNKNOWN),
    ];
    let statuses = [
        (siw_wc_status::SIW_WC_SUCCESS, WcStatus::IB_WC_SUCCESS),
        (siw_wc_status::SIW_WC_LOC_LEN_ERR, WcStatus::IB_WC_LOC_LEN_ERR),
        (siw_wc_status::SIW_WC_LOC_PROT_ERR, WcStatus::IB_WC_LOC_PROT_ERR),
        (siw_wc_status::SIW_WC_LOC_QP_OP_ERR, WcStatus::IB_WC_LOC_QP_OP_ERR),
        (siw_wc_status::SIW_WC_WR_FLUSH_ERR, WcStatus::IB_WC_WR_FLUSH_ERR),
        (siw_wc_status::SIW_WC_BAD_RESP_ERR, WcStatus::IB_WC_BAD_RESP_ERR),
        (siw_wc_status::SIW_WC_LOC_ACCESS_ERR, WcStatus::IB_WC_LOC_ACCESS_ERR),
        (siw_wc_status::SIW_WC_REM_ACCESS_ERR, WcStatus::IB_WC_REM_ACCESS_ERR),
        (siw_wc_status::SIW_WC_REM_INV_REQ_ERR, WcStatus::IB_WC_REM_INV_REQ_ERR),
        (siw_wc_status::SIW_WC_GENERAL_ERR, WcStatus::IB_WC_GENERAL_ERR),
        (siw_wc_status(u16::MAX), WcStatus::IB_WC_GENERAL_ERR),
    ];
    for (opcode, expected) in opcodes {
        for (status, due) in statuses {
            let due = if expected == UNKNOWN { WcStatus::IB_WC_GENERAL_ERR } else { due };
            let element = siw_cqe {
                id: 7.into(),
                opcode,
                status,
                bytes: 9,
                qp_id: 11.into(),
                ..siw_cqe::default()
            };
            let wc = translate_completion(&element);
            let is_success = due == WcStatus::IB_WC_SUCCESS;
            assert_eq!(translate_success(&element), is_success.then_some(wc));
            assert_eq!((wc.opcode, wc.status), (expected, due), "{opcode:?} {status:?}");
            assert_eq!((wc.wr_id.get(), wc.byte_len, wc.qp_num), (7, 9, 11));
        }
    }
}
