use super::*;

fn parse(text: &str) -> Vec<Result<Document, ManifestError>> {
    let mut reader = Reader::new("default", Check::Creation);
    reader.add_file("m.yaml", text);
    reader.found
}

/// The errors as they are printed.
fn errors(text: &str) -> Vec<String> {
    parse(text)
        .into_iter()
        .filter_map(Result::err)
        .map(|e| e.to_string())
        .collect()
}

/// The only error, and the names of the objects that are good.
fn error(text: &str) -> (String, Vec<String>) {
    let (good, bad): (Vec<_>, Vec<_>) = parse(text).into_iter().partition(Result::is_ok);
    let bad: Vec<String> = bad
        .into_iter()
        .filter_map(Result::err)
        .map(|e| e.to_string())
        .collect();
    assert_eq!(bad.len(), 1, "{bad:?}");
    let good = good
        .into_iter()
        .filter_map(Result::ok)
        .map(|d| d.object.key().to_string());
    (bad[0].clone(), good.collect())
}

const GOOD: &str = "\
apiVersion: local.sdn.cozystack.io/v1alpha1
kind: IPAddressClaim
metadata:
  name: good
";

fn claim(spec: &str) -> String {
    format!(
        "apiVersion: local.sdn.cozystack.io/v1alpha1\nkind: IPAddressClaim\nmetadata:\n  name: web\nspec:\n{spec}"
    )
}

fn address(name: &str, ip: &str) -> String {
    format!(
        "apiVersion: local.sdn.cozystack.io/v1alpha1\nkind: IPAddress\nmetadata:\n  name: {name}\nspec:\n  className: c\n  address: {ip}\n"
    )
}

#[test]
fn documents_are_read_in_order_and_get_the_default_namespace() {
    let text = format!(
        "# comment\n---\n{GOOD}---\n{}\n---\n# nothing\n",
        address("ip-192-0-2-7", "192.0.2.7")
    );
    let keys: Vec<String> = parse(&text)
        .into_iter()
        .map(|d| d.unwrap().object.key().to_string())
        .collect();
    assert_eq!(
        keys,
        ["IPAddressClaim default/good", "IPAddress ip-192-0-2-7"]
    );
}

#[test]
fn a_namespace_that_is_written_stays() {
    let documents = parse(&format!("{GOOD}  namespace: team-a\n"));
    assert_eq!(
        documents[0].as_ref().unwrap().object.metadata.namespace,
        "team-a"
    );
}

#[test]
fn json_is_a_manifest_too() {
    let text = r#"{"apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddressClaim",
        "metadata": {"name": "web"}, "spec": {"family": "Dual"}}"#;
    assert!(parse(text)[0].is_ok());
}

#[test]
fn a_list_is_the_objects_in_it() {
    let text = "\
apiVersion: v1
kind: List
items:
- apiVersion: local.sdn.cozystack.io/v1alpha1
  kind: IPAddressClaim
  metadata: {name: a}
- apiVersion: local.sdn.cozystack.io/v1alpha1
  kind: IPAddressClaim
  metadata: {name: b}
  spec:
    family: IPv5
";
    let (error, good) = error(text);
    assert!(
        error.starts_with("m.yaml:11: IPAddressClaim default/b: spec.family: "),
        "{error}"
    );
    assert_eq!(good, ["IPAddressClaim default/a"]);
}

#[test]
fn broken_yaml_is_reported_with_its_line_and_hides_nothing() {
    let (error, good) = error(&format!(
        "{GOOD}---\nkind: IPAddress\nspec: [1\nmetadata: x\n---\n{}",
        claim("  family: IPv6\n")
    ));
    assert!(error.starts_with("m.yaml:8: "), "{error}");
    assert_eq!(
        good,
        ["IPAddressClaim default/good", "IPAddressClaim default/web"]
    );
}

