//! A driver of other people, written in Go from the contract alone (seed 000 §7), with a role of its own:
//! tests/e2e/driver.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipledger_tests::program::wait_for;
use ipledger_tests::random::Random;
use serde_json::{Value, json};

mod site;

use site::{Site, nothing_changed_hands, without_rules_of_addresses};

use crate::binding::items;
use crate::cases;
use crate::cluster::{TEAM, address, claim, eventually, list};
use crate::components::Component;
use crate::installation::Installation;

cases![Installed:
    a_claim_goes_from_stamp_to_workload_to_tear_down,
    what_the_backend_says_of_an_address_is_shown_and_passes,
    a_driver_that_clears_its_word_in_its_own_way_is_understood,
    a_driver_that_replaces_what_is_lost_or_deleted_changes_no_address_and_does_not_loop,
    drivers_that_are_killed_or_work_twice_leave_one_address_for_each_claim,
    names_and_forms_of_its_own_are_refused_or_held_and_never_bound_twice,
];

/// How long nobody may write anything before it counts as rest.
const REST: Duration = Duration::from_secs(3);

fn a_claim_goes_from_stamp_to_workload_to_tear_down(cluster: &mut Installation) {
    let site = Site::prepare(cluster);
    let driver = site.driver(&[]);
    let default = "ipaddressclass.local.sdn.cozystack.io/is-default-class=true";
    site.cluster
        .ctl(&["annotate", "ipaddrclass", "goes", default]);
    site.cluster.create(&claim("web", json!({})));
    let dual = json!({"className": "goes", "family": "Dual"});
    site.cluster.create(&claim("both", dual));
    site.cluster
        .create(&claim("kept", json!({"className": "stays"})));
    site.wait("Bound", &["web", "both", "kept"]);
    assert_eq!(site.reported("both").len(), 2);

    let (object, ip) = site.reported("web").remove(0);
    let (bound, web) = (site.get("ipaddr", &object), site.get("ipaddrclaim", "web"));
    assert_eq!(
        bound["spec"]["claimRef"]["uid"], web["metadata"]["uid"],
        "the core has completed what the driver left out"
    );
    let finalizers = bound["metadata"]["finalizers"].as_array().unwrap();
    assert!(
        finalizers.contains(&json!("third-party.example.com/teardown")),
        "{bound}"
    );
    assert!(site.backend("reserved", &ip).exists());

    // One workload at a time; the address stays when the workload goes.
    let holder = || site.get("ipaddr", &object)["status"]["associatedTo"]["name"].clone();
    site.cluster.create(&service("first"));
    eventually("it is announced", || {
        holder() == "first" && site.backend("pinned", &ip).exists()
    });
    site.cluster.create(&service("second"));
    eventually("the driver says that it is taken", || {
        driver
            .printed()
            .contains("the claim serves another workload")
    });
    assert_eq!(holder(), "first");
    site.cluster
        .ctl(&["delete", "service", "first", "-n", TEAM]);
    eventually("the next one has it", || holder() == "second");
    site.cluster
        .ctl(&["delete", "service", "second", "-n", TEAM]);
    eventually("it is inert", || holder().is_null());
    assert_eq!(site.get("ipaddr", &object)["status"]["phase"], "Bound");
    assert!(!site.backend("pinned", &ip).exists());

    let (kept, kept_ip) = site.reported("kept").remove(0);
    let delete = ["delete", "--all", "--timeout=60s", "-n", TEAM];
    site.cluster.ctl(&[&delete[..], &["ipaddrclaim"]].concat());
    eventually("only what is to stay is left", || {
        let left = items(site.cluster, "ipaddr");
        left.len() == 1 && left[0]["status"]["phase"] == "Released"
    });
    // An administrator lets somebody else have it, without the driver, and gives it up in the end.
    let clear = json!([{"op": "remove", "path": "/spec/claimRef"}]).to_string();
    site.cluster
        .ctl(&["patch", "ipaddr", &kept, "--type=json", "-p", &clear]);
    site.cluster
        .create(&claim("next", json!({"className": "stays"})));
    site.wait("Bound", &["next"]);
    assert_eq!(site.reported("next"), [(kept.clone(), kept_ip.clone())]);
    site.cluster.ctl(&[&delete[..], &["ipaddrclaim"]].concat());
    assert_eq!(site.in_backend("reserved"), [kept_ip.as_str()]);
    site.cluster
        .ctl(&["delete", "ipaddr", &kept, "--timeout=60s"]);
    assert!(site.in_backend("reserved").is_empty());
    assert!(driver.stop().success());
}

fn what_the_backend_says_of_an_address_is_shown_and_passes(cluster: &mut Installation) {
    the_backend_speaks(cluster, &[]);
}

