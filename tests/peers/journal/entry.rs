//! Entries of a journal: its lines, with the bytes split into the fields of the device's structures.
//!
//! Values that differ between two runs of one program are replaced. Numbers of objects and keys become the order of
//! creation, addresses become the offset in their region, and addresses of queues become their alignment. Bytes that
//! the device ignores are left out.

use std::collections::BTreeMap;
use std::fmt;

/// An entry of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) kind: String,
    /// Names and values.
    pub(super) fields: Vec<(String, String)>,
}

impl Entry {
    /// Returns the value of a field.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
    }

    /// Returns `true` if the entry has this field, a `NAME=VALUE`.
    pub(super) fn has(&self, field: &str) -> bool {
        let (name, value) = field.split_once('=').expect("a name and a value");
        self.value(name) == Some(value)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        self.fields.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

/// Returns the entries of `journal`. Panics if the journal is incomplete.
pub(super) fn read(journal: &str) -> Vec<Entry> {
    let mut names = Names::default();
    let mut lines: Vec<&str> = journal.lines().collect();
    assert_eq!(lines.pop(), Some("dropped count=0"), "journal should have room for every line");
    lines.iter().map(|line| names.entry(line)).collect()
}

/// Checks the copies of entries in doorbell registers. The device executes such a copy instead of the entry in the ring.
///
/// The device must have paused while the program posted. Otherwise a later copy may have overwritten a part of an earlier one.
pub(super) fn check_copies(journal: &str) {
    let lines: Vec<&str> = journal.lines().collect();
    let value = |line: &str, name: &str| {
        let mut words = line.split(' ').filter_map(|word| word.split_once('='));
        words.find(|(of, _)| *of == name).map(|(_, value)| value.to_owned())
    };
    let bytes = |line: &str| unhexed(&value(line, "bytes").unwrap_or_default());
    for (at, ring) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("ring ")) {
        let mut copy = bytes(ring);
        let is_same_entry = |line: &&&str| {
            let has = |name| value(line, name) == value(ring, name);
            line.starts_with("send ") && has("qpn") && has("index")
        };
        // The indices of a queue pair begin again at 0 when the queue pair is reset.
        let is_reset = |line: &&&str| {
            let has = |name, due: &str| value(line, name).as_deref() == Some(due);
            let is_to_reset = line.starts_with("modify_qp ") && has("mask", "0x1");
            is_to_reset && has("state", "0") && value(line, "qpn") == value(ring, "qpn")
        };
        let mut generation = lines[at..].iter().take_while(|line| !is_reset(line));
        // A doorbell alone has 8 bytes.
        if let (9.., Some(send)) = (copy.len(), generation.find(is_same_entry)) {
            let entry = bytes(send);
            // Zeros at the end are absent.
            copy.resize(entry.len(), 0);
            assert_eq!(hexed(&copy), hexed(&entry), "the copy in the register, and the entry");
        }
    }
}

/// The key in the pointer that ends a list of receive memory.
const END_KEY: u64 = 0x100;

/// Opcodes of send entries.
mod opcode {
    pub(super) const SEND_WITH_INVALIDATE: u64 = 0x01;
    pub(super) const WRITE: u64 = 0x08;
    pub(super) const WRITE_WITH_IMMEDIATE: u64 = 0x09;
    pub(super) const READ: u64 = 0x10;
    pub(super) const COMPARE_SWAP: u64 = 0x11;
    pub(super) const FETCH_ADD: u64 = 0x12;
    pub(super) const CHANGE_KEY: u64 = 0x25;
}

/// The flag that makes the device check whether the key belongs to the queue pair. Invalidations have it.
const UMR_CHECK_QP: u8 = 1 << 3;

/// The type of queue pairs for datagrams (`IB_QPT_UD`).
const UD: &str = "4";
/// The type of XRC initiators (`IB_QPT_XRC_INI`).
const INITIATOR: &str = "9";

/// The kinds of objects that have numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Pd,
    Cq,
    Srq,
    Qp,
}

/// The way to show a field of driver data.
#[derive(Debug, Clone, Copy)]
enum Show {
    Number,
    /// An address of this process. Only its alignment is shown.
    Aligned(u64),
    /// A user index. Only its use by another queue pair is shown.
    UserIndex,
}

