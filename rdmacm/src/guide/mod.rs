//! The guide for newcomers.
//!
//! 1. [The RDMA connection manager](rdma_cm) on one page.
//! 2. [Opening a first connection](first_connection).
//! 3. [Using memory](memory): buffers, messages and their owners.
//! 4. [Accessing memory of the peer](one_sided).
//! 5. [Serving many connections](concurrency): threads, event loops, tasks.
//! 6. [Handling errors](errors).
//! 7. [Running services](services): stopping a server, and reconnecting.
//! 8. [Sending requests](requests): responses, timeouts, several requests in flight.
//! 9. [Running in containers](containers), and the permissions that a program needs.
//! 10. [Improving performance](performance).
//! 11. [Compile-time checks](compile_time_checks): mistakes that the compiler rejects.
//! 12. From C: every function of [librdmacm](from_librdmacm) and of [libibverbs](from_libibverbs), with its counterpart
//!     here.
//!
//! The tests of this project compile and run the listings. `docs/test-bed.md` explains how to run a program in a
//! virtual machine that has two RDMA devices.

pub mod compile_time_checks;
pub mod concurrency;
pub mod containers;
pub mod errors;
pub mod first_connection;
pub mod from_libibverbs;
pub mod from_librdmacm;
pub mod memory;
pub mod one_sided;
pub mod performance;
pub mod rdma_cm;
pub mod requests;
pub mod services;
