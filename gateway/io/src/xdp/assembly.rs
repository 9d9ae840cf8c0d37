//! Instructions of the XDP program: they send frames to the sockets or leave them to the kernel.
//!
//! ```text
//! if there is a share: frame too short to tell     -> socket
//!                      IPv4 to a group of stations  -> kernel
//!                      IPv4 to an address           -> kernel, if it is one of the share
//!                      ARP about an address         -> kernel, if it is one of the share
//!                      IPv6, VLAN tag               -> as the share says
//!                      anything else (LLDP)         -> kernel
//! to the socket: return bpf_redirect_map(sockets, context->rx_queue_index, XDP_PASS)
//! ```

use crate::bpf::assembler::{
    ADD, AND, Code, JUMP, JUMP_EQUAL_32, JUMP_GREATER, JUMP_UNEQUAL, Jump, LOAD_BYTE, LOAD_HALF,
    LOAD_WORD, MOVE, REDIRECT_MAP, XDP_PASS,
};
use natgate_wire::link::ethertype;
use std::net::Ipv4Addr;

/// Most addresses of a [`KernelShare`].
pub const MOST_SHARED: usize = 32;

/// Frames of an interface that are left to the kernel's own network stack. All other frames come to
/// the sockets.
///
/// Frames of other types than IPv4, ARP, IPv6 and VLAN tags always go to the kernel, and so does
/// IPv4 to a multicast or broadcast hardware address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelShare {
    /// The kernel has IPv4 packets to these addresses, and ARP about them; at most [`MOST_SHARED`].
    pub addresses: Vec<Ipv4Addr>,
    /// True if the kernel also has all frames with a VLAN tag.
    pub tagged: bool,
    /// True if the kernel also has all frames of IPv6.
    pub ipv6: bool,
}

impl Default for KernelShare {
    fn default() -> Self {
        Self { addresses: Vec::new(), tagged: false, ipv6: true }
    }
}

/// Builds the program for this map of sockets. `otherwise` is the action for frames of a queue
/// without a socket.
pub(super) fn assemble(sockets: i32, share: Option<&KernelShare>, otherwise: i32) -> Code {
    const QUEUE_IN_CONTEXT: i16 = 16;
    let mut code = Code::default();
    // Register r1 has the context; sorting leaves it there.
    let sorted = share.map(|share| sort(&mut code, share)).unwrap_or_default();
    sorted.to_socket.into_iter().for_each(|jump| code.land(jump));
    code.load(LOAD_WORD, 2, 1, QUEUE_IN_CONTEXT);
    code.load_map(1, sockets);
    code.op(MOVE, 3, otherwise);
    code.call(REDIRECT_MAP);
    code.exit();
    if share.is_some() {
        sorted.to_kernel.into_iter().for_each(|jump| code.land(jump));
        code.op(MOVE, 0, XDP_PASS);
        code.exit();
    }
    code
}

/// Lengths of a frame's headers and offsets of fields in them, bytes.
const ETHERNET: i32 = 14;
const TYPE: i16 = 12;
const IPV4: i32 = ETHERNET + 20;
const IPV4_DESTINATION: i16 = 14 + 16;
const ARP: i32 = ETHERNET + 28;
const ARP_TARGET: i16 = 14 + 24;

/// Jumps with targets behind the sorting.
#[derive(Default)]
struct Sorted {
    to_socket: Vec<Jump>,
    to_kernel: Vec<Jump>,
}

/// Jumps to the kernel with the kernel's frames; the rest falls through to the socket. The frame
/// begins at r2 and ends at r3; r4 and r5 are scratch.
fn sort(code: &mut Code, share: &KernelShare) -> Sorted {
    let mut sorted = Sorted::default();
    code.load(LOAD_WORD, 2, 1, 0);
    code.load(LOAD_WORD, 3, 1, 4);
    sorted.to_socket.push(shorter(code, ETHERNET));
    code.load(LOAD_HALF, 5, 2, TYPE);
    // The value as a load finds it: in network byte order.
    let kind = |kind: u16| i32::from(u16::from_ne_bytes(kind.to_be_bytes()));
    let ipv4 = code.jump(JUMP_EQUAL_32, [5, 0], kind(ethertype::IPV4));
    let arp = code.jump(JUMP_EQUAL_32, [5, 0], kind(ethertype::ARP));
    let tags = [ethertype::VLAN, SERVICE_VLAN].into_iter().filter(|_| !share.tagged);
    let ipv6 = [ethertype::IPV6].into_iter().filter(|_| !share.ipv6);
    for of_socket in tags.chain(ipv6) {
        sorted.to_socket.push(code.jump(JUMP_EQUAL_32, [5, 0], kind(of_socket)));
    }
    sorted.to_kernel.push(code.jump(JUMP, [0, 0], 0));
    code.land(ipv4);
    code.load(LOAD_BYTE, 5, 2, 0);
    code.op(AND, 5, 1);
    sorted.to_kernel.push(code.jump(JUMP_UNEQUAL, [5, 0], 0));
    sorted.to_socket.push(shorter(code, IPV4));
    code.load(LOAD_WORD, 5, 2, IPV4_DESTINATION);
    let compare = code.jump(JUMP, [0, 0], 0);
    code.land(arp);
    sorted.to_socket.push(shorter(code, ARP));
    code.load(LOAD_WORD, 5, 2, ARP_TARGET);
    code.land(compare);
    for address in share.addresses.iter().take(MOST_SHARED) {
        let address = i32::from_ne_bytes(address.octets());
        sorted.to_kernel.push(code.jump(JUMP_EQUAL_32, [5, 0], address));
    }
    sorted
}

/// EtherType of a provider's tag (IEEE 802.1ad).
const SERVICE_VLAN: u16 = 0x88a8;

/// Writes the jump of frames with fewer bytes.
fn shorter(code: &mut Code, len: i32) -> Jump {
    code.copy(4, 2);
    code.op(ADD, 4, len);
    code.jump(JUMP_GREATER, [4, 3], 0)
}
