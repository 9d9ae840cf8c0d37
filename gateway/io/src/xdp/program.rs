//! The XDP program at its interface: loading, attaching, and its map of sockets.
//!
//! [`assembly`] has its few instructions. Every frame that is not the [kernel's](KernelShare) goes
//! to the socket of the queue that it came by. The program belongs to the interface, and all
//! devices that serve queues of the interface share it. The last device detaches it; if the process
//! ends otherwise, the kernel does. Frames of a queue without a socket go to the kernel.

use super::assembly::{KernelShare, assemble};
use crate::bpf::assembler::XDP_PASS;
use crate::bpf::{self, Map, Mode};
use crate::{Error, LinkInfo, interface};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// Most queues of an interface.
pub(super) const MOST_QUEUES: u32 = 256;

/// Number of tries while the kernel has not released resources of a former process.
pub(super) const TRIES: u32 = 40;
pub(super) const BETWEEN_TRIES: Duration = Duration::from_millis(25);

/// An interface's XDP program, shared by the devices that serve its queues.
#[derive(Clone, Debug)]
pub struct Hook {
    name: Arc<str>,
    /// Frames that are left to the kernel; `None`: no frame is.
    share: Option<Arc<KernelShare>>,
    attached: Arc<Mutex<Weak<Attachment>>>,
}

/// A program that is attached to an interface.
#[derive(Debug)]
pub(super) struct Attachment {
    index: u32,
    pub(super) mode: Mode,
    /// Reason why the mode is not native.
    pub(super) obstacle: Option<String>,
    /// Receive queues of the interface.
    pub(super) queues: u32,
    sockets: Map<u32, u32>,
    /// Keeps the program attached.
    link: OwnedFd,
}

impl Drop for Attachment {
    /// Detaches the program. A child process that this one is just starting has the descriptor too,
    /// until it becomes another program: closing it here would leave the XDP program attached for
    /// that long.
    fn drop(&mut self) {
        // If the interface or the permission is gone, closing the descriptor must suffice.
        let _gone = bpf::detach(&self.link);
    }
}

impl Hook {
    /// Creates a hook for the interface of this name. The first device that opens the interface
    /// attaches the program. All frames come to the devices.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), share: None, attached: Arc::default() }
    }

    /// Creates a hook that leaves these frames to the kernel; otherwise like [`Self::new`].
    pub fn sharing(name: &str, share: KernelShare) -> Self {
        Self { share: Some(Arc::new(share)), ..Self::new(name) }
    }

    /// Name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Attaches the program unless it is attached already.
    pub(super) fn attach(&self, link: &LinkInfo) -> Result<Arc<Attachment>, Error> {
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = attached.upgrade().filter(|there| there.index == link.index) {
            return Ok(there);
        }
        let new = Arc::new(Attachment::new(link, self.share.as_deref())?);
        *attached = Arc::downgrade(&new);
        Ok(new)
    }
}

impl Attachment {
    fn new(link: &LinkInfo, share: Option<&KernelShare>) -> Result<Self, Error> {
        let name = &link.name;
        let queues = interface::receive_queues(name)?.min(MOST_QUEUES);
        let failed = |what| move |error| Error::of_xdp(what, name, error);
        let sockets = Map::sockets(queues).map_err(failed("making a map of sockets (XSKMAP)"))?;
        let program = assemble(sockets.descriptor(), share, XDP_PASS);
        let program = bpf::load(&program).map_err(failed("loading an XDP program"))?;
        let native = match attach(&program, link.index, Mode::Native) {
            Ok(native) => {
                let (index, mode, obstacle) = (link.index, Mode::Native, None);
                return Ok(Self { index, mode, obstacle, queues, sockets, link: native });
            }
            Err(error) => error,
        };
        match (attach(&program, link.index, Mode::Generic), native.raw_os_error()) {
            (_, Some(libc::EBUSY | libc::EEXIST)) => Err(Error::OccupiedXdp(name.clone())),
            (Ok(generic), _) => {
                let obstacle = Some(explain(&native, link));
                let (index, mode) = (link.index, Mode::Generic);
                Ok(Self { index, mode, obstacle, queues, sockets, link: generic })
            }
            (Err(error), _) => Err(failed("attaching an XDP program")(error)),
        }
    }

    /// Directs a queue's frames to a socket.
    pub(super) fn direct(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.sockets.update(&queue, &(socket.as_raw_fd() as u32))
    }
}

/// Explains why the program cannot run in the driver, and what would help.
fn explain(error: &io::Error, link: &LinkInfo) -> String {
    let name = &link.name;
    match error.raw_os_error() {
        Some(libc::ENOSPC) => format!(
            "the other end of {name} has more transmit queues than {name} has receive queues; \
             `ethtool -L {name} rx N`, or tx 1 at the other end, would change that"
        ),
        Some(libc::ERANGE) => format!(
            "its MTU of {}, or that of the other end of a veth, is too large for it; `ip link set \
             dev {name} mtu 1500`, there too, would change that",
            link.mtu
        ),
        Some(libc::EOPNOTSUPP) => "its driver does not know it".to_owned(),
        _ => format!("its driver refuses it: {error}"),
    }
}

/// Attaches a program; waits a little for a former program to be detached.
fn attach(program: &OwnedFd, interface: u32, mode: Mode) -> io::Result<OwnedFd> {
    for _ in 1..TRIES {
        match bpf::attach(program, interface, mode) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                thread::sleep(BETWEEN_TRIES);
            }
            done => return done,
        }
    }
    bpf::attach(program, interface, mode)
}

