//! Work on a packet's headers: the checks and the rewriting of an address translator.

use super::meter::Meter;
use super::table::{Maker, Session, Table, address_of, hash};
use crate::frame::{self, End, Frame, LEN};
use natgate_wire::checksum::Delta;
use natgate_wire::{Ipv4, Udp, protocol};

/// Packets that take their steps together, as in the engine.
const GROUP: usize = 64;

/// A packet on its way through a worker.
pub(super) struct Job {
    pub(super) frame: Box<Frame>,
    pub(super) is_inbound: bool,
    /// Worker that received the packet, and gets its buffer back.
    pub(super) from: u16,
}

/// Endpoints of a packet, and where its session is sought.
#[derive(Clone, Copy, Default)]
struct Glance {
    source: End,
    destination: End,
    hash: u64,
    line: Option<u32>,
}

/// Translates packets; returns the number of those that were refused.
pub(super) fn translate(
    table: &Table,
    jobs: &mut [Job],
    now: u32,
    maker: &mut Maker,
    meter: &mut impl Meter,
) -> usize {
    let mut refused = 0;
    for jobs in jobs.chunks_mut(GROUP) {
        let mut glances = [None; GROUP];
        for (job, glance) in jobs.iter().zip(&mut glances) {
            *glance = look(table, job, meter);
        }
        for (job, glance) in jobs.iter().zip(&mut glances) {
            let Some(glance) = glance else { continue };
            glance.line = if job.is_inbound {
                table.by_external(glance.destination, meter)
            } else {
                table.candidate(glance.hash, meter)
            };
        }
        for (job, glance) in jobs.iter_mut().zip(glances) {
            let done = glance.and_then(|glance| carry_out(table, job, glance, now, maker, meter));
            refused += usize::from(done.is_none());
        }
    }
    refused
}

/// Checks a packet, and starts to fetch what finds its session.
#[inline(always)]
fn look(table: &Table, job: &Job, meter: &mut impl Meter) -> Option<Glance> {
    meter.read(address_of(&*job.frame));
    let packet = Ipv4::new_checked(&job.frame.0[..LEN]).ok()?;
    let is_plain = packet.header_len() == 20 && !packet.is_fragment() && packet.ttl() > 1;
    if !is_plain || packet.protocol() != protocol::UDP || !packet.checksum_valid() {
        return None;
    }
    let segment = Udp::new_checked(packet.payload())?;
    let source = (packet.source(), segment.source_port());
    let destination = (packet.destination(), segment.destination_port());
    let hash = if job.is_inbound { 0 } else { hash(source) };
    if job.is_inbound {
        table.prefetch_external(destination);
    } else {
        table.prefetch_bucket(hash);
    }
    Some(Glance { source, destination, hash, line: None })
}

/// Translates one packet; `None`: it is refused.
#[inline(always)]
fn carry_out(
    table: &Table,
    job: &mut Job,
    glance: Glance,
    now: u32,
    maker: &mut Maker,
    meter: &mut impl Meter,
) -> Option<()> {
    let Glance { source, destination, hash, line } = glance;
    if job.is_inbound {
        let session = table.session(line?, now, meter);
        if (session.external, session.remote) != (destination, source) {
            return None;
        }
        rewrite(job, destination, session.internal, meter);
        return Some(());
    }
    let found = line.map(|line| table.session(line, now, meter));
    let session = match found.filter(|session| session.internal == source) {
        Some(session) => session,
        None => make(table, (source, destination), hash, (now, maker), meter)?,
    };
    if session.remote != destination {
        return None;
    }
    rewrite(job, source, session.external, meter);
    Some(())
}

#[cold]
fn make(
    table: &Table,
    ends: (End, End),
    hash: u64,
    (now, maker): (u32, &mut Maker),
    meter: &mut impl Meter,
) -> Option<Session> {
    let line = table.find_or_make(ends, hash, maker, meter)?;
    Some(table.session(line, now, meter))
}

