//! Lists: order, scope, pages, selectors, revisions.

use ipledger_core::api::Key;
use ipledger_core::store::Revision;

use super::*;

/// Claims a, b, c in team-a and d in team-b.
async fn filled() -> Server {
    let server = Server::new();
    for (name, labels, family) in [
        ("c", json!({"tier": "gold"}), "Dual"),
        ("a", json!({"tier": "gold"}), "IPv4"),
        ("b", json!({}), "IPv6"),
    ] {
        let mut body = claim(name);
        body["metadata"]["labels"] = labels;
        body["spec"]["family"] = json!(family);
        server.made(CLAIMS, &body).await;
    }
    server
        .made(&CLAIMS.replace("team-a", "team-b"), &claim("d"))
        .await;
    server
}

#[tokio::test]
async fn a_list_is_in_key_order_within_its_scope() {
    let server = filled().await;
    let list = server.get(CLAIMS).await;
    assert_eq!(list.names(), ["a", "b", "c"]);
    assert_eq!(list.body["kind"], "IPAddressClaimList");
    assert_eq!(list.body["apiVersion"], "local.sdn.cozystack.io/v1alpha1");
    assert!(list.body["metadata"]["resourceVersion"].is_string());
    assert_eq!(list.body["items"][0]["kind"], "IPAddressClaim");
    assert_eq!(server.get(ALL_CLAIMS).await.names(), ["a", "b", "c", "d"]);
    assert_eq!(
        server.get(&CLAIMS.replace("team-a", "none")).await.names(),
        Vec::<&str>::new()
    );
    assert_eq!(server.get(ADDRESSES).await.body["items"], json!([]));
}

#[tokio::test]
async fn pages_show_one_revision_and_end() {
    let server = filled().await;
    let first = server.get(&format!("{ALL_CLAIMS}?limit=3")).await;
    assert_eq!(first.names(), ["a", "b", "c"]);
    let token = first.body["metadata"]["continue"].as_str().unwrap();
    server.made(CLAIMS, &claim("aa")).await;
    server
        .made(&CLAIMS.replace("team-a", "team-b"), &claim("e"))
        .await;
    let token: String = token.bytes().map(|b| format!("%{b:02x}")).collect();
    let second = server
        .get(&format!("{ALL_CLAIMS}?limit=3&continue={token}"))
        .await;
    assert_eq!(second.names(), ["d"]);
    assert_eq!(second.body["metadata"].get("continue"), None);
    let revision = |a: &Answer| a.body["metadata"]["resourceVersion"].clone();
    assert_eq!(revision(&first), revision(&second));
    assert_eq!(
        server
            .get(&format!("{ALL_CLAIMS}?limit=0"))
            .await
            .names()
            .len(),
        6
    );
}

#[tokio::test]
async fn a_token_that_is_too_old_is_expired_and_one_that_is_none_refused() {
    let server = filled().await;
    let first = server.get(&format!("{ALL_CLAIMS}?limit=1")).await;
    let token = first.body["metadata"]["continue"]
        .as_str()
        .unwrap()
        .to_owned();
    server.made(CLAIMS, &claim("x")).await;
    server.store.compact(Revision(u64::MAX));
    let token: String = token.bytes().map(|b| format!("%{b:02x}")).collect();
    let late = server
        .get(&format!("{ALL_CLAIMS}?limit=1&continue={token}"))
        .await;
    late.refused(410, "Expired");
    let none = server.get(&format!("{ALL_CLAIMS}?continue=x")).await;
    assert!((400..=422).contains(&none.code), "{}", none.body);
}

#[tokio::test]
async fn selectors_choose() {
    let server = filled().await;
    for (query, names) in [
        ("labelSelector=tier%3Dgold", vec!["a", "c"]),
        ("labelSelector=tier!%3Dgold", vec!["b", "d"]),
        ("labelSelector=!tier", vec!["b", "d"]),
        ("fieldSelector=metadata.name%3Db", vec!["b"]),
        ("fieldSelector=metadata.namespace%3Dteam-b", vec!["d"]),
        ("fieldSelector=spec.family%3DIPv4", vec!["a", "d"]),
        (
            "fieldSelector=spec.className%3D,status.phase%3D",
            vec!["a", "b", "c", "d"],
        ),
        (
            "labelSelector=tier&fieldSelector=spec.family!%3DDual",
            vec!["a"],
        ),
    ] {
        assert_eq!(
            server.get(&format!("{ALL_CLAIMS}?{query}")).await.names(),
            names,
            "{query}"
        );
    }
}

