//! RFC 6146: fragments, datagrams without a checksum, and lifetimes.

use super::nat64::Mapped;
use super::{Kind, Trial, one, several};
use crate::families::FamilyStage;
use crate::flow::{DATA, Transport::Udp};
use crate::packet::{Packet, Received, Segment};
use crate::packet6::{Packet6, Received6};
use crate::report::minutes;
use crate::setup::Timers;
use crate::stage::{Finding, Stage, Stop, failed, not_applicable};
use natgate_engine::Side::Outside;
use natgate_wire::protocol::UDP;
use natgate_wire::tcp::flags::{ACK, PSH, SYN};
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) const TRIALS: &[Trial] = &[
    Trial {
        requirements: &["rfc6146#section-3.4-fragments", "rfc6146#section-3.4-order"],
        kind: Kind::Quick(several!(fragments)),
    },
    Trial {
        requirements: &["rfc6146#section-3.4-interval", "rfc6146#section-3.4-interval-default"],
        kind: Kind::Timed(|_| TWO_SECONDS, one!(interval)),
    },
    Trial {
        requirements: &["rfc6146#section-3.4-zero-compute"],
        kind: Kind::Quick(one!(without_checksum)),
    },
    Trial {
        requirements: &["rfc6146#section-3.4-zero-reassemble", "rfc6146#section-3.4-zero-discard"],
        kind: Kind::Quick(several!(fragments_without_checksum)),
    },
    Trial {
        requirements: &["rfc6146#section-3.5.1-least"],
        kind: Kind::Timed(|timers| udp_time(timers, TWO_MINUTES), one!(udp, TWO_MINUTES)),
    },
    Trial {
        requirements: &["rfc6146#section-3.5.1-default"],
        kind: Kind::Timed(|timers| udp_time(timers, FIVE_MINUTES), one!(udp, FIVE_MINUTES)),
    },
    Trial {
        requirements: &["rfc6146#section-3.5.2-least"],
        kind: Kind::Timed(|timers| tcp_time(timers, TWO_HOURS), one!(established, TWO_HOURS)),
    },
    Trial {
        requirements: &["rfc6146#section-3.5.2-default"],
        kind: Kind::Timed(
            |timers| tcp_time(timers, TWO_HOURS_FOUR),
            one!(established, TWO_HOURS_FOUR),
        ),
    },
];

const TWO_SECONDS: Duration = Duration::from_secs(2);
const TWO_MINUTES: Duration = Duration::from_secs(120);
const FIVE_MINUTES: Duration = Duration::from_secs(300);
const TWO_HOURS: Duration = Duration::from_secs(7200);
const TWO_HOURS_FOUR: Duration = Duration::from_secs(7440);

fn udp_time(timers: &Timers, asked: Duration) -> Duration {
    timers.udp.map_or(asked, |told| told.min(asked))
}

fn tcp_time(timers: &Timers, asked: Duration) -> Duration {
    timers.tcp_established.map_or(asked, |told| told.min(asked))
}

/// A moment before the end of a time.
fn shortly_before(time: Duration) -> Duration {
    time - (time / 20).min(TWO_SECONDS)
}

/// Length of the fragments of a datagram.
const PIECE: usize = 400;

/// Data of a datagram of three fragments.
fn long_data() -> Vec<u8> {
    (0..1000_u16).map(|n| (n * 7) as u8).collect()
}

/// Orders of three fragments; the first is the order in which the sender made the fragments.
const ORDERS: [[usize; 3]; 4] = [[0, 1, 2], [2, 1, 0], [1, 0, 2], [0, 2, 1]];

/// Joins the payloads of fragments, by offset; `None` if one is missing.
fn joined(pieces: impl IntoIterator<Item = (usize, bool, Vec<u8>)>) -> Option<Vec<u8>> {
    let sorted: BTreeMap<usize, (bool, Vec<u8>)> =
        pieces.into_iter().map(|(offset, more, bytes)| (offset, (more, bytes))).collect();
    let mut whole = Vec::new();
    let mut is_last = false;
    for (offset, (more, bytes)) in sorted {
        if offset != whole.len() || is_last {
            return None;
        }
        whole.extend(bytes);
        is_last = !more;
    }
    is_last.then_some(whole)
}

