//! `ipledger get`.

use std::collections::BTreeMap;
use std::time::SystemTime;

use ipledger_core::api::{Key, Kind, Object, Timestamp};
use serde_json::json;

use super::client::{Client, Scope};
use super::columns::{self, View};
use super::exit::CliError;
use super::follow::{Follower, Seen};
use super::output::{Format, Terminal, key_name, list_value, to_json, to_json_line, to_yaml};
use super::table::{Layout, Table};
use super::target::Target;

/// What to get.
pub(super) struct Request {
    /// The objects.
    pub(super) target: Target,
    /// Only this namespace, for a list.
    pub(super) namespace: Option<String>,
    /// Only objects with these labels, for a list.
    pub(super) labels: Option<String>,
    /// How to print.
    pub(super) format: Format,
    /// Whether to go on printing changes.
    pub(super) watch: bool,
}

fn view(format: Format) -> View {
    View {
        wide: format == Format::Wide,
        now: Timestamp::from(SystemTime::now()),
    }
}

/// Prints objects.
///
/// # Errors
/// There is no object of that name, or the server cannot be reached or refuses.
pub(super) async fn run(
    client: &Client,
    request: Request,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    match (&request.target, request.watch) {
        (_, true) => watch(client, &request, terminal).await,
        (Target::One(key), false) => {
            let object = client.get(key).await.map_err(|error| CliError::Object {
                object: key_name(key),
                error,
            })?;
            let text = match request.format {
                Format::Json => to_json(&object.to_value()),
                Format::Yaml => to_yaml(&object.to_value()),
                format => many(key.kind, &[object], format, terminal.colour),
            };
            terminal.print(&text)
        }
        (Target::All(kind), false) => {
            let scope = Scope {
                namespace: request.namespace.clone(),
                labels: request.labels.clone(),
                name: None,
            };
            let listed = client.list(*kind, &scope).await;
            terminal.warnings(client);
            let mut items = listed?.items;
            items.sort_by(columns::order);
            if items.is_empty() && matches!(request.format, Format::Table | Format::Wide) {
                terminal.note(&nothing(*kind, scope.namespace.as_deref()));
                return Ok(());
            }
            terminal.print(&many(*kind, &items, request.format, terminal.colour))
        }
    }
}

fn nothing(kind: Kind, namespace: Option<&str>) -> String {
    match namespace.filter(|_| kind.namespaced()) {
        Some(namespace) => {
            format!(
                "no {} in namespace {namespace} (-A shows all namespaces)",
                kind.plural()
            )
        }
        None => format!("no {}", kind.plural()),
    }
}

fn many(kind: Kind, items: &[Object], format: Format, colour: bool) -> String {
    match format {
        Format::Table | Format::Wide => columns::table(kind, items, &view(format)).render(colour),
        Format::Json => to_json(&list_value(items)),
        Format::Yaml => to_yaml(&list_value(items)),
        Format::Name => items
            .iter()
            .map(|o| format!("{}\n", key_name(&o.key())))
            .collect(),
    }
}

/// Prints what there is, then every change, until the server goes or the user stops it.
async fn watch(
    client: &Client,
    request: &Request,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    let (kind, scope) = match &request.target {
        Target::All(kind) => (
            *kind,
            Scope {
                namespace: request.namespace.clone(),
                labels: request.labels.clone(),
                name: None,
            },
        ),
        Target::One(key) => (
            key.kind,
            Scope {
                namespace: Some(key.namespace.clone()),
                labels: None,
                name: Some(key.name.clone()),
            },
        ),
    };
    let mut follower = Follower::new(client.clone(), kind, scope);
    let mut printer = Printer::new(kind, request.format, terminal.colour);
    loop {
        let text = printer.take(follower.next().await?);
        terminal.warnings(client);
        if !text.is_empty() {
            terminal.print(&text)?;
        }
    }
}

/// Turns what is seen into text: each object when it comes, changes or goes.
struct Printer {
    kind: Kind,
    format: Format,
    colour: bool,
    /// The columns; the first list decides which, wider content widens them.
    layout: Option<Layout>,
    seen: BTreeMap<Key, Object>,
}

impl Printer {
    fn new(kind: Kind, format: Format, colour: bool) -> Printer {
        Printer {
            kind,
            format,
            colour,
            layout: None,
            seen: BTreeMap::new(),
        }
    }

    fn take(&mut self, seen: Seen) -> String {
        let mut text = String::new();
        match seen {
            Seen::Applied(object) => self.applied(object, &mut text),
            Seen::Deleted(object) => self.deleted(&object, &mut text),
            Seen::Listed(mut items) => {
                items.sort_by(columns::order);
                if self.layout.is_none() {
                    text.push_str(&self.start(&items));
                }
                let mut gone = std::mem::take(&mut self.seen);
                for object in items {
                    if let Some(old) = gone.remove(&object.key()) {
                        self.seen.insert(object.key(), old);
                    }
                    self.applied(object, &mut text);
                }
                for object in gone.values() {
                    self.deleted(object, &mut text);
                }
            }
        }
        text
    }

