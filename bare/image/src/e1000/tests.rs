//! Tests of the driver with a small model of a card, which can also misbehave.
#![expect(unsafe_code, reason = "the card writes to memory by its addresses")]

use super::ring::{COUNT, DESCRIPTOR, DONE, END, LONGEST, field};
use super::*;
use natgate_io::{BATCH, Batch, Frame, Lost};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Registers that have been written.
#[derive(Clone, Debug, Default)]
struct Card(Arc<Mutex<HashMap<u32, u32>>>);

impl Registers for Card {
    fn read8(&self, _: u32) -> u8 {
        unreachable!("these cards have registers of 32 bits")
    }

    fn read16(&self, _: u32) -> u16 {
        unreachable!("these cards have registers of 32 bits")
    }

    fn read32(&self, at: u32) -> u32 {
        self.0.lock().unwrap().get(&at).copied().unwrap_or(0)
    }

    fn write8(&mut self, _: u32, _: u8) {
        unreachable!("these cards have registers of 32 bits")
    }

    fn write16(&mut self, _: u32, _: u16) {
        unreachable!("these cards have registers of 32 bits")
    }

    fn write32(&mut self, at: u32, value: u32) {
        // A reset completes at once.
        let value = if at == register::CONTROL { value & !(1 << 26) } else { value };
        self.0.lock().unwrap().insert(at, value);
    }
}

impl Card {
    fn new() -> Self {
        let mut card = Self::default();
        card.write32(register::STATUS, 2);
        card.write32(register::ADDRESS_LOW, 0x1200_5452);
        card.write32(register::ADDRESS_HIGH, 0x8000_5634);
        card
    }

    /// Address of a ring's next descriptor; `ring` is the offset of the ring's registers.
    fn descriptor(&self, ring: u32) -> *mut u8 {
        let low = self.read32(ring + register::RING_LOW);
        let high = self.read32(ring + register::RING_HIGH);
        assert_eq!(self.read32(ring + register::RING_LEN) as usize, COUNT * DESCRIPTOR);
        let base = u64::from(high) << 32 | u64::from(low);
        let head = self.read32(ring + register::HEAD);
        (base as usize + head as usize * DESCRIPTOR) as *mut u8
    }

    fn advance(&mut self, ring: u32) {
        let head = self.read32(ring + register::HEAD);
        self.write32(ring + register::HEAD, (head + 1) % COUNT as u32);
    }

    fn is_empty(&self, ring: u32) -> bool {
        self.read32(ring + register::HEAD) == self.read32(ring + register::TAIL)
    }

    /// Delivers a frame; returns false if there is no descriptor. The length, status and errors may
    /// be wrong.
    fn deliver(&mut self, bytes: &[u8], len: u16, status: u8, errors: u8) -> bool {
        if self.is_empty(register::RECEIVE) {
            return false;
        }
        let descriptor = self.descriptor(register::RECEIVE);
        // SAFETY: the driver has written the addresses of descriptors and buffers to the card.
        unsafe {
            let buffer = descriptor.cast::<u64>().read() as *mut u8;
            buffer.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len().min(LONGEST));
            descriptor.add(field::LEN).cast::<u16>().write(len);
            descriptor.add(field::STATUS).write(status);
            descriptor.add(field::ERRORS).write(errors);
        }
        self.advance(register::RECEIVE);
        true
    }

    fn receive(&mut self, bytes: &[u8]) -> bool {
        self.deliver(bytes, bytes.len() as u16, DONE | END, 0)
    }

    /// Sends the frames in the ring.
    fn send(&mut self) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        while !self.is_empty(register::TRANSMIT) {
            let descriptor = self.descriptor(register::TRANSMIT);
            // SAFETY: as above.
            unsafe {
                let buffer = descriptor.cast::<u64>().read() as *const u8;
                let len = descriptor.add(field::LEN).cast::<u16>().read();
                assert_eq!(descriptor.add(field::LEN + 3).read(), 0b1011);
                sent.push(std::slice::from_raw_parts(buffer, len.into()).to_vec());
                descriptor.add(field::STATUS).write(DONE);
            }
            self.advance(register::TRANSMIT);
        }
        sent
    }
}