fn piece4(came: &Received) -> (usize, bool, Vec<u8>) {
    let header = came.ip();
    (header.fragment_offset(), header.more_fragments(), came.payload().to_vec())
}

fn piece6(came: &Received6) -> (usize, bool, Vec<u8>) {
    let (offset, more) = came.fragment().map_or((0, false), |one| (one.offset, one.more));
    (offset, more, came.transport().to_vec())
}

/// Checks fragments in both directions, in order and in other orders.
async fn fragments(stage: &Stage) -> [Finding; 2] {
    let mut findings = Vec::new();
    for (number, order) in ORDERS.iter().enumerate() {
        let finding = fragments_in(stage, *order, number as u32).await;
        if number < 2 || finding.is_err() {
            findings.push(finding);
        }
    }
    let last = findings.pop().unwrap_or_else(|| failed("Nothing was tried."));
    [findings.swap_remove(0), last]
}

async fn fragments_in(stage: &Stage, order: [usize; 3], number: u32) -> Finding {
    let Mapped { hosts, host, external, remote } = Mapped::open(stage).await?;
    let out = Packet6::udp(host, hosts.six(remote), &long_data());
    stage.drain(Outside, *remote.ip());
    let pieces = out.fragments(PIECE, 0x4e47 + number);
    order.iter().for_each(|place| hosts.send(&pieces[*place]));
    stage.rest(stage.transit()).await;
    let came = stage.drain(Outside, *remote.ip());
    let pieces = came.iter().filter(|one| one.ip().protocol() == UDP).map(piece4);
    let whole = joined(pieces).unwrap_or_default();
    let (header, data) = whole.split_at(whole.len().min(8));
    if data != long_data() || header[..2] != external.port().to_be_bytes() {
        return failed(format!("Fragments from inside in the order {order:?} did not come out."));
    }
    let back = Packet::udp(remote, external, &long_data()).identification(700 + number as u16);
    hosts.drain(*host.ip());
    let pieces = back.fragments(PIECE);
    order.iter().for_each(|place| stage.send(Outside, &pieces[*place]));
    stage.rest(stage.transit()).await;
    let whole = joined(hosts.drain(*host.ip()).iter().map(piece6)).unwrap_or_default();
    let expected = Packet6::udp(hosts.six(remote), host, &long_data()).payload;
    match whole == expected {
        true => Ok(format!(
            "Three fragments in the order {order:?} passed both ways, and make up the datagram."
        )),
        false => failed(format!("Fragments from outside in the order {order:?} did not come in.")),
    }
}

/// Checks that a first fragment may follow another one after nearly two seconds.
async fn interval(stage: &Stage) -> Finding {
    let hosts = FamilyStage::nat64(stage)?;
    let (host, remote) = (hosts.near(0), stage.far(0));
    let pieces = Packet6::udp(host, hosts.six(remote), &long_data()).fragments(PIECE, 9);
    hosts.send(&pieces[2]);
    hosts.send(&pieces[1]);
    stage.rest(shortly_before(TWO_SECONDS)).await;
    hosts.send(&pieces[0]);
    stage.rest(stage.transit()).await;
    let came = stage.drain(Outside, *remote.ip());
    match joined(came.iter().map(piece4)) {
        Some(_) => Ok("A first fragment came 1.9 s after the others, and all came out.".to_owned()),
        None => failed("A first fragment came 1.9 s after the others, which did not come out."),
    }
}

