//! The bytes that a program writes to rdma_cm, as comparable lines.
//!
//! There is one line for each command, with the names of the kernel's header, and without values that differ from run
//! to run.

use std::fmt::Write as _;

use ucma_abi::{
    CONSTANTS, LAYOUT, RDMA_USER_CM_CMD_LEAVE_MCAST, RDMA_USER_CM_CMD_QUERY, rdma_ucm_cmd_hdr,
};
use verbs_abi::layout::Struct;

/// Reads the output of `strace -f -xx -e trace=write -P /dev/infiniband/rdma_cm`.
pub(crate) fn read(trace: &str) -> Vec<String> {
    let mut names = Names::default();
    let mut lines = Vec::new();
    for line in trace.lines() {
        let Some((_, call)) = line.split_once("write(") else { continue };
        let (fd, rest) = call.split_once(", \"").expect("a descriptor and a string");
        let (hex, _) = rest.split_once('"').expect("the string's end");
        let bytes: Vec<u8> = hex
            .split("\\x")
            .skip(1)
            .map(|digits| u8::from_str_radix(digits, 16).expect("two digits"))
            .collect();
        lines.push(names.command(fd.parse().expect("a descriptor"), &bytes));
    }
    lines
}

/// The values that differ from run to run, in the order of their appearance.
#[derive(Default)]
struct Names {
    channels: Vec<u64>,
    ids: Vec<u64>,
    queue_pairs: Vec<u64>,
}

impl Names {
    /// Returns the line of a command: `CONNECT out=0 id=#1 conn_param.retry_count=5`.
    ///
    /// Fields that are zero are left out.
    fn command(&mut self, fd: u64, bytes: &[u8]) -> String {
        let (header, request) = bytes.split_at(size_of::<rdma_ucm_cmd_hdr>());
        let word = |at: usize| {
            u32::from_ne_bytes(
                header[at..at + 4].try_into().expect("the slice should have 4 bytes"),
            )
        };
        let (number, lengths) = (word(0), word(4));
        let (sent, stored) = (lengths & 0xffff, lengths >> 16);
        assert_eq!(usize::try_from(sent).ok(), Some(request.len()), "the header's length");
        let channel = place(&mut self.channels, fd);
        let name = name(number);
        let mut text = format!("{name} in={sent} out={stored}");
        if channel > 0 {
            write!(text, " channel={channel}").expect("writing to a string should succeed");
        }
        let request_type = match number {
            RDMA_USER_CM_CMD_QUERY => "rdma_ucm_query".to_owned(),
            RDMA_USER_CM_CMD_LEAVE_MCAST => "rdma_ucm_destroy_id".to_owned(),
            _ => format!("rdma_ucm_{}", name.to_lowercase()),
        };
        let layout =
            structure(&request_type).unwrap_or_else(|| panic!("no layout of {request_type}"));
        self.fields(&mut text, "", layout, request);
        text
    }

    fn fields(&mut self, text: &mut String, prefix: &str, layout: &Struct, bytes: &[u8]) {
        for field in layout.fields {
            // The sender may use a shorter form of the structure.
            let Some(bytes) = bytes.get(field.offset..field.offset + field.size) else { continue };
            let name = format!("{prefix}{}", field.name);
            if let Some(inner) = structure(field.rust_type) {
                self.fields(text, &format!("{name}."), inner, bytes);
                continue;
            }
            // Zero is a valid handle and a valid option. Other fields that are zero are left out.
            if bytes.iter().all(|byte| *byte == 0) && !["id", "option"].contains(&field.name) {
                continue;
            }
            let value = match (field.name, bytes.len()) {
                // These are addresses in the program.
                ("response" | "optval", _) => continue,
                ("uid", _) => "own".to_owned(),
                ("id", 4) => format!("#{}", place(&mut self.ids, number(bytes))),
                ("fd", 4) => format!("channel {}", place(&mut self.channels, number(bytes))),
                ("qp_num", 4) => format!("#{}", place(&mut self.queue_pairs, number(bytes))),
                (_, 1 | 2 | 4 | 8) => number(bytes).to_string(),
                _ => hex(bytes),
            };
            write!(text, " {name}={value}").expect("writing to a string should succeed");
        }
    }
}

/// Returns the index of `value` among the values so far.
fn place(known: &mut Vec<u64>, value: u64) -> usize {
    known.iter().position(|other| *other == value).unwrap_or_else(|| {
        known.push(value);
        known.len() - 1
    })
}

fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// Returns the bytes up to the last that is not zero.
fn hex(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes[..end].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn structure(name: &str) -> Option<&'static Struct> {
    LAYOUT.iter().copied().flatten().find(|layout| layout.name == name)
}

/// Returns the command's name without the prefix that all names share.
fn name(number: u32) -> &'static str {
    const PREFIX: &str = "RDMA_USER_CM_CMD_";
    let mut constants = CONSTANTS.iter().copied().flatten();
    let found = constants.find_map(|constant| {
        constant.name.strip_prefix(PREFIX).filter(|_| constant.value == u64::from(number))
    });
    found.unwrap_or_else(|| panic!("command {number}"))
}
