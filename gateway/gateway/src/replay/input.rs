//! Packets of two sides, in order of time, from one capture with two interfaces or from two
//! captures with one each.
//!
//! One capture: interface 0 is the inside, unless the names say otherwise (`inside` on interface 1,
//! or `outside` on interface 0). An interface that no block before the first packet describes is
//! assumed to be like the other; a third interface is an error. The order is that of the capture.
//! Each section is read independently.
//!
//! Two captures: merged by time; at the same time the inside goes first.

use super::Interfaces;
use natgate_engine::{Side, Timestamp};
use natgate_io::pcap::{Capture, Interface, Item, LinkType, ReadError, Record};
use std::io::Read;

/// Source of a replay's packets.
#[derive(Debug)]
pub struct Input<R>(Source<R>);

#[derive(Debug)]
enum Source<R> {
    Single(Box<Single<R>>),
    Pair(Box<Pair<R>>),
}

/// Error in one of the captures.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct InputError {
    /// Side of the damaged capture, if there are two.
    pub side: Option<Side>,
    /// The error.
    pub error: ReadError,
}

/// One step of the input.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Both interfaces are described.
    Described,
    /// A packet came; [`Input::frame`] has its bytes.
    Packet(Arrival),
}

/// Arrival of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Side that the packet came in on.
    pub side: Side,
    /// Type of the packet's first header.
    pub link: LinkType,
    /// Time of the arrival.
    pub time: Timestamp,
}

impl<R: Read> Input<R> {
    /// Reads one capture with two interfaces.
    pub fn single(capture: Capture<R>) -> Self {
        Self(Source::Single(Box::new(Single { capture, inside: None, first: None })))
    }

    /// Reads a capture of the inside and one of the outside.
    pub fn pair(inside: Capture<R>, outside: Capture<R>) -> Self {
        let half =
            |capture, side| Half { capture, side, interface: None, next: Next::Unread, latest: 0 };
        let halves = [half(inside, Side::Inside), half(outside, Side::Outside)];
        Self(Source::Pair(Box::new(Pair { halves, described: false, current: 0 })))
    }

    /// Returns the next step; `None` at the end.
    ///
    /// # Errors
    /// [`InputError`] if a capture is damaged; then there is nothing more to read.
    pub fn next_step(&mut self) -> Result<Option<Step>, InputError> {
        match &mut self.0 {
            Source::Single(single) => {
                single.next_step().map_err(|error| InputError { side: None, error })
            }
            Source::Pair(pair) => pair.next_step(),
        }
    }

    /// Bytes of the last packet.
    pub fn frame(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Source::Single(single) => single.capture.frame(),
            Source::Pair(pair) => pair.halves[pair.current].capture.frame(),
        }
    }

    /// Interfaces known so far.
    pub fn interfaces(&self) -> Interfaces {
        let (first_side, first, second) = match &self.0 {
            Source::Single(single) => {
                let [first, second] = single.first.clone().unwrap_or_default();
                (single.side(0), first, second)
            }
            Source::Pair(pair) => {
                // The user has named the sides, so the names in the captures do not matter.
                let [inside, outside] = pair.halves.each_ref().map(|half| {
                    half.interface.clone().map(|interface| Interface { name: None, ..interface })
                });
                (Side::Inside, inside, outside)
            }
        };
        let unknown = Interface { name: None, link: LinkType::RAW, snaplen: 0 };
        let like = |other: &Option<Interface>| Interface {
            name: None,
            ..other.clone().unwrap_or_else(|| unknown.clone())
        };
        let known = [
            first.clone().unwrap_or_else(|| like(&second)),
            second.clone().unwrap_or_else(|| like(&first)),
        ];
        let [first, second] = known;
        [named(first_side, first), named(first_side.other(), second)]
    }
}

/// Names an interface without a name after its side.
fn named(side: Side, mut interface: Interface) -> (Side, Interface) {
    interface.name.get_or_insert_with(|| side_name(side).to_vec());
    (side, interface)
}

fn side_name(side: Side) -> &'static [u8] {
    match side {
        Side::Inside => b"inside",
        Side::Outside => b"outside",
    }
}

/// A capture with two interfaces.
#[derive(Debug)]
struct Single<R> {
    capture: Capture<R>,
    /// Index of the inside interface in this section, once it is known.
    inside: Option<usize>,
    /// Interfaces of the first section that has any.
    first: Option<[Option<Interface>; 2]>,
}

