//! Edits of a message: new addresses, and names of another length with the pointers behind them.

use super::message::Message;
use crate::message::Context;
use crate::reason::Reason;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// Most edits of a message that are made one by one. Beyond, one edit spans them all.
const MOST: usize = 16;

/// Longest text of an edit, bytes.
const LONGEST_TEXT: usize = 4000;

/// Place of the bits AD and CD.
const FLAGS: usize = 3;

/// Edits by their place: number of bytes that they replace, and the new bytes.
#[derive(Debug, Default)]
pub(super) struct Draft {
    edits: BTreeMap<usize, (usize, Vec<u8>)>,
    /// True if a name that has to stay would change with another one.
    is_impossible: bool,
}

impl Draft {
    pub(super) fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// Replaces `len` bytes.
    pub(super) fn put(&mut self, at: usize, len: usize, text: &[u8]) {
        self.edits.insert(at, (len, text.to_vec()));
    }

    /// Says that nobody has validated the answer.
    pub(super) fn clear_validated(&mut self, bytes: &[u8]) {
        const VALIDATED: u8 = 0x20;
        self.put(FLAGS, 1, &[bytes[FLAGS] & !VALIDATED]);
    }

    /// Gives the inverse names of an address that of another one.
    pub(super) fn rename(&mut self, message: &Message<'_>, old: Ipv4Addr, new: Ipv4Addr) {
        let octets = new.octets();
        for name in &message.names {
            if message.inverse(name) != Some(old) {
                continue;
            }
            for (at, octet) in name.labels().iter().zip(octets.iter().rev()) {
                let Some(label) = message.label(*at) else { continue };
                let text = octet.to_string();
                if label != text.as_bytes() {
                    let text = format!("{}{text}", char::from(text.len() as u8));
                    self.put(*at, 1 + label.len(), text.as_bytes());
                }
            }
        }
        // Names that share labels with a changed one change with it. A zone of inverse names may.
        let changes = |at: &usize| self.edits.contains_key(at);
        let is_other = |address: Option<Ipv4Addr>| address.is_some_and(|address| address != old);
        let mut names = message.names.iter();
        let is_shared =
            names.any(|name| is_other(message.inverse(name)) && name.labels().iter().any(changes));
        let is_in_data = |at: &usize| message.data.iter().any(|data| data.contains(at));
        self.is_impossible |= is_shared || self.edits.keys().any(is_in_data);
    }

    /// Corrects the pointers, and gives the edits to the framework. The message has `before` bytes
    /// of its length before it.
    pub(super) fn write(
        mut self,
        message: &Message<'_>,
        before: usize,
        context: &mut Context<'_>,
    ) -> Result<(), Reason> {
        if self.is_impossible {
            return Err(Reason::Ambiguous);
        }
        self.correct_pointers(message);
        let edits = self.merged(message.bytes);
        let change = edits.iter().map(|(_, len, text)| text.len() as isize - *len as isize);
        let len = message.bytes.len().checked_add_signed(change.sum()).unwrap_or_default();
        let text: usize = edits.iter().map(|(_, _, text)| text.len()).sum();
        if text > LONGEST_TEXT {
            return Err(Reason::TooLong);
        }
        if before > 0 && len != message.bytes.len() {
            let len = (len as u16).to_be_bytes();
            context.replace(0..before, &len).map_err(|_| Reason::NoBuffer)?;
        }
        for (at, len, text) in edits {
            let start = before + at;
            context.replace(start..start + len, &text).map_err(|_| Reason::NoBuffer)?;
        }
        Ok(())
    }

    /// Changes the pointers to places that move.
    fn correct_pointers(&mut self, message: &Message<'_>) {
        let moved = |target: usize| {
            let before = self.edits.range(..target);
            let change = before.map(|(_, (len, text))| text.len() as isize - *len as isize);
            target.checked_add_signed(change.sum()).unwrap_or(target)
        };
        let pointers = message.pointers.iter().filter_map(|(at, target)| {
            let new = moved(*target);
            (new != *target).then_some((*at, 0xc000 | new as u16))
        });
        for (at, pointer) in pointers.collect::<Vec<_>>() {
            self.put(at, 2, &pointer.to_be_bytes());
        }
    }

    /// The edits in order; one if there are many.
    fn merged(self, bytes: &[u8]) -> Vec<(usize, usize, Vec<u8>)> {
        let edits: Vec<_> =
            self.edits.into_iter().map(|(at, (len, text))| (at, len, text)).collect();
        let (Some((first, ..)), Some((last, len, _))) = (edits.first(), edits.last()) else {
            return edits;
        };
        if edits.len() <= MOST {
            return edits;
        }
        let (first, end) = (*first, last + len);
        let (mut text, mut at) = (Vec::new(), first);
        for (start, len, new) in edits {
            text.extend_from_slice(&bytes[at..start]);
            text.extend(new);
            at = start + len;
        }
        Vec::from([(first, end - first, text)])
    }
}
