//! Many connections, with one thread on either side.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::{Outcome, both, print_each};

pub(crate) const SIZE: usize = 64;
/// Buffers of each connection, either way.
pub(crate) const BUFFERS: u32 = 4;
/// Minimum number of messages of each connection before the measurement.
pub(crate) const FIRST: usize = 4;
/// Number of messages in flight at once, each on another connection.
const IN_FLIGHT: usize = 8;

/// An end that is one of many in a loop.
pub(crate) trait Member: Send {
    /// Returns the descriptor that reports messages, and the one that reports the end if it differs.
    fn descriptors(&self) -> Outcome<[Option<BorrowedFd<'_>>; 2]>;
    /// Handles the readiness of the first descriptor.
    fn wake(&mut self) -> Outcome;
    /// Receives a message, if there is one. Returns `true` if there was one.
    fn receive_now(&mut self) -> Outcome<bool>;
    /// Sends a message without waiting for a buffer: at most about one is in flight per connection.
    fn send_now(&mut self) -> Outcome;
}

/// Event data of the descriptor that reports the end of a connection.
const ENDED: u64 = u64::MAX;

/// Raises the descriptor limit of the process for this number of connections.
pub(crate) fn allow(connections: usize) -> Outcome {
    let descriptors = u64::try_from(connections)? * 16 + 64;
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, descriptors, descriptors.max(most))?)
}

/// One side of all connections, in one thread.
pub(crate) trait Side: Send {
    /// Returns the number of connections.
    fn len(&self) -> usize;

    /// Sends a message on the connection with this index, which has a buffer for it.
    fn send_now(&mut self, index: usize) -> Outcome;

    /// Receives `count` messages, asleep while there is none. Calls `then` after each with the index of its connection.
    fn receive(&mut self, count: usize, then: impl FnMut(&mut Self, usize) -> Outcome) -> Outcome;

    /// Sends `count` messages, on one connection after the other, and receives their answers.
    fn ask(&mut self, count: usize) -> Outcome {
        let mut turns = (0..self.len()).cycle().take(count);
        turns.by_ref().take(IN_FLIGHT).try_for_each(|turn| self.send_now(turn))?;
        self.receive(count, |side, _| turns.next().map_or(Ok(()), |turn| side.send_now(turn)))
    }

    /// Answers `count` messages.
    fn answer(&mut self, count: usize) -> Outcome {
        self.receive(count, Self::send_now)
    }
}

/// Prints the time of each of `count` messages on these connections, with a loop on either side.
pub(crate) fn measure_ends<M: Member>(ends: Vec<[M; 2]>, count: usize) -> Outcome {
    let (clients, servers) = ends.into_iter().map(|[client, server]| (client, server)).unzip();
    measure([Loop::new(clients)?, Loop::new(servers)?], count)
}

/// Prints the time of each of `count` messages between the sides, each in its own thread.
pub(crate) fn measure(mut sides: [impl Side; 2], count: usize) -> Outcome {
    // The first messages of a connection cost more: each has had some before the time counts.
    let connections = sides[0].len();
    exchange(&mut sides, (count / 10).max(FIRST * connections))?;
    let time = exchange(&mut sides, count)?;
    print_each(time, 2 * count)?;
    std::process::exit(0)
}

/// Sends `count` messages and receives their answers. Returns the time that this takes.
fn exchange([clients, servers]: &mut [impl Side; 2], count: usize) -> Outcome<Duration> {
    let start = Instant::now();
    both(|| servers.answer(count), || clients.ask(count))?;
    Ok(start.elapsed())
}

/// Ends of one thread, each of which is reported by its descriptor.
struct Loop<M> {
    epoll: Epoll,
    ends: Vec<M>,
}

impl<M: Member> Loop<M> {
    fn new(ends: Vec<M>) -> Outcome<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for (end, number) in ends.iter().zip(0..) {
            for (fd, data) in end.descriptors()?.into_iter().zip([number, ENDED]) {
                if let Some(fd) = fd {
                    epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, data))?;
                }
            }
        }
        Ok(Self { epoll, ends })
    }
}

impl<M: Member> Side for Loop<M> {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn send_now(&mut self, index: usize) -> Outcome {
        self.ends[index].send_now()
    }

    fn receive(
        &mut self,
        count: usize,
        mut then: impl FnMut(&mut Self, usize) -> Outcome,
    ) -> Outcome {
        let mut received = 0;
        while received < count {
            let mut events = [EpollEvent::empty(); 64];
            let ready = self.epoll.wait(&mut events, EpollTimeout::NONE)?;
            for event in &events[..ready] {
                if event.data() == ENDED {
                    return Err("a connection has ended".into());
                }
                let place = usize::try_from(event.data())?;
                self.ends[place].wake()?;
                while self.ends[place].receive_now()? {
                    received += 1;
                    then(self, place)?;
                }
            }
        }
        Ok(())
    }
}
