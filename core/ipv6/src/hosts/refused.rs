//! New hosts whose packets the engine refuses: they lose their numbers.

use super::Hosts;
use core::net::Ipv4Addr;

impl Hosts {
    /// True if the host of the last number is new.
    #[inline]
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// The host that was refused last gets another chance.
    pub(crate) fn take_refusal_back(&mut self) {
        self.refusals = self.refusals.saturating_sub(1);
    }

    /// Frees the number that [`Hosts::intern`] gave last, if its host is new: the engine has
    /// refused its packet.
    pub fn forget_new(&mut self, number: Ipv4Addr) {
        if core::mem::take(&mut self.is_new)
            && let Some(at) = self.find_number(number.to_bits())
        {
            self.free(at);
        }
    }

    /// Notes the sender of the last packet, which the engine has refused.
    pub(crate) fn note_refused(&mut self, number: Option<Ipv4Addr>) {
        if let Some(number) = number.filter(|_| core::mem::take(&mut self.is_new)) {
            self.turn_away(number.to_bits());
        }
    }

    /// Notes a new host whose packets the engine has refused. The number stays until errors about
    /// the packets have been converted.
    pub(crate) fn turn_away(&mut self, number: u32) {
        self.turned_away.push(number);
    }

    /// Frees the numbers of new hosts whose packets were refused.
    #[inline]
    pub(crate) fn forget_refused(&mut self) {
        while let Some(number) = self.turned_away.pop() {
            if let Some(at) = self.find_number(number) {
                self.free(at);
            }
        }
    }
}
