//! What a program tells controllers: digests, and frames that it sends to [`CONTROLLER_PORT`].
//!
//! Frames are kept for a controller that has asked a moment ago, and for no other. What was told
//! while nobody listened is gone when somebody does.

use super::{Answer, Machine};

/// The port by which frames go to controllers, and to no device.
pub const CONTROLLER_PORT: u32 = 0xffff_fffd;

/// How long a controller that has asked is taken to listen, nanoseconds.
const ATTENTION: u64 = 1_000_000_000;

/// Most frames that wait for controllers.
const MOST_PACKETS: usize = 256;

/// Something that a program tells controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notification {
    /// A frame that it sent to [`CONTROLLER_PORT`].
    Packet(Vec<u8>),
    /// A digest.
    Digest {
        /// Its name.
        name: String,
        /// Its fields, in order.
        values: Vec<u128>,
    },
}

impl Machine<'_> {
    /// Keeps a frame for controllers, if one listens and there is room; whether it is kept.
    pub fn tell(&mut self, packet: &[u8]) -> bool {
        let is_kept = self.is_heard() && self.packets.len() < MOST_PACKETS;
        if is_kept {
            self.packets.push_back(packet.to_vec());
        }
        is_kept
    }

    fn is_heard(&self) -> bool {
        let now = self.world.now();
        self.asked.is_some_and(|asked| now < asked.saturating_add(ATTENTION))
    }

    /// Somebody listens: the oldest of what was told.
    pub(super) fn notifications(&mut self, most: usize) -> Answer {
        if !self.is_heard() {
            self.packets.clear();
            self.world.clear();
        }
        self.asked = Some(self.world.now());
        let frames = self.packets.len().min(most);
        let mut all: Vec<Notification> =
            self.packets.drain(..frames).map(Notification::Packet).collect();
        while all.len() < most
            && let Some((name, fields)) = self.digest()
        {
            let values = fields.into_iter().map(|(_, value)| value).collect();
            all.push(Notification::Digest { name: name.to_owned(), values });
        }
        Answer::Notifications(all)
    }
}
