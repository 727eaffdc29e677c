//! Objects for commands to work on, made by the commands of the table.

use std::mem::offset_of;

use verbs_abi::{ib_uverbs_create_qp, ib_uverbs_qp_type};

use super::super::bench::{Bench, u32_at};
use super::super::check::{Driver, Machine, Trouble};
use super::super::kernel::{Call, File, Outcome, Target};
use super::commands::{COMMANDS, Command, Support};
use super::request;

/// An object that a command makes and others name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Object {
    ProtectionDomain,
    AddressHandle,
    MemoryRegion,
    MemoryWindow,
    CompletionQueue,
    /// A queue pair, in RESET.
    QueuePair,
    /// One of datagrams.
    DatagramQueuePair,
    /// One that is attached to a multicast group.
    Member,
    SharedReceiveQueue,
}

/// What a command does with objects that are there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own {
    /// Where their handles stand.
    pub(super) objects: &'static [(usize, Object)],
    /// What else is not as where there are none: offset, bytes, value.
    pub(super) fields: &'static [(usize, usize, u64)],
    /// Where the address of memory stands.
    pub(super) memory: &'static [usize],
    /// Bytes that the driver wants behind the request: rxe, siw.
    pub(super) request: [usize; 2],
    /// The answer: of rxe, of siw.
    pub(super) outcomes: [Outcome; 2],
}

impl Own {
    /// Bytes of memory that a request has the address of.
    pub(super) const MEMORY: usize = 64;

    /// Returns `true` if it is the same for all drivers.
    fn is_common(&self) -> bool {
        self.request == [0, 0] && self.outcomes[0] == self.outcomes[1]
    }

    /// Returns `true` if a driver adds something to the response of so many bytes.
    fn is_longer_than(&self, response: usize) -> bool {
        let adds =
            |outcome: &Outcome| matches!(*outcome, Outcome::Done(length) if length > response);
        response > 0 && self.outcomes.iter().any(adds)
    }
}

/// The place of a driver in what there is for each, if it has the command.
fn place(command: &Command, own: &Own, machine: &Machine) -> Result<usize, Trouble> {
    let skip = |why: &str| Err(Trouble::Skip(why.to_owned()));
    match (machine.driver, command.support) {
        (Driver::Other, Support::Both) if own.is_common() => Ok(0),
        (Driver::Other, _) => skip("what this driver adds is not known"),
        (Driver::Siw, Support::Rxe | Support::RxeSince(_)) => skip("the driver does not have it"),
        (Driver::Rxe, Support::RxeSince(since)) if machine.version < since => {
            skip(&format!("Linux {since} has it first"))
        }
        (Driver::Rxe, _) => Ok(0),
        (Driver::Siw, _) => Ok(1),
    }
}

/// The command of this name.
pub(super) fn named(name: &str) -> &'static Command {
    COMMANDS.iter().find(|command| command.name == name).expect("it is in the table")
}

impl Object {
    /// What makes one.
    fn maker(self) -> &'static Command {
        named(match self {
            Self::ProtectionDomain => "alloc_pd",
            Self::AddressHandle => "create_ah",
            Self::MemoryRegion => "reg_mr",
            Self::MemoryWindow => "alloc_mw",
            Self::CompletionQueue => "create_cq",
            Self::QueuePair | Self::DatagramQueuePair | Self::Member => "create_qp",
            Self::SharedReceiveQueue => "create_srq",
        })
    }
}

impl Command {
    /// The write with these handles in the places of the objects, for the driver at `place`.
    fn on(&self, own: &Own, place: usize, handles: &[u32]) -> Call {
        let mut core = self.core(request::NEVER);
        let mut put = |offset: usize, bytes: &[u8]| {
            core[offset..offset + bytes.len()].copy_from_slice(bytes);
        };
        for field in own.fields {
            put(field.0, &request::field(*field));
        }
        for ((offset, _), handle) in own.objects.iter().zip(handles) {
            put(*offset, &handle.to_ne_bytes());
        }
        core.resize(self.request + own.request[place], 0);
        let mut call = if own.is_longer_than(self.response) {
            request::with_driver_room(self.wire_number(), core, self.response)
        } else {
            request::write(self.wire_number(), core, self.response, self.response)
        };
        for offset in own.memory {
            call = call.pointing(request::HEADER + offset, Target::Data);
            call.data = vec![0; Own::MEMORY];
        }
        Call { descriptor: self.descriptor, ..call }
    }

    /// The write with objects that are made for it.
    pub(super) fn on_own(
        &self,
        bench: &mut Bench<'_>,
        file: File,
    ) -> Result<(Call, Outcome), Trouble> {
        let own = self.own.as_ref().expect("a known driver has it");
        let place = place(self, own, &bench.machine)?;
        let mut handles = Vec::new();
        for (_, object) in own.objects {
            handles.push(bench.make(file, *object)?);
        }
        Ok((self.on(own, place, &handles), own.outcomes[place]))
    }
}

impl Bench<'_> {
    /// Makes an object, and what it needs: its handle.
    pub(super) fn make(&mut self, file: File, object: Object) -> Result<u32, Trouble> {
        let maker = object.maker();
        let (mut call, made) = maker.on_own(self, file)?;
        if matches!(object, Object::DatagramQueuePair | Object::Member) {
            let at = request::HEADER + offset_of!(ib_uverbs_create_qp, qp_type);
            call.bytes[at] = ib_uverbs_qp_type::IB_UVERBS_QPT_UD.0;
        }
        let handle = u32_at(&self.expect(maker.name, file, &call, made)?, 0);
        if object == Object::Member {
            let attach = named("attach_mcast");
            let own = attach.own.as_ref().expect("rxe has it");
            let place = place(attach, own, &self.machine)?;
            let call = attach.on(own, place, &[handle]);
            self.expect(attach.name, file, &call, own.outcomes[place])?;
        }
        Ok(handle)
    }
}
