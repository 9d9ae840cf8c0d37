//! Datagrams of the tunnel as bytes: pieces of packets, and words of presence. Numbers are in
//! little-endian order. The channel authenticates the other node; the reader nevertheless believes
//! no length.

use natgate_pair::{Boot, Epoch};

/// Most pieces of a packet.
pub(super) const MOST_PIECES: usize = 8;

/// Bytes of a piece before its part of the packet.
pub(super) const HEAD: usize = 18;

/// Longest name of a realm, and the bytes that tell its length and the arrival.
pub(super) const NAME: usize = 2 + u8::MAX as usize;

/// Slices that one word of presence tells of.
pub(super) const SLICES: usize = 128;

const PRESENCE: u8 = 0;
const PIECE: u8 = 1;

/// How a packet has come to the node that passes it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival<'a> {
    /// From inside, from the realm with this name; an empty one for realm 0.
    Inside(&'a str),
    /// From outside.
    Outside,
    /// It turns round: its sender, of the realm with this name, is translated.
    Turned(&'a str),
}

impl<'a> Arrival<'a> {
    /// Its place in counters.
    pub(super) fn place(self) -> usize {
        match self {
            Self::Inside(_) => 0,
            Self::Outside => 1,
            Self::Turned(_) => 2,
        }
    }

    fn name(self) -> &'a str {
        match self {
            Self::Inside(name) | Self::Turned(name) => name,
            Self::Outside => "",
        }
    }

    /// Reads the beginning of a whole packet's bytes; returns the packet behind it.
    pub(super) fn read(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let ([place, len], rest) = bytes.split_first_chunk()?;
        let (name, packet) = rest.split_at_checked(usize::from(*len))?;
        let name = str::from_utf8(name).ok()?;
        let arrival = match place {
            0 => Self::Inside(name),
            1 => Self::Outside,
            2 => Self::Turned(name),
            _ => return None,
        };
        Some((arrival, packet))
    }
}

/// Identity of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Id {
    pub(super) slice: u16,
    pub(super) epoch: Epoch,
    /// The worker that passes it on, and the worker's number of it.
    pub(super) worker: u8,
    pub(super) number: u32,
}

/// A word of presence: the slices that the sender owns, and is there for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Presence {
    pub(super) from: Boot,
    pub(super) to: Boot,
    /// It grows with each word of a start.
    pub(super) number: u64,
    /// The first slice that it tells of.
    pub(super) first: u16,
    /// The epochs of the slices from then on; 0: the sender is not there.
    pub(super) epochs: Vec<Epoch>,
}

/// A datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Datagram<'a> {
    Presence(Presence),
    /// A piece with its place, and the number of pieces.
    Piece(Id, (u8, u8), &'a [u8]),
}

impl Presence {
    pub(super) fn write(&self) -> Vec<u8> {
        let Self { from, to, number, first, epochs } = self;
        let mut bytes = vec![PRESENCE];
        [from, to, number].iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        bytes.extend(first.to_le_bytes());
        epochs.iter().for_each(|epoch| bytes.extend(epoch.to_le_bytes()));
        bytes
    }
}

/// Writes a packet as datagrams of `room` bytes at most. `None`: it is too long.
pub(super) fn write(
    id: Id,
    arrival: Arrival<'_>,
    packet: &[u8],
    room: usize,
) -> Option<Vec<Vec<u8>>> {
    let name = arrival.name().as_bytes();
    let head = [arrival.place() as u8, u8::try_from(name.len()).ok()?];
    let each = room.checked_sub(HEAD).filter(|each| *each >= NAME)?;
    let len = head.len() + name.len() + packet.len();
    let count = len.div_ceil(each);
    if count > MOST_PIECES {
        return None;
    }
    let piece = |place: usize| {
        let mut bytes = Vec::with_capacity(HEAD + each.min(len));
        bytes.push(PIECE);
        bytes.extend(id.slice.to_le_bytes());
        bytes.extend(id.epoch.to_le_bytes());
        bytes.push(id.worker);
        bytes.extend(id.number.to_le_bytes());
        bytes.extend([place as u8, count as u8]);
        bytes
    };
    let mut pieces: Vec<Vec<u8>> = (0..count).map(piece).collect();
    // The names are shorter than a piece.
    let first = pieces.first_mut()?;
    first.extend(head);
    first.extend(name);
    let (beside, mut rest) = packet.split_at(packet.len().min(each - head.len() - name.len()));
    first.extend(beside);
    for piece in &mut pieces[1..] {
        let (part, later) = rest.split_at(rest.len().min(each));
        piece.extend(part);
        rest = later;
    }
    Some(pieces)
}

