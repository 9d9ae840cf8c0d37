//! The parts of a message of DNS (RFC 1035 section 4) that are of interest here: names and their
//! pointers, addresses, and signatures.

use crate::reason::Reason;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::ops::Range;

/// Length of the header, bytes.
pub(super) const HEADER: usize = 12;

/// Most labels of a name, and most pointers on the way to its end.
const LABELS: usize = 128;

/// Labels of the name of an inverse question: four numbers, `in-addr` and `arpa`.
const INVERSE: usize = 6;

/// Types of records.
mod kind {
    pub(super) const A: u16 = 1;
    pub(super) const PTR: u16 = 12;
    pub(super) const SIG: u16 = 24;
    pub(super) const OPT: u16 = 41;
    pub(super) const RRSIG: u16 = 46;
    pub(super) const SVCB: u16 = 64;
    pub(super) const HTTPS: u16 = 65;
    pub(super) const TSIG: u16 = 250;
}

/// The class of the Internet.
const IN: u16 = 1;

/// The key `ipv4hint` of a service's parameters (RFC 9460 section 7.3).
const IPV4_HINT: u16 = 4;

/// A name: its end in the message, and where its labels are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    end: usize,
    /// The first labels; one more than the name of an inverse question has.
    first: [usize; INVERSE + 1],
    count: usize,
}

impl Name {
    /// Places of the first labels.
    pub(super) fn labels(&self) -> &[usize] {
        &self.first[..self.count]
    }
}

/// A message with the places of its parts.
#[derive(Debug)]
pub(super) struct Message<'m> {
    pub(super) bytes: &'m [u8],
    pub(super) id: u16,
    pub(super) is_answer: bool,
    /// The bit AD (RFC 4035 section 3.2.3).
    pub(super) is_validated: bool,
    /// True if the message, or a record, is signed.
    pub(super) is_signed: bool,
    /// The bit DO (RFC 3225).
    pub(super) wants_signatures: bool,
    /// Names of the question and of the owners of records, in order.
    pub(super) names: Vec<Name>,
    /// Places of all pointers, and where they point to.
    pub(super) pointers: Vec<(usize, usize)>,
    /// Places of the data of records.
    pub(super) data: Vec<Range<usize>>,
    addresses: Vec<usize>,
    /// Type of the only question of class IN.
    question: Option<u16>,
}

impl<'m> Message<'m> {
    /// Reads a message. `None`: it is no standard query (RFC 1035 section 4.1.1).
    pub(super) fn read(bytes: &'m [u8]) -> Result<Option<Self>, Reason> {
        let flags = number(bytes, 2)?;
        const OPCODE: u16 = 0x7800;
        if flags & OPCODE != 0 {
            return Ok(None);
        }
        let mut message = Self {
            bytes,
            id: number(bytes, 0)?,
            is_answer: flags & 0x8000 != 0,
            is_validated: flags & 0x20 != 0,
            is_signed: false,
            wants_signatures: false,
            names: Vec::new(),
            pointers: Vec::new(),
            data: Vec::new(),
            addresses: Vec::new(),
            question: None,
        };
        let (questions, mut at) = (number(bytes, 4)?, HEADER);
        for _ in 0..questions {
            at = message.read_question(at)?;
        }
        message.question = message.question.filter(|_| questions == 1);
        for section in [6, 8, 10] {
            for _ in 0..number(bytes, section)? {
                at = message.read_record(at)?;
            }
        }
        Ok(Some(message))
    }

    fn read_question(&mut self, at: usize) -> Result<usize, Reason> {
        let name = self.read_name(at)?;
        let (end, class) = (name.end, number(self.bytes, name.end + 2)?);
        self.question = Some(number(self.bytes, end)?).filter(|_| class == IN);
        self.names.push(name);
        Ok(end + 4)
    }

    fn read_record(&mut self, at: usize) -> Result<usize, Reason> {
        let owner = self.read_name(at)?;
        let at = owner.end;
        self.names.push(owner);
        let (type_of, class) = (number(self.bytes, at)?, number(self.bytes, at + 2)?);
        let data = at + 10..at + 10 + usize::from(number(self.bytes, at + 8)?);
        self.bytes.get(data.clone()).ok_or(Reason::Truncated)?;
        match type_of {
            kind::A if class == IN && data.len() == 4 => self.addresses.push(data.start),
            kind::SVCB | kind::HTTPS if class == IN => self.read_service(data.clone())?,
            kind::OPT => self.wants_signatures |= number(self.bytes, at + 6)? & 0x8000 != 0,
            kind::SIG | kind::RRSIG | kind::TSIG => self.is_signed = true,
            _ => self.read_data_names(type_of, data.clone())?,
        }
        self.data.push(data.clone());
        Ok(data.end)
    }

