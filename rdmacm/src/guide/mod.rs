//! The guide, in the order in which a newcomer meets things.
//!
//! 1. [What RDMA CM is](rdma_cm), in one page.
//! 2. [A first connection](first_connection).
//! 3. [Memory](memory): buffers, messages, who owns them.
//! 4. [One-sided](one_sided): memory of the peer.
//! 5. [Many connections](asynchronous): threads, event loops, tasks.
//! 6. [Errors](errors).
//! 7. [Containers and permissions](containers).
//! 8. [Performance](performance).
//! 9. [What the compiler refuses](refused): the mistakes that do not compile.
//! 10. From C: every function of [librdmacm](functions) and those of [libibverbs](verbs), and what there is here for it.
//!
//! The tests run the listings as they stand here. `docs/test-bed.md` says how to run a program in a virtual machine that has
//! two RDMA devices.

pub mod asynchronous;
pub mod containers;
pub mod errors;
pub mod first_connection;
pub mod functions;
pub mod memory;
pub mod one_sided;
pub mod performance;
pub mod rdma_cm;
pub mod refused;
pub mod verbs;
