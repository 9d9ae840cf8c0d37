//! Messages of a program to controllers: digests, and frames that it sends to [`CONTROLLER_PORT`].
//!
//! Frames are kept for a controller that has asked a moment ago, and for no other. Frames that came
//! while no controller listened are lost.

use super::{Answer, Machine};

/// Port of frames to controllers; no device has it.
pub const CONTROLLER_PORT: u32 = 0xffff_fffd;

/// Time for which a controller counts as a listener after its request, nanoseconds.
const ATTENTION: u64 = 1_000_000_000;

/// Most frames that wait for controllers.
const MOST_PACKETS: usize = 256;

/// A message of a program to controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notification {
    /// A frame that the program sent to [`CONTROLLER_PORT`].
    Packet(Vec<u8>),
    /// A digest.
    Digest {
        /// Name of the digest.
        name: String,
        /// Fields of the digest, in order.
        values: Vec<u128>,
    },
}

impl Machine<'_> {
    /// Keeps a frame for controllers, if one listens and there is room; returns true if it is kept.
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

    /// Returns the oldest messages; the asker counts as a listener.
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
