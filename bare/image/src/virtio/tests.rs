//! Tests of the driver with a small model of a device, which can also misbehave.
#![expect(unsafe_code, reason = "the device writes to memory by its addresses")]

use super::*;
use crate::pci::{ConfigSpace, tests::Cards, tests::PLACE};
use proptest::prelude::*;
use std::sync::{Arc, Mutex, MutexGuard};

/// Entries of the device's queues.
const SIZE: u16 = 128;
const MAC_ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 7];
/// Bytes between the announcement registers of two queues.
const DISTANCE: u32 = 4;

#[derive(Debug)]
struct State {
    offered: [u32; 2],
    accepted: [u32; 2],
    select: [usize; 2],
    status: u8,
    size: [u16; 2],
    /// Number of the message for used buffers of each queue; all ones if there is none.
    message: [u16; 2],
    has_messages: bool,
    queue: usize,
    addresses: [[u64; 3]; 2],
    is_enabled: [bool; 2],
    /// Number of taken entries of the available rings.
    taken: [u16; 2],
    notices: [u32; 2],
    link: u16,
}

/// A group of the device's registers.
#[derive(Clone, Debug)]
struct Group(Arc<Mutex<State>>, char);

impl Group {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl Registers for Group {
    fn read8(&self, at: u32) -> u8 {
        match (self.1, at) {
            ('c', 20) => self.state().status,
            ('d', 0..6) => MAC_ADDRESS[at as usize],
            _ => unreachable!("no register of 8 bits: {} {at}", self.1),
        }
    }

    fn read16(&self, at: u32) -> u16 {
        let state = self.state();
        match (self.1, at) {
            ('c', 24) => state.size[state.queue],
            ('c', 26) => state.message[state.queue],
            ('c', 30) => state.queue as u16,
            ('d', 6) => state.link,
            _ => unreachable!("no register of 16 bits: {} {at}", self.1),
        }
    }

    fn read32(&self, at: u32) -> u32 {
        let state = self.state();
        match (self.1, at) {
            ('c', 4) => state.offered[state.select[0]],
            _ => unreachable!("no register of 32 bits: {} {at}", self.1),
        }
    }

    fn write8(&mut self, at: u32, value: u8) {
        assert_eq!((self.1, at), ('c', 20));
        let mut state = self.state();
        // The device refuses features without version 1.
        let refuses = value & 8 != 0 && state.accepted[1] & 1 == 0;
        state.status = if refuses { value & !8 } else { value };
    }

    fn write16(&mut self, at: u32, value: u16) {
        let mut state = self.state();
        let queue = state.queue;
        match (self.1, at) {
            ('c', 22) => state.queue = value.into(),
            ('c', 24) => state.size[queue] = value,
            ('c', 26) => state.message[queue] = if state.has_messages { value } else { u16::MAX },
            ('c', 28) => state.is_enabled[queue] = value == 1,
            ('n', at) => {
                assert_eq!(at, u32::from(value) * DISTANCE);
                state.notices[usize::from(value)] += 1;
            }
            _ => unreachable!("no register of 16 bits: {} {at}", self.1),
        }
    }

