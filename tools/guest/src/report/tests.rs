use super::*;

fn frames() -> Vec<Frame> {
    vec![
        Frame::Ready { kernel: "6.1.0".into() },
        Frame::Output(vec![0xff; 70_000]),
        Frame::Error(Vec::new()),
        Frame::End { status: Status::Signaled(9), taint: 4096 },
    ]
}

fn written(frames: &[Frame]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    for frame in frames {
        writer.send(frame).unwrap();
    }
    writer.channel
}

/// A channel that returns one byte per read.
struct Trickle<'a>(&'a [u8]);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = buffer.len().min(1);
        self.0.read(&mut buffer[..count])
    }
}

#[test]
fn frames_survive_round_trip() {
    let bytes = written(&frames());
    let mut reader = Reader::new(Trickle(&bytes));
    for frame in frames() {
        assert_eq!(reader.receive().unwrap(), Some(frame));
    }
    assert_eq!(reader.receive().unwrap(), None);
}

#[test]
fn every_status_survives_round_trip() {
    for status in [Status::Exited(255), Status::Signaled(6), Status::NotStarted("no".into())] {
        let end = Frame::End { status, taint: u64::MAX };
        let bytes = written(std::slice::from_ref(&end));
        assert_eq!(Reader::new(&*bytes).receive().unwrap(), Some(end));
    }
}

#[test]
fn report_with_lost_frame_is_rejected() {
    let bytes = written(&frames());
    let first = written(&frames()[..1]).len();
    let mut reader = Reader::new(&bytes[first..]);
    reader.receive().unwrap();
    reader.receive().unwrap();
    assert_eq!(reader.receive().unwrap_err().kind(), ErrorKind::InvalidData);
}

#[test]
fn truncated_report_is_rejected() {
    let bytes = written(&frames()[..1]);
    for cut in 1..bytes.len() {
        let error = Reader::new(&bytes[..cut]).receive().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "cut at {cut}");
    }
}

#[test]
fn bytes_without_magic_are_rejected() {
    let error = Reader::new(&b"test result: ok. 5 passed"[..]).receive().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
}
