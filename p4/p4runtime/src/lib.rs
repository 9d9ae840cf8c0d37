//! P4Runtime: controllers write and read the tables of a P4 program in operation, by gRPC.
//!
//! [`serve`] listens at an address, and asks the program's executor by its [`Controller`]. The only
//! packets it sees are those that the program sends to controllers. The program is fixed: a
//! controller can verify that it expects the same one, and clear its tables, but it cannot load
//! another.
//!
//! `proto` has the messages; `value`, `entry` and `read` convert entities to requests and answers
//! to entities; `arbitration` chooses the primary controller; `digest` sends it the program's
//! messages; `service` combines all of them. The messages are written by hand from the
//! specification (P4Runtime 1.4), and only as far as they are supported.
//!
//! Always true: only the primary controller changes anything; there are at most
//! [`MOST_CONTROLLERS`] controllers, a message is at most [`MOST_BYTES`] long, and answers are made
//! piece by piece, as fast as the controller reads them.
//!
//! ```
//! use natgate_p4::{compile, programs, request_queue};
//! use natgate_p4runtime::{Device, serve};
//!
//! let text = programs::text("nat").expect("a program of that crate");
//! let info = compile("nat.p4", text).expect("it compiles").info();
//! let device = Device { id: 1, info, program: text.into() };
//! // The executor of the program answers the requests of its queue.
//! let (controller, _queue) = request_queue();
//! let server = serve(([127, 0, 0, 1], 0).into(), device, controller).expect("a free port");
//! assert!(server.address().is_some());
//! ```

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

/// Default address of the service.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:9559";

/// The served device.
#[derive(Clone, Debug)]
pub struct Device {
    /// Number by which controllers address the device.
    pub id: u64,
    /// Description of the program for controllers.
    pub info: Info,
    /// Text of the program, which is the device's configuration.
    pub program: Vec<u8>,
}

/// Answers controllers at an address, until the returned value is dropped. Any client that reaches
/// the address can become the primary controller, so it should be a local one. Port 0 stands for
/// any free port.
///
/// # Errors
///
/// The address cannot be used.
pub fn serve(
    address: SocketAddr,
    device: Device,
    controller: Controller,
) -> Result<Server, BindError> {
    let listen = Listen::tcp(address).role(Role::Operate).streams();
    Server::start(listen, service::router(device, controller))
}
