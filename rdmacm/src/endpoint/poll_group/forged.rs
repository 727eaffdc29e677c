//! A poll group without a kernel, whose completions and events a fuzz target or a test chooses.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::pipe2;

#[cfg(test)]
use verbs_abi::ib_uverbs_wc;

use super::config::PollGroupConfig;
use super::group::PollGroup;
use super::link::{Attempt, Link, Phase};
use super::member_table::Member;
use crate::cm::forged::{channel_on, deliver};
use crate::cm::{CmId, PortSpace};
use crate::driver::{Capabilities, External};
use crate::drivers::any::AnyDriver;
use crate::drivers::forged::Forged;
use crate::endpoint::connect::attempt_peer::AttemptPeer;
use crate::endpoint::shared::trace::Trace;
use crate::error::Result;
use crate::verbs::{CompletionChannel, Context, QpState, QueuePair, QueuePairAttributes};
#[cfg(test)]
use crate::{drivers::forged::Request, verbs::Completion, verbs::WcStatus};

/// The capacity of the command pipe in bytes: few commands fill it.
const PAGE: i32 = 4096;

/// The number of `RDMA_CM_EVENT_ESTABLISHED`.
pub(super) const ESTABLISHED: u32 = 9;
/// The number of `RDMA_CM_EVENT_DISCONNECTED`.
#[cfg(test)]
pub(super) const DISCONNECTED: u32 = 10;
/// The number of `RDMA_CM_EVENT_DEVICE_REMOVAL`.
#[cfg(test)]
pub(super) const DEVICE_REMOVAL: u32 = 11;
/// The number of `RDMA_CM_EVENT_ADDR_CHANGE`.
#[cfg(test)]
pub(super) const ADDR_CHANGE: u32 = 14;

/// A poll group with its device.
pub(super) struct ForgedGroup {
    // Declared first, because fields drop in order: a dropped group sends commands to the pipe.
    pub(super) group: PollGroup,
    pub(super) device: Forged,
    /// The end of the completion channel to which the kernel writes events.
    pub(super) completion_events: UnixStream,
    /// The read end of the pipe that receives the commands of the connection manager.
    commands: File,
}

impl ForgedGroup {
    /// Creates a group without members.
    ///
    /// # Panics
    ///
    /// Panics if the process has no descriptors left.
    pub(super) fn new(capabilities: Capabilities, config: &PollGroupConfig) -> Self {
        let device = Forged::new(capabilities);
        let context = Context::on_null(AnyDriver::External(External::new(device.clone())));
        let (completions, completion_events) = CompletionChannel::on_socket(&context);
        completion_events.set_nonblocking(true).expect("set_nonblocking should succeed");
        let (commands, written) =
            pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).expect("the pipe should be created");
        fcntl(&written, FcntlArg::F_SETPIPE_SZ(PAGE)).expect("the pipe should hold a page");
        let (is_iwarp, channel) = (capabilities.qp_follows_connection, channel_on(written));
        let group = PollGroup::with_context(&context, is_iwarp, completions, channel, config);
        Self {
            group: group.expect("the group should be created"),
            device,
            completion_events,
            commands: commands.into(),
        }
    }

    /// Adds a member, as [`PollGroup::add`] does for a connection request.
    ///
    /// Only a kernel can deliver such a request. The queue pair gets the `number`. If `is_late`, the deadline of the
    /// attempt has passed.
    pub(super) fn accept(
        &mut self,
        number: u32,
        writes_first: bool,
        is_late: bool,
    ) -> Result<Member> {
        let Self { group, device, .. } = self;
        device.device().next_number = number;
        group.make_room_for_qp()?;
        let id = CmId::new(&group.channel, PortSpace::Tcp)?;
        let qp = QueuePair::new(&group.resources.pd, &group.qp_init())?;
        qp.modify(&QueuePairAttributes::to(QpState::IB_QPS_RTS))?;
        let deadline = is_late.then(Instant::now);
        let attempt = Attempt {
            connect_attempt: None,
            peer: AttemptPeer::Client(None),
            private_data: Vec::new(),
            deadline,
            total_deadline: deadline,
        };
        let (first, context) = ((Phase::Answer, attempt), group.resources.pd.context());
        let link = Link::new(id, context, &group.config, first, writes_first, Trace::default());
        group.insert(link, Some(qp))
    }

    /// Delivers an event of the member's id.
    pub(super) fn deliver(&mut self, member: Member, event_type: u32, status: u32) -> Result<()> {
        let Some(link) = self.group.members.get(member) else { return Ok(()) };
        let event = deliver(&self.group.channel, &link.id, event_type, status);
        event.map_or(Ok(()), |event| self.group.on_event(&event))
    }

    /// Reads the commands in the pipe, so that the pipe has room for further commands.
    pub(super) fn receive_commands(&mut self) {
        let mut bytes = [0; PAGE as usize];
        while self.commands.read(&mut bytes).is_ok_and(|length| length > 0) {}
    }

    /// Returns the group, and its kernel and device, which must live as long as the group.
    #[cfg(test)]
    pub(super) fn into_parts(self) -> (PollGroup, impl Sized) {
        let Self { group, device, completion_events, commands } = self;
        (group, (device, completion_events, commands))
    }

    /// Makes every later command of the connection manager fail with EPIPE.
    #[cfg(test)]
    pub(super) fn break_commands(&mut self) {
        self.commands = File::open("/dev/null").expect("open should succeed");
    }

    /// Completes the oldest receive, as one of the queue pair with this number.
    #[cfg(test)]
    pub(super) fn complete_receive(&mut self, qp_num: u32, status: WcStatus) {
        let completion = self.take_receive(qp_num, status);
        self.device.device().completions[0].push_back(completion);
    }

    /// Completes the oldest receive after the next poll of the queue for receives.
    ///
    /// The completion is that of the queue pair with the number `qp_num`.
    #[cfg(test)]
    pub(super) fn complete_receive_meanwhile(&mut self, qp_num: u32) {
        let completion = self.take_receive(qp_num, WcStatus::IB_WC_SUCCESS);
        self.device.device().arrives_meanwhile = Some((0, completion));
    }

    #[cfg(test)]
    fn take_receive(&mut self, qp_num: u32, status: WcStatus) -> Completion {
        let mut device = self.device.device();
        let is_receive = |request: &Request| request.qp_num.is_none();
        let place =
            device.requests.iter().position(is_receive).expect("a receive should be posted");
        let wr_id = device.requests.remove(place).wr_id.into();
        Completion(ib_uverbs_wc { wr_id, qp_num, status, ..ib_uverbs_wc::default() })
    }

    /// Completes all sends of the queue pair with this number.
    #[cfg(test)]
    pub(super) fn complete_sends(&mut self, qp_num: u32, status: WcStatus) {
        let device = &mut *self.device.device();
        let is_send = |request: &mut Request| request.qp_num == Some(qp_num);
        for Request { wr_id, .. } in device.requests.extract_if(.., is_send) {
            let completion =
                ib_uverbs_wc { wr_id: wr_id.into(), qp_num, status, ..ib_uverbs_wc::default() };
            device.completions[1].push_back(Completion(completion));
        }
    }

    /// Returns `true` if the descriptor of the group is readable: an event loop would poll the group.
    pub(super) fn is_readable(&self) -> bool {
        let mut descriptors = [PollFd::new(self.group.as_fd(), PollFlags::POLLIN)];
        poll(&mut descriptors, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }
}
