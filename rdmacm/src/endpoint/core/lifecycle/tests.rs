use super::*;

const ENDS: [EndReason; 8] = [
    EndReason::Local,
    EndReason::Remote,
    EndReason::Overrun,
    EndReason::Failed(WcStatus::IB_WC_RETRY_EXC_ERR),
    EndReason::PeerRequestFailed(AsyncEventType::IB_EVENT_QP_ACCESS_ERR),
    EndReason::Unreported,
    EndReason::MalformedCompletion,
    EndReason::DeviceRemoved,
];

fn ended(end: EndReason) -> Lifecycle {
    let mut lifecycle = Lifecycle::default();
    assert!(lifecycle.set_end(end));
    lifecycle
}

#[test]
fn first_reason_counts() {
    for first in ENDS {
        for second in ENDS {
            let mut lifecycle = ended(first);
            let replaces = match first {
                EndReason::Unreported => second != EndReason::Unreported,
                EndReason::Remote => second == EndReason::Local,
                _ => false,
            };
            assert_eq!(lifecycle.set_end(second), replaces, "{first:?}, then {second:?}");
            assert_eq!(lifecycle.end(), Some(if replaces { second } else { first }));
        }
    }
}

#[test]
fn only_failed_end_has_no_more_events() {
    for end in ENDS {
        let mut lifecycle = ended(end);
        let waits = [EndReason::Local, EndReason::Remote, EndReason::Overrun].contains(&end);
        assert_eq!(lifecycle.has_no_more_events(), !waits, "{end:?}");
        assert_eq!(lifecycle.has_closed(), end != EndReason::Local, "{end:?}");
        lifecycle.set_no_more_events();
        assert!(lifecycle.has_no_more_events() && lifecycle.has_closed(), "{end:?}");
    }
    let mut lifecycle = Lifecycle::default();
    assert!(!lifecycle.has_no_more_events() && !lifecycle.has_closed());
    lifecycle.set_no_more_events();
    assert!(lifecycle.has_no_more_events() && !lifecycle.has_closed());
}
