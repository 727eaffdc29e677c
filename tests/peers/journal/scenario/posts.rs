//! Verbs of a script that post work requests.
//!
//! # Safety
//!
//! Requests name memory of the first region only. The region outlives the queue pairs, and is accessed by copying.
#![expect(unsafe_code, reason = "posts requests over memory that outlives their queue pair")]

use std::mem;

use rdmacm::verbs::{
    AddressHandle, BindRequest, Destination, Payload, QueuePair, ReceiveQueueGuard, ReceiveRequest,
    SendOperation, SendQueueGuard, SendRequest, Sge, SharedReceiveQueueGuard,
};

use super::queue_pair::{QKEY, Qp};
use super::words::{number, rights, send_flags};
use super::{Memory, Queues, Receive, Run, Send, at};

fn request_of(receive: &Receive) -> ReceiveRequest<'_> {
    ReceiveRequest { wr_id: receive.wr_id, scatter: receive.memory.sges() }
}

fn push_receives(queue: &mut ReceiveQueueGuard<'_>, receives: &[Receive]) {
    for receive in receives {
        // SAFETY: as in `post_receives`.
        unsafe { queue.push(&request_of(receive)) }.expect("post");
    }
    queue.ring_doorbell().expect("ring");
}

fn push_shared(queue: &mut SharedReceiveQueueGuard<'_>, receives: &[Receive]) {
    for receive in receives {
        // SAFETY: as in `post_receives`.
        unsafe { queue.push(&request_of(receive)) }.expect("post");
    }
    queue.ring_doorbell().expect("ring");
}

impl Run {
    /// Reads scatter/gather entries in the first region.
    pub(super) fn sges(&self, text: &str) -> Vec<Sge> {
        if text == "-" {
            return Vec::new();
        }
        let sge = |sge: &str| {
            let (wrong, sge) = match sge.strip_prefix('!') {
                Some(sge) => (1, sge),
                None => (0, sge),
            };
            let (offset, length) = sge.split_once('+').expect("an offset and a length");
            let (offset, length): (u64, u32) = (number(offset), number(length));
            let region = self.region();
            Sge { addr: (region.addr() + offset).into(), length, lkey: region.lkey() + wrong }
        };
        text.split(',').map(sge).collect()
    }

    /// Reads the memory of a request.
    pub(super) fn memory(&self, text: &str) -> Memory {
        let Some(buffer) = text.strip_prefix('#') else {
            return Memory::Sges(self.sges(text));
        };
        let (buffer, length) = buffer.split_once('+').expect("a buffer and a length");
        Memory::Buffer { buffer: number(buffer), length: number(length) }
    }

    pub(super) fn post_receives(&mut self, qp: usize, receives: &[Receive]) {
        if let Some(Qp::Buffered(_)) = self.qps[qp] {
            return self.post_buffered_receives(qp, receives);
        }
        let queues = self.queues_of(qp).clone();
        match (self.queues, receives) {
            (Queues::Plain, [receive]) => {
                // SAFETY: the request names memory of the region, which outlives the queue pair and is accessed by copying.
                unsafe { queues.post_recv(&request_of(receive)) }.expect("post");
            }
            (Queues::Plain, _) => {
                push_receives(&mut queues.lock_receive_queue().expect("queue"), receives);
            }
            (Queues::Kept, [receive]) => {
                let queue = self.kept.receive_queue(qp, &queues);
                // SAFETY: as in `post_receives`.
                unsafe { queue.post(&request_of(receive)) }.expect("post");
            }
            (Queues::Kept, _) => push_receives(self.kept.receive_queue(qp, &queues), receives),
        }
    }

    pub(super) fn post_shared(&mut self, srq: usize, receives: &[Receive]) {
        let shared = at(&self.srqs, srq);
        match (self.queues, receives) {
            (Queues::Plain, _) => {
                push_shared(&mut shared.lock_receive_queue().expect("queue"), receives);
            }
            (Queues::Kept, [receive]) => {
                let queue = self.kept.shared_queue(srq, shared);
                // SAFETY: as in `post_receives`.
                unsafe { queue.post(&request_of(receive)) }.expect("post");
            }
            (Queues::Kept, _) => push_shared(self.kept.shared_queue(srq, shared), receives),
        }
    }

