//! Connections that cannot be misused: the level that most programs are for.
//!
//! A [`Listener`] hands out [`Incoming`] requests, to look at before they are accepted or rejected; a
//! [`Connector`] connects. Both end in a [`Connection`]. All of it is written on the public items of
//! [`cm`](crate::cm) and [`verbs`](crate::verbs), without `unsafe`, here or in the programs that use it.
//!
//! # Who owns what
//!
//! A connection has everything of its own: the id and its event channel, a protection domain, one completion
//! queue with its channel, the queue pair, and one region of registered memory, cut into buffers. So a peer
//! reaches no memory but that of its own connection, whatever key it guesses; and ending one connection
//! touches no other. Three descriptors go with each connection.
//!
//! # What happens at the end
//!
//! Dropping a [`Connection`] ends it at once and waits for nobody: the peer hears of the end, the kernel's objects
//! go, and what was posted is cut off. Memory that the device may still use is freed after the queue pair is
//! destroyed, never before, in whatever order things are dropped, and also where they are forgotten.
//!
//! # Calls that take their time
//!
//! Making a connection registers memory, which pins pages; ending one destroys kernel objects. On iWARP the
//! kernel connects TCP in the middle of [`Connector::connect`], which no deadline ends, and a connection
//! that is given up while its peer has not answered takes until the driver gives up too (siw about 10 s).
#![forbid(unsafe_code)]

mod connection;
mod connector;
mod listener;
mod parts;
mod settings;

pub use connection::Connection;
pub use connector::Connector;
pub use listener::{Incoming, Listener};
pub use settings::Settings;
