//! Notifications to a service manager (`Type=notify`); without one they have no effect. Service managers
//! of Windows have no such notifications.

#[cfg(unix)]
use sd_notify::NotifyState;

/// The model is loaded and requests are accepted.
#[cfg(unix)]
pub fn ready(address: &str) {
    let status = format!("serving on http://{address}");
    tell(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// New requests are refused; accepted ones finish.
#[cfg(unix)]
pub fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("draining")]);
}

/// True if the service manager expects a sign of life (`WatchdogSec=`).
#[cfg(unix)]
pub fn watches() -> bool {
    sd_notify::watchdog_enabled().is_some()
}

/// The engine lives.
#[cfg(unix)]
pub fn alive() {
    tell(&[NotifyState::Watchdog]);
}

#[cfg(unix)]
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "notifying the service manager failed");
    }
}

#[cfg(not(unix))]
pub use silent::{alive, ready, stopping, watches};

#[cfg(not(unix))]
mod silent {
    /// Nobody is told.
    pub fn ready(_address: &str) {}

    /// Nobody is told.
    pub fn stopping() {}

    /// Nobody expects a sign of life.
    pub fn watches() -> bool {
        false
    }

    /// Nobody is told.
    pub fn alive() {}
}