#[test]
fn an_unclosed_quote_ends_with_its_document() {
    let (error, good) = error(&format!("kind: \"IPAddress\nspec: 1\n---\n{GOOD}"));
    assert!(error.starts_with("m.yaml:1: "), "{error}");
    assert_eq!(good, ["IPAddressClaim default/good"]);
}

#[test]
fn a_document_that_is_no_object_is_reported() {
    let (error, good) = error(&format!("{GOOD}---\njust text\n"));
    assert_eq!(error, "m.yaml:6: text stands where an object is expected");
    assert_eq!(good, ["IPAddressClaim default/good"]);
}

#[test]
fn a_wrong_kind_is_reported_with_the_nearest_known_one() {
    let (error, _) = error(&GOOD.replace("IPAddressClaim", "IPAdressClaim"));
    assert_eq!(
        error,
        "m.yaml:2: IPAdressClaim good: kind: `IPAdressClaim` of `local.sdn.cozystack.io/v1alpha1` is not kept \
         here; did you mean `IPAddressClaim`? known kinds are IPAddressClass, IPAddress, IPAddressClaim"
    );
}

#[test]
fn a_kind_of_another_group_is_reported_without_a_guess() {
    let (error, _) = error("apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n");
    assert_eq!(
        error,
        "m.yaml:2: Service a: kind: `Service` of `v1` is not kept here; known kinds are IPAddressClass, IPAddress, \
         IPAddressClaim"
    );
}

#[test]
fn a_wrong_version_is_reported_with_the_right_one() {
    let (error, _) = error(&GOOD.replace("v1alpha1", "v1"));
    assert_eq!(
        error,
        "m.yaml:1: IPAddressClaim default/good: apiVersion: `local.sdn.cozystack.io/v1` has no IPAddressClaim here; \
         write `local.sdn.cozystack.io/v1alpha1`"
    );
}

#[test]
fn missing_kind_and_metadata_are_reported() {
    let (missing, _) = error("metadata:\n  name: a\n");
    assert_eq!(
        missing,
        "m.yaml:1: a: kind: is missing; write `kind: IPAddressClaim`"
    );
    let head = "apiVersion: local.sdn.cozystack.io/v1alpha1\nkind: IPAddressClass\n";
    let (missing, _) = error(head);
    assert_eq!(
        missing,
        "m.yaml:1: IPAddressClass: metadata: is missing; write `metadata:` with a `name:` below it"
    );
    let (missing, _) = error(&format!("{head}metadata:\n  labels: {{}}\n"));
    assert_eq!(
        missing,
        "m.yaml:3: IPAddressClass: metadata.name: is missing; every object has a name"
    );
}

#[test]
fn an_unknown_field_is_reported_with_its_line_and_the_nearest_known_one() {
    let (error, _) = error(&claim("  className: c\n  familly: IPv6\n"));
    assert_eq!(
        error,
        "m.yaml:7: IPAddressClaim default/web: spec.familly: is not known; did you mean `spec.family`?"
    );
}

#[test]
fn each_error_of_an_object_is_reported() {
    let errors = errors(&claim(
        "  familly: IPv6\n  className: Not A Name\n  addressName: 7\n",
    ));
    let lines: Vec<&str> = errors.iter().map(|e| &e[..8]).collect();
    assert_eq!(lines, ["m.yaml:6", "m.yaml:8"], "{errors:?}");
}

#[test]
fn a_bad_address_is_reported_with_its_line() {
    for (ip, part) in [
        ("192.0.2.256", "192.0.2.256"),
        ("192.0.2.07", "192.0.2.07"),
        ("127.0.0.1", "loopback"),
        ("2001:DB8::7", "2001:db8::7"),
    ] {
        let name = if ip.contains("DB8") {
            "ip-2001-db8--7"
        } else {
            "ip-192-0-2-7"
        };
        let (error, _) = error(&address(name, ip));
        let start = format!("m.yaml:7: IPAddress {name}: spec.address: ");
        assert!(error.starts_with(&start) && error.contains(part), "{error}");
    }
}

