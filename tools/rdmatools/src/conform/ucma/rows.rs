//! Checks of every class for every command of ucma.

use nix::libc::{EACCES, EFAULT, EINVAL, ENOENT, ENOSPC, ENOSYS};

use super::super::bench::{Bench, u32_at};
use super::super::check::{Check, CheckError, Expectation, Needs, Run, Version};
use super::super::kernel::Outcome::{self, Done, Errno};
use super::super::kernel::{Answer, Call, Caller, File, Target};
use super::commands::{COMMANDS, Command, Handle, Presence};

/// A handle that no id has ever had.
const UNKNOWN_HANDLE: u32 = 0x7fff_fff0;

/// Length of the header in bytes.
const HEADER: usize = size_of::<ucma_abi::rdma_ucm_cmd_hdr>();

/// Response room that exceeds every response.
const LARGE_ROOM: u16 = 4096;

/// The stage of the kernel's processing that determines the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Before the command number is looked up.
    Header,
    /// Before the object of the handle is accessed.
    Request,
    /// During access to the object.
    Object,
}

/// A class of checks, for the commands to which it applies.
struct Class {
    name: &'static str,
    shows: &'static str,
    stage: Stage,
    expected: fn(&Command) -> Option<Outcome>,
    run: fn(&Command, &mut Bench<'_>) -> Result<Answer, CheckError>,
}

/// All classes.
const CLASSES: &[Class] = &[
    Class {
        name: "implemented",
        shows: "the command exists and accepts a request of exactly its size",
        stage: Stage::Request,
        expected: |command| Some(command.unknown),
        run: |command, bench| command.sent(bench, |call| call),
    },
    Class {
        name: "size.longer",
        shows: "a request that is longer than the kernel's is accepted, independent of the additional bytes",
        stage: Stage::Request,
        expected: |command| Some(command.unknown),
        run: |command, bench| {
            command.sent(bench, |mut call| {
                call.bytes.extend([0xff; 64]);
                set_request_length(&mut call, command.request + 64);
                call
            })
        },
    },
    Class {
        name: "size.trailing",
        shows: "bytes beyond the length in the header are ignored",
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
        shows: "the written bytes count, not the length in the header, except for CONNECT and ACCEPT",
        stage: Stage::Request,
        expected: |command| {
            Some(if command.floor.is_some() { Errno(EINVAL) } else { command.unknown })
        },
        run: |command, bench| {
            command.sent(bench, |mut call| {
                set_request_length(&mut call, 0);
                call
            })
        },
    },
    Class {
        name: "size.overstated",
        shows: "a header with a length beyond the written bytes is rejected",
        stage: Stage::Header,
        expected: |_| Some(Errno(EINVAL)),
        run: |command, bench| {
            command.sent(bench, |mut call| {
                set_request_length(&mut call, command.request + 1);
                call
            })
        },
    },
    Class {
        name: "size.short",
        shows: "a request that lacks a byte is rejected: because of its size if the kernel checks it, otherwise when it is read past its end",
        stage: Stage::Request,
        expected: |command| Some(Errno(if command.floor.is_some() { EINVAL } else { EFAULT })),
        run: |command, bench| {
            command.sent(bench, |mut call| {
                let length = command.floor.unwrap_or(command.request) - 1;
                set_request_length(&mut call, length);
                call.bytes.truncate(HEADER + length);
                call
            })
        },
    },
    Class {
        name: "size.floor",
        shows: "the request of kernels before Linux 5.8, without ECE, is accepted",
        stage: Stage::Request,
        expected: |command| command.floor.map(|_| command.unknown),
        run: |command, bench| {
            command.sent(bench, |mut call| {
                let length = command.floor.unwrap_or(command.request);
                set_request_length(&mut call, length);
                call.bytes.truncate(HEADER + length);
                call
            })
        },
    },
    Class {
        name: "size.none",
        shows: "a header without a request is answered by the kernel's first check",
        stage: Stage::Request,
        expected: |command| Some(command.bare),
        run: |command, bench| command.sent(bench, |_| Call::write(header(command.number, 0, 0))),
    },
    Class {
        name: "size.part_of_header",
        shows: "a write shorter than a header is rejected",
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
        shows: "room for less than the oldest response is rejected, or not checked",
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
        shows: "the response of kernels before Linux 5.8, without device index or ECE, is stored if the room has that size",
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
        shows: "additional room for the response is not written",
        stage: Stage::Object,
        expected: |command| command.response.and_then(|_| command.on_object()),
        run: |command, bench| command.with_room(bench, usize::from(LARGE_ROOM)),
    },
    Class {
        name: "response.unasked",
        shows: "a command without a response ignores the room for one",
        stage: Stage::Object,
        expected: |command| {
            if command.response.is_some() { None } else { command.on_object() }
        },
        run: |command, bench| command.with_room(bench, usize::from(LARGE_ROOM)),
    },
    Class {
        name: "handle.own",
        shows: "the command is tried with a new id, which has no address and no device",
        stage: Stage::Object,
        expected: |command| command.handle.and(command.fresh),
        run: |command, bench| command.sent_to_object(bench, |call| call),
    },
    Class {
        name: "handle.destroyed",
        shows: "a destroyed id is unknown",
        stage: Stage::Request,
        expected: |command| takes_id(command).then_some(Errno(ENOENT)),
        run: |command, bench| {
            let channel = bench.channel()?;
            let id = create(bench, channel)?;
            destroy(bench, channel, id)?;
            Ok(bench.call(channel, &command.call(bench, channel, id)))
        },
    },
    Class {
        name: "handle.foreign",
        shows: "an id of another channel is found, and rejected",
        stage: Stage::Request,
        expected: |command| takes_id(command).then_some(Errno(EINVAL)),
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
        shows: "a request in unmapped memory is rejected",
        stage: Stage::Header,
        expected: |_| Some(Errno(EFAULT)),
        run: |command, bench| command.sent(bench, |call| call.cut_off(0)),
    },
    Class {
        name: "pointer.body",
        shows: "a request whose memory ends after the header is rejected",
        stage: Stage::Request,
        expected: |_| Some(Errno(EFAULT)),
        run: |command, bench| command.sent(bench, |call| call.cut_off(HEADER)),
    },
    Class {
        name: "pointer.response",
        shows: "a response address in unmapped memory is rejected",
        stage: Stage::Object,
        expected: |command| command.response.map(|_| command.lost),
        run: |command, bench| {
            command.sent_to_object(bench, |mut call| {
                invalidate(&mut call, Target::Response);
                call
            })
        },
    },
    Class {
        name: "pointer.data",
        shows: "data in unmapped memory is rejected",
        stage: Stage::Object,
        expected: |command| command.data.map(|_| Errno(EFAULT)),
        run: |command, bench| {
            command.sent_to_object(bench, |mut call| {
                invalidate(&mut call, Target::Data);
                call
            })
        },
    },
    Class {
        name: "caller.thread",
        shows: "another thread with the same credentials is accepted",
        stage: Stage::Request,
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
        shows: "a forked child is rejected on the channel of its parent",
        stage: Stage::Header,
        expected: |_| Some(Errno(EACCES)),
        run: |command, bench| command.sent(bench, |call| call.by(Caller::Child)),
    },
];

/// Returns the header of a request.
fn header(number: u32, length: u16, room: u16) -> Vec<u8> {
    let mut bytes = number.to_ne_bytes().to_vec();
    bytes.extend(length.to_ne_bytes());
    bytes.extend(room.to_ne_bytes());
    bytes
}

/// Sets the request length in the header.
fn set_request_length(call: &mut Call, length: usize) {
    let length = u16::try_from(length).expect("requests should be short");
    call.bytes[4..6].copy_from_slice(&length.to_ne_bytes());
}

/// Sets the response room in the header.
fn set_response_room(call: &mut Call, room: usize) {
    let room = u16::try_from(room).expect("responses should be short");
    call.bytes[6..8].copy_from_slice(&room.to_ne_bytes());
}

/// Makes the addresses of `target` invalid.
fn invalidate(call: &mut Call, target: Target) {
    for (_, found) in call.pointers.iter_mut().filter(|(_, found)| *found == target) {
        *found = Target::Nowhere;
    }
}

fn takes_id(command: &Command) -> bool {
    command.handle.is_some_and(|(_, handle)| handle == Handle::Id)
}

/// Creates an id.
fn create(bench: &mut Bench<'_>, channel: File) -> Result<u32, CheckError> {
    let call = COMMANDS[0].call(bench, channel, 0);
    Ok(u32_at(&bench.expect("CREATE_ID", channel, &call, Done(4))?, 0))
}

/// Destroys an id.
fn destroy(bench: &mut Bench<'_>, channel: File, id: u32) -> Result<(), CheckError> {
    let call = COMMANDS[1].call(bench, channel, id);
    bench.expect("DESTROY_ID", channel, &call, Done(4)).map(drop)
}

impl Command {
    /// Returns a valid request.
    fn call(&self, bench: &Bench<'_>, channel: File, handle: u32) -> Call {
        let room = self.response.map_or(0, |response| response.size);
        let mut call = Call::write(header(self.number, 0, 0));
        call.bytes.resize(HEADER + self.request, 0);
        set_request_length(&mut call, self.request);
        set_response_room(&mut call, room);
        let mut put = |offset: usize, bytes: &[u8]| {
            call.bytes[HEADER + offset..][..bytes.len()].copy_from_slice(bytes);
        };
        for (offset, length, value) in self.fields {
            match length {
                1 => put(*offset, &[u8::try_from(*value).expect("the value should fit in a byte")]),
                2 => put(
                    *offset,
                    &u16::try_from(*value).expect("the value should fit in 2 bytes").to_ne_bytes(),
                ),
                4 => put(
                    *offset,
                    &u32::try_from(*value).expect("the value should fit in 4 bytes").to_ne_bytes(),
                ),
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

    /// Returns the answer if the command has a valid object.
    fn on_object(&self) -> Option<Outcome> {
        if takes_id(self) { self.fresh } else { Some(self.unknown) }
    }

    /// Opens a channel. Returns it and the object of the command: a new id, if the command needs one.
    fn target(&self, bench: &mut Bench<'_>) -> Result<(File, u32), CheckError> {
        let channel = bench.channel()?;
        let needs_one = takes_id(self) && self.fresh.is_some();
        let handle = if needs_one { create(bench, channel)? } else { UNKNOWN_HANDLE };
        Ok((channel, handle))
    }

    /// Sends the request, modified by `change`, on a new channel; its id does not exist.
    fn sent(
        &self,
        bench: &mut Bench<'_>,
        change: impl FnOnce(Call) -> Call,
    ) -> Result<Answer, CheckError> {
        let channel = bench.channel()?;
        let call = change(self.call(bench, channel, UNKNOWN_HANDLE));
        Ok(bench.call(channel, &call))
    }

    /// Sends the request, modified by `change`, with a valid object.
    fn sent_to_object(
        &self,
        bench: &mut Bench<'_>,
        change: impl FnOnce(Call) -> Call,
    ) -> Result<Answer, CheckError> {
        let (channel, handle) = self.target(bench)?;
        let call = change(self.call(bench, channel, handle));
        Ok(bench.call(channel, &call))
    }

    fn with_room(&self, bench: &mut Bench<'_>, room: usize) -> Result<Answer, CheckError> {
        self.sent_to_object(bench, |mut call| {
            set_response_room(&mut call, room);
            call
        })
    }

    /// Sends the request with `field` set to a value other than 0.
    fn with_reserved(&self, bench: &mut Bench<'_>, field: usize) -> Result<Answer, CheckError> {
        self.sent(bench, |mut call| {
            call.bytes[HEADER + field] = 7;
            call
        })
    }

    /// Returns the expectation for kernels without and with the command.
    fn by_version(&self, stage: Stage, outcome: Outcome) -> Expectation {
        let before = |version, before| {
            Expectation::of(Errno(before)).since(version, outcome, "added in that version")
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
        run: impl Fn(&mut Bench<'_>) -> Result<Answer, CheckError> + 'static,
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

/// Returns all checks of this kind.
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
                Errno(EINVAL) => format!("`{field}` with an undefined value is rejected"),
                _ => format!("`{field}` is not checked"),
            };
            let run = |bench: &mut Bench<'_>| command.with_reserved(bench, *offset);
            rows.push(command.check(&format!("reserved.{field}"), shows, expectation, run));
        }
    }
    rows
}