/// Reads a datagram. `None`: it is damaged, or of a later version.
pub(super) fn read(bytes: &[u8]) -> Option<Datagram<'_>> {
    let (kind, rest) = bytes.split_first()?;
    match *kind {
        PRESENCE => {
            let (numbers, rest) = rest.split_first_chunk::<24>()?;
            let [from, to, number] = [0, 8, 16]
                .map(|at| u64::from_le_bytes(std::array::from_fn(|byte| numbers[at + byte])));
            let (first, rest) = rest.split_first_chunk()?;
            let (epochs, odd) = rest.as_chunks();
            let is_valid = odd.is_empty() && epochs.len() <= SLICES;
            let epochs = epochs.iter().map(|epoch| u64::from_le_bytes(*epoch)).collect();
            let first = u16::from_le_bytes(*first);
            let presence = Presence { from, to, number, first, epochs };
            is_valid.then_some(Datagram::Presence(presence))
        }
        PIECE => {
            let (slice, rest) = rest.split_first_chunk()?;
            let (epoch, rest) = rest.split_first_chunk()?;
            let ([worker], rest) = rest.split_first_chunk()?;
            let (number, rest) = rest.split_first_chunk()?;
            let ([place, count], part) = rest.split_first_chunk()?;
            let id = Id {
                slice: u16::from_le_bytes(*slice),
                epoch: u64::from_le_bytes(*epoch),
                worker: *worker,
                number: u32::from_le_bytes(*number),
            };
            let is_valid = place < count && usize::from(*count) <= MOST_PIECES;
            is_valid.then_some(Datagram::Piece(id, (*place, *count), part))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: Id = Id { slice: 7, epoch: 9, worker: 3, number: 11 };

    #[test]
    fn packets_of_all_lengths_come_out_of_their_pieces() {
        for name in ["", "a", &"x".repeat(255)] {
            for arrival in [Arrival::Inside(name), Arrival::Outside, Arrival::Turned(name)] {
                for len in [0, 1, 800, 981, 982, 983, 1500, 7000] {
                    let packet: Vec<u8> = (0..len).map(|at| at as u8).collect();
                    let pieces = write(ID, arrival, &packet, 1000).expect("it is short enough");
                    let mut whole = Vec::new();
                    for (place, piece) in (0..).zip(&pieces) {
                        assert!(piece.len() <= 1000);
                        let read = read(piece).expect("it is whole");
                        let Datagram::Piece(id, places, part) = read else { panic!("{read:?}") };
                        assert_eq!((id, places), (ID, (place, pieces.len() as u8)));
                        whole.extend_from_slice(part);
                        assert!((0..HEAD).all(|len| super::read(&piece[..len]).is_none()));
                    }
                    assert_eq!(Arrival::read(&whole), Some((arrival, &packet[..])));
                }
            }
        }
        assert_eq!(write(ID, Arrival::Outside, &[0; 8000], 1000), None);
        assert_eq!(write(ID, Arrival::Outside, &[0; 1], 100), None, "names have no room");
        assert_eq!(write(ID, Arrival::Inside(&"x".repeat(256)), &[0; 1], 1000), None);
    }

    #[test]
    fn what_no_sender_writes_is_not_read() {
        let mut piece = write(ID, Arrival::Outside, &[1; 9], 1000).expect("short").remove(0);
        for (place, count) in [(1, 1), (0, 0), (8, 9), (0, 9)] {
            (piece[16], piece[17]) = (place, count);
            assert_eq!(read(&piece), None, "{place} of {count}");
        }
        assert_eq!(read(&[2; 40]), None);
        assert_eq!(Arrival::read(&[3, 0]), None);
        assert_eq!(Arrival::read(&[0, 2, b'a']), None);
        assert_eq!(Arrival::read(&[0, 1, 0xff]), None);
        assert_eq!(Arrival::read(&[0]), None);
        let epochs = vec![1; SLICES];
        let mut presence = Presence { from: 1, to: 2, number: 3, first: 4, epochs };
        let bytes = presence.write();
        assert_eq!(read(&bytes), Some(Datagram::Presence(presence.clone())));
        assert!(bytes.len() <= 1096, "it fits each datagram");
        assert!((0..27).chain([28, 34]).all(|len| read(&bytes[..len]).is_none()));
        presence.epochs.push(1);
        assert_eq!(read(&presence.write()), None);
    }
}