    fn write32(&mut self, at: u32, value: u32) {
        let mut state = self.state();
        let queue = state.queue;
        match (self.1, at) {
            ('c', 0) => state.select[0] = value as usize,
            ('c', 8) => state.select[1] = value as usize,
            ('c', 12) => {
                let half = state.select[1];
                state.accepted[half] = value;
            }
            ('c', 32..56) => {
                let (place, half) = ((at as usize - 32) / 8, at % 8 / 4);
                state.addresses[queue][place] |= u64::from(value) << (32 * half);
            }
            _ => unreachable!("no register of 32 bits: {} {at}", self.1),
        }
    }
}

/// The device's side.
struct Card(Arc<Mutex<State>>);

impl Card {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            // With offloads, which the driver does not use.
            offered: [1 << 5 | 1 << 16 | 1 | 1 << 15, 1],
            accepted: [0; 2],
            select: [0; 2],
            status: 0,
            size: [SIZE; 2],
            message: [u16::MAX; 2],
            has_messages: true,
            queue: 0,
            addresses: [[0; 3]; 2],
            is_enabled: [false; 2],
            taken: [0; 2],
            notices: [0; 2],
            link: 1,
        })))
    }

    fn places(&self) -> Places<Group> {
        let group = |name| Group(self.0.clone(), name);
        let notify_sizes = [2 * DISTANCE, DISTANCE];
        Places { common: group('c'), notify: group('n'), notify_sizes, device: group('d') }
    }

    fn open(&self) -> Virtio<Group> {
        Virtio::open(self.places(), "eth0", None).expect("the device is good")
    }

    /// Returns true if the driver wants interrupts of a queue.
    fn may_interrupt(&self, queue: usize) -> bool {
        let available = self.0.lock().unwrap().addresses[queue][1] as usize;
        // SAFETY: the available ring begins there, with its flags.
        unsafe { (available as *const u16).read_volatile() == 0 }
    }

    /// Next available buffer of a queue: its number, address, length and flags.
    fn take(&self, queue: usize) -> Option<(u16, u64, u32, u16)> {
        let mut state = self.0.lock().unwrap();
        let [descriptors, available, _] = state.addresses[queue].map(|address| address as usize);
        let taken = state.taken[queue];
        // SAFETY: the driver has written these addresses of rings with this number of entries.
        let found = unsafe {
            if ((available + 2) as *const u16).read_volatile() == taken {
                return None;
            }
            let place = available + 4 + 2 * usize::from(taken % SIZE);
            let number = (place as *const u16).read_volatile();
            let descriptor = descriptors + 16 * usize::from(number);
            let flags = ((descriptor + 12) as *const u16).read_volatile();
            let len = ((descriptor + 8) as *const u32).read_volatile();
            (number, (descriptor as *const u64).read_volatile(), len, flags)
        };
        state.taken[queue] = taken.wrapping_add(1);
        Some(found)
    }

    /// Reports a used buffer, correctly or not.
    fn give_back(&self, queue: usize, number: u32, len: u32) {
        let used = self.0.lock().unwrap().addresses[queue][2] as usize;
        // SAFETY: as above.
        unsafe {
            let index = (used + 2) as *mut u16;
            let place = used + 4 + 8 * usize::from(index.read_volatile() % SIZE);
            (place as *mut [u32; 2]).write_volatile([number, len]);
            index.write_volatile(index.read_volatile().wrapping_add(1));
        }
    }

    /// Delivers a frame; returns false if there is no buffer.
    fn receive(&self, frame: &[u8]) -> bool {
        let Some((number, address, len, flags)) = self.take(0) else { return false };
        assert!(flags == 2 && len as usize >= HEADER + frame.len());
        let bytes = [&[0; HEADER][..], frame].concat();
        // SAFETY: the driver has given the buffer to the device, and it is long enough.
        unsafe { (address as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        self.give_back(0, number.into(), bytes.len() as u32);
        true
    }

    /// Sends the frames in the queue.
    fn send(&self) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        while let Some((number, address, len, flags)) = self.take(1) {
            assert_eq!(flags, 0);
            // SAFETY: as above.
            let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, len as usize) };
            assert_eq!(bytes[..HEADER], [0; HEADER]);
            sent.push(bytes[HEADER..].to_vec());
            self.give_back(1, number.into(), 0);
        }
        sent
    }
}

fn received(device: &mut Virtio<Group>) -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    device.split().0.receive(&mut batch);
    assert!(batch.iter().all(|frame| frame.headroom() >= HEADROOM));
    batch.iter().map(|frame| frame.bytes().to_vec()).collect()
}

fn frame(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|place| (number * 31 + place * 7) as u8).collect()
}

fn transmit(device: &mut Virtio<Group>, frames: &[Vec<u8>]) -> Lost {
    let mut frames = frames.to_vec();
    let mut frames: Vec<_> = frames
        .iter_mut()
        .map(|bytes| {
            let end = bytes.len();
            Frame::of(bytes, 0, end)
        })
        .collect();
    device.split().1.transmit(&mut frames)
}