    /// Lays the columns out; the line of names for a table.
    fn start(&mut self, items: &[Object]) -> String {
        let table: Table = columns::table(self.kind, items, &view(self.format));
        let layout = table.layout();
        let head = match self.format {
            Format::Table | Format::Wide => layout.head(&table),
            Format::Json | Format::Yaml | Format::Name => String::new(),
        };
        self.layout = Some(layout);
        head
    }

    fn applied(&mut self, object: Object, text: &mut String) {
        let old = self.seen.insert(object.key(), object.clone());
        let event = match old {
            Some(old) if old == object || self.looks_like(&old, &object) => return,
            Some(_) => "MODIFIED",
            None => "ADDED",
        };
        text.push_str(&self.event(event, &object));
    }

    /// Whether a table would show the same of both.
    fn looks_like(&self, old: &Object, new: &Object) -> bool {
        let view = View {
            now: Timestamp::default(),
            ..view(self.format)
        };
        matches!(self.format, Format::Table | Format::Wide)
            && columns::row(old, &view) == columns::row(new, &view)
    }

    fn deleted(&mut self, object: &Object, text: &mut String) {
        self.seen.remove(&object.key());
        text.push_str(&self.event("DELETED", object));
    }

    fn event(&mut self, event: &str, object: &Object) -> String {
        match (self.format, &mut self.layout) {
            (Format::Table | Format::Wide, Some(layout)) => {
                let mut row = columns::row(object, &view(self.format));
                if event == "DELETED" {
                    "deleted".clone_into(&mut row.note);
                }
                layout.widen(&row);
                layout.row(&row, self.colour)
            }
            (Format::Yaml, _) => format!("---\n{}", to_yaml(&object.to_value())),
            (Format::Name, _) => format!("{}\n", key_name(&object.key())),
            _ => to_json_line(&json!({"type": event, "object": object.to_value()})),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(name: &str, revision: u64, phase: &str) -> Object {
        let value = json!({"apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddressClaim",
            "metadata": {"namespace": "default", "name": name, "resourceVersion": revision.to_string()},
            "status": {"phase": phase}});
        Object::from_value(value).unwrap()
    }

    #[test]
    fn a_watch_prints_each_change_once_also_across_a_new_list() {
        let mut printer = Printer::new(Kind::IPAddressClaim, Format::Table, false);
        let first = vec![claim("a", 1, "Pending"), claim("b", 2, "Bound")];
        let text = printer.take(Seen::Listed(first));
        assert_eq!(
            text,
            "\
NAMESPACE  NAME  PHASE    FAMILY  CLASS  ADDRESSES  AGE
default    a     Pending  IPv4    -      -          -
default    b     Bound    IPv4    -      -          -
"
        );
        // Nothing of this shows in the table.
        assert_eq!(printer.take(Seen::Applied(claim("a", 2, "Pending"))), "");
        let text = printer.take(Seen::Applied(claim("a", 3, "Bound")));
        assert_eq!(
            text,
            "default    a     Bound    IPv4    -      -          -\n"
        );
        let again = vec![claim("a", 3, "Bound"), claim("c", 4, "Bound")];
        assert_eq!(
            printer.take(Seen::Listed(again)),
            "\
default    c     Bound    IPv4    -      -          -
default    b     Bound    IPv4    -      -          -    deleted
"
        );
    }

    #[test]
    fn a_watch_in_json_says_what_happened() {
        let mut printer = Printer::new(Kind::IPAddressClaim, Format::Json, false);
        let mut events = printer.take(Seen::Listed(vec![claim("a", 1, "Pending")]));
        events.push_str(&printer.take(Seen::Applied(claim("a", 2, "Bound"))));
        events.push_str(&printer.take(Seen::Deleted(claim("a", 3, "Bound"))));
        let types: Vec<String> = events
            .lines()
            .map(|line| {
                serde_json::from_str::<serde_json::Value>(line).unwrap()["type"].to_string()
            })
            .collect();
        assert_eq!(types, ["\"ADDED\"", "\"MODIFIED\"", "\"DELETED\""]);
    }

    #[test]
    fn the_same_objects_are_printed_in_every_format() {
        let items = [claim("a", 1, "Bound")];
        assert!(
            many(Kind::IPAddressClaim, &items, Format::Json, false).contains("\"name\": \"a\"")
        );
        assert!(many(Kind::IPAddressClaim, &items, Format::Yaml, false).contains("name: a\n"));
        let name = many(Kind::IPAddressClaim, &items, Format::Name, false);
        assert_eq!(name, "ipaddressclaim/default/a\n");
    }

    #[test]
    fn an_empty_list_says_where_it_looked() {
        assert_eq!(
            nothing(Kind::IPAddressClaim, Some("default")),
            "no ipaddressclaims in namespace default (-A shows all namespaces)"
        );
        assert_eq!(nothing(Kind::IPAddress, Some("default")), "no ipaddresses");
    }
}
