//! The explanation of a packet's fate: its steps and its result. [`Translator::explain`] fills it.
//!
//! [`Translator::explain`]: crate::Translator::explain

use crate::convert::{Cut, ErrorMessage, Refusal};
use crate::softwire::{PortSets, Tunnel};
use crate::{EamEntry, HostKind, HostName, HostRealms, Pref64, Prefix6};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use natgate_engine::{Direction, DropReason, Explanation, Prefix, Side, Verdict};

/// The end of a packet of either family, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FamilyEnd {
    /// The address; `None`: it would be drawn.
    pub address: Option<IpAddr>,
    /// The port, or a query's identifier.
    pub port: Option<u16>,
}

/// The table of softwires that has a customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoftwireTable {
    /// The bindings of lw4o6.
    Bindings,
    /// A rule of MAP.
    Rule {
        /// Its place in the configuration, from 0.
        place: usize,
        /// Its IPv6 prefix.
        ipv6: Prefix6,
        /// Its IPv4 prefix.
        ipv4: Prefix,
    },
}

/// The entry of a table that gives an address another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// An explicit address mapping of SIIT.
    Map(EamEntry),
    /// A prefix that embeds IPv4 addresses.
    Prefix(Pref64),
    /// A pair of NPTv6: the internal and the external prefix.
    Pair(Prefix6, Prefix6),
}

/// Reason why a packet has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// The first fragment of its datagram has the port that tells the customer.
    Port,
    /// It is a fragment of a packet in a tunnel, which is put together.
    Outer,
}

/// Something that is asked on a packet's way, and the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyStep {
    /// The headers can be read.
    Read {
        /// The protocol, behind extension headers.
        protocol: u8,
        /// End of the sender.
        source: FamilyEnd,
        /// End of the receiver.
        destination: FamilyEnd,
        /// Hop limit or time to live.
        hops: u8,
        /// Length, bytes.
        len: usize,
        /// True if the packet is in a tunnel.
        tunneled: bool,
    },
    /// The packet is in a tunnel with these ends.
    Tunnel(Tunnel),
    /// The packet is addressed to the gateway itself.
    Local,
    /// The source is in a prefix of NAT64: the packet could turn round for ever.
    Loops(Ipv6Addr),
    /// A prefix of NAT64 has the destination.
    Nat64 {
        /// The prefix.
        prefix: Pref64,
        /// The address that the destination embeds.
        remote: Option<Ipv4Addr>,
    },
    /// True if the source is a subscriber of NAT64, or the tunnel's end one of DS-Lite.
    Subscriber(HostKind, bool),
    /// True if hosts behind tunnels of DS-Lite may have this inner address.
    Inner(Ipv4Addr, bool),
    /// The sender, a host with mappings.
    Sender {
        /// The host.
        host: Ipv6Addr,
        /// Address behind a tunnel.
        inner: Option<Ipv4Addr>,
        /// Prefix that is the subscriber.
        subscriber: Prefix6,
        /// True if the host has no mapping yet.
        is_new: bool,
    },
    /// The engine decides: its steps stand here.
    Engine,
    /// The host that gets the packet.
    Receiver(HostName),
    /// An address gets another one.
    Translated {
        /// The address.
        from: IpAddr,
        /// The new address.
        to: IpAddr,
        /// The table's entry.
        by: Entry,
    },
    /// No entry of the tables has an address.
    Untranslated(IpAddr),
    /// No table translates the packet: it is routed. False: `ipv6.forwarding` forbids it.
    Routed(bool),
    /// Packets from outside to a prefix of NAT64 or SIIT go nowhere.
    Inward(Ipv6Addr),
    /// The packet turns round to the side that it came from.
    Turns,
    /// The filter of RFC 6092: true if the packet may pass.
    Filter(bool),
    /// A fragment without ports.
    Later,
    /// The packet would wait.
    Waits(Waits),
    /// The customer that has an IPv4 address and port.
    Customer {
        /// The table that has it.
        table: SoftwireTable,
        /// The address.
        ipv4: Ipv4Addr,
        /// The port, if the packet has one.
        port: Option<u16>,
        /// The division of the address's ports.
        sets: PortSets,
        /// The port set.
        psid: u16,
        /// The customer's tunnel; without `br`: the customer's address.
        tunnel: Tunnel,
        /// True if the customer is the sender.
        is_sender: bool,
    },
    /// No customer has an IPv4 address and port.
    Unbound {
        /// The address.
        ipv4: Ipv4Addr,
        /// The port, if the packet has one.
        port: Option<u16>,
    },
    /// The tunnel's ends that the customer's packets have. False: the packet has others.
    Origin(Tunnel, bool),
    /// The port set that an IPv6 address of MAP says; the set of the packet's port.
    PortSet {
        /// The address's port set.
        own: u16,
        /// The port.
        port: Option<u16>,
        /// The port's set; `None`: a port without customer.
        set: Option<u16>,
    },
    /// A rule with a longer prefix has the IPv4 address of a customer of MAP-T: answers would reach
    /// the customer of that rule.
    Longer {
        /// The rule.
        table: SoftwireTable,
        /// The address.
        ipv4: Ipv4Addr,
        /// The customer of the address and the packet's port, if there is one.
        customer: Option<Ipv6Addr>,
    },
    /// A report from inside a tunnel. False: it is about no packet of the gateway.
    Report(bool),
    /// The size of the packet as it leaves, and of the way.
    Size {
        /// Its length, bytes.
        len: usize,
        /// Longest packet, bytes, if it is cut.
        cut: Option<usize>,
    },
    /// The sender would get an error of the gateway's own, unless the rate forbids it.
    Answer {
        /// True if the error is ICMPv6.
        ipv6: bool,
        /// Its type.
        kind: u8,
        /// Its code.
        code: u8,
    },
}

