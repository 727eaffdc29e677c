//! One program with several tools, called applets.
//!
//! An applet runs as `rdmatools APPLET ...`, or by a link with the applet's name.
//!
//! The tools are a library, so that another program can contain them: see [`main`]. An applet is a module with
//! `Options` and a function `run` that writes to a given output, and a row of `APPLETS`.
// `println!` panics if standard output is a closed pipe.
#![cfg_attr(not(test), warn(clippy::print_stdout))]

pub mod chart;
mod cmatose;
mod cmtime;
mod conform;
mod datagram;
mod devinfo;
mod early_exit;
mod endpoint;
mod failure;
mod host;
mod link;
mod mckey;
mod number;
mod perf;
mod pingpong;
mod rdma_client_server;
mod rdma_xclient_server;
mod rping;
mod selftest;
mod udaddy;

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::{ArgMatches, Args, Command, FromArgMatches};

use failure::Failure;

const PROGRAM: &str = "rdmatools";

/// A tool of the program.
struct Applet {
    name: &'static str,
    alias: Option<&'static str>,
    /// Adds the options of the applet to a command.
    augment: fn(Command) -> Command,
    /// Runs the applet with the parsed options.
    run: fn(&mut ArgMatches, &mut Output) -> Result<(), Failure>,
}

type Output = dyn Write + Send;

/// Defines an applet by its name, its options and its function.
macro_rules! applet {
    ($name:literal, $options:ty, $run:path) => {
        Applet {
            name: $name,
            alias: None,
            augment: <$options>::augment_args,
            run: |matches, out| {
                // The command has already rejected unknown options.
                let options = <$options>::from_arg_matches_mut(matches)
                    .map_err(|refusal| Failure::new(refusal.to_string()))?;
                $run(&options, out)
            },
        }
    };
}

static APPLETS: [Applet; 19] = [
    applet!("bw", perf::BandwidthOptions, perf::run_bw),
    Applet { alias: Some("ucmatose"), ..applet!("cmatose", cmatose::Options, cmatose::run) },
    applet!("cmtime", cmtime::Options, cmtime::run),
    applet!("conform", conform::Options, conform::run),
    applet!("devinfo", devinfo::Options, devinfo::run),
    applet!("ibv_rc_pingpong", pingpong::RcOptions, pingpong::run_rc),
    applet!("ibv_srq_pingpong", pingpong::SrqOptions, pingpong::run_srq),
    applet!("ibv_uc_pingpong", pingpong::UcOptions, pingpong::run_uc),
    applet!("ibv_ud_pingpong", pingpong::UdOptions, pingpong::run_ud),
    applet!("lat", perf::LatencyOptions, perf::run_lat),
    applet!("link", link::Options, link::run),
    applet!("mckey", mckey::Options, mckey::run),
    applet!("rdma_client", rdma_client_server::ClientOptions, rdma_client_server::connect),
    applet!("rdma_server", rdma_client_server::ServerOptions, rdma_client_server::serve),
    applet!("rdma_xclient", rdma_xclient_server::ClientOptions, rdma_xclient_server::connect),
    applet!("rdma_xserver", rdma_xclient_server::ServerOptions, rdma_xclient_server::serve),
    applet!("rping", rping::Options, rping::run),
    applet!("selftest", selftest::Options, selftest::run),
    applet!("udaddy", udaddy::Options, udaddy::run),
];

impl Applet {
    /// Finds the applet with this name or alias.
    fn find(name: &OsStr) -> Option<&'static Self> {
        let is_called =
            |applet: &&Self| name == applet.name || applet.alias.is_some_and(|alias| name == alias);
        APPLETS.iter().find(is_called)
    }

    fn command(&self) -> Command {
        (self.augment)(Command::new(self.name).aliases(self.alias))
    }
}

/// Builds the command line parser for the given applets.
fn command_line<'a>(applets: impl IntoIterator<Item = &'a Applet>) -> Command {
    Command::new(PROGRAM)
        .version(env!("CARGO_PKG_VERSION"))
        .about("RDMA tools that need no rdma-core")
        .after_help("Exit status: 0 success, 1 failure, 2 wrong usage.")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(applets.into_iter().map(Applet::command))
}

/// Runs the tool named by `args`, which start with the program name.
///
/// Returns 0 for success, 1 for failure, 2 for wrong usage.
///
/// Output goes to standard output, which is not locked during the run, and errors go to standard error. If the reader
/// of the output closes it, the tool ends without an error message.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    run(args.into_iter().collect(), &mut io::stdout(), &mut io::stderr()).into()
}

fn run(args: Vec<OsString>, out: &mut Output, err: &mut dyn Write) -> u8 {
    let args = with_applet_first(args);
    let named = args.get(1).and_then(|name| Applet::find(name));
    // A parser for all applets would use more time and memory than a parser for one.
    let tools = named.map_or_else(|| command_line(&APPLETS), |applet| command_line([applet]));
    let mut matches = match tools.try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(refusal) => {
            // clap reports help and version as errors too, but with exit code 0.
            let stream: &mut dyn Write = if refusal.use_stderr() { err } else { out };
            // A write error cannot be reported anywhere.
            let _ = write!(stream, "{}", refusal.render());
            return if refusal.exit_code() == 0 { 0 } else { 2 };
        }
    };
    let (name, mut matches) = matches.remove_subcommand().expect("a subcommand should be required");
    let applet = Applet::find(name.as_ref()).expect("each subcommand should be an applet");
    let done = (applet.run)(&mut matches, out).and_then(|()| Ok(out.flush()?));
    report(done, applet.name, err)
}

/// Prints the reason why `applet` failed, and returns the exit status.
fn report(done: Result<(), Failure>, applet: &str, err: &mut dyn Write) -> u8 {
    let (status, messages) = match done {
        Ok(()) => return 0,
        Err(Failure::Output(error)) if error.kind() == ErrorKind::BrokenPipe => return 0,
        Err(Failure::Output(error)) => (1, vec![format!("cannot write the output: {error}")]),
        Err(Failure::Failed(messages)) => (1, messages),
        Err(Failure::Unavailable(message)) => (3, vec![message]),
    };
    for message in messages {
        // The message is written at once, so that lines of other programs do not interrupt it.
        let _ = err.write_all(format!("{PROGRAM} {applet}: {message}\n").as_bytes());
    }
    status
}

/// Converts `link ...`, a call by an applet's own name, into `rdmatools link ...`.
fn with_applet_first(mut args: Vec<OsString>) -> Vec<OsString> {
    let called = args.first().and_then(|program| Path::new(program).file_name());
    let Some(called) = called.map(OsString::from) else { return args };
    if Applet::find(&called).is_some() {
        args.splice(..1, [PROGRAM.into(), called]);
    }
    args
}

#[cfg(test)]
mod tests;