fn open(card: &Card) -> E1000<Card> {
    E1000::open(0x100e, card.clone(), "eth0").expect("the card is good")
}

fn received(device: &mut E1000<Card>) -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    device.split().0.receive(&mut batch);
    assert!(batch.iter().all(|frame| frame.headroom() >= natgate_io::HEADROOM));
    batch.iter().map(|frame| frame.bytes().to_vec()).collect()
}

fn frame(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|place| (number * 31 + place * 7) as u8).collect()
}

fn transmit(device: &mut E1000<Card>, bytes: &[u8]) -> Lost {
    let mut bytes = bytes.to_vec();
    let end = bytes.len();
    device.split().1.transmit(&mut [Frame::of(&mut bytes, 0, end)])
}

#[test]
fn a_card_is_started_with_its_address() {
    let card = Card::new();
    let device = open(&card);
    let expected = Mac([0x52, 0x54, 0x00, 0x12, 0x34, 0x56]);
    assert_eq!((device.link().mac, device.link().up, device.link().mtu), (expected, true, 1500));
    assert_eq!(card.read32(register::INTERRUPTS_OFF), u32::MAX);
    assert_eq!(name(0x10d3), Some("82574L"));
    assert_eq!(name(0x1234), None);
}

#[test]
fn cards_that_are_broken_are_refused() {
    let card = Card::default();
    assert_eq!(E1000::open(0x100e, card.clone(), "eth0").unwrap_err(), Error::NoAddress);
    // No card responds.
    #[derive(Clone, Debug)]
    struct Nothing;
    impl Registers for Nothing {
        fn read8(&self, _: u32) -> u8 {
            u8::MAX
        }
        fn read16(&self, _: u32) -> u16 {
            u16::MAX
        }
        fn read32(&self, _: u32) -> u32 {
            u32::MAX
        }
        fn write8(&mut self, _: u32, _: u8) {}
        fn write16(&mut self, _: u32, _: u16) {}
        fn write32(&mut self, _: u32, _: u32) {}
    }
    assert_eq!(E1000::open(0x100e, Nothing, "eth0").unwrap_err(), Error::Reset);
}

#[test]
fn frames_come_and_go_as_they_are_many_times_round_the_rings() {
    let mut card = Card::new();
    let mut device = open(&card);
    for round in 0..3 * COUNT {
        let bytes = frame(round, 60 + round % 1455);
        assert!(card.receive(&bytes));
        assert_eq!(received(&mut device), [&bytes[..]]);
        assert_eq!(transmit(&mut device, &bytes), Lost::NONE);
        assert_eq!(card.send(), [bytes]);
    }
    let counted = device.statistics();
    assert_eq!((counted.received, counted.transmitted), (3 * COUNT as u64, 3 * COUNT as u64));
}

#[test]
fn a_card_interrupts_while_somebody_sleeps() {
    let (mut card, alarm) = (Card::new(), Alarm::default());
    let mut device = open(&card);
    device.ring();
    for at in [register::INTERRUPTS_ON, register::RAISE_INTERRUPTS] {
        assert_eq!(card.read32(at), ring::RECEIVED);
    }
    let mut last_written = |at: u32| {
        let other = register::INTERRUPTS_ON + register::INTERRUPTS_OFF - at;
        let is_it = card.read32(at) != 0 && card.read32(other) == 0;
        card.write32(register::INTERRUPTS_ON, 0);
        card.write32(register::INTERRUPTS_OFF, 0);
        is_it
    };
    last_written(register::INTERRUPTS_ON);
    device.obey(Some(alarm.clone()));
    assert!(last_written(register::INTERRUPTS_OFF));
    for is_wanted in [false, true, true, false] {
        let changes = is_wanted != alarm.is_set();
        alarm.set(is_wanted);
        received(&mut device);
        let at = if is_wanted { register::INTERRUPTS_ON } else { register::INTERRUPTS_OFF };
        assert_eq!(last_written(at), changes);
    }
    device.obey(None);
    alarm.set(true);
    received(&mut device);
    assert!(!last_written(register::INTERRUPTS_ON));
}

