//! Many connections in one thread.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::{Outcome, both, print_each};

pub(crate) const SIZE: usize = 64;
/// Buffers of each connection, either way.
pub(crate) const BUFFERS: u32 = 4;
/// So many messages of each connection do not count.
const FIRST: usize = 4;
/// How many messages are under way at once, each on another connection.
const UNDER_WAY: usize = 8;

/// An end that is one of many in a loop.
pub(crate) trait Member: Send {
    /// What is readable when there is a message, and what when the connection has ended, if that is another one.
    fn descriptors(&self) -> Outcome<[Option<BorrowedFd<'_>>; 2]>;
    /// The first one is readable.
    fn wake(&mut self) -> Outcome;
    /// Receives a message, if there is one; whether there was.
    fn receive_now(&mut self) -> Outcome<bool>;
    /// Sends a message, for which there is a buffer: hardly more than one goes on a connection at a time.
    fn send_now(&mut self) -> Outcome;
}

/// What the descriptor of an end is known by that has ended.
const ENDED: u64 = u64::MAX;

/// Lets the process have the descriptors of so many connections.
pub(crate) fn allow(connections: usize) -> Outcome {
    let descriptors = u64::try_from(connections)? * 16 + 64;
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, descriptors, descriptors.max(most))?)
}

/// Prints how long each of `count` messages takes on the connections, the servers of which are in one
/// thread's loop and the clients in another one's.
pub(crate) fn measure<M: Member>(ends: Vec<[M; 2]>, count: usize) -> Outcome {
    let connections = ends.len();
    let (clients, servers) = ends.into_iter().map(|[client, server]| (client, server)).unzip();
    let mut loops = [Loop::new(clients)?, Loop::new(servers)?];
    // The first messages of a connection cost more: so each has had some.
    exchange(&mut loops, (count / 10).max(FIRST * connections))?;
    let time = exchange(&mut loops, count)?;
    print_each(time, 2 * count)?;
    std::process::exit(0)
}

/// Sends `count` messages there and back; how long that takes.
fn exchange<M: Member>([clients, servers]: &mut [Loop<M>; 2], count: usize) -> Outcome<Duration> {
    let start = Instant::now();
    both(|| servers.answer(count), || clients.ask(count))?;
    Ok(start.elapsed())
}

/// Ends of one thread, each of which its descriptor tells of.
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

    /// Sends `count` messages, on one connection after the other, and receives their answers.
    fn ask(&mut self, count: usize) -> Outcome {
        let mut turns = (0..self.ends.len()).cycle().take(count);
        turns.by_ref().take(UNDER_WAY).try_for_each(|turn| self.ends[turn].send_now())?;
        self.receive(count, |ends, _| turns.next().map_or(Ok(()), |turn| ends[turn].send_now()))
    }

    /// Answers `count` messages.
    fn answer(&mut self, count: usize) -> Outcome {
        self.receive(count, |ends, place| ends[place].send_now())
    }

    /// Receives `count` messages, and has `then` know of each by which end it came.
    fn receive(
        &mut self,
        count: usize,
        mut then: impl FnMut(&mut [M], usize) -> Outcome,
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
                    then(&mut self.ends, place)?;
                }
            }
        }
        Ok(())
    }
}
