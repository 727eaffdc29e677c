//! Every write command of uverbs times every class of check.

use nix::libc::{EACCES, EFAULT, EINVAL, ENOENT, ENOSPC, EOPNOTSUPP};
use verbs_abi::{
    IB_USER_VERBS_CMD_CREATE_XSRQ, IB_USER_VERBS_CMD_DESTROY_CQ, ib_uverbs_cmd_hdr,
    ib_uverbs_destroy_cq, ib_uverbs_ex_cmd_hdr,
};

use super::super::bench::Bench;
use super::super::check::{Asking, Check, Driver, Expectation, Needs, Run, Trouble};
use super::super::kernel::Outcome::{self, Done, Errno};
use super::super::kernel::{Answer, Call, Caller, Target};
use super::commands::{COMMANDS, Command, Handle, Support};
use super::objects::{Object, named};
use super::request;

/// How far the kernel goes before the answer is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Before the number is looked up.
    Header,
    /// When there is an entry for the number, of a command or of none.
    Number,
    /// Then.
    Command,
}

/// A class of check, for the commands to which it applies.
struct Class {
    name: &'static str,
    shows: &'static str,
    stage: Stage,
    expected: fn(&Command) -> Option<Outcome>,
    run: fn(&Command, &mut Bench<'_>) -> Result<Answer, Trouble>,
}

const CLASSES: &[Class] = &[
    Class {
        name: "implemented",
        shows: "the driver has the command, which takes a request of exactly its size",
        stage: Stage::Command,
        expected: |command| Some(command.unknown),
        run: |command, bench| command.sent(bench, |call| call),
    },
    Class {
        name: "context.none",
        shows: "before GET_CONTEXT",
        stage: Stage::Command,
        expected: |command| {
            (command.number != 0 || command.is_extended).then_some(command.no_context)
        },
        run: |command, bench| {
            let file = bench.verbs()?;
            Ok(bench.call(file, &command.call(request::NEVER)))
        },
    },
    Class {
        name: "size.short",
        shows: "a request that lacks a word is refused; of an extended one what lacks is zero",
        stage: Stage::Command,
        // There are floors of extended commands, which `uapi_create_write` does not put to use.
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
        shows: "a request without what later kernels added is taken",
        stage: Stage::Command,
        expected: |command| (command.floor < command.request).then_some(command.unknown),
        run: |command, bench| command.sized(bench, command.floor, 0),
    },
    Class {
        name: "size.longer",
        shows: "a request that is longer than the kernel knows is taken if the rest is zero",
        stage: Stage::Command,
        expected: |command| command.takes_more().then_some(command.unknown),
        run: |command, bench| command.sized(bench, command.request + 8, 0),
    },
    Class {
        name: "size.longer.set",
        shows: "a request with something in what the kernel does not know is refused, but what belongs to the driver",
        stage: Stage::Command,
        expected: |command| {
            let refused = if command.has_driver_data { command.unknown } else { Errno(EOPNOTSUPP) };
            command.takes_more().then_some(refused)
        },
        run: |command, bench| command.sized(bench, command.request + 8, 0xff),
    },
    Class {
        name: "size.mismatch",
        shows: "a header that does not count exactly what is written is refused",
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
        shows: "a header alone: less than the request, or than the two headers of an extended command",
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
        shows: "DESTROY_CQ of 8 bytes, as rdma-core 18 and 19 sent it, is let through and read past its end",
        stage: Stage::Command,
        expected: |command| {
            (command.number == IB_USER_VERBS_CMD_DESTROY_CQ).then_some(Errno(EFAULT))
        },
        run: |command, bench| command.sized(bench, size_of::<ib_uverbs_destroy_cq>() - 8, 0),
    },
    Class {
        name: "response.short",
        shows: "room for a word less than every kernel stores is refused; to an extended command less is stored",
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
        shows: "a response without what later kernels added is stored so",
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
        shows: "more room than the kernel knows is filled with zeros",
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
        shows: "an extended command with the address of a response, and no room for it",
        stage: Stage::Command,
        expected: |command| command.is_known_extended().then_some(Errno(EINVAL)),
        run: |command, bench| command.with_room(bench, 0),
    },
    Class {
        name: "response.nowhere",
        shows: "an extended command with room for a response, and no address of it",
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
        shows: "the handle of another kind of object is refused",
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
        shows: "the handle of an object that is gone is unknown",
        stage: Stage::Command,
        expected: |command| command.handle.map(|_| Errno(ENOENT)),
        run: |command, bench| {
            let file = bench.context()?;
            let pd = bench.make(file, Object::ProtectionDomain)?;
            bench.expect("DEALLOC_PD", file, &named("dealloc_pd").call(pd), Done(0))?;
            Ok(bench.call(file, &command.call(pd)))
        },
    },
    Class {
        name: "pointer.request",
        shows: "a request in memory that is not there",
        stage: Stage::Header,
        expected: |_| Some(Errno(EFAULT)),
        run: |command, bench| command.sent(bench, |call| call.cut_off(0)),
    },
    Class {
        name: "pointer.body",
        shows: "a request whose memory ends behind the header",
        stage: Stage::Command,
        expected: |_| Some(Errno(EFAULT)),
        run: |command, bench| {
            let header = if command.is_extended { request::HEADERS } else { request::HEADER };
            command.sent(bench, |call| call.cut_off(header))
        },
    },
    Class {
        name: "pointer.response",
        shows: "a response that goes to memory that is not there",
        stage: Stage::Command,
        expected: |command| (command.response > 0).then_some(command.lost),
        run: |command, bench| command.sent(bench, request::losing_the_response),
    },
    Class {
        name: "caller.thread",
        shows: "another thread of the same credentials is no matter",
        stage: Stage::Command,
        expected: |command| Some(command.unknown),
        run: |command, bench| command.sent(bench, |call| call.by(Caller::Thread)),
    },
    Class {
        name: "caller.credentials",
        shows: "a thread with credentials of its own is refused, even where they are equal",
        stage: Stage::Header,
        expected: |_| Some(Errno(EACCES)),
        run: |command, bench| command.sent(bench, |call| call.by(Caller::OtherCredentials)),
    },
    Class {
        name: "caller.child",
        shows: "a forked child is refused on the file of its parent",
        stage: Stage::Header,
        expected: |_| Some(Errno(EACCES)),
        run: |command, bench| command.sent(bench, |call| call.by(Caller::Child)),
    },
    Class {
        name: "ioctl",
        shows: "the same by the ioctl that carries write commands",
        stage: Stage::Command,
        expected: |command| Some(command.unknown),
        run: |command, bench| command.by_ioctl(bench, Caller::Opener),
    },
    Class {
        name: "ioctl.credentials",
        shows: "the ioctl does not look at credentials",
        stage: Stage::Command,
        expected: |command| Some(command.unknown),
        run: |command, bench| command.by_ioctl(bench, Caller::OtherCredentials),
    },
];

/// What is shown with objects that are there.
const OWN: &str =
    "with objects that are there it does what it is for, and stores so much of response";

const LOST: &str = "memory that is not there";

/// Has the addresses of memory lead nowhere.
fn losing_the_memory(mut call: Call) -> Call {
    for (_, found) in call.pointers.iter_mut().filter(|(_, found)| *found == Target::Data) {
        *found = Target::Nowhere;
    }
    call
}

/// The last number for which both known drivers have a command, and so an entry.
const LAST_NUMBER: u32 = IB_USER_VERBS_CMD_CREATE_XSRQ;

impl Command {
    pub(super) fn wire_number(&self) -> u32 {
        request::wire_number(self.number, self.is_extended)
    }