impl<R: Read> Single<R> {
    fn next_step(&mut self) -> Result<Option<Step>, ReadError> {
        loop {
            match self.capture.next_item()? {
                None => return Ok(None),
                Some(Item::Section) => self.inside = None,
                Some(Item::Interface(index)) => {
                    self.describe(index)?;
                    if index == 1 {
                        return Ok(Some(Step::Described));
                    }
                }
                Some(Item::Packet(record)) => {
                    self.inside.get_or_insert_with(|| inside(self.capture.interfaces()));
                    return Ok(Some(Step::Packet(self.arrival(record))));
                }
            }
        }
    }

    fn describe(&mut self, index: usize) -> Result<(), ReadError> {
        let interfaces = self.capture.interfaces();
        if self.capture.is_classic() {
            return self.unsupported(
                "a classic pcap has one interface only; give two, by --inside and --outside",
            );
        }
        if index > 1 {
            return self.unsupported(
                "a third interface is described; there must be two, the inside and the outside",
            );
        }
        let named = inside(interfaces);
        if self.inside.is_some_and(|settled| settled != named) {
            return self.unsupported(
                "the name of interface 1 makes interface 0 the outside, of which packets have \
                 come as the inside's; interfaces must be described before the first packet",
            );
        }
        let described = [interfaces.first().cloned(), interfaces.get(1).cloned()];
        match &self.first {
            // Packets of a later section are written with the interfaces of the first.
            Some([_, Some(_)]) => {}
            _ => self.first = Some(described),
        }
        if index == 1 {
            self.inside = Some(named);
        }
        Ok(())
    }

    fn arrival(&self, record: Record) -> Arrival {
        let link = self.capture.interfaces()[record.interface].link;
        let time = Timestamp(record.time);
        Arrival { side: self.side(record.interface), link, time }
    }

    fn side(&self, interface: usize) -> Side {
        let inside = self.inside.unwrap_or_else(|| inside(self.capture.interfaces()));
        if interface == inside { Side::Inside } else { Side::Outside }
    }

    fn unsupported<T>(&self, what: &str) -> Result<T, ReadError> {
        Err(ReadError::Unsupported { offset: self.capture.offset(), what: what.into() })
    }
}

/// Index of the inside interface, according to the names.
fn inside(interfaces: &[Interface]) -> usize {
    let is = |index: usize, side| {
        interfaces.get(index).and_then(|interface| interface.name.as_deref())
            == Some(side_name(side))
    };
    let second = !is(0, Side::Inside) && (is(1, Side::Inside) || is(0, Side::Outside));
    usize::from(second)
}

/// Two captures with one interface each.
#[derive(Debug)]
struct Pair<R> {
    halves: [Half<R>; 2],
    described: bool,
    /// Index of the capture with the last packet.
    current: usize,
}

/// One of the two captures, read one packet ahead.
#[derive(Debug)]
struct Half<R> {
    capture: Capture<R>,
    side: Side,
    interface: Option<Interface>,
    next: Next,
    /// The latest time read.
    latest: u64,
}

#[derive(Debug)]
enum Next {
    Unread,
    Packet(Record),
    Failed(ReadError),
    End,
}

impl<R: Read> Pair<R> {
    fn next_step(&mut self) -> Result<Option<Step>, InputError> {
        if !self.described {
            self.described = true;
            self.halves.iter_mut().for_each(Half::read_interface);
            return Ok(Some(Step::Described));
        }
        self.halves.iter_mut().for_each(Half::read_ahead);
        let [inside, outside] = &self.halves;
        self.current = match (inside.key(), outside.key()) {
            (None, None) => return Ok(None),
            (Some(inside), Some(outside)) => usize::from(outside < inside),
            (inside, _) => usize::from(inside.is_none()),
        };
        self.halves[self.current].take().map(|arrival| Some(Step::Packet(arrival)))
    }
}

impl<R: Read> Half<R> {
    fn read_interface(&mut self) {
        loop {
            match self.capture.next_item() {
                Ok(Some(Item::Section)) => continue,
                Ok(Some(Item::Interface(_))) => {
                    self.interface = self.capture.interfaces().first().cloned();
                }
                // A packet cannot come first: its interface would not be described.
                Ok(Some(Item::Packet(_)) | None) => self.next = Next::End,
                Err(error) => self.next = Next::Failed(error),
            }
            return;
        }
    }

