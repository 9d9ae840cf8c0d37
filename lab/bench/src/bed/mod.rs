//! Test bed of live measurements. The subject runs in a network namespace of its own, between two
//! cables (veth). A tester has the other ends of the cables in another namespace. Each has a
//! processor of its own.
//!
//! ```text
//! tester  a ------ i  subject  o ------ b  tester
//! ```
//!
//! For DPDK the cables are shared memory (memif). `README.md` beside this file explains the count
//! of processor time, with which the kernel's own forwarding and programs compare fairly.

mod account;
mod bpf;
mod fast;
mod flood;
mod forwarder;
mod kernel;
mod natgate;
mod p4;
mod ports;
mod stream;
mod thread;

pub use account::Account;
pub use fast::{Path, Price};
pub use natgate::Translation;
pub use stream::{Stream, Streamed};

pub use crate::program::With;

use fast::FastPath;
use forwarder::Forwarder;
use kernel::Kernel;
use natgate::Natgate;
use natgate_io::{Device, LinkInfo};
use natgate_tester::{Place, Tester, TesterError};
use natgate_testnet::Network;
use ports::Devices;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use thread::{Crew, Threads};

/// The gateway's own addresses, inside and outside.
const GATEWAY: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 1)];
/// The tester's own addresses, inside and outside.
const TESTER: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(192, 0, 2, 254)];
/// Number of remote hosts: with it one external address has room for a million sessions.
const REMOTES: u32 = 64;
/// Prefix of the namespaces' names.
pub const TAG: &str = "ngbench";

/// Packet I/O of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BackEnd {
    /// Packet sockets.
    AfPacket,
    /// AF_XDP sockets.
    AfXdp,
    /// Ports of DPDK, over memif.
    Dpdk,
}

impl BackEnd {
    /// Its name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::AfPacket => "af-packet",
            Self::AfXdp => "af-xdp",
            Self::Dpdk => "dpdk",
        }
    }
}

/// The measured translator or forwarder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The kernel forwards and translates nothing.
    Kernel,
    /// The kernel forwards, and nftables' masquerade translates.
    Masquerade,
    /// An XDP program in the driver that takes frames from one interface to the other.
    Driver(Path),
    /// A loop of this program that takes frames from one device and sends them by the other.
    Forwarder(BackEnd),
    /// The NAT in P4, with all mappings made beforehand.
    Program(BackEnd, With),
    /// `natgate run`.
    Natgate(BackEnd, Translation),
}

impl Subject {
    /// Its name in reports.
    pub fn name(self) -> String {
        match self {
            Self::Kernel => "Linux forwarding".into(),
            Self::Masquerade => "Linux masquerade".into(),
            Self::Driver(Path::Forward) => "XDP forwarder".into(),
            Self::Driver(Path::Translate) => "XDP fast path (prototype)".into(),
            Self::Forwarder(back_end) => format!("{} forwarder", back_end.name()),
            Self::Program(back_end, with) => format!("{} {}", with.name(), back_end.name()),
            Self::Natgate(back_end, Translation::Bypass) => {
                format!("natgate {} without NAT", back_end.name())
            }
            Self::Natgate(back_end, _) => format!("natgate {}", back_end.name()),
        }
    }

    fn back_end(self) -> Option<BackEnd> {
        match self {
            Self::Kernel | Self::Masquerade | Self::Driver(_) => None,
            Self::Forwarder(back_end) | Self::Program(back_end, _) | Self::Natgate(back_end, _) => {
                Some(back_end)
            }
        }
    }
}

/// Parameters of a test bed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The measured subject.
    pub subject: Subject,
    /// Path of the program whose `run` is natgate.
    pub program: PathBuf,
    /// Highest number of flows.
    pub flows: u32,
    /// Number of workers of natgate, of a program or of a forwarder.
    pub workers: u16,
}

