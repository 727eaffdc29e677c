//! Checks of every class for every write command of uverbs.

use nix::libc::{EACCES, EFAULT, EINVAL, ENOENT, ENOSPC, EOPNOTSUPP};
use verbs_abi::{
    IB_USER_VERBS_CMD_CREATE_XSRQ, IB_USER_VERBS_CMD_DESTROY_CQ, ib_uverbs_cmd_hdr,
    ib_uverbs_destroy_cq, ib_uverbs_ex_cmd_hdr,
};

use super::super::bench::Bench;
use super::super::check::{
    Check, CheckError, Driver, Expectation, Needs, RowFunction, Run, Version,
};
use super::super::kernel::Outcome::{self, Done, Errno};
use super::super::kernel::{Answer, Call, Caller, Target};
use super::command::{Command, Handle, Mlx5, Object, Support};
use super::commands::commands;
use super::objects::command_named;
use super::request;

/// The stage of the kernel's processing that determines the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Before the command number is looked up.
    Header,
    /// After the entry of the number is found; the entry may have no command.
    Number,
    /// During execution of the command.
    Command,
}

/// A class of checks, for the commands to which it applies.
struct Class {
    name: &'static str,
    shows: &'static str,
    stage: Stage,
    expected: fn(&Command) -> Option<Outcome>,
    run: fn(&Command, &mut Bench<'_>) -> Result<Answer, CheckError>,
}

const CLASSES: &[Class] = &[
    Class {
        name: "implemented",
        shows: "the driver has the command, which accepts a request of exactly its size",
        stage: Stage::Command,
        expected: |command| Some(command.unknown),
        run: |command, bench| command.sent(bench, |call| call),
    },
    Class {
        name: "context.none",
        shows: "the command is tried before GET_CONTEXT",
        stage: Stage::Command,
        expected: |command| {
            (command.number != 0 || command.is_extended).then_some(command.no_context)
        },
        run: |command, bench| {
            let file = bench.verbs()?;
            Ok(bench.call(file, &command.call(request::UNKNOWN_HANDLE)))
        },
    },
    Class {
        name: "size.short",
        shows: "a request that lacks a word is rejected; missing words of an extended request are zero",
        stage: Stage::Command,
        // Extended commands have minimum sizes too, but `uapi_create_write` does not use them.
        expected: |command| {
            let is_refused = !command.is_extended;
            (command.floor > 0).then_some(if is_refused { Errno(ENOSPC) } else { command.unknown })
        },
        run: |command, bench| {
            command.sized(bench, command.floor - request::word(command.is_extended), 0)
        },
    },
    Class {
        name: "size.floor",
        shows: "a request without the additions of later kernels is accepted",
        stage: Stage::Command,
        expected: |command| (command.floor < command.request).then_some(command.unknown),
        run: |command, bench| command.sized(bench, command.floor, 0),
    },
    Class {
        name: "size.longer",
        shows: "a request that is longer than the kernel's is accepted if the additional bytes are zero",
        stage: Stage::Command,
        expected: |command| command.is_unaffected_by_more().then_some(command.unknown),
        run: |command, bench| command.sized(bench, command.request + 8, 0),
    },
    Class {
        name: "size.longer.set",
        shows: "additional bytes that are not zero are rejected, unless they belong to the driver",
        stage: Stage::Command,
        expected: |command| {
            let refused = if command.has_driver_data { command.unknown } else { Errno(EOPNOTSUPP) };
            command.is_unaffected_by_more().then_some(refused)
        },
        run: |command, bench| command.sized(bench, command.request + 8, 0xff),
    },
    Class {
        name: "size.mismatch",
        shows: "a header whose sizes differ from the written bytes is rejected",
        stage: Stage::Number,
        expected: |_| Some(Errno(EINVAL)),
        run: |command, bench| {
            command.sent(bench, |mut call| {
                call.bytes.extend([0; 8]);
                call
            })
        },
    },
    Class {
        name: "size.none",
        shows: "a header without a request is too short, also for the two headers of an extended command",
        stage: Stage::Command,
        expected: |command| Some(Errno(if command.is_extended { EINVAL } else { ENOSPC })),
        run: |command, bench| {
            let file = bench.context()?;
            let header = ib_uverbs_cmd_hdr::plain(command.wire_number(), 0, 0);
            Ok(bench.call(file, &Call::write(request::bytes(&header))))
        },
    },
    Class {
        name: "size.v18",
        shows: "DESTROY_CQ of 8 bytes, as rdma-core 18 and 19 sent it, is accepted and read past its end",
        stage: Stage::Command,
        expected: |command| {
            (command.number == IB_USER_VERBS_CMD_DESTROY_CQ).then_some(Errno(EFAULT))
        },
        run: |command, bench| command.sized(bench, size_of::<ib_uverbs_destroy_cq>() - 8, 0),
    },
    Class {
        name: "response.short",
        shows: "room for a word less than every kernel stores is rejected; an extended command stores less",
        stage: Stage::Command,
        expected: |command| {
            let word = request::word(command.is_extended);
            let is_some = command.least > if command.is_extended { word } else { 0 };
            let outcome = match command.unknown {
                _ if !command.is_extended => Errno(ENOSPC),
                Done(_) => Done(command.least.saturating_sub(word)),
                refused => refused,
            };
            is_some.then_some(outcome)
        },
        run: |command, bench| {
            command.with_room(bench, command.least - request::word(command.is_extended))
        },
    },
    Class {
        name: "response.floor",
        shows: "a response without the additions of later kernels is stored if the room has that size",
        stage: Stage::Command,
        expected: |command| {
            let stored = |outcome| match outcome {
                Done(_) => Done(command.least),
                refused => refused,
            };
            (command.least < command.response).then_some(stored(command.unknown))
        },
        run: |command, bench| command.with_room(bench, command.least),
    },
    Class {
        name: "response.longer",
        shows: "room beyond the kernel's response is filled with zeros",
        stage: Stage::Command,
        expected: |command| {
            let stored = |outcome| match outcome {
                Done(length) => Done(length + 64),
                refused => refused,
            };
            let is_cores = command.response > 0 && !command.has_driver_data;
            is_cores.then_some(stored(command.unknown))
        },
        run: |command, bench| command.with_room(bench, command.response + 64),
    },
    Class {
        name: "response.unasked",
        shows: "an extended command with a response address, but without room, is rejected",
        stage: Stage::Command,
        expected: |command| command.is_known_extended().then_some(Errno(EINVAL)),
        run: |command, bench| command.with_room(bench, 0),
    },
    Class {
        name: "response.nowhere",
        shows: "an extended command with room for a response, but without its address, is rejected",
        stage: Stage::Command,
        expected: |command| command.is_known_extended().then_some(Errno(EINVAL)),
        run: |command, bench| {
            command.sent(bench, |mut call| {
                call.pointers.clear();
                call
            })
        },
    },
    Class {
        name: "reserved.header",
        shows: "the reserved field of the second header must be zero",
        stage: Stage::Command,
        expected: |command| command.is_known_extended().then_some(Errno(EINVAL)),
        run: |command, bench| {
            command.sent(bench, |mut call| {
                call.bytes[request::HEADERS - 4] = 1;
                call
            })
        },
    },
    Class {
        name: "handle.max",
        shows: "the largest handle is unknown",
        stage: Stage::Command,
        expected: |command| command.handle.map(|_| Errno(ENOENT)),
        run: |command, bench| {
            let file = bench.context()?;
            Ok(bench.call(file, &command.call(u32::MAX)))
        },
    },
    Class {
        name: "handle.type",
        shows: "the handle of another type of object is rejected",
        stage: Stage::Command,
        expected: |command| {
            let (_, handle) = command.handle?;
            (handle == Handle::Other).then_some(Errno(EINVAL))
        },
        run: |command, bench| {
            let file = bench.context()?;
            let pd = bench.make(file, Object::ProtectionDomain)?;
            Ok(bench.call(file, &command.call(pd)))
        },
    },
    Class {
        name: "handle.foreign",
        shows: "the handle of another file's object is unknown",
        stage: Stage::Command,
        expected: |command| command.handle.map(|_| Errno(ENOENT)),
        run: |command, bench| {
            let other = bench.context()?;
            let pd = bench.make(other, Object::ProtectionDomain)?;
            let file = bench.context()?;
            Ok(bench.call(file, &command.call(pd)))
        },
    },
    Class {
        name: "handle.destroyed",
        shows: "the handle of a destroyed object is unknown",
        stage: Stage::Command,
        expected: |command| command.handle.map(|_| Errno(ENOENT)),
        run: |command, bench| {
            let file = bench.context()?;
            let pd = bench.make(file, Object::ProtectionDomain)?;
            bench.expect("DEALLOC_PD", file, &command_named("dealloc_pd").call(pd), Done(0))?;
            Ok(bench.call(file, &command.call(pd)))
        },
    },
    Class {
        name: "pointer.request",
        shows: "a request in unmapped memory is rejected",
        stage: Stage::Header,
        expected: |_| Some(Errno(EFAULT)),
        run: |command, bench| command.sent(bench, |call| call.cut_off(0)),
    },
    Class {
        name: "pointer.body",
        shows: "a request whose memory ends after the header is rejected",
        stage: Stage::Command,
        expected: |_| Some(Errno(EFAULT)),
        run: |command, bench| {
            let header = if command.is_extended { request::HEADERS } else { request::HEADER };
            command.sent(bench, |call| call.cut_off(header))
        },
    },
    Class {
        name: "pointer.response",
        shows: "a response address in unmapped memory is rejected",
        stage: Stage::Command,
        expected: |command| (command.response > 0).then_some(command.lost),
        run: |command, bench| command.sent(bench, request::with_invalid_response),
    },
    Class {
        name: "caller.thread",
        shows: "another thread with the same credentials is accepted",
        stage: Stage::Command,
        expected: |command| Some(command.unknown),
        run: |command, bench| command.sent(bench, |call| call.by(Caller::Thread)),
    },
    Class {
        name: "caller.credentials",
        shows: "a thread with its own credentials is rejected, even if they are equal",
        stage: Stage::Header,
        expected: |_| Some(Errno(EACCES)),
        run: |command, bench| command.sent(bench, |call| call.by(Caller::OtherCredentials)),
    },
    Class {
        name: "caller.child",
        shows: "a forked child is rejected on the file of its parent",
        stage: Stage::Header,
        expected: |_| Some(Errno(EACCES)),
        run: |command, bench| command.sent(bench, |call| call.by(Caller::Child)),
    },
    Class {
        name: "ioctl",
        shows: "the ioctl that carries write commands gets the same answer",
        stage: Stage::Command,
        expected: |command| Some(command.unknown),
        run: |command, bench| command.by_ioctl(bench, Caller::Opener),
    },
    Class {
        name: "ioctl.credentials",
        shows: "the ioctl does not check credentials",
        stage: Stage::Command,
        expected: |command| Some(command.unknown),
        run: |command, bench| command.by_ioctl(bench, Caller::OtherCredentials),
    },
];

/// Description of the checks with existing objects.
const OWN_DESCRIPTION: &str =
    "the command succeeds with existing objects, and stores a response of this length";

const LOST_DESCRIPTION: &str = "unmapped memory is rejected";

/// Makes the addresses of memory invalid.
fn with_invalid_memory(mut call: Call) -> Call {
    for (_, found) in call.pointers.iter_mut().filter(|(_, found)| *found == Target::Data) {
        *found = Target::Nowhere;
    }
    call
}

/// The last number for which both known drivers have a command, and thus an entry.
const LAST_NUMBER: u32 = IB_USER_VERBS_CMD_CREATE_XSRQ;

impl Command {
    pub(super) fn wire_number(&self) -> u32 {
        request::wire_number(self.number, self.is_extended)
    }

