//! A running `natgate run` between the subscribers and the router.
//!
//! Its configuration file is in the network's directory, with its log beside it. It writes its
//! status after SIGUSR1.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::network::{GATEWAY_INSIDE, GATEWAY_OUTSIDE, Network, POOL, ROUTER, argument};
use crate::{terminate, wait_for};

/// Longest time of the gateway to start, to write its status, and to stop.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running natgate; killed when dropped.
#[derive(Debug)]
pub struct Gateway {
    child: Child,
    status: PathBuf,
    log: PathBuf,
}

/// Configuration for the network, with `more` appended.
pub fn config(more: &str) -> String {
    config_with_pool(&pool(), more)
}

/// Configuration for the network with another pool: its keys, one on each line.
pub fn config_with_pool(pool: &str, more: &str) -> String {
    tables("", "", pool, more)
}

/// Keys of the pool.
pub(crate) fn pool() -> String {
    let [first, .., last] = POOL;
    format!("addresses = [\"{first}-{last}\"]")
}

/// Configuration with more keys of either side, lines with their ends, and more tables.
pub(crate) fn tables(inside: &str, outside: &str, pool: &str, more: &str) -> String {
    format!(
        "[inside]\n\
         device = \"inside\"\n\
         backend = \"af-packet\"\n\
         address = \"{GATEWAY_INSIDE}/24\"\n\
         {inside}\
         [outside]\n\
         device = \"outside\"\n\
         backend = \"af-packet\"\n\
         address = \"{GATEWAY_OUTSIDE}/24\"\n\
         gateway = \"{ROUTER}\"\n\
         {outside}\
         [[pool]]\n\
         {pool}\n\
         {more}"
    )
}

impl Gateway {
    /// Starts this program with this configuration, and waits until it answers a ping.
    ///
    /// # Errors
    /// The gateway's own messages if it ends at once or does not answer in time.
    pub fn start(network: &Network, program: &Path, config: &str) -> io::Result<Self> {
        let gateway = Self::start_in(network, "nat", program, config)?;
        let arguments = ["-c", "1", "-w", "5", &GATEWAY_INSIDE.to_string()];
        match network.node("sub2").run(6, "ping", &arguments) {
            Ok(_) => Ok(gateway),
            Err(error) => Err(io::Error::other(format!("{error}: {}", gateway.log()))),
        }
    }

    /// Starts this program in a node with two devices, and waits until it listens on both.
    ///
    /// # Errors
    /// The gateway's own messages if it ends at once or takes too long.
    pub fn start_in(
        network: &Network,
        node: &str,
        program: &Path,
        config: &str,
    ) -> io::Result<Self> {
        Self::start_with(network, node, program, config, &[])
    }

    /// Starts this program like [`Self::start_in`], with more arguments.
    ///
    /// # Errors
    /// The errors of [`Self::start_in`].
    pub fn start_with(
        network: &Network,
        node: &str,
        program: &Path,
        config: &str,
        options: &[&str],
    ) -> io::Result<Self> {
        // A second gateway has files of its own.
        let other = if node == "nat" { String::new() } else { format!("-{node}") };
        let file = network.file(&format!("natgate{other}.toml"));
        fs::write(&file, config)?;
        let status = network.file(&format!("status{other}.json"));
        let log = network.file(&format!("natgate{other}.log"));
        let arguments = ["run", "-c", argument(&file), "--status-file", argument(&status)];
        let arguments = [&arguments[..], options].concat();
        let child = network.node(node).start(program, &arguments, &log)?;
        let mut gateway = Self { child, status, log };
        match gateway.wait_until_running() {
            Ok(()) => Ok(gateway),
            Err(error) => Err(io::Error::other(format!("{error}: {}", gateway.log()))),
        }
    }

    /// Waits until the gateway has opened its devices. An earlier ARP request would be lost, and
    /// the next would come a second later.
    fn wait_until_running(&mut self) -> io::Result<()> {
        wait_for("the gateway's start", PATIENCE, || {
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("natgate run ended with {status}")));
            }
            Ok(self.log().contains("natgate: running, ").then_some(()))
        })
    }

    /// Process id.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Standard output and error so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Requests the status: mappings, counters.
    ///
    /// # Errors
    /// If no status came, or if it is not JSON.
    pub fn status(&self) -> io::Result<Value> {
        // An earlier status must not be confused with this one.
        let _ = fs::remove_file(&self.status);
        kill_process(Pid::from_child(&self.child), Signal::USR1)?;
        wait_for("the gateway's status", PATIENCE, || {
            let Ok(text) = fs::read_to_string(&self.status) else { return Ok(None) };
            // The status may be incomplete yet.
            Ok(serde_json::from_str(&text).ok())
        })
    }

    /// Resident bytes of its memory.
    ///
    /// # Errors
    /// The system's error if the gateway has ended.
    pub fn resident(&self) -> io::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes.map(|kilobytes| kilobytes << 10).ok_or(io::ErrorKind::NotFound.into())
    }

    /// Stops the gateway until [`Self::thaw`].
    ///
    /// # Errors
    /// If the gateway has ended.
    pub fn freeze(&self) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::STOP)?)
    }

    /// Continues a stopped gateway.
    ///
    /// # Errors
    /// If the gateway has ended.
    pub fn thaw(&self) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::CONT)?)
    }

    /// Makes the gateway read its configuration again, by SIGHUP, and waits for its report.
    ///
    /// # Errors
    /// If no report comes.
    pub fn reload(&self) -> io::Result<()> {
        let said = || self.log().matches(": reload: reloaded").count();
        let before = said();
        kill_process(Pid::from_child(&self.child), Signal::HUP)?;
        wait_for("the gateway's reload", PATIENCE, || Ok((said() > before).then_some(())))
    }

    /// Stops the gateway by SIGTERM, and waits for its end.
    ///
    /// # Errors
    /// If the gateway does not end.
    pub fn stop(self) -> io::Result<ExitStatus> {
        terminate(&self.child)?;
        self.wait()
    }

    /// Waits for the gateway's end.
    ///
    /// # Errors
    /// If the gateway does not end.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        wait_for("the gateway's end", PATIENCE, || self.child.try_wait())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Both calls fail only if the gateway has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
