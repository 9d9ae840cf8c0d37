//! A laboratory of two network namespaces, the tester's and the translator's, with a cable on
//! either side.
//!
//! ```text
//! tester: inside --------- inside [nat] outside --------- outside :tester
//!       10.77.0.16-250    10.77.0.1   198.51.100.1    198.51.100.16-250
//! ```
//!
//! The MTU of the outside is smaller than the inside's, so the suite can try packets that are too
//! long. However the command ends, the namespaces and processes are removed.

use super::{Lab, LabBackend, try_all};
use crate::Failure;
use anyhow::{Context, anyhow, bail};
use natgate_conform::{Families, Hosts, Live, Options, Report, Setup, Siit};
use natgate_testnet::{Gateway, Network, abandon, is_root, remove_leftovers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Prefix of the names of all laboratories.
const TAG: &str = "ngconf";

const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const OUTSIDE_MTU: u16 = 1400;
const UNTRANSLATED: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 252);
const NOBODY: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 253);

const GATEWAY6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x77, 0, 0, 0, 0, 1);
const NAT64: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);
const SIIT: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x6464, 0, 0, 0, 0, 0);
/// First addresses of the explicit mapping of all inside hosts.
const MAPPED6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x77, 0, 0, 0, 0x0a4d, 0);
const MAPPED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 0);

/// Default number of mappings of a subscriber in `natgate run`.
const QUOTA: u32 = 2000;

impl Lab {
    /// Its name in reports.
    pub(super) fn subject(self) -> &'static str {
        match self {
            Self::Linux => "Linux masquerade",
            Self::Natgate => "natgate",
        }
    }
}

/// Builds the laboratory, runs the suite in it, removes it.
pub(super) fn run(lab: Lab, backend: LabBackend, options: &Options) -> Result<Report, Failure> {
    if !is_root() {
        return Err(
            anyhow!("--lab makes network namespaces: run it as root, such as by sudo").into()
        );
    }
    remove_leftovers(TAG);
    let name = format!("{TAG}{}", std::process::id());
    clean_up_when_told_to_end(&format!("{name}-"))?;
    let network = build(&name).context("the laboratory cannot be built")?;
    let mut options = options.clone();
    let _gateway = match lab {
        Lab::Linux => {
            masquerade(&network)?;
            None
        }
        Lab::Natgate => {
            options.quota = options.quota.or(Some(QUOTA));
            let program = crate::gateway()?;
            let gateway = Gateway::start_in(&network, "nat", &program, &config(backend));
            Some(gateway.context("natgate run")?)
        }
    };
    let setup = setup(lab);
    let tester = network.node("tester");
    // Devices and their monitors belong to the namespace in which they are opened.
    let report = tester.enter(|| {
        let live = Live::open("inside", "outside").map_err(anyhow::Error::from)?;
        try_all(Box::new(live), setup, options)
    });
    report.context("the tester's namespace")?
}

fn build(name: &str) -> std::io::Result<Network> {
    let mut network = Network::empty(name)?;
    network.add("tester")?;
    network.add("nat")?;
    for side in ["inside", "outside"] {
        network.cable(["nat", side, "tester", side])?;
    }
    for node in ["tester", "nat"] {
        network.node(node).ip_batch(&format!("link set outside mtu {OUTSIDE_MTU}\n"))?;
    }
    Ok(network)
}

/// Configures the kernel as a translator with default settings.
fn masquerade(network: &Network) -> anyhow::Result<()> {
    let nat = network.node("nat");
    nat.ip_batch(&format!(
        "link set lo up\n\
         address add {GATEWAY}/16 dev inside\n\
         address add {OUTSIDE}/24 dev outside\n"
    ))?;
    nat.set("ipv4/ip_forward", "1")?;
    let rules = "add table ip nat; \
        add chain ip nat post { type nat hook postrouting priority srcnat; }; \
        add rule ip nat post oifname outside masquerade";
    if let Err(error) = nat.run(10, "nft", &[rules]) {
        bail!("nft (package nftables) cannot set up masquerading: {error}");
    }
    Ok(())
}

/// Configuration of natgate with default settings, and with settings that some requirements need.
fn config(backend: LabBackend) -> String {
    let backend = match backend {
        LabBackend::AfPacket => "af-packet",
        LabBackend::AfXdp => "af-xdp",
    };
    format!(
        "[inside]\n\
         device = \"inside\"\n\
         backend = \"{backend}\"\n\
         address = \"{GATEWAY}/16\"\n\
         address6 = \"{GATEWAY6}/64\"\n\
         [outside]\n\
         device = \"outside\"\n\
         backend = \"{backend}\"\n\
         address = \"{OUTSIDE}/24\"\n\
         mtu = {OUTSIDE_MTU}\n\
         [[pool]]\n\
         addresses = [\"198.51.100.2-198.51.100.9\"]\n\
         [[rule]]\n\
         kind = \"bypass\"\n\
         match = {{ destination = \"{UNTRANSLATED}\" }}\n\
         [nat64]\n\
         prefixes = [\"{NAT64}/96\"]\n\
         subscriber_length = 128\n\
         [siit]\n\
         prefixes = [\"{SIIT}/96\"]\n\
         [[siit.map]]\n\
         ipv6 = \"{MAPPED6}/120\"\n\
         ipv4 = \"{MAPPED}/24\"\n"
    )
}

fn setup(lab: Lab) -> Setup {
    let hosts = |first: [u8; 4], last: [u8; 4]| Hosts { first: first.into(), last: last.into() };
    Setup {
        inside_gateway: GATEWAY,
        inside_hosts: hosts([10, 77, 0, 16], [10, 77, 0, 250]),
        outside_hosts: hosts([198, 51, 100, 16], [198, 51, 100, 250]),
        outside_gateway: None,
        nobody: Some(NOBODY),
        untranslated: (lab == Lab::Natgate).then_some(UNTRANSLATED),
        families: (lab == Lab::Natgate).then_some(families()),
    }
}

/// IPv6 on natgate's inside.
fn families() -> Families {
    Families {
        gateway: GATEWAY6,
        prefix: Ipv6Addr::new(0x2001, 0xdb8, 0x77, 0, 0, 0, 0, 0),
        nat64: Some(NAT64),
        siit: Some(Siit { prefix: SIIT, ipv6: MAPPED6, ipv4: MAPPED }),
    }
}

/// Removes the laboratory after a signal, too. A signal drops nothing.
fn clean_up_when_told_to_end(prefix: &str) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("signals")?;
    let own = prefix.to_owned();
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            abandon(&own, 1);
        }
    });
    // A panic ends this program at once.
    let usual = std::panic::take_hook();
    let own = prefix.to_owned();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        abandon(&own, 1);
    }));
    Ok(())
}
