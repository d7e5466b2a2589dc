//! Which commands and options there are.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, value_parser};
use ipledger_core::runtime::BinderOptions;

use super::bench;
use super::exit::CliError;
use super::output::{Format, ReportFormat};
#[cfg(feature = "kube")]
use crate::kubernetes::LeaseName;
use crate::ledger::{EtcdLocation, Location};

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
    /// Run the binding core against a Kubernetes API
    #[cfg(feature = "kube")]
    Controller {
        #[command(flatten)]
        binding: BindingArgs,
        #[command(flatten)]
        args: ControllerArgs,
    },
    /// Run a driver against a Kubernetes API
    #[cfg(feature = "kube")]
    Driver {
        #[command(subcommand)]
        which: Driver,
    },
    /// Look what would hold up an uninstallation from a Kubernetes cluster
    #[cfg(feature = "kube")]
    Uninstall {
        /// List the objects that hold finalizers; exit code 10 if there are any
        #[arg(long, required = true)]
        check: bool,
        #[command(flatten)]
        cluster: ClusterArgs,
    },
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
    /// Copy a ledger file, which may be in use
    Backup {
        /// The ledger
        #[arg(long, value_name = "FILE", default_value = "./ipledger.db")]
        db: PathBuf,
        /// The new file
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
    /// Make a ledger file from a backup
    Restore {
        /// The backup, or any other copy of a ledger
        #[arg(long, value_name = "FILE")]
        from: PathBuf,
        /// The new ledger
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
    /// Write all objects as lines of JSON
    Export {
        /// The ledger file, instead of a server
        #[arg(long, value_name = "FILE", conflicts_with_all = ["server", "store"])]
        db: Option<PathBuf>,
        #[command(flatten)]
        store: StoreArgs,
        /// The new file; standard output without it
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Make a ledger from an export; addresses stay with their claims
    Import {
        /// The export
        file: PathBuf,
        /// The new ledger file
        #[arg(
            long,
            value_name = "FILE",
            conflicts_with = "store",
            required_unless_present = "store"
        )]
        db: Option<PathBuf>,
        #[command(flatten)]
        store: StoreArgs,
        /// Only check the file
        #[arg(long)]
        dry_run: bool,
        /// Import also what the core will change, because the export is not complete
        #[arg(long)]
        accept_changes: bool,
    },
    /// Measure this machine on a throw-away ledger
    Bench {
        #[command(subcommand)]
        what: Bench,
    },
    /// Print the CustomResourceDefinitions for Kubernetes: ipledger crds | kubectl apply -f -
    Crds,
    /// Show the version of this program
    Version,
}

#[cfg(feature = "kube")]
#[derive(Debug, Subcommand)]
pub(super) enum Driver {
    /// Hands out addresses of the ranges in the parameters of its classes
    Range(ControllerArgs),
}

/// Which Kubernetes cluster.
#[cfg(feature = "kube")]
#[derive(Debug, Args)]
pub(super) struct ClusterArgs {
    /// The kubeconfig [default: $KUBECONFIG, ~/.kube/config, or the service account of the pod]
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// A context of it, instead of its current one
    #[arg(long, value_name = "NAME")]
    pub(super) context: Option<String>,
}

#[cfg(feature = "kube")]
impl From<ClusterArgs> for ipledger_store_kube::Cluster {
    fn from(args: ClusterArgs) -> Self {
        ipledger_store_kube::Cluster {
            kubeconfig: args.kubeconfig,
            context: args.context,
        }
    }
}

/// How a controller runs against a Kubernetes cluster. The last of a repeated option counts: what the
/// chart is given as further arguments comes behind its own.
#[cfg(feature = "kube")]
#[derive(Debug, Args)]
pub(super) struct ControllerArgs {
    #[command(flatten)]
    pub(super) cluster: ClusterArgs,
    /// Where to serve /livez, /readyz and /metrics
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8080",
        overrides_with = "listen"
    )]
    pub(super) listen: SocketAddr,
    /// Work only while holding this Lease, of which several processes can be given the same one
    #[arg(long, value_name = "NAMESPACE/NAME", overrides_with = "lease")]
    pub(super) lease: Option<LeaseName>,
    /// How long a lease must not have been renewed before another process takes it
    #[arg(long, value_name = "DURATION", default_value = "15s", requires = "lease",
        overrides_with = "lease_duration", value_parser = lease_duration)]
    pub(super) lease_duration: Duration,
}

