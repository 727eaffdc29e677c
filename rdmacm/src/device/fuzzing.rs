//! Answers of netlink and sysfs about devices.

use super::chardev::rdma_cm_from;
use super::port::Port;
use super::sources::Sources;
use super::{Device, ResourceCounts, discovery, golden};
use crate::sys::netlink;
use crate::sys::sysfs::fake::Tree;
use crate::testing::Input;

/// A limit of the number of ports that a device has.
///
/// The library queries each port that the kernel reports, which takes long for more ports.
const MANY_PORTS: u32 = 300;

/// Answers all queries about devices with netlink responses, each after its length in two bytes.
pub fn netlink(bytes: &[u8]) {
    netlink::walk(bytes);
    let mut answers = Vec::new();
    let mut input = Input(bytes);
    // A socket holds no more responses.
    while !input.is_empty() && answers.len() < 64 {
        let length: u16 = input.value();
        answers.push(input.bytes(usize::from(length & 0xfff)).to_vec());
    }
    answers.retain(|answer| !answer.is_empty());
    let (mut sources, _kernel) = Sources::netlink_only(&answers);
    all(&mut sources);
}

/// Reads the files of a device in sysfs, one per line.
///
/// A file that is omitted or empty does not exist.
pub fn sysfs(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let files: Vec<(&str, &str)> = golden::SYSFS
        .iter()
        .zip(text.split('\n'))
        .map(|((path, _), content)| (*path, content))
        .filter(|(_, content)| !content.is_empty())
        .collect();
    let tree = Tree::new(&files);
    all(&mut Sources::sysfs_only(&tree));
}

/// Queries all properties.
fn all(sources: &mut Sources) {
    let devices = discovery::list(sources).unwrap_or_default();
    assert!(!format!("{:?} {devices:?}", rdma_cm_from(sources)).is_empty());
    let many = |device: &Device| device.port_count().is_some_and(|count| count > MANY_PORTS);
    if devices.iter().any(many) {
        return;
    }
    for device in &devices {
        if let Ok(resources) = ResourceCounts::read(sources, device) {
            assert_eq!(resources.to_string().is_empty(), resources.iter().next().is_none());
        }
        for port in Port::all(sources, device) {
            let gids = port.gids().map(|gids| gids.count());
            assert!(!format!("{port:?} {gids:?} {:?}", port.pkeys()).is_empty());
        }
    }
}
