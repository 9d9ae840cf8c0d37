//! Messages of the two processes: a tag, a length, the body, and a checksum over all of these.

use crate::HandoverError;
use natgate_engine::{AddressRange, HANDOVER_VERSION, Side, Timestamp};
use natgate_gateway::ipv6::{CarriedHost, CarriedPath, Prefix6};
use natgate_gateway::{Division, KnownNeighbor, Legacy, Link};
use natgate_wire::arp::Mac;
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;

/// Most bytes of a message.
const LONGEST: usize = 16 << 20;

/// Most bytes of a sentence.
const LONGEST_SENTENCE: usize = 1024;

const HEAD: usize = 5;

/// A message between the two processes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// New process: the version of records that it reads, its number of workers, its process
    /// number, and true if it can open its devices only when the other process has closed its own.
    Hello { version: u16, workers: u16, process: u32, closes: bool },
    /// Old process: its clock and the machine's monotonic clock, nanoseconds, and true if it closes
    /// its devices before the other process opens any.
    Welcome { time: u64, steady: u64, closes: bool },
    /// Old process: the reason for a refusal.
    Refused(String),
    /// New process: asks for one more pass.
    More,
    /// New process: asks to take no more packets, and for the last pass.
    Stop,
    /// Old process: it takes no packets, and hands over this state.
    Halted(Legacy),
    /// Old process, after [`Message::Halted`]: some hosts of NAT64 or DS-Lite of one worker.
    Hosts { worker: u16, hosts: Vec<CarriedHost> },
    /// Old process, after [`Message::Halted`]: prefixes by which hosts of NAT64 of one worker reach
    /// remote addresses.
    Paths { worker: u16, paths: Vec<CarriedPath> },
    /// Old process, after [`Message::Halted`]: some control flows of application-level gateways of
    /// one worker, each as bytes.
    Flows { worker: u16, flows: Vec<Vec<u8>> },
    /// Old process: records of one of its workers.
    Records { worker: u16, records: Vec<u8> },
    /// Old process: the pass is over; the number of mappings in it.
    Over(u64),
    /// New process: asks to close the devices.
    Close,
    /// Old process: the devices are closed.
    Closed,
    /// New process: it has everything.
    Taken,
    /// Old process: the gateway is the new process's; the old one never takes a packet again.
    Yours,
}

const RECORDS: u8 = 7;

/// Most hosts, or prefixes, of a message.
pub(crate) const MOST_HOSTS: usize = 1 << 17;

/// Most control flows of a message. Each takes up to 100 KiB.
pub(crate) const MOST_FLOWS: usize = 128;

impl Message {
    /// First message of a new process.
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
            Self::Hosts { .. } => 13,
            Self::Flows { .. } => 14,
            Self::Paths { .. } => 15,
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
            Self::Hosts { worker, hosts } => {
                let mut bytes = worker.to_le_bytes().to_vec();
                put_list(&mut bytes, hosts, |to, host| {
                    to.extend(host.address.to_le_bytes());
                    to.extend(host.inner.to_le_bytes());
                    to.extend(host.number.to_le_bytes());
                });
                bytes
            }
            Self::Paths { worker, paths } => {
                let mut bytes = worker.to_le_bytes().to_vec();
                put_list(&mut bytes, paths, |to, path| {
                    to.extend(path.host.to_bits().to_le_bytes());
                    to.extend(path.remote.to_bits().to_le_bytes());
                    to.extend(path.prefix.address.to_bits().to_le_bytes());
                    to.push(path.prefix.len);
                });
                bytes
            }
            Self::Flows { worker, flows } => {
                let mut bytes = worker.to_le_bytes().to_vec();
                put_list(&mut bytes, flows, |to, flow| {
                    to.extend((flow.len() as u32).to_le_bytes());
                    to.extend(flow);
                });
                bytes
            }
            Self::Over(written) => written.to_le_bytes().to_vec(),
            Self::Records { worker, records } => [&worker.to_le_bytes()[..], records].concat(),
            Self::More | Self::Stop | Self::Close | Self::Closed | Self::Taken | Self::Yours => {
                Vec::new()
            }
        }
    }

    /// Sends the message.
    pub(crate) fn send(&self, to: impl Write) -> io::Result<()> {
        send(to, self.tag(), &self.body(), &[])
    }

    /// Waits for a message.
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
                // Another version may append fields; it is refused by its version later.
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
            13 => Self::Hosts { worker: from.u16()?, hosts: from.list(read_host)? },
            15 => Self::Paths { worker: from.u16()?, paths: from.list(read_path)? },
            14 => Self::Flows { worker: from.u16()?, flows: from.list(Fields::bytes)? },
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

/// Unread part of a message's body.
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

    /// Reads bytes that are preceded by their number.
    fn bytes(&mut self) -> Option<Vec<u8>> {
        let len = self.u32()?;
        let (bytes, rest) = self.0.split_at_checked(len as usize)?;
        self.0 = rest;
        Some(bytes.to_vec())
    }

    /// Reads a list that is preceded by its length.
    fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.u32()?;
        // The list takes no more memory than the message has bytes.
        (0..count).map(|_| one(self)).collect()
    }
}

fn put_list<T>(to: &mut Vec<u8>, list: &[T], mut one: impl FnMut(&mut Vec<u8>, &T)) {
    to.extend((list.len() as u32).to_le_bytes());
    list.iter().for_each(|item| one(to, item));
}

fn legacy_bytes(legacy: &Legacy) -> Vec<u8> {
    // Hosts and flows go by themselves.
    let Legacy { known, epochs, addresses, division, .. } = legacy;
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
    Some(Legacy { known, epochs, addresses, division, ..Legacy::default() })
}

fn read_path(from: &mut Fields<'_>) -> Option<CarriedPath> {
    let host = u128::from_le_bytes(from.array()?).into();
    let remote = from.u32()?.into();
    let (address, len) = (u128::from_le_bytes(from.array()?).into(), from.u8()?);
    let prefix = (len <= 128).then_some(Prefix6 { address, len })?;
    Some(CarriedPath { host, remote, prefix })
}

fn read_host(from: &mut Fields<'_>) -> Option<CarriedHost> {
    let address = u128::from_le_bytes(from.array()?);
    Some(CarriedHost { address, inner: from.u32()?, number: from.u32()? })
}
