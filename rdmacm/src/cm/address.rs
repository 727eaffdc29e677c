//! Address calls of an id: binding, resolving and listening.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nix::errno::Errno;
use ucma_abi::{
    rdma_ucm_bind, rdma_ucm_listen, rdma_ucm_query_addr_resp, rdma_ucm_resolve_addr,
    rdma_ucm_resolve_route,
};

use super::event::with_address_hint;
use super::id::CmId;
use super::parse::EventType;
use crate::addr::{self, Address, Encoded};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result, hint};

impl CmId {
    /// Binds the id to a local address.
    ///
    /// The unspecified address binds the id to all addresses. The kernel treats a loopback address
    /// as the unspecified one. With port 0 the kernel chooses the port. An address of a device's
    /// port also binds the id to that device.
    ///
    /// No event follows.
    ///
    /// # Errors
    ///
    /// - ENODEV if no device has the address.
    /// - EADDRINUSE if the port is taken.
    /// - EADDRNOTAVAIL if the port is taken and one of the two addresses is a wildcard, or if the
    ///   host does not have the address.
    /// - EACCES if the port is below 1024 and the process lacks the privilege.
    /// - EINVAL if the id is bound already.
    /// - EPROTONOSUPPORT if `address` is an [`IbAddress`](addr::IbAddress) whose service belongs to
    ///   another port space.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_BIND`.
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind(&self, address: impl Into<Address>) -> Result<()> {
        let address = address.into();
        let encoded = addr::encode(&address);
        let request = rdma_ucm_bind {
            id: self.inner.handle,
            addr_size: encoded.length,
            reserved: 0,
            addr: encoded.slot,
        };
        let bound = self.inner.command("bind", || format!("{} to {address}", self.inner), request);
        bound.map_err(|error| {
            let taken = "no interface of this machine has the address, or the port is in use";
            error
                .with_hint(Errno::ENODEV, hint::NO_DEVICE)
                .with_hint(Errno::EADDRNOTAVAIL, taken)
                .with_hint(Errno::EADDRINUSE, hint::USED_PORT)
        })
    }

    /// Resolves `destination` to a device and, if the id is not bound, to a local address.
    ///
    /// The call also starts the route: [`resolve_route`](Self::resolve_route) completes it.
    /// `source` is the local address to use; `None` leaves the choice to the kernel. `timeout` is
    /// rounded up to whole milliseconds.
    ///
    /// `AddrResolved` or `AddrError` follows. `AddrError` has the status -ETIMEDOUT if `timeout`
    /// elapses.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidInput`] if `source` and `destination` belong to different address
    ///   families.
    /// - ENODEV if no device has the source address.
    /// - EINVAL if the id is in the wrong state.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_RESOLVE_ADDR`.
    #[doc(alias = "rdma_resolve_addr")]
    pub fn resolve_addr(
        &self,
        source: Option<Address>,
        destination: impl Into<Address>,
        timeout: Duration,
    ) -> Result<()> {
        const OPERATION: &str = "resolve the address";
        let destination = destination.into();
        let subject = || format!("{destination} for {}", self.inner);
        if let Some(source) = source.filter(|source| source.family() != destination.family()) {
            let reason = format!("the source address {source} is of another family");
            return Err(Error::invalid(OPERATION, subject(), reason));
        }
        // Without a source the kernel takes the interface that the scope of the destination names.
        let source = source.map_or(Encoded::NONE, |source| addr::encode(&source));
        let encoded = addr::encode(&destination);
        let request = rdma_ucm_resolve_addr {
            id: self.inner.handle,
            timeout_ms: milliseconds(timeout),
            src_size: source.length,
            dst_size: encoded.length,
            reserved: 0,
            src_addr: source.slot,
            dst_addr: encoded.slot,
        };
        self.inner.start_and_wait(EventType::AddrResolved, || {
            let sent = self.inner.command(OPERATION, subject, request);
            sent.map_err(with_address_hint)?;
            self.inner.state().peer = Some(destination);
            Ok(())
        })
    }

    /// Resolves the route to the address that was resolved before.
    ///
    /// `RouteResolved` or `RouteError` follows.
    ///
    /// # Errors
    ///
    /// - EINVAL if `AddrResolved` has not arrived yet, or if `timeout` is zero.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_RESOLVE_ROUTE`.
    #[doc(alias = "rdma_resolve_route")]
    pub fn resolve_route(&self, timeout: Duration) -> Result<()> {
        let request =
            rdma_ucm_resolve_route { id: self.inner.handle, timeout_ms: milliseconds(timeout) };
        self.inner.start_and_wait(EventType::RouteResolved, || {
            let sent =
                self.inner.command("resolve the route of", || self.inner.to_string(), request);
            sent.map_err(|error| match timeout {
                Duration::ZERO => error.with_hint(Errno::EINVAL, "the timeout must not be zero"),
                _ => error.with_hint(Errno::ENODEV, hint::NO_DEVICE),
            })
        })
    }

