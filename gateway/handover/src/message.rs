//! What the two processes say: a tag, a length, so many bytes, and a checksum over all of these.

use crate::HandoverError;
use natgate_engine::{AddressRange, HANDOVER_VERSION, Side, Timestamp};
use natgate_gateway::{Division, KnownNeighbor, Legacy, Link};
use natgate_wire::arp::Mac;
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;

/// Most bytes of a message.
const LONGEST: usize = 16 << 20;

/// Most bytes of a sentence.
const LONGEST_SENTENCE: usize = 1024;

const HEAD: usize = 5;

/// What is said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The new one: which form of records it reads, how many workers it has, the number of its
    /// process, and whether it can open its devices only when the other has closed its own.
    Hello { version: u16, workers: u16, process: u32, closes: bool },
    /// The old one: what its clock says, and the machine's steady one; whether it is to close its
    /// devices before the other opens any.
    Welcome { time: u64, steady: u64, closes: bool },
    /// The old one: why not.
    Refused(String),
    /// The new one: one more pass.
    More,
    /// The new one: take no packets any more, and the last pass.
    Stop,
    /// The old one: it takes none, and leaves this.
    Halted(Legacy),
    /// The old one: what one of its workers has written.
    Records { worker: u16, records: Vec<u8> },
    /// The old one: a pass is over, that wrote so many mappings.
    Over(u64),
    /// The new one: close the devices.
    Close,
    /// The old one: they are.
    Closed,
    /// The new one: it has everything.
    Taken,
    /// The old one: it never takes a packet again.
    Yours,
}

const RECORDS: u8 = 7;

impl Message {
    /// The first of a new process.
    pub(crate) fn hello(workers: usize, closes: bool) -> Self {
        let workers = u16::try_from(workers).unwrap_or(u16::MAX);
        let process = std::process::id();
        Self::Hello { version: HANDOVER_VERSION, workers, process, closes }
    }

    fn tag(&self) -> u8 {
        match self {
            Self::Hello { .. } => 1,
            Self::Welcome { .. } => 2,
            Self::Refused(_) => 3,
            Self::More => 4,
            Self::Stop => 5,
            Self::Halted(_) => 6,
            Self::Records { .. } => RECORDS,
            Self::Over(_) => 8,
            Self::Taken => 9,
            Self::Yours => 10,
            Self::Close => 11,
            Self::Closed => 12,
        }
    }

    fn body(&self) -> Vec<u8> {
        match self {
            Self::Hello { version, workers, process, closes } => {
                let numbers = [version.to_le_bytes(), workers.to_le_bytes()].concat();
                [&numbers[..], &process.to_le_bytes(), &[u8::from(*closes)]].concat()
            }
            Self::Welcome { time, steady, closes } => {
                let numbers = [time.to_le_bytes(), steady.to_le_bytes()].concat();
                [&numbers[..], &[u8::from(*closes)]].concat()
            }
            Self::Refused(sentence) => {
                let bytes = sentence.as_bytes();
                bytes[..bytes.len().min(LONGEST_SENTENCE)].to_vec()
            }
            Self::Halted(legacy) => legacy_bytes(legacy),
            Self::Over(written) => written.to_le_bytes().to_vec(),
            Self::Records { worker, records } => [&worker.to_le_bytes()[..], records].concat(),
            Self::More | Self::Stop | Self::Close | Self::Closed | Self::Taken | Self::Yours => {
                Vec::new()
            }
        }
    }

    /// Sends it.
    pub(crate) fn send(&self, to: impl Write) -> io::Result<()> {
        send(to, self.tag(), &self.body(), &[])
    }

    /// Waits for one.
    pub(crate) fn receive(mut from: impl Read) -> Result<Self, HandoverError> {
        let mut head = [0; HEAD];
        from.read_exact(&mut head).map_err(HandoverError::Lost)?;
        let [tag, len @ ..] = head;
        let len = u32::from_le_bytes(len) as usize;
        if len > LONGEST {
            return Err(HandoverError::Damaged("a message is too long"));
        }
        let mut body = vec![0; len];
        let mut sum = [0; 4];
        from.read_exact(&mut body).map_err(HandoverError::Lost)?;
        from.read_exact(&mut sum).map_err(HandoverError::Lost)?;
        if checksum(&[&head, &body]) != sum {
            return Err(HandoverError::Damaged("a checksum is wrong"));
        }
        Self::read(tag, body).ok_or(HandoverError::Damaged("a message that means nothing"))
    }