    fn is_known_extended(&self) -> bool {
        self.is_extended && self.support != Support::None
    }

    /// Returns `true` if bytes after the core request do not change the answer, apart from the size check.
    fn is_unaffected_by_more(&self) -> bool {
        !self.has_driver_data || self.handle.is_some()
    }

    /// Returns a valid core request.
    pub(super) fn core(&self, handle: u32) -> Vec<u8> {
        let mut bytes = vec![0; self.request];
        let handle = self.handle.map(|(offset, _)| (offset, 4, u64::from(handle)));
        for field in self.fields.iter().copied().chain(handle) {
            let (offset, length, _) = field;
            bytes[offset..offset + length].copy_from_slice(&request::field(field));
        }
        bytes
    }

    /// Returns a valid write.
    fn call(&self, handle: u32) -> Call {
        let core = self.core(handle);
        let call = request::write(self.wire_number(), core, self.response, self.response);
        Call { descriptor: self.descriptor, ..call }
    }

    /// Makes the write, modified by `change`.
    fn sent(
        &self,
        bench: &mut Bench<'_>,
        change: impl FnOnce(Call) -> Call,
    ) -> Result<Answer, CheckError> {
        let file = bench.context()?;
        Ok(bench.call(file, &change(self.call(request::UNKNOWN_HANDLE))))
    }

