//! The NAT in P4 as the subject. Each flow has its mapping before the first packet comes: a
//! controller has put it into the tables, as the paper's does.

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
/// Mappings to an external address, from this port on; the one before is for those that packets
/// make.
const MAPPINGS_PER_ADDRESS: u32 = 60_000;
const FIRST_PORT: u32 = 1025;
/// Subscribers are in a network of that length.
const SUBSCRIBERS_PREFIX: u32 = 10;
/// How long to wait before looking for a neighbour again.
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

/// Runs the program with the flows of this place until it is told to stop.
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

/// Fills the tables but for what depends on neighbours.
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

/// Waits until the neighbours on both sides have asked for this box, and answers them; nobody, if
/// it is told to stop.
fn meet(devices: &mut Devices, stop: &AtomicBool) -> Option<[Mac; 2]> {
    let mut neighbours = [Mac::default(); 2];
    while !neighbours.iter().all(|mac| mac.is_station()) {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        for (device, neighbour) in devices.iter_mut().zip(&mut neighbours) {
            // Others are looked after by names, which this thread's namespace does not know.
            if device.poll_interval().is_some() {
                let _ = device.maintain();
            }
            hear(device.as_mut(), neighbour);
        }
        std::thread::sleep(GLANCE);
    }
    Some(neighbours)
}

/// Answers those who ask; who that was.
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
        // Who does not get it asks again.
        let _ = sender.transmit(&mut [Frame::new(&mut answer, 0, end)]);
    }
}