#[test]
fn a_device_is_agreed_with_on_nothing_but_what_is_needed() {
    let card = Card::new();
    let device = card.open();
    let (mac, up) = (device.link().mac, device.link().up);
    assert_eq!((mac.0, up, device.link().mtu), (MAC_ADDRESS, true, 1500));
    let state = card.0.lock().unwrap();
    assert_eq!((state.accepted, state.status), ([1 << 5 | 1 << 16, 1], 1 | 2 | 4 | 8));
    assert_eq!((state.is_enabled, state.size), ([true; 2], [SIZE; 2]));
}

#[test]
fn devices_that_lack_something_are_refused() {
    let error = |change: fn(&mut State)| {
        let card = Card::new();
        change(&mut card.0.lock().unwrap());
        Virtio::open(card.places(), "eth0", None).unwrap_err()
    };
    assert_eq!(error(|state| state.offered[1] = 0), Error::NotModern);
    assert_eq!(error(|state| state.offered[0] = 0), Error::Lacks("a hardware address"));
    assert_eq!(error(|state| state.size[1] = 32), Error::Lacks("queues of 64 entries"));
    let card = Card::new();
    let short = Places { notify_sizes: [2, DISTANCE], ..card.places() };
    assert_eq!(Virtio::open(short, "eth0", None).unwrap_err(), Error::NotModern);
}

#[test]
fn a_device_interrupts_while_somebody_sleeps() {
    let (card, alarm) = (Card::new(), Alarm::default());
    let device = Virtio::open(card.places(), "eth0", Some(alarm.clone()));
    let mut device = device.expect("the device is good");
    assert!(device.interrupts());
    assert_eq!(card.0.lock().unwrap().message, [0, u16::MAX]);
    for is_wanted in [false, true, true, false] {
        alarm.set(is_wanted);
        // A frame from before the switch is found.
        assert!(card.receive(&frame(1, 60)));
        assert_eq!(received(&mut device), [frame(1, 60)]);
        assert_eq!([0, 1].map(|queue| card.may_interrupt(queue)), [is_wanted, false]);
    }
    alarm.set(true);
    for (has_messages, alarm) in [(false, Some(alarm)), (true, None)] {
        let card = Card::new();
        card.0.lock().unwrap().has_messages = has_messages;
        let mut device = Virtio::open(card.places(), "eth0", alarm).expect("the device is good");
        assert!(!device.interrupts() && received(&mut device).is_empty());
        assert!(!card.may_interrupt(0));
    }
}

#[test]
fn frames_come_and_go_as_they_are_many_times_round_the_rings() {
    let card = Card::new();
    let mut device = card.open();
    for round in 0..70_000 {
        let bytes = frame(round, 60 + round % 1455);
        assert!(card.receive(&bytes));
        assert_eq!(received(&mut device), [&bytes[..]]);
        assert_eq!(transmit(&mut device, std::slice::from_ref(&bytes)), Lost::NONE);
        assert_eq!(card.send(), [bytes]);
    }
    let counted = device.statistics();
    assert_eq!((counted.received, counted.transmitted), (70_000, 70_000));
}

#[test]
fn frames_that_are_sent_together_are_announced_once() {
    let card = Card::new();
    let mut device = card.open();
    let before = card.0.lock().unwrap().notices[1];
    let frames: Vec<_> = (0..64).map(|number| frame(number, 100)).collect();
    assert_eq!(transmit(&mut device, &frames), Lost::NONE);
    assert_eq!(card.0.lock().unwrap().notices[1], before + 1);
    assert_eq!(card.send(), frames);
    // A device that polls gets no announcement.
    let used = card.0.lock().unwrap().addresses[1][2] as usize;
    // SAFETY: the used ring begins there, with its flags.
    unsafe { (used as *mut u16).write_volatile(1) };
    assert_eq!(transmit(&mut device, &frames[..1]), Lost::NONE);
    assert_eq!(card.0.lock().unwrap().notices[1], before + 1);
}

