//! Operations of a case: packets, requests, changes, and waits.

use crate::changes::{Other, PoolEdit};
use crate::common::{Spec, Sum};
use natgate_engine::Rule;
use natgate_wire::Ipv4;

/// Destination of a fresh packet.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Remote(usize, usize),
    /// The external endpoint of one of the mappings.
    Mapping(usize),
    Pool(u8, u16),
    Own(usize),
    Fixed(usize, usize),
    Raw([u8; 4]),
}

/// The contents of a packet.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    pub(crate) flags: u8,
    pub(crate) sequence: Sequence,
    pub(crate) acknowledgment: i32,
    pub(crate) window: u16,
    pub(crate) scale: Option<u8>,
    pub(crate) mss: Option<(u16, usize)>,
    pub(crate) dccp: (u8, bool),
    pub(crate) service: u8,
    pub(crate) icmp_kind: Option<u8>,
    pub(crate) len: u8,
    pub(crate) sum: Sum,
    pub(crate) ttl: u8,
    pub(crate) oddity: Oddity,
}

/// A sequence number, relative to the expectation of the other end of an earlier packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sequence {
    Off(i32),
    /// Distance from the end of the earlier packet's window, scaled by its own shift.
    OffWindow(i32, u8),
    Any(u32),
}

/// Wrong or rare fields of a packet's header.
#[derive(Clone, Debug)]
pub(crate) enum Oddity {
    None,
    DontFragment,
    Long(bool),
    Trailing(u8),
    Options(Vec<u8>),
    /// A changed byte of the header (or after it), with the header checksum right (true) or not.
    Byte(usize, u8, bool),
    Cut(usize),
}

#[derive(Clone, Debug)]
pub(crate) enum Send {
    Fresh { outside: bool, near: (usize, usize), target: Target, protocol: usize, body: Body },
    Again { pick: usize, body: Body },
    Back { pick: usize, exact: bool, body: Body },
    Error { pick: usize, kind: (u8, u8), from: Option<usize>, len: usize, about: About },
}

/// Rare fields of the packet that an ICMP error embeds.
#[derive(Clone, Debug)]
pub(crate) struct About {
    /// The length field is shorter than the packet (RFC 4884).
    pub(crate) short: bool,
    /// IP options, a multiple of four bytes.
    pub(crate) options: Vec<u8>,
    /// The embedded packet is a fragment other than the first.
    pub(crate) later: bool,
    /// A wrong byte of the error.
    pub(crate) spoil: Option<usize>,
}

/// Many packets that differ in an endpoint: they get answers if their time to live runs out,
/// otherwise they make sessions.
#[derive(Clone, Debug)]
pub(crate) struct Burst {
    pub(crate) outside: bool,
    pub(crate) first: usize,
    pub(crate) ttl: u8,
    /// Step between two source addresses; 0: one address.
    pub(crate) step: u32,
    /// Step between two remote ports.
    pub(crate) port_step: u16,
    pub(crate) count: usize,
    pub(crate) target: Target,
    pub(crate) protocol: usize,
}

/// Segments in the names of both ends of a connection, from a forger who knows the connection or
/// has a part in it.
#[derive(Clone, Debug)]
pub(crate) struct Forgery {
    pub(crate) pick: usize,
    /// Distance of the lies from the truth.
    pub(crate) lie: i32,
    pub(crate) segments: Vec<Forged>,
}

#[derive(Clone, Debug)]
pub(crate) struct Forged {
    pub(crate) back: bool,
    pub(crate) flags: u8,
    pub(crate) jump: Jump,
}

/// Distance of a sequence number from the right one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Jump {
    Off(i32),
    /// Distance from the lie.
    Lie(i32),
    /// Distance of the largest window with this shift, ahead or behind.
    Window(bool, u8, i32),
}

#[derive(Clone, Debug)]
pub(crate) enum Wait {
    Nanos(u64),
    /// Until the next thing is due, plus some nanoseconds.
    Next(i64),
    /// One of the timeouts, plus some nanoseconds.
    Timeout(usize, i64),
    Hours(u64),
    Back(u64),
}

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Packets(Vec<Send>),
    /// Both ends open a connection of TCP or DCCP.
    Connect {
        near: (usize, usize),
        target: Target,
        protocol: usize,
        body: Body,
    },
    Burst(Burst),
    Forgery(Forgery),
    Restart([u8; 32]),
    /// The pools change.
    Pools(Vec<PoolEdit>),
    /// Other rules, with pools as far as they exist.
    Rules(Vec<Rule>, usize),
    /// Another configuration, as far as it can replace the one in force.
    Reconfigure(Box<Other>),
    /// A server of the first service goes down or comes up.
    Server(usize, bool),
    /// A host requests a mapping.
    Ask(Ask),
    Wait(Wait),
    /// Time passes, but `advance` is not called before the next packets.
    Unnoticed(u64),
}

