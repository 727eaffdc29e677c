//! Addresses and routes of an id: binding, resolving, listening.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nix::errno::Errno;
use ucma_abi::{rdma_ucm_bind, rdma_ucm_listen, rdma_ucm_resolve_addr, rdma_ucm_resolve_route};

use super::id::CmId;
use super::parse::EventType;
use crate::addr::{self, Address, Encoded};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};

/// The meaning of ENODEV for an address.
const NO_DEVICE: &str =
    "no RDMA device leads there: try the address of a network device that has one";

impl CmId {
    /// Binds the id to a local address: to all of them with the unspecified one, or with a loopback
    /// address, which the kernel takes for that; to a port of the kernel's choice with port 0.
    ///
    /// `RDMA_USER_CM_CMD_BIND`. No event follows. An address of a device's port also binds the id
    /// to that device.
    ///
    /// # Errors
    ///
    /// ENODEV where no device has the address; EADDRINUSE where the port is taken, and EADDRNOTAVAIL
    /// where it is and one of the two addresses is a wildcard, or nobody has the address; EACCES for
    /// a port below 1024 without privilege; EINVAL on an id that is bound already; EPROTONOSUPPORT
    /// for an [`IbAddress`](addr::IbAddress) whose service is of another port space.
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
            let taken = "nobody here has the address, or the port is taken";
            error.with_remedy(Errno::ENODEV, NO_DEVICE).with_remedy(Errno::EADDRNOTAVAIL, taken)
        })
    }

    /// Resolves `destination` to a device, a route's beginning and, where the id is not bound, a
    /// local address.
    ///
    /// `RDMA_USER_CM_CMD_RESOLVE_ADDR`. `AddrResolved` or `AddrError` follows, the latter with
    /// -ETIMEDOUT after `timeout` (milliseconds are what the kernel counts in). `source` is the
    /// local address to use, if it matters.
    ///
    /// # Errors
    ///
    /// ENODEV where no device has the source address, EINVAL in the wrong state,
    /// [`ErrorKind::Invalid`] where source and destination are of two families.
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
        // Without a source the kernel takes the interface that the destination's scope names.
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
        self.inner.complete(EventType::AddrResolved, || {
            let sent = self.inner.command(OPERATION, subject, request);
            sent.map_err(|error| error.with_remedy(Errno::ENODEV, NO_DEVICE))?;
            self.inner.state().peer = Some(destination);
            Ok(())
        })
    }

    /// Resolves the route to the address that was resolved before.
    ///
    /// `RDMA_USER_CM_CMD_RESOLVE_ROUTE`. `RouteResolved` or `RouteError` follows.
    ///
    /// # Errors
    ///
    /// EINVAL before `AddrResolved`, and for a timeout of zero.
    #[doc(alias = "rdma_resolve_route")]
    pub fn resolve_route(&self, timeout: Duration) -> Result<()> {
        let request =
            rdma_ucm_resolve_route { id: self.inner.handle, timeout_ms: milliseconds(timeout) };
        self.inner.complete(EventType::RouteResolved, || {
            let sent =
                self.inner.command("resolve the route of", || self.inner.to_string(), request);
            sent.map_err(|error| match timeout {
                Duration::ZERO => error.with_remedy(Errno::EINVAL, "the timeout must not be zero"),
                _ => error.with_remedy(Errno::ENODEV, NO_DEVICE),
            })
        })
    }

    /// Listens for requests on the address that the id is bound to.
    ///
    /// `RDMA_USER_CM_CMD_LISTEN`. A `ConnectRequest` follows for each peer. `backlog` is how many
    /// may wait to be read from the channel; 0 is the most that the kernel allows
    /// (`net.rdma_ucm.max_backlog`), and so is anything above it. A request beyond it is dropped on
    /// InfiniBand and RoCE, and the peer asks again; on iWARP, and where the peer asks where to send
    /// datagrams, it is rejected.
    ///
    /// siw (of Linux 6.12 at least) loses a listener without an event: to it, a TCP connection that ends before the
    /// driver has taken it is the end of the listener, and it refuses connections from then on. And it takes no more than
    /// `backlog` connections at a time: one that comes while so many are being taken is left lying, until its peer gives it
    /// up after ten seconds, which ends the listener too. Few is too few there, also where all are read at once.
    ///
    /// # Errors
    ///
    /// EINVAL on an id that is connected or resolved; EADDRINUSE, with an iWARP device also where TCP
    /// uses the port: an id that is bound to all addresses listens on all devices or none.
    #[doc(alias = "rdma_listen")]
    pub fn listen(&self, backlog: u32) -> Result<()> {
        // The kernel reads the number as signed, and a negative one as the most.
        let backlog = backlog.min(i32::MAX.unsigned_abs());
        let request = rdma_ucm_listen { id: self.inner.handle, backlog };
        let listening = self.inner.run(|file| {
            file.command(request)?;
            self.inner.listens.store(true, Ordering::Relaxed);
            Ok(())
        });
        listening
            .map_err(|refused| self.inner.not_done("listen on", self.inner.to_string(), refused))
    }

    /// The local IP address, or `None` while the id has none. An address of InfiniBand is in
    /// [`route`](Self::route).
    ///
    /// `RDMA_USER_CM_CMD_QUERY` (ADDR).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DeviceGone`], [`ErrorKind::WrongProcess`].
    #[doc(alias = "rdma_get_local_addr")]
    #[doc(alias = "rdma_get_src_port")]
    pub fn local_addr(&self) -> Result<Option<SocketAddr>> {
        Ok(addr::decode(&self.inner.query_addr()?.src_addr).and_then(|local| local.ip()))
    }

    /// The peer's IP address, or `None` while the id has no peer. An address of InfiniBand is in
    /// [`route`](Self::route).
    ///
    /// `RDMA_USER_CM_CMD_QUERY` (ADDR).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DeviceGone`], [`ErrorKind::WrongProcess`].
    #[doc(alias = "rdma_get_peer_addr")]
    #[doc(alias = "rdma_get_dst_port")]
    pub fn peer_addr(&self) -> Result<Option<SocketAddr>> {
        let peer = addr::decode(&self.inner.query_addr()?.dst_addr).and_then(|peer| peer.ip());
        // A bound id without a peer has one of its family with nothing in it.
        Ok(peer.filter(|peer| !peer.ip().is_unspecified()))
    }
}

/// Returns `timeout` in the unit of the kernel: at least 1 for any time at all, as 0 means something else or
/// is refused.
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
