//! What Chugh measured: "Impact of NAT on router performance", master's thesis, Virginia Tech 2003,
//! on a Cisco 7206VXR with NPE-300.

/// Delay, milliseconds, by frames: without NAT, and with 20,000 entries.
pub(super) const DELAY_MS: [(&str, f64, f64); 3] =
    [("64", 0.00183, 0.00287), ("128", 0.00188, 0.00301), ("IMIX", 0.00207, 0.00309)];

/// What NAT takes from throughput at 0.1 % loss, 64 bytes, 1,000 entries.
pub(super) const THROUGHPUT_CHANGE: f64 = -0.17;

/// Bytes of memory an entry.
pub(super) const BYTES_PER_ENTRY: u32 = 124;

/// Use of the processor at 64 bytes, from the fewest entries to the most.
pub(super) const PROCESSOR: [f64; 2] = [0.89, 0.99];