#[cfg(feature = "kube")]
fn lease_duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|e| e.to_string())?;
    let right = (1..=3600).contains(&duration.as_secs()) && duration.subsec_nanos() == 0;
    right
        .then_some(duration)
        .ok_or_else(|| "write whole seconds from 1s to 1h".to_owned())
}

#[derive(Debug, Subcommand)]
pub(super) enum Bench {
    /// Bind claims through the API
    Bind {
        /// Claims to bind
        #[arg(long, default_value_t = 1_000, value_parser = value_parser!(u32).range(1..=1_000_000))]
        claims: u32,
        /// Callers that create them at once
        #[arg(long, default_value_t = 16, value_parser = value_parser!(u32).range(1..=1_024))]
        callers: u32,
        /// How many a second they create, instead of as many as they can
        #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
        rate: Option<u32>,
        /// Where the addresses come from
        #[arg(long, value_enum, default_value = "range")]
        addresses: bench::Source,
        /// Free addresses of another class besides
        #[arg(long, default_value_t = 0, value_parser = value_parser!(u32).range(..=10_000_000))]
        spare: u32,
        /// Bind in the Kubernetes cluster of this kubeconfig, where no binding core may be at work
        #[cfg(feature = "kube")]
        #[arg(long, value_name = "FILE")]
        kubeconfig: Option<PathBuf>,
        /// A context of it, instead of its current one
        #[cfg(feature = "kube")]
        #[arg(long, value_name = "NAME", requires = "kubeconfig")]
        context: Option<String>,
    },
    /// Write to the store and watch it, without API and controllers
    Store {
        /// Callers that write at once; a measurement for each number
        #[arg(
            long,
            value_name = "N,...",
            value_delimiter = ',',
            default_value = "1,8,64,256"
        )]
        writers: Vec<usize>,
        /// Objects to create, and then to update, in each measurement
        #[arg(long, value_name = "N", default_value_t = 5_000)]
        writes: usize,
        /// Where the throw-away ledgers are, because it decides about the speed [default: the folder
        /// for temporary files]
        #[arg(long, value_name = "FOLDER")]
        dir: Option<PathBuf>,
        #[command(flatten)]
        store: StoreArgs,
    },
}

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// The ledger: an SQLite file, made if it is not there [default: ./ipledger.db]
    #[arg(long, value_name = "FILE", conflicts_with = "store")]
    pub(super) db: Option<PathBuf>,
    #[command(flatten)]
    pub(super) store: StoreArgs,
    /// The name of this server among those of one ledger in etcd, of which each needs its own
    /// [default: host and address]
    #[arg(long, value_name = "NAME", value_parser = server_name)]
    pub(super) name: Option<String>,
    /// Where to listen; only on this machine, because there is no authentication yet
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7440")]
    pub(super) listen: SocketAddr,
    /// Apply manifests after the start and show what becomes of their claims (may be repeated)
    #[arg(long, value_name = "FILE")]
    pub(super) apply: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) binding: BindingArgs,
}

/// A name stands in logs, in messages and as a value in etcd.
fn server_name(text: &str) -> Result<String, String> {
    let fits = (1..=253).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    fits.then(|| text.to_owned())
        .ok_or_else(|| "write 1 to 253 ASCII characters without spaces, such as node-a".to_owned())
}

/// How a binding core binds.
#[derive(Debug, Args)]
pub(super) struct BindingArgs {
    /// How long an address with policy Delete that is kept for a claim by its name alone waits for that
    /// claim to be created, before it is deleted; 0s for ever
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = humantime::parse_duration)]
    prebound_grace: Duration,
}

impl From<BindingArgs> for BinderOptions {
    fn from(args: BindingArgs) -> BinderOptions {
        BinderOptions {
            grace: args.prebound_grace,
            ..BinderOptions::default()
        }
    }
}