    fn read(tag: u8, body: Vec<u8>) -> Option<Self> {
        let mut from = Fields(&body);
        let message = match tag {
            1 => {
                let (version, workers, process) = (from.u16()?, from.u16()?, from.u32()?);
                // Another version may say more: it is told that it is another.
                return Some(Self::Hello { version, workers, process, closes: from.flag()? });
            }
            2 => {
                let (time, steady) = (from.u64()?, from.u64()?);
                Self::Welcome { time, steady, closes: from.flag()? }
            }
            3 => return Some(Self::Refused(String::from_utf8_lossy(&body).into_owned())),
            4 => Self::More,
            5 => Self::Stop,
            6 => Self::Halted(read_legacy(&mut from)?),
            RECORDS => {
                let worker = from.u16()?;
                return Some(Self::Records { worker, records: from.0.to_vec() });
            }
            8 => Self::Over(from.u64()?),
            9 => Self::Taken,
            10 => Self::Yours,
            11 => Self::Close,
            12 => Self::Closed,
            _ => return None,
        };
        from.0.is_empty().then_some(message)
    }
}

/// Sends a worker's records without copying them first.
pub(crate) fn send_records(to: impl Write, worker: u16, records: &[u8]) -> io::Result<()> {
    send(to, RECORDS, &worker.to_le_bytes(), records)
}

fn send(mut to: impl Write, tag: u8, first: &[u8], rest: &[u8]) -> io::Result<()> {
    let [a, b, c, d] = ((first.len() + rest.len()) as u32).to_le_bytes();
    let head = [tag, a, b, c, d];
    for part in [&head[..], first, rest] {
        to.write_all(part)?;
    }
    to.write_all(&checksum(&[&head, first, rest]))?;
    to.flush()
}

fn checksum(parts: &[&[u8]]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize().to_le_bytes()
}

/// What is left of a message's body.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn flag(&mut self) -> Option<bool> {
        self.u8().filter(|flag| *flag < 2).map(|flag| flag == 1)
    }

    /// As many as a number before them says.
    fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.u32()?;
        // There is no more room taken than bytes there are.
        (0..count).map(|_| one(self)).collect()
    }
}

fn put_list<T>(to: &mut Vec<u8>, list: &[T], mut one: impl FnMut(&mut Vec<u8>, &T)) {
    to.extend((list.len() as u32).to_le_bytes());
    list.iter().for_each(|item| one(to, item));
}

fn legacy_bytes(legacy: &Legacy) -> Vec<u8> {
    let Legacy { known, epochs, addresses, division } = legacy;
    let mut bytes = Vec::new();
    put_list(&mut bytes, known, |to, known| {
        to.push(u8::from(known.link.side == Side::Outside));
        to.extend(known.address.octets());
        to.extend(known.mac.0);
    });
    put_list(&mut bytes, epochs, |to, epoch| to.extend(epoch.0.to_le_bytes()));
    put_list(&mut bytes, addresses, |to, range| {
        to.extend([range.first.octets(), range.last.octets()].concat());
    });
    bytes.push(u8::from(division.is_some()));
    if let Some(Division { buckets, addresses }) = division {
        put_list(&mut bytes, buckets, |to, (owner, former)| {
            to.push(*owner);
            to.extend(former.to_le_bytes());
        });
        put_list(&mut bytes, addresses, |to, (address, runs)| {
            to.extend(address.to_le_bytes());
            put_list(to, runs, |to, (words, owner)| {
                to.extend(words.to_le_bytes());
                to.push(*owner);
            });
        });
    }
    bytes
}

fn read_legacy(from: &mut Fields<'_>) -> Option<Legacy> {
    let address = |from: &mut Fields<'_>| from.array::<4>().map(Ipv4Addr::from);
    let known = from.list(|from| {
        let link = if from.flag()? { Link::OUTSIDE } else { Link::inside(0) };
        Some(KnownNeighbor { link, address: address(from)?, mac: Mac(from.array()?) })
    })?;
    let epochs = from.list(|from| from.u64().map(Timestamp))?;
    let addresses =
        from.list(|from| Some(AddressRange { first: address(from)?, last: address(from)? }))?;
    let division = match from.flag()? {
        false => None,
        true => Some(Division {
            buckets: from.list(|from| Some((from.u8()?, from.u64()?)))?,
            addresses: from.list(|from| {
                Some((from.u32()?, from.list(|from| Some((from.u16()?, from.u8()?)))?))
            })?,
        }),
    };
    Some(Legacy { known, epochs, addresses, division })
}
