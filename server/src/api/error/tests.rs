use ipledger_core::store::Revision;

use super::*;

#[test]
fn every_error_of_a_store_has_its_code_reason_and_permission_to_retry() {
    let key = || Key::claim("team-a", "web");
    let reason = || "why".to_owned();
    let resource = r#"ipaddressclaims.local.sdn.cozystack.io "web""#;
    for (error, code, word, message, retry) in [
        (
            StoreError::NotFound { key: key() },
            404,
            "NotFound",
            format!("{resource} not found"),
            false,
        ),
        (
            StoreError::AlreadyExists {
                key: key(),
                uid: "u".to_owned(),
                operation: None,
            },
            409,
            "AlreadyExists",
            format!("{resource} already exists"),
            false,
        ),
        (
            StoreError::Conflict { key: key() },
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {resource}: the object has been modified"),
            false,
        ),
        (
            StoreError::PreconditionFailed {
                key: key(),
                reason: reason(),
            },
            409,
            "Conflict",
            "Precondition failed: why".to_owned(),
            false,
        ),
        (
            StoreError::Expired { reason: reason() },
            410,
            "Expired",
            reason(),
            false,
        ),
        (
            StoreError::Invalid {
                key: key(),
                errors: vec![FieldError::new("spec.family", "is wrong")],
            },
            422,
            "Invalid",
            r#"IPAddressClaim.local.sdn.cozystack.io "web" is invalid: spec.family: is wrong"#
                .to_owned(),
            false,
        ),
        (
            StoreError::BadRequest { reason: reason() },
            400,
            "BadRequest",
            reason(),
            false,
        ),
        (
            StoreError::TooLarge {
                key: key(),
                size: 7,
                limit: 5,
            },
            413,
            "RequestEntityTooLarge",
            "7 bytes".to_owned(),
            false,
        ),
        (
            StoreError::Forbidden {
                key: key(),
                reason: reason(),
            },
            403,
            "Forbidden",
            format!("{resource} is forbidden: why"),
            false,
        ),
        (
            StoreError::Unavailable { reason: reason() },
            503,
            "ServiceUnavailable",
            reason(),
            true,
        ),
        (
            StoreError::OutcomeUnknown {
                key: key(),
                reason: reason(),
            },
            504,
            "Timeout",
            reason(),
            false,
        ),
        (
            StoreError::Corrupt {
                key: key(),
                reason: reason(),
            },
            500,
            "InternalError",
            reason(),
            false,
        ),
        (
            StoreError::TooSlow {
                resume: Revision(5),
            },
            503,
            "ServiceUnavailable",
            "revision 5".to_owned(),
            true,
        ),
        (
            StoreError::Internal { reason: reason() },
            500,
            "InternalError",
            reason(),
            false,
        ),
    ] {
        let name = format!("{error:?}");
        let answer = ApiError::from(error);
        let status = answer.to_status();
        assert_eq!(
            (&status["code"], &status["reason"]),
            (&json!(code), &json!(word)),
            "{name}"
        );
        let text = status["message"].as_str().unwrap();
        assert!(text.contains(&message), "{name}: {text}");
        let response = answer.into_response();
        assert_eq!(response.status().as_u16(), code, "{name}");
        assert_eq!(
            response.headers().contains_key("retry-after"),
            retry,
            "{name}"
        );
    }
}

#[test]
fn refused_fields_are_causes_with_their_paths() {
    let errors = vec![
        FieldError::new("spec.a", "x"),
        FieldError::new("spec.b", "y"),
    ];
    let status = ApiError::invalid(&Key::claim("n", "web"), errors).to_status();
    assert_eq!(
        status["details"],
        json!({"name": "web", "group": "local.sdn.cozystack.io", "kind": "IPAddressClaim",
            "causes": [{"reason": "FieldValueInvalid", "message": "x", "field": "spec.a"},
                {"reason": "FieldValueInvalid", "message": "y", "field": "spec.b"}]})
    );
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .ends_with("[spec.a: x, spec.b: y]")
    );
}
