//! The NAT in P4 as the subject. Each flow has its mapping before its first packet. A controller
//! has put the mapping into the tables, like the controller of the paper. Several workers take
//! turns with one program.

use super::forwarder::meet;
use super::thread::{Crew, Turn};
use super::{Devices, GATEWAY, TESTER};
use crate::program::{Links, With, add, machine, nat, number};
use natgate_p4::{Key, Machine, Switch, Team};
use natgate_tester::{Endpoint, Place};
use natgate_wire::arp::Mac;
use natgate_wire::protocol::UDP;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;

/// The first external address.
const POOL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 0);
/// Mappings of an external address, from this port on. The port before is for mappings that packets
/// make.
const MAPPINGS_PER_ADDRESS: u32 = 60_000;
const FIRST_PORT: u32 = 1025;
/// Length of the subscribers' prefix.
const SUBSCRIBERS_PREFIX: u32 = 10;

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

/// Runs the program with the flows of this place, in a thread with each worker's devices.
pub(super) fn work(mut devices: Vec<Devices>, with: With, place: &Place, crew: &Crew<'_>) {
    let program = nat();
    crew.run(|| {
        let mut machine = machine(&program, with);
        let macs = devices[0].each_ref().map(|device| device.link().mac);
        fill(&mut machine, macs, place);
        let neighbours = meet(&mut devices, crew.stop)?;
        let next_hops = [0, 1].map(|side| (TESTER[side], neighbours[side]));
        let inside = (place.subscribers, SUBSCRIBERS_PREFIX);
        Links { macs, next_hops, inside }.fill(&mut machine);
        let (team, begun) = (Arc::new(Team::new(vec![machine])), Instant::now());
        let worker = |(number, devices)| {
            let switch = Switch::of_team(&team, number, devices);
            Program { switch, begun }
        };
        Some(devices.into_iter().enumerate().map(worker).collect())
    });
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
