//! 19.7: the fragments of a packet that is too long.

use super::headers::Six;
use super::words::{checksum_of, put, total, word};

/// The longest fragment of a packet that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Length with all headers, bytes.
    pub len: usize,
    /// Identification of a packet of IPv6 that is no fragment yet.
    pub identification: u32,
}

/// The fragments of a packet.
pub(crate) fn cut(packet: &[u8], limit: Limit) -> Vec<Vec<u8>> {
    if packet[0] >> 4 == 6 { cut_six(packet, limit) } else { cut_four(packet, limit) }
}

/// Pieces of a payload: all but the last are multiples of eight bytes long. Each comes with its
/// offset, and true if it is the last.
fn pieces(payload: &[u8], room: usize) -> impl Iterator<Item = (usize, &[u8], bool)> {
    let step = room / 8 * 8;
    let count = payload.len().div_ceil(step);
    let numbered = payload.chunks(step).enumerate();
    numbered.map(move |(number, piece)| (number * step, piece, number + 1 == count))
}

fn cut_four(packet: &[u8], limit: Limit) -> Vec<Vec<u8>> {
    let (header, payload) = packet.split_at(20);
    let field = word(header, 6);
    let fragment = |(offset, piece, is_last): (usize, &[u8], bool)| {
        let more = if is_last { field & 0x2000 } else { 0x2000 };
        let mut out = [header, piece].concat();
        let len = out.len() as u16;
        put(&mut out, 2, len);
        put(&mut out, 6, more | (field % 0x2000 + (offset / 8) as u16));
        put(&mut out, 10, 0);
        let checksum = checksum_of(total(&out[..20]));
        put(&mut out, 10, checksum);
        out
    };
    pieces(payload, limit.len - 20).map(fragment).collect()
}

fn cut_six(packet: &[u8], limit: Limit) -> Vec<Vec<u8>> {
    let six = Six::read(packet, false).expect("a translated packet");
    let (next, payload) = (six.transport.protocol, six.transport.bytes);
    let identification = six.fragment.map_or(limit.identification, |(own, _)| own);
    let (first, more_follow) = (six.transport.offset, six.transport.more);
    let fragment = |(offset, piece, is_last): (usize, &[u8], bool)| {
        let mut out = packet[..40].to_vec();
        out[6] = 44;
        put(&mut out, 4, (8 + piece.len()) as u16);
        let more = u16::from(!is_last || more_follow);
        out.extend([next, 0]);
        out.extend(((first + offset) as u16 | more).to_be_bytes());
        out.extend(identification.to_be_bytes());
        out.extend(piece);
        out
    };
    pieces(payload, limit.len - 48).map(fragment).collect()
}
