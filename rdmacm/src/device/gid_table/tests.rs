use super::super::golden;
use super::*;
use crate::sys::netlink::fake::{done, error, hex, message};
use crate::sys::sysfs::fake::Tree;

fn ports(tree: &Tree) -> Vec<Port> {
    let mut sources = Sources::sysfs_only(tree);
    let devices = discovery::devices(&mut sources).unwrap();
    devices.iter().flat_map(|device| Port::all(&mut sources, device)).collect()
}

#[test]
fn empty_slots_are_skipped() {
    let tree = Tree::new(golden::SYSFS);
    let entries: Vec<_> = ports(&tree)[0].gids().unwrap().collect();
    let [first, second] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!((first.index, second.index), (0, 2));
    assert_eq!(second.gid.to_string(), "0000:0000:0000:0000:0000:ffff:0a00:0001");
    assert_eq!(second.gid_type, Some(GidType::RoceV2));
    assert_eq!(second.netdev.as_deref(), Some("v0"));
}

#[test]
fn siw_has_one_gid_without_attributes_and_no_pkey() {
    let tree = Tree::new(golden::SYSFS);
    let siw = &ports(&tree)[1];
    let entries: Vec<_> = siw.gids().unwrap().collect();
    assert_eq!((entries.len(), entries[0].gid_type, &entries[0].netdev), (1, None, &None));
    assert!(siw.pkeys().unwrap().is_empty());
}

#[test]
fn ioctl_gid_table_equals_sysfs_table() {
    let tree = Tree::new(golden::SYSFS);
    let port = &ports(&tree)[0];
    let by_sysfs: Vec<_> = port.gids().unwrap().collect();
    let listed = |entry: &GidEntry| {
        let mut listed = ib_uverbs_gid_entry {
            gid_index: entry.index,
            port_num: 1,
            gid_type: IB_UVERBS_GID_TYPE_ROCE_V2,
            netdev_ifindex: 3,
            ..ib_uverbs_gid_entry::default()
        };
        listed.gid.as_mut_bytes().copy_from_slice(&entry.gid.0);
        listed
    };
    let mut entries: Vec<_> = by_sysfs.iter().map(listed).collect();
    let other_port = ib_uverbs_gid_entry { port_num: 2, ..entries[0] };
    let empty = ib_uverbs_gid_entry { gid: Default::default(), gid_index: 9, ..entries[0] };
    entries.extend([other_port, empty]);
    assert_eq!(port.entries(&entries), by_sysfs);
    let device = discovery::devices(&mut Sources::sysfs_only(&tree)).unwrap().remove(0);
    let error = of_opened(&device, 0, || Ok(entries)).unwrap_err();
    assert_eq!(error.errno(), libc::EINVAL);
}

#[test]
fn pkeys_keep_their_index() {
    let tree = Tree::new(&[
        ("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE"),
        ("class/infiniband/mlx5_0/ports/1/pkeys/0", "0xffff"),
        ("class/infiniband/mlx5_0/ports/1/pkeys/1", "0x0000"),
        ("class/infiniband/mlx5_0/ports/1/pkeys/2", "0x8001"),
    ]);
    assert_eq!(ports(&tree)[0].pkeys().unwrap(), [0xffff, 0, 0x8001]);
}

#[test]
fn missing_sysfs_is_named_in_error() {
    let tree = Tree::new(golden::SYSFS);
    let port = ports(&tree).remove(0);
    drop(tree);
    let error = port.gids().unwrap_err();
    assert_eq!(error.errno(), libc::ENOENT);
    assert!(error.to_string().contains("mount sysfs"), "{error}");
    assert_eq!(port.pkeys().unwrap_err().errno(), libc::ENOENT);
}