#[test]
fn an_address_that_looks_like_a_mapping_is_reported_with_the_way_out() {
    let (error, _) = error(&address("ip-2001-db8--0", "2001:db8::"));
    assert!(
        error.starts_with("m.yaml:7: ") && error.ends_with("must stand in quotes)"),
        "{error}"
    );
    assert!(parse(&address("ip-2001-db8--0", "\"2001:db8::\""))[0].is_ok());
}

#[test]
fn the_same_ip_under_another_name_is_reported_at_the_name_with_the_right_one() {
    let (error, good) = error(&format!(
        "{}---\n{}",
        address("ip-192-0-2-7", "192.0.2.7"),
        address("ip-192-0-2-8", "192.0.2.7")
    ));
    assert!(
        error.starts_with(
            "m.yaml:12: IPAddress ip-192-0-2-8: metadata.name: must be `ip-192-0-2-7`"
        ),
        "{error}"
    );
    assert_eq!(good, ["IPAddress ip-192-0-2-7"]);
}

#[test]
fn an_object_that_is_there_twice_is_reported_with_both_lines() {
    let (error, good) = error(&format!(
        "{GOOD}---\n{}  namespace: default\n",
        GOOD.replace("  name", "  # again\n  name")
    ));
    assert_eq!(
        error,
        "m.yaml:10: IPAddressClaim default/good: metadata.name: the same object stands at m.yaml:4 already; \
         remove one of the two"
    );
    assert_eq!(good, ["IPAddressClaim default/good"]);
}

#[test]
fn a_field_that_is_there_twice_is_reported() {
    let (error, _) = error(&claim("  family: IPv4\n  family: IPv6\n"));
    assert_eq!(
        error,
        "m.yaml:7: the field `family` is there twice in one mapping; remove one of them"
    );
}

#[test]
fn an_annotation_that_is_no_text_is_reported_with_the_quotes_that_it_needs() {
    let text =
        format!("{GOOD}  annotations:\n    example.com/x: \"1\"\n    example.com/default: true\n");
    let (error, _) = error(&text);
    assert_eq!(
        error,
        "m.yaml:7: IPAddressClaim default/good: metadata.annotations.example.com/default: must be text, not a \
         boolean; write it in quotes: \"true\""
    );
}

#[test]
fn the_quotes_go_around_what_is_written() {
    let text = format!("{GOOD}  annotations:\n    a: 1.50\n    b: 0x1F\n    c: yes\n");
    let errors = errors(&text);
    assert_eq!(errors.len(), 2, "`yes` is text: {errors:?}");
    assert!(errors[0].ends_with("in quotes: \"1.50\""), "{errors:?}");
    assert!(errors[1].ends_with("in quotes: \"0x1F\""), "{errors:?}");
}

#[test]
fn what_only_a_server_writes_is_no_error() {
    let given = "  uid: u-1\n  resourceVersion: \"7\"\n  generation: 3\n  managedFields: [{manager: x}]\n  \
                 creationTimestamp: 2024-01-01T00:00:00Z\n  deletionTimestamp: 2024-01-01T00:00:00Z\n\
                 status: {phase: Bound}\n";
    assert_eq!(errors(&format!("{GOOD}{given}")), Vec::<String>::new());
}

#[test]
fn a_name_that_is_no_text_is_reported() {
    let (error, _) = error(&GOOD.replace("good", "7"));
    assert!(
        error.starts_with("m.yaml:4: IPAddressClaim: metadata.name: must be text, not a number"),
        "{error}"
    );
}

#[test]
fn a_name_that_cannot_be_one_is_reported() {
    let (error, _) = error(&GOOD.replace("good", "Good_Name"));
    assert!(
        error.starts_with("m.yaml:4: IPAddressClaim default/Good_Name: metadata.name: "),
        "{error}"
    );
}

#[test]
fn a_namespace_on_a_kind_without_one_is_reported() {
    let text = address("ip-192-0-2-7", "192.0.2.7").replace("spec:", "  namespace: n\nspec:");
    let (error, _) = error(&text);
    assert!(
        error.contains(": metadata.namespace: ") && error.starts_with("m.yaml:5: "),
        "{error}"
    );
}

