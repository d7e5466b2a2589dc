//! `ipledger bench bind`: claims through the API, until all are bound.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use futures::StreamExt;
use ipledger_core::api::{
    AddressPhase, AddressSource, ClaimPhase, Extra, IPAddress, IPAddressClaim, IPAddressClass,
    Kind, Object, ReclaimPolicy, Resource, ResourceSpec,
};
use ipledger_core::net::{Family, Ip};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cli::client::{Client, ClientError, Scope, WatchItem};
use crate::cli::exit::CliError;
use crate::cli::folder::Folder;
use crate::cli::output::Terminal;
use crate::ledger::Location;
use crate::serve::{Counts, ServeOptions, Server};

const CLASS: &str = "bench";
const NAMESPACE: &str = "bench";
/// A run that has not come to its end by then is given up.
const PATIENCE: Duration = Duration::from_secs(600);

/// Where the addresses of the claims come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Source {
    /// The range driver carves them out of a class.
    Range,
    /// They were made by hand before.
    Static,
}

/// The size of a run.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct BindSize {
    /// Claims to create.
    pub(in crate::cli) claims: u32,
    /// Callers that create them at once.
    pub(in crate::cli) callers: u32,
    /// Where their addresses come from.
    pub(in crate::cli) source: Source,
}

/// Creates claims through the API of a ledger of its own and waits until all are bound.
///
/// # Errors
/// The server cannot start; a request failed; the claims are not all bound in time.
pub(in crate::cli) async fn bind(size: BindSize, terminal: &mut Terminal) -> Result<(), CliError> {
    let folder = Folder::new("bench")?;
    let server = Server::start(&ServeOptions {
        ledger: Location::File(folder.path().join("bench.db")),
        listen: ([127, 0, 0, 1], 0).into(),
        name: None,
    })
    .await?;
    let client = Client::new(&format!("http://{}", server.address()))?;
    let report = tokio::time::timeout(PATIENCE, run(size, &server, &client)).await;
    let stopped = server.stop().await;
    let report = report.map_err(|_| {
        CliError::TimeOut(format!("not all claims were bound within {PATIENCE:?}"))
    })??;
    stopped?;
    terminal.print(&report)?;
    Ok(())
}

async fn run(size: BindSize, server: &Server, client: &Client) -> Result<String, CliError> {
    let class = IPAddressClass {
        spec: ipledger_core::api::IPAddressClassSpec {
            provisioner: match size.source {
                Source::Range => ipledger_drivers::range::NAME.to_owned(),
                Source::Static => "example.com/none".to_owned(),
            },
            reclaim_policy: ReclaimPolicy::Delete,
            parameters: Some(json!({"addresses": ["10.0.0.0/8"]})),
            extra: Extra::new(),
        },
        ..named(CLASS, "")
    };
    client.create(&object(&class)?, false).await?;
    if size.source == Source::Static {
        make_addresses(size, client).await?;
    }
    let before = server.counts();
    let scope = Scope {
        namespace: Some(NAMESPACE.to_owned()),
        ..Scope::default()
    };
    let version = client.list(Kind::IPAddressClaim, &scope).await?.version;
    let mut watch = client.watch(Kind::IPAddressClaim, &scope, &version).await?;
    let start = Instant::now();
    let created = create_all(size, client, |n| {
        let mut claim: IPAddressClaim = named(&format!("claim-{n:07}"), NAMESPACE);
        claim.spec.class_name = CLASS.to_owned();
        object(&claim)
    });
    let mut bound: BTreeMap<String, Instant> = BTreeMap::new();
    let all_bound = async {
        while bound.len() < size.claims as usize {
            let Some(item) = watch.next().await else {
                return Err(CliError::TimeOut(
                    "the watch of the claims ended early".to_owned(),
                ));
            };
            if let WatchItem::Applied(object) = item?
                && let Ok(claim) = IPAddressClaim::from_object(&object)
                && claim.phase() == Some(ClaimPhase::Bound)
            {
                bound
                    .entry(claim.metadata.name)
                    .or_insert_with(Instant::now);
            }
        }
        Ok(start.elapsed())
    };
    let (created, took) = tokio::try_join!(created, all_bound)?;
    let mut latencies: Vec<Duration> = created
        .iter()
        .filter_map(|(name, sent)| Some(bound.get(name)?.saturating_duration_since(*sent)))
        .collect();
    latencies.sort();
    // The stamp of the last claims comes after they are bound.
    let after = server.counts_at_rest().await;
    Ok(table(size, took, &latencies, before, after))
}

