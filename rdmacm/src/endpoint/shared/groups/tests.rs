use super::*;
use std::net::SocketAddr;

fn address(number: u8) -> Address {
    SocketAddr::from(([239, 0, 0, number], 0)).into()
}

fn error(kind: ErrorKind) -> Error {
    Error::new("wait for", "an event", kind)
}

/// Returns the groups of a socket that is joining one group.
fn joining() -> Groups {
    let mut groups = Groups::default();
    groups.begin(address(1)).expect("the socket should not be in the group");
    groups
}

/// Takes note that the network has taken the socket out of the group.
fn lose(groups: &mut Groups, kind: ErrorKind) {
    groups.handle_event(address(1), Err(error(kind)));
}

#[test]
fn lost_group_is_reported_once() {
    let mut groups = joining();
    // If the joining fails, only its caller gets the error.
    lose(&mut groups, ErrorKind::TimedOut);
    assert!(groups.loss().is_none());
    let error = groups
        .answer(address(1))
        .expect("the answer should be known")
        .expect_err("the joining should have failed");
    assert_eq!(*error.kind(), ErrorKind::TimedOut);
    assert!(groups.answer(address(1)).is_none(), "the answer should be taken once");
    groups.check(address(1)).expect("the group should not be lost");
    assert!(!groups.has_loss());
    let lost = ErrorKind::Os(libc::ENETRESET);
    lose(&mut groups, lost.clone());
    assert!(groups.has_loss());
    let loss = groups.loss().expect("the group should be lost");
    assert_eq!(*loss.kind(), lost);
    assert!(loss.to_string().contains("stay in the multicast group 239.0.0.1:0"), "{loss}");
    assert!(groups.loss().is_none(), "the loss should be reported once");
    assert_eq!(
        *groups.check(address(1)).expect_err("the socket should not be in the group").kind(),
        lost
    );
    let later = ErrorKind::Os(libc::EIO);
    lose(&mut groups, later.clone());
    assert!(!groups.has_loss() && groups.loss().is_none(), "the loss was reported");
    assert_eq!(
        *groups.check(address(1)).expect_err("the socket should not be in the group").kind(),
        later
    );
    groups.forget(address(1));
    groups.check(address(1)).expect("the group should have been left");
    // No event of a group that was left is reported.
    lose(&mut groups, ErrorKind::TimedOut);
    assert!(groups.loss().is_none());
}

#[test]
fn repeated_group_loss_is_reported_once() {
    let mut groups = joining();
    groups.handle_event(address(1), Err(error(ErrorKind::TimedOut)));
    groups
        .answer(address(1))
        .expect("the answer should be known")
        .expect_err("the joining should have failed");
    for _ in 0..1000 {
        lose(&mut groups, ErrorKind::Os(libc::EIO));
    }
    lose(&mut groups, ErrorKind::Os(libc::ENETRESET));
    let loss = groups.loss().expect("the group is lost");
    assert_eq!(
        *loss.kind(),
        ErrorKind::Os(libc::ENETRESET),
        "the latest reason should be reported"
    );
    assert!(groups.loss().is_none() && !groups.has_loss());
}

#[test]
fn group_is_joined_once() {
    let mut groups = joining();
    let again = groups.begin(address(1)).expect_err("the socket should be joining");
    assert_eq!(again.errno(), libc::EADDRINUSE);
    groups.begin(address(2)).expect("another group should be joined");
    groups.forget(address(1));
    groups.begin(address(1)).expect("a group that was left should be joined again");
}

#[test]
fn answer_is_known_by_number() {
    let mut groups = Groups::default();
    let first = groups.begin(address(1)).expect("the socket should not be in the group");
    let second = groups.begin(address(2)).expect("the socket should not be in the group");
    lose(&mut groups, ErrorKind::TimedOut);
    assert!(groups.is_answered(first) && !groups.is_answered(second));
    assert!(groups.answer(address(1)).is_some());
    assert!(!groups.is_answered(first), "the answer was taken");
}

#[test]
fn left_group_is_joined_again_after_command() {
    let mut groups = joining();
    lose(&mut groups, ErrorKind::TimedOut);
    groups
        .answer(address(1))
        .expect("the answer should be known")
        .expect_err("the joining should have failed");
    groups.leave(address(1));
    lose(&mut groups, ErrorKind::TimedOut);
    assert!(!groups.has_loss(), "the socket should be leaving the group");
    groups.begin(address(1)).expect_err("a group that is being left should not be joined");
    groups.forget(address(1));
    groups.begin(address(1)).expect("a group that was left should be joined again");
}
