//! Which commands and options there are.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::bench;
use super::output::{Format, ReportFormat};

/// Keeps the ledger of IP addresses.
#[derive(Debug, Parser)]
#[command(name = "ipledger", version, about, max_term_width = 100)]
pub(super) struct Cli {
    /// The server to ask [env: IPLEDGER_SERVER] [default: http://127.0.0.1:7440]
    #[arg(long, global = true, value_name = "URL")]
    pub(super) server: Option<String>,
    /// The namespace of claims that name none
    #[arg(
        short,
        long,
        global = true,
        value_name = "NAME",
        default_value = "default"
    )]
    pub(super) namespace: String,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run a ledger: API, controllers and the range driver in one process
    Serve(ServeArgs),
    /// Show objects
    Get(GetArgs),
    /// Make objects as manifests say
    Apply(ApplyArgs),
    /// Delete objects
    Delete(DeleteArgs),
    /// Show one object with everything that explains it
    Describe {
        /// classes, addresses or claims, in any form, or KIND/NAME
        kind: String,
        /// The object; an address may be named by its IP in any spelling
        name: Option<String>,
    },
    /// Measure this machine on a throw-away ledger
    Bench {
        #[command(subcommand)]
        what: Bench,
    },
    /// Show the version of this program
    Version,
}

#[derive(Debug, Subcommand)]
pub(super) enum Bench {
    /// Bind claims through the API
    Bind {
        /// Claims to bind
        #[arg(long, default_value_t = 1_000)]
        claims: u32,
        /// Callers that create them at once
        #[arg(long, default_value_t = 16)]
        callers: u32,
        /// Where the addresses come from
        #[arg(long, value_enum, default_value = "range")]
        addresses: bench::Source,
    },
}

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// The ledger: an SQLite file, made if it is not there
    #[arg(long, value_name = "FILE", default_value = "./ipledger.db")]
    pub(super) db: PathBuf,
    /// Where to listen; only on this machine, because there is no authentication yet
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7440")]
    pub(super) listen: SocketAddr,
    /// Apply manifests after the start and show what becomes of their claims (may be repeated)
    #[arg(long, value_name = "FILE")]
    pub(super) apply: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct GetArgs {
    /// classes, addresses or claims, in any form, or KIND/NAME
    pub(super) kind: String,
    /// The object; an address may be named by its IP in any spelling
    pub(super) name: Option<String>,
    /// Show claims of all namespaces
    #[arg(short = 'A', long)]
    pub(super) all_namespaces: bool,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    pub(super) output: Format,
    /// Only objects with these labels, for example team=a,tier!=test
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "name")]
    pub(super) selector: Option<String>,
    /// Go on printing changes
    #[arg(short, long)]
    pub(super) watch: bool,
}

#[derive(Debug, Args)]
pub(super) struct ApplyArgs {
    /// Manifests, - for standard input (may be repeated)
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    pub(super) filename: Vec<PathBuf>,
    /// Only say what would be done
    #[arg(long)]
    pub(super) dry_run: bool,
    /// How to report
    #[arg(short, long, value_enum, default_value_t)]
    pub(super) output: ReportFormat,
}

#[derive(Debug, Args)]
pub(super) struct DeleteArgs {
    /// classes, addresses or claims, in any form, or KIND/NAME
    #[arg(required_unless_present = "filename", conflicts_with = "filename")]
    pub(super) kind: Option<String>,
    /// The object; an address may be named by its IP in any spelling
    #[arg(conflicts_with = "filename")]
    pub(super) name: Option<String>,
    /// Delete the objects of manifests, - for standard input (may be repeated)
    #[arg(short, long, value_name = "FILE")]
    pub(super) filename: Vec<PathBuf>,
    /// Wait until the objects are gone
    #[arg(long)]
    pub(super) wait: bool,
    /// How long to wait, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "wait")]
    pub(super) timeout: u64,
    /// How to report
    #[arg(short, long, value_enum, default_value_t)]
    pub(super) output: ReportFormat,
}

impl Command {
    /// Whether errors and reports are to be JSON.
    pub(super) fn wants_json(&self) -> bool {
        match self {
            Command::Get(args) => args.output == Format::Json,
            Command::Apply(args) => args.output == ReportFormat::Json,
            Command::Delete(args) => args.output == ReportFormat::Json,
            Command::Serve(_)
            | Command::Describe { .. }
            | Command::Bench { .. }
            | Command::Version => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_is_missing_or_does_not_go_together_is_a_usage_error() {
        for words in [
            "ipledger",
            "ipledger get",
            "ipledger apply",
            "ipledger delete",
            "ipledger delete claim web -f x.yaml",
            "ipledger delete claim web --timeout 5",
            "ipledger get claims web -l a=b",
            "ipledger serve --listen nowhere",
        ] {
            let e = Cli::try_parse_from(words.split(' ')).unwrap_err();
            let help = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
            assert!(e.exit_code() == 2 || e.kind() == help, "{words}: {e}");
        }
    }

    #[test]
    fn the_documented_commands_are_understood() {
        for words in [
            "ipledger serve --db l.db --listen 127.0.0.1:0 --apply a.yaml --apply b.yaml",
            "ipledger get claims -A -o wide --watch",
            "ipledger get claim web -n team-a -o json",
            "ipledger --server http://127.0.0.1:1 get addresses -l a=b",
            "ipledger apply -f - --dry-run",
            "ipledger apply -f a.yaml -f b.yaml -o json",
            "ipledger delete claim web --wait --timeout 5",
            "ipledger delete -f a.yaml",
            "ipledger describe address 192.0.2.1",
            "ipledger version",
        ] {
            if let Err(e) = Cli::try_parse_from(words.split(' ')) {
                panic!("{words}: {e}");
            }
        }
    }
}
