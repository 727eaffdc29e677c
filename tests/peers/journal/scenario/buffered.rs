//! Verbs of a script on queue pairs whose queues belong to a [`BufferedQueuePair`].

use std::collections::BTreeMap;

use rdmacm::verbs::{BufferedQueuePair, Completion, RegisteredBuffer};

use super::queue_pair::{QKEY, Qp};
use super::words::number;
use super::{Memory, Receive, Run, Send, at, take};

/// The buffers of a script, by their numbers.
#[derive(Default)]
pub(super) struct Buffers {
    /// The buffers that are not posted.
    free: BTreeMap<usize, RegisteredBuffer>,
    /// The identifiers that the script gave to the requests of the posted buffers.
    ids: BTreeMap<usize, u64>,
}

impl Buffers {
    /// Returns the first `length` bytes of a buffer.
    pub(super) fn bytes(&self, number: usize, length: usize) -> Vec<u8> {
        self.free[&number][..length].to_vec()
    }

    /// Takes a buffer for the request with this identifier.
    fn take(&mut self, number: usize, wr_id: u64) -> RegisteredBuffer {
        self.ids.insert(number, wr_id);
        self.free.remove(&number).expect("buffer should not be posted")
    }

    /// Returns `buffer` to the free buffers. Returns the identifier of its request.
    fn put(&mut self, buffer: RegisteredBuffer) -> u64 {
        let number = buffer.index();
        self.free.insert(number, buffer);
        self.ids.remove(&number).expect("buffer should have been posted")
    }
}

impl Run {
    pub(super) fn create_buffers(&mut self, count: usize, length: usize) {
        let mut buffers = RegisteredBuffer::alloc(self.pd(), count, length).expect("buffers");
        for buffer in &mut buffers {
            let start = buffer.index() * length;
            for (at, byte) in buffer.iter_mut().enumerate() {
                *byte = ((start + at) * 7 + 3).to_le_bytes()[0];
            }
        }
        self.buffers.free = buffers.into_iter().map(|buffer| (buffer.index(), buffer)).collect();
        // The region has a number, but only the buffers name it.
        self.regions.push(None);
    }

    /// Moves the queues of a queue pair into a [`BufferedQueuePair`].
    pub(super) fn buffer(&mut self, number: usize) {
        let Qp::WithQueues(qp) = take(&mut self.qps, number) else {
            panic!("the queue pair has no queues")
        };
        let queues = Box::new(BufferedQueuePair::new(qp).expect("queues"));
        self.qps[number] = Some(Qp::Buffered(queues));
    }

    /// Calls `body` with the queues of a buffered queue pair.
    fn with_buffered(
        &mut self,
        number: usize,
        body: impl FnOnce(&mut Self, &mut BufferedQueuePair),
    ) {
        let Qp::Buffered(mut queues) = take(&mut self.qps, number) else {
            panic!("the queue pair is not buffered")
        };
        body(self, &mut queues);
        self.qps[number] = Some(Qp::Buffered(queues));
    }

    /// Takes the buffer of a request, and returns it with the length that the request uses.
    fn take_buffer(&mut self, wr_id: u64, memory: &Memory) -> (RegisteredBuffer, usize) {
        let Memory::Buffer { buffer, length } = *memory else { panic!("{wr_id} has no buffer") };
        (self.buffers.take(buffer, wr_id), length)
    }

    pub(super) fn post_buffered_receives(&mut self, qp: usize, receives: &[Receive]) {
        self.with_buffered(qp, |run, queues| {
            for Receive { wr_id, memory } in receives {
                let (buffer, length) = run.take_buffer(*wr_id, memory);
                assert_eq!(buffer.len(), length, "a receive takes the whole buffer");
                queues.post_recv(buffer).expect("post");
            }
        });
    }

    pub(super) fn post_buffered_sends(&mut self, qp: usize, sends: &[Send]) {
        self.with_buffered(qp, |run, queues| {
            for Send { wr_id, operation, flags, memory } in sends {
                assert_eq!(flags, "s", "buffers are posted signaled");
                let (buffer, length) = run.take_buffer(*wr_id, memory);
                let words: Vec<&str> = operation.split(':').collect();
                let (ah, qp, imm_data) = match words[..] {
                    ["datagram", ah, qp] => (ah, qp, None),
                    ["datagram_imm", ah, qp, immediate] => (ah, qp, Some(number(immediate))),
                    _ => {
                        run.with_operation(operation, |operation| {
                            queues.post_send(buffer, length, operation).expect("post");
                        });
                        continue;
                    }
                };
                let (address, qp_num) = (at(&run.ahs, number(ah)), run.qp(qp).number());
                let posted = queues.post_send_to(buffer, length, address, qp_num, QKEY, imm_data);
                posted.expect("post");
            }
        });
    }

    /// Posts a bind. The request holds the last free buffer.
    pub(super) fn bind_buffered(&mut self, wr_id: u64, qp: usize, words: [&str; 4]) {
        self.with_buffered(qp, |run, queues| {
            let last = *run.buffers.free.keys().next_back().expect("a buffer should be free");
            let buffer = run.buffers.take(last, wr_id);
            run.with_bind(wr_id, words, |request| {
                queues.bind_window(buffer, request).expect("post");
            });
        });
    }

    /// Polls all completions of a completion queue, or returns `None` if no buffered queue pair uses it.
    pub(super) fn poll_buffered(&mut self, cq: usize) -> Option<Vec<(u64, Completion)>> {
        let cq = at(&self.cqs, cq);
        let polls = |qp: &&mut Qp| match qp {
            Qp::Buffered(queues) => [queues.qp().recv_cq(), queues.qp().send_cq()].contains(&cq),
            _ => false,
        };
        let Qp::Buffered(queues) = self.qps.iter_mut().flatten().find(polls)? else { return None };
        let (buffers, mut polled) = (&mut self.buffers, Vec::new());
        let each = |buffer, completion: &Completion| {
            polled.push((buffers.put(buffer), *completion));
        };
        let count = match queues.qp().recv_cq() == cq {
            true => queues.poll_recv(each),
            false => queues.poll_send(each),
        };
        assert_eq!(count.expect("poll"), polled.len());
        Some(polled)
    }
}
