//! Reads an export and refuses what is no whole one, before anything is written.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use ipledger_core::api::{Kind, Object, Timestamp};
use ipledger_core::store::rules::{self, Birth};

use crate::cli::exit::CliError;
use crate::cli::export::{Header, VERSION};

/// The objects of an export, what others refer to first. Objects that are marked for deletion and
/// that nothing holds any more are gone.
///
/// # Errors
/// The file cannot be read or is no whole export; the line is named.
pub(super) fn read(path: &Path) -> Result<Vec<Object>, CliError> {
    let refuse =
        |line: usize, reason: &str| CliError::Usage(format!("{}:{line}: {reason}", path.display()));
    let unread = |e: &io::Error| CliError::Usage(format!("{} cannot be read: {e}", path.display()));
    let file = File::open(path).map_err(|e| unread(&e))?;
    let mut lines = (1..).zip(BufReader::new(file).lines());
    let not_one = "this is no export of ipledger; make one with `ipledger export -o FILE`";
    let first = match lines.next() {
        Some((_, Ok(line))) => line,
        Some((_, Err(e))) if e.kind() != io::ErrorKind::InvalidData => return Err(unread(&e)),
        _ => return Err(refuse(1, not_one)),
    };
    let header: Header = serde_json::from_str(&first).map_err(|_| refuse(1, not_one))?;
    if header.ipledger_export != VERSION {
        let newer = "this export was made by a newer version; import it with that one";
        return Err(refuse(1, newer));
    }
    let mut objects = Vec::new();
    let mut seen = BTreeMap::new();
    let mut uids = BTreeMap::new();
    let mut count = 0;
    for (line, text) in lines {
        let text = text.map_err(|e| match e.kind() {
            io::ErrorKind::InvalidData => refuse(line, &damaged("it is not UTF-8 text")),
            _ => unread(&e),
        })?;
        let object: Object = serde_json::from_str(&text).map_err(|e| refuse(line, &unfit(&e)))?;
        count += 1;
        let key = object.key();
        if let Some(first) = seen.insert(key.clone(), line) {
            return Err(refuse(
                line,
                &format!("{key} stands in line {first} already"),
            ));
        }
        let metadata = &object.metadata;
        // Addresses name their claim by it.
        if object.kind == Kind::IPAddressClaim
            && !metadata.uid.is_empty()
            && let Some(first) = uids.insert(metadata.uid.clone(), line)
        {
            let reason = format!(
                "{key} has the uid {} of the claim in line {first}, so that nobody knows whose an \
                 address is; export again",
                metadata.uid
            );
            return Err(refuse(line, &reason));
        }
        if metadata.is_deleting() && metadata.finalizers.is_empty() {
            continue;
        }
        check_form(&object).map_err(|reason| refuse(line, &reason))?;
        objects.push(object);
    }
    if count != header.objects {
        let reason = format!(
            "{count} of {} objects are here; the file is not whole, export again",
            header.objects
        );
        return Err(refuse(count + 1, &reason));
    }
    objects.sort_by_cached_key(Object::key);
    Ok(objects)
}

fn damaged(how: &str) -> String {
    format!("{how}; the file is damaged or was edited: export again")
}

/// What is wrong with a line that is no object. The parser counts lines within it, of which there is
/// one.
fn unfit(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(what) => damaged(&format!("no JSON at column {}: {what}", error.column())),
        None => text,
    }
}

/// Whether a store takes the object at all.
fn check_form(object: &Object) -> Result<(), String> {
    let given = Object {
        metadata: super::remap::given(&object.metadata),
        ..object.clone()
    };
    let birth = Birth {
        uid: String::new(),
        now: Timestamp::from_unix(0),
    };
    rules::create(given, birth)
        .map(|_| ())
        .map_err(|e| e.to_string())
}
