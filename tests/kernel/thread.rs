//! Types that threads may share and move, which the compiler checks.

use rdmacm::cm::{
    CmId, ConnParam, DatagramParam, EndpointQpInit, Event, EventChannel, EventData, Rejection,
};
use rdmacm::device::{CharDevice, Device, Port, ResourceCounts};
use rdmacm::endpoint::{Buffer, Connection, Connector, Incoming, Listener, Message};
use rdmacm::verbs::{
    Completion, CompletionChannel, CompletionEvent, CompletionQueue, Context, MemoryRegion,
    ProtectionDomain, QueuePair, SendRequest,
};
use rdmacm::{DestroyError, Error, Token};

const _: () = {
    /// Compiles only for types that threads may share, and move to other threads.
    const fn shared<T: Send + Sync>() {}

    shared::<EventChannel>();
    shared::<CmId>();
    shared::<Event>();
    shared::<EndpointQpInit>();
    shared::<(EventData, ConnParam, DatagramParam, Rejection)>();
    shared::<(Context, ProtectionDomain, MemoryRegion, QueuePair)>();
    shared::<(CompletionQueue, CompletionChannel, CompletionEvent, Completion)>();
    shared::<SendRequest<'static>>();
    shared::<(Connector, Listener, Incoming, Connection)>();
    shared::<(Buffer, Message)>();
    shared::<(Device, Port, CharDevice, ResourceCounts)>();
    shared::<(Error, DestroyError<CmId>, Token)>();
};
