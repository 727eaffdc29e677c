//! Sending of copied bytes, and completion of posted requests, by tasks.

use std::sync::Arc;

use super::waiting::wait_for;
use super::watch::Watch;
use crate::endpoint::RemoteOperation;
use crate::endpoint::core::Outgoing;
use crate::endpoint::memory::sending::MAX_COPY_WHILE_LOCKED;
use crate::endpoint::shared::state::State;
use crate::endpoint::shared::{Operation, Shared};
use crate::error::Result;

/// Posts a copy of `bytes`, which a buffer has room for, and waits until a buffer is free.
///
/// # Cancel safety
///
/// Cancel safe: if the future is dropped, nothing was posted.
pub(super) async fn post_bytes(
    shared: &Arc<Shared>,
    watch: &Watch,
    bytes: &[u8],
    outgoing: Outgoing<'_>,
) -> Result<()> {
    if bytes.len() > MAX_COPY_WHILE_LOCKED {
        let memory = wait_for(shared, watch, Operation::AcquireBuffer, State::buffer)
            .await
            .map_err(|error| shared.not_sent(error))?;
        return shared.post_copy(memory, bytes, outgoing);
    }
    wait_for(shared, watch, Operation::AcquireBuffer, |state| state.post_bytes(bytes, outgoing))
        .await
        .map_err(|error| shared.not_sent(error))?
        .map_err(|error| shared.not_posted(Operation::Send, error))
}

/// Waits for the result of an operation that posted a request.
pub(super) async fn complete<T>(
    shared: &Shared,
    watch: &Watch,
    operation: RemoteOperation<T>,
) -> Result<T> {
    let (posted, result) = operation.into_posted();
    let completed = |state: &mut State| posted.completed(state);
    let memory = wait_for(shared, watch, posted.awaited(), completed).await?;
    posted.into_buffer(memory).map(result)
}
