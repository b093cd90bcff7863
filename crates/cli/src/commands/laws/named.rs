//! The option `--device`, and whether it was given.

use clap::error::Error;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, FromArgMatches, Id};

use crate::device::DeviceArgs;

/// Beside families the device is used only when it was asked for; a default value does not say which it was.
#[derive(Clone, Debug)]
pub(super) struct Named {
    /// The option.
    pub(super) args: DeviceArgs,
    /// Whether it was given.
    pub(super) given: bool,
}

impl clap::Args for Named {
    fn group_id() -> Option<Id> {
        DeviceArgs::group_id()
    }

    fn augment_args(command: Command) -> Command {
        DeviceArgs::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        DeviceArgs::augment_args_for_update(command)
    }
}

impl FromArgMatches for Named {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = matches.value_source("device") == Some(ValueSource::CommandLine);
        Ok(Self { args: DeviceArgs::from_arg_matches(matches)?, given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.given |= matches.value_source("device") == Some(ValueSource::CommandLine);
        self.args.update_from_arg_matches(matches)
    }
}
