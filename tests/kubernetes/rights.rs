//! Which rights to our kinds the chart gives: to its components, to administrators, and to who has the
//! built-in roles, which the real controller adds to.

use crate::cases;
use crate::chart::{RELEASE, SYSTEM};
use crate::cluster::eventually;
use crate::components::Name;
use crate::golden;
use crate::installation::Installation;

cases![Installed: the_roles_of_the_chart_reach_who_has_the_built_in_ones];

fn the_roles_of_the_chart_reach_who_has_the_built_in_ones(cluster: &mut Installation) {
    let namespace = "roles";
    cluster.ctl(&["create", "namespace", namespace]);
    let mut subjects = vec![("stranger", "stranger".to_owned())];
    for role in ["view", "edit", "admin"] {
        let (of, to) = (format!("--clusterrole={role}"), format!("--user={role}"));
        let bind = ["create", "rolebinding", role, "-n", namespace];
        cluster.ctl(&[&bind[..], &[&of, &to]].concat());
        subjects.push((role, role.to_owned()));
    }
    let role = format!("--clusterrole={SYSTEM}:{RELEASE}:administrator");
    let bind = ["create", "clusterrolebinding", "test-administrator"];
    cluster.ctl(&[&bind[..], &[&role, "--user=administrator"]].concat());
    subjects.push(("administrator", "administrator".to_owned()));
    for (subject, name) in [("driver", Name::Range), ("core", Name::Core)] {
        let account = format!("system:serviceaccount:{SYSTEM}:{}", name.account());
        subjects.push((subject, account));
    }

    let may = |subject: &str, verb: &str, resource: &str| {
        let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
        let (_, user) = subjects.iter().find(|(name, _)| *name == subject).unwrap();
        let part = format!("--subresource={part}");
        let ask = ["auth", "can-i", verb, resource, &part, "-n", namespace];
        let output = cluster.kubectl(&ask).args(["--as", user]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert!(["yes", "no"].contains(&&*said), "{output:?}");
        said == "yes"
    };
    eventually("the built-in roles have what the chart adds", || {
        may("view", "list", "ipaddrclaim") && may("admin", "delete", "ipaddrclaim")
    });
    for (subject, verb, resource, answer) in [
        ("stranger", "get", "ipaddrclaim", false),
        ("view", "get", "ipaddrclaim", true),
        ("view", "create", "ipaddrclaim", false),
        ("edit", "create", "ipaddrclaim", true),
        ("edit", "delete", "ipaddrclaim", true),
        ("edit", "patch", "ipaddrclaim/status", false),
        ("edit", "get", "ipaddr", false),
        ("edit", "use", "ipaddrclass", false),
        ("administrator", "use", "ipaddrclass", true),
        ("driver", "create", "ipaddr", true),
        ("driver", "delete", "ipaddr", false),
        ("driver", "patch", "ipaddrclaim/status", false),
        ("core", "patch", "ipaddrclaim/status", true),
        ("core", "create", "ipaddr", false),
        ("core", "get", "secrets", false),
    ] {
        let said = may(subject, verb, resource);
        assert_eq!(said, answer, "may {subject} {verb} {resource}?");
    }
    // And these are all the rights to our kinds that they have.
    let mut rights = String::new();
    for (subject, user) in &subjects {
        let list = ["auth", "can-i", "--list", "-n", namespace, "--as", user];
        let table = cluster.ctl(&list);
        let mut own: Vec<String> = table
            .lines()
            .filter(|line| line.contains("local.sdn.cozystack.io"))
            .map(|line| {
                let (resource, rest) = line.split_once(' ').unwrap();
                let verbs = rest.rsplit('[').next().unwrap().trim_end_matches(']');
                let mut verbs: Vec<&str> = verbs.split(' ').collect();
                verbs.sort_unstable();
                format!("  {resource}: {}\n", verbs.join(" "))
            })
            .collect();
        own.sort();
        rights.push_str(&format!("{subject}\n{}", own.concat()));
    }
    golden::assert_is_kept("rights.txt", &rights);
    cluster.ctl(&["delete", "clusterrolebinding", "test-administrator"]);
    cluster.ctl(&["delete", "namespace", namespace, "--timeout=60s"]);
}
