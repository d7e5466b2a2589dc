//! Every row of the shared table of inputs gives its answer, and the messages say what the notes promise.

use ipledger_core::net::{Ip, IpRange};

const TABLE: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../tests/cases/addresses.tsv"
));

struct Row<'a> {
    input: &'a str,
    address: &'a str,
    range: &'a str,
    note: &'a str,
}

fn rows() -> Vec<Row<'static>> {
    let mut rows = Vec::new();
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('\t');
        let mut next = || columns.next().unwrap_or_default();
        rows.push(Row {
            input: next(),
            address: next(),
            range: next(),
            note: next(),
        });
    }
    rows
}

#[test]
fn every_row_gives_its_answer_as_an_address() {
    for row in rows() {
        let expected = match row.address {
            "ok" => true,
            "error" => false,
            other => panic!("unknown answer {other:?}"),
        };
        let answer = Ip::parse_canonical(row.input);
        assert_eq!(answer.is_ok(), expected, "{:?}: {answer:?}", row.input);
    }
}

#[test]
fn every_row_gives_its_answer_as_a_range_item() {
    for row in rows() {
        let answer = IpRange::parse(row.input);
        match row.range {
            "error" => assert!(answer.is_err(), "{:?}: {answer:?}", row.input),
            size => assert_eq!(
                answer.map(|item| item.range.size().to_string()).as_deref(),
                Ok(size),
                "{:?}",
                row.input
            ),
        }
    }
}

#[test]
fn a_range_item_that_is_refused_says_why() {
    // Part of a note, and what the message then contains.
    let promises = [
        ("the message proposes 10.0.0.0/24", "10.0.0.0/24"),
        ("refused by policy", "refused by policy"),
        ("reversed", "start is after end"),
        ("short form", "short form"),
        ("mixed family", "mixed famil"),
        ("use list items", "use list items"),
        ("empty", "empty"),
        ("leading zero", "leading zero"),
        ("full-width", "not ASCII"),
        ("loopback", "loopback"),
        ("unspecified", "unspecified"),
        ("broadcast", "broadcast"),
        ("multicast", "multicast"),
        ("zone", "zone"),
        ("IPv4-mapped", "IPv4-mapped"),
        ("brackets", "brackets"),
    ];
    for (note, phrase) in promises {
        let mut kept = 0;
        for row in rows()
            .iter()
            .filter(|row| row.range == "error" && row.note.contains(note))
        {
            let message = IpRange::parse(row.input).unwrap_err().to_string();
            assert!(message.contains(phrase), "{:?}: {message}", row.input);
            kept += 1;
        }
        assert!(kept > 0, "no row promises {note:?}");
    }
}

#[test]
fn another_spelling_is_refused_as_an_address_with_its_canonical_form() {
    let spelled: Vec<_> = rows()
        .into_iter()
        .filter(|row| row.address == "error" && row.range == "1" && row.input.contains(':'))
        .filter(|row| !row.input.contains('/'))
        .collect();
    assert_eq!(spelled.len(), 2);
    for row in spelled {
        let message = Ip::parse_canonical(row.input).unwrap_err().to_string();
        assert!(
            message.ends_with("canonical form is 2001:db8::1"),
            "{message}"
        );
    }
}

#[test]
fn notes_about_counts_and_names_hold() {
    for row in rows() {
        if let Some(name) = row.note.strip_prefix("object name ") {
            assert_eq!(Ip::parse(row.input).unwrap().object_name(), name);
        }
        let reserved = match row.note {
            "2 with reserveFirstLast" | "no first/last rule" => 2,
            _ => continue,
        };
        let usable = IpRange::parse(row.input).unwrap().usable(true);
        assert_eq!(usable.map(|range| range.size()), Some(reserved));
    }
}
