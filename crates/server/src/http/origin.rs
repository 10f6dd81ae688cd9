//! Without API keys, loopback servers check `Host` and `Origin`, and others what pages of other sites
//! send without a type.
//!
//! A browser on this machine may show a page of another site, and that page can send requests
//! here. Its `Origin` gives it away. Under DNS rebinding, where the site's name resolves to
//! 127.0.0.1, its `Host` does.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderValue, Version};
use axum::middleware::Next;
use axum::response::Response;

use crate::error::{ApiError, ErrorCode, clip};
use crate::http::refusal::refuse;
use crate::state::AppState;

/// Refuses requests that a page of another site may have sent: if [`Settings::local_only`] is on, all
/// of them, otherwise those that a browser sends without asking first.
///
/// [`Settings::local_only`]: super::settings::Settings::local_only
pub async fn check(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let settings = state.settings();
    let checked = match settings.local_only {
        true => local(&request, settings.cors),
        // With keys, and for a body with a type, a browser asks first.
        false if settings.cors || !state.keys().get().is_empty() => Ok(()),
        false => typed(&request),
    };
    match checked {
        Ok(()) => next.run(request).await,
        Err(error) => refuse(&state, &request, error, "a foreign Host or Origin"),
    }
}

/// Requires a loopback `Host` and, unless `any_origin`, an `Origin` that is this server.
fn local(request: &Request, any_origin: bool) -> Result<(), ApiError> {
    let headers = request.headers();
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next();
    // HTTP/1.0 has no Host header, and no browser speaks HTTP/1.0.
    if host.is_none() && request.version() != Version::HTTP_10 {
        return Err(foreign_host(""));
    }
    for host in host.into_iter().chain(hosts) {
        if !is_loopback(host.as_bytes()) {
            return Err(foreign_host(&printable(host)));
        }
    }
    // The authority of the request line takes precedence over the header.
    if let Some(authority) = request.uri().authority()
        && !is_loopback(authority.as_str().as_bytes())
    {
        return Err(foreign_host(authority.as_str()));
    }
    for origin in headers.get_all(ORIGIN) {
        if !any_origin && !is_own(origin, host) {
            return Err(foreign_origin(&printable(origin)));
        }
    }
    Ok(())
}

/// Requires a `Content-Type` of what a page of another site sends. A body without one is read too, and
/// another one than JSON's is refused later.
fn typed(request: &Request) -> Result<(), ApiError> {
    let headers = request.headers();
    let is_safe = request.method().is_safe() || headers.contains_key(CONTENT_TYPE);
    let host = headers.get(HOST);
    let mut foreign = headers.get_all(ORIGIN).iter().filter(|origin| !is_own(origin, host));
    match foreign.next().filter(|_| !is_safe) {
        None => Ok(()),
        Some(origin) => {
            let message = format!(
                "without API keys this server needs a content-type from pages of other sites: \
                 the Origin header is '{}'",
                printable(origin)
            );
            Err(ApiError::new(ErrorCode::Forbidden, message))
        }
    }
}

/// True if `origin` is the server that `host` names.
fn is_own(origin: &HeaderValue, host: Option<&HeaderValue>) -> bool {
    let origin = origin.as_bytes();
    let authority =
        [&b"http://"[..], b"https://"].into_iter().find_map(|scheme| origin.strip_prefix(scheme));
    match (authority, host) {
        (Some(authority), Some(host)) => authority.eq_ignore_ascii_case(host.as_bytes()),
        _ => false,
    }
}

/// True if `authority` is `localhost` or a loopback address, with any port or none.
fn is_loopback(authority: &[u8]) -> bool {
    let Ok(authority) = std::str::from_utf8(authority) else {
        return false;
    };
    let (is_loopback, rest) = match authority.strip_prefix('[') {
        Some(bracketed) => {
            let (address, rest) = bracketed.split_once(']').unwrap_or((bracketed, "]"));
            let address = address.parse::<Ipv6Addr>();
            // Also an address of IPv4 in its form of IPv6.
            let address = address.map(|address| address.to_canonical());
            (address.is_ok_and(|address| address.is_loopback()), rest)
        }
        None => {
            let (name, rest) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
            let address = name.parse::<Ipv4Addr>();
            let is_loopback = address.is_ok_and(|address| address.is_loopback());
            (is_loopback || name.eq_ignore_ascii_case("localhost"), rest)
        }
    };
    let port = match rest.strip_prefix(':') {
        Some(port) => port,
        None if rest.is_empty() => "0",
        None => return false,
    };
    is_loopback && port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok()
}

fn printable(value: &HeaderValue) -> String {
    clip(&String::from_utf8_lossy(value.as_bytes()))
}

fn foreign_host(given: &str) -> ApiError {
    let message = format!(
        "without API keys this server answers to localhost, 127.0.0.0/8 and [::1] only: \
         the Host header is '{}'",
        clip(given)
    );
    ApiError::new(ErrorCode::Forbidden, message)
}

fn foreign_origin(given: &str) -> ApiError {
    let message = format!(
        "without API keys this server answers its own pages only: the Origin header is '{given}'"
    );
    ApiError::new(ErrorCode::Forbidden, message)
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    #[test]
    fn loopback_has_many_names() {
        for authority in [
            "localhost",
            "LocalHost:8000",
            "127.0.0.1",
            "127.0.0.1:8000",
            "127.255.255.254:1",
            "[::1]",
            "[::1]:65535",
            "[0:0:0:0:0:0:0:1]:80",
            "[::ffff:127.0.0.1]:8000",
            "[::ffff:7f00:1]",
        ] {
            assert!(is_loopback(authority.as_bytes()), "{authority}");
        }
    }

    #[test]
    fn names_that_look_like_loopback_are_foreign() {
        for authority in [
            "",
            ":8000",
            "example.com",
            "localhost.example.com",
            "127.0.0.1.example.com",
            "example.com:127.0.0.1",
            "localhost:",
            "localhost:80000",
            "localhost:+80",
            "localhost:80:80",
            "localhost@example.com",
            "127.0.0.1@example.com",
            "127.1",
            "0.0.0.0",
            "128.0.0.1",
            "::1",
            "[::1",
            "[::1]8000",
            "[::2]:80",
            "[::ffff:128.0.0.1]",
            "[::127.0.0.1]",
            "[127.0.0.1]",
            "localhost/",
            " localhost",
        ] {
            assert!(!is_loopback(authority.as_bytes()), "{authority}");
        }
    }
}
