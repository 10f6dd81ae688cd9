//! Notifications to a service manager (`Type=notify`); without one they have no effect.

use sd_notify::NotifyState;

/// The model is loaded and requests are accepted.
pub fn ready(address: &str) {
    let status = format!("serving on http://{address}");
    tell(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// New requests are refused; accepted ones finish.
pub fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("draining")]);
}

/// Whether the service manager expects a sign of life (`WatchdogSec=`).
pub fn watches() -> bool {
    sd_notify::watchdog_enabled().is_some()
}

/// The engine lives.
pub fn alive() {
    tell(&[NotifyState::Watchdog]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "notifying the service manager failed");
    }
}
