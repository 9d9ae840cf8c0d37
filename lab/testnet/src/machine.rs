//! A machine in an emulator in place of a node: the image that boots without an operating system as
//! the gateway, or any other kernel file.
//!
//! Its network cards are taps in the node's namespace, each bridged with a cable there.
//! Several machines can take turns: one is active, and the others are stopped with their taps down.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::time::Duration;

use crate::network::{GATEWAY_INSIDE, Network, argument};
use crate::{terminate, wait_for};
use rustix::process::{Pid, Signal, kill_process};

/// Longest time of the machine to start, to execute a command, and to stop.
const PATIENCE: Duration = Duration::from_secs(120);

/// Program of the emulator.
const EMULATOR: &str = "qemu-system-x86_64";

/// Hardware address of a machine's inside card, for subscribers that must not send ARP requests.
pub const CARD_INSIDE: &str = "52:54:00:00:00:01";
const CARD_OUTSIDE: &str = "52:54:00:00:00:02";

/// Sides of a gateway, which are the names of its cables.
const SIDES: [&str; 2] = ["inside", "outside"];

/// The gateway's node.
const GATEWAY: &str = "nat";

/// Default kind of cards.
pub const VIRTIO: &str = "virtio-net-pci";
/// Default memory of machines, mebibytes.
const MEMORY: u32 = 512;

/// Content of a machine: the files and the command line of a boot loader, and the hardware.
#[derive(Clone, Copy, Debug)]
pub struct Guest<'a> {
    /// Kernel, or image in place of one.
    pub kernel: &'a Path,
    /// File that is loaded with the kernel.
    pub file: &'a Path,
    /// Command line.
    pub options: &'a str,
    /// Kind of its two cards, by the emulator's name.
    pub card: &'a str,
    /// Mebibytes of memory.
    pub memory: u32,
    /// Node that it stands in for.
    pub node: &'a str,
    /// Number of its taps.
    pub place: usize,
}

impl<'a> Guest<'a> {
    /// Boots this with virtio cards, the gateway's first taps and 512 MiB of memory.
    pub fn new(kernel: &'a Path, file: &'a Path, options: &'a str) -> Self {
        Self { kernel, file, options, card: VIRTIO, memory: MEMORY, node: GATEWAY, place: 0 }
    }
}

/// A running machine with one processor and two cards; its emulator is killed when it is dropped.
#[derive(Debug)]
pub struct Machine {
    child: Child,
    node: String,
    place: usize,
    /// Serial port for input.
    keys: ChildStdin,
    log: PathBuf,
}

impl Machine {
    /// Boots the image with a configuration for the network, and waits until it answers a ping.
    /// Adds taps to the network.
    ///
    /// # Errors
    /// Output of the image if it ends at once or does not answer in time.
    pub fn start(network: &Network, image: &Path, config: &str) -> io::Result<Self> {
        Self::lay_taps(network, 1)?;
        let file = Self::write_configuration(network, config)?;
        let mut machine = Self::boot(network, &Guest::new(image, &file, "start"))?;
        machine.wait_until_running(network)?;
        Ok(machine)
    }

    /// Prepares taps for `machines` machines, of which one at a time may be active.
    ///
    /// # Errors
    /// The error of `ip`.
    pub fn lay_taps(network: &Network, machines: usize) -> io::Result<()> {
        Self::lay_taps_in(network, GATEWAY, machines)
    }

    /// Prepares taps as [`Self::lay_taps`] in a node with the cables of a gateway.
    ///
    /// # Errors
    /// The error of `ip`.
    pub fn lay_taps_in(network: &Network, node: &str, machines: usize) -> io::Result<()> {
        for side in SIDES {
            let mut batch = format!(
                "link add bridge-{side} type bridge\n\
                 link set {side} master bridge-{side}\n\
                 link set bridge-{side} up\n"
            );
            for place in 0..machines {
                batch += &format!(
                    "tuntap add dev tap-{side}{place} mode tap\n\
                     link set tap-{side}{place} master bridge-{side}\n"
                );
            }
            network.node(node).ip_batch(&batch)?;
        }
        Ok(())
    }

    /// Switches the taps of a place up or down.
    fn set_taps(network: &Network, node: &str, place: usize, state: &str) -> io::Result<()> {
        let link = |side| format!("link set tap-{side}{place} {state}\n");
        network.node(node).ip_batch(&SIDES.map(link).concat())
    }

    /// Writes a configuration for the network as the image's: with its names of the cards.
    ///
    /// # Errors
    /// The system's.
    pub fn write_configuration(network: &Network, config: &str) -> io::Result<PathBuf> {
        let file = network.file("natgate.toml");
        let configuration = config.replace("\"inside\"", "\"eth0\"");
        fs::write(&file, configuration.replace("\"outside\"", "\"eth1\""))?;
        Ok(file)
    }

