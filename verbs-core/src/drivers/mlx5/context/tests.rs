use std::sync::atomic::AtomicBool;

use super::*;

#[test]
fn completion_version_above_1_is_refused() {
    let choices = Choices {
        registers: 16,
        dedicated: 4,
        copies_nothing: false,
        copies_inline_only: false,
        completion_shift: 6,
    };
    let facts_of = |cqe_version| {
        let response =
            mlx5_ib_alloc_ucontext_resp { cqe_version, ..mlx5_ib_alloc_ucontext_resp::default() };
        let map = |_| Err(CreateError::Map(Errno::ENOMEM));
        let absent = |_| Ok(Some(Arc::into_inner(Registers::absent()).expect("one reference")));
        let refused = facts(choices, &response, map).map(drop);
        let facts = facts(choices, &response, absent).map(|facts| facts.expect("registers"));
        (facts.map(|facts| facts.user_indices.is_some()), refused)
    };
    let no_memory = Err(CreateError::Map(Errno::ENOMEM));
    assert_eq!(facts_of(0), (Ok(false), no_memory));
    assert_eq!(facts_of(1), (Ok(true), no_memory));
    for version in [2, u8::MAX] {
        let (facts, _) = facts_of(version);
        assert!(matches!(facts, Err(CreateError::Unsupported(_))), "{facts:?}");
    }
}

#[test]
fn missing_link_layer_means_infiniband() {
    let (file, is_removed) = (UverbsFile::silent(), AtomicBool::new(false));
    let layer = link_layer(CommandContext::new(&file, &is_removed), 1);
    assert_eq!(layer, Ok(rdma_link_layer::IB_LINK_LAYER_INFINIBAND));
}
