//! A forwarder that does not translate. It shows the cost of packet I/O alone.
//!
//! A frame that comes in by one device leaves by the other with other hardware addresses, and its
//! packet unchanged. The forwarder answers every ARP request, and takes the requester for the next
//! hop on that side.

use super::Devices;
use super::thread::{Crew, Turn};
use natgate_io::{Batch, Device, Frame};
use natgate_wire::arp::{Arp, Mac, Operation, Repr, read_ethernet, write_ethernet};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Pause between two looks for a neighbour.
const GLANCE: Duration = Duration::from_micros(100);

/// A running forwarder.
pub(super) struct Forwarder {
    devices: Devices,
    next_hops: [Mac; 2],
}

impl Forwarder {
    /// Runs a forwarder with each worker's devices.
    pub(super) fn work(mut devices: Vec<Devices>, crew: &Crew<'_>) {
        crew.run(|| {
            let next_hops = meet(&mut devices, crew.stop)?;
            Some(devices.into_iter().map(|devices| Self { devices, next_hops }).collect())
        });
    }
}

impl Turn for Forwarder {
    fn turn(&mut self) -> usize {
        let Self { devices, next_hops } = self;
        pass(devices, 0, next_hops) + pass(devices, 1, next_hops)
    }

    fn devices(&self) -> &Devices {
        &self.devices
    }

    fn maintain(&mut self) {
        self.devices.iter_mut().for_each(|device| drop(device.maintain()));
    }
}

/// Takes a batch from one device to the other; returns the number of frames.
fn pass(devices: &mut Devices, from: usize, next_hops: &mut [Mac; 2]) -> usize {
    let macs = [devices[0].link().mac, devices[1].link().mac];
    let to = 1 - from;
    let [inside, outside] = devices;
    let [(inside_in, inside_out), (outside_in, outside_out)] = [inside.split(), outside.split()];
    let (receiver, [back, onward]) = match from {
        0 => (inside_in, [inside_out, outside_out]),
        _ => (outside_in, [outside_out, inside_out]),
    };
    let mut batch = Batch::new();
    receiver.receive(&mut batch);
    let taken = batch.len();
    let mut answers = Vec::new();
    batch.retain(|frame| match read_ethernet(frame.bytes()) {
        Some((destination, _, ethertype::IPV4)) => destination == macs[from],
        Some((_, _, ethertype::ARP)) => {
            answers.extend(answer(frame.bytes(), macs[from], &mut next_hops[from]));
            false
        }
        _ => false,
    });
    for frame in &mut batch {
        if let Some(header) = frame.bytes_mut().first_chunk_mut() {
            write_ethernet(header, next_hops[to], macs[to], ethertype::IPV4);
        }
    }
    if !batch.is_empty() {
        // A frame that the link does not accept is lost, and is missing at the tester.
        let _ = onward.transmit(&mut batch);
    }
    drop(batch);
    for mut answer in answers {
        let end = answer.len();
        let _ = back.transmit(&mut [Frame::of(&mut answer, 0, end)]);
    }
    taken
}

/// Answer to an ARP request. The requester becomes the next hop.
pub(super) fn answer(frame: &[u8], own: Mac, next_hop: &mut Mac) -> Option<Vec<u8>> {
    let asked = Arp::new_checked(&frame[ETHERNET_LEN..])?.repr();
    *next_hop = asked.sender_mac;
    let reply = Repr {
        operation: Operation::Reply,
        sender_mac: own,
        sender: asked.target,
        target_mac: asked.sender_mac,
        target: asked.sender,
    };
    (asked.operation == Operation::Request).then(|| reply.frame(asked.sender_mac).to_vec())
}

/// Waits until the neighbours on both sides have asked for this host's address, and answers them.
/// Returns `None` if `stop` is set.
pub(super) fn meet(devices: &mut [Devices], stop: &AtomicBool) -> Option<[Mac; 2]> {
    let mut neighbours = [Mac::default(); 2];
    while !neighbours.iter().all(|mac| mac.is_station()) {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        for devices in devices.iter_mut() {
            for (device, neighbour) in devices.iter_mut().zip(&mut neighbours) {
                // The other devices are found by name, which is unknown in this thread's namespace.
                if device.poll_interval().is_some() {
                    let _ = device.maintain();
                }
                hear(device.as_mut(), neighbour);
            }
        }
        std::thread::sleep(GLANCE);
    }
    Some(neighbours)
}

/// Answers ARP requests, and records the requester's hardware address.
fn hear(device: &mut dyn Device, neighbour: &mut Mac) {
    let mac = device.link().mac;
    let (receiver, sender) = device.split();
    let mut batch = Batch::new();
    receiver.receive(&mut batch);
    let is_arp =
        |frame: &&Frame<'_>| matches!(read_ethernet(frame.bytes()), Some((_, _, ethertype::ARP)));
    let asked = batch.iter().filter(is_arp);
    let answers: Vec<_> = asked.filter_map(|frame| answer(frame.bytes(), mac, neighbour)).collect();
    drop(batch);
    for mut answer in answers {
        let end = answer.len();
        // A requester without an answer asks again.
        let _ = sender.transmit(&mut [Frame::of(&mut answer, 0, end)]);
    }
}
