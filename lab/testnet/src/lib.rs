//! The network namespaces that the demonstration and the tests run in.
//!
//! [`Network`] is two subscribers, the gateway's place, a router and two servers, each a network
//! namespace of its own with the kernel's own TCP/IP in it; [`Gateway`] is a `natgate run` between
//! them, [`Machine`] one in an emulator, such as the image without an operating system; [`Servers`]
//! are what the clients talk to, threads of this process; [`traffic`] is what needs sockets of a
//! particular kind. Programs such as curl run by [`Namespace::run`].
//!
//! Always holds: whatever is made has a name that begins with the network's prefix, which has this
//! process's number in it, and goes when the [`Network`] is dropped. [`abandon`] is for the
//! endings that drop nothing, and [`remove_leftovers`] for those that could do nothing at all.
//! Needs root. Everything waits for a bounded time only.

#![forbid(unsafe_code)]

mod gateway;
mod machine;
mod namespace;
mod network;
mod servers;
pub mod traffic;
mod turn;

pub use gateway::{Gateway, config, config_with_pool};
pub use machine::{CARD_INSIDE, Guest, Machine, VIRTIO};
pub use namespace::{Namespace, abandon, remove_leftovers};
pub use network::{
    GATEWAY_INSIDE, GATEWAY_OUTSIDE, Network, POOL, ROUTER, SERVER1, SERVER2, SUBSCRIBER1,
    SUBSCRIBER2,
};
pub use servers::{REFLECTOR_PORT, Servers};
pub use turn::{TestNetwork, Turn};

use std::io;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Signal, geteuid, getrlimit, kill_process, setrlimit};

/// Lets this process hold thousands of sockets open at once.
///
/// # Errors
/// The system's, when not even the hard limit can be had.
pub fn raise_open_files() -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// Whether this process may make network namespaces.
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Asks a program that this process started to end, by SIGTERM.
///
/// # Errors
/// The system's: it has ended and been waited for.
pub fn terminate(child: &Child) -> io::Result<()> {
    Ok(kill_process(Pid::from_child(child), Signal::TERM)?)
}

/// Waits until a program in the namespace listens on a TCP port.
///
/// # Errors
/// None does within the time.
pub fn wait_for_listener(node: &Namespace, port: u16, limit: Duration) -> io::Result<()> {
    const LISTEN: &str = "0A";
    let end = format!(":{port:04X}");
    let listens = |table: &str| {
        table.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let local = words.next().is_some_and(|local| local.ends_with(&end));
            local && words.nth(1) == Some(LISTEN)
        })
    };
    wait_for(&format!("a listener on port {port}"), limit, || {
        node.enter(|| {
            let tables = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
            // Without IPv6 there is no second table.
            let tables = tables.map(|path| std::fs::read_to_string(path).unwrap_or_default());
            tables.iter().any(|table| listens(table)).then_some(())
        })
    })
}

/// Asks again every 20 ms until there is an answer or the time is up.
///
/// # Errors
/// What `attempt` fails with, and `TimedOut` with `what` in the message.
pub fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut attempt: impl FnMut() -> io::Result<Option<T>>,
) -> io::Result<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = attempt()? {
            return Ok(found);
        }
        if Instant::now() >= end {
            let message = format!("{what}: nothing within {limit:?}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
