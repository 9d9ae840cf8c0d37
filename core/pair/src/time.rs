//! Translation of times of the sender's monotonic scale to the receiver's.

/// The offset between two scales, as far as it is known.
///
/// A packet tells when it was sent. The least difference between arrival and sending is the offset
/// plus the shortest delay of the link. So a translated time is late by that delay, and never
/// early. Wall clocks have no effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Translation(Option<i128>);

impl Translation {
    /// Notes a packet: the time that it was sent, of the sender's scale, and the time of its
    /// arrival, of the receiver's scale. Nanoseconds.
    pub fn observe(&mut self, sent: u64, arrived: u64) {
        let difference = i128::from(arrived) - i128::from(sent);
        self.0 = Some(self.0.map_or(difference, |least| least.min(difference)));
    }

    /// The receiver's time of a time of the sender, nanoseconds. `None` before the first packet.
    pub fn translate(&self, time: u64) -> Option<u64> {
        let translated = (i128::from(time) + self.0?).clamp(0, i128::from(u64::MAX));
        Some(translated as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_packet_gives_the_offset() {
        let mut translation = Translation::default();
        assert_eq!(translation.translate(5), None);
        translation.observe(1_000, 90);
        assert_eq!(translation.translate(1_500), Some(590));
        translation.observe(1_100, 170);
        translation.observe(1_200, 500);
        assert_eq!(translation.translate(1_500), Some(570));
        assert_eq!(translation.translate(0), Some(0), "before the receiver's scale began");
        translation.observe(0, u64::MAX);
        assert_eq!(translation.translate(u64::MAX), Some(u64::MAX - 930));
    }
}
