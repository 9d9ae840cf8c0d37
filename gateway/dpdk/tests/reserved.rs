//! Ports that are opened after DPDK has started for a pipeline of SWX.
//!
//! Needs the programs that `make test` installs.
#![cfg(libdpdk)]

use natgate_dpdk::{Swx, start_for};
use natgate_io::{BATCH, Batch, Device, Lost};
use natgate_p4::compile;

const MTU: u16 = 1500;
const WORKERS: u16 = 4;
/// Frames that stay in a queue: fewer than a ring of DPDK holds.
const EACH: usize = 1000;

#[test]
fn ports_beside_a_pipeline_have_buffers_for_all_workers() {
    let program = compile("nat.p4", include_str!("../../../p4/nat.p4"));
    let program = program.unwrap_or_else(|error| panic!("{}", error.rendered()));
    let pipeline = program.swx().unwrap_or_else(|error| panic!("{}", error.rendered()));
    Swx::reserve(&pipeline, 1, WORKERS).expect("DPDK starts");
    let eal = start_for(None, MTU, WORKERS).expect("it runs");
    let mut source = eal.open("net_null0,size=64", MTU, 1).unwrap().remove(0);
    let rings = ["net_ring0", "net_ring1", "net_ring2"];
    let mut rings = rings.map(|ring| eal.open(ring, MTU, 8).unwrap()).into_iter().flatten();
    let (mut held, mut queues) = (0, Vec::new());
    // More than the buffers of one worker.
    while held <= 20_000 {
        let mut queue = rings.next().expect("there are enough queues");
        for _ in 0..EACH / BATCH {
            let mut batch = Batch::new();
            source.split().0.receive(&mut batch);
            assert!(!batch.is_empty(), "buffers ran out after {held} frames");
            held += batch.len();
            assert_eq!(queue.split().1.transmit(&mut batch), Lost::NONE);
        }
        queues.push(queue);
    }
}
