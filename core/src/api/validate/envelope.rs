//! The types of what Kubernetes defines around every kind: `metadata`, and the options of a delete.

use serde_json::Value;

use super::defaults::drop_nulls;
use super::schema::{Field, Shape, may};
use super::types::{check_fields, check_value};
use super::unknown::find;
use crate::store::FieldError;

/// The fields of `metadata`, also those that Kubernetes keeps and ipledger only carries along.
pub(super) const METADATA: &[Field] = &[
    may("annotations", Shape::Texts),
    may("creationTimestamp", Shape::Time),
    may("deletionGracePeriodSeconds", Shape::Any),
    may("deletionTimestamp", Shape::Time),
    may("finalizers", Shape::List(&Shape::Text)),
    may("generateName", Shape::Text),
    may("generation", Shape::Count),
    may("labels", Shape::Texts),
    may("managedFields", Shape::Any),
    may("name", Shape::Text),
    may("namespace", Shape::Text),
    may("ownerReferences", Shape::Any),
    may("resourceVersion", Shape::Revision),
    may("selfLink", Shape::Any),
    may("uid", Shape::Text),
];

const DELETE_OPTIONS: &[Field] = &[
    may("apiVersion", Shape::Text),
    may("kind", Shape::Text),
    may("dryRun", Shape::List(&Shape::Text)),
    may("gracePeriodSeconds", Shape::Count),
    may(
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        Shape::Flag,
    ),
    may("orphanDependents", Shape::Flag),
    may(
        "preconditions",
        Shape::Fields(&[
            may("resourceVersion", Shape::Revision),
            may("uid", Shape::Text),
        ]),
    ),
    may("propagationPolicy", Shape::Text),
];

/// What in `metadata` of an object that is not read yet has the wrong type, with paths such as
/// `metadata.labels.x`. Empty means that [`Object::from_value`](crate::api::Object::from_value)
/// can read it.
pub fn metadata_types(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(metadata) = object.get("metadata") {
        check_value(metadata, &Shape::Fields(METADATA), "metadata", &mut errors);
    }
    errors
}

/// Why these are not the `DeleteOptions` of Kubernetes; a field that is `null` is taken out, as
/// absent. A field that is not known is an error here: it may be the condition without which the
/// caller did not mean to delete anything.
pub fn delete_options(options: &mut Value) -> Vec<FieldError> {
    let Value::Object(map) = options else {
        return vec![FieldError::new("", "DeleteOptions must be an object")];
    };
    drop_nulls(map, DELETE_OPTIONS);
    let mut errors = Vec::new();
    check_fields(map, DELETE_OPTIONS, "", &mut errors);
    let mut unknown = Vec::new();
    find(map, DELETE_OPTIONS, "", &mut unknown);
    errors.extend(unknown.into_iter().map(FieldError::from));
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn metadata_of_the_wrong_type_is_named_by_its_path() {
        for (metadata, error) in [
            (json!([]), "metadata: must be an object, not a list"),
            (
                json!({"name": 5}),
                "metadata.name: must be a string, not a number",
            ),
            (
                json!({"labels": {"a": "b", "x": 5}}),
                "metadata.labels.x: must be a string, not a number",
            ),
            (
                json!({"annotations": {"example.com/a": {}}}),
                "metadata.annotations.example.com/a: must be a string, not an object",
            ),
            (
                json!({"annotations": ["a"]}),
                "metadata.annotations: must be an object with strings, not a list",
            ),
            (
                json!({"finalizers": ["a", null]}),
                "metadata.finalizers[1]: must be a string, not null",
            ),
            (
                json!({"resourceVersion": 7}),
                "metadata.resourceVersion: must be a resourceVersion as it was read, not a number",
            ),
            (
                json!({"resourceVersion": "x"}),
                "metadata.resourceVersion: `x` is not a revision; pass on the resourceVersion as \
                 it was read",
            ),
        ] {
            let object = json!({"metadata": metadata});
            assert_eq!(shown(&metadata_types(&object)), [error]);
        }
    }

    #[test]
    fn metadata_without_a_mistake_can_be_read() {
        use crate::api::Object;
        let object = json!({"apiVersion": "local.sdn.cozystack.io/v1alpha1",
            "kind": "IPAddressClaim", "metadata": {"name": "a", "namespace": "n", "uid": "u",
            "labels": {"a": "b"}, "annotations": {}, "finalizers": ["f"], "generation": 1,
            "resourceVersion": "7", "creationTimestamp": "2026-11-30T17:06:41Z",
            "generateName": "a", "managedFields": [{}], "ownerReferences": [{}], "selfLink": ""}});
        assert_eq!(metadata_types(&object), []);
        assert!(Object::from_value(object).is_ok());
        assert_eq!(metadata_types(&json!({})), []);
    }

    #[test]
    fn an_object_with_many_mistakes_gets_a_bounded_answer() {
        let labels: serde_json::Map<_, _> =
            (0..10_000).map(|i| (format!("x{i}"), json!(1))).collect();
        let long: serde_json::Map<_, _> = [("x".repeat(100_000), json!(1))].into_iter().collect();
        let errors = metadata_types(&json!({"metadata": {"labels": labels}}));
        assert!((1..100).contains(&errors.len()), "{}", errors.len());
        let errors = metadata_types(&json!({"metadata": {"labels": long}}));
        assert!(errors[0].field.len() < 300, "{}", errors[0].field.len());
    }

    #[test]
    fn options_of_a_delete_that_could_be_misread_are_refused_by_field() {
        for (options, error) in [
            (
                json!({"preconditions": []}),
                "preconditions: must be an object, not a list",
            ),
            (
                json!({"preconditions": ["x"]}),
                "preconditions: must be an object, not a list",
            ),
            (
                json!({"preconditions": {"uid": 5}}),
                "preconditions.uid: must be a string, not a number",
            ),
            (
                json!({"preconditions": {"uuid": "x"}}),
                "preconditions.uuid: is not known; did you mean `preconditions.uid`?",
            ),
            (
                json!({"precondition": {"uid": "x"}}),
                "precondition: is not known; did you mean `preconditions`?",
            ),
            (
                json!({"gracePeriodSeconds": "x"}),
                "gracePeriodSeconds: must be a whole number of 0 or more, not a string",
            ),
            (
                json!({"orphanDependents": "no"}),
                "orphanDependents: must be true or false, not a string",
            ),
            (
                json!({"dryRun": "All"}),
                "dryRun: must be a list, not a string",
            ),
        ] {
            let mut options = options;
            assert_eq!(shown(&delete_options(&mut options)), [error]);
        }
        assert!(!delete_options(&mut json!([])).is_empty());
    }

    #[test]
    fn what_clients_send_with_a_delete_is_understood() {
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions",
            "gracePeriodSeconds": 0, "propagationPolicy": "Background", "dryRun": ["All"],
            "preconditions": {"uid": "u", "resourceVersion": null}, "orphanDependents": null});
        assert_eq!(delete_options(&mut options), []);
        assert_eq!(options["preconditions"], json!({"uid": "u"}));
    }
}
