//! The image that boots without an operating system, in an emulator, in its place between the
//! subscribers and the router.
//!
//! The emulator's network cards are taps in the gateway's namespace, each bridged with the cable
//! there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::Duration;

use crate::network::{GATEWAY_INSIDE, Network, argument};
use crate::{config, terminate, wait_for};

/// How long the image may take to start, and the emulator to stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// The emulator.
const EMULATOR: &str = "qemu-system-x86_64";

/// A running image; its emulator is killed when it is dropped.
#[derive(Debug)]
pub struct Image {
    child: Child,
    log: PathBuf,
}

impl Image {
    /// Boots this image with the configuration that fits the network, and waits until it answers a
    /// ping.
    ///
    /// # Errors
    /// What the image has printed when it ends at once or does not answer in time.
    pub fn start(network: &Network, image: &Path) -> io::Result<Self> {
        let file = network.file("natgate.toml");
        let configuration = config("").replace("\"inside\"", "\"eth0\"");
        fs::write(&file, configuration.replace("\"outside\"", "\"eth1\""))?;
        let nat = network.node("nat");
        for side in ["inside", "outside"] {
            nat.ip_batch(&format!(
                "link add bridge-{side} type bridge\n\
                 tuntap add dev tap-{side} mode tap\n\
                 link set {side} master bridge-{side}\n\
                 link set tap-{side} master bridge-{side}\n\
                 link set tap-{side} up\n\
                 link set bridge-{side} up\n"
            ))?;
        }
        let netdev = |side| format!("tap,id={side},ifname=tap-{side},script=no,downscript=no");
        let device = |side| format!("virtio-net-pci,netdev={side},romfile=");
        let (inside, outside) = (netdev("inside"), netdev("outside"));
        let (inside_card, outside_card) = (device("inside"), device("outside"));
        let machine = ["-accel", "tcg", "-cpu", "max", "-m", "512", "-no-reboot"];
        let console = ["-display", "none", "-serial", "stdio", "-monitor", "none"];
        let files = ["-kernel", argument(image), "-initrd", argument(&file), "-append", "start"];
        let cards = [
            "-netdev",
            &inside,
            "-device",
            &inside_card,
            "-netdev",
            &outside,
            "-device",
            &outside_card,
        ];
        let arguments = [&machine[..], &console, &files, &cards].concat();
        let log = network.file("natgate.log");
        let child = nat.start(Path::new(EMULATOR), &arguments, &log)?;
        let mut image = Self { child, log };
        let running = image.wait_until_running().and_then(|()| {
            let arguments = ["-c", "1", "-w", "5", &GATEWAY_INSIDE.to_string()];
            network.node("sub2").run(6, "ping", &arguments).map(drop)
        });
        running.map_err(|error| io::Error::other(format!("{error}: {}", image.log())))?;
        Ok(image)
    }

    fn wait_until_running(&mut self) -> io::Result<()> {
        wait_for("the image's start", PATIENCE, || {
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("{EMULATOR} ended with {status}")));
            }
            Ok(self.log().contains("natgate is running").then_some(()))
        })
    }

    /// What it has printed so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Ends the emulator by SIGTERM, and waits until it has.
    ///
    /// # Errors
    /// It does not.
    pub fn stop(mut self) -> io::Result<ExitStatus> {
        terminate(&self.child)?;
        wait_for("the emulator's end", PATIENCE, || self.child.try_wait())
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
