//! The lines of a watch: one JSON object each.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;

use crate::Inner;
use crate::call::chain;
use crate::failure::Failure;

/// A line that is longer is no event of ours.
const LINE_MAX: usize = 16 << 20;

pub(crate) struct Lines<B = Body> {
    body: B,
    /// What has come and is not passed on yet.
    buffer: Vec<u8>,
    /// Up to here there is no end of a line in it.
    searched: usize,
}

impl Inner {
    pub(crate) async fn lines(&self, path: String) -> Result<Lines, Failure> {
        Ok(Lines {
            body: self.caller.stream(path).await?,
            buffer: Vec::new(),
            searched: 0,
        })
    }
}

impl<B> Lines<B>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error,
{
    /// The next line; `None` at the end. Can be dropped and called again.
    ///
    /// # Errors
    /// The connection was lost, or the line is none.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, String> {
        loop {
            let fresh = self
                .buffer
                .iter()
                .skip(self.searched)
                .position(|b| *b == b'\n');
            if let Some(end) = fresh {
                let end = self.searched + end;
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                self.searched = 0;
                return serde_json::from_slice(&line)
                    .map(Some)
                    .map_err(|e| format!("a line of a watch cannot be read: {e}"));
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > LINE_MAX {
                return Err(format!("a line of a watch has more than {LINE_MAX} bytes"));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(e)) => return Err(chain(&e)),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_put_together_from_what_comes() {
        let parts = ["{\"a\"", ": 1}\n{\"b\": 2}\n{\"c\":", " 3}\n", "{\"cut"];
        let frames = parts.map(|p| Ok::<_, std::io::Error>(http_body::Frame::data(p.into())));
        let body = http_body_util::StreamBody::new(futures::stream::iter(frames));
        let mut lines = Lines {
            body,
            buffer: Vec::new(),
            searched: 0,
        };
        for wanted in [r#"{"a":1}"#, r#"{"b":2}"#, r#"{"c":3}"#] {
            assert_eq!(lines.next().await.unwrap().unwrap().to_string(), wanted);
        }
        assert_eq!(lines.next().await, Ok(None));
    }
}
