//! The command line.
//!
//! | question | file |
//! |---|---|
//! | which commands and options are there? | `args.rs` |
//! | what is wrong with my manifest, and in which line? | `manifest.rs`, `lines.rs` |
//! | what does `apply` write? | `apply.rs`, `merge.rs` |
//! | what do the columns mean? | `columns.rs`, `table.rs` |
//! | which exit code? | `exit.rs` |
//! | what does `serve` print? | `serve.rs`, `live.rs` |
//! | how is a ledger saved, moved, measured? | `backup.rs`, `export.rs`, `import.rs`, `bench.rs` |
//! | what runs against Kubernetes, and what does that need? | `controller.rs`, `crds.rs`, `uninstall.rs` |
//! | how is a server asked? | `client.rs`, `follow.rs` |

mod apply;
mod args;
mod backup;
mod bench;
mod client;
mod columns;
#[cfg(feature = "kube")]
mod controller;
mod crds;
mod delete;
mod describe;
mod exit;
mod export;
mod folder;
mod follow;
mod get;
mod import;
mod lines;
mod live;
mod manifest;
mod merge;
mod output;
mod serve;
mod table;
mod target;
#[cfg(feature = "kube")]
mod uninstall;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
#[cfg(feature = "kube")]
use ipledger_core::runtime::BinderOptions;
use tracing_subscriber::EnvFilter;

pub use exit::Exit;

#[cfg(feature = "kube")]
use crate::kubernetes::Component;
use crate::ledger::Location;
use crate::serve::ServeOptions;
use args::{Bench, Cli, Command, DeleteArgs};
use client::Client;
use exit::CliError;
use manifest::Check;
use output::Terminal;
use target::Target;

/// Where a server is looked for if nobody says where.
const DEFAULT_SERVER: &str = "http://127.0.0.1:7440";
/// The ledger of `serve` if nobody says which.
const DEFAULT_DB: &str = "./ipledger.db";
/// Names another server.
const SERVER_ENV: &str = "IPLEDGER_SERVER";
/// What is logged to standard error, in the form of `RUST_LOG`; `warn` by default.
const LOG_ENV: &str = "IPLEDGER_LOG";

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    start_log();
    let mut terminal = Terminal::of_process(cli.command.wants_json());
    let only_prints = cli.command.only_prints();
    let runtime = match &cli.command {
        #[cfg(feature = "kube")]
        Command::Controller { .. } | Command::Driver { .. } => {
            tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .build()
        }
        Command::Serve(_) | Command::Bench { .. } => tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build(),
        _ => tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build(),
    };
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run(cli, &mut terminal)),
        Err(e) => Err(CliError::Output(e)),
    };
    match result {
        Ok(()) => Exit::Ok.into(),
        // The reader has seen enough, as in `ipledger get claims | head`.
        Err(CliError::Output(e)) if only_prints && e.kind() == std::io::ErrorKind::BrokenPipe => {
            Exit::Ok.into()
        }
        Err(error) => {
            terminal.error(&error);
            error.exit().into()
        }
    }
}

