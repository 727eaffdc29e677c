use super::*;

fn snapshot(counts: &[(&str, u64)], handles: &[&str]) -> Snapshot {
    let counts = counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    Snapshot { counts, handles: handles.iter().map(|text| (*text).to_owned()).collect() }
}

#[test]
fn each_leftover_is_noticed() {
    const FILE: &str = "/dev/infiniband/uverbs0";
    let before = snapshot(&[("pd", 1), ("qp", 2)], &[FILE]);
    for (counts, handles) in
        [(&[("pd", 1), ("qp", 2)][..], &[FILE][..]), (&[("pd", 0), ("qp", 2), ("new", 0)], &[])]
    {
        compare(&before, &snapshot(counts, handles)).expect("no object should be left");
    }
    for counts in [&[("pd", 2), ("qp", 1)][..], &[("pd", 1), ("qp", 2), ("mr", 1)]] {
        let left =
            compare(&before, &snapshot(counts, &[FILE])).expect_err("an object should be left");
        let Problem::Missing(text) = left else { panic!("{left:?}") };
        assert!(text.contains("pd 1, qp 2, and now pd "), "{text}");
    }
    let open = snapshot(&[("pd", 1), ("qp", 2)], &[FILE, "/dev/infiniband/rdma_cm"]);
    let left = compare(&before, &open).expect_err("a file should be open");
    let Problem::Wrong(text) = left else { panic!("{left:?}") };
    assert_eq!(text, "not closed: /dev/infiniband/uverbs0, /dev/infiniband/rdma_cm");
}

#[test]
fn only_files_of_devices_are_counted() {
    for text in [
        "/dev/infiniband/uverbs0",
        "/dev/infiniband/rdma_cm (deleted)",
        "anon_inode:[infinibandevent]",
        "7f00-8f00 rw-s 00001000 00:05 12 /dev/infiniband/uverbs0",
    ] {
        assert!(is_of_devices(text), "{text}");
    }
    for text in ["/dev/null", "anon_inode:[eventpoll]", "socket:[12]", "/sys/class/infiniband"] {
        assert!(!is_of_devices(text), "{text}");
    }
}
