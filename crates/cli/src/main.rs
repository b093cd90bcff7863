//! The command line of Seam: `demo`, `ask`, `eval`, `check`, `laws`, `bench`, `doctor`.
//!
//! Reports go to standard output, everything else (progress, the choice of device, warnings, errors) to standard error.
//! With `--json` standard output is one JSON document.

#![forbid(unsafe_code)]

mod commands;
mod device;
mod evalset;
mod locate;
mod reference;
mod report;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use commands::Verdict;

/// Position-independent caching for hybrid linear-attention language models.
///
/// Segments of a prompt (system text, documents, question) are each computed once, alone, and spliced into any prompt
/// at any position. `seam demo` shows it.
#[derive(Debug, Parser)]
#[command(name = "seam", version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(commands::demo::Args),
    Ask(commands::ask::Args),
    Eval(commands::eval::Args),
    Check(commands::check::Args),
    Laws(commands::laws::Args),
    Bench(commands::bench::Args),
    Doctor(commands::doctor::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo(args) => commands::demo::run(&args),
        Command::Ask(args) => commands::ask::run(&args),
        Command::Eval(args) => commands::eval::run(&args),
        Command::Check(args) => commands::check::run(&args),
        Command::Laws(args) => commands::laws::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Doctor(args) => commands::doctor::run(&args),
    };
    match result {
        Ok(Verdict::Passed) => ExitCode::SUCCESS,
        Ok(Verdict::Failed) => ExitCode::FAILURE,
        // `seam … | head`: the reader has seen enough.
        Err(error) if report::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            report::note(&report::chain(&error));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_grammar_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn usage_errors_name_the_thing() {
        let message = |args: &[&str]| {
            let args = std::iter::once("seam").chain(args.iter().copied());
            Cli::try_parse_from(args).expect_err("a usage error").to_string()
        };
        let ask = ["ask", "--model", "m", "--doc", "d", "--question"];
        assert!(message(&[&ask[..], &["q", "--mode", "replay"]].concat()).contains("unknown mode \"replay\""));
        assert!(message(&[&ask[..], &["  "]].concat()).contains("the question is empty"));
        assert!(message(&["laws", "--device", "gpu"]).contains("unknown device \"gpu\""));
        assert!(message(&["eval", "--model", "m", "--set", "s", "--seams", "8,x"]).contains("'x'"));
        assert!(message(&["laws", "--cases", "0"]).contains("--cases"));
        assert!(message(&["bench", "kernels", "--size", "huge"]).contains("small, real"));
        assert!(message(&["bench", "kernels", "--repeats", "0"]).contains("--repeats"));
    }

    #[test]
    fn lists_are_comma_separated() {
        let args = ["seam", "eval", "--model", "m", "--set", "s", "--modes", "addition,last-state", "--seams", "0,8"];
        let Command::Eval(eval) = Cli::try_parse_from(args).unwrap().command else { panic!("not eval") };
        assert_eq!((eval.modes.len(), eval.seams), (2, vec![0, 8]));
    }
}
