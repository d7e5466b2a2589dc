//! A watch over HTTP, read line by line until the server ends it or dies.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// An open watch.
pub struct Watch {
    socket: BufReader<TcpStream>,
    /// Bytes that have come and are no whole line yet.
    rest: Vec<u8>,
}

impl Watch {
    /// Opens the watch at `path`, query included. A silence of `patience` ends it.
    ///
    /// # Errors
    /// The server cannot be reached or refuses; then with its answer.
    pub fn open(address: &str, path: &str, patience: Duration) -> Result<Watch, String> {
        let fail = |e: std::io::Error| e.to_string();
        let mut socket = TcpStream::connect(address).map_err(fail)?;
        socket.set_read_timeout(Some(patience)).map_err(fail)?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
        socket.write_all(request.as_bytes()).map_err(fail)?;
        let mut watch = Watch {
            socket: BufReader::new(socket),
            rest: Vec::new(),
        };
        let status = watch.head_line().map_err(fail)?;
        while !watch.head_line().map_err(fail)?.is_empty() {}
        if status.split(' ').nth(1) != Some("200") {
            let mut body = String::new();
            let _ = watch.socket.read_to_string(&mut body);
            return Err(format!("{status}: {body}"));
        }
        Ok(watch)
    }

    /// The next event, as `{"type": ..., "object": ...}`; `None` once the watch has ended, also in
    /// the middle of a line.
    ///
    /// # Panics
    /// A line is no JSON.
    pub fn next_event(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("a line of a watch is JSON"));
            }
            let size = self.head_line().ok()?;
            let size = usize::from_str_radix(&size, 16).ok().filter(|s| *s > 0)?;
            let old = self.rest.len();
            self.rest.resize(old + size, 0);
            self.socket.read_exact(&mut self.rest[old..]).ok()?;
            self.head_line().ok()?;
        }
    }

    /// A line of the head, or of the frame around a chunk.
    fn head_line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        match self.socket.read_line(&mut line)? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}
