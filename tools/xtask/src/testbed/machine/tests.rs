use super::*;

/// Returns the result of a machine that reports `frames` and then sends nothing until its deadline.
fn received(frames: Vec<io::Result<Option<Frame>>>) -> Result<(Status, u64)> {
    let machine = Machine {
        architecture: Architecture::X86_64,
        vmlinuz: PathBuf::new(),
        initramfs: Vec::new(),
        memory_mb: 0,
        processors: NonZeroUsize::MIN,
        counts_instructions: false,
        host_root: false,
        programs: None,
        link_end: None,
        limit: Duration::ZERO,
    };
    let (sender, receiver) = mpsc::channel();
    for frame in frames {
        sender.send(frame).expect("the frame should be received");
    }
    machine.receive_report(Instant::now(), &receiver, || Ok(()), &mut |_| Ok(()))
}

fn ready() -> io::Result<Option<Frame>> {
    Ok(Some(Frame::Ready { kernel: "6.12.1".to_owned() }))
}

#[test]
fn report_ends_with_exit_status() {
    let end = Ok(Some(Frame::End { status: Status::Exited(3), taint: 8 }));
    let output = Ok(Some(Frame::Output(b"test result: ok. 1 passed".to_vec())));
    assert_eq!(received(vec![ready(), output, end]), Ok((Status::Exited(3), 8)));
}

#[test]
fn report_without_end_is_failure() {
    let output = || Ok(Some(Frame::Output(b"test result: ok. 1 passed".to_vec())));
    let failed = Ok(Some(Frame::Failed("no devices".to_owned())));
    let damaged = Err(io::Error::other("a frame is missing"));
    for (frames, message) in [
        (vec![ready(), output(), Ok(None)], "cannot run the guest: no report was received"),
        (vec![ready(), failed], "cannot run the guest: no devices"),
        (vec![ready(), output(), damaged], "cannot read the guest's report: a frame is missing"),
        (
            vec![ready(), output()],
            "after 0 s the guest was still running the program; raise the limit with --timeout",
        ),
        (vec![], "after 0 s the guest was still not ready"),
    ] {
        assert_eq!(received(frames), Err(Error::new(message)));
    }
}