    fn is_known_extended(&self) -> bool {
        self.is_extended && self.support != Support::None
    }

    /// Returns `true` if what follows the core request settles nothing but this.
    fn takes_more(&self) -> bool {
        !self.has_driver_data || self.handle.is_some()
    }

    /// The core request as it should be.
    pub(super) fn core(&self, handle: u32) -> Vec<u8> {
        let mut bytes = vec![0; self.request];
        let handle = self.handle.map(|(offset, _)| (offset, 4, u64::from(handle)));
        for field in self.fields.iter().copied().chain(handle) {
            let (offset, length, _) = field;
            bytes[offset..offset + length].copy_from_slice(&request::field(field));
        }
        bytes
    }

    /// The write as it should be.
    fn call(&self, handle: u32) -> Call {
        let core = self.core(handle);
        let call = request::write(self.wire_number(), core, self.response, self.response);
        Call { descriptor: self.descriptor, ..call }
    }

    /// The answer to what `change` makes of the write.
    fn sent(
        &self,
        bench: &mut Bench<'_>,
        change: impl FnOnce(Call) -> Call,
    ) -> Result<Answer, Trouble> {
        let file = bench.context()?;
        Ok(bench.call(file, &change(self.call(request::NEVER))))
    }

    /// The same with a core request of `length` bytes, of which those that are new hold `filler`.
    fn sized(&self, bench: &mut Bench<'_>, length: usize, filler: u8) -> Result<Answer, Trouble> {
        let mut core = self.core(request::NEVER);
        core.resize(length, filler);
        let file = bench.context()?;
        let call = request::write(self.wire_number(), core, self.response, self.response);
        Ok(bench.call(file, &Call { descriptor: self.descriptor, ..call }))
    }

