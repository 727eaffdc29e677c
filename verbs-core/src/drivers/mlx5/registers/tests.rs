use super::super::memory::QueueMemory;
use super::super::register::stored;
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

/// Returns dynamic registers with a first page that has a small number.
fn dynamic(facts: RegisterFacts, first: Result<Page, CreateError>) -> Registers {
    Registers::dynamic(facts, |_| first).expect("registers").expect("a small number")
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
    let registers = dynamic(FACTS, page(9));
    assert_eq!(registers.arming_page(), Some(9));
    let mut used: Vec<_> = (0..4).map(|number| chosen(&registers, page(number))).collect();
    assert_eq!(used.iter().map(|(page, _)| *page).collect::<Vec<_>>(), [0, 0, 2, 2]);
    assert!(used.iter().all(|(_, register)| !register.is_shared()));
    used.extend((4..16).map(|number| chosen(&registers, page(number))));
    // Each page has two registers: as in rdma-core, a page is allocated for each queue pair while there are fewer than
    // 12 shared registers.
    let pages: Vec<_> = used[4..].iter().map(|(page, _)| *page).collect();
    assert_eq!(pages, [4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9]);
    assert!(used[4..].iter().all(|(_, register)| register.is_shared()));
    // All pages that the user requested are allocated: the next queue pair shares a register.
    let (page, next) = chosen(&registers, no_page(PageKind::default()));
    assert!(next.is_shared() && (4..10).contains(&page));
    // The register of a queue pair that was destroyed is free for the next one.
    used.swap_remove(2);
    assert_eq!(chosen(&registers, no_page(PageKind::default())).0, 2);
}

#[test]
fn queue_pair_without_page_is_refused() {
    let refused = |registers: &Registers| {
        matches!(registers.choose(no_page), Err(CreateError::Map(Errno::ENOSPC)))
    };
    let registers = dynamic(FACTS, page(9));
    assert!(refused(&registers));
    // A dedicated register of one queue pair is not given to another one.
    let _used = [(); 2].map(|()| chosen(&registers, page(1)));
    assert!(refused(&registers));
}

#[test]
fn registers_of_large_page_name_device_pages() {
    let facts = RegisterFacts { per_kernel_page: 2, ..FACTS };
    let mapping = Arc::new(Mapping::private(2 * DEVICE_PAGE).expect("memory"));
    let page = Page { mapping, number: 7 };
    let slots = facts.slots(&page, Use::Dedicated).expect("the registers should fit");
    assert_eq!(slots.iter().map(|slot| slot.page).collect::<Vec<_>>(), [7, 7, 8, 8]);
    let facts = RegisterFacts { per_kernel_page: 3, ..FACTS };
    assert!(facts.slots(&page, Use::Dedicated).is_err(), "the page should be too short");
}

