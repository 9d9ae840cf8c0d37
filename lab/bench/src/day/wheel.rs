//! What is to happen later: a ring of lists, one a second. What lies further ahead than the ring is
//! long waits in its list for another turn.

/// Seconds of a turn: longer than the longest wait between two packets of a session.
const SECONDS: usize = 1 << 14;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A subscriber appears.
    Come,
    /// It goes.
    Leave,
    /// It opens sessions.
    Burst,
    /// A session of a protocol without connections sends a packet.
    RefreshUdp,
    /// A connection does.
    RefreshTcp,
    /// A connection is closed by both ends.
    Close,
}

/// Something that will happen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    /// When, seconds.
    pub(super) due: u32,
    /// When the session ends that it is about, seconds.
    pub(super) until: u32,
    /// The subscriber.
    pub(super) who: u32,
    /// The session's internal port.
    pub(super) port: u16,
    /// Which of the subscriber's stays it belongs to: with the next one it is void.
    pub(super) stay: u8,
    pub(super) what: What,
}

const _: () = assert!(size_of::<Item>() == 16);

/// All that will happen.
pub(super) struct Wheel {
    slots: Vec<Vec<Item>>,
}

impl Wheel {
    pub(super) fn new() -> Self {
        Self { slots: vec![Vec::new(); SECONDS] }
    }

    pub(super) fn add(&mut self, item: Item) {
        self.slots[item.due as usize % SECONDS].push(item);
    }

    /// Takes out what is due at this second, in the order in which it was added.
    pub(super) fn take(&mut self, second: u32) -> Vec<Item> {
        let slot = &mut self.slots[second as usize % SECONDS];
        let (due, later) = std::mem::take(slot).into_iter().partition(|item| item.due <= second);
        *slot = later;
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_happen_at_their_second_though_it_be_turns_ahead() {
        let mut wheel = Wheel::new();
        let far = 3 * SECONDS as u32 + 7;
        for (who, due) in [(0, 7), (1, far), (2, 8), (3, 7)] {
            let what = What::Burst;
            wheel.add(Item { due, until: 0, who, port: 0, stay: 0, what });
        }
        let mut seen = Vec::new();
        for second in 0..=far {
            seen.extend(wheel.take(second).iter().map(|item| (second, item.who)));
        }
        assert_eq!(seen, [(7, 0), (7, 3), (8, 2), (far, 1)]);
    }
}
