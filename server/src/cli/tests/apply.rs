//! `apply` when something goes wrong on the way, and what it makes of unusual manifests.

use ipledger_core::store::ListOptions;

use super::*;

/// This many claims in one file.
fn claims(count: usize) -> File {
    let one = |n: usize| CLAIM.replace("web", &format!("c{n:03}"));
    file(&(0..count).map(one).collect::<Vec<_>>().join("---\n"))
}

async fn count(bench: &Bench) -> usize {
    let options = ListOptions::default();
    let page = bench.store.list(Kind::IPAddressClaim, &options).await;
    page.unwrap().items.len()
}

#[tokio::test]
async fn output_that_nobody_reads_stops_no_work_and_fails_at_the_end() {
    let mut bench = Bench::new().await;
    let manifest = claims(100);
    bench.terminal.close_output();
    assert_eq!(bench.run(&["apply", "-f", &manifest.path]).await, 1);
    assert_eq!(count(&bench).await, 100);
    assert!(
        bench.err.text().contains("the output cannot be written"),
        "{}",
        bench.err.text()
    );
    assert_eq!(bench.run(&["delete", "-f", &manifest.path]).await, 1);
    assert_eq!(count(&bench).await, 0);
}

#[tokio::test]
async fn what_was_not_tried_is_reported_when_the_server_goes() {
    let mut bench = Bench::new().await;
    // Nobody listens there.
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    bench.client = Client::new(&server).unwrap();
    assert_eq!(bench.run(&["apply", "-f", &claims(100).path]).await, 8);
    let (out, err) = (bench.out.text(), bench.err.text());
    let not_tried = out.lines().filter(|l| l.ends_with(" not tried")).count();
    assert!(not_tried > 0, "{err}");
    assert_eq!(not_tried, out.lines().count(), "{out}");
    assert_eq!(not_tried + err.lines().count(), 100, "{out}{err}");
    assert!(
        out.ends_with("ipaddressclaim/default/c099 not tried\n"),
        "{out}"
    );
}

#[tokio::test]
async fn what_get_prints_changes_nothing_when_it_is_applied() {
    let mut bench = Bench::new().await;
    bench.run(&["apply", "-f", &file(CLAIM).path]).await;
    // One that `apply` has not made, with fields of others and a status.
    let other = Key::claim("default", "other");
    let value = json!({"apiVersion": Kind::IPAddressClaim.api_version(), "kind": "IPAddressClaim",
        "metadata": {"namespace": "default", "name": "other"}});
    let object = Object::from_value(value).unwrap();
    bench.store.create(object).await.unwrap();
    bench
        .change(&other, Part::Main, |c| {
            c.metadata.add_finalizer("example.com/hold");
        })
        .await;
    bench
        .change(&other, Part::Status, |c| {
            let status = json!({"phase": "Pending"});
            c.fields.insert("status".to_owned(), status);
        })
        .await;
    let before = (bench.stored(&web()).await, bench.stored(&other).await);
    for words in [
        vec!["get", "claim", "web", "-o", "yaml"],
        vec!["get", "claim", "other", "-o", "json"],
        vec!["get", "claims", "-o", "yaml"],
    ] {
        (bench.terminal, bench.out, bench.err) = captured();
        assert_eq!(bench.run(&words).await, 0);
        let printed = file(&bench.out.text());
        (bench.terminal, bench.out, bench.err) = captured();
        let code = bench.run(&["apply", "-f", &printed.path]).await;
        assert_eq!(code, 0, "{}", bench.err.text());
        let out = bench.out.text();
        assert!(out.lines().all(|l| l.ends_with(" unchanged")), "{out}");
        let says_so = bench.err.text().matches("`status`").count();
        assert_eq!(says_so, usize::from(!words.contains(&"web")));
    }
    let after = (bench.stored(&web()).await, bench.stored(&other).await);
    assert_eq!(before, after);
}

#[tokio::test]
async fn a_class_that_is_too_large_to_be_remembered_is_applied() {
    let mut bench = Bench::new().await;
    let ranges = |n: usize| {
        let items = (0..n).map(|i| format!("    - 10.{}.{}.0/24\n", i / 256, i % 256));
        file(&format!(
            "apiVersion: local.sdn.cozystack.io/v1alpha1\nkind: IPAddressClass\nmetadata:\n  name: c\n\
             spec:\n  provisioner: range.drivers.local.sdn.cozystack.io\n  parameters:\n    addresses:\n{}",
            items.collect::<String>()
        ))
    };
    let (many, more) = (ranges(15_000), ranges(15_001));
    assert_eq!(bench.run(&["apply", "-f", &many.path]).await, 0);
    assert_eq!(bench.run(&["apply", "-f", &many.path]).await, 0);
    assert_eq!(bench.run(&["apply", "-f", &more.path]).await, 0);
    assert_eq!(
        bench.out.text(),
        "ipaddressclass/c created\nipaddressclass/c unchanged\nipaddressclass/c configured\n"
    );
    assert_eq!(bench.err.text(), "");
}

#[tokio::test]
async fn a_class_that_its_driver_will_refuse_is_warned_of_and_applied() {
    let mut bench = Bench::new().await;
    let class = file(
        "apiVersion: local.sdn.cozystack.io/v1alpha1\nkind: IPAddressClass\nmetadata:\n  name: c\n\
         spec:\n  provisioner: range.drivers.local.sdn.cozystack.io\n  parameters: {adresses: [192.0.2.1]}\n",
    );
    let of_another = file(
        "apiVersion: local.sdn.cozystack.io/v1alpha1\nkind: IPAddressClass\nmetadata:\n  name: d\n\
         spec:\n  provisioner: example.com/other\n  parameters: {adresses: [192.0.2.1]}\n",
    );
    assert_eq!(
        bench.run(&["apply", "-f", &class.path, "--dry-run"]).await,
        0
    );
    assert_eq!(bench.run(&["apply", "-f", &class.path]).await, 0);
    assert_eq!(
        bench.run(&["apply", "-f", &class.path, "-o", "json"]).await,
        0
    );
    assert_eq!(bench.run(&["apply", "-f", &of_another.path]).await, 0);
    let err = bench.err.text();
    let lines: Vec<&str> = err.lines().collect();
    assert_eq!(lines.len(), 3, "{err}");
    let start = "ipaddressclass/c: InvalidParameters: unknown parameter `adresses`";
    for line in &lines[..2] {
        assert!(line.starts_with(&format!("warning: {start}")), "{line}");
    }
    let json: Value = serde_json::from_str(lines[2]).unwrap();
    assert!(
        json["warning"].as_str().unwrap().starts_with(start),
        "{json}"
    );
}