/// The packet after its translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyBecomes {
    /// Its source.
    pub source: FamilyEnd,
    /// Its destination.
    pub destination: FamilyEnd,
    /// The tunnel that it goes into.
    pub tunnel: Option<Tunnel>,
    /// The number of the realm that it goes to, if it is IPv4 and leaves by the inside.
    pub realm: u16,
    /// Its length, bytes.
    pub len: usize,
    /// Length of the longest fragment, bytes, if it is cut.
    pub cut: Option<usize>,
    /// True if it must not be fragmented on its way.
    pub dont_fragment: bool,
}

/// The fate of a packet of either family, step by step.
#[derive(Clone, Debug)]
pub struct FamilyExplanation {
    /// Its fate.
    pub verdict: Verdict,
    /// Direction under which the packet would be counted.
    pub direction: Direction,
    /// The packet after its translation, if it leaves.
    pub becomes: Option<FamilyBecomes>,
    /// True if nothing that is drawn, or kept elsewhere, can change the verdict.
    pub is_certain: bool,
    /// Explanation of the engine; its steps stand in place of [`FamilyStep::Engine`].
    pub engine: Explanation,
    /// Realms and numbers in the engine's explanation, with the hosts that they stand for.
    pub hosts: Vec<(u16, Ipv4Addr, IpAddr)>,
    /// Realms of hosts with numbers.
    pub realms: HostRealms,
    steps: Vec<FamilyStep>,
}

impl Default for FamilyExplanation {
    fn default() -> Self {
        Self::new()
    }
}

impl FamilyExplanation {
    /// Most steps; a packet's way has fewer.
    pub const MOST: usize = 32;

    /// An explanation without steps.
    pub fn new() -> Self {
        Self {
            verdict: Verdict::Held,
            direction: Direction::Outbound,
            becomes: None,
            is_certain: true,
            engine: Explanation::new(),
            hosts: Vec::new(),
            realms: HostRealms::NONE,
            steps: Vec::with_capacity(Self::MOST),
        }
    }

    /// Steps of the decision, in order.
    pub fn steps(&self) -> &[FamilyStep] {
        &self.steps
    }

    pub(crate) fn begin(&mut self, realms: HostRealms) {
        self.steps.clear();
        self.hosts.clear();
        (self.verdict, self.becomes, self.is_certain) = (Verdict::Held, None, true);
        self.realms = realms;
    }

    pub(crate) fn note(&mut self, step: FamilyStep) {
        if self.steps.len() < Self::MOST {
            self.steps.push(step);
        }
    }

    /// The packet would be dropped.
    pub(crate) fn drop(&mut self, direction: Direction, reason: DropReason) {
        (self.verdict, self.direction) = (Verdict::Drop(reason), direction);
    }

    /// The packet would be dropped, and `answers`: its sender gets the error of the refusal.
    pub(crate) fn refuse(&mut self, from: Side, refusal: Refusal, (ipv6, answers): (bool, bool)) {
        self.drop(Direction::forwarded(from, from.other()), refusal.reason);
        if let Some(message) = refusal.error.filter(|_| answers) {
            self.answer(ipv6, message);
        }
    }

    pub(crate) fn answer(&mut self, ipv6: bool, ErrorMessage { kind, code, .. }: ErrorMessage) {
        self.note(FamilyStep::Answer { ipv6, kind, code });
    }

    /// A host of NAT64 reaches itself. The prefix that it has just used is the one of its remote
    /// address.
    pub(crate) fn answer_by_own_prefix(&mut self) {
        let used = self.steps.iter().find_map(|step| match step {
            FamilyStep::Nat64 { prefix, remote } => Some((*prefix, *remote)),
            _ => None,
        });
        let Some((prefix, Some(remote))) = used else { return };
        if let Some(becomes) = &mut self.becomes {
            let known = becomes.source.address.is_some();
            becomes.source.address = known.then(|| prefix.embed(remote).into());
        }
    }

    /// The packet would leave.
    pub(crate) fn send(
        &mut self,
        (verdict, direction): (Verdict, Direction),
        mut becomes: Option<FamilyBecomes>,
        cut: Option<Cut>,
    ) {
        (self.verdict, self.direction) = (verdict, direction);
        if let Some(becomes) = &mut becomes {
            becomes.cut = cut.map(|cut| cut.limit);
            self.note(FamilyStep::Size { len: becomes.len, cut: becomes.cut });
        }
        self.becomes = becomes;
    }
}
