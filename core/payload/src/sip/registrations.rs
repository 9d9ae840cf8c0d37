//! Registrations that the hosts of a flow ask for, and what the registrar grants: for each port,
//! how long it is needed.
//!
//! Times have the low bits of seconds. They mean another time after 65,536 seconds, so
//! [`Registrations::forget_passed`] comes before each use.

use crate::lifetime::seconds_left;

/// A registration of a flow: one contact of one address of record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Registration {
    /// Hash of the last request, until its final answer comes; 0: none.
    pub(super) request: u32,
    /// Hash of the address of record; 0: none.
    pub(super) record: u16,
    /// Internal port of the contact.
    pub(super) port: u16,
    /// Time for which the host asked last; after the answer, the time that was granted.
    pub(super) until: u16,
    /// Time that the registrar granted last.
    pub(super) granted: u16,
}

impl Registration {
    /// Seconds for which the port is needed: until the answer comes, the former time counts too.
    fn need(&self, now: u32) -> u16 {
        seconds_left(self.until, now).max(seconds_left(self.granted, now))
    }

    /// The registration with a granted time, if there is any.
    fn answered(self, left: u16, now: u32) -> Self {
        let until = (now as u16).wrapping_add(left);
        if left == 0 { Self::default() } else { Self { request: 0, until, granted: until, ..self } }
    }
}

/// The last registrations of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Registrations {
    pub(super) all: [Registration; 4],
    /// End of the registrations for which there was no place. Any port may be theirs.
    pub(super) beyond: u16,
}

impl Registrations {
    /// Forgets what has passed; everything if the last use `is_long_ago`, which is more than
    /// [`REGISTRATION`](crate::lifetime::REGISTRATION) seconds.
    pub(super) fn forget_passed(&mut self, is_long_ago: bool, now: u32) {
        for one in &mut self.all {
            if is_long_ago || one.need(now) == 0 {
                *one = Registration::default();
            }
            for time in [&mut one.until, &mut one.granted] {
                *time = (now as u16).wrapping_add(seconds_left(*time, now));
            }
        }
        let left = if is_long_ago { 0 } else { seconds_left(self.beyond, now) };
        self.beyond = (now as u16).wrapping_add(left);
    }

    /// Notes that a host asks for a registration of a contact; with the lifetime 0, for the end of
    /// one that is known. Until the answer, an end changes nothing (RFC 3261 section 10.3).
    pub(super) fn ask(
        &mut self,
        (record, port): (u16, u16),
        request: u32,
        lifetime: u16,
        now: u32,
    ) {
        let is_same = |one: &Registration| (one.record, one.port) == (record, port);
        let known = self.all.iter().position(is_same);
        let free = || self.all.iter().position(|one| one.record == 0);
        let until = (now as u16).wrapping_add(lifetime);
        if let (Some(at), 0) = (known, lifetime) {
            // The answer to the request before may have been lost.
            let granted = (now as u16).wrapping_add(self.all[at].need(now));
            self.all[at] = Registration { request, until, granted, ..self.all[at] };
            return;
        }
        if lifetime == 0 {
            return;
        }
        let Some(at) = known.or_else(free) else {
            if lifetime > seconds_left(self.beyond, now) {
                self.beyond = until;
            }
            return;
        };
        let granted = if known.is_some() { self.all[at].granted } else { now as u16 };
        self.all[at] = Registration { request, record, port, until, granted };
    }

    /// Takes the final answer to a request, and returns the ports of its contacts, and for each
    /// whether the answer grants the end that the host has asked for. `granted` tells the seconds
    /// that the answer grants to a port: `None` if it does not say, which counts as asked. Another
    /// contact of the port may still have the time that was granted before: the answer lists it. A
    /// refusal leaves what was granted before.
    pub(super) fn answer(
        &mut self,
        (record, request): (u16, u32),
        is_refusal: bool,
        granted: &dyn Fn(u16) -> Option<u16>,
        now: u32,
    ) -> impl Iterator<Item = (u16, bool)> + use<> {
        let is_it =
            |one: &Registration| request != 0 && (one.record, one.request) == (record, request);
        let mut ports = [None; 4];
        for (one, place) in self.all.iter_mut().zip(&mut ports) {
            if !is_it(one) {
                continue;
            }
            let asked = seconds_left(one.until, now);
            let left = match is_refusal {
                true => seconds_left(one.granted, now),
                false => granted(one.port).map_or(asked, |granted| granted.min(one.need(now))),
            };
            *place = Some((one.port, left == 0 && !is_refusal));
            *one = one.answered(left, now);
        }
        ports.into_iter().flatten()
    }

    /// Seconds for which the registrations of a port need it.
    pub(super) fn need(&self, port: u16, now: u32) -> u16 {
        let of_port = self.all.iter().filter(|one| one.record != 0 && one.port == port);
        of_port.map(|one| one.need(now)).fold(seconds_left(self.beyond, now), u16::max)
    }

    /// The ports of the contacts of an address of record.
    pub(super) fn ports(&self, record: u16) -> impl Iterator<Item = u16> + use<> {
        let of_record = move |one: &Registration| one.record == record;
        self.all.into_iter().filter(of_record).map(|one| one.port)
    }
}
