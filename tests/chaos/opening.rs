//! What is wrong with an etcd when the ledger is opened.

use std::time::{Duration, Instant};

use etcd_client::{Client, PermissionType};
use ipledger_core::store::{Store, StoreError};
use ipledger_store_etcd::{EtcdStore, Identity, OpenError, Options, Tls, User};
use ipledger_tests::certificates::Authority;
use ipledger_tests::etcd::{Etcd, EtcdOptions, ServerTls, client, cluster};
use ipledger_tests::load::claim;
use ipledger_tests::program::free_port;

use crate::cases;

cases![
    an_etcd_that_does_not_run_is_unreachable,
    a_prefix_that_cannot_be_is_a_bad_option,
    a_cluster_without_a_majority_has_no_leader,
    users_passwords_and_permissions_are_told_apart,
    a_ledger_is_reached_over_tls_and_only_with_the_right_certificates,
];

fn options(endpoint: String) -> Options {
    let mut options = Options::new(vec![endpoint], "chaos");
    options.request_timeout = Duration::from_secs(2);
    options.member_timeout = Duration::from_secs(1);
    options
}

async fn refusal(options: Options) -> OpenError {
    match EtcdStore::open(options).await {
        Ok(_) => panic!("it opens"),
        Err(e) => e,
    }
}

async fn an_etcd_that_does_not_run_is_unreachable() {
    let endpoint = format!("127.0.0.1:{}", free_port());
    let start = Instant::now();
    let e = refusal(options(endpoint.clone())).await;
    assert!(
        matches!(&e, OpenError::Unreachable { endpoints, .. } if *endpoints == endpoint),
        "{e}"
    );
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
}

async fn a_prefix_that_cannot_be_is_a_bad_option() {
    let mut options = options("127.0.0.1:1".to_owned());
    options.prefix = "a//b".to_owned();
    let e = refusal(options).await;
    assert!(
        matches!(
            &e,
            OpenError::BadOption {
                option: "prefix",
                ..
            }
        ),
        "{e}"
    );
}

async fn a_cluster_without_a_majority_has_no_leader() {
    let mut members = cluster(3, &EtcdOptions::default()).unwrap();
    members[1].kill();
    members[2].kill();
    // The one that is left notices it within an election time-out; until then it is the same error,
    // because a read that needs a majority is not answered either.
    let start = Instant::now();
    loop {
        match refusal(options(members[0].endpoint())).await {
            OpenError::NoLeader { .. } => return,
            e => assert!(start.elapsed() < Duration::from_secs(20), "{e}"),
        }
    }
}

/// A role that may do everything under a prefix.
async fn grant(client: &mut Client, role: &str, prefix: &str) {
    use etcd_client::Permission;
    client.role_add(role).await.unwrap();
    let permission = Permission::new(PermissionType::Readwrite, prefix).with_prefix();
    client
        .role_grant_permission(role, permission)
        .await
        .unwrap();
}

async fn users_passwords_and_permissions_are_told_apart() {
    let etcd = Etcd::start(&EtcdOptions::default()).unwrap();
    let mut admin = client(&etcd.endpoint()).await.unwrap();
    for (user, password) in [("root", "r"), ("ledger", "l"), ("other", "o")] {
        admin.user_add(user, password, None).await.unwrap();
    }
    admin.role_add("root").await.unwrap();
    grant(&mut admin, "ledger", "/chaos/").await;
    grant(&mut admin, "other", "/other/").await;
    for user in ["root", "ledger", "other"] {
        admin.user_grant_role(user, user).await.unwrap();
    }
    admin.auth_enable().await.unwrap();
    let with = |name: &str, password: &str| {
        let user = Some(User {
            name: name.to_owned(),
            password: password.to_owned(),
        });
        Options {
            user,
            ..options(etcd.endpoint())
        }
    };
    let e = refusal(options(etcd.endpoint())).await;
    assert!(matches!(e, OpenError::WrongCredentials { .. }), "{e}");
    for (name, password) in [("ledger", "wrong"), ("nobody", "x")] {
        let e = refusal(with(name, password)).await;
        assert!(
            matches!(e, OpenError::WrongCredentials { .. }),
            "{name}: {e}"
        );
    }
    let e = refusal(with("other", "o")).await;
    assert!(
        matches!(&e, OpenError::Forbidden { prefix, .. } if prefix == "chaos"),
        "{e}"
    );
    let store = EtcdStore::open(with("ledger", "l")).await.unwrap();
    store.create(claim("web")).await.unwrap();
    // What is taken away while the ledger is open is refused without a doubt about its outcome.
    let root = ConnectAs::root(&etcd).await;
    root.revoke("ledger").await;
    let e = store.create(claim("later")).await.unwrap_err();
    assert!(matches!(e, StoreError::Forbidden { .. }), "{e}");
}

struct ConnectAs(Client);

impl ConnectAs {
    async fn root(etcd: &Etcd) -> ConnectAs {
        let options = etcd_client::ConnectOptions::new().with_user("root", "r");
        ConnectAs(
            Client::connect([etcd.endpoint()], Some(options))
                .await
                .unwrap(),
        )
    }

    async fn revoke(mut self, user: &str) {
        self.0.user_revoke_role(user, user).await.unwrap();
    }
}

async fn a_ledger_is_reached_over_tls_and_only_with_the_right_certificates() {
    let (servers, clients) = (Authority::new(), Authority::new());
    let tls = ServerTls {
        own: servers.sign("127.0.0.1"),
        clients: Some(clients.certificate.clone()),
    };
    let etcd = Etcd::start(&EtcdOptions {
        tls: Some(tls),
        ..EtcdOptions::default()
    })
    .unwrap();
    let with = |tls| Options {
        tls,
        ..options(etcd.endpoint())
    };
    let signed_by = |authority: &Authority| {
        let own = authority.sign("ledger");
        Some(Identity {
            certificate: own.certificate,
            key: own.key,
        })
    };
    let right = Tls {
        ca: Some(servers.certificate.clone()),
        identity: signed_by(&clients),
        server_name: None,
    };
    let store = EtcdStore::open(with(Some(right.clone()))).await.unwrap();
    store.create(claim("web")).await.unwrap();
    for (wrong, what) in [
        (None, "no TLS"),
        (
            Some(Tls {
                ca: None,
                ..right.clone()
            }),
            "an authority that the system does not know",
        ),
        (
            Some(Tls {
                ca: Some(clients.certificate.clone()),
                ..right.clone()
            }),
            "another authority",
        ),
        (
            Some(Tls {
                identity: None,
                ..right.clone()
            }),
            "no own certificate",
        ),
        (
            Some(Tls {
                identity: signed_by(&servers),
                ..right.clone()
            }),
            "an own one of another authority",
        ),
        (
            Some(Tls {
                server_name: Some("other".to_owned()),
                ..right.clone()
            }),
            "another name",
        ),
    ] {
        let e = refusal(with(wrong)).await;
        assert!(matches!(e, OpenError::Unreachable { .. }), "{what}: {e}");
    }
    let broken = Tls {
        ca: Some("no certificate".to_owned()),
        ..right
    };
    let e = refusal(with(Some(broken))).await;
    assert!(
        matches!(e, OpenError::BadOption { option: "tls", .. }),
        "{e}"
    );
}