    pub(super) fn post_sends(&mut self, qp: usize, sends: &[Send]) {
        if let Some(Qp::Buffered(_)) = self.qps[qp] {
            return self.post_buffered_sends(qp, sends);
        }
        if let ([send], Queues::Plain) = (sends, self.queues) {
            let queues = self.queues_of(qp);
            // SAFETY: as in `post_receives`.
            self.with_request(send, |request| unsafe { queues.post_send(request) }.expect("post"));
            return;
        }
        self.with_send_queue(qp, |run, queue| {
            if let ([send], Queues::Kept) = (sends, run.queues) {
                // SAFETY: as in `post_receives`.
                run.with_request(send, |request| unsafe { queue.post(request) }.expect("post"));
                return;
            }
            for send in sends {
                // SAFETY: as in `post_receives`.
                run.with_request(send, |request| unsafe { queue.push(request) }.expect("post"));
            }
            queue.ring_doorbell().expect("ring");
        });
    }

    /// Posts a list with one request that is refused, and returns the errno of this request.
    pub(super) fn post_too_many(&mut self, qp: usize, sends: &[Send]) -> i32 {
        let mut errnos = Vec::new();
        self.with_send_queue(qp, |run, queue| {
            for send in sends {
                run.with_request(send, |request| {
                    // SAFETY: as in `post_receives`.
                    let pushed = unsafe { queue.push(request) };
                    errnos.extend(pushed.err().map(|error| error.errno()));
                });
            }
            queue.ring_doorbell().expect("ring");
        });
        let [errno] = errnos[..] else { panic!("one request should be refused: {errnos:?}") };
        errno
    }

