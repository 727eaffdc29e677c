//! The example that copies a file: the copy has the bytes of the file, and both sides report failures.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount, umount};
use rdmacm_tests::roce::{roce_ip, roce_name};
use rdmacm_tests::{Ended, Process, promised_device, wait_until};

use crate::SIW;
use crate::examples::example;
use crate::rping::{listening, port};

/// A directory for one test. Dropping this value removes the directory.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("file_copy-{}", port()));
        fs::create_dir(&path).expect("make a directory");
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Remains of a failed test are deleted with the guest.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Starts the two programs: the receiver writes `copy`, and the sender reads `file`.
fn start(address: &str, file: &Path, copy: &Path) -> [Process; 2] {
    let address = format!("{address}:{}", port());
    let text = |path: &Path| path.to_str().expect("a path of this test").to_owned();
    let receiver = listening(example("file_copy", &["receive", &address, &text(copy)]));
    [example("file_copy", &["send", &address, &text(file)]), receiver]
}

#[track_caller]
fn assert_failed(ended: &Ended, texts: &[&str]) {
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    for text in texts {
        assert!(ended.stderr.contains(text), "no {text:?} in {}", ended.stderr);
    }
}

fn files_arrive(address: &str) {
    let directory = Directory::new();
    let [file, copy] = ["file", "copy"].map(|name| directory.file(name));
    for length in [0, 1, 65_536, 2_000_001] {
        // No two pieces have the same bytes, and no two windows.
        let bytes: Vec<u8> = (0_u32..).flat_map(u32::to_ne_bytes).take(length).collect();
        fs::write(&file, &bytes).expect("write the file");
        let [sender, receiver] = start(address, &file, &copy).map(Process::finish);
        assert!(sender.status.success() && receiver.status.success(), "{sender:?} {receiver:?}");
        assert!(sender.stderr.ends_with(&format!("[{}] 100 %\n", "#".repeat(50))), "{sender:?}");
        assert!(fs::read(&copy).expect("read the copy") == bytes, "{length} bytes");
    }
    assert_eq!(
        fs::read_dir(&directory.0).expect("list").count(),
        2,
        "the directory should have two files only"
    );
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn files_of_all_sizes_arrive() {
    promised_device(roce_name());
    files_arrive(roce_ip());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_files_of_all_sizes_arrive() {
    promised_device("siw0");
    files_arrive(SIW);
}

/// Kills one of the two programs in the middle of a large file. The other program reports this.
fn program_death_is_reported(address: &str) {
    for victim in 0..2 {
        let directory = Directory::new();
        let [file, copy, part] = ["file", "copy", "copy.part"].map(|name| directory.file(name));
        File::create(&file).and_then(|file| file.set_len(1 << 40)).expect("a file of holes");
        let mut both = start(address, &file, &copy);
        let has_begun = || fs::metadata(&part).is_ok_and(|part| part.len() > 0);
        wait_until("a part of the file has arrived", has_begun);
        both[victim].kill();
        let [sender, receiver] = both.map(Process::finish);
        let survivor = if victim == 0 { receiver } else { sender };
        assert_failed(&survivor, &["file_copy: "]);
        assert!(!copy.exists());
        assert_eq!(
            part.exists(),
            victim == 1,
            "a receiver that is not killed should remove its part of the file"
        );
    }
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn killed_program_is_reported_by_peer() {
    promised_device(roce_name());
    program_death_is_reported(roce_ip());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_killed_program_is_reported_by_peer() {
    promised_device("siw0");
    program_death_is_reported(SIW);
}

fn failure_is_reported(address: &str) {
    let directory = Directory::new();
    let [file, copy, full] = ["file", "copy", "full"].map(|name| directory.file(name));
    fs::write(&file, vec![7; 1_500_000]).expect("write the file");
    let [sender, receiver] = start(address, &file, &directory.file("no/copy"));
    assert_failed(&sender.finish(), &["the receiver says: ", "no/copy.part: No such file"]);
    assert_failed(&receiver.finish(), &["file_copy: ", "no/copy.part: No such file"]);
    fs::create_dir(&full).expect("make a directory");
    let options = Some("size=1m");
    mount(Some("none"), &full, Some("tmpfs"), MsFlags::empty(), options).expect("mount");
    let [sender, receiver] = start(address, &file, &full.join("copy")).map(Process::finish);
    let left = fs::read_dir(&full).expect("list").count();
    umount(&full).expect("unmount");
    assert_failed(&sender, &["the receiver says: ", "full/copy.part: No space left"]);
    assert_failed(&receiver, &["full/copy.part: No space left"]);
    assert_eq!(left, 0, "an incomplete copy should be removed");
    // The file is opened before the connection, and a directory is no file.
    let missing = directory.file("missing");
    let [sender, mut receiver] = start(address, &missing, &copy);
    assert_failed(&sender.finish(), &["missing: No such file"]);
    assert!(receiver.is_running(), "receiver should still wait");
    let [sender, receiver] = start(address, &directory.0, &copy);
    assert_failed(&sender.finish(), &["Is a directory"]);
    assert_failed(&receiver.finish(), &["the other side closed too early"]);
    assert!(!copy.exists());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn failure_is_reported_on_both_sides() {
    promised_device(roce_name());
    failure_is_reported(roce_ip());
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn siw_failure_is_reported_on_both_sides() {
    promised_device("siw0");
    failure_is_reported(SIW);
}