/// A field of driver data: name, offset, bytes.
type Field = (&'static str, usize, usize, Show);

/// Layouts of driver data (uapi `rdma/mlx5-abi.h`), whose integers have the byte order of the processor.
const LAYOUTS: [(&str, &[Field]); 6] = [
    (
        "alloc_ucontext",
        &[
            ("total_num_bfregs", 0, 4, Show::Number),
            ("num_low_latency_bfregs", 4, 4, Show::Number),
            ("flags", 8, 4, Show::Number),
            ("comp_mask", 12, 4, Show::Number),
            ("max_cqe_version", 16, 1, Show::Number),
            ("reserved", 17, 7, Show::Number),
            ("lib_caps", 24, 8, Show::Number),
        ],
    ),
    (
        "create_cq",
        &[
            ("buf_addr", 0, 8, Show::Aligned(4096)),
            ("db_addr", 8, 8, Show::Aligned(64)),
            ("cqe_size", 16, 4, Show::Number),
            ("cqe_comp_en", 20, 1, Show::Number),
            ("cqe_comp_res_format", 21, 1, Show::Number),
            ("flags", 22, 2, Show::Number),
            ("uar_page_index", 24, 2, Show::Number),
            ("reserved", 26, 6, Show::Number),
        ],
    ),
    (
        "resize_cq",
        &[
            ("buf_addr", 0, 8, Show::Aligned(4096)),
            ("cqe_size", 8, 2, Show::Number),
            ("reserved", 10, 6, Show::Number),
        ],
    ),
    (
        "create_qp",
        &[
            ("buf_addr", 0, 8, Show::Aligned(4096)),
            ("db_addr", 8, 8, Show::Aligned(64)),
            ("sq_wqe_count", 16, 4, Show::Number),
            ("rq_wqe_count", 20, 4, Show::Number),
            ("rq_wqe_shift", 24, 4, Show::Number),
            ("flags", 28, 4, Show::Number),
            ("uidx", 32, 4, Show::UserIndex),
            ("bfreg_index", 36, 4, Show::Number),
            ("sq_buf_addr", 40, 8, Show::Number),
            ("ece_options", 48, 4, Show::Number),
            ("dci_and_reserved", 52, 4, Show::Number),
        ],
    ),
    (
        "modify_qp_data",
        &[
            ("comp_mask", 0, 4, Show::Number),
            ("burst_info", 4, 8, Show::Number),
            ("ece_options", 12, 4, Show::Number),
        ],
    ),
    (
        "create_srq",
        &[
            ("buf_addr", 0, 8, Show::Aligned(4096)),
            ("db_addr", 8, 8, Show::Aligned(64)),
            ("flags", 16, 4, Show::Number),
            ("reserved0", 20, 4, Show::Number),
            ("uidx", 24, 4, Show::Number),
            ("reserved1", 28, 4, Show::Number),
        ],
    ),
];

/// A memory region of the journal.
#[derive(Debug)]
struct Region {
    key: u64,
    start: u64,
    length: u64,
}

/// The objects of a journal, in the order of their creation.
#[derive(Debug, Default)]
struct Names {
    numbers: BTreeMap<Kind, Vec<u64>>,
    regions: Vec<Region>,
    /// The first keys of memory windows, whose lowest byte changes with each bind.
    windows: Vec<u64>,
    datagram_qps: Vec<u64>,
    initiators: Vec<u64>,
    /// The user index of the queue pair that is being created.
    user_index: Option<u64>,
    /// The numbers of queue pairs, and their user indices.
    user_indices: BTreeMap<u64, u64>,
}

/// The user index of a queue pair whose completions name it by number.
const NO_USER_INDEX: u64 = 0xff_ffff;

/// The fields of an entry, in the order of its line.
type Fields = Vec<(String, String)>;

fn add(fields: &mut Fields, name: impl Into<String>, value: impl Into<String>) {
    fields.push((name.into(), value.into()));
}

impl Names {
    fn entry(&mut self, line: &str) -> Entry {
        let mut words = line.split(' ');
        let kind = words.next().expect("a line should have a kind").to_owned();
        let words: Vec<(&str, &str)> =
            words.map(|word| word.split_once('=').expect("a name and a value")).collect();
        let value = |name: &str| words.iter().find(|(of, _)| *of == name).map(|(_, value)| *value);
        let number = |name: &str| value(name).map_or(0, parsed);
        self.learn(&kind, &number, value("type"));
        let mut fields = Fields::new();
        for (name, value) in words.iter().filter(|(name, _)| *name != "bytes") {
            add(&mut fields, *name, self.shown(&kind, name, value, &number));
        }
        if let Some(bytes) = value("bytes") {
            self.bytes(&kind, number("qpn"), &unhexed(bytes), &mut fields);
        }
        Entry { kind, fields }
    }

    /// Records the object that an entry creates.
    fn learn(&mut self, kind: &str, number: &impl Fn(&str) -> u64, qp_type: Option<&str>) {
        let (object, name) = match kind {
            "alloc_pd" => (Kind::Pd, "pdn"),
            "cq" => (Kind::Cq, "cqn"),
            "srq" => (Kind::Srq, "srqn"),
            "qp" => {
                let index = self.user_index.take();
                self.user_indices.extend(index.map(|index| (number("qpn"), index)));
                (Kind::Qp, "qpn")
            }
            "destroy_qp" => {
                self.user_indices.remove(&number("qpn"));
                return;
            }
            "reg_mr" => {
                let (key, start, length) = (number("key"), number("iova"), number("length"));
                self.regions.push(Region { key, start, length });
                return;
            }
            "rereg_mr" => {
                let it = self.regions.iter_mut().rfind(|region| region.key == number("key"));
                let region = it.expect("region should exist");
                // Without new memory, the entry has zeros.
                if number("length") > 0 {
                    (region.start, region.length) = (number("iova"), number("length"));
                }
                return;
            }
            "alloc_mw" => return self.windows.push(number("key")),
            _ => return,
        };
        self.numbers.entry(object).or_default().push(number(name));
        if qp_type == Some(UD) {
            self.datagram_qps.push(number(name));
        }
        if qp_type == Some(INITIATOR) {
            self.initiators.push(number(name));
        }
    }

    /// Returns the value of a field that is not bytes.
    fn shown(&self, kind: &str, name: &str, text: &str, number: &impl Fn(&str) -> u64) -> String {
        let object = match name {
            "pdn" => Kind::Pd,
            "cqn" | "send_cqn" | "recv_cqn" => Kind::Cq,
            "srqn" => Kind::Srq,
            "qpn" => Kind::Qp,
            "dest" if kind == "modify_qp" => Kind::Qp,
            "key" => return self.key(parsed(text)),
            "start" => return aligned(parsed(text), 4096),
            "iova" if parsed(text) == number("start") => return "start".to_owned(),
            "word" => return arm_word(parsed(text)),
            _ => return text.to_owned(),
        };
        match parsed(text) {
            0 => "none".to_owned(),
            number => self.name(object, number),
        }
    }

    fn name(&self, kind: Kind, number: u64) -> String {
        let numbers = self.numbers.get(&kind).map_or(&[][..], Vec::as_slice);
        match numbers.iter().rposition(|of| *of == number) {
            Some(at) => format!("{kind:?}{at}").to_lowercase(),
            None => format!("unknown:{number:#x}"),
        }
    }

    fn region(&self, key: u64) -> Option<(usize, &Region)> {
        let at = self.regions.iter().rposition(|region| region.key == key)?;
        Some((at, &self.regions[at]))
    }

    fn key(&self, key: u64) -> String {
        let has_it = |first: &u64| first >> 8 == key >> 8;
        match (self.region(key), self.windows.iter().rposition(has_it)) {
            (Some((at, _)), _) => format!("mr{at}"),
            (None, Some(at)) => format!("mw{at}+{}", key.wrapping_sub(self.windows[at]) & 0xff),
            (None, None) => format!("unknown:{key:#x}"),
        }
    }

    fn address(&self, key: u64, address: u64) -> String {
        // A request with a bad key still names memory of a region.
        let is_in = |region: &&Region| {
            address.checked_sub(region.start).is_some_and(|offset| offset <= region.length)
        };
        let region = self.region(key).map(|(_, region)| region).filter(is_in);
        match region.or_else(|| self.regions.iter().find(is_in)) {
            Some(region) => format!("{:#x}", address - region.start),
            None => format!("unknown:{address:#x}"),
        }
    }

    /// Adds the fields of the bytes of an entry.
    fn bytes(&mut self, kind: &str, qpn: u64, bytes: &[u8], fields: &mut Fields) {
        match kind {
            "send" => self.send(qpn, bytes, fields),
            "ring" => self.ring(qpn, bytes, fields),
            "receive" => self.scatter(bytes, fields),
            "srq_receive" => {
                let (next, rest) = bytes.split_at(16);
                add(fields, "next.reserved", hexed(&next[..2]));
                add(fields, "next.next_wqe_index", big(&next[2..4]).to_string());
                add(fields, "next.signature", next[4].to_string());
                add(fields, "next.reserved1", hexed(&next[5..]));
                self.scatter(rest, fields);
            }
            "cq_arm" => {
                add(fields, "register.word", arm_word(big(&bytes[..4])));
                add(fields, "register.cqn", self.name(Kind::Cq, big(&bytes[4..])));
            }
            _ => match LAYOUTS.iter().find(|(of, _)| *of == kind) {
                Some((_, layout)) => self.driver_data(layout, bytes, fields),
                None => add(fields, "bytes", hexed(bytes)),
            },
        }
    }

    /// Adds the first 8 bytes of an entry, which a doorbell has.
    fn start(&self, bytes: &[u8], fields: &mut Fields) {
        add(fields, "ctrl.opmod", bytes[0].to_string());
        add(fields, "ctrl.index", big(&bytes[1..3]).to_string());
        add(fields, "ctrl.opcode", format!("{:#x}", bytes[3]));
        add(fields, "ctrl.qpn", self.name(Kind::Qp, big(&bytes[4..7])));
        add(fields, "ctrl.ds", bytes[7].to_string());
    }

    fn send(&self, qpn: u64, bytes: &[u8], fields: &mut Fields) {
        self.start(bytes, fields);
        let opcode = u64::from(bytes[3]);
        add(fields, "ctrl.signature", bytes[8].to_string());
        add(fields, "ctrl.reserved", hexed(&bytes[9..11]));
        add(fields, "ctrl.fm_ce_se", format!("{:#x}", bytes[11]));
        let immediate = big(&bytes[12..16]);
        match opcode {
            opcode::SEND_WITH_INVALIDATE | opcode::CHANGE_KEY => {
                add(fields, "ctrl.imm", self.key(immediate));
            }
            _ => add(fields, "ctrl.imm", format!("{immediate:#x}")),
        }
        let mut rest = &bytes[16..];
        let mut segment = |length: usize| {
            let (segment, after) = rest.split_at_checked(length)?;
            rest = after;
            Some(segment)
        };
        if self.datagram_qps.contains(&qpn) {
            match segment(48) {
                Some(segment) => self.datagram(segment, fields),
                None => return add(fields, "datagram", "missing"),
            }
        }
        if opcode == opcode::CHANGE_KEY {
            return self.key_change(immediate, rest, fields);
        }
        if self.initiators.contains(&qpn) {
            let Some(segment) = segment(16) else { return add(fields, "xrc", "missing") };
            add(fields, "xrc.srqn", self.name(Kind::Srq, big(&segment[..4])));
            add(fields, "xrc.reserved", hexed(&segment[4..]));
        }
        if matches!(
            opcode,
            opcode::WRITE
                | opcode::WRITE_WITH_IMMEDIATE
                | opcode::READ
                | opcode::COMPARE_SWAP
                | opcode::FETCH_ADD
        ) {
            let Some(segment) = segment(16) else { return add(fields, "raddr", "missing") };
            let key = big(&segment[8..12]);
            add(fields, "raddr.addr", self.address(key, big(&segment[..8])));
            add(fields, "raddr.rkey", self.key_or_next(key));
            add(fields, "raddr.reserved", hexed(&segment[12..]));
        }
        if matches!(opcode, opcode::COMPARE_SWAP | opcode::FETCH_ADD) {
            let Some(segment) = segment(16) else { return add(fields, "atomic", "missing") };
            add(fields, "atomic.swap_add", format!("{:#x}", big(&segment[..8])));
            // The device does not compare if it adds.
            if opcode == opcode::COMPARE_SWAP {
                add(fields, "atomic.compare", format!("{:#x}", big(&segment[8..])));
            }
        }
        self.gather(rest, fields);
    }

    /// Adds the segments that change the key `key`.
    fn key_change(&self, key: u64, bytes: &[u8], fields: &mut Fields) {
        let Some((control, rest)) = bytes.split_at_checked(48) else {
            return add(fields, "umr", "missing");
        };
        add(fields, "umr.flags", format!("{:#x}", control[0]));
        add(fields, "umr.reserved", hexed(&control[1..4]));
        add(fields, "umr.octowords", big(&control[4..6]).to_string());
        add(fields, "umr.offset", big(&control[6..8]).to_string());
        add(fields, "umr.mask", format!("{:#x}", big(&control[8..16])));
        add(fields, "umr.reserved1", hexed(&control[16..]));
        let Some((segment, rest)) = rest.split_at_checked(64) else {
            return add(fields, "mkey", "missing");
        };
        let owner = big(&segment[4..8]);
        add(fields, "mkey.status", format!("{:#x}", segment[0]));
        add(fields, "mkey.pcie", segment[1].to_string());
        add(fields, "mkey.flags", format!("{:#x}", segment[2]));
        add(fields, "mkey.version", segment[3].to_string());
        add(fields, "mkey.qpn", self.name(Kind::Qp, owner >> 8));
        // In an invalidation, the byte is not part of a key, so it is compared unchanged.
        let byte = match control[0] & UMR_CHECK_QP {
            0 => self.key(key & !0xff | owner & 0xff),
            _ => hexed(&segment[7..8]),
        };
        add(fields, "mkey.key", byte);
        add(fields, "mkey.reserved", hexed(&segment[8..16]));
        add(fields, "mkey.start", self.address(0, big(&segment[16..24])));
        add(fields, "mkey.length", big(&segment[24..32]).to_string());
        add(fields, "mkey.rest", hexed(&segment[32..]));
        if let Some((translation, padding)) = rest.split_at_checked(16) {
            self.pointer(translation, fields);
            add(fields, "padding", hexed(padding));
        }
    }

    /// Returns the name of a key, or the distance of a key that no region has from one that a region has.
    fn key_or_next(&self, key: u64) -> String {
        match (self.region(key), self.region(key.wrapping_sub(1))) {
            (None, Some((at, _))) => format!("mr{at}+1"),
            _ => self.key(key),
        }
    }

    fn datagram(&self, segment: &[u8], fields: &mut Fields) {
        let number = big(&segment[8..12]);
        add(fields, "av.qkey", format!("{:#x}", big(&segment[..4])));
        add(fields, "av.reserved", hexed(&segment[4..8]));
        add(fields, "av.extended", format!("{:#x}", number >> 24));
        add(fields, "av.dqp_dct", self.name(Kind::Qp, number & 0xff_ffff));
        add(fields, "av.stat_rate_sl", format!("{:#x}", segment[12]));
        add(fields, "av.fl_mlid", format!("{:#x}", segment[13]));
        let route = big(&segment[28..32]);
        // Without a flow label, both libraries choose a random port.
        let port = match (route & 0xf_ffff, big(&segment[14..16])) {
            (0, 0xc000..) => "random".to_owned(),
            (_, port) => format!("{port:#x}"),
        };
        add(fields, "av.rlid", port);
        add(fields, "av.reserved0", hexed(&segment[16..20]));
        add(fields, "av.rmac", hexed(&segment[20..26]));
        add(fields, "av.tclass", format!("{:#x}", segment[26]));
        add(fields, "av.hop_limit", segment[27].to_string());
        add(fields, "av.grh_gid_fl", format!("{route:#x}"));
        add(fields, "av.rgid", hexed(&segment[32..48]));
    }

    /// Adds pointers to data, and data.
    fn gather(&self, mut rest: &[u8], fields: &mut Fields) {
        while rest.len() >= 16 {
            let word = big(&rest[..4]);
            if word >> 31 == 0 {
                self.pointer(&rest[..16], fields);
                rest = &rest[16..];
                continue;
            }
            let length = usize::try_from(word & 0x7fff_ffff).expect("a length should have 31 bits");
            add(fields, "inline.length", length.to_string());
            let Some(bytes) = rest.get(4..length.saturating_add(4)) else {
                return add(fields, "inline.bytes", "missing");
            };
            add(fields, "inline.bytes", hexed(bytes));
            // The device ignores the rest of the unit.
            rest = &rest[(4 + length).next_multiple_of(16).min(rest.len())..];
        }
        if !rest.is_empty() {
            add(fields, "rest", hexed(rest));
        }
    }

    fn pointer(&self, segment: &[u8], fields: &mut Fields) {
        let key = big(&segment[4..8]);
        add(fields, "data.byte_count", big(&segment[..4]).to_string());
        add(fields, "data.lkey", self.key_or_next(key));
        add(fields, "data.addr", self.address(key, big(&segment[8..])));
    }

    /// Adds pointers to the memory of a receive, up to the end of their list.
    fn scatter(&self, bytes: &[u8], fields: &mut Fields) {
        for segment in bytes.chunks_exact(16) {
            if big(&segment[..4]) == 0 && big(&segment[4..8]) == END_KEY {
                add(fields, "end.addr", big(&segment[8..]).to_string());
                return;
            }
            self.pointer(segment, fields);
        }
    }

    /// Adds the bytes of a doorbell register. Zeros at their end are absent.
    fn ring(&self, qpn: u64, bytes: &[u8], fields: &mut Fields) {
        if bytes.len() <= 8 {
            add(fields, "ring", "doorbell");
            return self.start(bytes, fields);
        }
        let length = usize::from(bytes[7] & 0x3f) * 16;
        add(fields, "ring", "blueflame");
        add(fields, "beyond", (bytes.len() > length.next_multiple_of(64)).to_string());
        let mut entry = bytes.to_vec();
        entry.resize(length.max(16), 0);
        self.send(qpn, &entry, fields);
    }

    fn driver_data(&mut self, layout: &[Field], bytes: &[u8], fields: &mut Fields) {
        let mut end = 0;
        for (name, offset, length, show) in layout.iter().copied() {
            // An older library sends fewer bytes.
            let Some(part) = bytes.get(offset..offset + length) else {
                add(fields, name, "absent");
                continue;
            };
            end = offset + length;
            let number = part.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
            let shown = match show {
                Show::Number => format!("{number:#x}"),
                Show::Aligned(alignment) => aligned(number, alignment),
                Show::UserIndex => self.shown_user_index(number),
            };
            add(fields, name, shown);
        }
        if bytes.len() > end {
            add(fields, "rest", hexed(&bytes[end..]));
        }
    }

    fn shown_user_index(&mut self, index: u64) -> String {
        self.user_index = Some(index);
        match index {
            NO_USER_INDEX => "none".to_owned(),
            index if index > NO_USER_INDEX => format!("{index:#x}"),
            index if self.user_indices.values().any(|of| *of == index) => "used".to_owned(),
            _ => "unused".to_owned(),
        }
    }
}

/// Returns the distance of an address from a multiple of `alignment`.
fn aligned(address: u64, alignment: u64) -> String {
    match address {
        0 => "none".to_owned(),
        address => format!("aligned+{}", address % alignment),
    }
}

/// Returns the parts of the word that arms a completion queue.
fn arm_word(word: u64) -> String {
    let (serial, command) = (word >> 28, word >> 24 & 15);
    format!("serial:{serial},command:{command},index:{}", word & 0xff_ffff)
}

/// Reads a number with the most significant byte first.
fn big(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn parsed(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).expect("a number"),
        None => text.parse().unwrap_or_else(|_| panic!("not a number: {text}")),
    }
}

fn hexed(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhexed(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("two digits");
    (0..text.len() / 2).map(|index| byte(2 * index)).collect()
}