#[test]
fn a_burst_comes_in_batches_in_order() {
    let mut card = Card::new();
    let mut device = open(&card);
    let taken = (0..2 * COUNT).take_while(|number| card.receive(&frame(*number, 60))).count();
    assert_eq!(taken, COUNT - 1);
    let mut came = Vec::new();
    loop {
        let batch = received(&mut device);
        if batch.is_empty() {
            break;
        }
        assert!(batch.len() <= BATCH);
        came.extend(batch);
    }
    assert_eq!(came, (0..taken).map(|number| frame(number, 60)).collect::<Vec<_>>());
    assert!(card.receive(&frame(0, 60)));
}

#[test]
fn what_does_not_fit_the_ring_is_lost_and_counted() {
    let mut card = Card::new();
    let mut device = open(&card);
    let fits = (0..2 * COUNT).take_while(|n| transmit(&mut device, &frame(*n, 60)).count() == 0);
    assert_eq!(fits.count(), COUNT - 1);
    assert_eq!(device.statistics().transmit_full, 1);
    assert_eq!(card.send().len(), COUNT - 1);
    assert_eq!(transmit(&mut device, &frame(0, 60)), Lost::NONE);
    for odd in [frame(0, 13), frame(0, LONGEST + 1)] {
        assert_eq!(transmit(&mut device, &odd).count(), 1);
    }
    // A card sends at least 17 bytes.
    assert_eq!(transmit(&mut device, &[1; 14]), Lost::NONE);
    assert_eq!(card.send()[1], [&[1; 14][..], &[0; 3]].concat());
}

#[test]
fn frames_in_pieces_and_damaged_ones_are_forgotten() {
    let mut card = Card::new();
    let mut device = open(&card);
    card.deliver(&frame(1, 2048), 2048, DONE, 0);
    card.deliver(&frame(2, 500), 500, DONE | END, 0);
    card.deliver(&frame(3, 60), 60, DONE | END, 1);
    card.deliver(&frame(4, 60), 13, DONE | END, 0);
    card.deliver(&frame(5, 60), 2049, DONE | END, 0);
    card.receive(&frame(6, 60));
    // A wrong TCP checksum does not damage a frame.
    card.deliver(&frame(7, 60), 60, DONE | END, 0x60);
    assert_eq!(received(&mut device), [frame(6, 60), frame(7, 60)]);
    assert_eq!(device.statistics().receive_oversize, 5);
}

#[test]
fn a_link_that_goes_down_is_noticed() {
    let mut card = Card::new();
    let mut device = open(&card);
    assert!(device.maintain().is_none());
    for gone in [0, u32::MAX] {
        card.write32(register::STATUS, gone);
        assert!(matches!(device.maintain(), Some(Change::Down)) && !device.link().up);
        card.write32(register::STATUS, 2);
        assert!(matches!(device.maintain(), Some(Change::Up)));
    }
    assert_eq!(device.statistics().link_losses, 2);
}

proptest! {
    /// With any descriptors of a card, received frames lie in their buffers, and the card continues
    /// to work.
    #[test]
    fn no_descriptor_does_harm(
        lies in proptest::collection::vec((any::<u16>(), any::<u8>(), any::<u8>()), 1..700),
    ) {
        let mut card = Card::new();
        let mut device = open(&card);
        for (number, (len, status, errors)) in lies.into_iter().enumerate() {
            card.deliver(&frame(number, 60), len, status | DONE, errors);
            if number % 7 == 0 {
                for frame in received(&mut device) {
                    prop_assert!(frame.len() <= LONGEST);
                }
            }
        }
        while !received(&mut device).is_empty() {}
        // This ends a frame that may have begun.
        card.deliver(&frame(0, 60), 60, DONE | END, 1);
        prop_assert!(card.receive(&frame(9, 60)));
        prop_assert_eq!(received(&mut device), [frame(9, 60)]);
    }
}