    /// Listens for connection requests on the address to which the id is bound.
    ///
    /// `backlog` is the maximum number of requests that are not yet read from the channel. 0 means the kernel's maximum
    /// (`net.rdma_ucm.max_backlog`), and so does any larger number. If the backlog is full, InfiniBand and RoCE drop a
    /// request and the peer repeats it. On iWARP the request is rejected, and so is a request for the address of a
    /// datagram service.
    ///
    /// A `ConnectRequest` follows for each peer.
    ///
    /// # Errors
    ///
    /// - EINVAL if the id is connected or resolved.
    /// - EADDRINUSE if the port is taken; with an iWARP device, also if TCP uses the port. An id
    ///   that is bound to all addresses listens on all devices or on none.
    ///
    /// # Driver notes
    ///
    /// siw (Linux 6.12 at least) loses a listener without an event. If a TCP connection ends before
    /// the driver has accepted it, siw ends the listener and refuses connections from then on. siw
    /// also accepts at most `backlog` connections at a time. Further connections wait until their
    /// peers give up after ten seconds, which ends the listener too. Choose a large backlog on siw,
    /// even if all requests are read at once.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_LISTEN`.
    #[doc(alias = "rdma_listen")]
    pub fn listen(&self, backlog: u32) -> Result<()> {
        // The kernel reads the number as signed, and treats a negative one as its maximum.
        let backlog = backlog.min(i32::MAX.unsigned_abs());
        let request = rdma_ucm_listen { id: self.inner.handle, backlog };
        let listening = self.inner.run(|file| {
            file.command(request)?;
            self.inner.listens.store(true, Ordering::Relaxed);
            Ok(())
        });
        listening.map_err(|refused| {
            let error = self.inner.not_done("listen on", self.inner.to_string(), refused);
            error.with_hint(Errno::EADDRINUSE, hint::USED_PORT)
        })
    }

    /// Returns the local IP address, or `None` if the id has none yet.
    ///
    /// An InfiniBand address is part of [`route`](Self::route).
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_QUERY` (ADDR).
    #[doc(alias = "rdma_get_local_addr")]
    #[doc(alias = "rdma_get_src_port")]
    pub fn local_addr(&self) -> Result<Option<SocketAddr>> {
        Ok(local(&self.inner.query_addr()?))
    }

    /// Returns the peer's IP address, or `None` if the id has no peer yet.
    ///
    /// An InfiniBand address is part of [`route`](Self::route).
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::DeviceRemoved`] if the device was removed.
    /// - [`ErrorKind::NotOwner`] if the process forked or changed its credentials.
    ///
    /// Kernel command: `RDMA_USER_CM_CMD_QUERY` (ADDR).
    #[doc(alias = "rdma_get_peer_addr")]
    #[doc(alias = "rdma_get_dst_port")]
    pub fn peer_addr(&self) -> Result<Option<SocketAddr>> {
        Ok(peer(&self.inner.query_addr()?))
    }

    /// Returns the IP addresses of this side and of the peer, with one command.
    pub(crate) fn addresses(&self) -> Result<[Option<SocketAddr>; 2]> {
        let found = self.inner.query_addr()?;
        Ok([local(&found), peer(&found)])
    }
}

/// Returns the local IP address in the response of a query.
fn local(found: &rdma_ucm_query_addr_resp) -> Option<SocketAddr> {
    addr::decode(&found.src_addr).and_then(|local| local.ip())
}

/// Returns the IP address of the peer in the response of a query.
///
/// For a bound id without a peer the kernel returns the unspecified address of its family.
fn peer(found: &rdma_ucm_query_addr_resp) -> Option<SocketAddr> {
    let peer = addr::decode(&found.dst_addr).and_then(|peer| peer.ip());
    peer.filter(|peer| !peer.ip().is_unspecified())
}

/// Returns `timeout` in milliseconds, rounded up.
///
/// A timeout above zero becomes at least 1, because the kernel refuses 0 or gives it another
/// meaning.
pub(super) fn milliseconds(timeout: Duration) -> u32 {
    let rounded_up = timeout.as_nanos().div_ceil(1_000_000);
    u32::try_from(rounded_up).unwrap_or(i32::MAX.unsigned_abs()).min(i32::MAX.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_rounded_up_to_milliseconds_and_fit() {
        assert_eq!(milliseconds(Duration::ZERO), 0);
        assert_eq!(milliseconds(Duration::from_nanos(1)), 1);
        assert_eq!(milliseconds(Duration::from_millis(2000)), 2000);
        assert_eq!(milliseconds(Duration::MAX), 0x7fff_ffff);
    }
}
