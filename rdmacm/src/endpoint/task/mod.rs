//! The async types of an endpoint.

mod connection;
mod datagrams;
mod establish;
mod listener;
mod off;
mod remote;
mod waiting;

pub use connection::Connection;
pub use datagrams::DatagramSocket;
pub use listener::Listener;