/// The core puts right what its `Available` is.
fn a_driver_that_clears_its_word_in_its_own_way_is_understood(cluster: &mut Installation) {
    the_backend_speaks(cluster, &["--plain"]);
}

fn the_backend_speaks(cluster: &Installation, flags: &[&str]) {
    let site = Site::prepare(cluster);
    let _driver = site.driver(flags);
    let history = (site.follow("ipaddressclaims"), site.follow("ipaddresses"));
    site.cluster
        .create(&claim("web", json!({"className": "stays"})));
    site.wait("Bound", &["web"]);
    let reported = site.reported("web");
    let (object, ip) = reported[0].clone();

    let used = site.backend("used", &ip);
    std::fs::write(&used, "somebody").unwrap();
    site.wait_phase(&object, "Conflict");
    site.wait_until_nothing_is_written(Duration::from_secs(1));
    assert_eq!(site.get("ipaddrclaim", "web")["status"]["phase"], "Bound");
    std::fs::remove_file(&used).unwrap();
    site.wait_phase(&object, "Bound");

    let reserved = site.backend("reserved", &ip);
    let aside = site.file("aside");
    std::fs::rename(&reserved, &aside).unwrap();
    site.wait_phase(&object, "Lost");
    site.wait("Bound=False", &["web"]);
    site.wait_until_nothing_is_written(REST);
    let lost = site.get("ipaddrclaim", "web");
    assert_eq!(lost["status"]["phase"], "Lost", "{lost}");
    assert_eq!(lost["status"]["lostAddresses"][0]["name"], object);
    assert_eq!(items(site.cluster, "ipaddr").len(), 1);
    std::fs::rename(&aside, &reserved).unwrap();
    site.wait("Bound", &["web"]);
    assert_eq!(site.reported("web"), reported);
    site.wait_phase(&object, "Bound");

    // The claim goes while the driver's word stands: it stands, and then it is Released.
    std::fs::write(&used, "somebody").unwrap();
    site.wait_phase(&object, "Conflict");
    let delete = ["delete", "ipaddrclaim", "web", "-n", TEAM, "--timeout=60s"];
    site.cluster.ctl(&delete);
    let reclaimed = ["wait", "--for=condition=Reclaimed", "--timeout=60s"];
    site.cluster
        .ctl(&[&reclaimed[..], &["ipaddr", &object]].concat());
    assert_eq!(site.get("ipaddr", &object)["status"]["phase"], "Conflict");
    std::fs::remove_file(&used).unwrap();
    site.wait_phase(&object, "Released");
    nothing_changed_hands(&history.0, &history.1);
    site.delete_all();
}

fn a_driver_that_replaces_what_is_lost_or_deleted_changes_no_address_and_does_not_loop(
    cluster: &mut Installation,
) {
    let site = Site::prepare(cluster);
    let history = (site.follow("ipaddressclaims"), site.follow("ipaddresses"));
    let mut lost = Vec::new();
    let mut dying = Vec::new();
    // Without the uid of the claim and with it.
    for (of, flags) in [("none", &["--eager"][..]), ("uid", &["--eager", "--uid"])] {
        let _driver = site.driver(flags);
        let names = ["dying", "lost"].map(|n| format!("{n}-{of}"));
        for name in &names {
            site.cluster
                .create(&claim(name, json!({"className": "goes"})));
        }
        let [dies, is_lost] = names.each_ref().map(String::as_str);
        site.wait("Bound", &[dies, is_lost]);
        if of == "uid" {
            // One that is free is not taken instead, either.
            site.cluster.create(&free());
            site.wait_phase(FREE, "Available");
        }
        let reported = site.reported(dies);
        let delete = ["delete", "ipaddr", &reported[0].0, "--wait=false"];
        site.cluster.ctl(&delete);
        eventually("the driver's other address is put aside", || {
            parked_for(&site, dies).len() == 1
        });
        dying.push((dies.to_owned(), reported));
        let reported = site.reported(is_lost);
        let aside = site.file(&format!("aside-{of}"));
        let reserved = site.backend("reserved", &reported[0].1);
        std::fs::rename(&reserved, &aside).unwrap();
        site.wait("Bound=False", &[is_lost]);
        lost.push((is_lost.to_owned(), reported, reserved, aside));
    }

    let _driver = site.driver(&["--eager"]);
    site.wait_until_nothing_is_written(REST);
    for (claim, reported) in &dying {
        site.wait("AddressDeleting", &[claim]);
        assert_eq!(site.get("ipaddrclaim", claim)["status"]["phase"], "Bound");
        assert_eq!(site.reported(claim), *reported);
    }
    for (claim, ..) in &lost {
        let claim = site.get("ipaddrclaim", claim);
        assert_eq!(claim["status"]["phase"], "Lost", "{claim}");
        let stamp = &claim["metadata"]["annotations"]["local.sdn.cozystack.io/provisioner"];
        assert!(stamp.is_null(), "a driver is asked to provide: {claim}");
    }
    assert_eq!(site.get("ipaddr", FREE)["status"]["phase"], "Available");
    // One more driver finds nothing new to do.
    let before = versions(&site);
    let _second = site.driver(&["--eager", "--uid"]);
    site.wait_until_nothing_is_written(REST);
    assert_eq!(versions(&site), before);

    site.cluster
        .ctl(&["delete", "ipaddr", FREE, "--timeout=60s"]);
    for (claim, reported, reserved, aside) in &lost {
        std::fs::rename(aside, reserved).unwrap();
        site.wait("Bound", &[claim]);
        assert_eq!(site.reported(claim), *reported);
    }
    every_address_is_accounted_for(&site);
    nothing_changed_hands(&history.0, &history.1);
    site.delete_all();
}

