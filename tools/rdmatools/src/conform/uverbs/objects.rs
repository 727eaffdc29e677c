//! Objects for commands to use, created by the commands of the table.

use std::mem::offset_of;

use nix::libc::EOPNOTSUPP;
use verbs_abi::{ib_uverbs_create_qp, ib_uverbs_qp_type};

use super::super::bench::{Bench, check_equal, u32_at};
use super::super::check::{CheckError, Driver, Expectation, Machine, Version, one_of};
use super::super::kernel::{Call, File, Outcome, Target};
use super::command::{Command, Mlx5, Object, ObjectUse, Support};
use super::commands::commands;
use super::request;

impl ObjectUse {
    /// Returns `true` if the use is the same for all drivers.
    fn is_common(&self) -> bool {
        self.driver_data.iter().all(|part| part.length == 0)
            && self.outcomes.iter().all(|outcome| *outcome == self.outcomes[0])
    }

    /// Returns `true` if the driver at `place` extends a response of this length.
    ///
    /// rxe and siw get the same requests.
    fn is_longer_than(&self, response: usize, place: usize) -> bool {
        let adds =
            |outcome: &Outcome| matches!(*outcome, Outcome::Done(length) if length > response);
        let drivers = if place == MLX5 { MLX5..MLX5 + 1 } else { 0..MLX5 };
        response > 0 && self.outcomes[drivers].iter().any(adds)
    }
}

/// The index of mlx5 in the arrays of [`ObjectUse`].
pub(super) const MLX5: usize = 2;

/// Returns the command with this name.
pub(super) fn command_named(name: &str) -> &'static Command {
    commands().find(|command| command.name == name).expect("the command should be in the table")
}

