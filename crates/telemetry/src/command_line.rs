//! The command line: read by clap, refused in one line.

use std::{ffi::OsString, process::ExitCode};

use clap::{Parser, error::ErrorKind};

/// Exit status for a command line that cannot be used.
const UNUSABLE: u8 = 2;

/// Reads a command line. Otherwise the process is to end with that status: after help or the version, or after one line on
/// stderr that names the flag and the remedy.
pub fn read<P: Parser>(words: impl IntoIterator<Item = OsString>) -> Result<P, ExitCode> {
    P::try_parse_from(words).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // nobody is left to be told that it cannot be written
            let _ = error.print();
            ExitCode::from(error.exit_code() as u8)
        }
        _ => {
            eprintln!("{}: {}", P::command().get_name(), one_line(&error));
            ExitCode::from(UNUSABLE)
        }
    })
}

/// What clap says in paragraphs, in one line without the usage.
pub fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let paragraphs = text.split("\n\n").filter_map(|paragraph| {
        let words: Vec<_> = paragraph.split_whitespace().collect();
        let line = words.join(" ");
        if line.is_empty() || line.starts_with("Usage:") {
            return None;
        }
        if line.starts_with("For more information") {
            return Some("see --help".to_owned());
        }
        let line = line.strip_prefix("error: ").unwrap_or(&line);
        Some(line.strip_prefix("tip: ").unwrap_or(line).to_owned())
    });
    paragraphs.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tool.
    #[derive(Debug, Parser)]
    #[command(name = "tool", version)]
    struct Tool {
        #[arg(long)]
        target: String,
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=9))]
        count: u8,
        #[arg(long, value_parser = ["fast", "slow"])]
        pace: Option<String>,
    }

    fn refused(line: &str) -> String {
        let words = std::iter::once("tool").chain(line.split('|').filter(|word| !word.is_empty()));
        one_line(&Tool::try_parse_from(words).unwrap_err())
    }

    #[test]
    fn a_bad_command_line_is_one_line_with_the_flag_and_the_remedy() {
        for (line, said) in [
            (
                "",
                "the following required arguments were not provided: --target <TARGET>; see --help",
            ),
            (
                "--target|a|--cuont|3",
                "unexpected argument '--cuont' found; a similar argument exists: '--count'; see --help",
            ),
            (
                "--target|a|--count|0",
                "invalid value '0' for '--count <COUNT>': 0 is not in 1..=9; see --help",
            ),
            (
                "--target|a|--pace|slov",
                "invalid value 'slov' for '--pace <PACE>' [possible values: fast, slow]; a similar value exists: 'slow'; see --help",
            ),
            (
                "--target|a|--count|1\n2",
                "invalid value '1 2' for '--count <COUNT>': invalid digit found in string; see --help",
            ),
        ] {
            assert_eq!(refused(line), said);
        }
    }

    #[test]
    fn help_and_version_are_no_mistakes() {
        let read = |word: &str| read::<Tool>(["tool", word].map(OsString::from)).unwrap_err();
        assert_eq!(
            format!("{:?}", read("--help")),
            format!("{:?}", ExitCode::SUCCESS)
        );
        assert_eq!(
            format!("{:?}", read("--version")),
            format!("{:?}", ExitCode::SUCCESS)
        );
        assert_eq!(
            format!("{:?}", read("--nonsense")),
            format!("{:?}", ExitCode::from(UNUSABLE))
        );
    }
}
