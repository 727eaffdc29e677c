use super::*;

/// Returns a record in which every field has a different value.
fn golden() -> (PathRecord, Vec<u8>) {
    let mut wire = Vec::new();
    wire.extend([0, 0, 0, 0, 1, 6, 0x1c, 6]);
    wire.extend([0xd; 16]);
    wire.extend([0x5; 16]);
    wire.extend([0, 0x21, 0, 0x22]);
    wire.extend([0x8a, 0xbc, 0xde, 64]); // raw, flow label 0xabcde, hop limit
    wire.extend([0x18, 0x81]); // traffic class, reversible and one path
    wire.extend([0xff, 0xff]);
    wire.extend([0x12, 0x37]); // class 0x123, level 7
    wire.extend([0x83, 0x87, 0x92, 1]); // exactly 1024 bytes, rate 7, life time 18, preference
    wire.resize(64, 0);
    let path = PathRecord {
        service_id: 0x0106_1c06,
        dgid: Gid([0xd; 16]),
        sgid: Gid([5; 16]),
        dlid: 0x21,
        slid: 0x22,
        raw_traffic: true,
        flow_label: 0xa_bcde,
        hop_limit: 64,
        traffic_class: 0x18,
        reversible: true,
        numb_path: 1,
        pkey: 0xffff,
        qos_class: 0x123,
        sl: 7,
        mtu_selector: 2,
        mtu: 3,
        rate_selector: 2,
        rate: 7,
        packet_life_time_selector: 2,
        packet_life_time: 18,
        preference: 1,
    };
    (path, wire)
}

#[test]
fn path_record_round_trips() {
    let (path, wire) = golden();
    let packed = ib_path_rec_data::from(&path);
    assert_eq!(packed.path_rec_bytes(), wire);
    assert_eq!((packed.flags.bits(), packed.reserved), (0x2b, 0));
    assert_eq!(PathRecord::from(&packed), path);
}

#[test]
fn large_values_stay_in_their_field() {
    let path = PathRecord {
        flow_label: u32::MAX,
        numb_path: u8::MAX,
        sl: u8::MAX,
        mtu: u8::MAX,
        ..PathRecord::default()
    };
    let read = PathRecord::from(&ib_path_rec_data::from(&path));
    let expected = PathRecord { flow_label: 0xf_ffff, numb_path: 0x7f, sl: 0xf, mtu: 0x3f, ..path };
    assert_eq!(read, expected);
}