#[cfg(test)]
mod tests {
    use super::super::assembly::MOST_SHARED;
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    #[cfg(target_endian = "little")]
    fn the_program_is_what_an_assembler_makes_of_it() {
        let program = assemble(0x0102, None, XDP_PASS);
        let code: Vec<[u8; 8]> =
            program.instructions().iter().map(|one| one.to_le_bytes()).collect();
        assert_eq!(
            code,
            [
                // r2 = *(u32 *)(r1 + 16)
                [0x61, 0x12, 16, 0, 0, 0, 0, 0],
                // r1 = map[fd 258] ll
                [0x18, 0x11, 0, 0, 2, 1, 0, 0],
                [0; 8],
                // r3 = 2
                [0xb7, 3, 0, 0, 2, 0, 0, 0],
                // call 51
                [0x85, 0, 0, 0, 51, 0, 0, 0],
                // exit
                [0x95, 0, 0, 0, 0, 0, 0, 0],
            ]
        );
    }

    /// A frame to a station or a group, of this type, with an address at this offset.
    fn frame(group: bool, kind: u16, address: [u8; 4], at: usize, len: usize) -> Vec<u8> {
        let mut frame = vec![0x5a; len];
        frame[0] = if group { 0xff } else { 2 };
        frame[12..14].copy_from_slice(&kind.to_be_bytes());
        if let Some(place) = frame.get_mut(at..at + 4) {
            place.copy_from_slice(&address);
        }
        frame
    }

    #[test]
    fn the_kernel_gets_its_share_and_no_more() {
        let sockets = Map::sockets(1).expect("maps of sockets need root: run the tests as root");
        // There is no socket, so frames for a socket get this result instead.
        const SOCKET: u32 = 1;
        const KERNEL: u32 = XDP_PASS as u32;
        let run =
            |program: &OwnedFd, frame: &[u8]| bpf::test_run(program, frame, 1).unwrap().answer;
        let loaded = |share: &KernelShare| {
            let program = assemble(sockets.descriptor(), Some(share), SOCKET as i32);
            bpf::load(&program).expect("the verifier takes it")
        };
        let (ours, theirs, last) = ([10, 0, 0, 1], [10, 0, 0, 2], [250, 255, 255, 254]);
        let addresses = vec![theirs.into(), last.into()];
        let share = KernelShare { addresses, ..KernelShare::default() };
        let untagged = loaded(&share);
        let both_families = loaded(&KernelShare { ipv6: false, ..share.clone() });
        let tagged = loaded(&KernelShare { tagged: true, ..share });
        let none = loaded(&KernelShare::default());
        let (ipv4, arp) = (0x0800, 0x0806);
        for (frame, expected, without) in [
            (frame(false, ipv4, ours, 30, 60), SOCKET, SOCKET),
            (frame(false, ipv4, theirs, 30, 60), KERNEL, SOCKET),
            (frame(false, ipv4, last, 30, 60), KERNEL, SOCKET),
            (frame(false, ipv4, theirs, 30, 34), KERNEL, SOCKET),
            // The frame is too short for a destination.
            (frame(false, ipv4, theirs, 30, 33), SOCKET, SOCKET),
            // The address is the source, not the destination.
            (frame(false, ipv4, theirs, 26, 60), SOCKET, SOCKET),
            (frame(true, ipv4, ours, 30, 60), KERNEL, KERNEL),
            (frame(true, arp, ours, 38, 60), SOCKET, SOCKET),
            (frame(true, arp, theirs, 38, 60), KERNEL, SOCKET),
            (frame(false, arp, theirs, 38, 42), KERNEL, SOCKET),
            (frame(false, arp, theirs, 38, 41), SOCKET, SOCKET),
            (frame(false, arp, theirs, 28, 60), SOCKET, SOCKET),
            // IPv6, LLDP, and a length instead of a type.
            (frame(false, 0x86dd, ours, 30, 60), KERNEL, KERNEL),
            (frame(true, 0x88cc, ours, 30, 60), KERNEL, KERNEL),
            (frame(true, 0x0026, ours, 30, 60), KERNEL, KERNEL),
            (frame(false, 0x86dd, ours, 30, 14), KERNEL, KERNEL),
        ] {
            assert_eq!(run(&untagged, &frame), expected, "{frame:02x?}");
            assert_eq!(run(&tagged, &frame), expected, "{frame:02x?}");
            assert_eq!(run(&none, &frame), without, "{frame:02x?}");
            let with_ipv6 = if frame[12..14] == [0x86, 0xdd] { SOCKET } else { expected };
            assert_eq!(run(&both_families, &frame), with_ipv6, "{frame:02x?}");
        }
        for kind in [0x8100, 0x88a8] {
            let frame = frame(false, kind, theirs, 34, 64);
            assert_eq!((run(&untagged, &frame), run(&tagged, &frame)), (SOCKET, KERNEL));
        }
        let most = vec![Ipv4Addr::from(theirs); 2 * MOST_SHARED];
        loaded(&KernelShare { addresses: most, tagged: false, ipv6: false });
    }

    #[test]
    fn obstacles_come_with_a_remedy() {
        let link = LinkInfo {
            name: "eth7".to_owned(),
            index: 1,
            mac: natgate_wire::arp::Mac::default(),
            mtu: 3700,
            up: true,
        };
        let explained = |code| explain(&io::Error::from_raw_os_error(code), &link);
        assert!(explained(libc::ENOSPC).contains("`ethtool -L eth7 rx N`"));
        assert!(explained(libc::ERANGE).contains("MTU of 3700"));
        assert_eq!(explained(libc::EOPNOTSUPP), "its driver does not know it");
        assert!(explained(libc::EINVAL).contains("Invalid argument"));
    }
}
