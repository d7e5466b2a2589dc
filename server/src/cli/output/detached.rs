//! A stream that is written by a thread of its own.

use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

/// What is not written yet at the end gets this long.
const FAREWELL: Duration = Duration::from_secs(1);

/// Takes everything at once and never blocks. After the stream has failed, writing fails as it
/// does for a pipe that nobody reads.
///
/// What is waiting to be written is kept in memory: as much as the caller writes.
pub(super) struct Detached {
    /// `None` only while it is dropped.
    texts: Option<Sender<Vec<u8>>>,
    /// Closed when the thread ends.
    ended: Receiver<()>,
}

impl Detached {
    pub(super) fn new(mut stream: impl Write + Send + 'static) -> Detached {
        let (texts, waiting) = mpsc::channel::<Vec<u8>>();
        let (end, ended) = mpsc::channel::<()>();
        thread::spawn(move || {
            let _end = end;
            for text in waiting {
                if stream
                    .write_all(&text)
                    .and_then(|()| stream.flush())
                    .is_err()
                {
                    return;
                }
            }
        });
        Detached {
            texts: Some(texts),
            ended,
        }
    }
}

impl Write for Detached {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.texts.as_ref().map(|t| t.send(bytes.to_vec()));
        match sent {
            Some(Ok(())) => Ok(bytes.len()),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        self.texts = None;
        // A thread that hangs in a write ends with the process.
        let _ = self.ended.recv_timeout(FAREWELL);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::RecvTimeoutError;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Writes nothing before the test lets it.
    struct Stuck {
        go: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.go
                .recv()
                .map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
            self.written.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn stuck() -> (Sender<()>, Arc<Mutex<Vec<u8>>>, Detached) {
        let (go, gate) = mpsc::channel();
        let written = Arc::new(Mutex::new(Vec::new()));
        let stream = Stuck {
            go: gate,
            written: Arc::clone(&written),
        };
        (go, written, Detached::new(stream))
    }

    #[test]
    fn a_stream_that_nobody_reads_holds_nothing_up_and_gets_everything_once_it_is_read() {
        let (go, written, mut stream) = stuck();
        // Nothing can have been written yet, and yet this returns.
        stream.write_all(b"one ").unwrap();
        stream.write_all(b"two").unwrap();
        assert_eq!(*written.lock().unwrap(), b"");
        go.send(()).unwrap();
        go.send(()).unwrap();
        drop(stream);
        assert_eq!(*written.lock().unwrap(), b"one two");
    }

    #[test]
    fn a_stream_that_has_failed_refuses_what_comes_after() {
        let (go, _, mut stream) = stuck();
        drop(go);
        stream.write_all(b"lost").unwrap();
        assert_eq!(
            stream.ended.recv_timeout(Duration::from_secs(10)),
            Err(RecvTimeoutError::Disconnected)
        );
        let e = stream.write_all(b"refused").unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_stream_that_is_never_read_does_not_keep_the_process() {
        let (_go, written, mut stream) = stuck();
        stream.write_all(b"unread").unwrap();
        drop(stream);
        assert_eq!(*written.lock().unwrap(), b"");
    }
}
