//! The client of a request: the engine divides its steps evenly among clients.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::Extensions;
use engine::ClientId;

use super::authorization::KeyName;

/// The bit that is set in the ids of keys and not in the ids of connections.
const KEY_BIT: u64 = 1 << 63;

/// The number of a request's connection, in its extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection(u64);

impl Connection {
    /// The number of a connection that was accepted now; from 1.
    pub fn accepted() -> Self {
        static ACCEPTED: AtomicU64 = AtomicU64::new(1);
        Self(ACCEPTED.fetch_add(1, Ordering::Relaxed))
    }
}

/// The client of a request: its API key, without keys its connection.
pub fn client_of(extensions: &Extensions) -> ClientId {
    if let Some(KeyName(name)) = extensions.get() {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        return ClientId(hasher.finish() | KEY_BIT);
    }
    let connection = extensions.get();
    ClientId(connection.map_or(0, |Connection(number)| number & !KEY_BIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_client_whatever_its_connections() {
        let client = |key: Option<&str>, connection: Option<Connection>| {
            let mut extensions = Extensions::new();
            if let Some(key) = key {
                extensions.insert(KeyName(key.into()));
            }
            if let Some(connection) = connection {
                extensions.insert(connection);
            }
            client_of(&extensions)
        };
        let [a, b] = [Connection::accepted(), Connection::accepted()];
        assert_eq!(client(Some("x"), Some(a)), client(Some("x"), Some(b)));
        assert_ne!(client(Some("x"), Some(a)), client(Some("y"), Some(a)));
        assert_ne!(client(None, Some(a)), client(None, Some(b)));
        assert_eq!(client(None, None), ClientId::default());
    }
}
