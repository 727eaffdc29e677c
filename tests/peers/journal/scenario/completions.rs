//! Polling, and the lines that are printed for completions.

use std::fmt::Write as _;
use std::thread;

use rdmacm::verbs::{Completion, QpType, WcOpcode};

use super::{Queues, Run, at};

impl Run {
    pub(super) fn poll(&mut self, cq: usize, most: usize) {
        let polled = self.polled(cq, most);
        self.print(&format!("polled {}", polled.len()));
        for (wr_id, completion) in &polled {
            let line = self.shown(*wr_id, completion);
            self.print(&line);
        }
    }

    /// Polls once, for at most `most` completions. Returns each with the identifier that the script gave to its request.
    fn polled(&mut self, cq: usize, most: usize) -> Vec<(u64, Completion)> {
        if let Some(polled) = self.poll_buffered(cq) {
            assert!(polled.len() <= most, "a buffered queue pair polls all completions");
            return polled;
        }
        let mut completions = vec![Completion::default(); most];
        let queue = at(&self.cqs, cq);
        let count = match self.queues {
            Queues::Plain => queue.poll(&mut completions),
            Queues::Kept => self.kept.poller(cq, queue).poll(&mut completions),
        };
        completions.truncate(count.expect("poll"));
        completions.into_iter().map(|completion| (completion.wr_id(), completion)).collect()
    }

    /// Polls until `count` completions have arrived. The time limit of the test bounds the wait.
    pub(super) fn wait_for(&mut self, cq: usize, mut count: u32) {
        while count > 0 {
            let polled = self.polled(cq, 1);
            let Some((wr_id, completion)) = polled.first() else {
                self.sweep(1);
                thread::yield_now();
                continue;
            };
            let line = self.shown(*wr_id, completion);
            self.print(&line);
            count -= 1;
        }
    }

    /// Returns the line of a completion, with the fields that its operation defines.
    fn shown(&self, wr_id: u64, completion: &Completion) -> String {
        let (status, qp) = (completion.status().0, self.qp_of(completion.qp_num()));
        let mut line = format!("completion id={wr_id} status={status} qp={qp}");
        let mut add = |name: &str, value: i64| write!(line, " {name}={value}").expect("a string");
        if !completion.is_success() {
            add("vendor", completion.vendor_err().into());
            return line;
        }
        let opcode = completion.opcode();
        add("opcode", opcode.0.into());
        let has_length = matches!(
            opcode,
            WcOpcode::IB_UVERBS_WC_RDMA_READ
                | WcOpcode::IB_UVERBS_WC_COMP_SWAP
                | WcOpcode::IB_UVERBS_WC_FETCH_ADD
        );
        if completion.is_receive() || has_length {
            add("length", completion.byte_len().into());
        }
        if completion.is_receive() {
            let invalidated = if completion.invalidated_rkey().is_some() { 4 } else { 0 };
            let immediate = if completion.imm_data().is_some() { 2 } else { 0 };
            add("flags", i64::from(completion.has_grh()) | immediate | invalidated);
        }
        if let Some(immediate) = completion.imm_data() {
            add("immediate", immediate.into());
        }
        if let Some(rkey) = completion.invalidated_rkey() {
            add("invalidated", (rkey == self.region().rkey()).into());
        }
        let is_datagram = self.qps.iter().flatten().any(|qp| {
            qp.number() == completion.qp_num() && qp.qp_type() == QpType::IB_UVERBS_QPT_UD
        });
        if completion.is_receive() && is_datagram {
            add("source", self.qp_of(completion.src_qp()));
            add("sl", completion.sl().into());
        }
        line
    }
}
