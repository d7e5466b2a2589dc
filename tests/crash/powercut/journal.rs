//! The journal that the library between the server and its disk has kept.

use std::path::Path;

/// One thing that the program did below its folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The file; empty for the folder itself.
    pub(super) name: String,
    pub(super) act: Act,
    /// The length of the journal after it.
    pub(super) end: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Write {
        offset: usize,
        data: Vec<u8>,
    },
    Truncate {
        length: usize,
    },
    /// Everything before this place in the journal is on the disk.
    Sync {
        began: u64,
    },
    Create,
    Unlink,
    Rename {
        to: String,
    },
}

pub(super) fn read(path: &Path) -> Vec<Record> {
    parse(&std::fs::read(path).unwrap())
}

fn parse(bytes: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    let mut left = bytes;
    while let Some((record, rest)) = next(left) {
        let end = (bytes.len() - rest.len()) as u64;
        records.push(Record { end, ..record });
        left = rest;
    }
    assert!(left.is_empty(), "{} bytes are no record", left.len());
    records
}

fn next(bytes: &[u8]) -> Option<(Record, &[u8])> {
    let (what, rest) = bytes.split_first_chunk()?;
    let (name_length, rest) = rest.split_first_chunk()?;
    let (offset, rest) = rest.split_first_chunk()?;
    let (data_length, rest) = rest.split_first_chunk()?;
    let size = |bytes| usize::try_from(u64::from_ne_bytes(bytes)).unwrap();
    let (name, rest) = rest.split_at_checked(u32::from_ne_bytes(*name_length) as usize)?;
    let (data, rest) = rest.split_at_checked(size(*data_length))?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let act = match u32::from_ne_bytes(*what) {
        1 => Act::Write {
            offset: size(*offset),
            data: data.to_vec(),
        },
        2 => Act::Truncate {
            length: size(*offset),
        },
        3 => Act::Sync {
            began: u64::from_ne_bytes(*offset),
        },
        4 => Act::Create,
        5 => Act::Unlink,
        6 => Act::Rename { to: text(data) },
        other => panic!("record {other}"),
    };
    let record = Record {
        name: text(name),
        act,
        end: 0,
    };
    Some((record, rest))
}
