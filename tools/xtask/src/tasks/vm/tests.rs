use super::*;

fn ended(status: Status, complaints: &[&str]) -> Outcome {
    let complaints = complaints.iter().map(|text| (*text).to_owned()).collect();
    Outcome { status, complaints, known_warning: None }
}

#[test]
fn error_of_failed_run_has_reason_and_last_lines() {
    let mut relay = Relay::default();
    for line in 1..=1000 {
        let frame = Frame::Error(format!("line {line}\n").into_bytes());
        relay.handle_frame(frame).expect("standard error should be writable");
    }
    assert_eq!(relay.check(&ended(Status::Exited(0), &[]), "measure"), Ok(()));
    let failures = [
        (ended(Status::Exited(3), &[]), "exit status 3"),
        (ended(Status::Signaled(9), &[]), "killed by signal 9"),
        (ended(Status::Exited(0), &["BUG: one"]), "BUG: one"),
    ];
    for (outcome, reason) in failures {
        let error =
            relay.check(&outcome, "measure").expect_err("the run should have failed").to_string();
        assert!(error.starts_with("cannot measure: ") && error.contains(reason), "{error}");
        assert!(error.contains("line 981\n") && error.ends_with("line 1000"), "{error}");
        assert!(!error.contains("line 980\n"), "{error}");
    }
}

#[test]
fn boot_message_has_addresses_of_devices() {
    let message = boot_message("6.1.0-57-amd64", &[Device::Rxe, Device::Mlx5]);
    let expected = "booting Linux 6.1.0-57-amd64 with rxe0 at 10.0.0.1 and mlx5_0 at 10.0.0.3";
    assert_eq!(message, expected);
}

#[test]
fn exit_status_is_that_of_command_or_complaint() {
    let statuses = [
        (Status::Exited(0), 0, None),
        (Status::Exited(7), 7, None),
        (Status::Signaled(9), 137, Some("killed by signal 9")),
        (Status::NotStarted("no such file".into()), 127, Some("cannot start: no such file")),
    ];
    for (status, code, message) in statuses {
        let outcome = ended(status.clone(), &[]);
        assert_eq!(exit_status(&outcome), (code, message.map(str::to_owned)));
        let outcome = ended(status, &["WARNING: one", "BUG: two"]);
        let (code, message) = exit_status(&outcome);
        assert_eq!(code, 126, "{outcome:?}");
        let message = message.expect("there should be a message");
        assert!(message.contains("WARNING: one") && message.contains("BUG: two"), "{message}");
    }
}