#[test]
fn a_burst_comes_in_batches_in_order_and_buffers_come_back() {
    let card = Card::new();
    let mut device = card.open();
    for _ in 0..3 {
        let taken = (0..1000).take_while(|number| card.receive(&frame(*number, 60))).count();
        assert_eq!(taken, usize::from(SIZE));
        let mut came = Vec::new();
        loop {
            let batch = received(&mut device);
            if batch.is_empty() {
                break;
            }
            came.extend(batch);
        }
        assert_eq!(came, (0..taken).map(|number| frame(number, 60)).collect::<Vec<_>>());
    }
}

#[test]
fn what_does_not_fit_is_lost_and_counted() {
    let card = Card::new();
    let mut device = card.open();
    let frames: Vec<_> = (0..64).map(|number| frame(number, 100)).collect();
    let lost: u32 = (0..3).map(|_| transmit(&mut device, &frames).count()).sum();
    assert_eq!((lost, device.statistics().transmit_full), (64, 64));
    assert_eq!(card.send().len(), usize::from(SIZE));
    for odd in [frame(0, 13), frame(0, LONGEST + 1)] {
        assert_eq!(transmit(&mut device, &[odd]).count(), 1);
    }
    assert_eq!(transmit(&mut device, &frames), Lost::NONE);
}

#[test]
fn a_link_that_goes_down_is_noticed() {
    let card = Card::new();
    let mut device = card.open();
    assert!(device.maintain().is_none());
    card.0.lock().unwrap().link = 0;
    assert!(matches!(device.maintain(), Some(Change::Down)));
    card.0.lock().unwrap().link = 1;
    assert!(matches!(device.maintain(), Some(Change::Up)));
    assert_eq!(device.statistics().link_losses, 1);
}

#[test]
fn registers_are_found_by_their_capabilities() {
    let mut cards = Cards::one(0x1041_1af4);
    assert_eq!(places(&mut cards, PLACE), Err(Error::NotModern));
    cards.write(PLACE, 0x04, 1 << 20);
    cards.write(PLACE, 0x34, 0x40);
    let mut capability = |at: u8, next: u8, kind: u8, [window, start, len, further]: [u32; 4]| {
        cards.write(PLACE, at, u32::from(kind) << 24 | u32::from(next) << 8 | 9);
        for (place, word) in [window, start, len, further].into_iter().enumerate() {
            cards.write(PLACE, at + 4 + 4 * place as u8, word);
        }
    };
    capability(0x40, 0x60, 1, [4, 0, 56, 0]);
    capability(0x60, 0x80, 2, [4, 0x3000, 0x1000, 4]);
    capability(0x80, 0xa0, 4, [4, 0x2000, 0x1000, 0]);
    // A second group of one kind has lower preference, and one capability lies beyond the end.
    capability(0xa0, 0xf0, 1, [1, 0, 56, 0]);
    let place = |at, len| Place { window: 4, at, len };
    let expected = Places {
        common: place(0, 56),
        notify: place(0x3000, 0x1000),
        notify_sizes: [0x1000, 4],
        device: place(0x2000, 0x1000),
    };
    assert_eq!(places(&mut cards, PLACE), Ok(expected));
    cards.write(PLACE, 0x4c, 55);
    cards.write(PLACE, 0xac, 55);
    assert_eq!(places(&mut cards, PLACE), Err(Error::NotModern));
}

proptest! {
    /// With any entries of a device's rings, received frames lie in their buffers.
    #[test]
    fn no_entry_of_a_ring_does_harm(
        lies in proptest::collection::vec((0..200_u32, any::<u16>(), any::<bool>()), 1..400),
    ) {
        let card = Card::new();
        let mut device = card.open();
        for (number, len, is_wild) in lies {
            let number = if is_wild { u32::MAX - number } else { number };
            for queue in [0, 1] {
                card.give_back(queue, number, len.into());
            }
            for frame in received(&mut device) {
                prop_assert!((SHORTEST..=LONGEST).contains(&frame.len()));
            }
            transmit(&mut device, &[frame(1, 60)]);
        }
        prop_assert!(device.statistics().received <= 400);
    }
}
