//! Verbs of a script that post work requests.
//!
//! # Safety
//!
//! Requests name memory of the first region only. The region outlives the queue pairs, and is accessed by copying.
#![expect(unsafe_code, reason = "posts requests over memory that outlives their queue pair")]

use rdmacm::verbs::{
    AddressHandle, BindRequest, Destination, Payload, QueuePair, ReceiveRequest, SendOperation,
    SendRequest, Sge, SharedReceiveQueue,
};

use super::{QKEY, Run, Send, at, number, rights, send_flags};

impl Run {
    /// Reads scatter/gather entries in the first region.
    pub(super) fn pieces(&self, text: &str) -> Vec<Sge> {
        if text == "-" {
            return Vec::new();
        }
        let piece = |piece: &str| {
            let (wrong, piece) = match piece.strip_prefix('!') {
                Some(piece) => (1, piece),
                None => (0, piece),
            };
            let (offset, length) = piece.split_once('+').expect("an offset and a length");
            let (offset, length): (u64, u32) = (number(offset), number(length));
            let region = self.region();
            Sge { addr: (region.addr() + offset).into(), length, lkey: region.lkey() + wrong }
        };
        text.split(',').map(piece).collect()
    }

    pub(super) fn post_receives(&self, qp: &QueuePair, receives: &[(u64, Vec<Sge>)]) {
        if let [(wr_id, scatter)] = receives {
            // SAFETY: the request names memory of the region, which outlives the queue pair and is accessed by copying.
            unsafe { qp.post_recv(&ReceiveRequest { wr_id: *wr_id, scatter }) }.expect("post");
            return;
        }
        let mut queue = qp.lock_receive_queue().expect("queue");
        for (wr_id, scatter) in receives {
            // SAFETY: as above.
            unsafe { queue.push(&ReceiveRequest { wr_id: *wr_id, scatter }) }.expect("post");
        }
        queue.ring_doorbell().expect("ring");
    }

    pub(super) fn post_shared(&self, srq: &SharedReceiveQueue, receives: &[(u64, Vec<Sge>)]) {
        let mut queue = srq.lock_receive_queue().expect("queue");
        for (wr_id, scatter) in receives {
            // SAFETY: as in `post_receives`.
            unsafe { queue.push(&ReceiveRequest { wr_id: *wr_id, scatter }) }.expect("post");
        }
        queue.ring_doorbell().expect("ring");
    }

    pub(super) fn post_sends(&self, qp: &QueuePair, sends: &[Send]) {
        if let [send] = sends {
            // SAFETY: as in `post_receives`.
            self.with_request(send, |request| unsafe { qp.post_send(request) }.expect("post"));
            return;
        }
        let mut queue = qp.lock_send_queue().expect("queue");
        for send in sends {
            // SAFETY: as in `post_receives`.
            self.with_request(send, |request| unsafe { queue.push(request) }.expect("post"));
        }
        queue.ring_doorbell().expect("ring");
    }

    /// Posts a list of which one request is refused, and returns the errno of this request.
    pub(super) fn post_too_many(&self, qp: &QueuePair, sends: &[Send]) -> i32 {
        let mut queue = qp.lock_send_queue().expect("queue");
        let mut errnos = Vec::new();
        for send in sends {
            self.with_request(send, |request| {
                // SAFETY: as in `post_receives`.
                errnos.extend(unsafe { queue.push(request) }.err().map(|error| error.errno()));
            });
        }
        queue.ring_doorbell().expect("ring");
        let [errno] = errnos[..] else { panic!("one request should be refused: {errnos:?}") };
        errno
    }

    pub(super) fn bind(&self, wr_id: u64, [qp, window, pieces, letters, flags]: [&str; 5]) {
        let region = self.region();
        let pieces = self.pieces(pieces);
        let (offset, length) = pieces.first().map_or((0, 0), |piece| {
            (
                usize::try_from(piece.addr.get() - region.addr()).expect("an offset"),
                piece.length as usize,
            )
        });
        let (window, access) = (at(&self.windows, number(window)), rights(letters));
        let request =
            BindRequest { wr_id, window, region, offset, length, access, flags: send_flags(flags) };
        // SAFETY: the region owns its memory, which is accessed by copying.
        unsafe { self.queues(qp).bind_window(&request) }.expect("post");
    }

    /// Builds the request of `send`, and passes it to `post`.
    fn with_request(&self, send: &Send, post: impl FnOnce(&SendRequest<'_>)) {
        let Send { wr_id, ref operation, flags: ref letters, ref pieces } = *send;
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
        let number_of = |srq| at(&self.srqs, number(srq)).number().expect("in an XRC domain");
        let operation = match srq.map(number_of) {
            Some(srq_number) => {
                SendOperation::AtSharedQueue { srq_number, operation: &{ operation } }
            }
            None => operation,
        };
        let flags = send_flags(letters);
        let bytes = letters.contains('i').then(|| self.bytes(pieces));
        let payload = bytes.as_deref().map_or(Payload::Gather(pieces), Payload::Inline);
        post(&SendRequest { wr_id, operation, payload, flags });
    }

    /// Returns the bytes to which `pieces` of the first region refer.
    fn bytes(&self, pieces: &[Sge]) -> Vec<u8> {
        let region = self.region();
        let read = |piece: &Sge| {
            let mut bytes = vec![0; piece.length as usize];
            let offset = usize::try_from(piece.addr.get() - region.addr()).expect("an offset");
            region.read(offset, &mut bytes).expect("within the memory");
            bytes
        };
        pieces.iter().flat_map(read).collect()
    }
}
