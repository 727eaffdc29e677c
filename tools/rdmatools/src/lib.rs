//! One program with several tools, called applets: `rdmatools APPLET ...`, or by a link that has the applet's name.
//!
//! A library, so that another program can carry the tools: see [`main`]. An applet is a module with its `Options` and a `run` that
//! writes to the output it is given, and a variant of `Applet`.

pub mod chart;
mod cmatose;
mod cmtime;
mod conform;
mod datagram;
mod devinfo;
mod endpoint;
mod failure;
mod hello;
mod host;
mod link;
mod mckey;
mod number;
mod perf;
mod pingpong;
mod rping;
mod stopped;
mod udaddy;
mod xhello;

use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use failure::Failure;

const PROGRAM: &str = "rdmatools";

/// RDMA tools that need no rdma-core
#[derive(Debug, Parser)]
#[command(name = PROGRAM, version)]
#[command(after_help = "Exit status: 0 success, 1 failure, 2 wrong usage.")]
struct Tools {
    #[command(subcommand)]
    applet: Applet,
}

#[derive(Debug, Subcommand)]
enum Applet {
    Bw(perf::BandwidthOptions),
    #[command(alias = "ucmatose")]
    Cmatose(cmatose::Options),
    Cmtime(cmtime::Options),
    Conform(conform::Options),
    Devinfo(devinfo::Options),
    #[command(name = "ibv_rc_pingpong")]
    RcPingpong(pingpong::RcOptions),
    #[command(name = "ibv_srq_pingpong")]
    SrqPingpong(pingpong::SrqOptions),
    #[command(name = "ibv_uc_pingpong")]
    UcPingpong(pingpong::UcOptions),
    #[command(name = "ibv_ud_pingpong")]
    UdPingpong(pingpong::UdOptions),
    Lat(perf::LatencyOptions),
    Link(link::Options),
    Mckey(mckey::Options),
    #[command(name = "rdma_client")]
    RdmaClient(hello::ClientOptions),
    #[command(name = "rdma_server")]
    RdmaServer(hello::ServerOptions),
    #[command(name = "rdma_xclient")]
    RdmaXclient(xhello::ClientOptions),
    #[command(name = "rdma_xserver")]
    RdmaXserver(xhello::ServerOptions),
    Rping(rping::Options),
    Udaddy(udaddy::Options),
}

impl Applet {
    fn name(&self) -> &'static str {
        match self {
            Self::Bw(_) => "bw",
            Self::Cmatose(_) => "cmatose",
            Self::Cmtime(_) => "cmtime",
            Self::Conform(_) => "conform",
            Self::Devinfo(_) => "devinfo",
            Self::RcPingpong(_) => "ibv_rc_pingpong",
            Self::SrqPingpong(_) => "ibv_srq_pingpong",
            Self::UcPingpong(_) => "ibv_uc_pingpong",
            Self::UdPingpong(_) => "ibv_ud_pingpong",
            Self::Lat(_) => "lat",
            Self::Link(_) => "link",
            Self::Mckey(_) => "mckey",
            Self::RdmaClient(_) => "rdma_client",
            Self::RdmaServer(_) => "rdma_server",
            Self::RdmaXclient(_) => "rdma_xclient",
            Self::RdmaXserver(_) => "rdma_xserver",
            Self::Rping(_) => "rping",
            Self::Udaddy(_) => "udaddy",
        }
    }

    fn run(&self, out: &mut (dyn Write + Send)) -> Result<(), Failure> {
        match self {
            Self::Bw(options) => perf::run_bw(options, out),
            Self::Cmatose(options) => cmatose::run(options, out),
            Self::Cmtime(options) => cmtime::run(options, out),
            Self::Conform(options) => conform::run(options, out),
            Self::Devinfo(options) => devinfo::run(options, out),
            Self::RcPingpong(options) => pingpong::run_rc(options, out),
            Self::SrqPingpong(options) => pingpong::run_srq(options, out),
            Self::UcPingpong(options) => pingpong::run_uc(options, out),
            Self::UdPingpong(options) => pingpong::run_ud(options, out),
            Self::Lat(options) => perf::run_lat(options, out),
            Self::Link(options) => link::run(options, out),
            Self::Mckey(options) => mckey::run(options, out),
            Self::RdmaClient(options) => hello::connect(options, out),
            Self::RdmaServer(options) => hello::serve(options, out),
            Self::RdmaXclient(options) => xhello::connect(options, out),
            Self::RdmaXserver(options) => xhello::serve(options, out),
            Self::Rping(options) => rping::run(options, out),
            Self::Udaddy(options) => udaddy::run(options, out),
        }
    }
}

/// Runs the tool that `args` name, program name first, and returns its exit status: 0 success, 1 failure, 2 wrong usage.
///
/// Output goes to standard output, which is not locked meanwhile, and errors go to standard error. An output that nobody
/// reads any more ends the tool quietly.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    run(args.into_iter().collect(), &mut io::stdout(), &mut io::stderr()).into()
}

