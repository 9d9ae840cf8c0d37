//! Memory and methods of a packet socket.

/// Sizes of a packet socket's queues; a value out of range means the nearest in range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Frames that the receive ring holds, 256 to 65,536; rounded up to a power of two. A large MTU
    /// reduces the number: the ring takes at most 256 MiB.
    pub slots: usize,
    /// Bytes that may wait to be sent, 64 KiB to 256 MiB.
    pub send_buffer: usize,
    /// Goal of receiving.
    pub mode: Mode,
    /// Method of sending.
    pub sending: Sending,
}

/// Goal of receiving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Latency: no frame waits for others (TPACKET_V2).
    #[default]
    Latency,
    /// Throughput (TPACKET_V3): the kernel hands frames over by blocks, when they are full or after
    /// a millisecond. The memory of the same number of slots holds several times as many small
    /// frames.
    Rate,
}

/// Method by which a packet socket sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sending {
    /// A call with a list of frames (`sendmmsg`).
    Calls,
    /// A ring that is shared with the kernel (TX_RING).
    #[default]
    Ring,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            slots: 4096,
            send_buffer: 4 << 20,
            mode: Mode::default(),
            sending: Sending::default(),
        }
    }
}

impl Config {
    const MOST_RING_BYTES: usize = 256 << 20;

    /// Number of slots of a ring whose slots have this many bytes.
    pub(super) fn ring_slots(&self, slot_len: usize) -> usize {
        let slots = self.slots.clamp(256, 65_536).next_power_of_two();
        slots.min((Self::MOST_RING_BYTES / slot_len).max(256))
    }

    /// Number of blocks of a ring that is as large as one of slots for usual frames. If frames come
    /// slowly, a block is handed over after a millisecond with few frames in it. So there are
    /// enough blocks for the time in which another thread has the core.
    pub(super) fn ring_blocks(&self, block_len: usize) -> usize {
        const USUAL_SLOT: usize = 2048;
        const LEAST: usize = 32;
        (self.ring_slots(USUAL_SLOT) * USUAL_SLOT / block_len).max(LEAST)
    }

    /// Size of the send buffer in range, bytes.
    pub(super) fn send_buffer_bytes(&self) -> libc::c_int {
        self.send_buffer.clamp(64 << 10, 256 << 20) as libc::c_int
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_stay_in_range() {
        let slots = |slots, len| Config { slots, ..Config::default() }.ring_slots(len);
        assert_eq!(slots(4096, 2048), 4096);
        assert_eq!(slots(0, 2048), 256);
        assert_eq!(slots(300, 2048), 512);
        assert_eq!(slots(usize::MAX, 2048), 65_536);
        assert_eq!(slots(65_536, 16_384), 16_384);
        let blocks = |slots| Config { slots, ..Config::default() }.ring_blocks(128 << 10);
        assert_eq!([0, 4096, usize::MAX].map(blocks), [32, 64, 1024]);
        let buffer = |send_buffer| Config { send_buffer, ..Config::default() }.send_buffer_bytes();
        assert_eq!(buffer(0), 65_536);
        assert_eq!(buffer(usize::MAX), 256 << 20);
    }
}