/// A ledger that is in no file, and how it is reached.
#[derive(Debug, Args)]
pub(super) struct StoreArgs {
    /// The ledger in etcd: etcd://HOST:PORT[,HOST:PORT...]/PREFIX, or etcds:// for TLS
    #[arg(long, value_name = "URL", conflicts_with = "server")]
    store: Option<String>,
    /// Who signs the certificates of the store's members, in PEM form [default: whom the system trusts]
    #[arg(long, value_name = "FILE", requires = "store")]
    store_ca: Option<PathBuf>,
    /// Our own certificate for the store, in PEM form
    #[arg(long, value_name = "FILE", requires_all = ["store", "store_key"])]
    store_cert: Option<PathBuf>,
    /// Its private key
    #[arg(long, value_name = "FILE", requires_all = ["store", "store_cert"])]
    store_key: Option<PathBuf>,
    /// The user of the store; the password is in a file or in IPLEDGER_STORE_PASSWORD
    #[arg(long, value_name = "NAME", requires = "store")]
    store_user: Option<String>,
    /// The file with the user's password
    #[arg(long, value_name = "FILE", requires = "store_user")]
    store_password_file: Option<PathBuf>,
}

impl StoreArgs {
    /// Where that is; nothing if it is not said.
    ///
    /// # Errors
    /// `Usage`: there is no such store.
    pub(super) fn location(self) -> Result<Option<Location>, CliError> {
        let Some(url) = self.store else {
            return Ok(None);
        };
        if let Some(path) = url.strip_prefix("sqlite://").filter(|p| !p.is_empty()) {
            return Ok(Some(Location::File(path.into())));
        }
        if !["etcd://", "etcds://"].iter().any(|s| url.starts_with(s)) {
            // A password is not shown again.
            let shown = url.rsplit_once('@');
            let shown = shown.map_or_else(|| url.clone(), |(_, rest)| format!("...@{rest}"));
            return Err(CliError::Usage(format!(
                "--store {shown}: there is no such store; write etcd://HOST:PORT[,HOST:PORT...]/PREFIX \
                 (etcds:// for TLS), or sqlite:///FOLDER/FILE"
            )));
        }
        Ok(Some(Location::Etcd(EtcdLocation {
            url,
            ca: self.store_ca,
            identity: self.store_cert.zip(self.store_key),
            user: self.store_user,
            password_file: self.store_password_file,
        })))
    }
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
    /// Whether the command does nothing but print, so that nothing is lost when its reader goes.
    pub(super) fn only_prints(&self) -> bool {
        match self {
            Command::Get(_) | Command::Describe { .. } | Command::Crds | Command::Version => true,
            #[cfg(feature = "kube")]
            Command::Controller { .. } | Command::Driver { .. } | Command::Uninstall { .. } => {
                false
            }
            Command::Serve(_)
            | Command::Apply(_)
            | Command::Delete(_)
            | Command::Backup { .. }
            | Command::Restore { .. }
            | Command::Export { .. }
            | Command::Import { .. }
            | Command::Bench { .. } => false,
        }
    }

    /// Whether errors and reports are to be JSON.
    pub(super) fn wants_json(&self) -> bool {
        match self {
            Command::Get(args) => args.output == Format::Json,
            Command::Apply(args) => args.output == ReportFormat::Json,
            Command::Delete(args) => args.output == ReportFormat::Json,
            #[cfg(feature = "kube")]
            Command::Controller { .. } | Command::Driver { .. } | Command::Uninstall { .. } => {
                false
            }
            Command::Serve(_)
            | Command::Describe { .. }
            | Command::Backup { .. }
            | Command::Restore { .. }
            | Command::Export { .. }
            | Command::Import { .. }
            | Command::Bench { .. }
            | Command::Crds
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
            "ipledger backup",
            "ipledger restore --from a.db",
            "ipledger export --db a.db --server http://127.0.0.1:1",
            "ipledger import a.jsonl",
            "ipledger import a.jsonl --db b.db --store etcd://127.0.0.1:1/x",
            "ipledger export --db b.db --store etcd://127.0.0.1:1/x",
            "ipledger export --server http://127.0.0.1:1 --store etcd://127.0.0.1:1/x",
            "ipledger serve --db b.db --store etcd://127.0.0.1:1/x",
            "ipledger serve --store-user u",
            "ipledger serve --name ",
            "ipledger serve --name a\tb",
            "ipledger serve --store etcd://127.0.0.1:1/x --store-cert c.pem",
            "ipledger serve --store etcd://127.0.0.1:1/x --store-password-file p",
            "ipledger bench bind --claims 0",
            "ipledger bench bind --claims 1000001",
            "ipledger bench bind --callers 0",
            "ipledger bench bind --callers 1025",
        ] {
            let e = Cli::try_parse_from(words.split(' ')).unwrap_err();
            let help = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
            assert!(e.exit_code() == 2 || e.kind() == help, "{words}: {e}");
        }
    }

