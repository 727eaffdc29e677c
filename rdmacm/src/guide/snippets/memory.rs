use rdmacm::endpoint::Connection;

/// Sends the squares of the numbers below `count` in messages of `each`, as many under way as there
/// are buffers, and returns when the peer's device has all of them.
fn send_squares(connection: &Connection, count: u64, each: usize) -> rdmacm::Result<()> {
    let squares: Vec<[u8; 8]> = (0..count).map(|n| (n * n).to_be_bytes()).collect();
    for part in squares.chunks(each) {
        // Waits until one of the messages before has left its buffer.
        let mut buffer = connection.buffer()?;
        buffer.set_len(part.len() * 8)?;
        // In place: this is the memory that the device reads.
        for (bytes, square) in buffer.chunks_exact_mut(8).zip(part) {
            bytes.copy_from_slice(square);
        }
        connection.post(buffer)?;
    }
    connection.flush()
}

/// The sum of what comes until the peer closes the connection.
fn sum(connection: &Connection) -> rdmacm::Result<u64> {
    let mut sum = 0;
    while let Some(message) = connection.recv()? {
        // In place too: the device has put it there.
        for bytes in message.chunks_exact(8) {
            sum += u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
        }
        // Dropped here, the message's buffer receives another one.
    }
    Ok(sum)
}
