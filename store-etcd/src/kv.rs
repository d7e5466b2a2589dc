//! The few requests that the ledger is made of.
//!
//! Each transaction is about a single key, in the shape in which the Kubernetes API server sends
//! them, because that is all that kine takes: one comparison of `mod_revision`, then one put or
//! delete, else one read of the same key.

use etcd_client::{
    Client, Compare, CompareOp, DeleteOptions, Error, GetOptions, KeyValue, Txn, TxnOp,
    TxnOpResponse,
};

use crate::failure::Failure;
use crate::keys::Range;
use crate::members::{Call, Members};

/// Answers up to this size are taken; a longer stretch is read in smaller pieces.
const ANSWER_MAX: usize = 64 << 20;

/// What became of a compare-and-swap.
pub(crate) enum Swap {
    /// Done, under this revision.
    Done(u64),
    /// The key is at another revision than was expected: this is what stands there, if anything.
    Lost(Option<Raw>),
}

/// A value as it is stored.
pub(crate) struct Raw {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) revision: u64,
    /// The revision under which the key came to be.
    pub(crate) created: u64,
}

impl Raw {
    pub(crate) fn of(kv: KeyValue) -> Raw {
        let created = revision(kv.create_revision());
        let revision = revision(kv.mod_revision());
        let (key, value) = kv.into_key_value();
        Raw {
            key,
            value,
            revision,
            created,
        }
    }
}

/// A stretch of the keyspace at one revision.
pub(crate) struct Stretch {
    pub(crate) values: Vec<Raw>,
    /// The last revision of the store when it was read.
    pub(crate) last: u64,
    /// Whether there is more behind it.
    pub(crate) more: bool,
}

/// Reads the value of a key, and the last revision of the store. Reflects every write that was
/// acknowledged before the call.
pub(crate) async fn get(members: &Members, key: &[u8]) -> Result<(Option<Raw>, u64), Failure> {
    let answer = read(members, key, GetOptions::new()).await?;
    Ok((answer.values.into_iter().next(), answer.last))
}

/// The last revision of the store.
pub(crate) async fn last_revision(members: &Members, key: &[u8]) -> Result<u64, Failure> {
    Ok(read(members, key, GetOptions::new().with_limit(1))
        .await?
        .last)
}

/// The last revision of the store, if this one is within its history.
///
/// # Errors
/// `Compacted`, `Future`.
pub(crate) async fn check_revision(members: &Members, key: &[u8], at: u64) -> Result<u64, Failure> {
    // Zero would be "the latest"; nothing is written at revision 1.
    let Ok(at) = i64::try_from(at.max(1)) else {
        return Err(Failure::Future);
    };
    let options = GetOptions::new().with_limit(1).with_revision(at);
    Ok(read(members, key, options).await?.last)
}

/// Reads from a key on, at most `limit` values, as they are now or were at a revision.
pub(crate) async fn range(
    members: &Members,
    range: &Range,
    at: Option<u64>,
    limit: usize,
) -> Result<Stretch, Failure> {
    let mut limit = i64::try_from(limit).unwrap_or(i64::MAX).max(1);
    loop {
        let mut options = GetOptions::new()
            .with_range(range.end.clone())
            .with_limit(limit);
        if let Some(at) = at {
            options = options.with_revision(i64::try_from(at).map_err(|_| Failure::Future)?);
        }
        match read(members, &range.first, options).await {
            Err(Failure::AnswerTooLarge) if limit > 1 => limit /= 8,
            answer => return answer,
        }
        limit = limit.max(1);
    }
}

/// Puts a value if the key is at this revision; zero means that there must be none.
pub(crate) async fn put(
    members: &Members,
    key: &[u8],
    expected: u64,
    value: &[u8],
) -> Result<Swap, Failure> {
    swap(members, key, expected, TxnOp::put(key, value, None)).await
}

/// Deletes a key if it is at this revision.
pub(crate) async fn delete(members: &Members, key: &[u8], expected: u64) -> Result<Swap, Failure> {
    let delete = TxnOp::delete(key, None::<DeleteOptions>);
    swap(members, key, expected, delete).await
}

async fn swap(members: &Members, key: &[u8], expected: u64, write: TxnOp) -> Result<Swap, Failure> {
    let expected = i64::try_from(expected).unwrap_or(i64::MAX);
    let txn = Txn::new()
        .when([Compare::mod_revision(key, CompareOp::Equal, expected)])
        .and_then([write])
        .or_else([TxnOp::get(key, None)]);
    members
        .call(Call::Write, |mut client: Client| {
            let txn = txn.clone();
            async move {
                let answer = client.txn(txn).await?;
                if answer.succeeded() {
                    let header = answer.header().ok_or_else(no_header)?;
                    return Ok(Swap::Done(revision(header.revision())));
                }
                let found = answer.op_responses().into_iter().find_map(|op| match op {
                    TxnOpResponse::Get(mut get) => get.take_kvs().into_iter().next(),
                    _ => None,
                });
                Ok(Swap::Lost(found.map(Raw::of)))
            }
        })
        .await
}

async fn read(members: &Members, key: &[u8], options: GetOptions) -> Result<Stretch, Failure> {
    members
        .call(Call::Read, |client: Client| {
            let (key, options) = (key.to_vec(), options.clone());
            async move {
                let mut client = client.kv_client().max_decoding_message_size(ANSWER_MAX);
                let mut answer = client.get(key, Some(options)).await?;
                let last = revision(answer.header().ok_or_else(no_header)?.revision());
                Ok(Stretch {
                    values: answer.take_kvs().into_iter().map(Raw::of).collect(),
                    last,
                    more: answer.more(),
                })
            }
        })
        .await
}

fn no_header() -> Error {
    Error::Internal("the answer has no header".to_owned())
}

/// Revisions are never negative.
pub(crate) fn revision(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}