    fn read_ahead(&mut self) {
        while matches!(self.next, Next::Unread) {
            self.next = match self.capture.next_item() {
                Ok(Some(Item::Section | Item::Interface(0))) => Next::Unread,
                Ok(Some(Item::Interface(_))) => Next::Failed(ReadError::Unsupported {
                    offset: self.capture.offset(),
                    what: "a second interface is described; for captures with two, use --in".into(),
                }),
                Ok(Some(Item::Packet(record))) => {
                    self.latest = self.latest.max(record.time);
                    Next::Packet(record)
                }
                Ok(None) => Next::End,
                Err(error) => Next::Failed(error),
            };
        }
    }

    /// Sort key for the merge. Damage comes after the packets of both captures up to the time of
    /// the last packet before the damage: later packets of the other capture may not precede it.
    fn key(&self) -> Option<(u64, bool)> {
        match &self.next {
            Next::Unread | Next::End => None,
            Next::Packet(record) => Some((record.time, false)),
            Next::Failed(_) => Some((self.latest, true)),
        }
    }

    fn take(&mut self) -> Result<Arrival, InputError> {
        match std::mem::replace(&mut self.next, Next::Unread) {
            Next::Packet(record) => {
                let link = self.capture.interfaces()[record.interface].link;
                Ok(Arrival { side: self.side, link, time: Timestamp(record.time) })
            }
            Next::Failed(error) => {
                self.next = Next::End;
                Err(InputError { side: Some(self.side), error })
            }
            Next::Unread | Next::End => unreachable!("only what has a key is taken"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_io::pcap::Writer;

    fn interface(name: Option<&str>, link: LinkType) -> Interface {
        Interface { name: name.map(|name| name.as_bytes().to_vec()), link, snaplen: 0 }
    }

    /// A capture with interfaces of these names, and packets of one byte: (interface, time).
    fn capture(names: &[Option<&str>], packets: &[(u32, u64)]) -> Vec<u8> {
        let interfaces: Vec<_> =
            names.iter().map(|&name| interface(name, LinkType::ETHERNET)).collect();
        let mut writer = Writer::new(Vec::new(), &interfaces).unwrap();
        for (interface, time) in packets {
            writer.packet(*interface, *time, &[], &[*time as u8]).unwrap();
        }
        writer.into_inner()
    }

    /// (side, time) of every packet, and the end of the input.
    fn steps(input: &mut Input<&[u8]>) -> (Vec<(Side, u64)>, Result<(), InputError>) {
        let mut packets = Vec::new();
        loop {
            match input.next_step() {
                Ok(Some(Step::Packet(arrival))) => {
                    assert_eq!(input.frame(), [arrival.time.0 as u8]);
                    packets.push((arrival.side, arrival.time.0));
                }
                Ok(Some(Step::Described)) => {}
                Ok(None) => return (packets, Ok(())),
                Err(error) => return (packets, Err(error)),
            }
        }
    }

    fn single(bytes: &[u8]) -> (Vec<(Side, u64)>, Result<(), InputError>) {
        steps(&mut Input::single(Capture::new(bytes)))
    }

    fn pair(inside: &[u8], outside: &[u8]) -> (Vec<(Side, u64)>, Result<(), InputError>) {
        steps(&mut Input::pair(Capture::new(inside), Capture::new(outside)))
    }

    fn offset(end: Result<(), InputError>) -> u64 {
        match end.unwrap_err().error {
            ReadError::Damaged { offset, .. } | ReadError::Unsupported { offset, .. } => offset,
            ReadError::Io(error) => panic!("{error}"),
        }
    }

    use Side::{Inside, Outside};

    #[test]
    fn names_say_which_interface_is_the_inside() {
        let (inside, outside, other) = (Some("inside"), Some("outside"), Some("eth7"));
        for (names, first) in [
            ([None, None], Inside),
            ([inside, None], Inside),
            ([inside, inside], Inside),
            ([None, outside], Inside),
            ([other, other], Inside),
            ([None, inside], Outside),
            ([other, inside], Outside),
            ([outside, None], Outside),
            ([outside, inside], Outside),
        ] {
            let bytes = capture(&names, &[(0, 1), (1, 2)]);
            let mut input = Input::single(Capture::new(&bytes[..]));
            let (packets, end) = steps(&mut input);
            end.unwrap();
            assert_eq!(packets, [(first, 1), (first.other(), 2)], "{names:?}");
            let sides = input.interfaces().map(|(side, interface)| (side, interface.name));
            let name = |given: Option<&str>, side: Side| {
                Some(given.map_or(side_name(side).to_vec(), |name| name.as_bytes().to_vec()))
            };
            let expected =
                [(first, name(names[0], first)), (first.other(), name(names[1], first.other()))];
            assert_eq!(sides, expected);
        }
    }

    #[test]
    fn one_interface_has_all_packets() {
        let bytes = capture(&[None], &[(0, 1), (0, 2)]);
        let mut input = Input::single(Capture::new(&bytes[..]));
        let (packets, end) = steps(&mut input);
        end.unwrap();
        assert_eq!(packets, [(Inside, 1), (Inside, 2)]);
        let expected = [
            (Inside, interface(Some("inside"), LinkType::ETHERNET)),
            (Outside, interface(Some("outside"), LinkType::ETHERNET)),
        ];
        assert_eq!(input.interfaces(), expected);
        assert_eq!(single(&capture(&[Some("outside")], &[(0, 1)])).0, [(Outside, 1)]);
    }

    #[test]
    fn a_late_interface_must_not_change_the_sides() {
        let early = capture(&[None], &[(0, 1)]);
        // The late description comes after the section header and the unnamed interface 0.
        let late = |name| {
            let alone = capture(&[None], &[]).len();
            [&early[..], &capture(&[None, name], &[(1, 2)])[alone..]].concat()
        };
        let (packets, end) = single(&late(Some("outside")));
        end.unwrap();
        assert_eq!(packets, [(Inside, 1), (Outside, 2)]);
        let (packets, end) = single(&late(Some("inside")));
        assert_eq!((packets.len(), offset(end)), (1, early.len() as u64));
    }

    #[test]
    fn sections_stand_for_themselves() {
        let first = capture(&[None, None], &[(0, 1)]);
        let second = capture(&[None, Some("inside")], &[(0, 2), (1, 3)]);
        let (packets, end) = single(&[first, second].concat());
        end.unwrap();
        assert_eq!(packets, [(Inside, 1), (Outside, 2), (Inside, 3)]);
    }

    #[test]
    fn a_third_interface_is_refused() {
        let two = capture(&[None, None], &[]).len();
        let (packets, end) = single(&capture(&[None, None, None], &[(0, 1)]));
        assert_eq!((packets.len(), offset(end)), (0, two as u64));
    }

    #[test]
    fn pairs_are_merged_by_time_the_inside_first() {
        let inside = capture(&[None], &[(0, 2), (0, 5), (0, 3), (0, 9)]);
        let outside = capture(&[None], &[(0, 1), (0, 2), (0, 5), (0, 10)]);
        let (packets, end) = pair(&inside, &outside);
        end.unwrap();
        let expected = [
            (Outside, 1),
            (Inside, 2),
            (Outside, 2),
            (Inside, 5),
            (Inside, 3),
            (Outside, 5),
            (Inside, 9),
            (Outside, 10),
        ];
        assert_eq!(packets, expected);
    }

    #[test]
    fn damage_of_one_of_a_pair_ends_both() {
        let inside = capture(&[None], &[(0, 2), (0, 5), (0, 9)]);
        let outside = capture(&[None], &[(0, 1), (0, 5), (0, 6)]);
        let cut = inside.len() - 1;
        let (packets, end) = pair(&inside[..cut], &outside);
        assert_eq!(packets, [(Outside, 1), (Inside, 2), (Inside, 5), (Outside, 5)]);
        assert_eq!(end.as_ref().unwrap_err().side, Some(Inside));
        assert_eq!(offset(end), (inside.len() - 36) as u64);

        let (packets, end) = pair(&inside, &[]);
        assert_eq!((packets.len(), end.as_ref().unwrap_err().side), (0, Some(Outside)));
        assert_eq!(offset(end), 0);
        let (_, end) = pair(&inside, &capture(&[None, None], &[]));
        assert_eq!(end.unwrap_err().side, Some(Outside));
    }
}
