use rdmacm::endpoint::{Buffer, Connection, DmaMemory, RemoteMemory};
use std::sync::atomic::{Ordering, fence};

/// The length of the version, which precedes the data. The version is odd while the data change.
const VERSION: usize = 8;

/// Writes data of the next version. Only one thread of the owner may do this at a time.
fn publish(memory: &mut DmaMemory, data: &[u8]) -> rdmacm::Result<()> {
    let mut version = [0; VERSION];
    memory.read(0, &mut version)?;
    let version = u64::from_be_bytes(version);
    memory.write(0, &(version + 1).to_be_bytes())?;
    // The odd version must be visible before the data, and the data before the even version. Two
    // calls of `write` are not ordered otherwise.
    fence(Ordering::Release);
    memory.write(VERSION, data)?;
    fence(Ordering::Release);
    memory.write(0, &(version + 2).to_be_bytes())
}

/// Reads `length` bytes of data that belong to one version. Returns `None` if the data have changed
/// during each of `tries` attempts.
fn snapshot(
    connection: &Connection,
    table: &RemoteMemory,
    length: usize,
    tries: u32,
) -> rdmacm::Result<Option<Vec<u8>>> {
    for _ in 0..tries {
        // Each read has completed before the next one begins: reads in flight have no order.
        let before = read(connection, table, 0, VERSION)?.to_vec();
        let data = read(connection, table, VERSION as u64, length)?.to_vec();
        let after = read(connection, table, 0, VERSION)?;
        let is_even = before[VERSION - 1] % 2 == 0;
        if is_even && before[..] == after[..] {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

fn read(
    connection: &Connection,
    table: &RemoteMemory,
    offset: u64,
    length: usize,
) -> rdmacm::Result<Buffer> {
    let mut buffer = connection.acquire_buffer()?;
    buffer.set_len(length)?;
    connection.start_read(buffer, table, offset)?.wait()
}
