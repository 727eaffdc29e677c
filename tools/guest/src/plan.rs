//! The plan of a guest: a file of its initramfs, written by xtask.
//!
//! The file is a sequence of NUL-terminated strings, alternately keys and values, so that every path, argument and
//! variable of the host can be stored without quoting.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use tool_error::{Error, Result};

/// Path of the plan in the initramfs.
pub const PATH: &str = "/plan";

/// Path of the program in the initramfs that is not part of the guest.
pub const PROGRAM: &str = "/rdmatools";

/// Name of the virtio-serial port that carries the report.
pub const REPORT_PORT: &str = "report";

/// The 9p tag of the host's root.
pub const HOST_ROOT_TAG: &str = "hostroot";

/// The 9p tag of the directory with programs of the guest's architecture.
pub const PROGRAMS_TAG: &str = "programs";

/// An RDMA link that the guest creates before it runs the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// `rxe0` (RoCE v2) on `v0`, which is 10.0.0.1/24 and fd00::1/64.
    Rxe,
    /// `siw0` (iWARP) on `v1`, which is 10.0.0.2/24 and fd00::2/64.
    Siw,
    /// `mlx5_0` (RoCE v2), an emulated card, on `v2`, which is 10.0.0.3/24 and fd00::3/64.
    Mlx5,
}

impl Device {
    /// Every device, in the order in which a guest creates them.
    pub const ALL: [Self; 3] = [Self::Rxe, Self::Siw, Self::Mlx5];

    /// The devices of the kernel's own drivers.
    pub const SOFTWARE: [Self; 2] = [Self::Rxe, Self::Siw];

    /// Returns the name by which the device is chosen.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Rxe => "rxe",
            Self::Siw => "siw",
            Self::Mlx5 => "mlx5",
        }
    }

    /// Returns the name of the RDMA device.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rxe => "rxe0",
            Self::Siw => "siw0",
            Self::Mlx5 => "mlx5_0",
        }
    }

    /// Returns the IPv4 address of the RDMA device.
    #[must_use]
    pub const fn address(self) -> &'static str {
        match self {
            Self::Rxe => "10.0.0.1",
            Self::Siw => "10.0.0.2",
            Self::Mlx5 => "10.0.0.3",
        }
    }

    /// Returns the network device below the RDMA device.
    #[must_use]
    pub const fn network_device(self) -> &'static str {
        match self {
            Self::Rxe => "v0",
            Self::Siw => "v1",
            Self::Mlx5 => "v2",
        }
    }

    /// Returns the device that is chosen by `name`, or `None` if there is none.
    #[must_use]
    pub fn from_kind(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|device| device.kind() == name)
    }
}

/// The complete task of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Kernel modules of the initramfs, in load order.
    pub modules: Vec<OsString>,
    /// The RDMA links to create.
    pub devices: Vec<Device>,
    /// The work after the links are created.
    pub work: Work,
}

/// The work of a guest with its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Runs a command of the host, with the host's files.
    Command(HostCommand),
    /// Runs the demonstration on the first device with this number of pings, without any file of the host.
    ///
    /// The server and the client are the guest's own program.
    Demo(u32),
    /// Runs the demonstration with [`PROGRAM`], after every other file of the initramfs is removed.
    DemoOnly(u32),
}

/// A command that runs in a guest as if it ran on the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostCommand {
    /// The host's directory of the whole module tree, for a `modprobe` that runs in the guest.
    pub module_tree: OsString,
    /// `true` if programs in the directory with the tag [`PROGRAMS_TAG`] hide those of the host.
    ///
    /// A guest of another architecture needs them.
    pub has_programs: bool,
    /// The working directory.
    pub directory: OsString,
    /// The whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Program and arguments.
    pub arguments: Vec<OsString>,
    /// `true` if standard error goes to standard output, so that the order of both is kept.
    pub joins_output: bool,
}

impl Plan {
    /// Returns the bytes of the plan file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut file = Vec::new();
        let mut put = |strings: &[&OsStr]| {
            for string in strings {
                file.extend_from_slice(string.as_bytes());
                file.push(0);
            }
        };
        for module in &self.modules {
            put(&["module".as_ref(), module]);
        }
        for device in &self.devices {
            put(&["device".as_ref(), device.kind().as_ref()]);
        }
        match &self.work {
            Work::Demo(pings) => put(&["demo".as_ref(), pings.to_string().as_ref()]),
            Work::DemoOnly(pings) => put(&["alone".as_ref(), pings.to_string().as_ref()]),
            Work::Command(command) => {
                put(&["module-tree".as_ref(), &command.module_tree]);
                if command.has_programs {
                    put(&["has-programs".as_ref(), "1".as_ref()]);
                }
                put(&["directory".as_ref(), &command.directory]);
                for (name, value) in &command.environment {
                    put(&["variable".as_ref(), name, value]);
                }
                for argument in &command.arguments {
                    put(&["argument".as_ref(), argument]);
                }
                if command.joins_output {
                    put(&["joins-output".as_ref(), "1".as_ref()]);
                }
            }
        }
        file
    }

    /// Parses the bytes of a plan file.
    ///
    /// # Errors
    ///
    /// Returns an error for an unknown key, a key without its value, an invalid value, or bytes after the last NUL.
    pub fn from_bytes(file: &[u8]) -> Result<Self> {
        let (mut modules, mut devices, mut work) = (Vec::new(), Vec::new(), None);
        let mut command = HostCommand::default();
        let Some(file) = file.strip_suffix(&[0]) else {
            return Err(malformed("the file does not end in NUL"));
        };
        let mut strings = file.split(|byte| *byte == 0);
        while let Some(key) = strings.next() {
            let key = String::from_utf8_lossy(key).into_owned();
            let mut value = || {
                let bytes = strings.next().ok_or_else(|| malformed(&format!("{key} has no value")));
                bytes.map(|bytes| OsString::from_vec(bytes.to_vec()))
            };
            match key.as_str() {
                "module" => modules.push(value()?),
                "device" => devices.push(parse_value(&key, &value()?, Device::from_kind)?),
                "demo" => work = Some(Work::Demo(pings(&key, &value()?)?)),
                "alone" => work = Some(Work::DemoOnly(pings(&key, &value()?)?)),
                "module-tree" => command.module_tree = value()?,
                "has-programs" => command.has_programs = value()? == "1",
                "directory" => command.directory = value()?,
                "variable" => command.environment.push((value()?, value()?)),
                "argument" => command.arguments.push(value()?),
                "joins-output" => command.joins_output = value()? == "1",
                _ => return Err(malformed(&format!("unknown key {key}"))),
            }
        }
        Ok(Self { modules, devices, work: work.unwrap_or(Work::Command(command)) })
    }
}

fn pings(key: &str, value: &OsStr) -> Result<u32> {
    parse_value(key, value, |text| text.parse().ok())
}

fn parse_value<T>(key: &str, value: &OsStr, read: impl FnOnce(&str) -> Option<T>) -> Result<T> {
    let meaning = value.to_str().and_then(read);
    meaning.ok_or_else(|| malformed(&format!("{key} cannot be {}", value.to_string_lossy())))
}

fn malformed(why: &str) -> Error {
    Error::new(format!("cannot parse the plan: {why}"))
}

#[cfg(test)]
mod tests;