    /// Boots a machine, which is active from then on.
    ///
    /// # Errors
    /// The system's error if the emulator cannot be started, and the error of `ip`.
    pub fn boot(network: &Network, guest: &Guest<'_>) -> io::Result<Self> {
        let Guest { card, node, place, .. } = *guest;
        Self::set_taps(network, node, place, "up")?;
        let netdev =
            |side| format!("tap,id={side},ifname=tap-{side}{place},script=no,downscript=no");
        let device = |side, mac| format!("{card},netdev={side},mac={mac},romfile=");
        let [inside, outside] = SIDES.map(netdev);
        let inside_card = device("inside", CARD_INSIDE);
        let outside_card = device("outside", CARD_OUTSIDE);
        let memory = guest.memory.to_string();
        let machine = ["-accel", "tcg", "-cpu", "max", "-m", &memory, "-no-reboot"];
        let console = ["-display", "none", "-serial", "stdio", "-monitor", "none"];
        let files = ["-kernel", argument(guest.kernel), "-initrd", argument(guest.file)];
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
        let arguments = [&machine[..], &console, &files, &["-append", guest.options], &cards];
        let log = network.file(&format!("machine{place}.log"));
        let namespace = network.node(node);
        let (emulator, input) = (Path::new(EMULATOR), Stdio::piped());
        let mut child = namespace.start_with_input(emulator, &arguments.concat(), &log, input)?;
        let keys = child.stdin.take().expect("standard input was asked for");
        Ok(Self { child, node: node.to_owned(), place, keys, log })
    }

    /// Stops the machine, so that another may be active; its clocks continue.
    ///
    /// # Errors
    /// The system's error if the machine has ended, and the error of `ip`.
    pub fn pause(&self, network: &Network) -> io::Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::STOP)?;
        Self::set_taps(network, &self.node, self.place, "down")
    }

    /// Continues the machine; no other machine may be active.
    ///
    /// # Errors
    /// The system's error if the machine has ended, and the error of `ip`.
    pub fn go_on(&self, network: &Network) -> io::Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::CONT)?;
        Self::set_taps(network, &self.node, self.place, "up")
    }

    /// Waits until the machine reports that it is running, and answers a ping.
    ///
    /// # Errors
    /// Output of the machine if it ends at once or does not answer in time.
    pub fn wait_until_running(&mut self, network: &Network) -> io::Result<()> {
        self.wait_for_words(" is running")?;
        let arguments = ["-c", "1", "-w", "5", &GATEWAY_INSIDE.to_string()];
        let answers = network.node("sub2").run(6, "ping", &arguments).map(drop);
        answers.map_err(|error| io::Error::other(format!("{error}: {}", self.log())))
    }

    /// Waits until the output has these words.
    ///
    /// # Errors
    /// Output of the machine if it ends or does not print them in time.
    pub fn wait_for_words(&mut self, words: &str) -> io::Result<()> {
        let printed = wait_for("the machine's output", PATIENCE, || {
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("{EMULATOR} ended with {status}")));
            }
            Ok(self.log().contains(words).then_some(()))
        });
        printed.map_err(|error| io::Error::other(format!("{error}: {}", self.log())))
    }

    /// Writes a line to the machine's serial port.
    ///
    /// # Errors
    /// The machine has ended.
    pub fn write_line(&mut self, line: &str) -> io::Result<()> {
        self.keys.write_all(format!("{line}\n").as_bytes())
    }

    /// Waits until the machine has ended by itself.
    ///
    /// # Errors
    /// If the machine does not end.
    pub fn wait_for_end(&mut self) -> io::Result<ExitStatus> {
        wait_for("the machine's end", PATIENCE, || self.child.try_wait())
    }

    /// Returns true if the machine has not ended.
    ///
    /// # Errors
    /// The system's.
    pub fn is_on(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Output so far.
    pub fn log(&self) -> String {
        // The output of some boot loaders is not text.
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Counters of the image's menu. The call presses the key for them, and once more after the
    /// image has shown them.
    ///
    /// # Errors
    /// If the image does not show them or does not accept keys.
    pub fn counters(&mut self) -> io::Result<String> {
        let before = self.log().len();
        self.keys.write_all(b"n")?;
        let counters = wait_for("the image's counters", PATIENCE, || {
            Ok(counters(self.log().get(before..).unwrap_or_default()))
        })?;
        self.keys.write_all(b"n")?;
        Ok(counters)
    }

    /// Ends the emulator of an active machine by SIGTERM, and waits for its end.
    ///
    /// # Errors
    /// If the emulator does not end.
    pub fn stop(mut self) -> io::Result<ExitStatus> {
        terminate(&self.child)?;
        self.wait_for_end()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Both calls fail only if the emulator has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// First complete counters in the output; an empty line ends them.
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
