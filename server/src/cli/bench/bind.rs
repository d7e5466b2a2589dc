//! `ipledger bench bind`: claims, created by many callers at once, until all are bound.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
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

use super::machine;
use super::place::{Objects, Place, Standalone, counts_at_rest};
use crate::cli::exit::CliError;
use crate::cli::output::Terminal;
use crate::serve::Counts;

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
    /// So many of them a second; as fast as the callers can without it.
    pub(in crate::cli) rate: Option<u32>,
    /// Where their addresses come from.
    pub(in crate::cli) source: Source,
    /// Free addresses besides, of another class.
    pub(in crate::cli) spare: u32,
}

/// Creates claims on a ledger of its own and waits until all are bound.
///
/// # Errors
/// The server cannot start; a request failed; the claims are not all bound in time.
pub(in crate::cli) async fn bind(size: BindSize, terminal: &mut Terminal) -> Result<(), CliError> {
    bind_on(Arc::new(Standalone::start().await?), size, terminal).await
}

/// The same in a Kubernetes cluster, from which all is deleted in the end.
///
/// # Errors
/// As of [`bind`]; the cluster is not configured; a binding core works there already.
#[cfg(feature = "kube")]
pub(in crate::cli) async fn bind_in_cluster(
    cluster: ipledger_store_kube::Cluster,
    namespace: &str,
    size: BindSize,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    let place = super::cluster::Cluster::start(cluster, namespace, size.source).await?;
    bind_on(Arc::new(place), size, terminal).await
}

async fn bind_on<P: Place + 'static>(
    place: Arc<P>,
    size: BindSize,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    let shared: Arc<dyn Place> = place.clone();
    let report = tokio::time::timeout(PATIENCE, run(size, &shared)).await;
    drop(shared);
    if let Ok(Ok(report)) = &report {
        terminal.print(report)?;
    }
    let closed = place.close().await;
    report.map_err(|_| {
        CliError::TimeOut(format!("not all claims were bound within {PATIENCE:?}"))
    })??;
    closed
}

async fn run(size: BindSize, place: &Arc<dyn Place>) -> Result<String, CliError> {
    let (first, length) = place.network();
    let room = (1_u64 << (32 - length)) - 2;
    if u64::from(size.claims) + u64::from(size.spare) > room {
        return Err(CliError::Usage(format!(
            "there are only {room} addresses in {first}/{length}"
        )));
    }
    let class = IPAddressClass {
        spec: ipledger_core::api::IPAddressClassSpec {
            provisioner: match size.source {
                Source::Range => ipledger_drivers::range::NAME.to_owned(),
                Source::Static => "example.com/none".to_owned(),
            },
            reclaim_policy: ReclaimPolicy::Delete,
            parameters: Some(json!({"addresses": [format!("{first}/{length}")]})),
            extra: Extra::new(),
        },
        ..named(place.prefix(), "")
    };
    place.create(&object(&class)?).await?;
    let asked_for = match size.source {
        Source::Range => 0,
        Source::Static => size.claims,
    };
    make_addresses(size, asked_for, place).await?;
    // The last writes for these are counted after a watch tells of them.
    let before = counts_at_rest(&**place).await;
    let claims = place.follow(Kind::IPAddressClaim, "Bound").await?;
    let start = Instant::now();
    let maker = Arc::clone(place);
    let created = create_all(size.claims, (size.callers, size.rate), place, move |n| {
        let name = format!("{}-{n:07}", maker.prefix());
        let mut claim: IPAddressClaim = named(&name, maker.namespace());
        claim.spec.class_name = maker.prefix().to_owned();
        object(&claim)
    });
    let prefix = place.prefix();
    let bound = until(claims, size.claims, move |object| {
        let claim = IPAddressClaim::from_object(object).ok()?;
        let is_bound = claim.phase() == Some(ClaimPhase::Bound);
        (is_bound && claim.spec.class_name == prefix).then_some(claim.metadata.name)
    });
    let (created, bound) = tokio::try_join!(created, bound)?;
    let took = start.elapsed();
    let mut latencies: Vec<Duration> = created
        .iter()
        .filter_map(|(name, sent)| Some(bound.get(name)?.saturating_duration_since(*sent)))
        .collect();
    latencies.sort();
    // The stamp of the last claims comes after they are bound.
    let after = counts_at_rest(&**place).await;
    Ok(table(size, &place.name(), took, &latencies, before, after))
}