fn start_log() {
    let wanted = std::env::var(LOG_ENV).unwrap_or_default();
    let filter = match wanted.as_str() {
        "" => Ok(EnvFilter::new("warn")),
        text => EnvFilter::try_new(text),
    };
    let (filter, wrong) = match filter {
        Ok(filter) => (filter, None),
        Err(e) => (EnvFilter::new("warn"), Some(e)),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .init();
    if let Some(e) = wrong {
        tracing::warn!(
            "{LOG_ENV} is {wanted:?}, which cannot be used ({e}); write for example info"
        );
    }
}

async fn run(cli: Cli, terminal: &mut Terminal) -> Result<(), CliError> {
    let namespace = cli.namespace.as_str();
    if namespace.is_empty() {
        return Err(CliError::Usage(
            "the namespace is empty; write its name after -n, or leave -n out for `default`"
                .to_owned(),
        ));
    }
    let client = || {
        let server = cli
            .server
            .clone()
            .or_else(|| std::env::var(SERVER_ENV).ok().filter(|s| !s.is_empty()));
        Client::new(&server.unwrap_or_else(|| DEFAULT_SERVER.to_owned()))
    };
    match cli.command {
        Command::Serve(args) => {
            let db = args.db.unwrap_or_else(|| DEFAULT_DB.into());
            let options = ServeOptions {
                ledger: args.store.location()?.unwrap_or(Location::File(db)),
                listen: args.listen,
                name: args.name,
                binding: args.binding.into(),
            };
            serve::run(options, &args.apply, namespace, terminal).await
        }
        #[cfg(feature = "kube")]
        Command::Controller { binding, args } => {
            controller::run(Component::BindingCore, args, binding.into(), terminal).await
        }
        #[cfg(feature = "kube")]
        Command::Driver {
            which: args::Driver::Range(args),
        } => {
            controller::run(
                Component::RangeDriver,
                args,
                BinderOptions::default(),
                terminal,
            )
            .await
        }
        #[cfg(feature = "kube")]
        Command::Uninstall { check: _, cluster } => {
            uninstall::check(cluster.into(), terminal).await
        }
        Command::Get(args) => {
            let request = get::Request {
                target: target::target(&args.kind, args.name.as_deref(), namespace)?,
                namespace: (!args.all_namespaces).then(|| namespace.to_owned()),
                labels: args.selector,
                format: args.output,
                watch: args.watch,
            };
            get::run(&client()?, request, terminal).await
        }
        Command::Apply(args) => {
            apply::run(
                &client()?,
                &args.filename,
                namespace,
                args.dry_run,
                terminal,
            )
            .await
        }
        Command::Describe { kind, name } => {
            match target::target(&kind, name.as_deref(), namespace)? {
                Target::One(key) => describe::run(&client()?, &key, terminal).await,
                Target::All(kind) => Err(CliError::Usage(format!(
                    "which one? write `ipledger describe {} NAME`",
                    kind.singular()
                ))),
            }
        }
        Command::Delete(args) => delete_command(args, namespace, &client()?, terminal).await,
        Command::Backup { db, to } => backup::back_up(&db, &to, terminal).await,
        Command::Restore { from, to } => backup::recover(&from, &to, terminal).await,
        Command::Export { db, store, output } => {
            let source = match store.location()?.or(db.map(Location::File)) {
                Some(ledger) => export::Source::Ledger(ledger),
                None => export::Source::Server(client()?),
            };
            export::run(source, output.as_deref(), terminal).await
        }
        Command::Import {
            file,
            db,
            store,
            dry_run,
            accept_changes,
        } => {
            let to = store.location()?.or(db.map(Location::File));
            let to =
                to.ok_or_else(|| CliError::Usage("where to? write --db or --store".to_owned()))?;
            let request = import::Request {
                file: &file,
                to: &to,
                dry_run,
                accept_changes,
            };
            import::run(request, terminal).await
        }
        Command::Bench {
            what:
                Bench::Bind {
                    claims,
                    callers,
                    rate,
                    addresses,
                    spare,
                    #[cfg(feature = "kube")]
                    kubeconfig,
                    #[cfg(feature = "kube")]
                    context,
                },
        } => {
            let size = bench::BindSize {
                claims,
                callers,
                rate,
                source: addresses,
                spare,
            };
            #[cfg(feature = "kube")]
            if kubeconfig.is_some() {
                let cluster = ipledger_store_kube::Cluster {
                    kubeconfig,
                    context,
                };
                return bench::bind_in_cluster(cluster, namespace, size, terminal).await;
            }
            bench::bind(size, terminal).await
        }
        Command::Bench {
            what:
                Bench::Store {
                    writers,
                    writes,
                    dir,
                    store,
                },
        } => {
            let size = bench::StoreSize {
                writers,
                writes,
                folder: dir.unwrap_or_else(std::env::temp_dir),
            };
            bench::store(store.location()?, &size, terminal).await
        }
        Command::Crds => crds::run(terminal),
        Command::Version => terminal.line(&format!("ipledger {}", env!("CARGO_PKG_VERSION"))),
    }
}

async fn delete_command(
    args: DeleteArgs,
    namespace: &str,
    client: &Client,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    let wait = args.wait.then(|| Duration::from_secs(args.timeout));
    let mut keys = Vec::new();
    let mut exit = Exit::Ok;
    if let Some(kind) = &args.kind {
        match target::target(kind, args.name.as_deref(), namespace)? {
            Target::One(key) => keys.push(key),
            Target::All(kind) => {
                let text = format!(
                    "which one? write `ipledger delete {} NAME`",
                    kind.singular()
                );
                return Err(CliError::Usage(text));
            }
        }
    }
    for document in manifest::load(&args.filename, namespace, Check::Identity) {
        match document {
            Ok(document) => keys.push(document.object.key()),
            Err(e) => {
                terminal.error(&CliError::Manifest(e));
                exit = Exit::Usage;
            }
        }
    }
    // What is written last leans on what is written first.
    keys.reverse();
    let deleted = delete::run(client, &keys, wait, terminal).await;
    match exit {
        Exit::Ok => deleted,
        exit => Err(CliError::Reported(exit)),
    }
}

#[cfg(test)]
mod tests;