    /// Finds the pointers in the data of a record. Only types of RFC 1035, and those that RFC 3597
    /// section 4 lists, may have some.
    fn read_data_names(&mut self, type_of: u16, data: Range<usize>) -> Result<(), Reason> {
        let (before, names) = match type_of {
            // NS, MD, MF, CNAME, MB, MG, MR, PTR.
            2..=5 | 7..=9 | kind::PTR => (0, 1),
            // SOA, MINFO, RP.
            6 | 14 | 17 => (0, 2),
            // MX, AFSDB, RT.
            15 | 18 | 21 => (2, 1),
            // PX, SRV.
            26 => (2, 2),
            33 => (6, 1),
            _ => return Ok(()),
        };
        let mut at = data.start + before;
        for _ in 0..names {
            at = self.read_name(at)?.end;
        }
        if at > data.end { Err(Reason::NotProtocol) } else { Ok(()) }
    }

    /// Finds the addresses among the parameters of a service (RFC 9460 section 2.2).
    fn read_service(&mut self, data: Range<usize>) -> Result<(), Reason> {
        let mut at = self.read_name(data.start + 2)?.end;
        while at < data.end {
            let (key, len) = (number(self.bytes, at)?, usize::from(number(self.bytes, at + 2)?));
            at += 4;
            if at + len > data.end {
                return Err(Reason::NotProtocol);
            }
            if key == IPV4_HINT && len.is_multiple_of(4) {
                self.addresses.extend((at..at + len).step_by(4));
            }
            at += len;
        }
        Ok(())
    }

    /// Reads a name, with the labels that its pointers lead to.
    fn read_name(&mut self, start: usize) -> Result<Name, Reason> {
        let mut name = Name { end: 0, first: [0; INVERSE + 1], count: 0 };
        let (mut at, mut first) = (start, start);
        for _ in 0..LABELS {
            let len = *self.bytes.get(at).ok_or(Reason::Truncated)?;
            match len {
                0 => {
                    if name.end == 0 {
                        name.end = at + 1;
                    }
                    return Ok(name);
                }
                1..=63 => {
                    if let Some(place) = name.first.get_mut(name.count) {
                        *place = at;
                        name.count += 1;
                    }
                    at += 1 + usize::from(len);
                }
                0xc0.. => {
                    let target = usize::from(number(self.bytes, at)? & 0x3fff);
                    let is_known =
                        || self.pointers.binary_search_by_key(&at, |(place, _)| *place).is_ok();
                    // A pointer leads to an earlier name (RFC 1035 section 4.1.4), and not to data
                    // that cannot have pointers.
                    if target < HEADER || target >= first || (name.end > 0 && !is_known()) {
                        return Err(Reason::NotProtocol);
                    }
                    if name.end == 0 {
                        name.end = at + 2;
                        self.pointers.push((at, target));
                    }
                    (at, first) = (target, target);
                }
                _ => return Err(Reason::NotProtocol),
            }
        }
        Err(Reason::NotProtocol)
    }

    /// Places of all addresses, in order.
    pub(super) fn addresses(&self) -> impl Iterator<Item = usize> {
        self.addresses.iter().copied()
    }

    /// The address of the only question, if it is an inverse one.
    pub(super) fn inverse_question(&self) -> Option<Ipv4Addr> {
        self.question.filter(|type_of| *type_of == kind::PTR)?;
        self.inverse(self.names.first()?)
    }

    /// The address of a name that an inverse question may have.
    pub(super) fn inverse(&self, name: &Name) -> Option<Ipv4Addr> {
        let [d, c, b, a, domain, top] = *name.labels() else { return None };
        let is =
            |at: usize, text: &[u8]| self.label(at).is_some_and(|l| l.eq_ignore_ascii_case(text));
        if !is(domain, b"in-addr") || !is(top, b"arpa") {
            return None;
        }
        let octet = |at| decimal(self.label(at)?);
        Some(Ipv4Addr::new(octet(a)?, octet(b)?, octet(c)?, octet(d)?))
    }

    /// The text of a label.
    pub(super) fn label(&self, at: usize) -> Option<&'m [u8]> {
        let len = usize::from(*self.bytes.get(at)?);
        self.bytes.get(at + 1..at + 1 + len)
    }
}

/// The number of two bytes.
fn number(bytes: &[u8], at: usize) -> Result<u16, Reason> {
    match bytes.get(at..at + 2) {
        Some(&[high, low]) => Ok(u16::from_be_bytes([high, low])),
        _ => Err(Reason::Truncated),
    }
}

/// An octet in decimal, without leading zeros.
fn decimal(text: &[u8]) -> Option<u8> {
    let is_plain = text.len() == 1 || text.first() != Some(&b'0');
    let digits = text.iter().all(u8::is_ascii_digit);
    let text = core::str::from_utf8(text).ok().filter(|_| is_plain && digits)?;
    text.parse().ok()
}