fn run(args: Vec<OsString>, out: &mut (dyn Write + Send), err: &mut dyn Write) -> u8 {
    let tools = match Tools::try_parse_from(with_applet_first(args)) {
        Ok(tools) => tools,
        Err(refusal) => {
            // Help and version are refusals too, but with success.
            let stream: &mut dyn Write = if refusal.use_stderr() { err } else { out };
            // What cannot be written can neither be complained about.
            let _ = write!(stream, "{}", refusal.render());
            return if refusal.exit_code() == 0 { 0 } else { 2 };
        }
    };
    let done = tools.applet.run(out).and_then(|()| Ok(out.flush()?));
    report(done, tools.applet.name(), err)
}

/// Says why `applet` failed, and returns the exit status.
fn report(done: Result<(), Failure>, applet: &str, err: &mut dyn Write) -> u8 {
    let messages = match done {
        Ok(()) => return 0,
        Err(Failure::Output(error)) if error.kind() == ErrorKind::BrokenPipe => return 0,
        Err(Failure::Output(error)) => vec![format!("cannot write the output: {error}")],
        Err(Failure::Failed(messages)) => messages,
    };
    for message in messages {
        // In one piece, which others' lines do not get into.
        let _ = err.write_all(format!("{PROGRAM} {applet}: {message}\n").as_bytes());
    }
    1
}

/// Turns `link ...`, the call by an applet's own name, into `rdmatools link ...`.
fn with_applet_first(mut args: Vec<OsString>) -> Vec<OsString> {
    let called = args.first().and_then(|program| Path::new(program).file_name());
    let Some(called) = called.map(OsString::from) else { return args };
    if Tools::command().get_subcommands().any(|applet| called == applet.get_name()) {
        args.splice(..1, [PROGRAM.into(), called]);
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Status, output and errors of a call.
    fn call(line: &str) -> (u8, String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let status = run(line.split(' ').map(OsString::from).collect(), &mut out, &mut err);
        (status, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    /// An output that fails in one way.
    struct Broken(ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn help_is_success_and_output() {
        for line in ["rdmatools --help", "rdmatools help", "rdmatools link --help", "/bin/link -h"]
        {
            let (status, out, err) = call(line);
            assert_eq!((status, err.as_str()), (0, ""), "{line}");
            assert!(out.contains("Usage: rdmatools"), "{out}");
        }
        let (_, out, _) = call("rdmatools --help");
        assert!(out.contains("devinfo") && out.contains("Exit status"), "{out}");
    }

    #[test]
    fn wrong_usage_is_status_2_and_an_error() {
        let lines = [
            "rdmatools",
            "rdmatools nonsense",
            "rdmatools devinfo --nonsense",
            "rdmatools link add rxe0",
            "rdmatools link add rxe0 type mlx5 netdev eth0",
            "rdmatools link add rxe0 kind rxe netdev eth0",
            "rdmatools rdma_xserver -c y",
            "link delete",
        ];
        for line in lines {
            let (status, out, err) = call(line);
            assert_eq!((status, out.as_str()), (2, ""), "{line}");
            assert!(err.contains("Usage") || err.contains("--help"), "{line}: {err}");
        }
    }

    #[test]
    fn what_link_can_do_is_named_where_it_is_asked_for_something_else() {
        let (status, _, err) = call("rdmatools link nope");
        assert_eq!(status, 2);
        assert!(err.contains("[show|add|delete]"), "{err}");
    }

    /// rdma-core's programs have it, and end with EOPNOTSUPP on rxe and siw.
    #[test]
    fn xrc_is_refused_by_name() {
        for line in ["rdma_xserver -c x", "rdmatools rdma_xclient -c Xrc -s 10.0.0.1"] {
            let (status, out, err) = call(line);
            assert_eq!((status, out.as_str()), (2, ""), "{line}");
            assert!(err.contains("x is XRC, whose sends no driver that is known here"), "{err}");
        }
    }

    #[test]
    fn a_failure_is_status_1_and_names_the_applet() {
        for line in [
            "rdmatools link add rxe%d type rxe netdev lo",
            "/usr/bin/link add rxe%d type rxe netdev lo",
        ] {
            let (status, out, err) = call(line);
            assert_eq!((status, out.as_str()), (1, ""));
            assert!(err.starts_with("rdmatools link: cannot add the RDMA link rxe%d"), "{err}");
            assert_eq!(err.lines().count(), 1);
        }
    }

    #[test]
    fn a_reader_that_went_is_no_failure() {
        let mut err = Vec::new();
        let mut status =
            |kind: ErrorKind| report(Err(io::Error::from(kind).into()), "link", &mut err);
        assert_eq!(status(ErrorKind::BrokenPipe), 0);
        assert_eq!(status(ErrorKind::StorageFull), 1);
        assert!(String::from_utf8(err).unwrap().starts_with("rdmatools link: cannot write"));
        let help = ["rdmatools", "--help"].map(OsString::from).to_vec();
        assert_eq!(run(help, &mut Broken(ErrorKind::BrokenPipe), &mut Broken(ErrorKind::Other)), 0);
    }

    #[test]
    fn the_definition_is_consistent() {
        Tools::command().debug_assert();
    }
}