/// Failure of a test bed.
#[derive(Debug, thiserror::Error)]
pub enum BedError {
    /// An error of the system, a program or a gateway, in its own words.
    #[error(transparent)]
    System(#[from] io::Error),
    /// An error of a device.
    #[error(transparent)]
    Device(#[from] natgate_io::Error),
    /// An error of a port of DPDK.
    #[cfg(feature = "dpdk")]
    #[error(transparent)]
    Port(#[from] natgate_dpdk::Error),
    /// An error of the tester.
    #[error(transparent)]
    Tester(#[from] TesterError),
    /// An error of the count of processor time.
    #[error(transparent)]
    Processor(#[from] natgate_tester::ProcessorError),
    /// This program lacks a feature or a file.
    #[error("{0}")]
    Lacking(&'static str),
}

/// A running subject, with the tester beside it.
pub struct Bed<'a> {
    /// The tester, which has exchanged ARP with the subject.
    pub tester: Tester<'a>,
    /// The subject's processor time.
    pub account: Account,
    /// The tester's interfaces, `[inside, outside]`; `None` if it has ports of DPDK.
    pub interfaces: Option<[LinkInfo; 2]>,
    /// Bytes of the subject's memory; `None` if the subject is no program.
    pub resident: &'a dyn Fn() -> Option<u64>,
}

/// The running subject; it ends when dropped.
enum Running {
    Kernel,
    Driver { _path: FastPath },
    Threads(Threads),
    Natgate(Natgate),
}

/// Processors of `[tester, subject]`. Both are the same if the machine has one.
pub(crate) fn processors() -> [usize; 2] {
    [0, usize::from(account::processors() > 1)]
}

/// Builds the test bed, starts the subject, and runs `work` beside it. Afterwards everything is
/// removed.
///
/// # Errors
/// [`BedError`] if the subject does not start, or if the work fails.
pub fn with<T: Send>(
    plan: &Plan,
    work: impl FnOnce(&mut Bed<'_>) -> Result<T, BedError> + Send,
) -> Result<T, BedError> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut network = Network::empty(&format!("{TAG}{}-{number}", std::process::id()))?;
    network.add("nat")?;
    network.add("tester")?;
    let links = LinkNames::new(number);
    let over_memif = plan.subject.back_end() == Some(BackEnd::Dpdk);
    if !over_memif {
        links.connect(&network)?;
    }
    let is_masquerade = plan.subject == Subject::Masquerade;
    let _raised = is_masquerade.then(|| kernel::make_room(plan.flows)).transpose()?;
    let _session = account::prefer_session();
    let tester = network.node("tester");
    tester.enter(|| {
        let [own, other] = processors();
        account::pin(None, own)?;
        // A subject on shared memory has to start before the tester's end.
        let running = start(plan, &network, &links)?;
        let mut account = running.account();
        if !over_memif {
            links.thread_again(&network)?;
            account.tasks.extend(account::interface_threads(&links.subject, other)?);
            // The starter of the subject keeps the usual priority, so this comes last.
            account::prefer(rustix::thread::gettid().as_raw_nonzero().get() as u32)?;
            account::interface_threads(&links.tester, own)?;
        }
        if plan.workers < 2 {
            account.pin(other)?;
        }
        let mut devices = if over_memif {
            ports::open_client(&network)?
        } else {
            ports::open_packet(&links.tester)?
        };
        let [inside, outside] = &mut devices;
        let interfaces = [inside.link().clone(), outside.link().clone()];
        let devices: [&mut dyn Device; 2] = [inside.as_mut(), outside.as_mut()];
        let mut tester = Tester::new(place(plan.flows), devices)?;
        tester.meet()?;
        let resident = || running.resident();
        let interfaces = (!over_memif).then_some(interfaces);
        work(&mut Bed { tester, account, interfaces, resident: &resident })
    })?
}

/// Addresses and flows of the tester.
fn place(flows: u32) -> Place {
    Place {
        gateway: GATEWAY,
        own: TESTER,
        subscribers: Ipv4Addr::new(100, 64, 0, 0),
        remote: Ipv4Addr::new(198, 51, 100, 1),
        remotes: REMOTES,
        flows,
    }
}

fn start(plan: &Plan, network: &Network, links: &LinkNames) -> Result<Running, BedError> {
    let ends = &links.subject;
    Ok(match plan.subject {
        Subject::Kernel => {
            Kernel::prepare(network, &links.subject)?;
            Running::Kernel
        }
        Subject::Masquerade => {
            Kernel::prepare(network, &links.subject)?;
            Kernel::masquerade(network, &links.subject, plan.flows)?;
            Running::Kernel
        }
        Subject::Driver(path) => {
            let place = place(plan.flows);
            Running::Driver { _path: FastPath::start(path, &place, network, links)? }
        }
        Subject::Forwarder(back_end) => {
            let work = |devices, crew: &Crew<'_>| Forwarder::work(devices, crew);
            Running::Threads(Threads::start(back_end, network, ends, plan.workers, work)?)
        }
        Subject::Program(back_end, with) => {
            let place = place(plan.flows);
            let work = move |devices, crew: &Crew<'_>| p4::work(devices, with, &place, crew);
            Running::Threads(Threads::start(back_end, network, ends, plan.workers, work)?)
        }
        Subject::Natgate(back_end, translation) => {
            Running::Natgate(Natgate::start(plan, back_end, translation, network, &links.subject)?)
        }
    })
}

impl Running {
    fn account(&self) -> Account {
        match self {
            Self::Kernel | Self::Driver { .. } => Account::default(),
            Self::Threads(threads) => {
                Account { tasks: threads.tasks().to_vec(), ..Account::default() }
            }
            Self::Natgate(natgate) => {
                Account { processes: vec![natgate.process()], ..Account::default() }
            }
        }
    }

    fn resident(&self) -> Option<u64> {
        match self {
            Self::Natgate(natgate) => natgate.resident(),
            _ => None,
        }
    }
}

/// Names of the cables' ends. No other namespace of the machine uses them, because the kernel's
/// threads have these names.
struct LinkNames {
    /// `[inside, outside]`, like the ends of the tester.
    subject: [String; 2],
    tester: [String; 2],
}

impl LinkNames {
    fn new(number: u32) -> Self {
        let own = (std::process::id() % 100_000) * 100 + number % 100;
        let named = |end: &str| format!("{end}{own}");
        Self { subject: [named("i"), named("o")], tester: [named("a"), named("b")] }
    }

    fn connect(&self, network: &Network) -> io::Result<()> {
        for (near, far) in self.subject.iter().zip(&self.tester) {
            network.cable(["nat", near, "tester", far])?;
        }
        self.thread_again(network)
    }

    /// Gives the reception on the cables to threads of the kernel, instead of interrupts of the
    /// sender. Programs that switch merging off switch the threads off, too, so this switches
    /// merging on again. No frames are merged, as no host here accepts merged UDP.
    fn thread_again(&self, network: &Network) -> io::Result<()> {
        for (node, ends) in [("nat", &self.subject), ("tester", &self.tester)] {
            for end in ends {
                let command = format!("echo 1 >/sys/class/net/{end}/threaded");
                network.node(node).run(5, "ethtool", &["-K", end, "gro", "on"])?;
                network.node(node).run(5, "sh", &["-c", &command])?;
            }
        }
        Ok(())
    }
}
