use super::*;

#[test]
fn written_bytes_are_read_at_any_offset() {
    let mut memory = DmaMemory::new(100).expect("memory");
    let text: Vec<u8> = (1..=40).collect();
    for offset in 0..=16 {
        for length in 0..=24 {
            memory.write(0, &[0; 100]).expect("within");
            memory.write(offset, &text[..length]).expect("within");
            let mut read = [0; 100];
            memory.read(0, &mut read).expect("within");
            let mut expected = [0; 100];
            expected[offset..offset + length].copy_from_slice(&text[..length]);
            assert_eq!(read, expected);
            let mut part = vec![0; length];
            memory.read(offset, &mut part).expect("within");
            assert_eq!(part, text[..length]);
        }
    }
}

#[test]
fn access_beyond_memory_is_refused() {
    let mut memory = DmaMemory::new(8).expect("memory");
    for (offset, length) in [(0, 9), (8, 1), (9, 0), (usize::MAX, 1)] {
        let mut bytes = vec![0; length];
        memory.read(offset, &mut bytes).expect_err("outside");
        let error = memory.write(offset, &bytes).expect_err("outside");
        assert_eq!(error.errno(), libc::EINVAL);
    }
    memory.write(8, &[]).expect("its end");
    assert_eq!(DmaMemory::new(0).expect_err("nothing").errno(), libc::EINVAL);
}
