use rdmacm::endpoint::Connection;

/// Sends the squares of the numbers below `count` in messages of `each` squares. As many messages
/// as there are buffers may be in flight. Returns when all messages are sent.
fn send_squares(connection: &Connection, count: u64, each: usize) -> rdmacm::Result<()> {
    let squares: Vec<[u8; 8]> = (0..count).map(|n| (n * n).to_be_bytes()).collect();
    for part in squares.chunks(each) {
        // Waits until an earlier message is sent, if no buffer is free.
        let mut buffer = connection.acquire_buffer()?;
        buffer.set_len(part.len() * 8)?;
        // This fills the memory that the device reads, without a copy.
        for (bytes, square) in buffer.chunks_exact_mut(8).zip(part) {
            bytes.copy_from_slice(square);
        }
        connection.post_send(buffer)?;
    }
    connection.flush()
}

/// Returns the sum of the received numbers after the peer has closed the connection.
fn sum(connection: &Connection) -> rdmacm::Result<u64> {
    let mut sum = 0;
    while let Some(message) = connection.recv()? {
        // This reads the memory that the device has filled, without a copy.
        for bytes in message.chunks_exact(8) {
            sum += u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
        }
        // The message is dropped here, and its buffer receives another message.
    }
    Ok(sum)
}
