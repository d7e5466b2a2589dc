//! A few lines of HTTP/1.1 over a socket: a peer of the server that shares no code with it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// One request with a JSON body; answers status code and JSON body.
///
/// # Errors
/// The connection broke, or the answer is no HTTP.
pub fn ask(
    address: &str,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<(u16, Value), String> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let (code, text) = exchange(address, method, path, &body)?;
    Ok((
        code,
        serde_json::from_str(&text).unwrap_or(Value::String(text)),
    ))
}

/// The text of a page.
///
/// # Errors
/// As [`ask`].
pub fn text(address: &str, path: &str) -> Result<String, String> {
    Ok(exchange(address, "GET", path, "")?.1)
}

fn exchange(address: &str, method: &str, path: &str, body: &str) -> Result<(u16, String), String> {
    let fail = |e: std::io::Error| e.to_string();
    let mut socket = TcpStream::connect(address).map_err(fail)?;
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .map_err(fail)?;
    let kind = if method == "PATCH" {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(request.as_bytes()).map_err(fail)?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).map_err(fail)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, rest) = answer
        .split_once("\r\n\r\n")
        .ok_or("the answer has no head")?;
    let code = head
        .split(' ')
        .nth(1)
        .and_then(|c| c.parse().ok())
        .ok_or("no status code")?;
    let chunked = head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked");
    Ok((
        code,
        if chunked {
            unchunk(rest)
        } else {
            rest.to_owned()
        },
    ))
}

fn unchunk(mut rest: &str) -> String {
    let mut text = String::new();
    while let Some((size, tail)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        let (Some(chunk), true) = (tail.get(..size), size > 0) else {
            break;
        };
        text.push_str(chunk);
        rest = tail.get(size + 2..).unwrap_or("");
    }
    text
}
