//! Reasons why a worker cannot be made.

use crate::router::RouterError;
use natgate_engine::ConfigError;
use std::io;

/// Why a worker cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The translator refuses its configuration.
    #[error("{}", .0.message)]
    Engine(ConfigError),
    /// Workers could not be woken.
    #[error("the system gives no sockets by which workers wake each other")]
    Wake(#[source] io::Error),
    /// The router lacks something.
    #[error(transparent)]
    Router(#[from] RouterError),
    /// A device carries less than a new configuration says.
    #[error(transparent)]
    Mtu(#[from] NarrowDevice),
}

/// A device that carries less than the configuration says of one of its links.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name}.mtu is {configured}, but device {device:?} carries {actual} bytes; set \
     {name}.mtu = {actual}, or raise the device's with `ip link set dev {device} mtu {configured}`"
)]
pub struct NarrowDevice {
    /// The name of the side or the realm.
    pub name: String,
    /// What the configuration says, bytes.
    pub configured: u16,
    /// The device's name.
    pub device: String,
    /// What the device carries, bytes.
    pub actual: u32,
}
