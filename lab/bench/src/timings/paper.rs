//! Results of Tsetse, Wijesinha, Karne and Loukili with their NAT on a bare PC (Towson University,
//! 2012).

/// Time to add an entry, to look one up, and to forward a packet, microseconds.
pub(super) const INTERNAL_US: [f64; 3] = [1.83, 0.165, 1.86];

/// The gateway without an operating system, and Linux with iptables on the same PC.
pub(super) struct Compared {
    pub(super) bare: f64,
    pub(super) linux: f64,
}

impl Compared {
    const fn new(bare: f64, linux: f64) -> Self {
        Self { bare, linux }
    }

    /// Ratio of the bare gateway's figure to Linux'.
    pub(super) fn ratio(&self) -> f64 {
        self.bare / self.linux
    }
}

/// Packets a second, TCP.
pub(super) const TCP_PPS: Compared = Compared::new(13_992.0, 9_560.0);
/// Packets a second, 80 % TCP and 20 % UDP.
pub(super) const MIXED_PPS: Compared = Compared::new(12_735.0, 9_522.0);
/// Time to establish an HTTP connection, milliseconds.
pub(super) const CONNECTION_MS: Compared = Compared::new(0.214, 0.262);
/// Time to the answer, milliseconds.
pub(super) const RESPONSE_MS: Compared = Compared::new(0.500, 0.522);
/// Throughput of 16 TCP connections over links of 100 Mbit/s, Mbit/s.
pub(super) const THROUGHPUT: Compared = Compared::new(70.0, 63.0);
