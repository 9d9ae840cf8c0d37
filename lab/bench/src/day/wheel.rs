//! Scheduled events: a ring of lists, one a second. An event further ahead than the ring's length
//! stays in its list for another turn.

/// Seconds of one turn: longer than the longest wait between two packets of a session.
const SECONDS: usize = 1 << 14;

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A subscriber arrives.
    Come,
    /// A subscriber leaves.
    Leave,
    /// A subscriber opens sessions.
    Burst,
    /// A session of a protocol without connections sends a packet.
    RefreshUdp,
    /// A TCP connection sends a packet.
    RefreshTcp,
    /// Both ends close a connection.
    Close,
}

/// A scheduled event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    /// Time of the event, seconds.
    pub(super) due: u32,
    /// End of the event's session, seconds.
    pub(super) until: u32,
    /// The subscriber.
    pub(super) who: u32,
    /// Internal port of the session.
    pub(super) port: u16,
    /// Number of the subscriber's stay. The event is void in a later stay.
    pub(super) stay: u8,
    pub(super) what: What,
}

const _: () = assert!(size_of::<Item>() == 16);

/// All scheduled events.
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

    /// Takes the events that are due at this second, in the order of their insertion.
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
