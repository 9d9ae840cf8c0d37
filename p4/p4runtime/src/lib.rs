//! P4Runtime: controllers fill and read the tables of a P4 program at work, by gRPC.
//!
//! [`serve`] listens where it is told, and asks what executes the program by its [`Controller`]; of
//! packets it knows those that the program sends to controllers. The program is the one that runs:
//! a controller can verify that it means the same, and start with empty tables, but it cannot bring
//! another.
//!
//! `proto` has the messages, `value`, `entry` and `read` turn entities into requests and answers
//! into entities, `arbitration` says which controller is the primary one, `digest` what it is told
//! of the program's messages, `service` puts them together. The messages are written down by hand
//! from the specification (P4Runtime 1.4), and only as far as they are understood.
//!
//! Always true: only the primary controller changes anything; there are as many controllers as
//! [`MOST_CONTROLLERS`], a message is at most [`MOST_BYTES`] long, and answers are made piece by
//! piece, as fast as the controller reads them.

#![forbid(unsafe_code)]

mod arbitration;
mod call;
mod digest;
mod entry;
mod proto;
mod read;
mod service;
mod value;

pub use arbitration::MOST_CONTROLLERS;
pub use call::MOST_BYTES;

use natgate_http::{BindError, Listen, Role, Server};
use natgate_p4::{Controller, Info};
use std::net::SocketAddr;

/// Where controllers look for it unless they are told otherwise.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:9559";

/// What is served.
#[derive(Clone, Debug)]
pub struct Device {
    /// The number by which controllers name it.
    pub id: u64,
    /// What they know the program by.
    pub info: Info,
    /// The program's text, which is the device's configuration.
    pub program: Vec<u8>,
}

/// Answers controllers at an address, until what it returns goes. Whoever reaches the address can
/// be the primary controller, so it should be one of this machine's own; port 0 is any that is
/// free.
///
/// # Errors
///
/// The address cannot be had.
pub fn serve(
    address: SocketAddr,
    device: Device,
    controller: Controller,
) -> Result<Server, BindError> {
    let listen = Listen::tcp(address).role(Role::Operate).streams();
    Server::start(listen, service::router(device, controller))
}