/// Makes the addresses of a static run and waits until all can be bound.
async fn make_addresses(size: BindSize, client: &Client) -> Result<(), CliError> {
    let first = u128::from(u32::from_be_bytes([10, 0, 0, 1]));
    create_all(size, client, |n| {
        let ip = Ip::from_number(Family::V4, first + u128::from(n));
        let ip = ip.ok_or_else(|| CliError::Usage("too many claims for 10.0.0.0/8".to_owned()))?;
        let mut address: IPAddress = named(&ip.object_name(), "");
        address.spec.address = ip.to_string();
        address.spec.class_name = CLASS.to_owned();
        address.spec.source = Some(AddressSource {
            from_class: Some(Extra::new()),
            ..AddressSource::default()
        });
        object(&address)
    })
    .await?;
    loop {
        let list = client.list(Kind::IPAddress, &Scope::default()).await?;
        let available = |o: &Object| {
            IPAddress::from_object(o).is_ok_and(|a| a.phase() == Some(AddressPhase::Available))
        };
        if list.items.iter().all(available) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Creates objects by their number, several callers at once; when each was sent, by name.
async fn create_all(
    size: BindSize,
    client: &Client,
    make: impl Fn(u32) -> Result<Object, CliError>,
) -> Result<Vec<(String, Instant)>, CliError> {
    let objects: Vec<Object> = (0..size.claims).map(make).collect::<Result<_, _>>()?;
    let objects = Arc::new(objects);
    let next = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let mut callers = JoinSet::new();
    for _ in 0..size.callers.max(1) {
        let (client, objects, next) = (client.clone(), Arc::clone(&objects), Arc::clone(&next));
        callers.spawn(async move {
            let mut sent = Vec::new();
            while let Some(object) =
                objects.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
            {
                let at = Instant::now();
                client.create(object, false).await?;
                sent.push((object.metadata.name.clone(), at));
            }
            Ok::<_, ClientError>(sent)
        });
    }
    let mut all = Vec::new();
    while let Some(sent) = callers.join_next().await {
        let sent = sent.map_err(|e| CliError::TimeOut(format!("a caller failed: {e}")))?;
        all.extend(sent?);
    }
    Ok(all)
}

fn table(
    size: BindSize,
    took: Duration,
    latencies: &[Duration],
    before: Counts,
    after: Counts,
) -> String {
    let claims = f64::from(size.claims.max(1));
    let each = |n: u64| n as f64 / claims;
    let at = |percent: usize| super::milliseconds(latencies, percent);
    let source = match size.source {
        Source::Range => "range driver",
        Source::Static => "static",
    };
    let mut text = String::new();
    for (name, value) in [
        ("claims", size.claims.to_string()),
        ("callers", size.callers.to_string()),
        ("addresses", source.to_owned()),
        ("store", "sqlite, synchronous=FULL".to_owned()),
        (
            "time until all are bound",
            format!("{:.2} s", took.as_secs_f64()),
        ),
        (
            "binds a second",
            format!("{:.0}", claims / took.as_secs_f64().max(1e-9)),
        ),
        ("claim to bound, p50", format!("{:.1} ms", at(50))),
        ("claim to bound, p99", format!("{:.1} ms", at(99))),
        (
            "store writes a bind",
            format!("{:.2}", each(after.store - before.store)),
        ),
        (
            "core writes a bind",
            format!("{:.2}", each(after.core - before.core)),
        ),
        (
            "commits a bind",
            format!("{:.2}", each(after.commits - before.commits)),
        ),
    ] {
        let _ = writeln!(text, "{name:<26}{value}");
    }
    text
}

fn named<S: ResourceSpec>(name: &str, namespace: &str) -> Resource<S> {
    let mut resource = Resource::<S>::default();
    resource.metadata.name = name.to_owned();
    resource.metadata.namespace = namespace.to_owned();
    resource
}

fn object<S: ResourceSpec>(resource: &Resource<S>) -> Result<Object, CliError> {
    resource
        .to_object()
        .map_err(|e| CliError::Usage(e.to_string()))
}
