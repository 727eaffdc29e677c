use rdmacm::endpoint::Connector;
use std::{error::Error, net::SocketAddr, time::Duration};

fn main() -> Result<(), Box<dyn Error>> {
    let server: SocketAddr = "10.0.0.1:7471".parse()?;
    let timeout = Duration::from_secs(10);
    let connection = Connector::new().total_timeout(timeout).connect(server)?;
    connection.post_bytes(b"hello")?;
    let reply = connection.recv_timeout(timeout)?.ok_or("the server closed the connection")?;
    println!("{}", String::from_utf8_lossy(&reply));
    Ok(connection.close(timeout)?)
}
