use super::*;

#[test]
fn request_ends_at_end_of_memory() {
    let mut kernel = Real::new().unwrap();
    // A pipe copies from the request, as the nodes do.
    let pipe = nix::unistd::pipe2(nix::fcntl::OFlag::O_NONBLOCK).unwrap();
    kernel.files.push(Some(pipe.1));
    let file = File(0);
    let call = Call::write(vec![7; 16]);
    let answer = kernel.call(file, &call);
    assert_eq!((answer.returned, answer.count), (Ok(16), 16));
    let answer = kernel.call(file, &call.clone().cut_off(0));
    assert_eq!(answer.returned, Err(libc::EFAULT));
    for caller in [Caller::Thread, Caller::OtherCredentials, Caller::Child] {
        assert_eq!(kernel.call(file, &call.clone().by(caller)).returned, Ok(16), "{caller:?}");
    }
    kernel.end();
}

#[test]
fn missing_node_cannot_be_opened() {
    let mut kernel = Real::new().unwrap();
    assert_eq!(kernel.open("/dev/infiniband/none"), Err(libc::ENOENT));
    let null = kernel.open("/dev/null").unwrap();
    assert!(kernel.descriptor(null) > 2);
}

#[test]
fn stored_bytes_end_at_last_change() {
    let kernel = Real::new().unwrap();
    kernel.arena.forget_response();
    assert!(kernel.arena.response().is_empty());
    // SAFETY: the page is writable and no reference to it exists.
    unsafe { kernel.arena.at(RESPONSE + 3).write(0) };
    assert_eq!(kernel.arena.response(), [UNTOUCHED, UNTOUCHED, UNTOUCHED, 0]);
}
