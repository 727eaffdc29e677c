use verbs_abi::{IB_USER_VERBS_CMD_MODIFY_SRQ, ib_uverbs_create_srq};
use zerocopy::IntoBytes as _;

use super::*;
use crate::driver::{Capabilities, External};
use crate::drivers::any::AnyDriver;
use crate::drivers::forged::Forged;
use crate::sys::uverbs::UverbsFile;

/// The command changes one attribute of the queue.
#[test]
fn changes_are_commands() {
    let (file, recorder) = UverbsFile::recording();
    let forged = Forged::new(Capabilities::default());
    let device = DeviceContext::new(file, AnyDriver::External(External::new(forged)));
    let request = CreateSrq::Plain(ib_uverbs_create_srq { max_wr: 4, ..Default::default() });
    let NewSrq { srq, mut ring, .. } = Srq::create(&device, request, None).expect("a queue");
    let srq = Srq { handle: 9, ..srq };
    assert_eq!(srq.handle(), 9);
    let change = ib_uverbs_modify_srq { srq_handle: 9, ..ib_uverbs_modify_srq::default() };
    srq.set_limit(&device, 3).expect("recorded");
    let attr_mask = ib_srq_attr_mask::IB_SRQ_LIMIT;
    let expected = ib_uverbs_modify_srq { attr_mask, srq_limit: 3, ..change };
    assert!(recorder.bytes().ends_with(expected.as_bytes()));
    srq.resize(&device, &mut ring, 7).expect("recorded");
    let attr_mask = ib_srq_attr_mask::IB_SRQ_MAX_WR;
    let expected = ib_uverbs_modify_srq { attr_mask, max_wr: 7, ..change };
    assert!(recorder.bytes().ends_with(expected.as_bytes()));
    assert_eq!(recorder.commands(), [IB_USER_VERBS_CMD_MODIFY_SRQ; 2]);
}
