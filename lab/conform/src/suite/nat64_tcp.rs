//! RFC 6146 section 3.5.2: the states of TCP sessions.

use super::{Kind, Trial, one};
use crate::families::FamilyStage;
use crate::packet::{Packet, Received, Segment};
use crate::packet6::{Packet6, Received6};
use crate::stage::{Finding, Stage, Stop, failed, not_applicable};
use natgate_wire::tcp::flags::{ACK, SYN};
use std::net::{SocketAddrV4, SocketAddrV6};

pub(super) const TRIALS: &[Trial] = &[
    Trial { requirements: &["rfc6146#section-3.5.2-v6-init"], kind: Kind::Quick(one!(v6_init)) },
    Trial { requirements: &["rfc6146#section-3.5.2-v4-init"], kind: Kind::Quick(one!(v4_init)) },
    Trial {
        requirements: &["rfc6146#section-3.5.2.2-simultaneous"],
        kind: Kind::Quick(one!(simultaneous)),
    },
    Trial { requirements: &["rfc6146#section-3.5.2-closed"], kind: Kind::Quick(one!(closed)) },
];

/// Segments of one connection by hand.
struct Segments<'s> {
    hosts: FamilyStage<'s>,
    host: SocketAddrV6,
    remote: SocketAddrV4,
}

impl<'s> Segments<'s> {
    fn new(stage: &'s Stage) -> Result<Self, Stop> {
        let hosts = FamilyStage::nat64(stage)?;
        let (host, remote) = (hosts.near(0), stage.far(0));
        Ok(Self { hosts, host, remote })
    }

    /// Sends a segment to a remote endpoint.
    async fn out(&self, flags: u8) -> Option<Received> {
        let packet = Packet6::tcp(self.host, self.hosts.six(self.remote), segment(flags, 1000));
        self.hosts.outward(&packet).await
    }

    /// Sends a segment from a remote endpoint.
    async fn back(&self, from: SocketAddrV4, to: SocketAddrV4, flags: u8) -> Option<Received6> {
        let packet = Packet::tcp(from, to, segment(flags, 5000));
        self.hosts.inward(&packet, *self.host.ip()).await
    }

    /// Opens a mapping by a SYN.
    async fn open(&self) -> Result<SocketAddrV4, Stop> {
        match self.out(SYN).await {
            Some(came) => Ok(came.source()),
            None => failed("A SYN did not come out."),
        }
    }
}

/// A segment of a connection whose SYN had the number `initial`.
fn segment(flags: u8, initial: u32) -> Segment<'static> {
    let sequence = if flags & SYN == 0 { initial + 1 } else { initial };
    let other = if initial == 1000 { 5001 } else { 1001 };
    let acknowledgment = if flags & ACK == 0 { 0 } else { other };
    Segment { flags, sequence, acknowledgment, data: b"" }
}

/// Checks segments between the host's SYN and the remote host's.
async fn v6_init(stage: &Stage) -> Finding {
    let tcp = Segments::new(stage)?;
    let external = tcp.open().await?;
    if tcp.out(ACK).await.is_none() {
        return failed("A second segment of the host did not come out.");
    }
    match tcp.back(tcp.remote, external, ACK).await {
        Some(_) => Ok("Segments passed both ways before the remote host's SYN.".to_owned()),
        None => failed("A segment of the remote host did not come in before its SYN."),
    }
}

/// Checks segments between a remote host's SYN and the host's.
async fn v4_init(stage: &Stage) -> Finding {
    let tcp = Segments::new(stage)?;
    let external = tcp.open().await?;
    let caller = stage.far(1);
    if tcp.back(caller, external, SYN).await.is_none() {
        return not_applicable("Its filter keeps a SYN from another host out.");
    }
    match tcp.back(caller, external, ACK).await {
        Some(_) => Ok("A remote host's SYN and a segment behind it came in.".to_owned()),
        None => failed("A segment behind a remote host's SYN did not come in."),
    }
}

/// Checks that both ends may open a connection at once.
async fn simultaneous(stage: &Stage) -> Finding {
    let tcp = Segments::new(stage)?;
    let external = tcp.open().await?;
    if tcp.back(tcp.remote, external, SYN).await.is_none() {
        return failed("The remote host's SYN did not come in.");
    }
    for flags in [SYN | ACK, ACK] {
        let out = tcp.out(flags).await;
        if out.is_none_or(|came| came.source() != external) {
            return failed("The host's acknowledgment did not come out from the same endpoint.");
        }
        if tcp.back(tcp.remote, external, flags).await.is_none() {
            return failed("The remote host's acknowledgment did not come in.");
        }
    }
    Ok("A connection that both ends opened at once works.".to_owned())
}

/// Checks a segment of no session to an endpoint with a mapping.
async fn closed(stage: &Stage) -> Finding {
    let tcp = Segments::new(stage)?;
    let external = tcp.open().await?;
    match tcp.back(stage.far(1), external, ACK).await {
        Some(_) => Ok("A segment of no session came in.".to_owned()),
        None => not_applicable("Its policy keeps a segment of no session out."),
    }
}
