//! `bench store` beside a ledger in etcd or kine: it ends, and leaves nothing behind.

use std::process::Command;

use etcd_client::GetOptions;

use ipledger_tests::etcd::{Etcd, EtcdOptions, client};
use ipledger_tests::kine::Kine;
use ipledger_tests::program::binary;

fn measure_and_look_what_is_left(endpoint: &str) {
    let url = format!("etcd://{endpoint}/site/x");
    let mut command = Command::new(binary());
    command.args(["bench", "store", "--writers", "2", "--writes", "20"]);
    let out = command.args(["--store", &url]).output().unwrap();
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{error}");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let mut client = client(endpoint).await.unwrap();
        let revision = |r: i64| assert!(r > 60, "only {r} revisions were written");
        let all = GetOptions::new().with_prefix();
        let left = client.get("/site/", Some(all)).await.unwrap();
        revision(left.header().unwrap().revision());
        let left: Vec<_> = left.kvs().iter().map(|kv| kv.key_str().unwrap()).collect();
        assert!(left.is_empty(), "{left:?}");
    });
}

#[test]
fn a_measurement_on_etcd_leaves_nothing_behind() {
    let etcd = Etcd::start(&EtcdOptions::default()).expect("tests/tools/build etcd");
    measure_and_look_what_is_left(&etcd.endpoint());
}

#[test]
fn a_measurement_on_kine_leaves_nothing_behind() {
    let kine = Kine::start().expect("tests/tools/build kine");
    measure_and_look_what_is_left(&kine.endpoint());
}
