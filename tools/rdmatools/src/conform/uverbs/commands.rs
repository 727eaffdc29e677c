//! The write commands of uverbs, as used by the checks.

mod extended;
mod plain;

use self::extended::EXTENDED;
use self::plain::PLAIN;
use super::command::Command;

/// Returns every used write command, and some unused numbers.
pub(super) fn commands() -> impl Iterator<Item = &'static Command> {
    PLAIN.iter().chain(EXTENDED)
}

#[cfg(test)]
mod tests;
