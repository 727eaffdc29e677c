//! What a real kernel must do with what the library sends: run by `cargo xtask test` in the test bed.

mod address;
mod backlog;
mod bed;
mod channel;
mod child;
mod completion;
mod connection;
mod datagram;
mod environment;
mod external;
mod fault;
mod io;
mod leak;
mod lifetime;
mod migrate;
mod multicast;
mod option;
mod permission;
mod process;
mod removal;
mod ring;
mod route;
mod siw;
mod state;
mod thread;
mod transfer;
