use super::*;

use std::os::fd::AsFd;

#[test]
fn joined_parts_are_contiguous() {
    let joined = Joined([1_u8, 2], Joined((), 0x0605_0403_u32.to_le_bytes()));
    assert_eq!(joined.as_bytes(), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn unnamed_errno_keeps_its_number() {
    for (raw, refused) in [(524, CommandError::Unnamed(524)), (22, CommandError::Os(Errno::EINVAL))]
    {
        Errno::set_raw(raw);
        let errno = Errno::result(-1).expect_err("-1 is an error");
        let why = CommandError::last_os_error(errno);
        assert_eq!(why, refused);
    }
}

#[test]
#[cfg(debug_assertions)]
fn only_data_path_is_allowed_under_lock() {
    // POST_SEND and POLL_CQ of uverbs; RESOLVE_ADDR of ucma has the number of POLL_CQ; MODIFY_QP.
    let header =
        |number: u32, length: u16| [&number.to_ne_bytes()[..], &length.to_ne_bytes()].concat();
    for (number, length, bytes, is_allowed) in
        [(28, 6, 24, true), (21, 6, 24, true), (21, 16, 24, false), (26, 6, 24, false)]
    {
        let mut command = header(number, length);
        command.resize(bytes, 0);
        assert_eq!(is_of_data_path(&command), is_allowed, "{number}");
    }
    assert!(!is_of_data_path(&[]));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic = "should not be issued under the lock"]
fn command_under_lock_panics() {
    let _locked = lock::NoCommands::begin();
    let null = std::fs::File::options().write(true).open("/dev/null").expect("open");
    // SAFETY: the command holds no address.
    let _ = unsafe { write(null.as_fd(), &[0; 8]) };
}

#[test]
fn short_write_is_enodata() {
    let (reader, writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_NONBLOCK).expect("pipe");
    let filler = vec![0; 65_536 - 4096];
    nix::unistd::write(&writer, &filler).expect("the pipe should have room for the filler");
    // SAFETY: a pipe follows no addresses.
    let written = unsafe { write(writer.as_fd(), &[0; 8192]) };
    assert_eq!(written, Err(CommandError::Os(Errno::ENODATA)));
    drop(reader);
}
