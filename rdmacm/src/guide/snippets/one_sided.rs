use rdmacm::endpoint::{Connection, Export, Memory, Remote, Rights};

/// Lets the peer read and write `memory` for as long as the result lasts, and tells it where.
fn lend(connection: &Connection, memory: &Memory) -> rdmacm::Result<Export> {
    let export = connection.export(memory, Rights::READ | Rights::WRITE)?;
    connection.post_bytes(&export.descriptor())?;
    Ok(export)
}

/// The memory that the peer tells of; nothing, where it has closed the connection.
fn borrowed(connection: &Connection) -> rdmacm::Result<Option<Remote>> {
    connection.recv()?.map(|message| Remote::from_bytes(&message)).transpose()
}

/// Puts `bytes` in the place of as many of the peer's, which come back. The peer does nothing
/// for it, and hears of nothing.
fn exchange(connection: &Connection, at: &Remote, bytes: &[u8]) -> rdmacm::Result<Vec<u8>> {
    let mut buffer = connection.buffer()?;
    buffer.set_len(bytes.len())?;
    let mut buffer = connection.read(buffer, at, 0)?;
    let before = buffer.to_vec();
    buffer.copy_from(bytes)?;
    connection.write(buffer, at, 0)?;
    Ok(before)
}
