//! Preconditions of the measurements in network namespaces: root, programs, and the removal of all
//! namespaces at the end of this process.

use crate::Failure;
use anyhow::{Context, anyhow};
use natgate_lab::bed::TAG;
use natgate_testnet::{abandon, is_root, remove_leftovers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::PathBuf;

/// Programs that the measurements run, and their Debian packages.
const TOOLS: [(&str, &str); 5] = [
    ("ip", "iproute2"),
    ("ethtool", "ethtool"),
    ("setpriv", "util-linux"),
    ("timeout", "coreutils"),
    ("nft", "nftables"),
];

/// Checks all preconditions, and the programs in `more`. Returns the path of the gateway's program.
pub(super) fn prepare(more: &[(&str, &str)]) -> Result<PathBuf, Failure> {
    if !is_root() {
        return Err(anyhow!("network namespaces need root: run it as root, such as by sudo").into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |name: &str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    let mut tools = TOOLS.iter().chain(more);
    if let Some((tool, package)) = tools.find(|(tool, _)| !there(tool)) {
        return Err(anyhow!("{tool} is missing; as root: apt-get install {package}").into());
    }
    remove_leftovers(TAG);
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).context("signals cannot be caught")?;
    let prefix = format!("{TAG}{}-", std::process::id());
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            if let Some(signal) = signals.forever().next() {
                abandon(&prefix, 128 + signal);
            }
        })
        .context("a thread cannot be started")?;
    Ok(crate::gateway()?)
}
