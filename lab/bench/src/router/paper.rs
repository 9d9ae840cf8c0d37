//! Results of Chugh: "Impact of NAT on router performance", master's thesis, Virginia Tech 2003, on
//! a Cisco 7206VXR with NPE-300.

/// Delay, milliseconds, by length of frames: without NAT, and with 20,000 entries.
pub(super) const DELAY_MS: [(&str, f64, f64); 3] =
    [("64", 0.00183, 0.00287), ("128", 0.00188, 0.00301), ("IMIX", 0.00207, 0.00309)];

/// Change of throughput by NAT at 0.1 % loss, 64 bytes, 1,000 entries.
pub(super) const THROUGHPUT_CHANGE: f64 = -0.17;

/// Bytes of memory of one entry.
pub(super) const BYTES_PER_ENTRY: u32 = 124;

/// Use of the processor at 64 bytes, with the fewest entries and with the most.
pub(super) const PROCESSOR: [f64; 2] = [0.89, 0.99];
