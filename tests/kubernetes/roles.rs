//! Who may write what, with the accounts, roles and policies of the chart: each forbidden write is
//! tried and refused with a message, each allowed one is taken.

use std::path::Path;
use std::process::Command;

use ipledger_tests::kubernetes::{NOBODY, succeed};
use serde_json::json;

mod addresses;
mod claims;
mod classes;
mod metadata;
mod strangers;
mod table;

use table::{ADDRESS_PROTECTION, CLAIM_PROTECTION, Object, Row, STAMP, Who, condition};

use crate::cases;
use crate::chart::{self, CHART, RELEASE, SYSTEM, helm};
use crate::cluster::{Cluster, TEAM, address, claim, class, driver_role, list};

cases![Alone:
    every_write_is_left_to_whom_it_belongs,
    the_rendered_chart_is_the_chart_and_can_be_applied,
    two_releases_share_no_policy_and_old_clusters_are_refused,
    the_chart_is_not_rendered_without_its_definitions_or_with_a_lease_of_no_use,
];

async fn every_write_is_left_to_whom_it_belongs(cluster: Cluster) {
    let actors = Actors::of(&cluster);
    for name in ["public", "secret"] {
        let object = class(name, json!({"provisioner": "driver.example.org"}));
        assert!(cluster.send(&["create"], &object).1.contains("created"));
    }
    let default = "ipaddressclass.local.sdn.cozystack.io/is-default-class=true";
    cluster.ctl(&["annotate", "ipaddrclass", "secret", default]);
    let mut web = claim("web", json!({"className": "public"}));
    web["metadata"]["annotations"] = json!({STAMP: "driver.example.org", "team": "a"});
    web["metadata"]["finalizers"] = json!([CLAIM_PROTECTION]);
    web["metadata"]["ownerReferences"] = metadata::owner("theirs");
    let mut held = address(
        "ip-192-0-2-1",
        json!({"address": "192.0.2.1", "className": "public",
        "reclaimPolicy": "Retain", "source": {"fromClass": {}},
        "claimRef": {"namespace": TEAM, "name": "web"}}),
    );
    held["metadata"]["finalizers"] = json!([ADDRESS_PROTECTION, "orphan"]);
    held["metadata"]["ownerReferences"] = metadata::owner("theirs");
    for object in [&web, &held] {
        cluster.create(object);
    }
    let phase = |phase: &str| {
        let status = json!({"phase": phase, "conditions": [condition("Bound")]});
        let status = json!({"status": status}).to_string();
        let how = ["--subresource=status", "--type=merge", "-p", &status];
        cluster.ctl(&[&["patch", "ipaddr", "ip-192-0-2-1"][..], &how].concat());
    };
    phase("Bound");
    // The policies are in force some moments after they were written.
    let forged = &claims::rows()[2];
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while actors.tries(forged, "nobody-token").0 {
        assert!(
            std::time::Instant::now() < deadline,
            "the policies are not in force"
        );
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    let mut wrong = Vec::new();
    let unflagged = [
        claims::rows(),
        addresses::rows(),
        classes::rows(),
        metadata::rows(),
        strangers::rows(),
    ]
    .concat();
    for row in &unflagged {
        wrong.extend(actors.judge(row));
    }
    phase("Conflict");
    for row in addresses::rows_of_a_flagged_one() {
        wrong.extend(actors.judge(&row));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // By this log it is known that no component tries any of it: it has each of these.
    let rows = [unflagged, addresses::rows_of_a_flagged_one()].concat();
    for (who, account) in [(Who::Core, "core"), (Who::Driver, "range")] {
        let refused = rows.iter().filter(|r| r.who == who && r.refused.is_some());
        let account = format!("{RELEASE}-{account}");
        let audit = cluster.audit().into_iter();
        let denied = audit.filter(|a| a.account == account && a.is_denial());
        assert_eq!(denied.count(), refused.count(), "{who:?}");
    }
}

async fn the_rendered_chart_is_the_chart_and_can_be_applied(cluster: Cluster) {
    let namespace = std::fs::read_to_string(chart::NAMESPACE).unwrap();
    let now = succeed(helm(&cluster).args(["template", "ipledger", CHART, "-n", SYSTEM]));
    let kept = std::fs::read_to_string(chart::MANIFESTS).unwrap();
    assert!(
        kept == namespace + &now,
        "run: helm template ipledger deploy/chart/ipledger -n {SYSTEM} | \
         cat deploy/manifests/namespace.yaml - >deploy/manifests/ipledger.yaml"
    );
    cluster.apply(&kept);
}

async fn the_chart_is_not_rendered_without_its_definitions_or_with_a_lease_of_no_use(
    cluster: Cluster,
) {
    let render = |chart: &Path, value: &str| {
        let mut template = helm(&cluster);
        template.args(["template", "x"]).arg(chart);
        let output = template.args(["--set", value]).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        (output.status.success(), said)
    };
    let whole = Path::new(CHART);
    for (duration, right) in [
        ("1s", true),
        ("3600s", true),
        ("1m", true),
        ("1h", true),
        ("0s", false),
        ("500ms", false),
        ("3601s", false),
        ("2h", false),
    ] {
        let value = format!("core.leaderElection.leaseDuration={duration}");
        let (taken, said) = render(whole, &value);
        assert_eq!(taken, right, "{duration}: {said}");
    }
    // The program has a default of its own.
    let (taken, said) = render(whole, "core.leaderElection=null");
    assert!(taken, "{said}");
    assert_eq!(said.matches("--lease-duration=").count(), 1, "{said}");

    let broken = tempfile::tempdir().unwrap();
    let chart = broken.path().join("ipledger");
    succeed(Command::new("cp").arg("-r").arg(whole).arg(&chart));
    let file = chart.join("files/crds.yaml");
    let definitions = std::fs::read_to_string(&file).unwrap();
    let (two, _) = definitions.rsplit_once("\n---\n").unwrap();
    let kind = "kind: CustomResourceDefinition";
    for (text, because) in [
        (two.to_owned(), "there are three definitions, not 2"),
        (String::new(), "there are three definitions, not 0"),
        (
            definitions.replacen(kind, "kind: ConfigMap", 1),
            "document 1 is no CustomResourceDefinition",
        ),
        (
            definitions.replacen(kind, "kind: [", 1),
            "document 1 is no CustomResourceDefinition",
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let (taken, said) = render(&chart, "crds.install=true");
        assert!(!taken && said.contains(because), "{said}");
    }
}

async fn two_releases_share_no_policy_and_old_clusters_are_refused(cluster: Cluster) {
    let policies = |namespace: &str| {
        let render = ["template", "x", CHART, "-n", namespace];
        let text = succeed(helm(&cluster).args(render));
        let documents = text.split("\n---\n");
        let policies = documents.filter(|d| d.contains("\nkind: ValidatingAdmissionPolicy\n"));
        let name = |d: &str| {
            d.lines()
                .find(|l| l.starts_with("  name: "))
                .map(str::to_owned)
        };
        policies.filter_map(name).collect::<Vec<_>>()
    };
    let (one, other) = (policies("one"), policies("other"));
    assert_eq!((one.len(), other.len()), (6, 6));
    assert!(one.iter().all(|name| !other.contains(name)), "{one:?}");
    for (version, right) in [("1.32.9", false), ("1.33.0", true)] {
        let render = ["template", "x", CHART, "--kube-version", version];
        let output = helm(&cluster).args(render).output().unwrap();
        assert_eq!(output.status.success(), right, "{version}: {output:?}");
    }
}

/// The accounts of the chart, a tenant with the chart's role for it, and an administrator of addresses.
struct Actors<'a> {
    cluster: &'a Cluster,
    core: String,
    /// The chart's own one, one with the chart's role for others, and one with a role of its own.
    drivers: [String; 3],
    administrator: String,
    collector: String,
    outsider: String,
    /// A core that was given too much.
    rich_core: String,
}

impl<'a> Actors<'a> {
    fn of(cluster: &'a Cluster) -> Actors<'a> {
        chart::install_with(cluster, &["crds.install=false"]);
        let of_chart = |name: &str| format!("{SYSTEM}:{RELEASE}:{name}");
        for (name, role) in [
            ("claims", of_chart("claims-edit")),
            ("read", of_chart("claims-view")),
        ] {
            let (role, user) = (format!("--clusterrole={role}"), format!("--user={NOBODY}"));
            cluster.ctl(&["create", "rolebinding", name, "-n", TEAM, &role, &user]);
        }
        // kubectl itself knows no verb `use` of other groups.
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "use-public", "namespace": TEAM},
            "rules": [{"apiGroups": ["local.sdn.cozystack.io"], "resources": ["ipaddressclasses"],
                "resourceNames": ["public"], "verbs": ["use"]}]
        });
        cluster.apply(&role.to_string());
        let user = format!("--user={NOBODY}");
        cluster.ctl(&[
            "create",
            "rolebinding",
            "use-public",
            "-n",
            TEAM,
            "--role=use-public",
            &user,
        ]);
        for account in ["boss", "other-driver", "own-driver"] {
            cluster.ctl(&["create", "serviceaccount", account, "-n", SYSTEM]);
        }
        for (name, role, account) in [
            ("boss", "administrator", "boss"),
            ("boss-claims", "claims-edit", "boss"),
            ("other-driver", "driver", "other-driver"),
        ] {
            let role = format!("--clusterrole={}", of_chart(role));
            let account = format!("--serviceaccount={SYSTEM}:{account}");
            cluster.ctl(&["create", "clusterrolebinding", name, &role, &account]);
        }
        cluster.apply(&list(&driver_role("own-driver")).to_string());
        // kubectl reads a status before it patches it; the store does not.
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "look"},
            "rules": [{"apiGroups": ["local.sdn.cozystack.io"], "verbs": ["get"], "resources":
                ["ipaddressclasses/status", "ipaddresses/status", "ipaddressclaims/status"]}]
        });
        cluster.apply(&role.to_string());
        let all = ["--clusterrole=look", "--group=system:authenticated"];
        cluster.ctl(&[&["create", "clusterrolebinding", "look"][..], &all].concat());
        let token_in = |namespace: &str, account: &str| {
            let token = cluster.ctl(&["create", "token", account, "-n", namespace]);
            token.trim().to_owned()
        };
        let token = |account: &str| token_in(SYSTEM, account);
        strangers::create(cluster);
        Actors {
            cluster,
            core: token(&format!("{RELEASE}-core")),
            drivers: [&format!("{RELEASE}-range"), "other-driver", "own-driver"].map(token),
            administrator: token("boss"),
            collector: token_in("kube-system", strangers::COLLECTOR),
            outsider: token("outsider"),
            rich_core: token("rich-core"),
        }
    }

    fn tokens(&self, who: Who) -> Vec<&str> {
        match who {
            Who::Tenant => vec!["nobody-token"],
            Who::Driver => self.drivers.iter().map(String::as_str).collect(),
            Who::Core => vec![&self.core],
            Who::Administrator => vec![&self.administrator],
            Who::GarbageCollector => vec![&self.collector],
            Who::Outsider => vec![&self.outsider],
            Who::RichCore => vec![&self.rich_core],
        }
    }

    /// What is wrong with the answers to a write, if anything is.
    fn judge(&self, row: &Row) -> Vec<String> {
        let tokens = self.tokens(row.who).into_iter();
        tokens
            .filter_map(|token| self.judge_as(row, token))
            .collect()
    }

    fn judge_as(&self, row: &Row, token: &str) -> Option<String> {
        let Row {
            who,
            object,
            what,
            refused,
            ..
        } = row;
        let (taken, said) = self.tries(row, token);
        let right = match refused {
            None => taken,
            Some(because) => !taken && said.contains(because),
        };
        (!right).then(|| {
            format!(
                "{who:?} writes {object:?} with {what}, which is to be {}: {said}",
                refused.map_or("taken".to_owned(), |r| format!("refused with `{r}`"))
            )
        })
    }

    /// Tries a write without doing it: whether it would be done, and what was said.
    fn tries(&self, row: &Row, token: &str) -> (bool, String) {
        let (is_new, status, kind, name) = match row.object {
            Object::NewClaim => (true, false, "ipaddrclaim", ""),
            Object::Claim => (false, false, "ipaddrclaim", "web"),
            Object::ClaimStatus => (false, true, "ipaddrclaim", "web"),
            Object::NewAddress => (true, false, "ipaddr", ""),
            Object::Address => (false, false, "ipaddr", "ip-192-0-2-1"),
            Object::AddressStatus => (false, true, "ipaddr", "ip-192-0-2-1"),
            Object::NewClass => (true, false, "ipaddrclass", ""),
            Object::Class => (false, false, "ipaddrclass", "public"),
            Object::ClassStatus => (false, true, "ipaddrclass", "public"),
        };
        let mut object = match kind {
            _ if !is_new => {
                let stored = self
                    .cluster
                    .ctl(&["get", kind, name, "-n", TEAM, "-o", "json"]);
                serde_json::from_str(&stored).unwrap()
            }
            "ipaddrclaim" => claim("new", json!({"className": "public"})),
            "ipaddr" => address(
                "ip-192-0-2-2",
                json!({"address": "192.0.2.2", "className": "public",
                "reclaimPolicy": "Retain", "source": {"fromClass": {}}}),
            ),
            _ => class("new", json!({"provisioner": "driver.example.org"})),
        };
        (row.change)(&mut object);
        let token = ["--token", token];
        if status {
            // As the store does it.
            let patch = json!([{"op": "add", "path": "/status", "value": object["status"]}]);
            let patch = ["-p", &patch.to_string(), "-n", TEAM, "--type=json"];
            let what = [
                "patch",
                kind,
                name,
                "--subresource=status",
                "--dry-run=server",
            ];
            let arguments = [&what[..], &token, &patch].concat();
            let output = self.cluster.kubectl(&arguments).output().unwrap();
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said).into_owned();
            return (output.status.success(), said);
        }
        let mut arguments = vec![
            if is_new { "create" } else { "replace" },
            "--dry-run=server",
        ];
        arguments.extend(token);
        arguments.push("--validate=false");
        self.cluster.send(&arguments, &object)
    }
}
