//! [`PollGroup`], the async version of a poll group.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, ready};

use super::budget::{poll_budget, reset_budget};
use super::default_runtime::default_runtime;
use super::failure::refused;
use super::runtime::{ProcessRuntime, Registration, Runtime};
use crate::endpoint;
use crate::endpoint::poll_group::Event;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;

/// A [poll group](endpoint::poll_group) that belongs to a task.
///
/// [`wait`](Self::wait) and the calls of [`get_mut`](Self::get_mut) issue kernel commands in the thread of the task, as
/// [Costs](endpoint::poll_group#costs) describes. On iWARP, connecting TCP may delay the thread by minutes, and
/// aborting a member by about 10 s. Dropping the group destroys its kernel objects in that thread.
///
/// # Examples
///
/// A task that accepts all requests and sends all messages back. An error of one member ends no other member:
///
/// ```no_run
/// # #[cfg(feature = "tokio")] mod example {
/// use std::time::Duration;
///
/// use rdmacm::endpoint;
/// use rdmacm::endpoint::poll_group::Event;
/// use rdmacm::endpoint::task::{Listener, PollGroup};
///
/// const TIMEOUT: Duration = Duration::from_secs(10);
///
/// async fn serve(listener: Listener, group: endpoint::PollGroup) -> rdmacm::Result<()> {
///     let mut group = PollGroup::from_blocking(group)?;
///     let mut events = Vec::new();
///     loop {
///         tokio::select! {
///             incoming = listener.accept() => {
///                 let incoming = incoming?.into_blocking();
///                 if let Err(error) = group.get_mut().add(incoming, &[], TIMEOUT) {
///                     eprintln!("{error}");
///                 }
///             }
///             count = group.wait(&mut events) => drop(count?),
///         }
///         for event in events.drain(..) {
///             if let Event::Message(member, message) = event {
///                 if let Err(error) = group.get_mut().post_bytes(member, &message) {
///                     eprintln!("{error}");
///                     let _ = group.get_mut().abort(member);
///                 }
///             }
///         }
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct PollGroup {
    // Declared first: the runtime stops watching the descriptor before it is closed.
    registration: Registration,
    group: endpoint::PollGroup,
}

impl PollGroup {
    /// Waits until there are events, and appends them to `events`. Returns their number.
    ///
    /// # Errors
    ///
    /// - The errors of [`endpoint::PollGroup::poll`].
    /// - ECANCELED if the runtime ends.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, no event is lost: a later call returns it.
    pub async fn wait(&mut self, events: &mut Vec<Event>) -> Result<usize> {
        let Self { registration, group } = self;
        poll_fn(|context| {
            loop {
                ready!(poll_budget(context));
                let count = group.poll(events)?;
                if count > 0 {
                    return Poll::Ready(Ok(count));
                }
                match registration.poll_readable(context) {
                    Poll::Ready(readable) => {
                        readable.map_err(|error| refused("wait for", SUBJECT, &error))?;
                    }
                    Poll::Pending => {
                        reset_budget();
                        return Poll::Pending;
                    }
                }
            }
        })
        .await
    }

    /// Returns a shared reference to the group, for calls that only read it.
    pub fn get_ref(&self) -> &endpoint::PollGroup {
        &self.group
    }

    /// Returns a mutable reference to the group, to connect, accept, send and end members.
    ///
    /// [`endpoint::PollGroup::wait`] blocks the thread; a task calls [`wait`](Self::wait). Do not replace the group: the
    /// runtime watches the descriptor of this one.
    pub fn get_mut(&mut self) -> &mut endpoint::PollGroup {
        &mut self.group
    }

    /// Converts an [`endpoint::PollGroup`] into one for a task of the [default runtime](super#runtimes).
    ///
    /// # Errors
    ///
    /// In addition to the errors of [`from_blocking_with`](Self::from_blocking_with):
    /// - [`ErrorKind::Unsupported`] if there is no default runtime.
    pub fn from_blocking(group: endpoint::PollGroup) -> Result<Self> {
        Self::from_blocking_with(group, default_runtime()?)
    }

    /// Converts an [`endpoint::PollGroup`] into one for a task of `runtime`.
    ///
    /// # Errors
    ///
    /// - The errors of [`Runtime::register`]. Tokio and smol return ENOMEM or ENOSPC if the runtime cannot watch as
    ///   many descriptors. Tokio returns [`ErrorKind::Unsupported`] if the runtime has no I/O or no time.
    pub fn from_blocking_with(
        group: endpoint::PollGroup,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self> {
        let registration = ProcessRuntime::new(runtime).register(group.epoll());
        let registration = registration.map_err(|error| refused("watch", SUBJECT, &error))?;
        Ok(Self { registration, group })
    }

    /// Converts the group into one for threads and event loops.
    pub fn into_blocking(self) -> endpoint::PollGroup {
        self.group
    }
}

const SUBJECT: &str = "a poll group";
