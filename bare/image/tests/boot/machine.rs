//! A machine in an emulator, booted with the image, and the far ends of its two cables.

use natgate_control::config;
use natgate_wire::arp::{self, Arp, Mac, Operation, Repr};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use natgate_wire::{Ipv6, icmpv6, nd, protocol};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Long enough for any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Hardware address of all hosts at the far ends.
const EVERYBODY: Mac = Mac([2, 0, 0, 0, 9, 9]);

/// The gateway's own hardware addresses.
const CARDS: [Mac; 2] = [Mac([0x52, 0x54, 0, 0, 0, 1]), Mac([0x52, 0x54, 0, 0, 0, 2])];

/// A machine; it ends when dropped.
pub(crate) struct Machine {
    child: Child,
    keys: ChildStdin,
    lines: Receiver<String>,
    /// Printed lines so far.
    pub(crate) printed: Vec<String>,
    folder: PathBuf,
    cables: [UnixDatagram; 2],
    monitor: Option<UnixStream>,
    /// The gateway's addresses, inside and outside.
    addresses: [Ipv4Addr; 2],
}

/// Creates an empty folder. The path of a socket has at most 107 bytes, and the path of the target
/// folder may be too long for that.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("natgate-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder to work in");
    folder
}

impl Machine {
    /// Boots with cards of a kind. `name` is the name of the test, and `options` are options of the
    /// image.
    pub(crate) fn boot(name: &str, card: &str, configuration: &str, options: &str) -> Self {
        Self::boot_with(name, card, configuration, options, &[])
    }

    /// Boots like [`Self::boot`], with more arguments for the emulator.
    pub(crate) fn boot_with(
        name: &str,
        card: &str,
        configuration: &str,
        options: &str,
        more: &[&str],
    ) -> Self {
        let folder = folder(&format!("{name}-{card}"));
        std::fs::write(folder.join("configuration"), configuration).expect("it can be written");
        let mut arguments = vec!["-monitor", "unix:monitor,server=on,wait=off"];
        arguments.extend(["-kernel", env!("CARGO_BIN_EXE_natgate-bare"), "-append", options]);
        arguments.extend(more);
        if !configuration.is_empty() {
            arguments.extend(["-initrd", "configuration"]);
        }
        let mut machine = Self::boot_by(&arguments, folder, card);
        if let Ok(settings) = config::parse(configuration, "configuration") {
            let sides = [&settings.inside, &settings.outside];
            for (address, side) in machine.addresses.iter_mut().zip(sides) {
                *address = side.address.map_or(*address, |(own, _)| own);
            }
        }
        machine
    }

