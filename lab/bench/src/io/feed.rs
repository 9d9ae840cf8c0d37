//! Devices without a network that make their packets themselves, so that only the gateway's own
//! work takes time. The inside's device sends datagrams of random flows. The outside's device takes
//! all frames and answers ARP.
//!
//! A packet costs its maker some writes into a buffer that stays in the processor's first cache.

use crate::frame::{self, Frame as Packet};
use crate::random::Random;
use natgate_io::{
    Batch, Change, Device, Frame, HEADROOM, LinkInfo, Lost, Receive, Statistics, Transmit,
};
use natgate_wire::Ipv4;
use natgate_wire::arp::{Arp, Mac, Operation, Repr};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Destination of all packets.
pub(super) const REMOTE: (u32, u16) = (Ipv4Addr::new(192, 0, 2, 9).to_bits(), 53);
/// Flows of a subscriber, by source port from [`FIRST_PORT`] on.
pub(super) const FLOWS_EACH: u32 = 64;
const FIRST_PORT: u16 = 4000;

/// Hardware address of all hosts behind a device.
pub(crate) const STATION: Mac = Mac([2, 0, 0, 0, 2, 9]);

const BUFFERS: usize = natgate_io::BATCH;
const FRAME_LEN: usize = ETHERNET_LEN + frame::LEN;
const BUFFER_LEN: usize = 256;

/// Count of frames that have left a device, for the measuring thread. It has a cache line of its
/// own, as the device of another worker counts at the same time.
#[derive(Clone, Debug, Default)]
pub(super) struct Count(Arc<Alone>);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Alone(AtomicU64);

impl Count {
    pub(super) fn read(&self) -> u64 {
        self.0.0.load(Ordering::Relaxed)
    }

    /// Only one thread calls this.
    fn add(&self, more: u64) {
        self.0.0.store(self.read() + more, Ordering::Relaxed);
    }
}

/// A device that makes its packets.
#[derive(Debug)]
pub(super) struct Feed {
    link: LinkInfo,
    source: Source,
    sink: Sink,
}

/// Receiving half of a device.
#[derive(Debug)]
struct Source {
    buffers: Vec<[u8; BUFFER_LEN]>,
    /// Subscribers that send packets.
    subscribers: Vec<u32>,
    /// Number of flows that have not sent yet. All flows send once before any is drawn at random.
    first: u32,
    random: Random,
    template: [u8; FRAME_LEN],
    answers: Answers,
}

/// Waiting answers to ARP.
type Answers = Arc<Mutex<VecDeque<Vec<u8>>>>;

#[derive(Debug)]
struct Sink {
    count: Count,
    answers: Answers,
}

impl Feed {
    /// Creates a device with this hardware address. It receives packets of `subscribers`, which may
    /// be empty. `count` counts the frames that leave.
    pub(super) fn new(name: &str, mac: Mac, subscribers: Vec<u32>, count: Count) -> Self {
        let mut packet = Packet([0; 64]);
        frame::udp(&mut packet, (0, FIRST_PORT), REMOTE);
        let mut template = [0; FRAME_LEN];
        template[..6].copy_from_slice(&mac.0);
        template[6..12].copy_from_slice(&STATION.0);
        template[12..ETHERNET_LEN].copy_from_slice(&ethertype::IPV4.to_be_bytes());
        template[ETHERNET_LEN..].copy_from_slice(&packet.0[..frame::LEN]);
        let answers = Answers::default();
        let seed = subscribers.len() as u64;
        Self {
            link: LinkInfo { name: name.to_owned(), index: 1, mac, mtu: 1500, up: true },
            source: Source {
                buffers: vec![[0; BUFFER_LEN]; BUFFERS],
                first: subscribers.len() as u32 * FLOWS_EACH,
                subscribers,
                random: Random::new(seed),
                template,
                answers: Arc::clone(&answers),
            },
            sink: Sink { count, answers },
        }
    }
}

impl Device for Feed {
    fn split(&mut self) -> (&mut dyn Receive, &mut dyn Transmit) {
        (&mut self.source, &mut self.sink)
    }

    fn link(&self) -> &LinkInfo {
        &self.link
    }

    fn statistics(&mut self) -> Statistics {
        Statistics { transmitted: self.sink.count.read(), ..Statistics::default() }
    }

    fn maintain(&mut self) -> Option<Change> {
        None
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Receive for Source {
    fn receive<'d>(&'d mut self, batch: &mut Batch<'d>) {
        let Self { buffers, subscribers, first, random, template, answers } = self;
        let mut room = buffers.iter_mut().take(batch.remaining_capacity());
        if let Some(answer) = lock(answers).pop_front()
            && let Some(buffer) = room.next()
        {
            let end = HEADROOM + answer.len().min(BUFFER_LEN - HEADROOM);
            buffer[HEADROOM..end].copy_from_slice(&answer[..end - HEADROOM]);
            batch.push(Frame::of(buffer, HEADROOM, end));
        }
        if subscribers.is_empty() {
            return;
        }
        let flows = subscribers.len() as u32 * FLOWS_EACH;
        for buffer in room {
            let flow = match first.checked_sub(1) {
                Some(left) => {
                    *first = left;
                    left
                }
                None => random.below(flows.into()) as u32,
            };
            let bytes = &mut buffer[HEADROOM..HEADROOM + FRAME_LEN];
            bytes.copy_from_slice(template);
            let subscriber = subscribers[(flow / FLOWS_EACH) as usize];
            write_flow(&mut bytes[ETHERNET_LEN..], subscriber, (flow % FLOWS_EACH) as u16);
            batch.push(Frame::of(buffer, HEADROOM, HEADROOM + FRAME_LEN));
        }
    }
}

/// Turns a packet into one of a flow. Its UDP checksum is wrong; no reader checks it.
fn write_flow(packet: &mut [u8], subscriber: u32, flow: u16) {
    if let Ok(mut packet) = Ipv4::new_checked(&mut packet[..]) {
        packet.set_source(subscriber);
        packet.fill_checksum();
    }
    packet[20..22].copy_from_slice(&(FIRST_PORT + flow).to_be_bytes());
}

impl Transmit for Sink {
    fn transmit(&mut self, frames: &mut [Frame<'_>]) -> Lost {
        let mut packets = 0;
        for frame in frames {
            let bytes = frame.bytes();
            match bytes.get(12..ETHERNET_LEN) {
                Some(kind) if *kind == ethertype::ARP.to_be_bytes() => self.answer(bytes),
                _ => packets += 1,
            }
        }
        self.count.add(packets);
        Lost::NONE
    }
}

impl Sink {
    fn answer(&self, frame: &[u8]) {
        lock(&self.answers).extend(answer(frame));
    }
}

/// Answer to an ARP request for any address: all addresses are behind one station.
pub(crate) fn answer(frame: &[u8]) -> Option<Vec<u8>> {
    let question = Arp::new_checked(&frame[ETHERNET_LEN..])?.repr();
    let answer = Repr {
        operation: Operation::Reply,
        sender_mac: STATION,
        sender: question.target,
        target_mac: question.sender_mac,
        target: question.sender,
    };
    (question.operation == Operation::Request).then(|| answer.frame(question.sender_mac).to_vec())
}

/// The list is complete at any time, so a poisoned lock is usable.
fn lock(answers: &Answers) -> std::sync::MutexGuard<'_, VecDeque<Vec<u8>>> {
    answers.lock().unwrap_or_else(PoisonError::into_inner)
}
