//! `asynclane inspect health`: asks a running server.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::Result;

use crate::args::{AddressArgs, HealthArgs, ModelArgs, ServeArgs};
use crate::config::{Config, listen_address};
use crate::exit;

/// Timeout of a probe.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Asks `/health` of a server; containers use it as their health check.
///
/// # Errors
/// An invalid configuration or address, an unreachable or unhealthy server.
pub fn run(args: &HealthArgs, model: &ModelArgs) -> Result<()> {
    let address = address(args, model)?;
    let unreachable =
        |reason: String| exit::failure(exit::UNAVAILABLE, format!("{address}: {reason}"));
    let found = address.to_socket_addrs().map_err(|error| unreachable(error.to_string()))?;
    let mut answer = Err(unreachable("no such address".to_owned()));
    // A name may have addresses on which the server does not listen.
    for socket in found {
        answer = probe(socket, &address).map_err(|error| unreachable(error.to_string()));
        if answer.is_ok() {
            break;
        }
    }
    let answer = answer?;
    let status = answer.lines().next().unwrap_or_default();
    match status.split(' ').nth(1) {
        Some("200") => Ok(()),
        _ => Err(unreachable(format!("expected status 200, found {status:?}"))),
    }
}

/// Host and port of the given address, or of the configured one.
fn address(args: &HealthArgs, model: &ModelArgs) -> Result<String> {
    let Some(given) = &args.address else {
        let address = AddressArgs { listen: args.listen.clone(), ..AddressArgs::default() };
        let serve = ServeArgs { address, ..ServeArgs::default() };
        return Ok(Config::resolve(model, Some(&serve))?.listen_address());
    };
    let host = match given.split_once("://") {
        Some((scheme, host)) if scheme.eq_ignore_ascii_case("http") => {
            let host = host.strip_suffix('/').unwrap_or(host);
            let has_port =
                host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            if has_port { host.to_owned() } else { format!("{host}:80") }
        }
        _ => listen_address(given),
    };
    match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() && !name.contains('/') => Ok(host),
        _ => {
            let tls =
                if given.starts_with("https:") { "; TLS is for a proxy in front" } else { "" };
            let expected = "expected HOST:PORT, a port or http://HOST:PORT";
            let message = format!("--address: {expected}, found {given:?}{tls}");
            Err(exit::failure(exit::USAGE, message))
        }
    }
}

/// The answer of the server on `socket`. A wildcard is no destination: it is asked at loopback.
fn probe(mut socket: SocketAddr, address: &str) -> std::io::Result<String> {
    let mut host = address.to_owned();
    if socket.ip().is_unspecified() {
        let loopback = match socket {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        socket.set_ip(loopback);
        host = socket.to_string();
    }
    let mut stream = TcpStream::connect_timeout(&socket, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    write!(stream, "GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(64 << 10).read_to_string(&mut answer)?;
    Ok(answer)
}
