use super::*;
use crate::verbs::null_device::context;

#[test]
fn errors_of_creation_name_cause() {
    let context = context();
    let cases = [
        (CreateError::Size(SizeError::Zero { what: "receives" }), "the number of receives is 0"),
        (
            CreateError::Size(SizeError::Exceeds { what: "sends", given: 9, most: 8 }),
            "9 sends exceed the maximum of 8",
        ),
        (CreateError::Map(Errno::EPROTO), "memory that cannot be mapped"),
        (CreateError::Map(Errno::ENOMEM), hint::MAPPINGS),
        (CreateError::Map(Errno::ENOMEM), "map the rings or registers of a queue pair"),
    ];
    for (error, text) in cases {
        let error = context.not_created(QUEUE_PAIR, error).to_string();
        assert!(error.contains(text), "{error}");
    }
    let error = context.not_created("a completion queue", CreateError::Map(Errno::ENOMEM));
    assert!(error.to_string().starts_with("cannot map the ring of a completion queue"), "{error}");
}

/// Checks that the hints about sizes and types are for refused commands only.
#[test]
fn only_refused_queue_has_hints() {
    let context = context();
    let hint_of = |error| {
        let error = context.queue_not_created("a queue", error);
        error.hint().map(str::to_owned)
    };
    let refused = |errno| CreateError::Command(CommandError::Os(errno));
    assert_eq!(hint_of(refused(Errno::EINVAL)).as_deref(), Some(hint::CAPACITIES));
    assert_eq!(hint_of(refused(Errno::EOPNOTSUPP)).as_deref(), Some(hint::QUEUE_TYPE));
    assert_eq!(hint_of(CreateError::Map(Errno::EINVAL)), None);
}
