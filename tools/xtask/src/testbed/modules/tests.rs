use super::*;

fn index() -> Index {
    // rdma_ucm's own line lists its dependencies in an unusable order, and omits those of ib-cm.
    let dependencies = "k/ib_core.ko:\n\
        k/ib-cm.ko.xz: k/ib_core.ko\n\
        k/rdma_ucm.ko: k/ib_core.ko k/ib-cm.ko.xz\n\
        k/loop_a.ko: k/loop_b.ko\n\
        k/loop_b.ko: k/loop_a.ko\n\
        k/broken.ko: k/absent.ko\n";
    Index::parse(Path::new("/t"), dependencies, "kernel/drivers/virtio/virtio-pci.ko\n").unwrap()
}

fn closure(wanted: &[&str]) -> Vec<String> {
    let files = index().closure(wanted).unwrap();
    files.iter().map(|file| file.to_str().unwrap().to_owned()).collect()
}

#[test]
fn dependencies_load_first_and_once() {
    let files = closure(&["rdma_ucm", "ib_core", "rdma_ucm"]);
    assert_eq!(files, ["/t/k/ib_core.ko", "/t/k/ib-cm.ko.xz", "/t/k/rdma_ucm.ko"]);
}

#[test]
fn requested_order_is_kept() {
    assert_eq!(closure(&["ib_cm", "ib_core"]), ["/t/k/ib_core.ko", "/t/k/ib-cm.ko.xz"]);
    assert_eq!(closure(&["ib_core", "ib_cm"]), ["/t/k/ib_core.ko", "/t/k/ib-cm.ko.xz"]);
}

#[test]
fn built_in_modules_need_no_file() {
    assert!(closure(&["virtio_pci"]).is_empty());
}

#[test]
fn dependency_cycle_terminates() {
    assert_eq!(closure(&["loop_a"]).len(), 2);
}

#[test]
fn unknown_module_is_reported() {
    for wanted in ["absent", "broken"] {
        let error = index().closure(&[wanted]).unwrap_err().to_string();
        assert!(error.contains("module absent"), "{error}");
    }
}

#[test]
fn malformed_index_is_rejected() {
    assert!(Index::parse(Path::new("/t"), "no colon\n", "").is_err());
}
