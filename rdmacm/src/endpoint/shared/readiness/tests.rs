use std::io::Write;
use std::os::unix::net::UnixStream;

use super::*;
use crate::cm::forged::channel_on;
use crate::verbs::Context;

/// Returns the descriptor of a channel, and the end to which a kernel writes events.
fn readiness() -> (Readiness, EventChannel, UnixStream) {
    let (ours, kernel) = UnixStream::pair().expect("the sockets should be created");
    let channel = channel_on(ours.into());
    (Readiness::new(&channel).expect("the descriptor should be created"), channel, kernel)
}

/// Checks that each source is reported alone, and that all of them are reported together.
#[test]
fn each_readable_source_is_reported() {
    let (readiness, _channel, mut kernel) = readiness();
    let now = || readiness.now().expect("the sources should be known");
    assert_eq!(now(), Ready::default());

    let (completions, mut device) = CompletionChannel::on_socket(&Context::null());
    readiness.add_completions(&completions).expect("the channel should be added");
    let mut write_completion = || device.write_all(&[0; 8]).expect("the event should be written");
    write_completion();
    let completion = Ready { completion: true, ..Ready::default() };
    assert_eq!(now(), completion);
    assert_eq!(now(), Ready::default(), "an event should be reported once");

    readiness.set_wakeup(true).expect("the wakeup should be enabled");
    assert_eq!(readiness.wait(None).expect("wait"), Ready::default());
    readiness.set_wakeup(false).expect("the wakeup should be disabled");

    let timer = Timer::new(Duration::from_millis(1), "the timer").expect("create the timer");
    readiness.add_timer(&timer).expect("the timer should be added");
    assert_eq!(readiness.wait(None).expect("wait"), Ready { timer: true, ..Ready::default() });

    // The timer stays readable, because nothing clears it.
    kernel.write_all(&[0]).expect("the event should be written");
    write_completion();
    let all = Ready { event: true, completion: true, timer: true, device_removed: false };
    assert_eq!(now(), all);
    drop(timer);
    assert_eq!(now(), Ready { event: true, ..Ready::default() });
}

#[test]
fn endpoints_share_one_eventfd() {
    let endpoints: Vec<_> = (0..8).map(|_| readiness()).collect();
    // Other tests create endpoints too, so the eventfd can change in between.
    let is_shared =
        endpoints.windows(2).any(|pair| Arc::ptr_eq(&pair[0].0.wakeup, &pair[1].0.wakeup));
    assert!(is_shared, "each endpoint has an eventfd of its own");
}
