//! Reasons why a worker cannot be made.

use crate::router::RouterError;
use natgate_engine::ConfigError;
use std::io;

/// Reason why a worker cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The translator refuses its configuration.
    #[error("{}", .0.message)]
    Engine(ConfigError),
    /// The sockets that wake workers could not be created.
    #[error("the system gives no sockets by which workers wake each other")]
    Wake(#[source] io::Error),
    /// The router's settings are incomplete.
    #[error(transparent)]
    Router(#[from] RouterError),
    /// A device carries less than a new configuration requires.
    #[error(transparent)]
    Mtu(#[from] NarrowDevice),
}

/// A device that carries less than the configuration requires of one of its links.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name}.mtu is {configured}, but device {device:?} carries {actual} bytes; set \
     {name}.mtu = {actual}, or raise the device's with `ip link set dev {device} mtu {configured}`"
)]
pub struct NarrowDevice {
    /// Name of the side or the realm.
    pub name: String,
    /// Configured value, bytes.
    pub configured: u16,
    /// Name of the device.
    pub device: String,
    /// Value of the device, bytes.
    pub actual: u32,
}
