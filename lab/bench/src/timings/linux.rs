//! The Linux guest: Debian's kernel for virtual machines, if it has drivers for the cards, and a
//! script that sets up a masquerading router with nft.
//!
//! The engine's timings have a second file system with this program in it. So the first file system
//! is small and boots fast.

use super::{Card, Plan};
use natgate_testnet::{GATEWAY_INSIDE, GATEWAY_OUTSIDE, Guest, LinuxGuest, Network, ROUTER};
use std::io;
use std::path::PathBuf;

/// Command line of the kernel. The emulator does not have the processor's faults, and their
/// mitigations cost time.
const OPTIONS: &str = "console=ttyS0 quiet panic=-1 mitigations=off";

/// Modules beside those of the card, each after the modules that it needs.
const MODULES: [&str; 5] = ["nf_conntrack", "nf_nat", "nf_tables", "nft_chain_nat", "nft_masq"];

impl Card {
    /// Flavor of Debian's kernel. The kernel for virtual machines is smaller and lacks drivers for
    /// other cards.
    fn flavour(self) -> &'static str {
        match self {
            Self::VirtioNet => "cloud-amd64",
            Self::E1000 | Self::E1000e => "amd64",
        }
    }

    fn modules(self) -> &'static [&'static str] {
        match self {
            Self::VirtioNet => &["virtio_pci", "virtio_net"],
            // The other kernel has this checksum built in; modules look for it by this name.
            Self::E1000 => &["crc32c_generic", "e1000"],
            Self::E1000e => &["crc32c_generic", "e1000e"],
        }
    }
}

/// A guest that can be booted.
pub(super) struct Linux {
    /// Release of the kernel.
    pub(super) version: String,
    kernel: PathBuf,
    /// File systems of the gateway, and of the engine's timings.
    files: [PathBuf; 2],
    /// Command line of the kernel for measurements of the engine.
    options: String,
}

impl Linux {
    /// Fetches missing packages, and builds the guest for this kind of card in the network's
    /// directory. `word` is the option of the image for timings.
    pub(super) fn prepare(
        network: &Network,
        plan: &Plan,
        card: Card,
        word: &str,
    ) -> io::Result<Self> {
        let packages = plan.packages.clone().unwrap_or_else(|| network.file("packages"));
        let folder = network.file(card.device());
        LinuxGuest::fetch(&packages, card.flavour())?;
        let guest = LinuxGuest::unpack(&packages, &folder, card.flavour())?;
        let load = guest.add_modules(&[card.modules(), &MODULES].concat())?;
        guest.add_tool("nft")?;
        guest.set_script(&script(&load))?;
        let files = ["gateway.cpio", "timings.cpio"].map(|file| folder.join(file));
        guest.pack(&files[0])?;
        guest.add_program(&plan.program, "natgate")?;
        guest.pack(&files[1])?;
        let LinuxGuest { version, kernel, .. } = guest;
        Ok(Self { version, kernel, files, options: format!("{OPTIONS} {word}") })
    }

    /// The guest as a gateway.
    pub(super) fn gateway(&self) -> Guest<'_> {
        Guest::new(&self.kernel, &self.files[0], OPTIONS)
    }

    /// The guest that measures the engine and ends.
    pub(super) fn timings(&self) -> Guest<'_> {
        Guest::new(&self.kernel, &self.files[1], &self.options)
    }
}

/// Script of the guest: the engine's timings if the command line requests them, otherwise a router.
fn script(load: &str) -> String {
    format!(
        "busybox=/bin/busybox
$busybox mount -t proc proc /proc
case \" $($busybox cat /proc/cmdline) \" in
*' timings '*) /natgate bench timings --lines; $busybox reboot -f ;;
*' timings=quick '*) /natgate bench timings --lines --quick; $busybox reboot -f ;;
esac
{load}$busybox ip link set lo up
$busybox ip address add {GATEWAY_INSIDE}/24 dev eth0
$busybox ip address add {GATEWAY_OUTSIDE}/24 dev eth1
$busybox ip link set eth0 up
$busybox ip link set eth1 up
$busybox ip route add default via {ROUTER}
/bin/nft 'table ip nat {{ chain out {{
    type nat hook postrouting priority srcnat; oifname eth1 masquerade; }}; }}' &&
echo 1 >/proc/sys/net/ipv4/ip_forward &&
echo linux is running
while :; do $busybox sleep 3600; done
"
    )
}
