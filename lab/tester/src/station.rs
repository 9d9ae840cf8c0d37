//! One side of the tester: a device, an address, and ARP for both.

use natgate_io::{Batch, Device, Frame};
use natgate_wire::arp::{Arp, Mac, Operation, Repr, read_ethernet};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Interval of ARP requests to the translator.
const ASK: Duration = Duration::from_millis(200);

/// A router that the translator uses as its next hop.
#[derive(Debug)]
pub(crate) struct Station<'a> {
    pub(crate) device: &'a mut dyn Device,
    own: Ipv4Addr,
    /// Address of the translator.
    pub(crate) gateway: Ipv4Addr,
    /// Hardware address of the translator, as soon as it is known.
    pub(crate) peer: Mac,
}

impl<'a> Station<'a> {
    pub(crate) fn new(device: &'a mut dyn Device, own: Ipv4Addr, gateway: Ipv4Addr) -> Self {
        Self { device, own, gateway, peer: Mac::default() }
    }

    pub(crate) fn mac(&self) -> Mac {
        self.device.link().mac
    }

    /// Waits for the link and sends ARP requests to the translator; `None` if it does not answer in
    /// time.
    pub(crate) fn meet(&mut self, patience: Duration) -> Option<()> {
        let end = Instant::now() + patience;
        while Instant::now() < end {
            self.device.maintain();
            self.send(Operation::Request, Mac::default(), self.gateway);
            let asked = Instant::now();
            while asked.elapsed() < ASK {
                self.receive(&mut |_| ());
                if self.peer.is_station() {
                    return Some(());
                }
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        None
    }

    /// Receives a batch: answers ARP, and passes other frames for this station to `take`.
    pub(crate) fn receive(&mut self, take: &mut dyn FnMut(&[u8])) {
        let (own, mac) = (self.own, self.mac());
        let mut heard = None;
        let mut batch = Batch::new();
        self.device.split().0.receive(&mut batch);
        for frame in &batch {
            let Some((destination, _, kind)) = read_ethernet(frame.bytes()) else { continue };
            if kind != ethertype::ARP {
                if destination == mac {
                    take(frame.bytes());
                }
                continue;
            }
            let message = Arp::new_checked(&frame.bytes()[ETHERNET_LEN..]).map(|arp| arp.repr());
            heard = message.filter(|message| message.target == own).or(heard);
        }
        drop(batch);
        let Some(message) = heard else { return };
        if message.sender == self.gateway {
            self.peer = message.sender_mac;
        }
        if message.operation == Operation::Request {
            self.send(Operation::Reply, message.sender_mac, message.sender);
        }
    }

    fn send(&mut self, operation: Operation, target_mac: Mac, target: Ipv4Addr) {
        let message =
            Repr { operation, sender_mac: self.mac(), sender: self.own, target_mac, target };
        let destination = if target_mac.is_station() { target_mac } else { Mac::BROADCAST };
        let mut frame = message.frame(destination);
        let end = frame.len();
        // Either side repeats a lost request.
        let _ = self.device.split().1.transmit(&mut [Frame::of(&mut frame, 0, end)]);
    }
}