    /// Makes the write with a core request of `length` bytes, whose additional bytes are `filler`.
    fn sized(
        &self,
        bench: &mut Bench<'_>,
        length: usize,
        filler: u8,
    ) -> Result<Answer, CheckError> {
        let mut core = self.core(request::UNKNOWN_HANDLE);
        core.resize(length, filler);
        let file = bench.context()?;
        let call = request::write(self.wire_number(), core, self.response, self.response);
        Ok(bench.call(file, &Call { descriptor: self.descriptor, ..call }))
    }

    /// Makes the write with room for `room` response bytes.
    fn with_room(&self, bench: &mut Bench<'_>, room: usize) -> Result<Answer, CheckError> {
        let core = self.core(request::UNKNOWN_HANDLE);
        let file = bench.context()?;
        let call = request::write(self.wire_number(), core, self.response, room);
        Ok(bench.call(file, &Call { descriptor: self.descriptor, ..call }))
    }

    /// Makes the write with an undefined value in `field`.
    fn with_reserved(&self, bench: &mut Bench<'_>, field: usize) -> Result<Answer, CheckError> {
        let header = if self.is_extended { request::HEADERS } else { request::HEADER };
        self.sent(bench, |mut call| {
            call.bytes[header + field] = 0x80;
            call
        })
    }

