//! The runs, and the ways to make them fail.

use std::fmt;

use rdmacm_tests::roce::roce_ip;

/// The calls of a run that are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Calls on device nodes.
    Devices,
    /// All calls.
    All,
}

impl Extent {
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [("devices", Self::Devices), ("all", Self::All)]
            .into_iter()
            .find_map(|(known, extent)| (known == name).then_some(extent))
    }

    /// Returns the distance of the calls that are visited with the fault.
    ///
    /// CI has no time to kill at each call, and visits some of them.
    pub(crate) fn step(self, fault: Fault) -> u32 {
        match (self, fault) {
            (Self::Devices, Fault::Kill) => 4,
            _ => 1,
        }
    }

    /// Returns the scenarios that are visited by default.
    fn scenarios(self) -> &'static [Scenario] {
        match self {
            Self::Devices => &SCENARIOS[..1],
            Self::All => &SCENARIOS,
        }
    }

    fn faults(self) -> &'static [Fault] {
        match self {
            Self::Devices => &[Fault::Errno("EIO"), Fault::Kill],
            Self::All => &[
                Fault::Errno("ENOMEM"),
                Fault::Errno("EINTR"),
                Fault::Errno("EIO"),
                Fault::Errno("EAGAIN"),
                Fault::Errno("ENODEV"),
                Fault::Kill,
            ],
        }
    }
}

/// The selected scenarios, sides and faults.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) scenarios: Vec<&'static Scenario>,
    pub(crate) sides: Vec<Side>,
    pub(crate) faults: Vec<Fault>,
}

impl Plan {
    /// Returns the scenarios, sides and faults that `words` name, or all of a category that is not named.
    pub(crate) fn new(extent: Extent, words: &[String]) -> Result<Self, String> {
        let mut words = words.to_vec();
        let all: Vec<_> = SCENARIOS.iter().collect();
        let mut scenarios = take(&mut words, &all, |scenario| scenario.name.to_owned());
        let mut sides = take(&mut words, &SIDES, Side::to_string);
        let mut faults = take(&mut words, extent.faults(), Fault::to_string);
        if let Some(word) = words.first() {
            return Err(format!("{word} is no scenario, no side and no fault of this extent"));
        }
        if scenarios.is_empty() {
            scenarios.extend(extent.scenarios());
        }
        if sides.is_empty() {
            sides.extend(SIDES);
        }
        if faults.is_empty() {
            faults.extend(extent.faults());
        }
        Ok(Self { scenarios, sides, faults })
    }
}

/// Removes the names of elements of `all` from `words`, and returns the named elements.
fn take<T: Copy>(words: &mut Vec<String>, all: &[T], name: impl Fn(&T) -> String) -> Vec<T> {
    let named = all.iter().copied().filter(|one| words.contains(&name(one))).collect();
    words.retain(|word| all.iter().all(|one| name(one) != *word));
    named
}

/// A fault injected at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The call is not made, and returns this error.
    Errno(&'static str),
    /// The program gets SIGKILL instead of making the call.
    Kill,
}

impl Fault {
    /// Returns the option of strace that injects the fault.
    pub(crate) fn injection(self) -> String {
        match self {
            Self::Errno(name) => format!("error={name}"),
            Self::Kill => "signal=KILL".to_owned(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno(name) => f.pad(name),
            Self::Kill => f.pad("KILL"),
        }
    }
}

/// Calls that read or wait, as strace names them.
pub(crate) const READ: &str = "read";
pub(crate) const POLL: &str = "poll,ppoll,epoll_wait,epoll_pwait";

/// The calls, as strace names them; those in one line do the same.
pub(crate) const CALLS: [&str; 7] =
    ["write", "ioctl", "mmap", "open,openat", READ, POLL, "socket,sendto,recvfrom"];

/// One of the two programs of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Client,
}

const SIDES: [Side; 2] = [Side::Server, Side::Client];

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Server => "server",
            Self::Client => "client",
        })
    }
}

