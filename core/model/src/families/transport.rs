//! RFC 7915: the content of a packet behind its IP headers. A right checksum is computed again over
//! everything. A wrong one, or that of a fragment, stays wrong by the same amount.

use super::words::{checksum_of, length_sum, moved, put, total, word};
use natgate_engine::DropReason;
use natgate_ipv6::convert::UdpChecksumZero;
use natgate_wire::protocol::{DCCP, ICMP, ICMPV6, TCP, UDP, UDP_LITE};

/// The family that a packet is translated to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    Ipv4,
    Ipv6,
}

/// The bytes after the IP headers of a packet, or of a packet that an ICMP error quotes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transport<'p> {
    pub(crate) to: To,
    pub(crate) quoted: bool,
    pub(crate) protocol: u8,
    /// The available bytes.
    pub(crate) bytes: &'p [u8],
    /// Number of bytes in the complete packet.
    pub(crate) full: usize,
    /// Offset in the datagram, bytes.
    pub(crate) offset: usize,
    /// True if further fragments follow.
    pub(crate) more: bool,
}

/// Sums of the addresses in both headers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sums {
    pub(crate) ipv4: u64,
    pub(crate) ipv6: u64,
}

/// Offset of a checksum that covers the addresses.
pub(crate) fn checksum_at(protocol: u8) -> Option<usize> {
    match protocol {
        TCP => Some(16),
        UDP | DCCP | UDP_LITE => Some(6),
        _ => None,
    }
}

impl Transport<'_> {
    fn is_icmp(&self) -> bool {
        self.protocol == if self.to == To::Ipv6 { ICMP } else { ICMPV6 }
    }

    fn is_whole(&self) -> bool {
        self.offset == 0 && !self.more
    }

    /// The type of an echo message in the other family.
    fn echo(&self) -> Option<u8> {
        let kinds = match self.to {
            To::Ipv6 => [(8, 128), (0, 129)],
            To::Ipv4 => [(128, 8), (129, 0)],
        };
        kinds.into_iter().find(|(kind, _)| *kind == self.bytes[0]).map(|(_, new)| new)
    }

    /// Checks that RFC 7915 translates this. In a quoted packet anything else is
    /// `icmp_bad_embedded`.
    pub(crate) fn check(&self, zero: UdpChecksumZero) -> Result<(), DropReason> {
        match self.faults(zero) {
            Err(_) if self.quoted => Err(DropReason::IcmpBadEmbedded),
            result => result,
        }
    }

    fn faults(&self, zero: UdpChecksumZero) -> Result<(), DropReason> {
        // IGMP, and numbers of IPv6 extension headers.
        if self.to == To::Ipv6 && [0, 2, 43, 44, 60].contains(&self.protocol) {
            return Err(DropReason::Untranslatable);
        }
        if self.is_icmp() {
            return match self.is_whole() {
                false if !self.quoted => Err(DropReason::FragmentedIcmp), // 19.8
                _ if self.offset > 0 => Ok(()),
                _ if self.bytes.len() < 8 => Err(DropReason::BadLength),
                _ => self.echo().map(|_| ()).ok_or(DropReason::IcmpUnsupported),
            };
        }
        let at = checksum_at(self.protocol).filter(|_| self.offset == 0 && !self.quoted);
        match at {
            None => Ok(()),
            Some(at) if self.bytes.len() >= at + 2 => self.zero_checksum(zero),
            Some(_) if self.more => Err(DropReason::FragmentTiny),
            Some(_) => Err(DropReason::BadLength),
        }
    }

    fn has_no_checksum(&self) -> bool {
        self.protocol == UDP && self.bytes.len() >= 8 && word(self.bytes, 6) == 0
    }

    /// UDP without checksum towards IPv6 (RFC 7915 section 4.5).
    fn zero_checksum(&self, zero: UdpChecksumZero) -> Result<(), DropReason> {
        if !self.has_no_checksum() || self.to == To::Ipv4 {
            return Ok(());
        }
        match zero {
            UdpChecksumZero::Forward => Ok(()),
            UdpChecksumZero::Compute if !self.more => {
                let len = usize::from(word(self.bytes, 4));
                let fits = len >= 8 && len <= self.bytes.len();
                if fits { Ok(()) } else { Err(DropReason::BadLength) }
            }
            _ => Err(DropReason::UdpChecksumZero),
        }
    }

    /// The bytes in the other family.
    pub(crate) fn translated(&self, sums: Sums, zero: UdpChecksumZero) -> Vec<u8> {
        let mut new = self.bytes.to_vec();
        if self.offset > 0 {
            return new;
        }
        if self.is_icmp() {
            self.translate_echo(&mut new, sums);
            return new;
        }
        let at = checksum_at(self.protocol).filter(|at| new.len() >= at + 2);
        let Some(at) = at else { return new };
        if self.has_no_checksum() {
            if self.to == To::Ipv6 && zero == UdpChecksumZero::Compute && !self.quoted {
                let len = usize::from(word(&new, 4));
                let covered = total(&new[..len]) + sums.ipv6 + u64::from(UDP) + len as u64;
                put(&mut new, at, some_checksum(checksum_of(covered)));
            }
            return new;
        }
        let (old, now) = match self.to {
            To::Ipv6 => (sums.ipv4, sums.ipv6),
            To::Ipv4 => (sums.ipv6, sums.ipv4),
        };
        let rest = u64::from(self.protocol) + length_sum(self.full);
        let is_right = self.protocol == TCP && self.is_right(old + rest);
        let value = match is_right {
            true => self.computed(&new, at, now + rest),
            false => moved(word(&new, at), old, now),
        };
        let is_udp = matches!(self.protocol, UDP | UDP_LITE);
        put(&mut new, at, if is_udp { some_checksum(value) } else { value });
        new
    }

    /// True if the packet is complete and its checksum right, with a pseudo header of this sum.
    fn is_right(&self, pseudo: u64) -> bool {
        let is_complete = self.is_whole() && self.bytes.len() == self.full;
        is_complete && (total(self.bytes) + pseudo).is_multiple_of(0xffff)
    }

    fn computed(&self, new: &[u8], at: usize, pseudo: u64) -> u16 {
        let without = total(new) - u64::from(word(new, at));
        checksum_of(without + pseudo)
    }

    fn translate_echo(&self, new: &mut [u8], sums: Sums) {
        new[0] = self.echo().expect("checked before");
        let pseudo = sums.ipv6 + u64::from(ICMPV6) + length_sum(self.full);
        let (old_pseudo, pseudo) = match self.to {
            To::Ipv6 => (0, pseudo),
            To::Ipv4 => (pseudo, 0),
        };
        let value = if self.is_right(old_pseudo) {
            self.computed(new, 2, pseudo)
        } else {
            let (old, now) = (u64::from(word(self.bytes, 0)), u64::from(word(new, 0)));
            moved(word(new, 2), old_pseudo + old, pseudo + now)
        };
        put(new, 2, 0);
        // The right checksum of a message of zeros alone is 0xffff (RFC 1624 section 3).
        let is_zeros = pseudo == 0 && new.iter().all(|&byte| byte == 0);
        put(new, 2, if is_zeros { some_checksum(value) } else { value });
    }
}

/// A checksum that is not 0, which would mean that there is none.
fn some_checksum(value: u16) -> u16 {
    if value == 0 { 0xffff } else { value }
}