    #[test]
    fn a_store_is_named_by_its_url() {
        let location = |url: &str| {
            let words = ["ipledger", "serve", "--store", url];
            match Cli::try_parse_from(words).unwrap().command {
                Command::Serve(args) => args.store.location(),
                other => panic!("{other:?}"),
            }
        };
        let file = location("sqlite:///a/b.db").unwrap();
        assert_eq!(file, Some(Location::File("/a/b.db".into())));
        let etcd = location("etcds://a:1/x").unwrap();
        assert!(matches!(etcd, Some(Location::Etcd(e)) if e.url == "etcds://a:1/x"));
        for bad in ["/a/b.db", "http://a:1/x", "sqlite://", ""] {
            let e = location(bad).unwrap_err().to_string();
            assert!(e.contains("etcd://HOST:PORT"), "{bad}: {e}");
        }
    }

    #[test]
    fn the_documented_commands_are_understood() {
        for words in [
            "ipledger serve --db l.db --listen 127.0.0.1:0 --apply a.yaml --apply b.yaml",
            "ipledger serve --store etcds://a:1,b:1/x --store-ca a --store-cert b --store-key c --name a",
            "ipledger serve --store etcd://a:1/x --store-user u --store-password-file p",
            "ipledger export --store etcd://a:1/x -o a.jsonl",
            "ipledger import a.jsonl --store etcd://a:1/x --dry-run",
            "ipledger bench store --store etcd://a:1/x",
            "ipledger get claims -A -o wide --watch",
            "ipledger get claim web -n team-a -o json",
            "ipledger --server http://127.0.0.1:1 get addresses -l a=b",
            "ipledger apply -f - --dry-run",
            "ipledger apply -f a.yaml -f b.yaml -o json",
            "ipledger delete claim web --wait --timeout 5",
            "ipledger delete -f a.yaml",
            "ipledger backup --to b.db",
            "ipledger backup --db a.db --to b.db",
            "ipledger restore --from b.db --to c.db",
            "ipledger export",
            "ipledger export --db a.db -o a.jsonl",
            "ipledger import a.jsonl --db b.db --dry-run",
            "ipledger import a.jsonl --db b.db --accept-changes",
            "ipledger describe address 192.0.2.1",
            "ipledger bench bind --claims 10",
            "ipledger bench store --writers 1,64 --writes 100 --dir .",
            "ipledger version",
        ] {
            if let Err(e) = Cli::try_parse_from(words.split(' ')) {
                panic!("{words}: {e}");
            }
        }
    }

    #[cfg(feature = "kube")]
    #[test]
    fn a_controller_is_told_where_it_listens_and_which_lease_it_needs() {
        // As the chart writes it, with what an operator adds.
        let words = "ipledger driver range --listen 192.0.2.7:1 --lease x/y --lease-duration 9s \
                     --listen [::]:8080 --lease a/b --lease-duration 15s";
        match Cli::try_parse_from(words.split_whitespace())
            .unwrap()
            .command
        {
            Command::Driver {
                which: Driver::Range(args),
            } => {
                assert!(args.listen.ip().is_unspecified() && args.listen.is_ipv6());
                assert_eq!(args.lease, Some("a/b".parse().unwrap()));
                assert_eq!(args.lease_duration, Duration::from_secs(15));
            }
            other => panic!("{other:?}"),
        }
        for words in ["controller", "uninstall --check --kubeconfig x"] {
            let words = format!("ipledger {words}");
            Cli::try_parse_from(words.split(' ')).unwrap();
        }
        for words in [
            "controller --lease core",
            "controller --lease-duration 15s",
            "controller --lease a/b --lease-duration 100ms",
            "controller --lease a/b --lease-duration 1500ms",
            "controller --lease a/b --lease-duration 2h",
            "uninstall",
        ] {
            let words = format!("ipledger {words}");
            assert!(Cli::try_parse_from(words.split(' ')).is_err(), "{words}");
        }
    }
}
