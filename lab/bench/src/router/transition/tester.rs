//! The tester: writes the frames that come in at both ends, and checks the frames that leave.
//!
//! The number of a frame determines its flow, so every run sends the same frames. A share of them
//! is foreground traffic for the technology; the others are native IPv6.

use super::packet::{Head, overhead};
use super::technology::{Technology, mac, native};
use crate::ipv6::Ends;
use natgate_engine::Side;
use natgate_wire::arp::Mac;

/// A flow: the ends of its packets, by the side that sends them.
#[derive(Clone, Copy, Debug)]
struct Flow {
    sent: [Ends; 2],
    received: [Ends; 2],
}

/// Flows of one kind, and their frames with the number 0.
#[derive(Debug, Default)]
struct Traffic {
    flows: Vec<Flow>,
    heads: [Vec<Head>; 2],
}

/// The tester.
#[derive(Debug)]
pub(super) struct Tester {
    foreground: Traffic,
    native: Traffic,
    /// Foreground share, percent.
    share: u64,
    /// Stations of the tester inside and outside, and of the gateways that they send to.
    stations: [Mac; 2],
    gateways: [Mac; 2],
}

/// Frames of a stream are fewer.
const MOST_FRAMES: u64 = 1 << 40;
/// Bytes of payload of the smallest frame.
pub(super) const LEAST: u16 = 18;

impl Tester {
    /// Creates a tester with `flows` flows each of the technology and of native IPv6. `pass` sends
    /// a frame through the gateways from a side, and returns the frame that leaves on the other.
    ///
    /// # Errors
    /// A sentence about a packet with a wrong translation.
    pub(super) fn new(
        technology: Technology,
        flows: u32,
        mut pass: impl FnMut(Side, Head) -> Option<Head>,
    ) -> Result<Self, String> {
        let last = technology.settings().len() as u8;
        let mut tester = Self {
            foreground: Traffic::default(),
            native: Traffic::default(),
            share: 100,
            stations: [mac(0, 1), mac(last, 2)],
            gateways: [mac(0, 2), mac(last, 1)],
        };
        for number in 0..flows {
            let (sent, outside) = technology.flow(number);
            let left = tester.learn(sent, Side::Inside, &mut pass);
            let left = left.filter(|left| outside.admits(left));
            let left = left.ok_or_else(|| format!("{sent:?} did not leave as {outside:?}"))?;
            let (answer, wanted) = (left.reversed(), sent.reversed());
            let back = tester.learn(answer, Side::Outside, &mut pass);
            if back != Some(wanted) {
                return Err(format!("{answer:?} left as {back:?}, not as {wanted:?}"));
            }
            tester.foreground.flows.push(Flow { sent: [sent, answer], received: [left, wanted] });
            let sent = native(number);
            let both = [sent, sent.reversed()];
            tester.native.flows.push(Flow { sent: both, received: both });
        }
        tester.prepare(LEAST, 100);
        Ok(tester)
    }

    /// Ends of a packet after it has passed.
    fn learn(
        &self,
        sent: Ends,
        from: Side,
        pass: &mut impl FnMut(Side, Head) -> Option<Head>,
    ) -> Option<Ends> {
        const NUMBER: u64 = 0xfeed;
        let (to, station) = (self.gateways[from as usize], self.stations[from as usize]);
        let head = Head::new(to, station, &sent, LEAST).with_number(NUMBER);
        let left = pass(from, head)?.read(self.stations[from.other() as usize])?;
        Some(left.0).filter(|_| left.1 == NUMBER)
    }

    /// Prepares frames with so many bytes of UDP payload, of which a share is foreground traffic,
    /// percent.
    pub(super) fn prepare(&mut self, payload: u16, share: u8) {
        self.share = share.into();
        let (gateways, stations) = (self.gateways, self.stations);
        for traffic in [&mut self.foreground, &mut self.native] {
            let Traffic { flows, heads } = traffic;
            for (from, heads) in heads.iter_mut().enumerate() {
                let head = |flow: &Flow| {
                    Head::new(gateways[from], stations[from], &flow.sent[from], payload)
                };
                heads.clear();
                heads.extend(flows.iter().map(head));
            }
        }
    }

    /// Traffic of a frame, and its flow.
    fn flow(&self, from: Side, number: u64) -> (&Traffic, usize) {
        let before = |number: u64| number * self.share / 100;
        let is_foreground = before(number + 1) > before(number);
        let traffic = if is_foreground { &self.foreground } else { &self.native };
        let mixed = (2 * number + from as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = ((mixed >> 32) * traffic.flows.len() as u64) >> 32;
        (traffic, place as usize)
    }

    /// The frame with a number that comes from a side.
    pub(super) fn frame(&self, from: Side, number: u64) -> Head {
        let (traffic, flow) = self.flow(from, number);
        traffic.heads[from as usize][flow].with_number(number)
    }

    /// Checks a frame that has left on a side; returns its number, or `None` if it is wrong.
    pub(super) fn check(&self, at: Side, head: &Head) -> Option<u64> {
        let read = head.read(self.stations[at as usize]);
        let (ends, number) = read.filter(|(_, number)| *number < MOST_FRAMES)?;
        let from = at.other();
        let (traffic, flow) = self.flow(from, number);
        (traffic.flows[flow].received[from as usize] == ends).then_some(number)
    }

    /// Frames on each side with so many bytes of payload, bytes: foreground as sent and as
    /// received.
    pub(super) fn lengths(&self, payload: u16) -> Option<[u16; 2]> {
        let flow = self.foreground.flows.first()?;
        Some([flow.sent[0], flow.received[0]].map(|ends| overhead(&ends) + payload))
    }
}