    /// Makes the write with all objects that it needs, modified by `change`.
    fn on_valid_objects(
        &self,
        bench: &mut Bench<'_>,
        change: fn(Call) -> Call,
    ) -> Result<Answer, CheckError> {
        self.place(&bench.machine)?;
        let opens = self.number == 0 && !self.is_extended;
        let file = if opens { bench.verbs()? } else { bench.context()? };
        let (call, _) = self.on_new_objects(bench, file)?;
        Ok(bench.call(file, &change(call)))
    }

    fn by_ioctl(&self, bench: &mut Bench<'_>, caller: Caller) -> Result<Answer, CheckError> {
        let driver = bench.driver_number()?;
        let file = bench.context()?;
        let core = self.core(request::UNKNOWN_HANDLE);
        let call = request::ioctl(driver, self.wire_number(), &core, self.response).by(caller);
        Ok(bench.call(file, &Call { descriptor: self.descriptor, ..call }))
    }

    /// Returns the expectation for drivers with and without the command.
    fn by_driver(&self, stage: Stage, outcome: Outcome) -> Expectation {
        const LACKS: &str = "the driver does not have it";
        let refused = Errno(EOPNOTSUPP);
        let mut expectation = Expectation::of(outcome);
        match (stage, self.support) {
            (Stage::Header, _) => return expectation,
            (Stage::Number, _) if self.number <= LAST_NUMBER => return expectation,
            (_, Support::None) => return Expectation::of(refused),
            (Stage::Number | Stage::Command, _) => {}
        }
        expectation = expectation.on(Driver::Other, None, &[outcome, refused], "by driver");
        if self.support != Support::Both {
            expectation = expectation.on(Driver::Siw, None, &[refused], LACKS);
        }
        match (self.mlx5, outcome) {
            (Mlx5::Lacks, _) => {
                expectation = expectation.on(Driver::Mlx5, None, &[refused], LACKS);
            }
            (Mlx5::NeedsRoom, Done(_)) => {
                let (lost, since) = (Errno(EFAULT), Some(Version(7, 2)));
                expectation = expectation
                    .on(Driver::Mlx5, None, &[lost], "no room for its part")
                    .on(Driver::Mlx5, since, &[outcome], "it cuts its part to the room");
            }
            (Mlx5::ByDevice, _) => {
                expectation = expectation.on(Driver::Mlx5, None, &[outcome, refused], "by device");
            }
            _ => {}
        }
        match self.support {
            Support::Mlx5 | Support::Others => expectation.on(Driver::Rxe, None, &[refused], LACKS),
            Support::RxeSince(version) => expectation.on(Driver::Rxe, None, &[refused], LACKS).on(
                Driver::Rxe,
                Some(version),
                &[outcome],
                "rxe has rereg_user_mr since that version",
            ),
            Support::Both | Support::Rxe | Support::None => expectation,
        }
    }
}

/// Returns all checks of this kind.
pub(super) fn rows() -> Vec<Check> {
    let mut rows = Vec::new();
    for command in commands() {
        let row = |name: &str, shows: &str, expectation, run: Box<RowFunction>| Check {
            id: format!("uverbs.{}.{name}", command.name),
            shows: shows.to_owned(),
            source: format!("uverbs_cmd.c {}", command.source),
            since: None,
            needs: Needs::Verbs,
            run: Run::Row(expectation, run),
        };
        for class in CLASSES {
            let Some(outcome) = (class.expected)(command) else { continue };
            let run = |bench: &mut Bench<'_>| (class.run)(command, bench);
            let expectation = command.by_driver(class.stage, outcome);
            rows.push(row(class.name, class.shows, expectation, Box::new(run)));
        }
        for (field, offset, outcome) in command.reserved {
            let shows = if *outcome == command.unknown {
                format!("`{field}` is not checked")
            } else {
                format!("`{field}` with an undefined value is rejected")
            };
            let run = |bench: &mut Bench<'_>| command.with_reserved(bench, *offset);
            let expectation = command.by_driver(Stage::Command, *outcome);
            rows.push(row(&format!("reserved.{field}"), &shows, expectation, Box::new(run)));
        }
        // The check is added only if it shows more than the existence of the command.
        if let Some(own) = command.own.filter(|_| !matches!(command.unknown, Done(_))) {
            let run = |bench: &mut Bench<'_>| command.on_valid_objects(bench, |call| call);
            let expectation = command.own_expectation();
            rows.push(row("handle.own", OWN_DESCRIPTION, expectation, Box::new(run)));
            if !own.memory.is_empty() {
                let run =
                    |bench: &mut Bench<'_>| command.on_valid_objects(bench, with_invalid_memory);
                let expectation = Expectation::of(Errno(EFAULT));
                rows.push(row("pointer.data", LOST_DESCRIPTION, expectation, Box::new(run)));
            }
        }
    }
    rows
}

const _: () = assert!(size_of::<ib_uverbs_ex_cmd_hdr>() + request::HEADER == request::HEADERS);