/// Checks that a datagram without a checksum gets one.
async fn without_checksum(stage: &Stage) -> Finding {
    let Mapped { hosts, host, external, remote } = Mapped::open(stage).await?;
    let mut packet = Packet::udp(remote, external, DATA);
    packet.payload[6..8].fill(0);
    let Some(came) = hosts.inward(&packet, *host.ip()).await else {
        return failed("A datagram without a checksum did not come in.");
    };
    match came.valid() && came.data() == DATA {
        true => Ok("A datagram without a checksum came in with the correct one.".to_owned()),
        false => failed("A datagram without a checksum came in without a correct one."),
    }
}

async fn fragments_without_checksum(stage: &Stage) -> [Finding; 2] {
    let whole = match whole_without_checksum(stage).await {
        Ok(whole) => whole,
        Err(stop) => return [Err(stop.clone()), Err(stop)],
    };
    match whole {
        Some(true) => [
            Ok("The datagram came in with the correct checksum.".to_owned()),
            not_applicable("It has the memory to put them together."),
        ],
        Some(false) => [
            failed("The datagram came in with a wrong checksum."),
            failed("The fragments came in."),
        ],
        None => [
            failed("The datagram did not come in."),
            Ok("The fragments were dropped in silence.".to_owned()),
        ],
    }
}

/// Sends fragments of a datagram without a checksum. Returns true if the datagram came in with a
/// correct one, and `None` if nothing came in.
async fn whole_without_checksum(stage: &Stage) -> Result<Option<bool>, Stop> {
    let Mapped { hosts, host, external, remote } = Mapped::open(stage).await?;
    let mut packet = Packet::udp(remote, external, &long_data());
    packet.payload[6..8].fill(0);
    hosts.drain(*host.ip());
    packet.fragments(PIECE).iter().for_each(|piece| stage.send(Outside, piece));
    stage.rest(stage.transit()).await;
    let came = hosts.drain(*host.ip());
    let expected = Packet6::udp(hosts.six(remote), host, &long_data()).payload;
    let is_right = joined(came.iter().map(piece6)).is_some_and(|whole| whole == expected);
    Ok((!came.is_empty()).then_some(is_right))
}

/// Checks a mapping that has been idle for a time.
async fn udp(stage: &Stage, asked: Duration) -> Finding {
    let time = udp_time(&stage.options().timers, asked);
    let begin = stage.now();
    let Mapped { hosts, host, external, remote } = Mapped::open(stage).await?;
    stage.until(begin + shortly_before(time)).await;
    let time = minutes(time);
    match hosts.answers(Udp, remote, external, host).await {
        true => Ok(format!("An answer after {time} less a moment came in.")),
        false => failed(format!("An answer after {time} less a moment did not come in.")),
    }
}

/// Checks a connection that has been idle for a time.
async fn established(stage: &Stage, asked: Duration) -> Finding {
    let time = tcp_time(&stage.options().timers, asked);
    let hosts = FamilyStage::nat64(stage)?;
    let (host, remote) = (hosts.near(0), stage.far(0));
    let from_host = |flags, sequence, acknowledgment| {
        let segment = Segment { flags, sequence, acknowledgment, data: b"" };
        Packet6::tcp(host, hosts.six(remote), segment)
    };
    let Some(syn) = hosts.outward(&from_host(SYN, 1000, 0)).await else {
        return failed("A SYN did not come out.");
    };
    let from_remote = |flags, sequence, data| {
        let segment = Segment { flags, sequence, acknowledgment: 1001, data };
        Packet::tcp(remote, syn.source(), segment)
    };
    if hosts.inward(&from_remote(SYN | ACK, 5000, b""), *host.ip()).await.is_none() {
        return failed("A SYN-ACK did not come in.");
    }
    if hosts.outward(&from_host(ACK, 1001, 5001)).await.is_none() {
        return failed("An acknowledgment did not come out.");
    }
    stage.until(stage.now() + shortly_before(time)).await;
    let came = hosts.inward(&from_remote(ACK | PSH, 5001, b"still there?"), *host.ip()).await;
    let time = minutes(time);
    match came {
        Some(_) => Ok(format!("Data came in after {time} of silence, less a moment.")),
        None => failed(format!("Data did not come in after {time} of silence, less a moment.")),
    }
}