/// A request of a host.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) what: What,
    pub(crate) near: (usize, usize),
    pub(crate) far: (usize, usize),
    pub(crate) protocol: usize,
    pub(crate) realm: usize,
    /// Distance of the suggested address from the first of the pools, if any, and the suggested
    /// port.
    pub(crate) wanted: (Option<u8>, u16),
    pub(crate) strict: bool,
    /// Milliseconds.
    pub(crate) lifetime: u64,
    pub(crate) nonce: u8,
    /// Number of bits of the far address, and true for its port too.
    pub(crate) filter: Option<(u8, bool)>,
    pub(crate) replaces: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Map,
    Unmap,
    Peer,
}

impl About {
    /// The packet that is embedded.
    pub(crate) fn of(&self, packet: &[u8]) -> Vec<u8> {
        let mut about = packet.to_vec();
        let mut header_len = Ipv4::new_checked(packet).expect("came out").header_len();
        if header_len + self.options.len() <= 60 {
            about.splice(header_len..header_len, self.options.iter().copied());
            header_len += self.options.len();
            about[0] = 0x40 | (header_len / 4) as u8;
        }
        let len = if self.short { about.len().min(header_len + 8) } else { about.len() };
        about[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        let mut ip = Ipv4::new_checked(&mut about[..]).expect("came out");
        if self.later {
            ip.set_fragment_field(1);
        }
        ip.fill_checksum();
        about
    }
}

impl Body {
    /// Fills a packet in. `output` is the translation of an earlier packet with the same payload.
    pub(crate) fn apply(&self, mut spec: Spec, output: Option<&[u8]>) -> Vec<u8> {
        let end_of_window =
            |off: i32, shift: u8| (u32::from(spec.window) << shift).wrapping_add_signed(off);
        spec.sequence = match self.sequence {
            Sequence::Off(off) => spec.sequence.wrapping_add_signed(off),
            Sequence::OffWindow(off, shift) => {
                spec.sequence.wrapping_add(end_of_window(off, shift))
            }
            Sequence::Any(number) => number,
        };
        spec.acknowledgment = spec.acknowledgment.wrapping_add_signed(self.acknowledgment);
        (spec.flags, spec.window, spec.scale) = (self.flags, self.window, self.scale);
        (spec.mss, spec.dccp, spec.service) = (self.mss, self.dccp, self.service);
        if let Some(kind) = self.icmp_kind {
            spec.icmp = (kind, 0);
        }
        spec.payload = (0..self.len).collect();
        (spec.ttl, spec.sum) = (self.ttl, self.sum);
        match &self.oddity {
            Oddity::DontFragment => spec.dont_fragment = true,
            Oddity::Long(dont_fragment) => {
                spec.payload.resize(1600, 7);
                spec.dont_fragment = *dont_fragment;
            }
            Oddity::Options(options) => {
                spec.options.clone_from(options);
                spec.options.resize(options.len().div_ceil(4) * 4, 0);
            }
            _ => {}
        }
        if let (Sum::Aimed(_), Some(output)) = (self.sum, output) {
            // The checksum after translation is aimed at, so the endpoints after translation are
            // used.
            let after = Spec::like(output);
            let aimed = Spec {
                source: after.source,
                destination: after.destination,
                identifier: after.identifier,
                ..spec.clone()
            };
            spec.payload = Spec::like(&aimed.bytes()).payload;
            spec.sum = Sum::Right;
        }
        self.oddity.spoil(spec.bytes())
    }
}

impl Oddity {
    pub(crate) fn spoil(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        match *self {
            Self::Trailing(len) => bytes.resize(bytes.len() + usize::from(len), 0xee),
            Self::Byte(at, value, fix) => {
                let at = at % bytes.len();
                bytes[at] ^= value;
                if at == 6 || at == 7 {
                    bytes[at] &= 0x40 * u8::from(at == 6); // fragments are not modelled
                }
                if fix && let Ok(mut ip) = Ipv4::new_checked(&mut bytes[..]) {
                    ip.fill_checksum();
                }
            }
            Self::Cut(len) => bytes.truncate(len),
            _ => {}
        }
        bytes
    }
}