#[tokio::test]
async fn only_the_selectable_fields_of_a_kind_select() {
    let server = Server::new();
    for (path, fields) in [
        (
            ALL_CLAIMS,
            vec![
                "spec.className",
                "spec.family",
                "spec.addressName",
                "status.phase",
            ],
        ),
        (
            ADDRESSES,
            vec![
                "spec.address",
                "spec.className",
                "spec.claimRef.namespace",
                "spec.claimRef.name",
                "status.phase",
            ],
        ),
        (CLASSES, vec!["spec.provisioner"]),
    ] {
        for field in fields
            .into_iter()
            .chain(["metadata.name", "metadata.namespace"])
        {
            let list = server
                .get(&format!("{path}?fieldSelector={field}%3Dx"))
                .await;
            assert_eq!(list.code, 200, "{field}: {}", list.body);
        }
        for field in ["spec.other", "metadata.uid", "spec", "status.className"] {
            let list = server
                .get(&format!("{path}?fieldSelector={field}%3Dx"))
                .await;
            let message = list.refused(400, "BadRequest");
            assert!(message.contains(field), "{message}");
        }
    }
}

#[tokio::test]
async fn parameters_that_cannot_be_read_are_refused_by_name() {
    let server = Server::new();
    for query in [
        "limit=x",
        "limit=-1",
        "watch=maybe",
        "resourceVersion=abc",
        "resourceVersion=-1",
        "resourceVersionMatch=Exact",
        "resourceVersion=1&resourceVersionMatch=About",
        "labelSelector=%3D%3D",
        "fieldSelector=x",
        "watch=1&timeoutSeconds=soon",
        "watch=1&sendInitialEvents=2",
        "watch=1&resourceVersion=x",
    ] {
        server
            .get(&format!("{CLAIMS}?{query}"))
            .await
            .refused(400, "BadRequest");
    }
}

#[tokio::test]
async fn a_revision_of_the_future_is_not_answered_with_the_present() {
    let server = filled().await;
    for path in [
        format!("{CLAIMS}?resourceVersion=999"),
        format!("{CLAIMS}/a?resourceVersion=999"),
        format!("{CLAIMS}?watch=1&resourceVersion=999"),
        format!("{CLAIMS}?watch=1&sendInitialEvents=true&resourceVersion=999"),
    ] {
        let answer = server.get(&path).await;
        answer.refused(504, "Timeout");
        let cause = &answer.body["details"]["causes"][0]["reason"];
        assert_eq!(cause, "ResourceVersionTooLarge", "{path}");
    }
}

#[tokio::test]
async fn a_revision_of_the_past_is_satisfied_by_the_present_unless_it_must_be_exact() {
    let server = filled().await;
    let now = server.get(CLAIMS).await.body["metadata"]["resourceVersion"].clone();
    let now = now.as_str().unwrap();
    for query in [
        "resourceVersion=0".to_owned(),
        "resourceVersion=1".to_owned(),
        "resourceVersion=0&resourceVersionMatch=NotOlderThan".to_owned(),
        format!("resourceVersion={now}&resourceVersionMatch=Exact"),
    ] {
        assert_eq!(
            server.get(&format!("{CLAIMS}?{query}")).await.names().len(),
            3,
            "{query}"
        );
    }
    assert_eq!(
        server
            .get(&format!("{CLAIMS}/a?resourceVersion=1"))
            .await
            .code,
        200
    );
    let past = server
        .get(&format!(
            "{CLAIMS}?resourceVersion=1&resourceVersionMatch=Exact"
        ))
        .await;
    past.refused(410, "Expired");
}

#[tokio::test]
async fn an_object_that_cannot_be_read_stalls_no_list() {
    let server = filled().await;
    server
        .store
        .inject_unreadable(&Key::claim("team-a", "b"), "half a page");
    let list = server.get(CLAIMS).await;
    assert_eq!(list.names(), ["a", "c"]);
    assert!(
        list.warnings()[0].contains("team-a/b"),
        "{:?}",
        list.warnings()
    );
    server
        .get(&format!("{CLAIMS}/b"))
        .await
        .refused(500, "InternalError");
}
