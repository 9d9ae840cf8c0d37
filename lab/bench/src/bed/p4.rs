//! The NAT in P4 as the subject. Each flow has its mapping before its first packet. A controller
//! has put the mapping into the tables, like the controller of the paper.

use super::forwarder::answer;
use super::thread::{Turn, run};
use super::{Devices, GATEWAY, TESTER};
use crate::program::{Links, With, add, machine, nat, number};
use natgate_io::{Batch, Device, Frame};
use natgate_p4::{Key, Machine, Switch};
use natgate_tester::{Endpoint, Place};
use natgate_wire::arp::{Mac, read_ethernet};
use natgate_wire::link::ethertype;
use natgate_wire::protocol::UDP;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The first external address.
const POOL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 0);
/// Mappings of an external address, from this port on. The port before is for mappings that packets
/// make.
const MAPPINGS_PER_ADDRESS: u32 = 60_000;
const FIRST_PORT: u32 = 1025;
/// Length of the subscribers' prefix.
const SUBSCRIBERS_PREFIX: u32 = 10;
/// Pause between two looks for a neighbour.
const GLANCE: Duration = Duration::from_micros(100);

struct Program<'p> {
    switch: Switch<'p>,
    begun: Instant,
}

impl Turn for Program<'_> {
    fn turn(&mut self) -> usize {
        self.switch.turn(self.begun.elapsed())
    }

    fn devices(&self) -> &Devices {
        self.switch.devices()
    }

    fn maintain(&mut self) {
        self.switch.maintain();
    }
}

/// Runs the program with the flows of this place until `stop` is set.
pub(super) fn work(mut devices: Devices, with: With, place: &Place, stop: &AtomicBool) {
    let program = nat();
    let mut machine = machine(&program, with);
    let macs = devices.each_ref().map(|device| device.link().mac);
    fill(&mut machine, macs, place);
    let Some(neighbours) = meet(&mut devices, stop) else { return };
    let next_hops = [0, 1].map(|side| (TESTER[side], neighbours[side]));
    let inside = (place.subscribers, SUBSCRIBERS_PREFIX);
    Links { macs, next_hops, inside }.fill(&mut machine);
    let switch = Switch::new(machine, devices);
    run(&mut Program { switch, begun: Instant::now() }, stop);
}

/// Fills all tables that do not depend on neighbours.
fn fill(machine: &mut Machine<'_>, macs: [Mac; 2], place: &Place) {
    for (port, (address, mac)) in (1..).zip(GATEWAY.into_iter().zip(macs)) {
        let keys = [Key::Exact(port), Key::Exact(address.to_bits().into())];
        add(machine, "addresses", &keys, "answer", &[number(mac)]);
    }
    let subscribers = Key::Prefix(place.subscribers.to_bits().into(), SUBSCRIBERS_PREFIX);
    add(machine, "subscribers", &[subscribers], "subscriber", &[0, 0]);
    let [address, only] = [POOL.to_bits(), FIRST_PORT - 1].map(u128::from);
    add(machine, "pool", &[Key::Exact(0)], "external_address", &[address, only, only]);
    let key =
        |end: Endpoint| [UDP.into(), u128::from(end.address), u128::from(end.port)].map(Key::Exact);
    for flow in 0..place.flows {
        let (internal, index) = (place.internal(flow), flow / MAPPINGS_PER_ADDRESS);
        let external = Endpoint {
            address: POOL.to_bits() + index,
            port: (FIRST_PORT + flow % MAPPINGS_PER_ADDRESS) as u16,
        };
        let to = [external.address.into(), external.port.into()];
        add(machine, "upload", &key(internal), "to_external", &to);
        let to = [internal.address.into(), internal.port.into()];
        add(machine, "download", &key(external), "to_internal", &to);
    }
}

/// Waits until the neighbours on both sides have asked for this host's address, and answers them.
/// Returns `None` if `stop` is set.
fn meet(devices: &mut Devices, stop: &AtomicBool) -> Option<[Mac; 2]> {
    let mut neighbours = [Mac::default(); 2];
    while !neighbours.iter().all(|mac| mac.is_station()) {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        for (device, neighbour) in devices.iter_mut().zip(&mut neighbours) {
            // The other devices are found by name, which is unknown in this thread's namespace.
            if device.poll_interval().is_some() {
                let _ = device.maintain();
            }
            hear(device.as_mut(), neighbour);
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
