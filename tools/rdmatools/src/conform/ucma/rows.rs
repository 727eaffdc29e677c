//! Every command of ucma times every class of check.

use nix::libc::{EACCES, EFAULT, EINVAL, ENOENT, ENOSPC, ENOSYS};

use super::super::bench::{Bench, u32_at};
use super::super::check::{Check, Expectation, Needs, Run, Trouble, Version};
use super::super::kernel::Outcome::{self, Done, Errno};
use super::super::kernel::{Answer, Call, Caller, File, Target};
use super::commands::{COMMANDS, Command, Handle, Presence};

/// A handle that no id has ever had.
const NEVER: u32 = 0x7fff_fff0;

/// Bytes of the header.
const HEADER: usize = size_of::<ucma_abi::rdma_ucm_cmd_hdr>();

/// Room that is more than any response takes.
const PLENTY: u16 = 4096;

/// How far the kernel goes before the answer is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Before the number is looked up.
    Header,
    /// Before the object that the handle names is asked.
    Request,
    /// Then.
    Object,
}

/// A class of check, for the commands to which it applies.
struct Class {
    name: &'static str,
    shows: &'static str,
    stage: Stage,
    expected: fn(&Command) -> Option<Outcome>,
    run: fn(&Command, &mut Bench<'_>) -> Result<Answer, Trouble>,
}

/// The classes.
const CLASSES: &[Class] = &[
    Class {
        name: "implemented",
        shows: "the command is there and takes a request of exactly its size",
        stage: Stage::Request,
        expected: |command| Some(command.unknown),
        run: |command, bench| command.sent(bench, |call| call),
    },
    Class {
        name: "size.longer",
        shows: "a request that is longer than the kernel knows is taken, whatever the rest holds",
        stage: Stage::Request,
        expected: |command| Some(command.unknown),
        run: |command, bench| {
            command.sent(bench, |mut call| {
                call.bytes.extend([0xff; 64]);
                say_in(&mut call, command.request + 64);
                call
            })
        },
    },
    Class {
        name: "size.trailing",
        shows: "what is written behind the bytes that the header counts does not matter",
        stage: Stage::Request,
        expected: |command| Some(command.unknown),
        run: |command, bench| {
            command.sent(bench, |mut call| {
                call.bytes.extend([0xff; 64]);
                call
            })
        },
    },
    Class {
        name: "size.understated",
        shows: "the bytes of a request count that are there, not those that the header counts; CONNECT and ACCEPT look",
        stage: Stage::Request,
        expected: |command| {
            Some(if command.floor.is_some() { Errno(EINVAL) } else { command.unknown })
        },
        run: |command, bench| {
            command.sent(bench, |mut call| {
                say_in(&mut call, 0);
                call
            })
        },
    },
    Class {
        name: "size.overstated",
        shows: "a header that counts more bytes than are written is refused",
        stage: Stage::Header,
        expected: |_| Some(Errno(EINVAL)),
        run: |command, bench| {
            command.sent(bench, |mut call| {
                say_in(&mut call, command.request + 1);
                call
            })
        },
    },
    Class {
        name: "size.short",
        shows: "a request that lacks a byte is refused: by its size where the kernel looks, else by reading past its end",
        stage: Stage::Request,
        expected: |command| Some(Errno(if command.floor.is_some() { EINVAL } else { EFAULT })),
        run: |command, bench| {
            command.sent(bench, |mut call| {
                let length = command.floor.unwrap_or(command.request) - 1;
                say_in(&mut call, length);
                call.bytes.truncate(HEADER + length);
                call
            })
        },
    },
    Class {
        name: "size.floor",
        shows: "the request as it was before Linux 5.8, without ECE, is taken",
        stage: Stage::Request,
        expected: |command| command.floor.map(|_| command.unknown),
        run: |command, bench| {
            command.sent(bench, |mut call| {
                let length = command.floor.unwrap_or(command.request);
                say_in(&mut call, length);
                call.bytes.truncate(HEADER + length);
                call
            })
        },
    },
    Class {
        name: "size.none",
        shows: "a header alone: what the kernel looks at first",
        stage: Stage::Request,
        expected: |command| Some(command.bare),
        run: |command, bench| command.sent(bench, |_| Call::write(header(command.number, 0, 0))),
    },
    Class {
        name: "size.part_of_header",
        shows: "less than a header is refused",
        stage: Stage::Header,
        expected: |_| Some(Errno(EINVAL)),
        run: |command, bench| {
            let channel = bench.channel()?;
            let mut bytes = header(command.number, 0, 0);
            bytes.truncate(HEADER - 1);
            Ok(bench.call(channel, &Call::write(bytes)))
        },
    },
    Class {
        name: "response.short",
        shows: "room for less than the oldest response is refused, or not looked at",
        stage: Stage::Object,
        expected: |command| {
            let is_checked = command.response?.is_checked;
            if is_checked { Some(Errno(ENOSPC)) } else { command.on_object() }
        },
        run: |command, bench| {
            let least = command.response.map_or(1, |response| response.least);
            command.with_room(bench, least - 1)
        },
    },
    Class {
        name: "response.floor",
        shows: "the response as it was before Linux 5.8, without index of the device or ECE, is stored so",
        stage: Stage::Object,
        expected: |command| {
            let response = command.response.filter(|response| response.least < response.size)?;
            match command.on_object()? {
                Done(_) => Some(Done(response.least)),
                refused => Some(refused),
            }
        },
        run: |command, bench| {
            let least = command.response.map_or(0, |response| response.least);
            command.with_room(bench, least)
        },
    },
    Class {
        name: "response.longer",
        shows: "of more room only the response is used",
        stage: Stage::Object,
        expected: |command| command.response.and_then(|_| command.on_object()),
        run: |command, bench| command.with_room(bench, usize::from(PLENTY)),
    },
    Class {
        name: "response.unasked",
        shows: "room for a response is no matter to a command that has none",
        stage: Stage::Object,
        expected: |command| {
            if command.response.is_some() { None } else { command.on_object() }
        },
        run: |command, bench| command.with_room(bench, usize::from(PLENTY)),
    },
    Class {
        name: "handle.own",
        shows: "an id that was just made, without address or device",
        stage: Stage::Object,
        expected: |command| command.handle.and(command.fresh),
        run: |command, bench| command.sent_to_object(bench, |call| call),
    },
    Class {
        name: "handle.destroyed",
        shows: "an id that is destroyed is unknown",
        stage: Stage::Request,
        expected: |command| names_an_id(command).then_some(Errno(ENOENT)),
        run: |command, bench| {
            let channel = bench.channel()?;
            let id = create(bench, channel)?;
            destroy(bench, channel, id)?;
            Ok(bench.call(channel, &command.call(bench, channel, id)))
        },
    },
    Class {
        name: "handle.foreign",
        shows: "an id of another channel is refused, and known",
        stage: Stage::Request,
        expected: |command| names_an_id(command).then_some(Errno(EINVAL)),
        run: |command, bench| {
            let (channel, other) = (bench.channel()?, bench.channel()?);
            let id = create(bench, other)?;
            let answer = bench.call(channel, &command.call(bench, channel, id));
            destroy(bench, other, id)?;
            Ok(answer)
        },
    },
    Class {
        name: "handle.max",
        shows: "the largest handle is unknown",
        stage: Stage::Request,
        expected: |command| command.handle.map(|_| Errno(ENOENT)),
        run: |command, bench| {
            let channel = bench.channel()?;
            Ok(bench.call(channel, &command.call(bench, channel, u32::MAX)))
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
        stage: Stage::Request,
        expected: |_| Some(Errno(EFAULT)),
        run: |command, bench| command.sent(bench, |call| call.cut_off(HEADER)),
    },
    Class {
        name: "pointer.response",
        shows: "a response that goes to memory that is not there",
        stage: Stage::Object,
        expected: |command| command.response.map(|_| command.lost),
        run: |command, bench| {
            command.sent_to_object(bench, |mut call| {
                lose(&mut call, Target::Response);
                call
            })
        },
    },
    Class {
        name: "pointer.data",
        shows: "data in memory that is not there",
        stage: Stage::Object,
        expected: |command| command.data.map(|_| Errno(EFAULT)),
        run: |command, bench| {
            command.sent_to_object(bench, |mut call| {
                lose(&mut call, Target::Data);
                call
            })
        },
    },
    Class {
        name: "caller.thread",
        shows: "another thread of the same credentials is no matter",
        stage: Stage::Request,
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
        shows: "a forked child is refused on the channel of its parent",
        stage: Stage::Header,
        expected: |_| Some(Errno(EACCES)),
        run: |command, bench| command.sent(bench, |call| call.by(Caller::Child)),
    },
];

/// Header of a request.
fn header(number: u32, length: u16, room: u16) -> Vec<u8> {
    let mut bytes = number.to_ne_bytes().to_vec();
    bytes.extend(length.to_ne_bytes());
    bytes.extend(room.to_ne_bytes());
    bytes
}

/// Has the header count `length` bytes of request.
fn say_in(call: &mut Call, length: usize) {
    let length = u16::try_from(length).expect("requests are short");
    call.bytes[4..6].copy_from_slice(&length.to_ne_bytes());
}

/// Has the header count `room` bytes of response.
fn say_out(call: &mut Call, room: usize) {
    let room = u16::try_from(room).expect("responses are short");
    call.bytes[6..8].copy_from_slice(&room.to_ne_bytes());
}

/// Has the addresses of `target` lead nowhere.
fn lose(call: &mut Call, target: Target) {
    for (_, found) in call.pointers.iter_mut().filter(|(_, found)| *found == target) {
        *found = Target::Nowhere;
    }
}

fn names_an_id(command: &Command) -> bool {
    command.handle.is_some_and(|(_, handle)| handle == Handle::Id)
}

/// Makes an id.
fn create(bench: &mut Bench<'_>, channel: File) -> Result<u32, Trouble> {
    let call = COMMANDS[0].call(bench, channel, 0);
    Ok(u32_at(&bench.expect("CREATE_ID", channel, &call, Done(4))?, 0))
}

/// Destroys an id.
fn destroy(bench: &mut Bench<'_>, channel: File, id: u32) -> Result<(), Trouble> {
    let call = COMMANDS[1].call(bench, channel, id);
    bench.expect("DESTROY_ID", channel, &call, Done(4)).map(drop)
}

impl Command {
    /// The request as it should be.
    fn call(&self, bench: &Bench<'_>, channel: File, handle: u32) -> Call {
        let room = self.response.map_or(0, |response| response.size);
        let mut call = Call::write(header(self.number, 0, 0));
        call.bytes.resize(HEADER + self.request, 0);
        say_in(&mut call, self.request);
        say_out(&mut call, room);
        let mut put = |offset: usize, bytes: &[u8]| {
            call.bytes[HEADER + offset..][..bytes.len()].copy_from_slice(bytes);
        };
        for (offset, length, value) in self.fields {
            match length {
                1 => put(*offset, &[u8::try_from(*value).expect("it is a byte")]),
                2 => put(*offset, &u16::try_from(*value).expect("2 bytes").to_ne_bytes()),
                4 => put(*offset, &u32::try_from(*value).expect("4 bytes").to_ne_bytes()),
                _ => put(*offset, &value.to_ne_bytes()),
            }
        }
        if let Some((offset, _)) = self.handle {
            put(offset, &handle.to_ne_bytes());
        }
        if let Some(offset) = self.descriptor {
            put(offset, &bench.descriptor(channel).to_ne_bytes());
        }
        if let Some(response) = self.response {
            call.pointers.push((HEADER + response.address, Target::Response));
        }
        if let Some((offset, data)) = self.data {
            call.pointers.push((HEADER + offset, Target::Data));
            call.data = data.to_vec();
        }
        call
    }

    /// The answer where there is an object for it to work on.
    fn on_object(&self) -> Option<Outcome> {
        if names_an_id(self) { self.fresh } else { Some(self.unknown) }
    }

    /// A channel, and what the command is to work on there: an id that was just made, where it works on one.
    fn target(&self, bench: &mut Bench<'_>) -> Result<(File, u32), Trouble> {
        let channel = bench.channel()?;
        let needs_one = names_an_id(self) && self.fresh.is_some();
        let handle = if needs_one { create(bench, channel)? } else { NEVER };
        Ok((channel, handle))
    }

    /// The answer to what `change` makes of the request, on a channel of its own; the id that it names is none.
    fn sent(
        &self,
        bench: &mut Bench<'_>,
        change: impl FnOnce(Call) -> Call,
    ) -> Result<Answer, Trouble> {
        let channel = bench.channel()?;
        let call = change(self.call(bench, channel, NEVER));
        Ok(bench.call(channel, &call))
    }

    /// The same of one that names what it can work on.
    fn sent_to_object(
        &self,
        bench: &mut Bench<'_>,
        change: impl FnOnce(Call) -> Call,
    ) -> Result<Answer, Trouble> {
        let (channel, handle) = self.target(bench)?;
        let call = change(self.call(bench, channel, handle));
        Ok(bench.call(channel, &call))
    }

    fn with_room(&self, bench: &mut Bench<'_>, room: usize) -> Result<Answer, Trouble> {
        self.sent_to_object(bench, |mut call| {
            say_out(&mut call, room);
            call
        })
    }

    /// The same request with `field` not 0.
    fn with_reserved(&self, bench: &mut Bench<'_>, field: usize) -> Result<Answer, Trouble> {
        self.sent(bench, |mut call| {
            call.bytes[HEADER + field] = 7;
            call
        })
    }

    /// What is expected of kernels that do not have the command, and of those that do.
    fn by_version(&self, stage: Stage, outcome: Outcome) -> Expectation {
        let before = |version, before| {
            Expectation::of(Errno(before)).since(version, outcome, "it is there since then")
        };
        match (self.presence, stage) {
            (Presence::Never, Stage::Request | Stage::Object) => Expectation::of(self.unknown),
            (Presence::Since(version), Stage::Request | Stage::Object) => before(version, EINVAL),
            (Presence::OptionSince(version), Stage::Object) => before(version, ENOSYS),
            _ => Expectation::of(outcome),
        }
    }

    fn since(&self) -> Option<Version> {
        match self.presence {
            Presence::Since(version) | Presence::OptionSince(version) => Some(version),
            Presence::Always | Presence::Never => None,
        }
    }

    fn check(
        &'static self,
        name: &str,
        shows: String,
        expectation: Expectation,
        run: impl Fn(&mut Bench<'_>) -> Result<Answer, Trouble> + 'static,
    ) -> Check {
        Check {
            id: format!("ucma.{}.{name}", self.name),
            shows,
            source: format!("ucma.c {}", self.source),
            since: self.since(),
            needs: Needs::Nothing,
            run: Run::Row(expectation, Box::new(run)),
        }
    }
}

/// All checks of this kind.
pub(super) fn rows() -> Vec<Check> {
    let mut rows = Vec::new();
    for command in COMMANDS {
        for class in CLASSES {
            if let Some(outcome) = (class.expected)(command) {
                let expectation = command.by_version(class.stage, outcome);
                let run = |bench: &mut Bench<'_>| (class.run)(command, bench);
                rows.push(command.check(class.name, class.shows.to_owned(), expectation, run));
            }
        }
        for (field, offset, outcome) in command.reserved {
            let expectation = command.by_version(Stage::Request, *outcome);
            let shows = match outcome {
                Errno(EINVAL) => format!("`{field}` with a value that has no meaning is refused"),
                _ => format!("`{field}` is not looked at"),
            };
            let run = |bench: &mut Bench<'_>| command.with_reserved(bench, *offset);
            rows.push(command.check(&format!("reserved.{field}"), shows, expectation, run));
        }
    }
    rows
}