#[test]
fn class_parameters_are_the_drivers_business() {
    let text = "\
apiVersion: local.sdn.cozystack.io/v1alpha1
kind: IPAddressClass
metadata:
  name: c
spec:
  provisioner: p
  parameters:
    adresses: [192.0.2.9-192.0.2.1]
    nothing: null
";
    let documents = parse(text);
    let object = &documents[0].as_ref().unwrap().object;
    assert_eq!(object.fields["spec"]["parameters"]["nothing"], Value::Null);
}

#[test]
fn a_field_without_a_value_is_absent() {
    let text = claim("  family:\n  className: ~\n").replace("spec:", "  labels:\nspec:");
    let documents = parse(&text);
    assert_eq!(
        documents[0].as_ref().unwrap().object.fields["spec"],
        serde_json::json!({})
    );
}

#[test]
fn a_file_without_an_object_is_reported() {
    for text in ["", "# only a comment\n", "---\n---\n"] {
        assert_eq!(
            errors(text),
            ["m.yaml: there is no object in it"],
            "{text:?}"
        );
    }
}

#[test]
fn a_file_that_cannot_be_read_is_reported() {
    let found = load(
        &[PathBuf::from("/nowhere/m.yaml")],
        "default",
        Check::Creation,
    );
    let error = found[0].as_ref().unwrap_err().to_string();
    assert!(
        error.starts_with("/nowhere/m.yaml: cannot be read: "),
        "{error}"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("latin1.yaml");
    std::fs::write(&file, b"a: b\nc: \xe4\n").unwrap();
    let found = load(std::slice::from_ref(&file), "default", Check::Creation);
    let error = found[0].as_ref().unwrap_err().to_string();
    assert!(error.ends_with("line 2 is not UTF-8 text"), "{error}");
}

#[test]
fn the_same_object_in_two_files_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<PathBuf> = ["a.yaml", "b.yaml"]
        .map(|name| folder.path().join(name))
        .into();
    for file in &files {
        std::fs::write(file, GOOD).unwrap();
    }
    let found = load(&files, "default", Check::Creation);
    assert!(found[0].is_ok());
    assert!(found[1].as_ref().unwrap_err().message.contains("a.yaml:4"));
}

#[test]
fn the_quickstart_is_good() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/quickstart.yaml");
    let found = load(&[PathBuf::from(file)], "default", Check::Creation);
    assert_eq!(found.len(), 8);
    for document in found {
        document.unwrap();
    }
}

#[test]
fn deleting_asks_for_no_more_than_a_name() {
    let mut reader = Reader::new("default", Check::Identity);
    reader.add_file("m.yaml", &claim("  familly: IPv5\n"));
    assert!(reader.found[0].is_ok());
    let mut reader = Reader::new("default", Check::Identity);
    reader.add_file("m.yaml", &GOOD.replace("good", "\"..\""));
    let error = reader.found[0].as_ref().unwrap_err().to_string();
    assert!(
        error.starts_with("m.yaml:4: IPAddressClaim default/..: metadata.name: "),
        "{error}"
    );
}

#[test]
fn documents_end_where_yaml_ends_them() {
    let text = "%YAML 1.2\n---\na: |\n  x\n--- # next\nb: 1\n...\nc: 1\n---x: 1\n";
    let parts: Vec<(u64, String)> = split(text);
    assert_eq!(
        parts,
        [
            (2, "---\na: |\n  x\n".to_owned()),
            (5, "--- # next\nb: 1\n".to_owned()),
            (8, "c: 1\n---x: 1\n".to_owned()),
        ]
    );
}

#[test]
fn line_ends_of_windows_and_a_byte_order_mark_are_no_trouble() {
    let text = format!("\u{feff}{GOOD}---\n{GOOD}").replace('\n', "\r\n");
    let (error, _) = error(&text);
    assert!(error.starts_with("m.yaml:9: "), "{error}");
}
