//! The image that boots without an operating system, in an emulator, in its place between the
//! subscribers and the router.
//!
//! The emulator's network cards are taps in the gateway's namespace, each bridged with the cable
//! there.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
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
    /// The image's serial port, the way in.
    keys: ChildStdin,
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
        let mut child =
            nat.start_with_input(Path::new(EMULATOR), &arguments, &log, Stdio::piped())?;
        let keys = child.stdin.take().expect("standard input was asked for");
        let mut image = Self { child, keys, log };
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

    /// The counters of its menu: presses the key for them, and once more when it has shown them.
    ///
    /// # Errors
    /// It does not show them, or does not listen.
    pub fn counters(&mut self) -> io::Result<String> {
        let before = self.log().len();
        self.keys.write_all(b"n")?;
        let counters = wait_for("the image's counters", PATIENCE, || {
            Ok(counters(self.log().get(before..).unwrap_or_default()))
        })?;
        self.keys.write_all(b"n")?;
        Ok(counters)
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

/// The first counters among what was printed, once they are whole: an empty line ends them.
fn counters(printed: &str) -> Option<String> {
    let printed = printed.replace('\r', "");
    let (_, from) = printed.split_at_checked(printed.find("outbound ")?)?;
    from.split_once("\n\n").map(|(counters, _)| counters.to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn counters_are_taken_when_they_are_whole() {
        let printed =
            "Inside: up\r\noutbound  forwarded 7\r\nmappings  1\r\n\r\noutbound  forwarded 8";
        let expected = "outbound  forwarded 7\nmappings  1";
        assert_eq!(super::counters(printed).as_deref(), Some(expected));
        assert_eq!(super::counters(&printed[..40]), None);
    }
}
