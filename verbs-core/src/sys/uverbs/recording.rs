//! Verbs files for tests without a kernel: one records its commands, the other one writes them to a socket.

use std::fs::File;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use verbs_abi::{IB_USER_VERBS_CMD_FLAG_EXTENDED, ib_uverbs_cmd_hdr, ib_uverbs_ex_cmd_hdr};

use super::{HEADER, HEADERS, UverbsFile};

/// The commands that were written to a [recording file](UverbsFile::recording), and the means to refuse further ones.
#[derive(Debug)]
pub struct Recorder {
    file: File,
}

impl UverbsFile {
    /// Opens a file that accepts every command, answers none, and records them.
    ///
    /// # Panics
    ///
    /// Panics if the memory for the records cannot be allocated.
    pub fn recording() -> (Self, Recorder) {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = File::from(memfd_create(c"commands", flags).expect("a file in memory"));
        // Unlike a file of a file system, this one has no lock around its position: threads that write at the same time
        // would write at the same place.
        fcntl(&file, FcntlArg::F_SETFL(OFlag::O_APPEND)).expect("append");
        let fd = OwnedFd::from(file.try_clone().expect("a descriptor"));
        (Self::without_device(fd), Recorder { file })
    }

    /// Opens a file that accepts every command, answers none, and writes them to the returned socket.
    ///
    /// A command lasts until the socket has room for it.
    ///
    /// # Panics
    ///
    /// Panics if the process has no descriptors left.
    pub fn on_socket() -> (Self, UnixStream) {
        let (commands, kernel) = UnixStream::pair().expect("a pair of sockets");
        (Self::without_device(commands.into()), kernel)
    }
}

impl Recorder {
    /// Returns the numbers of the commands so far, in their order.
    ///
    /// # Panics
    ///
    /// Panics if the file has other contents than commands.
    pub fn commands(&self) -> Vec<u32> {
        let bytes = self.bytes();
        let mut rest = &bytes[..];
        let mut commands = Vec::new();
        while !rest.is_empty() {
            let command = u32::from_ne_bytes(field(rest, 0));
            let words = |place| usize::from(u16::from_ne_bytes(field(rest, place)));
            let in_words = words(offset_of!(ib_uverbs_cmd_hdr, in_words));
            let length = if command & IB_USER_VERBS_CMD_FLAG_EXTENDED == 0 {
                in_words * 4
            } else {
                let provider = HEADER + offset_of!(ib_uverbs_ex_cmd_hdr, provider_in_words);
                HEADERS + (in_words + words(provider)) * 8
            };
            assert!(length >= HEADER, "a command of {length} bytes is shorter than its header");
            commands.push(command & !IB_USER_VERBS_CMD_FLAG_EXTENDED);
            rest = &rest[length..];
        }
        commands
    }

    /// Returns the bytes of the commands so far, in their order.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let length = self.file.metadata().expect("a length").len();
        let mut bytes = vec![0; length.try_into().expect("64 bits")];
        self.file.read_exact_at(&mut bytes, 0).expect("the records");
        bytes
    }

    /// Makes a file without commands accept only commands of `length` bytes together.
    ///
    /// It refuses all further ones with EPERM. Only one thread may issue commands then: they are written from the
    /// beginning, because the file already has its final length.
    #[cfg(test)]
    pub(crate) fn refuse_after(&self, length: usize) {
        fcntl(&self.file, FcntlArg::F_SETFL(OFlag::empty())).expect("write from the beginning");
        self.file.set_len(length.try_into().expect("64 bits")).expect("set the length");
        fcntl(&self.file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_GROW)).expect("seal the length");
    }

    /// Makes the file refuse all further commands with EPERM.
    ///
    /// # Panics
    ///
    /// Panics if the file cannot be sealed.
    pub fn refuse(&self) {
        fcntl(&self.file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_WRITE)).expect("seal the file");
    }
}

/// Returns the bytes of a field of `record`, `place` bytes after its beginning.
fn field<const N: usize>(record: &[u8], place: usize) -> [u8; N] {
    record[place..place + N].try_into().expect("a part of this length")
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::thread;

    use verbs_abi::{Command, ib_uverbs_dealloc_pd};

    use super::*;

    #[test]
    fn commands_of_concurrent_threads_are_recorded() {
        const THREADS: u32 = 4;
        const EACH: u32 = 10_000;
        let (file, recorder) = UverbsFile::recording();
        let issue = |pd_handle| file.command(ib_uverbs_dealloc_pd { pd_handle }).expect("recorded");
        thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || (0..EACH).for_each(|number| issue(thread * EACH + number)));
            }
        });
        let commands = recorder.commands();
        assert_eq!(commands.len(), (THREADS * EACH) as usize);
        assert!(commands.iter().all(|command| *command == ib_uverbs_dealloc_pd::NUMBER));
    }

    #[test]
    #[should_panic = "shorter than its header"]
    fn record_without_length_panics() {
        let (_file, recorder) = UverbsFile::recording();
        (&recorder.file).write_all(&[0; HEADER]).expect("write");
        recorder.commands();
    }
}
