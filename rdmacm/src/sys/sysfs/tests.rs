use super::fake::Tree;

#[test]
fn present_attributes_are_read() {
    let tree = Tree::new(&[
        ("class/infiniband/rxe0/node_type", "1: CA"),
        ("class/infiniband/rxe0/node_desc", "rxe"),
        ("class/infiniband/b0/node_type", "4: RNIC"),
        ("class/misc/rdma_cm/dev", "10:260"),
        ("class/misc/rdma_cm/abi_version", "4"),
        ("class/infiniband/rxe0/ports/1/pkeys/0", "0xffff"),
    ]);
    let class = tree.directory().child("class");
    assert_eq!(class.child("infiniband").names().unwrap(), ["b0", "rxe0"]);
    assert_eq!(class.child("infiniband/rxe0").text("node_desc").as_deref(), Some("rxe"));
    assert_eq!(class.child("infiniband/b0").named_number::<u32>("node_type"), Some(4));
    assert_eq!(class.child("misc/rdma_cm").value::<u32>("abi_version"), Some(4));
    let pkeys = class.child("infiniband/rxe0/ports/1/pkeys");
    assert_eq!(pkeys.hexadecimal("0"), Some(0xffff));
    let number = class.child("misc/rdma_cm").device_number("dev");
    assert_eq!(number, Some(libc::makedev(10, 260)));
}

#[test]
fn missing_or_malformed_attribute_is_none() {
    let tree = Tree::new(&[
        ("empty", ""),
        ("word", "many"),
        ("negative", "-1"),
        ("half", "10:"),
        ("three", "1:2:3"),
    ]);
    let root = tree.directory();
    assert_eq!(root.names().unwrap().len(), 5);
    assert!(root.child("class").names().is_none());
    assert!(!root.child("class").exists());
    assert!(root.text("none").is_none());
    assert!(root.child("empty").text("x").is_none(), "a file is no directory");
    assert_eq!(root.text("empty").as_deref(), Some(""));
    for file in ["none", "empty", "word", "negative"] {
        assert!(root.value::<u32>(file).is_none(), "{file}");
        assert!(root.named_number::<u32>(file).is_none(), "{file}");
        assert!(root.hexadecimal(file).is_none(), "{file}");
    }
    for file in ["none", "empty", "word", "half", "three"] {
        assert!(root.device_number(file).is_none(), "{file}");
    }
}

#[test]
fn directory_is_no_text() {
    let tree = Tree::new(&[("a/b", "")]);
    assert!(tree.directory().text("a").is_none());
}