#[test]
fn queue_pairs_without_copies_use_arming_page() {
    for facts in
        [RegisterFacts { copies_nothing: true, ..FACTS }, RegisterFacts { size: 0, ..FACTS }]
    {
        let registers = dynamic(facts, page(9));
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
    assert!(matches!(Registers::dynamic(FACTS, |_| page(1 << 16)), Ok(None)));
    for errno in [Errno::EPERM, Errno::ENOSYS] {
        let refused = CreateError::Command(CommandError::Os(errno));
        assert!(matches!(Registers::dynamic(FACTS, |_| Err(refused)), Ok(None)));
    }
    let facts = RegisterFacts { total: 16, ..FACTS };
    let map = |_, length| Mapping::private(length);
    let registers = Registers::map_static(facts, map).expect("registers");
    assert_eq!(registers.arming_page(), None);
    let is_shared = |index| registers.take(None, index).map(|register| register.is_shared());
    // Numbers count four registers in each page, but only the first two exist.
    assert_eq!([0, 1, 24, 29].map(is_shared), [Ok(false), Ok(true), Ok(false), Ok(false)]);
    assert_eq!([2, 32, u32::MAX].map(is_shared), [Err(Errno::EPROTO); 3]);
}

#[test]
fn registers_must_fit_into_kernel_page() {
    let pages =
        u32::try_from(kernel_page().expect("a page") / DEVICE_PAGE).expect("the number should fit");
    assert_eq!(registers_per_page(), 2 * pages);
    let check = |size, per_kernel_page| RegisterFacts { size, per_kernel_page, ..FACTS }.check();
    for size in [0, 16, 32, 1024] {
        assert_eq!([check(size, 1), check(size, pages)], [Ok(()); 2], "{size}");
    }
    for (size, count) in [
        (8, 1),
        (24, 1),
        (2048, 1),
        (u32::MAX, 1),
        (512, 0),
        (512, pages + 1),
        (0, 0),
        (0, u32::MAX),
    ] {
        assert_eq!(check(size, count), Err(Errno::EPROTO), "{size} bytes, {count} pages");
    }
}

/// Returns the offsets in a page at which a register stores its first two doorbells.
fn doorbell_offsets(register: &mut Register) -> Vec<usize> {
    let [mut ring] = QueueMemory::new([64]).expect("memory").rings;
    ring.put(0, [1, 1]);
    let page = Arc::clone(register.page());
    register.ring(&ring, 0, 1, true);
    register.ring(&ring, 0, 1, true);
    (0..page.len()).step_by(8).filter(|offset| stored(&page, *offset) != 0).collect()
}

#[test]
fn static_registers_are_in_their_pages() {
    let mapped = Mutex::new(Vec::new());
    let map = |offset, length| {
        mapped
            .lock()
            .expect("no panic")
            .push((offset / kernel_page().expect("a page") as u64, length));
        Mapping::private(length)
    };
    let pages =
        u32::try_from(kernel_page().expect("a page") / DEVICE_PAGE).expect("the number should fit");
    let per_page = 2 * pages;
    let facts =
        RegisterFacts { total: 2 * per_page, dedicated: 1, per_kernel_page: pages, ..FACTS };
    let registers = Registers::map_static(facts, map).expect("registers");
    let length = kernel_page().expect("a page");
    assert_eq!(*mapped.lock().expect("no panic"), [(0, length), (1, length)]);
    let take = |index| registers.take(None, index).expect("a register");
    // The first register is only for doorbells. Each other register has two buffers of 256 bytes.
    let mut first = take(0);
    let mut shared = take(1);
    let mut next_page = take(4 * pages);
    assert_eq!(doorbell_offsets(&mut shared), [0xa00, 0xb00]);
    assert_eq!(doorbell_offsets(&mut next_page), [0x800, 0x900]);
    assert_eq!(
        doorbell_offsets(&mut first),
        [0x800, 0xa00, 0xb00],
        "the first register should use the second page"
    );
    for total in [0, MAX_REGISTERS + 1] {
        let refused = Registers::map_static(RegisterFacts { total, ..facts }, |_, _| {
            Mapping::private(length)
        });
        assert_eq!(refused.map(drop), Err(Errno::EPROTO), "{total}");
    }
    let most = RegisterFacts { total: MAX_REGISTERS, ..facts };
    Registers::map_static(most, |_, length| Mapping::private(length)).expect("registers");
}

#[test]
fn pages_without_write_combining_are_tried_first() {
    for has_them in [true, false] {
        let mapped = Mutex::new(Vec::new());
        let page = kernel_page().expect("a page");
        let map = |offset: u64, length| {
            let number = offset / u64::try_from(page).expect("64 bits");
            mapped.lock().expect("no panic").push(number);
            if number < 256 || has_them { Mapping::private(length) } else { Err(Errno::EINVAL) }
        };
        let facts = RegisterFacts { total: 4, copies_nothing: true, ..FACTS };
        let registers = Registers::map_static(facts, map).expect("registers");
        let expected = if has_them { vec![0x300, 0x301] } else { vec![0x300, 0, 0x301, 1] };
        assert_eq!(*mapped.lock().expect("no panic"), expected);
        let mut register = registers.take(None, 1).expect("a register");
        let [mut ring] = QueueMemory::new([64]).expect("memory").rings;
        (0..4).for_each(|unit| ring.put(unit * 16, [1, 1]));
        register.ring(&ring, 0, 4, true);
        let words = (0..page).step_by(8).filter(|offset| stored(register.page(), *offset) != 0);
        assert_eq!(words.collect::<Vec<_>>(), [0xa00], "the entry should not be copied");
    }
}

#[test]
fn registers_of_page_do_not_overlap() {
    let page = page(7).expect("a page");
    for (number, expected) in [(0, [0x800, 0x900]), (1, [0xa00, 0xb00])] {
        let slots = FACTS.slots(&page, Use::Dedicated).expect("the registers should fit");
        let slot = Arc::clone(&slots[number].slot);
        let found = doorbell_offsets(&mut Register::new(slot, true));
        assert!(expected.iter().all(|place| found.contains(place)), "{found:?}");
    }
}

#[test]
fn arming_is_stored_in_first_page() {
    let page = page(9).expect("a page");
    let mapping = Arc::clone(&page.mapping);
    let registers = dynamic(FACTS, Ok(page));
    registers.arm(0x0102);
    assert_eq!(stored(&mapping, 0x20), 0x0102);
    Registers::absent().arm(1);
}

#[test]
fn allocated_page_has_room_for_registers() {
    let file = UverbsFile::silent();
    let refused = |length| map_page(&file, 0, length).expect_err("the file should have no pages");
    assert_eq!([refused(0), refused(4095)], [Errno::EPROTO; 2]);
    assert!([refused(4096), refused(4097)].into_iter().all(|errno| errno != Errno::EPROTO));
}
