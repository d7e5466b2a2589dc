//! The three-way merge of `apply`: what the manifest says now, what it said when it was last
//! applied, and what the object is. Fields that the manifest no longer has are removed, fields
//! that others own stay.
//!
//! Maps are merged field by field and lists are replaced whole, as `kubectl apply` does for these
//! kinds, and the last manifest is kept under the annotation that `kubectl` uses, so that the two
//! can be mixed.
//!
//! A manifest that is too large for an annotation is not kept. Then the merge knows no last time:
//! labels, annotations and fields that the manifest no longer has stay, but `spec.parameters` of a
//! class, which only its manifest writes, are replaced whole.

use ipledger_core::api::{Object, ObjectMeta};
use serde_json::{Map, Value};

/// The annotation with the manifest that was last applied, as JSON.
pub(super) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The longest manifest that is kept, in bytes.
const KEPT_MAX: usize = 100 * 1024;
/// What a server takes as annotations of one object, in bytes.
const ANNOTATIONS_MAX: usize = 256 * 1024;

/// The object without what only a server writes; a manifest made from a server's answer has it.
pub(super) fn without_server_fields(object: &Object) -> Object {
    let mut object = object.clone();
    object.fields.remove("status");
    object.metadata = ObjectMeta {
        uid: String::new(),
        resource_version: None,
        generation: 0,
        creation_timestamp: None,
        deletion_timestamp: None,
        ..object.metadata
    };
    for field in ["managedFields", "selfLink", "deletionGracePeriodSeconds"] {
        object.metadata.extra.remove(field);
    }
    object.metadata.annotations.remove(LAST_APPLIED);
    object
}

/// The object that a manifest creates.
pub(super) fn created(manifest: &Object) -> Object {
    let mut object = without_server_fields(manifest);
    remember(&mut object, &without_server_fields(manifest));
    object
}

/// Keeps the manifest in the object, if there is room for it.
fn remember(object: &mut Object, manifest: &Object) {
    let text = manifest.to_value().to_string();
    let annotations = &mut object.metadata.annotations;
    annotations.remove(LAST_APPLIED);
    let others: usize = annotations.iter().map(|(k, v)| k.len() + v.len()).sum();
    if text.len() <= KEPT_MAX && others + LAST_APPLIED.len() + text.len() <= ANNOTATIONS_MAX {
        annotations.insert(LAST_APPLIED.to_owned(), text);
    }
}

/// The object as the manifest wants it, or `None` if it is like that already.
///
/// # Errors
/// The merge gives no object: what others have made of the live one has no place for a field of
/// the manifest.
pub(super) fn changed(manifest: &Object, live: &Object) -> Result<Option<Object>, String> {
    // What a server printed says everything that the object is; that is no wish to own all of it.
    let printed = !manifest.metadata.uid.is_empty();
    let manifest = without_server_fields(manifest);
    let last = live.metadata.annotation(LAST_APPLIED);
    let last: Option<Value> = last.and_then(|text| serde_json::from_str(text).ok());
    let mut wanted = manifest.to_value();
    let remembered = last.as_ref().is_some_and(|last| same(last, &wanted));
    // Labels and annotations of several owners lie side by side: they are removed one by one.
    for map in ["labels", "annotations"] {
        if let Some(Value::Object(metadata)) = wanted.get_mut("metadata") {
            metadata
                .entry(map)
                .or_insert_with(|| Value::Object(Map::new()));
        }
    }
    let mut merged = live.to_value();
    merge(&mut merged, &wanted, last.as_ref().unwrap_or(&Value::Null));
    let mut merged = Object::from_value(merged).map_err(|e| e.to_string())?;
    if (remembered || printed) && merged == *live {
        return Ok(None);
    }
    remember(&mut merged, &manifest);
    let forgotten = merged.metadata.annotation(LAST_APPLIED).is_none();
    if last.is_none() || forgotten {
        replace_parameters(&mut merged, &manifest);
    }
    Ok((merged != *live).then_some(merged))
}

/// Whether two remembered manifests say the same. `kubectl` writes an empty `annotations`.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let covers = |a: &Map<String, Value>, b: &Map<String, Value>| {
                a.iter().all(|(name, value)| match b.get(name) {
                    Some(other) => same(value, other),
                    None => is_empty(value),
                })
            };
            covers(a, b) && covers(b, a)
        }
        _ => a == b,
    }
}

/// Parameters are opaque: without a last time only the manifest can say which are no longer wanted.
fn replace_parameters(object: &mut Object, manifest: &Object) {
    let of_manifest = manifest
        .fields
        .get("spec")
        .and_then(|s| s.get("parameters"));
    if let (Some(spec), Some(parameters)) = (object.fields.get_mut("spec"), of_manifest)
        && let Value::Object(spec) = spec
    {
        spec.insert("parameters".to_owned(), parameters.clone());
    }
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(Map::is_empty)
}

