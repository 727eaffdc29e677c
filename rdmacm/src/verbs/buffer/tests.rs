use super::*;

#[test]
fn layout_keeps_buffers_apart() {
    let of = |groups, small| layout(groups, small).map(|layout| layout.total);
    assert_eq!(of([(3, 64), (0, 0)], 0), Some(192));
    assert_eq!(of([(3, 65), (0, 0)], 1), Some(448));
    assert_eq!(of([(2, 100), (3, 10)], 0), Some(448));
    assert_eq!(of([(2, 10), (3, 100)], 2), Some(128 + 4 * 128 + 64));
    for groups in [[(2, 100), (3, 10)], [(2, 10), (3, 100)], [(4, 64), (0, 0)], [(1, 1), (1, 1)]] {
        for small in 0..3 {
            let Layout { first, strides, second, total } =
                layout(groups, small).expect("few bytes");
            let start = |index: usize| match index.checked_sub(first) {
                None => index * strides[0],
                Some(behind) => second + behind * strides[1],
            };
            let lengths = groups.iter().flat_map(|(count, length)| vec![*length; *count]);
            let lengths = lengths.chain((0..small).map(|_| 1));
            let ends = lengths.enumerate().map(|(index, length)| (index, start(index) + length));
            for (index, end) in ends {
                let next = start(index + 1);
                assert!(end <= next.min(total), "{groups:?}, {small}: {index} ends at {end}");
                assert!(next % ALIGNMENT == 0);
            }
        }
    }
}

#[test]
fn layout_fits_pointers() {
    let half = 1 << (usize::BITS - 2);
    let of = |groups| layout(groups, 0).map(|layout| layout.total);
    assert_eq!(of([(1, half), (0, 0)]), Some(half));
    for (count, length) in [(2, half), (1, usize::MAX), (usize::MAX, 1)] {
        assert_eq!(of([(count, length), (0, 0)]), None, "{count} of {length} bytes");
        assert_eq!(of([(1, 1), (count, length)]), None, "{count} of {length} bytes");
    }
    assert_eq!(of([(1, half), (1, half)]), None);
}
