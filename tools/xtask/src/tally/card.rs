//! Tests that run on the emulated card.

/// The programs whose tests run on the card.
const PROGRAMS: [&str; 2] = ["kernel", "peers"];

/// Prefixes of the names of tests that do not run on the card, with the reasons.
const LEFT_OUT: [(&str, &str); 27] = [
    ("late_removal::", ENDS_CONTEXTS),
    (
        "completion::solicited_arming_ignores_other_completions",
        "the device counts failures as solicited",
    ),
    ("drain::rxe_unacknowledged_request_repeats_forever", "only rxe repeats without limit"),
    ("bytes::", "commands of the connection manager are the same for each device"),
    ("key_value::torn_entry_is_read_again", "only rxe counts packets"),
    ("conform::each_check_can_fail", "some answers depend on the capabilities of the device"),
    ("corrupt_ring::", "the rings are those of rxe and siw"),
    (
        "endpoint_datagrams::failed_send_leaves_socket_usable",
        "only rxe looks for a route for each datagram",
    ),
    (
        "environment::rings_of_unknown_version_are_not_used",
        "the plain command opens no context of the driver",
    ),
    ("endpoint_keep_alive::rxe_probes_use_no_message_buffers", "only rxe counts packets"),
    (
        "endpoint_messages::rxe_completion_events_are_read_in_batches",
        "an event is read before its queue is armed again",
    ),
    ("endpoint_command_failure::rxe_message_is_sent", POSTS_BY_STORES),
    ("endpoint_command_failure::failed_socket_recovers", POSTS_BY_STORES),
    ("refused_doorbell::message_sent_by_later_doorbell_is_counted", POSTS_BY_STORES),
    ("refused_doorbell::send_stays_queued_after_refusal_on_rxe", POSTS_BY_STORES),
    ("endpoint_poll_group_end::rxe_removal_waits_for_group_without_members", ENDS_CONTEXTS),
    ("removal::connection_descriptors_delay_removal", ENDS_CONTEXTS),
    ("removal::impossible_links_are_refused", "a network device can have several emulated cards"),
    ("shared::xrc_client_fails_on_rxe", HAS_XRC),
    ("unsupported::ids_have_no_xrc_on_rxe", HAS_XRC),
    (
        "unsupported::overflowed_queue_continues_on_rxe",
        "the device stops a completion queue that overflows",
    ),
    ("window_keeps::moved_window_releases_regions", FREES_BOUND_REGIONS),
    ("window_keeps::region_is_released_with_last_bound_window", FREES_BOUND_REGIONS),
    ("window_keeps::region_lives_as_long_as_windows", FREES_BOUND_REGIONS),
    ("srq::failed_ring_mapping_leaves_no_queue", RESIZES_NO_SRQ),
    ("srq::impossible_resize_is_refused_on_rxe", RESIZES_NO_SRQ),
    ("srq::posted_receives_survive_resize", RESIZES_NO_SRQ),
];

const ENDS_CONTEXTS: &str =
    "the driver ends the contexts of a device that is removed, and rxe waits for them";
const FREES_BOUND_REGIONS: &str = "the driver deregisters memory that windows are bound to, and the windows grant nothing from then on";
const POSTS_BY_STORES: &str = "a post needs no command that could fail";
const HAS_XRC: &str = "the device supports XRC";
const RESIZES_NO_SRQ: &str = "the driver resizes no shared receive queue";

/// Prefixes of the names of tests that run on the card in every run.
///
/// `--device mlx5` and `--all` run all others too.
const IN_EVERY_RUN: [&str; 33] = [
    "address::",
    "attributes::",
    "buffers::",
    "channel::",
    "conform::",
    "datagram::",
    "drain::",
    "endpoint_close::",
    "endpoint_connect::",
    "endpoint_nonblocking::",
    "endpoint_poll_group::",
    "endpoint_post_bytes::",
    "endpoint_remote_operation::",
    "endpoint_tokio::",
    "endpoint_tokio_cancel::",
    "endpoint_tokio_peer::",
    "endpoint_traits::",
    "fault::",
    "messages::",
    "operation::",
    "operation_matrix::",
    "perftest::",
    "pingpong::",
    "pings::",
    "removal::",
    "reregistration::",
    "resize::",
    "selftest::",
    "shared::",
    "srq::",
    "state::",
    "unreliable::",
    "window::",
];

/// Returns `true` if `test` runs on the card in every run of all tests.
pub(crate) fn is_in_every_run(test: &str) -> bool {
    is_alone_for(test) || IN_EVERY_RUN.iter().any(|prefix| test.starts_with(prefix))
}

/// Prefixes of the names of tests that run only on the card.
const ONLY: [&str; 7] = [
    "card::",
    "card_answer::",
    "card_fault::",
    "card_limits::",
    "journal::",
    "xrc_connection::",
    "xrc_messages::",
];

/// Returns `true` if `test` of `program` runs on the card.
pub(crate) fn has(program: &str, test: &str) -> bool {
    is_alone_for(test)
        || (PROGRAMS.contains(&program)
            && !LEFT_OUT.iter().any(|(prefix, _)| test.starts_with(prefix)))
}

/// Returns `true` if `test` runs only on the card.
pub(crate) fn is_alone_for(test: &str) -> bool {
    ONLY.iter().any(|prefix| test.starts_with(prefix))
}