#[test]
fn broken_device_hides_no_other_infiniband_port() {
    const GID: &str = "fe80:0000:0000:0000:0000:0000:0000:0001";
    let tree = Tree::new(&[
        ("class/infiniband/a_silent/ports/1/lid", "0x1"),
        ("class/infiniband/b_without_gids/ports/1/state", "4: ACTIVE"),
        ("class/infiniband/b_without_gids/ports/1/link_layer", "InfiniBand"),
        ("class/infiniband/c_down/ports/1/state", "1: DOWN"),
        ("class/infiniband/c_down/ports/1/link_layer", "InfiniBand"),
        ("class/infiniband/c_down/ports/1/gids/0", GID),
        ("class/infiniband/d_ethernet/ports/1/state", "4: ACTIVE"),
        ("class/infiniband/d_ethernet/ports/1/link_layer", "Ethernet"),
        ("class/infiniband/d_ethernet/ports/1/gids/0", GID),
        ("class/infiniband/e_half/ports/1/state", "many"),
        ("class/infiniband/e_half/ports/2/state", "4: ACTIVE"),
        ("class/infiniband/e_half/ports/2/link_layer", "InfiniBand"),
        ("class/infiniband/e_half/ports/2/gids/0", "0000:0000:0000:0000:0000:0000:0000:0000"),
        ("class/infiniband/e_half/ports/2/gids/1", "fe80:0000:0000:0000:0000:0000:0000:0002"),
    ]);
    let found = of_infiniband(&mut Sources::sysfs_only(&tree)).unwrap();
    let [gid] = found[..] else { panic!("{found:?}") };
    assert_eq!(gid.to_string(), "fe80:0000:0000:0000:0000:0000:0000:0002");
}

#[test]
#[cfg(target_endian = "little")]
fn unreadable_gid_table_hides_no_other_port() {
    let device = |index: &str, name: &str| {
        let text = format!(
            "0800 0100 {index} | DEV_INDEX
                 0600 0200 {name} 00 0000 | DEV_NAME of one letter
                 0800 0300 01000000 | PORT_INDEX: one port"
        );
        message(0x1401, 1, &hex(&text))
    };
    let port = hex("0500 0c00 04000000 | PORT_STATE ACTIVE
                        0800 0900 03000000 | LID");
    let (mut sources, _kernel) = Sources::netlink_only(&[
        [device("00000000", "61"), device("01000000", "62"), device("02000000", "63")].concat(),
        done(1, 0),
        message(0x1401, 2, &port),
        error(3, -libc::EINVAL),
        message(0x1401, 4, &port),
    ]);
    let tree = Tree::new(&[(
        "class/infiniband/c/ports/1/gids/0",
        "fe80:0000:0000:0000:0000:0000:0000:0003",
    )]);
    sources.sysfs = tree.directory();
    let found = of_infiniband(&mut sources).unwrap();
    let [gid] = found[..] else { panic!("{found:?}") };
    assert_eq!(gid.to_string(), "fe80:0000:0000:0000:0000:0000:0000:0003");
}

#[test]
fn gid_type_prints_name_of_kernel() {
    let texts = [GidType::RoceV1, GidType::RoceV2].map(|value| value.to_string());
    assert_eq!(texts, ["IB/RoCE v1", "RoCE v2"]);
}

#[test]
fn gid_type_is_read_from_both_sources() {
    let gid = "fe80:0000:0000:0000:0000:0000:0000:0001";
    let tree = Tree::new(&[
        ("class/infiniband/rxe0/node_type", "1: CA"),
        ("class/infiniband/rxe0/ports/1/gids/0", gid),
        ("class/infiniband/rxe0/ports/1/gid_attrs/types/0", "IB/RoCE v1"),
        ("class/infiniband/rxe0/ports/1/gids/1", gid),
        ("class/infiniband/rxe0/ports/1/gid_attrs/types/1", "RoCE v2"),
        ("class/infiniband/rxe0/ports/1/gids/2", gid),
        ("class/infiniband/rxe0/ports/1/gid_attrs/types/2", "RoCE v3"),
    ]);
    let port = &ports(&tree)[0];
    let types = |entries: Vec<GidEntry>| entries.into_iter().map(|entry| entry.gid_type).collect();
    let found: Vec<_> = types(port.gids().unwrap().collect());
    assert_eq!(found, [Some(GidType::RoceV1), Some(GidType::RoceV2), None]);
    let listed = |gid_type| {
        let mut entry = ib_uverbs_gid_entry { port_num: 1, gid_type, ..Default::default() };
        entry.gid.as_mut_bytes()[0] = 0xfe;
        entry
    };
    let listed = [IB_UVERBS_GID_TYPE_IB, IB_UVERBS_GID_TYPE_ROCE_V1, IB_UVERBS_GID_TYPE_ROCE_V2, 3]
        .map(listed);
    let found: Vec<_> = types(port.entries(&listed));
    assert_eq!(found, [Some(GidType::RoceV1), Some(GidType::RoceV1), Some(GidType::RoceV2), None]);
}