    /// The same with room for `room` bytes of response.
    fn with_room(&self, bench: &mut Bench<'_>, room: usize) -> Result<Answer, Trouble> {
        let core = self.core(request::NEVER);
        let file = bench.context()?;
        let call = request::write(self.wire_number(), core, self.response, room);
        Ok(bench.call(file, &Call { descriptor: self.descriptor, ..call }))
    }

    /// The same with `field` not as it should be.
    fn with_reserved(&self, bench: &mut Bench<'_>, field: usize) -> Result<Answer, Trouble> {
        let header = if self.is_extended { request::HEADERS } else { request::HEADER };
        self.sent(bench, |mut call| {
            call.bytes[header + field] = 0x80;
            call
        })
    }

    /// The answer to what `change` makes of a write for which all is there that it needs.
    fn by_itself(
        &self,
        bench: &mut Bench<'_>,
        change: fn(Call) -> Call,
    ) -> Result<Answer, Trouble> {
        let opens = self.number == 0 && !self.is_extended;
        let file = if opens { bench.verbs()? } else { bench.context()? };
        let (call, _) = self.on_own(bench, file)?;
        Ok(bench.call(file, &change(call)))
    }

    fn by_ioctl(&self, bench: &mut Bench<'_>, caller: Caller) -> Result<Answer, Trouble> {
        let driver = bench.driver_number()?;
        let file = bench.context()?;
        let core = self.core(request::NEVER);
        let call = request::ioctl(driver, self.wire_number(), &core, self.response).by(caller);
        Ok(bench.call(file, &Call { descriptor: self.descriptor, ..call }))
    }

    /// What is expected where the driver has the command, and where it has not.
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
        match self.support {
            Support::Neither => expectation.on(Driver::Rxe, None, &[refused], LACKS),
            Support::RxeSince(version) => expectation.on(Driver::Rxe, None, &[refused], LACKS).on(
                Driver::Rxe,
                Some(version),
                &[outcome],
                "rxe has rereg_user_mr since then",
            ),
            Support::Both | Support::Rxe | Support::None => expectation,
        }
    }
}

/// All checks of this kind.
pub(super) fn rows() -> Vec<Check> {
    let mut rows = Vec::new();
    for command in COMMANDS {
        let row = |name: &str, shows: &str, expectation, run: Box<Asking>| Check {
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
                format!("`{field}` is not looked at")
            } else {
                format!("`{field}` with a value that has no meaning is refused")
            };
            let run = |bench: &mut Bench<'_>| command.with_reserved(bench, *offset);
            let expectation = command.by_driver(Stage::Command, *outcome);
            rows.push(row(&format!("reserved.{field}"), &shows, expectation, Box::new(run)));
        }
        // Where that says more than that the command is there.
        if let Some(own) = command.own.filter(|_| !matches!(command.unknown, Done(_))) {
            let [rxe, siw] = own.outcomes;
            let mut expectation = Expectation::of(rxe);
            if siw != rxe && command.support == Support::Both {
                expectation = expectation.on(Driver::Siw, None, &[siw], "its own part");
            }
            let run = |bench: &mut Bench<'_>| command.by_itself(bench, |call| call);
            rows.push(row("handle.own", OWN, expectation, Box::new(run)));
            if !own.memory.is_empty() {
                let run = |bench: &mut Bench<'_>| command.by_itself(bench, losing_the_memory);
                let expectation = Expectation::of(Errno(EFAULT));
                rows.push(row("pointer.data", LOST, expectation, Box::new(run)));
            }
        }
    }
    rows
}

const _: () = assert!(size_of::<ib_uverbs_ex_cmd_hdr>() + request::HEADER == request::HEADERS);