/// Makes free addresses and waits until all can be bound: those of the claims, and the spare ones, which
/// are of another class.
async fn make_addresses(
    size: BindSize,
    asked_for: u32,
    place: &Arc<dyn Place>,
) -> Result<(), CliError> {
    let count = asked_for + size.spare;
    let addresses = place.follow(Kind::IPAddress, "Available").await?;
    let first = u32::from(place.network().0) + 1;
    let maker = Arc::clone(place);
    let made = create_all(count, (size.callers, None), place, move |n| {
        let ip = Ip::from_number(Family::V4, u128::from(first + n));
        let ip = ip.ok_or_else(|| CliError::Usage(format!("there is no address {n}")))?;
        let mut address: IPAddress = named(&ip.object_name(), "");
        address.spec.address = ip.to_string();
        address.spec.class_name = match n < asked_for {
            true => maker.prefix().to_owned(),
            false => format!("{}-spare", maker.prefix()),
        };
        address.spec.source = Some(AddressSource {
            from_class: Some(Extra::new()),
            ..AddressSource::default()
        });
        object(&address)
    });
    let prefix = place.prefix();
    let available = until(addresses, count, move |object| {
        let address = IPAddress::from_object(object).ok()?;
        let available = address.phase() == Some(AddressPhase::Available);
        let is_ours = address.spec.class_name.starts_with(prefix);
        (available && is_ours).then_some(address.metadata.name)
    });
    tokio::try_join!(made, available)?;
    Ok(())
}

/// Follows until so many objects have come to what is waited for: when each did, by name.
async fn until(
    mut objects: Objects,
    count: u32,
    there: impl Fn(&Object) -> Option<String>,
) -> Result<BTreeMap<String, Instant>, CliError> {
    let mut seen = BTreeMap::new();
    while seen.len() < count as usize {
        let Some(object) = objects.next().await else {
            return Err(CliError::TimeOut("the watch ended early".to_owned()));
        };
        if let Some(name) = there(&object?) {
            seen.entry(name).or_insert_with(Instant::now);
        }
    }
    Ok(seen)
}

/// Creates objects by their number, several callers at once and at most so many a second; when each was
/// sent, by name.
async fn create_all(
    count: u32,
    (callers, rate): (u32, Option<u32>),
    place: &Arc<dyn Place>,
    make: impl Fn(u32) -> Result<Object, CliError> + Send + Sync + 'static,
) -> Result<Vec<(String, Instant)>, CliError> {
    let (next, make) = (Arc::new(AtomicU32::new(0)), Arc::new(make));
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..callers.max(1) {
        let (place, next, make) = (Arc::clone(place), Arc::clone(&next), Arc::clone(&make));
        tasks.spawn(async move {
            let mut sent = Vec::new();
            loop {
                let n = next.fetch_add(1, Relaxed);
                if n >= count {
                    return Ok::<_, CliError>(sent);
                }
                let object = make(n)?;
                let mut at = Instant::now();
                if let Some(rate) = rate {
                    // What is late because others took long has waited, too.
                    at = began + Duration::from_secs_f64(f64::from(n) / f64::from(rate.max(1)));
                    tokio::time::sleep_until(at).await;
                }
                place.create(&object).await?;
                sent.push((object.metadata.name, at));
            }
        });
    }
    let mut all = Vec::new();
    while let Some(sent) = tasks.join_next().await {
        all.extend(sent.map_err(std::io::Error::other)??);
    }
    Ok(all)
}

fn table(
    size: BindSize,
    store: &str,
    took: Duration,
    latencies: &[Duration],
    before: Counts,
    after: Counts,
) -> String {
    let claims = f64::from(size.claims.max(1));
    let seconds = took.as_secs_f64();
    let each = |n: u64| format!("{:.2}", n as f64 / claims);
    let at = |percent: usize| super::milliseconds(latencies, percent);
    let source = match size.source {
        Source::Range => "range driver",
        Source::Static => "static",
    };
    let pace = size
        .rate
        .map_or_else(|| "as fast as they can".to_owned(), |r| r.to_string());
    let mut rows = vec![
        ("claims", size.claims.to_string()),
        ("callers", size.callers.to_string()),
        ("claims a second", pace),
        ("addresses", source.to_owned()),
        ("free addresses besides", size.spare.to_string()),
        ("store", store.to_owned()),
        ("cores", machine::cores().to_string()),
        ("time until all are bound", format!("{seconds:.2} s")),
        (
            "binds a second",
            format!("{:.0}", claims / seconds.max(1e-9)),
        ),
        ("claim to bound, p50", format!("{:.1} ms", at(50))),
        ("claim to bound, p99", format!("{:.1} ms", at(99))),
        ("core writes a bind", each(after.core - before.core)),
    ];
    if let (Some(before), Some(after)) = (before.file, after.file) {
        rows.push(("writes a bind", each(after.writes - before.writes)));
        rows.push(("commits a bind", each(after.commits - before.commits)));
    }
    // That of the callers is included.
    rows.push(("memory at most", machine::peak_memory()));
    let mut text = String::new();
    for (name, value) in rows {
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
