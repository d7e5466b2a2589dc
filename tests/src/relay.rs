//! A network that fails: connections to a server on this machine that can all be cut at once.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Passes connections on to a port of 127.0.0.1, until it is dropped.
pub struct Relay {
    port: u16,
    open: Arc<Mutex<Option<Vec<TcpStream>>>>,
}

impl Relay {
    /// Takes connections on a free port.
    ///
    /// # Panics
    /// There is none.
    pub fn start(to: u16) -> Relay {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let open = Arc::new(Mutex::new(Some(Vec::new())));
        let connections = Arc::clone(&open);
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                // Nobody listens while the server is down: the connection ends at once.
                let Ok(far) = TcpStream::connect(("127.0.0.1", to)) else {
                    continue;
                };
                let mut connections = connections.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(connections) = connections.as_mut() else {
                    return;
                };
                connections.retain(|c: &TcpStream| c.peer_addr().is_ok());
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else {
                        continue;
                    };
                    thread::spawn(move || pass_on(from, to));
                }
                connections.extend([near, far]);
            }
        });
        Relay { port, open }
    }

    /// Where it listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts all connections that there are; new ones are taken. How many there were.
    pub fn cut(&self) -> usize {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let ends: Vec<TcpStream> = open.as_mut().map(std::mem::take).unwrap_or_default();
        close(&ends)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let ends = self
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        close(&ends.unwrap_or_default());
        // The thread that takes connections sees the end at the next one.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// Each connection has two ends.
fn close(ends: &[TcpStream]) -> usize {
    let closed = ends
        .iter()
        .filter(|end| end.shutdown(Shutdown::Both).is_ok());
    closed.count() / 2
}

fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn what_is_cut_is_over_and_the_next_connection_works() {
        let server = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let relay = Relay::start(server.local_addr().unwrap().port());
        for _ in 0..2 {
            let mut near = TcpStream::connect(("127.0.0.1", relay.port())).unwrap();
            let (mut far, _) = server.accept().unwrap();
            near.write_all(b"ask").unwrap();
            let mut asked = [0; 3];
            far.read_exact(&mut asked).unwrap();
            far.write_all(b"say").unwrap();
            near.read_exact(&mut asked).unwrap();
            assert_eq!(&asked, b"say");
            assert_eq!(relay.cut(), 1);
            assert_eq!(near.read(&mut asked).unwrap_or(0), 0);
        }
    }
}