    /// Calls `post` with the send queue of a queue pair. The queue is locked for this call unless the script keeps it locked.
    fn with_send_queue(&mut self, qp: usize, post: impl FnOnce(&Self, &mut SendQueueGuard<'_>)) {
        let mut kept = mem::take(&mut self.kept);
        let queues = self.queues_of(qp);
        match self.queues {
            Queues::Kept => post(self, kept.send_queue(qp, queues)),
            Queues::Plain => post(self, &mut queues.lock_send_queue().expect("queue")),
        }
        self.kept = kept;
    }

    pub(super) fn queues_of(&self, qp: usize) -> &QueuePair {
        self.queues(&qp.to_string())
    }

    /// Posts a bind of a window. The words are the window, the scatter/gather entry, the rights and the flags.
    pub(super) fn bind(&mut self, wr_id: u64, qp: usize, words: [&str; 4]) {
        match (&self.qps[qp], self.queues) {
            (Some(Qp::Buffered(_)), _) => self.bind_buffered(wr_id, qp, words),
            (_, Queues::Plain) => self.with_bind(wr_id, words, |request| {
                // SAFETY: the region owns its memory, which is accessed by copying.
                unsafe { self.queues_of(qp).bind_window(request) }.expect("post");
            }),
            (_, Queues::Kept) => self.with_send_queue(qp, |run, queue| {
                run.with_bind(wr_id, words, |request| {
                    // SAFETY: the region owns its memory, which is accessed by copying.
                    unsafe { queue.bind_window(request) }.expect("post");
                });
                queue.ring_doorbell().expect("ring");
            }),
        }
    }

    /// Builds the request of a bind, and passes it to `post`.
    pub(super) fn with_bind(
        &self,
        wr_id: u64,
        [window, sges, letters, flags]: [&str; 4],
        post: impl FnOnce(&BindRequest<'_>),
    ) {
        let region = self.region();
        let sges = self.sges(sges);
        let (offset, length) = sges.first().map_or((0, 0), |sge| {
            (
                usize::try_from(sge.addr.get() - region.addr()).expect("an offset"),
                sge.length as usize,
            )
        });
        let (window, access) = (at(&self.windows, number(window)), rights(letters));
        let flags = send_flags(flags);
        post(&BindRequest { wr_id, window, region, offset, length, access, flags });
    }

    /// Builds the request of `send`, and passes it to `post`.
    fn with_request(&self, send: &Send, post: impl FnOnce(&SendRequest<'_>)) {
        let (wr_id, sges) = (send.wr_id, send.memory.sges());
        let flags = send_flags(&send.flags);
        let bytes = send.flags.contains('i').then(|| self.bytes(sges));
        let payload = bytes.as_deref().map_or(Payload::Gather(sges), Payload::Inline);
        self.with_operation(&send.operation, |operation| {
            post(&SendRequest { wr_id, operation, payload, flags });
        });
    }

    /// Builds the operation that the text names, and passes it to `post`.
    pub(super) fn with_operation(&self, operation: &str, post: impl FnOnce(SendOperation<'_>)) {
        let region = self.region();
        let rkey = region.rkey();
        let remote = |offset: &str| region.addr() + number::<u64>(offset);
        let destination = |ah: &str, qp: &str| Destination {
            address: at::<AddressHandle>(&self.ahs, number(ah)),
            qp_num: self.qp(qp).number(),
            qkey: QKEY,
        };
        let parts: Vec<&str> = operation.split(':').collect();
        let (srq, parts) = match parts[..] {
            ["at", srq, ref rest @ ..] => (Some(srq), rest),
            ref rest => (None, rest),
        };
        let operation = match *parts {
            ["send"] => SendOperation::Send,
            ["send_imm", immediate] => SendOperation::SendWithImm { imm_data: number(immediate) },
            ["send_inv"] => SendOperation::SendWithInvalidate { rkey },
            ["send_inv", window] => {
                SendOperation::SendWithInvalidate { rkey: at(&self.windows, number(window)).rkey() }
            }
            ["invalidate", window] => {
                SendOperation::LocalInvalidate { rkey: at(&self.windows, number(window)).rkey() }
            }
            ["write_through", window, to] => {
                let rkey = at(&self.windows, number(window)).rkey();
                SendOperation::Write { remote_addr: remote(to), rkey }
            }
            ["datagram", ah, qp] => {
                SendOperation::SendTo { destination: destination(ah, qp), imm_data: None }
            }
            ["datagram_imm", ah, qp, immediate] => SendOperation::SendTo {
                destination: destination(ah, qp),
                imm_data: Some(number(immediate)),
            },
            ["multicast", ah] => SendOperation::SendTo {
                destination: Destination {
                    address: at::<AddressHandle>(&self.ahs, number(ah)),
                    qp_num: 0xff_ffff,
                    qkey: QKEY,
                },
                imm_data: None,
            },
            ["write", to] => SendOperation::Write { remote_addr: remote(to), rkey },
            ["write_badly", to] => {
                SendOperation::Write { remote_addr: remote(to), rkey: rkey.wrapping_add(1) }
            }
            ["write_imm", to, immediate] => SendOperation::WriteWithImm {
                remote_addr: remote(to),
                rkey,
                imm_data: number(immediate),
            },
            ["read", from] => SendOperation::Read { remote_addr: remote(from), rkey },
            ["swap", to, compare, swap] => SendOperation::CompareSwap {
                remote_addr: remote(to),
                rkey,
                compare: number(compare),
                swap: number(swap),
            },
            ["add", to, add] => {
                SendOperation::FetchAdd { remote_addr: remote(to), rkey, add: number(add) }
            }
            _ => panic!("unknown operation: {parts:?}"),
        };
        let number_of = |srq| {
            at(&self.srqs, number(srq)).number().expect("the queue should be in an XRC domain")
        };
        let operation = match srq.map(number_of) {
            Some(srq_number) => {
                SendOperation::AtSharedQueue { srq_number, operation: &{ operation } }
            }
            None => operation,
        };
        post(operation);
    }

    /// Returns the bytes to which `sges` of the first region refer.
    fn bytes(&self, sges: &[Sge]) -> Vec<u8> {
        let region = self.region();
        let read = |sge: &Sge| {
            let mut bytes = vec![0; sge.length as usize];
            let offset = usize::try_from(sge.addr.get() - region.addr()).expect("an offset");
            region.read(offset, &mut bytes).expect("the range should be within the memory");
            bytes
        };
        sges.iter().flat_map(read).collect()
    }
}