    /// Boots with these arguments of the emulator. The machine owns the folder and removes it.
    pub(crate) fn boot_by(arguments: &[&str], folder: PathBuf, card: &str) -> Self {
        let cables = ["inside", "outside"].map(|side| {
            let cable = UnixDatagram::bind(folder.join(format!("{side}-far")));
            let cable = cable.expect("the far end can be made");
            cable.set_read_timeout(Some(Duration::from_millis(100))).expect("it has a timeout");
            cable.set_write_timeout(Some(PATIENCE)).expect("it has a timeout");
            cable
        });
        let mut command = Command::new("qemu-system-x86_64");
        command.current_dir(&folder).args(["-accel", "tcg", "-cpu", "max", "-m", "512"]);
        command.args(["-display", "none", "-serial", "stdio", "-no-reboot"]).args(arguments);
        for (side, mac) in ["inside", "outside"].into_iter().zip(CARDS) {
            command.arg("-netdev").arg(format!(
                "dgram,id={side},local.type=unix,local.path={side},\
                 remote.type=unix,remote.path={side}-far"
            ));
            command.arg("-device").arg(format!("{card},netdev={side},mac={mac},romfile="));
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn();
        let mut child = child.expect("the emulator starts; `make test` installs qemu-system-x86");
        let output = child.stdout.take().expect("it is a pipe");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                let _ = sender.send(line);
            }
        });
        let keys = child.stdin.take().expect("it is a pipe");
        let addresses = [[10, 0, 0, 1], [192, 0, 2, 254]].map(Ipv4Addr::from);
        Self { child, keys, lines, printed: Vec::new(), folder, cables, monitor: None, addresses }
    }

    /// Boots, and waits until the gateway is running.
    pub(crate) fn start(name: &str, card: &str, configuration: &str, options: &str) -> Self {
        let mut machine = Self::boot(name, card, configuration, &format!("start {options}"));
        machine.wait_until_running();
        machine
    }

    /// Waits until the gateway is running. Packets can be sent afterwards.
    pub(crate) fn wait_until_running(&mut self) {
        self.wait_for("natgate is running");
        self.connect();
    }

    /// Connects the cables. Packets can be sent afterwards.
    pub(crate) fn connect(&mut self) {
        for (side, cable) in self.cables.iter().enumerate() {
            let near = self.folder.join(["inside", "outside"][side]);
            cable.connect(near).expect("the emulator is at the other end");
        }
    }

    /// The machine's folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Presses keys.
    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).and_then(|()| self.keys.flush()).expect("it listens");
    }

    /// Waits for a line that contains a text; returns it.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let begin = Instant::now();
        loop {
            let left = PATIENCE.checked_sub(begin.elapsed()).unwrap_or_default();
            match self.lines.recv_timeout(left) {
                Ok(line) => self.printed.push(line),
                Err(error) => {
                    let why = match error {
                        RecvTimeoutError::Timeout => "it goes on",
                        RecvTimeoutError::Disconnected => "it has ended",
                    };
                    panic!("no line with {text:?}, {why}:\n{}", self.printed.join("\n"));
                }
            }
            if let Some(line) = self.printed.last().filter(|line| line.contains(text)) {
                return line.clone();
            }
        }
    }

    /// Waits until the machine restarts, which ends the emulator.
    pub(crate) fn wait_for_restart(&mut self) {
        self.wait_for("the machine starts again");
        let begin = Instant::now();
        while self.child.try_wait().expect("it can be asked").is_none() {
            assert!(begin.elapsed() < PATIENCE, "it does not start again");
            std::thread::sleep(Duration::from_millis(20));
        }
        let status = self.child.wait().expect("it can be asked");
        assert!(status.success(), "{status}: {}", self.printed.join("\n"));
    }

    /// Connects or disconnects a card's cable: 0 inside, 1 outside.
    pub(crate) fn plug(&mut self, side: usize, is_in: bool) {
        let (side, state) = (["inside", "outside"][side], if is_in { "on" } else { "off" });
        self.command(&format!("set_link {side} {state}"));
    }

    /// Sends a command to the emulator.
    pub(crate) fn command(&mut self, command: &str) {
        let path = self.folder.join("monitor");
        let monitor = self.monitor.get_or_insert_with(|| {
            UnixStream::connect(path).expect("the emulator's monitor listens")
        });
        writeln!(monitor, "{command}").expect("the monitor takes it");
    }

    /// Sends a frame to one of the cards: 0 inside, 1 outside.
    pub(crate) fn send_frame(&self, side: usize, frame: &[u8]) {
        while let Err(error) = self.cables[side].send(frame) {
            assert!(
                error.kind() == ErrorKind::Interrupted,
                "the machine does not take it: {error}"
            );
        }
    }

    /// Sends a packet.
    pub(crate) fn send(&self, side: usize, packet: &[u8]) {
        let mut frame = vec![0; ETHERNET_LEN];
        let header = frame.first_chunk_mut().expect("there is room");
        let kind = if packet[0] >> 4 == 6 { ethertype::IPV6 } else { ethertype::IPV4 };
        arp::write_ethernet(header, CARDS[side], EVERYBODY, kind);
        frame.extend(packet);
        self.send_frame(side, &frame);
    }

    /// Asks for the hardware address of an IPv6 address as a host does that does not know it: the
    /// frame goes to the address's group.
    pub(crate) fn solicit(&self, side: usize, from: Ipv6Addr, target: Ipv6Addr) {
        let group = nd::solicited_node(target);
        let mut frame = vec![0; ETHERNET_LEN];
        let header = frame.first_chunk_mut().expect("there is room");
        arp::write_ethernet(header, nd::group_mac(group), EVERYBODY, ethertype::IPV6);
        let solicitation = nd::Solicitation { target, mac: EVERYBODY };
        frame.extend(solicitation.packet(Some(from), group).bytes());
        self.send_frame(side, &frame);
    }

    /// Waits until the gateway has processed all sent packets, and answers its ARP requests.
    /// Returns the packets that came out, by side. A card processes received frames in order, and
    /// sent frames in order. So after the answers to requests on both sides all packets have come
    /// in, and after the answers to further requests all have come out.
    pub(crate) fn settle(&self) -> [Vec<Vec<u8>>; 2] {
        let mut packets = [Vec::new(), Vec::new()];
        let mut quiet = 0;
        while quiet < 2 {
            let mut came = 0;
            for (side, packets) in packets.iter_mut().enumerate() {
                self.ask(side);
                came += self.take_until_answer(side, packets);
            }
            quiet = if came == 0 { quiet + 1 } else { 0 };
        }
        packets
    }

    /// Sends an ARP probe for the gateway's own address, like a host without an address (RFC 5227).
    fn ask(&self, side: usize) {
        let question = Repr {
            operation: Operation::Request,
            sender_mac: EVERYBODY,
            sender: Ipv4Addr::UNSPECIFIED,
            target_mac: Mac::default(),
            target: self.addresses[side],
        };
        self.send_frame(side, &question.frame(Mac::BROADCAST));
    }

    /// Takes the frames before the answer to the last request; returns their number.
    fn take_until_answer(&self, side: usize, packets: &mut Vec<Vec<u8>>) -> usize {
        let begin = Instant::now();
        let mut came = 0;
        let mut frame = [0; 2048];
        loop {
            assert!(begin.elapsed() < PATIENCE, "no answer: {}", self.printed.join("\n"));
            let len = match self.cables[side].recv(&mut frame) {
                Ok(len) => len,
                Err(error) if is_passing(&error) => continue,
                Err(error) => panic!("{error}"),
            };
            let frame = &frame[..len];
            let (_, _, kind) = arp::read_ethernet(frame).expect("a whole frame");
            match Arp::new_checked(&frame[ETHERNET_LEN..]).map(|message| message.repr()) {
                Some(message) if kind == ethertype::ARP => {
                    if message.operation == Operation::Reply {
                        return came;
                    }
                    came += usize::from(self.answer(side, &message));
                }
                _ if kind == ethertype::IPV6 && is_of_link(&frame[ETHERNET_LEN..]) => {
                    came += usize::from(self.answer6(side, &frame[ETHERNET_LEN..]));
                }
                _ => {
                    packets.push(frame[ETHERNET_LEN..].to_vec());
                    came += 1;
                }
            }
        }
    }

    /// Answers a neighbor solicitation for all hosts: every address exists but those that the
    /// gateway asks about because it wants to have them.
    fn answer6(&self, side: usize, packet: &[u8]) -> bool {
        let Ok(nd::Message::NeighborSolicitation { target, mac: Some(mac) }) = nd::read(packet)
        else {
            return false;
        };
        let to = Ipv6::new_checked(packet).expect("it was read").source();
        let answer = nd::Advertisement {
            target,
            mac: Some(EVERYBODY),
            router: false,
            solicited: true,
            replaces: true,
        };
        let mut frame = vec![0; ETHERNET_LEN];
        let header = frame.first_chunk_mut().expect("there is room");
        arp::write_ethernet(header, mac, EVERYBODY, ethertype::IPV6);
        frame.extend(answer.packet(target, Ipv6Addr::from_bits(to)));
        self.send_frame(side, &frame);
        true
    }

    /// Answers ARP for all hosts: every address except the requester's exists.
    fn answer(&self, side: usize, asked: &Repr) -> bool {
        if asked.sender.is_unspecified() || asked.sender == asked.target {
            return false;
        }
        let answer = Repr {
            operation: Operation::Reply,
            sender_mac: EVERYBODY,
            sender: asked.target,
            target_mac: asked.sender_mac,
            target: asked.sender,
        };
        self.send_frame(side, &answer.frame(asked.sender_mac));
        true
    }
}

/// Returns true if a packet of IPv6 is for the link alone: a question for a neighbor, or a message
/// to groups. Answers to [`Machine::solicit`] go to a host, and are packets.
fn is_of_link(packet: &[u8]) -> bool {
    let Ok(header) = Ipv6::new_checked(packet) else { return false };
    let is_to_group = header.destination() >> 120 == 0xff;
    let kind = packet.get(40);
    let asks = header.next_header() == protocol::ICMPV6
        && kind == Some(&icmpv6::kind::NEIGHBOR_SOLICITATION);
    is_to_group || asks
}

/// Returns true if a read of a cable has to be repeated: there is no data yet, or a signal came.
fn is_passing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}