impl Object {
    /// Returns the command that creates the object.
    fn creator(self) -> &'static Command {
        command_named(match self {
            Self::ProtectionDomain => "alloc_pd",
            Self::XrcDomain => "open_xrcd",
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
    /// Returns the command's use of existing objects. Panics if the table has none.
    fn known_use(&self) -> &ObjectUse {
        self.own.as_ref().expect("the use of objects should be known")
    }

    /// Returns the write with these handles, for the driver at `place`.
    pub(super) fn on(&self, place: usize, handles: &[u32]) -> Call {
        let own = self.known_use();
        let mut core = self.core(request::UNKNOWN_HANDLE);
        let mut put = |offset: usize, bytes: &[u8]| {
            core[offset..offset + bytes.len()].copy_from_slice(bytes);
        };
        for field in own.fields {
            put(field.0, &request::field(*field));
        }
        for ((offset, _), handle) in own.objects.iter().zip(handles) {
            put(*offset, &handle.to_ne_bytes());
        }
        let part = own.driver_data[place];
        for field in part.core {
            let bytes = request::field(*field);
            core[field.0..][..bytes.len()].copy_from_slice(&bytes);
        }
        let mut data = vec![0; part.length];
        for field in part.fields {
            let bytes = request::field(*field);
            data[field.0..][..bytes.len()].copy_from_slice(&bytes);
        }
        let mut call = if own.is_longer_than(self.response, place) {
            request::with_driver_room(self.wire_number(), core, self.response)
        } else {
            request::write(self.wire_number(), core, self.response, self.response)
        };
        call = request::with_driver_data(call, self.is_extended, &data);
        let header = if self.is_extended { request::HEADERS } else { request::HEADER };
        for offset in own.memory {
            call = call.pointing(header + offset, Target::Data);
            call.data = vec![0; ObjectUse::REGION];
        }
        for offset in part.memory {
            call = call.pointing(header + self.request + offset, Target::Data);
            call.data = vec![0; ObjectUse::RINGS];
        }
        Call { descriptor: self.descriptor, ..call }
    }

    /// Returns the index of the machine's driver in the arrays.
    ///
    /// Skips the check if the driver lacks the command, or if the driver's part of the request is not known.
    pub(super) fn place(&self, machine: &Machine) -> Result<usize, CheckError> {
        let skip = |why: &str| Err(CheckError::Skip(why.to_owned()));
        const LACKS: &str = "the driver does not have it";
        match (machine.driver, self.support) {
            (Driver::Other, Support::Both) if self.known_use().is_common() => Ok(0),
            (Driver::Other, _) => skip("the additions of this driver are not known"),
            (Driver::Mlx5, _) if self.mlx5 == Mlx5::Lacks => skip(LACKS),
            (Driver::Mlx5, _) => Ok(MLX5),
            (Driver::Rxe | Driver::Siw, Support::Mlx5) => skip(LACKS),
            (Driver::Siw, Support::Rxe | Support::RxeSince(_)) => skip(LACKS),
            (Driver::Rxe, Support::RxeSince(since)) if machine.version < since => {
                skip(&format!("needs Linux {since}"))
            }
            (Driver::Rxe, _) => Ok(0),
            (Driver::Siw, _) => Ok(1),
        }
    }

    /// Returns the expectation for the command on existing objects.
    pub(super) fn own_expectation(&self) -> Expectation {
        const WHY: &str = "its own part";
        let own = self.known_use();
        let [rxe, siw, mlx5] = own.outcomes;
        let mut expectation = Expectation::of(rxe);
        if siw != rxe && self.support == Support::Both {
            expectation = expectation.on(Driver::Siw, None, &[siw], WHY);
        }
        if self.mlx5 == Mlx5::Lacks {
            return expectation;
        }
        let alternative = match self.mlx5 {
            Mlx5::MayLackPart => Some(Outcome::Done(self.response)),
            Mlx5::ByDevice => Some(Outcome::Errno(EOPNOTSUPP)),
            _ => None,
        };
        let accepted =
            |outcome| [Some(outcome), alternative].into_iter().flatten().collect::<Vec<_>>();
        if accepted(mlx5) != [rxe] {
            expectation = expectation.on(Driver::Mlx5, None, &accepted(mlx5), WHY);
        }
        if own.is_longer_than(self.response, MLX5) {
            // The driver fills the room that it does not use.
            let padded = Outcome::Done(self.response + usize::from(request::DRIVERS));
            let since = Some(Version(7, 2));
            expectation = expectation.on(Driver::Mlx5, since, &accepted(padded), WHY);
        }
        expectation
    }

    /// Creates the objects that the command uses. Returns the write and its usual outcome.
    pub(super) fn on_new_objects(
        &self,
        bench: &mut Bench<'_>,
        file: File,
    ) -> Result<(Call, Outcome), CheckError> {
        let place = self.place(&bench.machine)?;
        let own = self.known_use();
        let mut handles = Vec::new();
        for (_, object) in own.objects {
            handles.push(bench.make(file, *object)?);
        }
        Ok((self.on(place, &handles), own.outcomes[place]))
    }
}

impl Bench<'_> {
    /// Executes a command that has one of its outcomes with existing objects. Returns the response.
    ///
    /// Skips the check if the device lacks the command.
    pub(super) fn expect_created(
        &mut self,
        command: &Command,
        file: File,
        call: &Call,
    ) -> Result<Vec<u8>, CheckError> {
        let expectation = command.own_expectation();
        let accepted = expectation.for_machine(&self.machine);
        let by_device = self.machine.driver == Driver::Mlx5 && command.mlx5 == Mlx5::ByDevice;
        let answer = self.call(file, call);
        match answer.outcome() {
            Ok(Outcome::Errno(EOPNOTSUPP)) if by_device => {
                Err(CheckError::Skip("the device does not have it".into()))
            }
            Ok(outcome) if accepted.contains(&outcome) => Ok(answer.stored),
            outcome => {
                let seen = outcome.map_or_else(|odd| odd, |outcome| outcome.to_string());
                let why = format!("{}: {seen}, expected {}", command.name, one_of(accepted));
                Err(CheckError::Violation(why))
            }
        }
    }

    /// Executes the command `creator` on the objects with these `handles`. Returns the response.
    pub(super) fn create_from(
        &mut self,
        file: File,
        creator: &str,
        handles: &[u32],
    ) -> Result<Vec<u8>, CheckError> {
        let command = command_named(creator);
        let place = command.place(&self.machine)?;
        let call = command.on(place, handles);
        let answer = self.expect_created(command, file, &call)?;
        check_equal("smallness of the handle", u32_at(&answer, 0) < 1 << 16, true)?;
        Ok(answer)
    }

    /// Creates an object, and the objects that it needs. Returns its handle.
    pub(super) fn make(&mut self, file: File, object: Object) -> Result<u32, CheckError> {
        let creator = object.creator();
        let (mut call, _) = creator.on_new_objects(self, file)?;
        if matches!(object, Object::DatagramQueuePair | Object::Member) {
            let at = request::HEADER + offset_of!(ib_uverbs_create_qp, qp_type);
            call.bytes[at] = ib_uverbs_qp_type::IB_UVERBS_QPT_UD.0;
        }
        let handle = u32_at(&self.expect_created(creator, file, &call)?, 0);
        if object == Object::Member {
            let attach = command_named("attach_mcast");
            let place = attach.place(&self.machine)?;
            let call = attach.on(place, &[handle]);
            self.expect(attach.name, file, &call, attach.known_use().outcomes[place])?;
        }
        Ok(handle)
    }
}
