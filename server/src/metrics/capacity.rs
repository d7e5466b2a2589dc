//! What the classes of the range driver have (D8). A series goes with its class.

use std::fmt::Write;

use ipledger_core::api::FamilyCapacity;

use super::head;

pub(super) fn series(text: &mut String, classes: &[(String, Vec<FamilyCapacity>)]) {
    let name = "ipledger_class_addresses";
    let help = "Addresses of a class: total = used + free, cooling is part of used, excluded and \
                out_of_range are not part of total";
    head(text, name, "gauge", help);
    for (class, capacity) in classes {
        for of in capacity {
            for (state, count) in [
                ("total", &of.total),
                ("used", &of.used),
                ("free", &of.free),
                ("cooling", &of.cooling),
                ("excluded", &of.excluded),
                ("out_of_range", &of.out_of_range),
            ] {
                let family = &of.family;
                let labels = format!("class=\"{class}\",family=\"{family}\",state=\"{state}\"");
                let _ = writeln!(text, "{name}{{{labels}}} {count}");
            }
        }
    }
}
