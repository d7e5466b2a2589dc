//! Bad input gets one clear error that names object, field and line, and nothing else is lost.

use std::path::{Path, PathBuf};

use tempfile::{TempDir, tempdir};

use ipledger_tests::program::{Server, api, cli, wait_for};

const GOOD: &str = "\
apiVersion: local.sdn.cozystack.io/v1alpha1
kind: IPAddressClaim
metadata:
  name: good
spec:
  className: nothing
";

fn write(dir: &TempDir, text: &str) -> PathBuf {
    let path = dir.path().join("m.yaml");
    std::fs::write(&path, text).unwrap();
    path
}

/// Applies a good document, then a bad one: the bad one is refused with these words, the good one
/// is there.
fn refused(bad: &str, words: &[&str]) {
    let dir = tempdir().unwrap();
    let server = Server::start(&dir.path().join("l.db"), &[]);
    let path = write(&dir, &format!("{GOOD}---\n{bad}"));
    let out = server.cli(&["apply", "-f", path.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{text}");
    for word in words {
        assert!(text.contains(word), "`{word}` is missing in: {text}");
    }
    let errors = text.lines().filter(|l| l.contains("m.yaml")).count();
    assert_eq!(errors, 1, "one error: {text}");
    assert_eq!(server.claims("default").len(), 1, "the good one is there");
    let addresses = server.get("ipaddresses");
    assert_eq!(
        addresses["items"].as_array().unwrap().len(),
        0,
        "{addresses}"
    );
}

#[test]
fn a_wrong_kind_is_named_with_its_line() {
    refused(
        "apiVersion: local.sdn.cozystack.io/v1alpha1\nkind: IPAdressClaim\nmetadata:\n  name: a\n",
        &["m.yaml:9", "IPAdressClaim", "IPAddressClaim"],
    );
}

#[test]
fn an_unknown_field_is_named_with_its_line() {
    refused(
        "apiVersion: local.sdn.cozystack.io/v1alpha1\nkind: IPAddressClaim\nmetadata:\n  name: a\nspec:\n  familly: IPv4\n",
        &["m.yaml:13", "default/a", "spec.familly", "spec.family"],
    );
}

#[test]
fn a_bad_address_is_named_with_its_line() {
    refused(
        "apiVersion: local.sdn.cozystack.io/v1alpha1\nkind: IPAddress\nmetadata:\n  name: ip-10-0-0-1\nspec:\n  className: c\n  address: 010.0.0.1\n",
        &["m.yaml:14", "ip-10-0-0-1", "spec.address", "leading zero"],
    );
}

#[test]
fn a_second_object_for_one_ip_under_another_name_is_refused() {
    refused(
        "apiVersion: local.sdn.cozystack.io/v1alpha1\nkind: IPAddress\nmetadata:\n  name: my-ip\nspec:\n  className: c\n  address: 192.0.2.1\n",
        &["m.yaml:11", "my-ip", "metadata.name", "ip-192-0-2-1"],
    );
}

#[test]
fn broken_yaml_is_named_with_its_line() {
    refused(
        "apiVersion: local.sdn.cozystack.io/v1alpha1\nkind: IPAddressClaim\nmetadata:\n  name: [a\n",
        &["m.yaml:1"],
    );
}

#[test]
fn serve_checks_its_manifests_before_it_starts() {
    let dir = tempdir().unwrap();
    let path = write(&dir, &format!("{GOOD}---\nkind: Nonsense\n"));
    let db = dir.path().join("l.db");
    let args = [
        "serve",
        "--db",
        db.to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--apply",
    ];
    let out = cli("", &[&args[..], &[path.to_str().unwrap()]].concat());
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{text}");
    assert!(text.contains("m.yaml:8"), "{text}");
    assert!(!db.exists(), "nothing was started or written");
}

#[test]
fn a_manifest_that_is_not_there_is_named() {
    let dir = tempdir().unwrap();
    let server = Server::start(&dir.path().join("l.db"), &[]);
    let out = server.cli(&["apply", "-f", "/nowhere/at-all.yaml"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("/nowhere/at-all.yaml"));
}

/// Parameters are opaque to the API; the driver reports what is wrong with them.
fn parameters_are_accepted_and_reported(parameters: &str, words: &[&str]) {
    let dir = tempdir().unwrap();
    let server = Server::start(&dir.path().join("l.db"), &[]);
    let manifest = format!(
        "apiVersion: local.sdn.cozystack.io/v1alpha1\nkind: IPAddressClass\nmetadata:\n  name: c\n\
         spec:\n  provisioner: range.drivers.local.sdn.cozystack.io\n  parameters: {parameters}\n---\n\
         apiVersion: local.sdn.cozystack.io/v1alpha1\nkind: IPAddressClaim\nmetadata:\n  name: a\n\
         spec:\n  className: c\n"
    );
    let path = write(&dir, &manifest);
    let out = server.cli(&["apply", "-f", path.to_str().unwrap()]);
    let warning = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{warning}");
    for word in words {
        assert!(
            warning.contains(word),
            "`{word}` is missing in the warning: {warning}"
        );
    }
    wait_for("the claim says so", || {
        let claims = server.claims("default");
        claims
            .iter()
            .all(|c| c.phase == "Pending" && c.reason == "InvalidParameters")
    });
    let class = server.get("ipaddressclasses/c")["status"].to_string();
    for word in words {
        assert!(
            class.contains(word),
            "`{word}` is missing in the class status: {class}"
        );
    }
    assert_eq!(
        server.get("ipaddresses")["items"].as_array().unwrap().len(),
        0
    );
}

#[test]
fn an_unknown_parameter_key_is_reported_with_the_nearest_known_one() {
    parameters_are_accepted_and_reported(
        "{addresses: [192.0.2.0/28], excludeAddresses: [192.0.2.1]}",
        &["excludeAddresses", "exclude"],
    );
}

#[test]
fn a_reversed_range_is_reported() {
    parameters_are_accepted_and_reported(
        "{addresses: [192.0.2.9-192.0.2.1]}",
        &["192.0.2.9-192.0.2.1", "start is after end"],
    );
}

#[test]
fn the_api_itself_refuses_what_the_command_line_would_have_caught() {
    let dir = tempdir().unwrap();
    let server = Server::start(&dir.path().join("l.db"), &[]);
    let body: serde_json::Value = serde_json::json!({
        "apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddress",
        "metadata": {"name": "my-ip"}, "spec": {"address": "192.0.2.1", "className": "c"}
    });
    let (code, status) = server
        .ask("POST", &api("ipaddresses"), Some(&body))
        .unwrap();
    assert_eq!(code, 422, "{status}");
    assert_eq!(status["reason"], "Invalid");
    assert_eq!(status["details"]["causes"][0]["field"], "metadata.name");
}

#[test]
fn a_manifest_may_come_from_a_folder_with_spaces() {
    let dir = tempdir().unwrap();
    let server = Server::start(&dir.path().join("l.db"), &[]);
    let folder = dir.path().join("a folder");
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("m.yaml");
    std::fs::write(&path, GOOD).unwrap();
    let out = server.cli(&["apply", "-f", Path::new(&path).to_str().unwrap()]);
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    assert!(String::from_utf8_lossy(&out.stdout).contains("ipaddressclaim/default/good created"));
}
