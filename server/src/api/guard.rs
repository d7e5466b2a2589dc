//! Keeps out what comes from somewhere else: until callers can be told apart, only programs on
//! this machine may use the API, and a web page that a browser on this machine shows is not one
//! of them. A page can reach loopback: through a name that it lets point there (the `Host` header
//! tells), or directly (`Origin` and `Sec-Fetch-Site` tell).

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;

use super::error::{ApiError, Reason};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses foreign requests with 403, and marks answers as neither to be kept nor to be guessed
/// the type of.
pub(super) async fn local_only(request: Request, next: Next) -> Result<Response, ApiError> {
    let authority = request.uri().authority().map(|a| a.as_str());
    check(authority, request.headers()).map_err(|m| ApiError::new(Reason::Forbidden, m))?;
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, private"),
    );
    Ok(response)
}

fn check(authority: Option<&str>, headers: &HeaderMap) -> Result<(), String> {
    let texts = |name| {
        headers
            .get_all(name)
            .iter()
            .map(|v| v.to_str().unwrap_or("?"))
    };
    let hosts: Vec<&str> = authority.into_iter().chain(texts(header::HOST)).collect();
    if hosts.is_empty() {
        return Err("the request has no Host header".to_owned());
    }
    if let Some(host) = hosts.iter().find(|h| !is_loopback(h)) {
        return Err(format!(
            "the host {host:?} is not this machine's own: use 127.0.0.1, [::1] or localhost"
        ));
    }
    if let Some(origin) = texts(header::ORIGIN).find(|o| !is_same_origin(o, &hosts)) {
        return Err(format!(
            "requests of web pages from {origin:?} are not answered"
        ));
    }
    if let Some(site) = texts(SEC_FETCH_SITE).find(|s| !["same-origin", "none"].contains(s)) {
        return Err(format!("{site} requests of web pages are not answered"));
    }
    Ok(())
}

/// `localhost`, `127.0.0.0/8` or `[::1]`, with or without a port.
fn is_loopback(host: &str) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split_once(']').is_some_and(|(address, port)| {
            is_port(port) && address.parse::<Ipv6Addr>().is_ok_and(|a| a.is_loopback())
        });
    }
    let (name, port) = host.split_at(host.find(':').unwrap_or(host.len()));
    is_port(port)
        && (name.eq_ignore_ascii_case("localhost")
            || name.parse::<Ipv4Addr>().is_ok_and(|a| a.is_loopback()))
}

fn is_port(text: &str) -> bool {
    text.is_empty()
        || text
            .strip_prefix(':')
            .is_some_and(|p| p.parse::<u16>().is_ok())
}

/// Whether a page of this origin comes from this very server.
fn is_same_origin(origin: &str, hosts: &[&str]) -> bool {
    let host = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    host.is_some_and(|host| hosts.iter().all(|h| h.eq_ignore_ascii_case(host)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(authority: Option<&str>, headers: &[(HeaderName, &str)]) -> bool {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()))
            .collect::<Vec<_>>();
        let mut map = HeaderMap::new();
        headers.into_iter().for_each(|(name, value)| {
            map.append(name, value);
        });
        check(authority, &map).is_ok()
    }

    #[test]
    fn only_loopback_hosts_are_answered() {
        for host in [
            "localhost",
            "LOCALHOST:7440",
            "127.0.0.1",
            "127.0.0.1:7440",
            "127.9.8.7",
            "[::1]",
            "[::1]:80",
        ] {
            assert!(allowed(None, &[(header::HOST, host)]), "{host}");
        }
        for host in [
            "example.com",
            "localhost.example.com",
            "127.0.0.1.example.com",
            "192.0.2.1",
            "[2001:db8::1]",
            "",
            ":80",
            "localhost:x",
            "127.0.0.1:80:80",
            "[::1",
            "::1",
            "[::1]x",
            "user@localhost",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(!allowed(None, &[(header::HOST, host)]), "{host}");
        }
        assert!(!allowed(None, &[]));
    }

    #[test]
    fn every_host_that_a_request_names_is_looked_at() {
        let (own, foreign) = ((header::HOST, "localhost"), (header::HOST, "example.com"));
        assert!(!allowed(None, &[own.clone(), foreign]));
        assert!(!allowed(Some("example.com"), std::slice::from_ref(&own)));
        assert!(allowed(Some("localhost"), &[own]));
    }

    #[test]
    fn pages_from_elsewhere_are_refused_and_own_ones_are_not() {
        let host = || (header::HOST, "localhost:7440");
        for (origin, answer) in [
            ("http://localhost:7440", true),
            ("https://LOCALHOST:7440", true),
            ("http://localhost:3000", false),
            ("http://127.0.0.1:7440", false),
            ("https://example.com", false),
            ("null", false),
            ("localhost:7440", false),
        ] {
            assert_eq!(
                allowed(None, &[host(), (header::ORIGIN, origin)]),
                answer,
                "{origin}"
            );
        }
        for (site, answer) in [
            ("same-origin", true),
            ("none", true),
            ("same-site", false),
            ("cross-site", false),
            ("", false),
        ] {
            assert_eq!(
                allowed(None, &[host(), (SEC_FETCH_SITE, site)]),
                answer,
                "{site}"
            );
        }
    }
}