/// Puts another endpoint in the place of the inside's.
#[inline(always)]
fn rewrite(job: &mut Job, old: End, new: End, meter: &mut impl Meter) {
    meter.write(address_of(&*job.frame));
    let is_inbound = job.is_inbound;
    let Ok(mut packet) = Ipv4::new_checked(&mut job.frame.0[..LEN]) else { return };
    if is_inbound {
        packet.set_destination(new.0);
    } else {
        packet.set_source(new.0);
    }
    let ttl = u16::from(packet.ttl()) << 8 | u16::from(packet.protocol());
    packet.set_ttl(packet.ttl() - 1);
    let delta = Delta::default().replace_u32(old.0, new.0);
    packet.update_checksum(delta.replace_u16(ttl, ttl - 256));
    let Some(mut segment) = Udp::new_checked(packet.payload_mut()) else { return };
    if is_inbound {
        segment.set_destination_port(new.1);
    } else {
        segment.set_source_port(new.1);
    }
    if segment.checksum() != 0 {
        let checksum = delta.replace_u16(old.1, new.1).apply(segment.checksum());
        segment.set_checksum(if checksum == 0 { u16::MAX } else { checksum });
    }
}

/// Writes a packet of a session.
pub(super) fn write(job: &mut Job, session: Session, is_inbound: bool) {
    job.is_inbound = is_inbound;
    if is_inbound {
        frame::udp(&mut job.frame, session.remote, session.external);
    } else {
        frame::udp(&mut job.frame, session.internal, session.remote);
    }
}

#[cfg(test)]
mod tests {
    use super::super::meter::Unmetered;
    use super::*;

    const SESSION: Session =
        Session { internal: (0x0a00_0001, 4000), external: (0, 0), remote: (0xc612_0001, 443) };

    fn job() -> Job {
        Job { frame: Box::new(Frame([0; 64])), is_inbound: false, from: 0 }
    }

    #[test]
    fn a_packet_and_its_answer_are_translated() {
        let table = Table::new(16, 0xcb00_7100, 1);
        let mut maker = Maker::new(&table, 0, 1);
        let mut jobs = [job()];
        write(&mut jobs[0], SESSION, false);
        assert_eq!(translate(&table, &mut jobs, 1, &mut maker, &mut Unmetered), 0);
        let external = frame::source(&jobs[0].frame);
        assert_eq!(external.0, 0xcb00_7100);
        let mut wanted = job();
        write(&mut wanted, Session { internal: external, ..SESSION }, false);
        let packet = Ipv4::new_checked(&jobs[0].frame.0[..LEN]).expect("a packet");
        assert!(packet.checksum_valid() && packet.ttl() == 63);
        assert_eq!(jobs[0].frame.0[26..28], wanted.frame.0[26..28], "the checksum of UDP");
        write(&mut jobs[0], Session { external, ..SESSION }, true);
        assert_eq!(translate(&table, &mut jobs, 1, &mut maker, &mut Unmetered), 0);
        assert_eq!(frame::destination(&jobs[0].frame), SESSION.internal);
    }

    #[test]
    fn strangers_and_damaged_packets_are_refused() {
        let table = Table::new(16, 0xcb00_7100, 1);
        let mut maker = Maker::new(&table, 0, 1);
        let mut refused = |job: Job| translate(&table, &mut [job], 1, &mut maker, &mut Unmetered);
        let mut first = job();
        write(&mut first, SESSION, false);
        assert_eq!(refused(first), 0);
        let (_, external) = table.sessions().next().expect("a session");
        let mut stranger = job();
        write(&mut stranger, Session { external, remote: (5, 443), ..SESSION }, true);
        assert_eq!(refused(stranger), 1);
        for at in [0, 6, 8, 10] {
            let mut damaged = job();
            write(&mut damaged, SESSION, false);
            damaged.frame.0[at] = 1;
            assert_eq!(refused(damaged), 1, "byte {at}");
        }
    }
}
