use super::super::memory::QueueMemory;
use super::super::register::{Slot, Use};
use super::super::table::UserIndex;
use super::*;
use crate::sys::mapping::Mapping;

#[test]
fn doorbell_of_ended_generation_is_not_stored() {
    let memory = QueueMemory::new([256]).expect("memory");
    let table = Table::new(7, 4, 0, None, Arc::new(UserIndex::NONE));
    let current = Current::new(table, memory.record.clone());
    let page = Arc::new(Mapping::private(4096).expect("memory"));
    let slot = Slot::new(&page, 0x800, 512, Use::Dedicated).expect("the slot fits into the page");
    let register = Register::new(slot, true);
    let [ring] = memory.rings;
    let (record, size) = (memory.record, SendSize { blocks: 4, requests: 4, max_inline: 0 });
    let options = Options::new(false, false, false);
    let shared = Arc::clone(&current);
    let mut queue = SendRing::new(ring, record.clone(), register, shared, size, 1, options);
    let request = SendRequest {
        wr_id: 1,
        operation: SendOperation::Send,
        payload: Payload::Gather(&[]),
        flags: SendFlags::empty(),
    };
    // SAFETY: the request has no memory.
    let put = |queue: &mut SendRing| unsafe { queue.put(QpState::IB_QPS_RTS, &request) };
    put(&mut queue).expect("there is room");
    current.reset(&[]);
    queue.ring_doorbell();
    assert_eq!(record.load(Word::Second), 0);
    put(&mut queue).expect("there is room");
    queue.ring_doorbell();
    assert_eq!(record.load(Word::Second), 1);
}
