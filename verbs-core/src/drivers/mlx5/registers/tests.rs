use super::*;

const FACTS: RegisterFacts = RegisterFacts {
    total: 0,
    dedicated: 4,
    shared: 12,
    size: 512,
    per_kernel_page: 1,
    copies_nothing: false,
};

/// Returns the page `number`.
fn page(number: u32) -> Result<Page, CreateError> {
    let mapping = Mapping::private(DEVICE_PAGE).map_err(CreateError::Map)?;
    Ok(Page { mapping: Arc::new(mapping), number })
}

fn no_page(_: PageKind) -> Result<Page, CreateError> {
    Err(CreateError::Map(Errno::ENOSPC))
}

fn chosen(registers: &Registers, page: Result<Page, CreateError>) -> (u32, Register) {
    let chosen = registers.choose(|_| page).expect("a register").expect("a page");
    (chosen.page, registers.take(Some(chosen), 1 << 31).expect("a register"))
}

#[test]
fn dynamic_registers_are_dedicated_before_shared() {
    let registers = Registers::dynamic(FACTS, |_| page(9)).expect("registers");
    assert_eq!(registers.arming_page(), Some(9));
    let mut used: Vec<_> = (0..4).map(|number| chosen(&registers, page(number))).collect();
    assert_eq!(used.iter().map(|(page, _)| *page).collect::<Vec<_>>(), [0, 0, 2, 2]);
    assert!(used.iter().all(|(_, register)| !register.is_shared()));
    used.extend((4..16).map(|number| chosen(&registers, page(number))));
    // Each page has two registers: as in rdma-core, a page is allocated for each queue pair while there are fewer than 12 shared registers.
    let pages: Vec<_> = used[4..].iter().map(|(page, _)| *page).collect();
    assert_eq!(pages, [4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9]);
    assert!(used[4..].iter().all(|(_, register)| register.is_shared()));
    // The register of a queue pair that was destroyed is free for the next one.
    used.swap_remove(2);
    assert_eq!(chosen(&registers, no_page(PageKind::default())).0, 2);
}

#[test]
fn queue_pair_without_page_is_refused() {
    let refused = |registers: &Registers| {
        matches!(registers.choose(no_page), Err(CreateError::Map(Errno::ENOSPC)))
    };
    let registers = Registers::dynamic(FACTS, |_| page(9)).expect("registers");
    assert!(refused(&registers));
    // A register that one queue pair has for itself is not given to another one.
    let _used = [(); 2].map(|()| chosen(&registers, page(1)));
    assert!(refused(&registers));
}

#[test]
fn each_register_of_large_page_has_number_of_its_page() {
    let facts = RegisterFacts { per_kernel_page: 2, ..FACTS };
    let mapping = Arc::new(Mapping::private(2 * DEVICE_PAGE).expect("memory"));
    let page = Page { mapping, number: 7 };
    let slots = facts.slots(&page, Use::Dedicated).expect("they fit");
    assert_eq!(slots.iter().map(|slot| slot.page).collect::<Vec<_>>(), [7, 7, 8, 8]);
    let facts = RegisterFacts { per_kernel_page: 3, ..FACTS };
    assert!(facts.slots(&page, Use::Dedicated).is_err(), "the page is too short");
}

#[test]
fn queue_pairs_without_copies_have_page_that_arms() {
    for facts in
        [RegisterFacts { copies_nothing: true, ..FACTS }, RegisterFacts { size: 0, ..FACTS }]
    {
        let registers = Registers::dynamic(facts, |_| page(9)).expect("registers");
        let (page, register) = chosen(&registers, no_page(PageKind::default()));
        assert_eq!((page, register.is_shared()), (9, false));
    }
}

#[test]
fn short_page_and_unknown_register_are_refused() {
    let short = |_| {
        let mapping = Mapping::private(64).map_err(CreateError::Map)?;
        Ok(Page { mapping: Arc::new(mapping), number: 1 })
    };
    let refused = |registers| matches!(registers, Err(CreateError::Map(Errno::EPROTO)));
    assert!(refused(Registers::dynamic(FACTS, short).map(drop)));
    let unnamed = Registers::dynamic(FACTS, |_| page(1 << 16));
    assert!(matches!(unnamed, Err(CreateError::Unsupported(_))));
    let facts = RegisterFacts { total: 16, ..FACTS };
    let map = |_, length| Mapping::private(length);
    let registers = Registers::map_static(facts, map).expect("registers");
    assert_eq!(registers.arming_page(), None);
    let is_shared = |index| registers.take(None, index).map(|register| register.is_shared());
    // Numbers count four registers a page, of which two exist.
    assert_eq!([0, 1, 24, 29].map(is_shared), [Ok(false), Ok(true), Ok(false), Ok(false)]);
    assert_eq!([2, 32, u32::MAX].map(is_shared), [Err(Errno::EPROTO); 3]);
}
