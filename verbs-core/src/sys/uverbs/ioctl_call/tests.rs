use super::*;

/// Returns the attributes in use (identifier, length, data), and asserts the length of the call.
fn attributes(call: &Call) -> Vec<(u16, u16, u64)> {
    let count = usize::from(call.header.num_attrs);
    assert_eq!(usize::from(call.header.length), 24 + 16 * count);
    let used = &call.attributes[..count];
    assert!(used.iter().all(|attribute| attribute.flags == UVERBS_ATTR_F_MANDATORY));
    used.iter().map(|attribute| (attribute.attr_id, attribute.len, attribute.data.get())).collect()
}

#[test]
fn attributes_are_added_in_order() {
    let mut call = Call::new(3, rdma_driver_id::RDMA_DRIVER_MLX5);
    assert_eq!((attributes(&call), call.header.method_id), (vec![], 3));
    let long = [7; 9];
    call.input(10, &[]);
    call.input(11, &[1, 2]);
    assert_eq!((call.handle(12, 20), call.handle(13, 21)), (1, 2));
    call.output(14, 22, 0);
    call.output(15, 23, 1);
    call.input(16, &long);
    let value = u64::from_ne_bytes([1, 2, 0, 0, 0, 0, 0, 0]);
    let expected =
        [(11, 2, value), (12, 0, 20), (13, 0, 21), (15, 1, 23), (16, 9, long.as_ptr() as u64)];
    assert_eq!(attributes(&call), expected);
}

#[test]
fn eight_bytes_are_passed_by_value() {
    let mut call = Call::new(0, rdma_driver_id::RDMA_DRIVER_RXE);
    call.input(1, &[5; 8]);
    assert_eq!(attributes(&call), [(1, 8, u64::from_ne_bytes([5; 8]))]);
}