fn drivers_that_are_killed_or_work_twice_leave_one_address_for_each_claim(
    cluster: &mut Installation,
) {
    let site = Site::prepare(cluster);
    let history = (site.follow("ipaddressclaims"), site.follow("ipaddresses"));
    let seed = u64::from(std::process::id());
    eprintln!("seed {seed}");
    let mut random = Random::new(seed);

    apply_claims(&site, "killed", 40);
    for _ in 0..6 {
        let driver = site.driver(&[]);
        let goal = site.in_backend("reserved").len() + 1 + random.below(8);
        wait_for("it has begun", || site.in_backend("reserved").len() >= goal);
        driver.kill();
    }
    let first = site.driver(&[]);
    site.wait_until_all_are_bound();
    let second = site.driver(&[]);
    apply_claims(&site, "twice", 30);
    first.kill();
    let third = site.driver(&[]);
    site.wait_until_all_are_bound();

    site.wait_until_nothing_is_written(Duration::from_secs(2));
    every_address_is_accounted_for(&site);

    // Claims that go while they are served. (What comes too late for its claim goes at once if it has
    // the uid, and else after ten minutes.)
    drop((second, third));
    apply_claims(&site, "going", 20);
    let goal = site.in_backend("reserved").len() + 1 + random.below(8);
    let _last = site.driver(&["--uid"]);
    wait_for("it has begun", || site.in_backend("reserved").len() >= goal);
    site.delete_all();
    nothing_changed_hands(&history.0, &history.1);
}

fn names_and_forms_of_its_own_are_refused_or_held_and_never_bound_twice(
    cluster: &mut Installation,
) {
    let site = Site::prepare(cluster);
    let rude = site.driver(&["--rude"]);
    let six = json!({"className": "goes", "family": "IPv6"});
    site.cluster.create(&claim("six", six.clone()));
    site.cluster
        .create(&claim("four", json!({"className": "goes"})));
    for said in [
        "metadata.name must be ip-192-0-2-0: the name of an address object comes from its address",
        "must be an IP address in its canonical form, for example 192.0.2.7 or 2001:db8::7",
    ] {
        eventually(said, || rude.printed().contains(said));
    }
    assert!(items(site.cluster, "ipaddr").is_empty());
    for name in ["six", "four"] {
        let waits = site.get("ipaddrclaim", name);
        assert_eq!(waits["status"]["phase"], "Pending", "{waits}");
        assert!(waits.to_string().contains("WaitingForProvisioning"));
    }

    // Where the definitions have no rules, such objects are stored.
    without_rules_of_addresses(site.cluster, || only_the_right_name_is_bound(&site));
}

