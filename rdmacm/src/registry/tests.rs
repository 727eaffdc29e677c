use super::*;

#[test]
fn token_finds_object_until_removal() {
    let registry = Registry::default();
    let token = registry.reserve();
    assert!(registry.get(token.get()).is_none(), "nothing is there yet");
    assert!(token.get() > u64::from(u32::MAX), "a token should be larger than any port");
    let object = Arc::new(5);
    registry.set(token, &object);
    assert_eq!(registry.get(token.get()).as_deref(), Some(&5));
    registry.remove(token);
    assert!(registry.get(token.get()).is_none());
}

#[test]
fn table_has_little_spare_capacity() {
    let registry = Registry::<()>::default();
    for count in 1..=1000 {
        registry.reserve();
        let capacity = ignore_poison(registry.slots.read()).slots.capacity();
        assert!(capacity <= count + count / 8 + 16, "{capacity} slots for {count} objects");
    }
}

#[test]
fn old_token_does_not_find_next_object_in_slot() {
    let registry = Registry::default();
    let old = registry.reserve();
    registry.remove(old);
    let new = registry.reserve();
    let object = Arc::new(6);
    registry.set(new, &object);
    assert_ne!(old, new);
    assert!(registry.get(old.get()).is_none());
    assert_eq!(new.to_string(), "1.1");
}

#[test]
fn unknown_number_finds_no_object() {
    let registry = Registry::<u8>::default();
    for number in [0, 1, u64::MAX, 0xffff_ffff, 1 << 32] {
        assert!(registry.get(number).is_none(), "{number:#x}");
    }
}
