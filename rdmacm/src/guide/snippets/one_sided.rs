use rdmacm::endpoint::{Connection, ExportedMemory, DmaMemory, RemoteMemory, RemoteAccess};

/// Lets the peer read and write `memory` until the returned value is dropped, and sends the
/// descriptor. On iWARP the side that accepted calls this only after it has received a message.
fn lend(connection: &Connection, memory: &DmaMemory) -> rdmacm::Result<ExportedMemory> {
    let export = connection.export(memory, .., RemoteAccess::READ | RemoteAccess::WRITE)?;
    connection.post_bytes(&export.remote_memory().to_bytes())?;
    Ok(export)
}

/// Receives a descriptor. Returns `None` if the peer has closed the connection.
fn borrowed(connection: &Connection) -> rdmacm::Result<Option<RemoteMemory>> {
    connection.recv()?.map(|message| RemoteMemory::from_bytes(&message)).transpose()
}

/// Reads as many bytes of the peer's memory as `bytes` has, and writes `bytes` in their place. The
/// peer's program takes no part in it, and is not notified.
fn exchange(connection: &Connection, at: &RemoteMemory, bytes: &[u8]) -> rdmacm::Result<Vec<u8>> {
    let mut buffer = connection.acquire_buffer()?;
    buffer.set_len(bytes.len())?;
    let mut buffer = connection.start_read(buffer, at, 0)?.wait()?;
    let before = buffer.to_vec();
    buffer.copy_from(bytes)?;
    connection.start_write(buffer, at, 0)?.wait()?;
    Ok(before)
}

/// Adds 1 to the number at `at`, and returns its previous value. siw has no such operations.
fn take_ticket(connection: &Connection, at: &RemoteMemory) -> rdmacm::Result<u64> {
    let buffer = connection.acquire_buffer()?;
    connection.start_fetch_add(buffer, at, 0, 1)?.wait()
}
