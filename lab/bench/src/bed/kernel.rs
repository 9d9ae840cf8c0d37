//! The Linux kernel as the subject. It forwards, and nftables' masquerade translates if requested.

use super::{GATEWAY, TESTER};
use natgate_testnet::Network;
use std::fs;
use std::io;
use std::path::Path;

/// Files with the limit of tracked connections and the number of hash lists. Both belong to the
/// machine and not to a namespace.
const MOST: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
const LISTS: &str = "/sys/module/nf_conntrack/parameters/hashsize";

pub(super) struct Kernel;

impl Kernel {
    /// Gives the namespace addresses and routes, and switches forwarding on.
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

    /// Translates packets that leave by the outside, with room for `flows` lasting flows.
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

/// Raised limits of the machine; they are restored when this is dropped.
pub(super) struct Raised(Vec<(&'static str, String)>);

impl Drop for Raised {
    fn drop(&mut self) {
        for (file, before) in &self.0 {
            // A process that could raise a limit can lower it.
            let _ = fs::write(file, before);
        }
    }
}

/// Makes room for `flows` tracked connections. Call it in the machine's own namespace: its limits
/// apply to all namespaces.
pub(super) fn make_room(flows: u32) -> io::Result<Raised> {
    let mut raised = Raised(Vec::new());
    // The number of lists equals the number of connections, which costs the kernel least.
    let lists = u64::from(flows).next_power_of_two();
    for (file, least) in [(MOST, u64::from(flows) * 2), (LISTS, lists)] {
        raised.0.extend(raise(file, least)?.map(|before| (file, before)));
    }
    Ok(raised)
}

/// Raises a limit of the kernel to at least `least`. Returns the old limit if it was lower.
fn raise(file: &str, least: u64) -> io::Result<Option<String>> {
    if !Path::new(file).exists() {
        return Ok(None);
    }
    let before = fs::read_to_string(file)?.trim().to_owned();
    if before.parse::<u64>().unwrap_or(0) >= least {
        return Ok(None);
    }
    fs::write(file, least.to_string())?;
    Ok(Some(before))
}
