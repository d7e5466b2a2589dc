//! `uninstall --check`: what would be held for ever if the controllers were gone.

use ipledger_core::api::names::{ADDRESS_PROTECTION, CLAIM_PROTECTION};
use ipledger_core::api::{Kind, Object, ObjectMeta};
use ipledger_core::store::{ListOptions, Store, StoreError};
use ipledger_drivers::range::{self, Rest};

use super::exit::{CliError, Exit};
use super::output::Terminal;
use crate::kubernetes;

/// Objects asked for in one page of a list.
const PAGE: usize = 500;
/// With them Kubernetes itself works on an object, and takes them away.
const OF_KUBERNETES: [&str; 2] = ["foregroundDeletion", "orphan"];

/// Lists the objects that hold a finalizer, with whose it is.
///
/// # Errors
/// There is one (exit code 10), or the cluster cannot be read.
pub(super) async fn check(
    cluster: ipledger_store_kube::Cluster,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    let store = kubernetes::open(&cluster, "ipledger").await?;
    let mut held = 0;
    for kind in Kind::ALL {
        for line in all(&*store, kind).await?.iter().filter_map(line) {
            terminal.line(&line)?;
            held += 1;
        }
    }
    if held == 0 {
        return terminal.line("no object holds a finalizer: nothing waits for a controller");
    }
    terminal.warn(&format!(
        "{held} objects hold finalizers; delete them while the core and the drivers run"
    ));
    Err(CliError::Reported(Exit::Held))
}

/// Every object of a kind. One that cannot be read may hold anything, and fails the check.
async fn all(store: &dyn Store, kind: Kind) -> Result<Vec<Object>, StoreError> {
    let mut objects = Vec::new();
    let mut options = ListOptions {
        limit: Some(PAGE),
        ..ListOptions::default()
    };
    loop {
        let page = store.list(kind, &options).await?;
        if let Some(error) = page.corrupt.into_iter().next() {
            return Err(error);
        }
        objects.extend(page.items);
        options.continue_token = page.continue_token;
        if options.continue_token.is_none() {
            return Ok(objects);
        }
    }
}

/// What is said about an object; nothing if it holds no finalizer.
fn line(object: &Object) -> Option<String> {
    let finalizers = object.metadata.finalizers.iter();
    let held: Vec<String> = finalizers
        .filter(|f| !OF_KUBERNETES.contains(&f.as_str()))
        .map(|f| format!("{f} ({})", owner(f, &object.metadata)))
        .collect();
    (!held.is_empty()).then(|| format!("{}: {}", object.key(), held.join(", ")))
}

/// Who takes this finalizer away, and when if not at once.
fn owner(finalizer: &str, of: &ObjectMeta) -> String {
    let prefix = finalizer.split('/').next().unwrap_or(finalizer);
    match finalizer {
        CLAIM_PROTECTION | ADDRESS_PROTECTION => "the binding core".to_owned(),
        range::FINALIZER => match Rest::of(of) {
            None => "the range driver".to_owned(),
            Some(Rest::For(rest)) => {
                let rest = humantime::format_duration(rest);
                format!("the range driver, {rest} after the release")
            }
            Some(Rest::Until(time)) => format!("the range driver, until {time}"),
        },
        _ => format!("the driver or program {prefix}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_is_told_with_its_finalizers_and_whose_they_are() {
        let of = |finalizers: &[&str]| {
            let object = json!({"apiVersion": Kind::IPAddress.api_version(), "kind": "IPAddress",
                "metadata": {"name": "ip-192-0-2-1", "finalizers": finalizers},
                "spec": {"address": "192.0.2.1"}});
            line(&Object::from_value(object).unwrap())
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["orphan", "foregroundDeletion"]), None);
        let told = of(&[ADDRESS_PROTECTION, range::FINALIZER, "lb.example.org/x"]).unwrap();
        assert_eq!(
            told,
            "IPAddress ip-192-0-2-1: local.sdn.cozystack.io/address-protection (the binding core), \
             range.drivers.local.sdn.cozystack.io/teardown (the range driver), \
             lb.example.org/x (the driver or program lb.example.org)"
        );
    }
    #[test]
    fn an_address_that_rests_after_its_release_is_told_with_how_long() {
        let of = |metadata: serde_json::Value| {
            let object = json!({"apiVersion": Kind::IPAddress.api_version(), "kind": "IPAddress",
                "metadata": metadata, "spec": {"address": "192.0.2.1"}});
            line(&Object::from_value(object).unwrap()).unwrap()
        };
        let annotations =
            json!({range::REUSE_AFTER: "1h 30m", range::REUSABLE_AT: "2026-12-01T10:00:00Z"});
        let mut metadata = json!({"name": "ip-192-0-2-1", "finalizers": [range::FINALIZER],
            "annotations": {range::REUSE_AFTER: "1h 30m"}});
        let held = "IPAddress ip-192-0-2-1: range.drivers.local.sdn.cozystack.io/teardown";
        assert_eq!(
            of(metadata.clone()),
            format!("{held} (the range driver, 1h 30m after the release)")
        );
        metadata["deletionTimestamp"] = "2026-12-01T08:30:00Z".into();
        metadata["annotations"] = annotations;
        assert_eq!(
            of(metadata),
            format!("{held} (the range driver, until 2026-12-01T10:00:00Z)")
        );
    }
}
