//! Who may write what of a class, row by row.

use serde_json::{Value, json};

use super::table::Object::{Class, ClassStatus, NewClass};
use super::table::Who::{Administrator, Core, Driver, Tenant};
use super::table::{Row, no, yes};

pub(super) fn rows() -> Vec<Row> {
    vec![
        no(
            Tenant,
            NewClass,
            "one",
            |_| {},
            "cannot create resource \"ipaddressclasses\"",
        ),
        no(
            Tenant,
            Class,
            "as default",
            default_class,
            "cannot update resource",
        ),
        no(
            Driver,
            Class,
            "as default",
            default_class,
            "cannot update resource",
        ),
        no(
            Core,
            Class,
            "as default",
            default_class,
            "cannot update resource",
        ),
        yes(Administrator, Class, "as default", default_class),
        yes(Driver, ClassStatus, "capacity", |c| {
            c["status"] = json!({"outOfRange": ["ip-192-0-2-9"]})
        }),
        no(
            Core,
            ClassStatus,
            "capacity",
            |c| c["status"] = json!({"outOfRange": ["x"]}),
            "cannot patch resource \"ipaddressclasses/status\"",
        ),
    ]
}

fn default_class(class: &mut Value) {
    let key = "ipaddressclass.local.sdn.cozystack.io/is-default-class";
    class["metadata"]["annotations"] = json!({key: "true"});
}