fn merge(live: &mut Value, wanted: &Value, last: &Value) {
    let (Value::Object(live_fields), Value::Object(wanted_fields)) = (&mut *live, wanted) else {
        *live = wanted.clone();
        return;
    };
    if let Value::Object(last) = last {
        for name in last
            .keys()
            .filter(|name| !wanted_fields.contains_key(*name))
        {
            live_fields.remove(name);
        }
    }
    for (name, value) in wanted_fields {
        match live_fields.get_mut(name) {
            Some(old) => merge(old, value, last.get(name).unwrap_or(&Value::Null)),
            None => {
                live_fields.insert(name.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Object {
        let mut whole = json!({"apiVersion": "local.sdn.cozystack.io/v1alpha1"});
        for (name, v) in value.as_object().unwrap() {
            whole[name] = v.clone();
        }
        Object::from_value(whole).unwrap()
    }

    fn address(spec: Value) -> Object {
        object(json!({"kind": "IPAddress", "metadata": {"name": "ip-192-0-2-7"}, "spec": spec}))
    }

    /// As a server keeps what was created from this manifest.
    fn stored(manifest: &Object) -> Object {
        let mut live = created(manifest);
        live.metadata.uid = "u".to_owned();
        live.metadata.generation = 1;
        live.metadata.resource_version = Some("7".parse().unwrap());
        live
    }

    #[test]
    fn the_same_manifest_again_changes_nothing() {
        let manifest = address(json!({"address": "192.0.2.7", "className": "c"}));
        let mut live = stored(&manifest);
        live.fields["spec"]["reclaimPolicy"] = json!("Retain");
        live.fields
            .insert("status".to_owned(), json!({"phase": "Available"}));
        assert_eq!(changed(&manifest, &live).unwrap(), None);
    }

    #[test]
    fn a_manifest_that_a_server_printed_changes_nothing_when_it_is_applied_again() {
        let manifest = address(json!({"address": "192.0.2.7", "className": "c"}));
        let live = stored(&manifest);
        let mut printed = live.clone();
        printed.metadata.resource_version = Some("3".parse().unwrap());
        printed
            .fields
            .insert("status".to_owned(), json!({"phase": "Lost"}));
        assert_eq!(changed(&printed, &live).unwrap(), None);
    }

    #[test]
    fn a_new_value_is_written_at_the_revision_that_was_read() {
        let live = stored(&address(json!({"address": "192.0.2.7", "className": "c"})));
        let manifest = address(json!({"address": "192.0.2.7", "className": "d"}));
        let new = changed(&manifest, &live).unwrap().unwrap();
        assert_eq!(new.fields["spec"]["className"], "d");
        assert_eq!(
            new.metadata.resource_version,
            live.metadata.resource_version
        );
        assert_eq!(new.metadata.uid, "u");
        // Once it is stored, it is unchanged.
        assert_eq!(changed(&manifest, &new).unwrap(), None);
    }

    #[test]
    fn a_field_that_the_manifest_no_longer_has_is_removed() {
        let before = object(json!({"kind": "IPAddressClaim",
            "metadata": {"name": "a", "namespace": "n", "labels": {"x": "1", "y": "2"}},
            "spec": {"className": "c", "family": "IPv6"}}));
        let now = object(json!({"kind": "IPAddressClaim",
            "metadata": {"name": "a", "namespace": "n"}, "spec": {"family": "IPv6"}}));
        let mut live = stored(&before);
        live.metadata
            .labels
            .insert("z".to_owned(), "of another".to_owned());
        let new = changed(&now, &live).unwrap().unwrap();
        assert_eq!(new.fields["spec"], json!({"family": "IPv6"}));
        assert_eq!(
            new.metadata.labels,
            [("z".to_owned(), "of another".to_owned())].into()
        );
    }

    #[test]
    fn what_others_own_stays() {
        let before = address(json!({"address": "192.0.2.7", "className": "c"}));
        let mut live = stored(&before);
        live.fields["spec"]["claimRef"] = json!({"namespace": "n", "name": "a", "uid": "u"});
        live.metadata
            .add_finalizer("local.sdn.cozystack.io/address-protection");
        live.metadata
            .annotations
            .insert("other".to_owned(), "kept".to_owned());
        let now = address(json!({"address": "192.0.2.7", "className": "d"}));
        let new = changed(&now, &live).unwrap().unwrap();
        assert_eq!(
            new.fields["spec"]["claimRef"],
            live.fields["spec"]["claimRef"]
        );
        assert_eq!(new.metadata.finalizers, live.metadata.finalizers);
        assert_eq!(new.metadata.annotation("other"), Some("kept"));
    }

    #[test]
    fn the_uid_that_the_core_completed_stays_in_a_claim_ref_of_the_manifest() {
        let manifest = address(json!({"address": "192.0.2.7", "className": "c",
            "claimRef": {"namespace": "n", "name": "a"}}));
        let mut live = stored(&manifest);
        live.fields["spec"]["claimRef"]["uid"] = json!("u-1");
        assert_eq!(changed(&manifest, &live).unwrap(), None);
        // Taking the claimRef out of the manifest is how an admin lets the address go.
        let without = address(json!({"address": "192.0.2.7", "className": "c"}));
        let new = changed(&without, &live).unwrap().unwrap();
        assert_eq!(new.fields["spec"].get("claimRef"), None);
    }

    #[test]
    fn lists_are_replaced_whole() {
        let class = |addresses: Value| {
            object(json!({"kind": "IPAddressClass", "metadata": {"name": "c"},
                "spec": {"provisioner": "p", "parameters": {"addresses": addresses}}}))
        };
        let live = stored(&class(json!(["192.0.2.0/24", "198.51.100.0/24"])));
        let new = changed(&class(json!(["192.0.2.0/25"])), &live)
            .unwrap()
            .unwrap();
        assert_eq!(
            new.fields["spec"]["parameters"]["addresses"],
            json!(["192.0.2.0/25"])
        );
    }

    #[test]
    fn an_object_that_was_never_applied_takes_the_manifest_and_loses_nothing() {
        let mut live = stored(&address(json!({"address": "192.0.2.7", "className": "c"})));
        live.metadata.annotations.remove(LAST_APPLIED);
        live.fields["spec"]["zone"] = json!("a");
        let manifest = address(json!({"address": "192.0.2.7", "className": "c"}));
        let new = changed(&manifest, &live).unwrap().unwrap();
        assert_eq!(new.fields["spec"]["zone"], "a");
        assert!(new.metadata.annotation(LAST_APPLIED).is_some());
    }

    #[test]
    fn a_manifest_too_large_to_be_kept_is_applied_and_replaces_the_parameters() {
        let class = |parameters: Value| {
            object(json!({"kind": "IPAddressClass", "metadata": {"name": "c"},
                "spec": {"provisioner": "p", "parameters": parameters}}))
        };
        let many = json!(vec!["192.0.2.0/24"; 10_000]);
        let large = class(json!({"addresses": many, "order": "random"}));
        let live = stored(&large);
        assert_eq!(live.metadata.annotation(LAST_APPLIED), None);
        assert_eq!(changed(&large, &live).unwrap(), None);

        let also_large = class(json!({"addresses": many}));
        let new = changed(&also_large, &live).unwrap().unwrap();
        assert_eq!(new.fields["spec"]["parameters"], json!({"addresses": many}));
        assert_eq!(new.metadata.annotation(LAST_APPLIED), None);

        let small = class(json!({"addresses": ["192.0.2.0/24"]}));
        let new = changed(&small, &live).unwrap().unwrap();
        assert_eq!(new.fields["spec"]["parameters"].get("order"), None);
        assert!(new.metadata.annotation(LAST_APPLIED).is_some());

        let new = changed(&large, &stored(&small)).unwrap().unwrap();
        assert_eq!(new.fields["spec"], large.fields["spec"]);
        assert_eq!(new.metadata.annotation(LAST_APPLIED), None);
    }

    #[test]
    fn annotations_of_others_leave_no_room_for_the_manifest() {
        let manifest = address(json!({"address": "192.0.2.7", "className": "c"}));
        let mut live = stored(&manifest);
        let long = "x".repeat(ANNOTATIONS_MAX - 10);
        live.metadata.annotations.insert("other".to_owned(), long);
        let manifest = address(json!({"address": "192.0.2.7", "className": "d"}));
        let new = changed(&manifest, &live).unwrap().unwrap();
        assert_eq!(new.metadata.annotation(LAST_APPLIED), None);
        assert_eq!(new.fields["spec"]["className"], "d");
    }

    #[test]
    fn what_kubectl_remembered_is_understood() {
        let manifest = address(json!({"address": "192.0.2.7", "className": "c"}));
        let mut live = stored(&manifest);
        let text = "{\"apiVersion\":\"local.sdn.cozystack.io/v1alpha1\",\"kind\":\"IPAddress\",\
            \"metadata\":{\"annotations\":{},\"name\":\"ip-192-0-2-7\"},\
            \"spec\":{\"address\":\"192.0.2.7\",\"className\":\"c\"}}\n";
        live.metadata
            .annotations
            .insert(LAST_APPLIED.to_owned(), text.to_owned());
        assert_eq!(changed(&manifest, &live).unwrap(), None);
    }
}
