//! A forwarder that does not translate: what packet I/O alone costs.
//!
//! A frame that comes in by one device leaves by the other with other hardware addresses, its packet
//! untouched. It answers ARP for whatever is asked, and takes the asker for its next hop there. It
//! spins and sleeps as natgate's own loop does.

use super::{BackEnd, BedError, Devices, ports};
use natgate_io::{Batch, Frame, wait};
use natgate_testnet::Network;
use natgate_wire::arp::{Arp, Mac, Operation, Repr, read_ethernet, write_ethernet};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long to look for frames before sleeping.
const SPIN: Duration = Duration::from_micros(50);
/// How often a thread that sleeps looks whether it should stop.
const GLANCE: Duration = Duration::from_millis(100);

/// The thread; it ends when this is dropped.
pub(super) struct Forwarder {
    task: u32,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Forwarder {
    pub(super) fn start(
        back_end: BackEnd,
        network: &Network,
        ends: &[String; 2],
    ) -> Result<Self, BedError> {
        let devices = network.node("nat").enter(|| ports::open(back_end, network, ends))??;
        let stop = Arc::<AtomicBool>::default();
        let (tell, told) = channel();
        let thread = std::thread::Builder::new().name("forwarder".into()).spawn({
            let stop = Arc::clone(&stop);
            move || {
                let task = rustix::thread::gettid().as_raw_nonzero().get() as u32;
                if tell.send(task).is_ok() {
                    forward(devices, &stop);
                }
            }
        })?;
        let task = told.recv().map_err(io::Error::other)?;
        Ok(Self { task, stop, thread: Some(thread) })
    }

    pub(super) fn task(&self) -> u32 {
        self.task
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has said why on standard error.
            let _ = thread.join();
        }
    }
}

fn forward(mut devices: Devices, stop: &AtomicBool) {
    let mut next_hops = [Mac::default(); 2];
    let mut last = Instant::now();
    let mut maintained = last;
    while !stop.load(Ordering::Relaxed) {
        let taken = pass(&mut devices, 0, &mut next_hops) + pass(&mut devices, 1, &mut next_hops);
        let now = Instant::now();
        if taken > 0 {
            last = now;
        } else if now - last > SPIN {
            sleep(&devices);
        }
        if devices[0].poll_interval().is_some() && now - maintained > GLANCE {
            devices.iter_mut().for_each(|device| drop(device.maintain()));
            maintained = now;
        }
    }
}

/// Takes a batch from one device to the other; returns how many frames.
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
        // What the link does not take is lost, and missed by the tester.
        let _ = onward.transmit(&mut batch);
    }
    drop(batch);
    for mut answer in answers {
        let end = answer.len();
        let _ = back.transmit(&mut [Frame::new(&mut answer, 0, end)]);
    }
    taken
}

/// The answer to an ARP request; who asks is the next hop.
fn answer(frame: &[u8], own: Mac, next_hop: &mut Mac) -> Option<Vec<u8>> {
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

fn sleep(devices: &Devices) {
    let descriptors: Vec<_> = devices.iter().filter_map(|device| device.readiness()).collect();
    let intervals = devices.iter().filter_map(|device| device.poll_interval());
    let time = intervals.min().unwrap_or(GLANCE);
    // What cannot be waited for is asked again at once.
    let _ = wait(&descriptors, time);
}