/// Two applets that talk to each other.
#[derive(Debug)]
pub(crate) struct Scenario {
    /// The name of the applet.
    pub(crate) name: &'static str,
    /// The server's arguments and the client's, without the port.
    arguments: [&'static [&'static str]; 2],
    /// Option that gives both programs a port of their own.
    port: Option<&'static str>,
    /// Line that the server prints when it accepts clients.
    ///
    /// Without this line, the server is ready when it has an id on the device and sleeps.
    pub(crate) ready: Option<&'static str>,
    /// `true` if the programs wait for a fixed time without an event.
    pub(crate) pauses: bool,
    /// `true` if each side detects the end of the other.
    pub(crate) is_connected: bool,
}

const SCENARIOS: [Scenario; 4] = [
    Scenario {
        name: "rping",
        arguments: [&["-s", "-a", ADDRESS], &["-c", "-a", ADDRESS, "-C", "1", "-V"]],
        port: Some("-p"),
        ready: None,
        pauses: false,
        is_connected: true,
    },
    Scenario {
        name: "cmatose",
        arguments: [&["-b", ADDRESS, "-C", "2"], &["-s", ADDRESS, "-C", "2"]],
        port: Some("-p"),
        ready: None,
        pauses: false,
        is_connected: true,
    },
    Scenario {
        name: "udaddy",
        arguments: [&["-b", ADDRESS, "-C", "2"], &["-s", ADDRESS, "-C", "2"]],
        port: None,
        ready: None,
        pauses: false,
        is_connected: false,
    },
    Scenario {
        name: "mckey",
        arguments: [
            &["-m", GROUP, "-b", ADDRESS, "-C", "2"],
            &["-s", "-m", GROUP, "-b", ADDRESS, "-C", "2"],
        ],
        port: None,
        ready: Some("receiving data transfers"),
        pauses: true,
        is_connected: false,
    },
];

/// Placeholder for the address of the RoCE device.
const ADDRESS: &str = "ADDRESS";
const GROUP: &str = "239.1.1.1";

impl Scenario {
    /// Returns the arguments of `rdmatools`.
    pub(crate) fn arguments(&self, side: Side, port: u16) -> Vec<String> {
        let own = match side {
            Side::Server => self.arguments[0],
            Side::Client => self.arguments[1],
        };
        let mut arguments = vec![self.name.to_owned()];
        let named = |argument: &&str| match *argument {
            ADDRESS => roce_ip().to_owned(),
            argument => argument.to_owned(),
        };
        arguments.extend(own.iter().map(named));
        arguments
            .extend(self.port.into_iter().flat_map(|option| [option.into(), port.to_string()]));
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the scenarios, sides and faults that are visited.
    fn walked(extent: Extent, words: &str) -> Result<[String; 3], String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let Plan { scenarios, sides, faults } = Plan::new(extent, &words)?;
        let scenarios: Vec<_> = scenarios.iter().map(|scenario| scenario.name).collect();
        let sides: Vec<_> = sides.iter().map(Side::to_string).collect();
        let faults: Vec<_> = faults.iter().map(Fault::to_string).collect();
        Ok([scenarios.join(" "), sides.join(" "), faults.join(" ")])
    }

    #[test]
    fn words_select_within_their_category() {
        let faults = "ENOMEM EINTR EIO EAGAIN ENODEV KILL";
        let all = ["rping cmatose udaddy mckey", "server client", faults];
        assert_eq!(walked(Extent::All, ""), Ok(all.map(str::to_owned)));
        let some = ["rping mckey", "client", "ENODEV KILL"];
        let words = "client mckey KILL rping ENODEV";
        assert_eq!(walked(Extent::All, words), Ok(some.map(str::to_owned)));
        let devices = ["rping", "server client", "EIO KILL"];
        assert_eq!(walked(Extent::Devices, ""), Ok(devices.map(str::to_owned)));
        assert!(
            walked(Extent::Devices, "udaddy").is_ok_and(|[scenarios, ..]| scenarios == "udaddy")
        );
        for word in ["EBADF", "rpinger", "ENODEV"] {
            let error = walked(Extent::Devices, word).expect_err("no name should match");
            assert!(error.starts_with(word), "{error}");
        }
    }
}
