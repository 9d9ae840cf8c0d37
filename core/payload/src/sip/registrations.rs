//! Registrations that the hosts of a flow ask for, and what the registrar grants: for each port,
//! how long it is needed.

/// Lifetime of a registration that says none, seconds (RFC 3261 section 10.2).
pub(super) const REGISTRATION: u16 = 3600;

/// Seconds until a time of which only the low bits are known; 0 if it has passed.
pub(super) fn seconds_left(until: u16, now: u32) -> u16 {
    let left = until.wrapping_sub(now as u16);
    if left <= REGISTRATION { left } else { 0 }
}

/// A registration of a flow: one contact of one address of record. Times have the low bits of
/// seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Registration {
    /// Hash of the address of record; 0: none.
    pub(super) record: u16,
    /// Internal port of the contact.
    pub(super) port: u16,
    /// Hash of the last request; 0: its answer could not be told.
    pub(super) request: u16,
    /// Time for which the endpoint is kept: as asked, and after the answer as granted.
    pub(super) until: u16,
    /// Time that the registrar granted last.
    pub(super) granted: u16,
}

impl Registration {
    pub(super) fn is_in_force(&self, now: u32) -> bool {
        self.record != 0 && seconds_left(self.until, now) > 0
    }
}

/// The last registrations of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Registrations {
    pub(super) all: [Registration; 4],
    /// True if there were more than four at once.
    pub(super) is_beyond: bool,
}

impl Registrations {
    /// Notes that a host asks for a registration of a contact.
    pub(super) fn ask(
        &mut self,
        (record, port): (u16, u16),
        request: u16,
        lifetime: u16,
        now: u32,
    ) {
        let is_same = |one: &Registration| (one.record, one.port) == (record, port);
        let known = self.all.iter().position(is_same);
        let free = || self.all.iter().position(|one| !one.is_in_force(now));
        let Some(at) = known.or_else(free) else {
            self.is_beyond = true;
            return;
        };
        let granted = if known.is_some() { self.all[at].granted } else { now as u16 };
        let until = (now as u16).wrapping_add(lifetime);
        self.all[at] = Registration { record, port, request, until, granted };
    }

    /// Seconds for which the registrations of a port need it. Of the contact that a new request
    /// names, only what was granted counts.
    pub(super) fn need(&self, port: u16, renewed: Option<u16>, now: u32) -> u16 {
        let of_port = self.all.iter().filter(|one| one.record != 0 && one.port == port);
        let until = |one: &Registration| match renewed {
            Some(record) if record == one.record => one.granted,
            _ => one.until,
        };
        of_port.map(|one| seconds_left(until(one), now)).max().unwrap_or(0)
    }

    /// Removes the registrations of an address of record. True: the last one of a port was among
    /// them.
    pub(super) fn remove(&mut self, record: u16, port: u16, now: u32) -> bool {
        let is_it = |one: &Registration| one.record == record && one.is_in_force(now);
        let had = self.all.iter().any(|one| is_it(one) && one.port == port);
        for one in self.all.iter_mut().filter(|one| one.record == record) {
            *one = Registration::default();
        }
        had && !self.is_beyond && self.need(port, None, now) == 0
    }
}
