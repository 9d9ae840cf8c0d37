//! The Linux kernel as the subject: it forwards, and nftables' masquerade translates if asked to.

use super::{GATEWAY, TESTER};
use natgate_testnet::Network;
use std::fs;
use std::io;
use std::path::Path;

/// Connections that the kernel tracks at most, and the lists that it finds them by: of the machine,
/// not of a namespace.
const MOST: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
const LISTS: &str = "/sys/module/nf_conntrack/parameters/hashsize";

pub(super) struct Kernel;

impl Kernel {
    /// Gives the namespace addresses and routes, and has it forward.
    pub(super) fn prepare(network: &Network, [inside, outside]: &[String; 2]) -> io::Result<()> {
        let nat = network.node("nat");
        nat.set("ipv4/ip_forward", "1")?;
        nat.ip_batch(&format!(
            "link set lo up\n\
             address add {}/24 dev {inside}\n\
             address add {}/24 dev {outside}\n\
             route add 100.64.0.0/10 via {}\n\
             route add default via {}\n",
            GATEWAY[0], GATEWAY[1], TESTER[0], TESTER[1]
        ))
    }

    /// Has what leaves by the outside translated, with room for so many flows that last.
    pub(super) fn masquerade(
        network: &Network,
        [_, outside]: &[String; 2],
        flows: u32,
    ) -> io::Result<()> {
        let nat = network.node("nat");
        nat.run(5, "nft", &["add table ip nat"])?;
        nat.run(
            5,
            "nft",
            &["add chain ip nat out { type nat hook postrouting priority srcnat; }"],
        )?;
        let rule = format!("add rule ip nat out oifname \"{outside}\" masquerade");
        nat.run(5, "nft", &[&rule])?;
        nat.enter(|| raise(MOST, u64::from(flows) * 2))??;
        for timeout in ["udp_timeout", "udp_timeout_stream"] {
            nat.set(&format!("netfilter/nf_conntrack_{timeout}"), "3600")?;
        }
        Ok(())
    }
}

/// Has the kernel track so many connections, by this thread's namespace, which should be the
/// machine's own: its limits are those of all.
pub(super) fn make_room(flows: u32) -> io::Result<()> {
    raise(MOST, u64::from(flows) * 2)?;
    // As many lists as connections, which costs the kernel least.
    raise(LISTS, u64::from(flows).next_power_of_two())
}

/// Makes a limit of the kernel's at least so much.
fn raise(file: &str, least: u64) -> io::Result<()> {
    if !Path::new(file).exists() {
        return Ok(());
    }
    let now = fs::read_to_string(file)?.trim().parse::<u64>().unwrap_or(0);
    if now < least {
        fs::write(file, least.to_string())?;
    }
    Ok(())
}
