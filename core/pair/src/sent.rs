//! What a sender has sent.

/// Counters of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Packets.
    pub packets: u64,
    /// Records, ends included.
    pub records: u64,
    /// Bytes of all packets.
    pub bytes: u64,
    /// Packets that were lost, or confirmed too late.
    pub lost: u64,
    /// Keys that the partner has asked for again.
    pub repaired: u64,
}

impl Sent {
    /// Counts a packet.
    pub(crate) fn note_packet(&mut self, records: usize, bytes: usize) {
        self.packets += 1;
        self.records += records as u64;
        self.bytes += bytes as u64;
    }

    /// The sum of two senders' counters.
    pub fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            records: self.records + other.records,
            bytes: self.bytes + other.bytes,
            lost: self.lost + other.lost,
            repaired: self.repaired + other.repaired,
        }
    }
}
