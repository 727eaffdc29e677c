//! What a real kernel must do with what the library sends: run by `cargo xtask test` in the test bed.

mod bed;
mod connect;