fn only_the_right_name_is_bound(site: &Site) {
    eventually("they are stored", || {
        items(site.cluster, "ipaddr").len() == 2
    });
    // One with another spelling has the name of its address, and is the one object of it.
    site.wait("Bound", &["six"]);
    assert_eq!(
        site.reported("six"),
        [("ip-2001-db8--0".to_owned(), "2001:db8::".to_owned())]
    );
    // One with another name has not: it is kept for its claim, and bound to nobody.
    site.wait_until_nothing_is_written(REST);
    let all = items(site.cluster, "ipaddr");
    let own = all.iter().find(|a| a["spec"]["address"] == "192.0.2.0");
    let own = own.expect("the one with a name of its own");
    assert_eq!(own["status"]["phase"], "Pending", "{own}");
    assert!(own["status"].to_string().contains("NameMismatch"), "{own}");
    assert_eq!(own["spec"]["claimRef"]["uid"], Value::Null, "{own}");
    assert!(site.reported("four").is_empty());

    // Only the object with the right name is ever bound, whoever else has one for the same address.
    let spec = json!({"address": "192.0.2.0", "className": "goes", "reclaimPolicy": "Delete",
        "source": {"fromClass": {}}});
    site.cluster.create(&address("ip-192-0-2-0", spec));
    site.wait("Bound", &["four"]);
    let right = ("ip-192-0-2-0".to_owned(), "192.0.2.0".to_owned());
    assert_eq!(site.reported("four"), [right]);
    site.wait_until_nothing_is_written(REST);
    let mut bound = BTreeMap::new();
    for a in items(site.cluster, "ipaddr") {
        let ip: std::net::IpAddr = a["spec"]["address"].as_str().unwrap().parse().unwrap();
        *bound.entry(ip).or_insert(0) += i32::from(a["status"]["phase"] == "Bound");
    }
    assert!(bound.values().all(|n| *n == 1), "{bound:?}");
    site.delete_all();
}

const FREE: &str = "ip-192-0-2-120";

/// An address that an administrator has provided.
fn free() -> Value {
    let spec = json!({"address": "192.0.2.120", "className": "goes", "reclaimPolicy": "Delete",
        "source": {"fromClass": {}}});
    address(FREE, spec)
}

fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": TEAM,
            "annotations": {"local.sdn.cozystack.io/ip-address-claim": "web"}},
        "spec": {"clusterIP": "None", "ports": [{"port": 80}]}})
}

fn apply_claims(site: &Site, name: &str, many: usize) {
    let claims: Vec<Value> = (0..many)
        .map(|n| {
            let family = ["IPv4", "IPv6", "Dual"][n % 3];
            let spec = json!({"className": "goes", "family": family});
            claim(&format!("{name}-{n}"), spec)
        })
        .collect();
    site.cluster.apply(&list(&claims).to_string());
}

/// The addresses that were provided for a claim in addition to its own.
fn parked_for(site: &Site, claim: &str) -> Vec<Value> {
    let uid = site.get("ipaddrclaim", claim)["metadata"]["uid"].clone();
    let mut all = items(site.cluster, "ipaddr");
    let parked = "local.sdn.cozystack.io/parked-for";
    all.retain(|a| a["metadata"]["annotations"][parked] == uid);
    all
}

/// The version of each address and claim.
fn versions(site: &Site) -> BTreeSet<String> {
    let all = ["ipaddr", "ipaddrclaim"].map(|kind| items(site.cluster, kind));
    let all = all.into_iter().flatten();
    all.map(|o| o["metadata"]["resourceVersion"].to_string())
        .collect()
}

/// Every address is reported by its claim or put aside for it, which the core has said; every
/// reservation of the backend is recorded in the ledger.
fn every_address_is_accounted_for(site: &Site) {
    let mut reported = BTreeMap::new();
    for claim in items(site.cluster, "ipaddrclaim") {
        let entries = claim["status"]["addresses"].as_array().unwrap().clone();
        let dual = claim["spec"]["family"] == "Dual";
        assert_eq!(entries.len(), if dual { 2 } else { 1 }, "{claim}");
        for entry in entries {
            let uid = claim["metadata"]["uid"].clone();
            let twice = reported.insert(entry["name"].to_string(), uid);
            assert_eq!(twice, None, "{entry} is reported twice");
        }
    }
    let said: Vec<String> = site
        .cluster
        .components()
        .iter()
        .map(Component::printed)
        .collect();
    let said = said.concat();
    let mut recorded = BTreeSet::new();
    for address in items(site.cluster, "ipaddr") {
        let (metadata, holder) = (&address["metadata"], &address["spec"]["claimRef"]["uid"]);
        recorded.insert(address["spec"]["address"].as_str().unwrap().to_owned());
        if reported.remove(&metadata["name"].to_string()).as_ref() == Some(holder) {
            continue;
        }
        let parked = &metadata["annotations"]["local.sdn.cozystack.io/parked-for"];
        assert!(parked.is_string(), "{address}");
        let name = metadata["name"].as_str().unwrap();
        let line = said
            .lines()
            .find(|l| l.contains("AddressParked") && l.contains(name));
        assert!(line.is_some(), "nobody was told of {name}: {said}");
    }
    assert!(reported.is_empty(), "{reported:?} are no addresses");
    // A driver that was killed may have left something; the others find it.
    eventually("nothing is reserved without a record", || {
        let mut reserved = site.in_backend("reserved").into_iter();
        reserved.all(|ip| recorded.contains(&ip))
    });
}
