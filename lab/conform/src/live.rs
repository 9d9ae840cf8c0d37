//! A bench of two network devices, in real time.
//!
//! The kernel must have no address on either device. Otherwise its own TCP/IP would answer packets
//! to the suite's hosts.

use crate::bench::Bench;
use natgate_engine::Side;
use natgate_io::packet::{Config, PacketDevice, kernel_address};
use natgate_io::{Batch, Device, Frame, wait};
use natgate_wire::arp::Mac;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Interval of the devices' maintenance.
const MAINTENANCE: Duration = Duration::from_secs(1);

/// Longest time until a device is up after it was switched on or plugged in.
const CARRIER: Duration = Duration::from_secs(5);

/// Reason why two devices cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// A device cannot be used.
    #[error(transparent)]
    Device(#[from] natgate_io::Error),
    /// The kernel would answer for the hosts.
    #[error(
        "the kernel has address {address} on {device} and would answer what the suite's hosts are \
         asked; take it away with `ip addr flush dev {device}`"
    )]
    KernelAddress {
        /// Name of the device.
        device: String,
        /// Address of the kernel.
        address: std::net::Ipv4Addr,
    },
    /// A device is down.
    #[error("device {0} is down or has no carrier; `ip link set dev {0} up`, and plug it in")]
    Down(String),
}

/// Two network devices.
#[derive(Debug)]
pub struct Live {
    devices: [PacketDevice; 2],
    begin: Instant,
    next_maintenance: Instant,
    received: VecDeque<(Side, Vec<u8>)>,
}

impl Live {
    /// Opens the devices on the translator's inside and outside.
    ///
    /// # Errors
    /// [`LiveError`] if a device is unusable or down, or if the kernel has addresses there.
    pub fn open(inside: &str, outside: &str) -> Result<Self, LiveError> {
        let devices = [open(inside)?, open(outside)?];
        let begin = Instant::now();
        let next_maintenance = begin + MAINTENANCE;
        Ok(Self { devices, begin, next_maintenance, received: VecDeque::new() })
    }

    /// Takes all received frames.
    fn collect(&mut self) {
        for (device, side) in self.devices.iter_mut().zip([Side::Inside, Side::Outside]) {
            loop {
                let mut batch = Batch::new();
                device.split().0.receive(&mut batch);
                if batch.is_empty() {
                    break;
                }
                self.received.extend(batch.iter().map(|frame| (side, frame.bytes().to_vec())));
            }
        }
    }
}

fn open(name: &str) -> Result<PacketDevice, LiveError> {
    if let Some((address, _)) = kernel_address(name)? {
        return Err(LiveError::KernelAddress { device: name.to_owned(), address });
    }
    let mut device = PacketDevice::open(name, Config::default())?;
    let begin = Instant::now();
    while !device.link().up {
        if begin.elapsed() >= CARRIER {
            return Err(LiveError::Down(name.to_owned()));
        }
        std::thread::sleep(CARRIER / 100);
        device.maintain();
    }
    // Merging in a device would hide the translator's fragments.
    device.stop_merging()?;
    Ok(device)
}

impl Bench for Live {
    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    fn mac(&self, side: Side) -> Mac {
        self.devices[side as usize].link().mac
    }

    fn mtu(&self, side: Side) -> usize {
        self.devices[side as usize].link().mtu as usize
    }

    fn send(&mut self, side: Side, frame: &[u8]) {
        let mut bytes = frame.to_vec();
        let end = bytes.len();
        let frame = Frame::of(&mut bytes, 0, end);
        // A lost frame is missing at its destination.
        let _ = self.devices[side as usize].split().1.transmit(&mut [frame]);
    }

    fn receive(&mut self, until: Duration) -> Option<(Side, Vec<u8>)> {
        loop {
            if self.received.is_empty() {
                self.collect();
            }
            if let Some(frame) = self.received.pop_front() {
                return Some(frame);
            }
            let now = Instant::now();
            if now >= self.next_maintenance {
                self.next_maintenance = now + MAINTENANCE;
                self.devices.iter_mut().for_each(|device| drop(device.maintain()));
            }
            let rest = until.checked_sub(self.now()).filter(|rest| !rest.is_zero())?;
            let [inside, outside] = &self.devices;
            let descriptors: Vec<_> =
                [inside.readiness(), outside.readiness()].into_iter().flatten().collect();
            let rest = rest.min(self.next_maintenance.saturating_duration_since(now));
            // An error of the wait is an error of a device, which maintenance detects.
            if wait(&descriptors, rest).unwrap_or(true) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
