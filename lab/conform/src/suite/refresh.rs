//! Packets that keep a mapping alive, and packets that do not.
//!
//! The timers of a translator are unknown, so the test uses a ladder of mappings. Each rung has a
//! time T and two mappings that are made at once. At 0.8 T one of them gets a packet that may
//! restart its timer; at 1.1 T both are tried. The rungs are close together. So on the first rung
//! with an expired untouched mapping, the other mapping was still alive at 0.8 T, and its state
//! shows the effect of the packet.

use super::mapping::{self, Behavior};
use super::{Kind, Trial, one};
use crate::flow::{
    DATA,
    Transport::{self, Echo, Tcp, Udp},
};
use crate::packet::Packet;
use crate::report::minutes;
use crate::stage::{Finding, Stage, Stop, failed, not_applicable, not_tested};
use natgate_engine::Side::{Inside, Outside};
use std::net::SocketAddrV4;
use std::time::Duration;

pub(super) const TRIALS: &[Trial] = &[
    Trial { requirements: &["rfc4787#REQ-6"], kind: Kind::Timed(|_| LONGEST, one!(outbound)) },
    Trial { requirements: &["rfc4787#REQ-6a"], kind: Kind::Timed(|_| LONGEST, one!(inbound)) },
    Trial {
        requirements: &["rfc7857#section-7"],
        kind: Kind::Timed(|_| LONGEST, one!(refused, Udp)),
    },
    Trial {
        requirements: &["rfc7857#section-7-tcp"],
        kind: Kind::Timed(|_| LONGEST, one!(refused, Tcp)),
    },
    Trial {
        requirements: &["rfc7857#section-7.1"],
        kind: Kind::Timed(|_| LONGEST, one!(error_outbound)),
    },
    Trial {
        requirements: &["rfc5508#REQ-6"],
        kind: Kind::Timed(|_| LONGEST, one!(error_about_query)),
    },
];

/// Rungs of the ladder: from 10 s, each longer by a third.
const RUNGS: usize = 14;

/// Time at which the last rung's mappings are tried.
const LONGEST: Duration = Duration::from_secs(450);

/// Packet to a mapping at 0.8 T.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Touch {
    /// A packet from inside.
    Outbound,
    /// A packet that the filter admits.
    Inbound,
    /// A packet that the filter refuses.
    Refused,
    /// An ICMP error from inside about the first answer.
    ErrorOutbound,
    /// An ICMP error from outside about the first packet.
    ErrorInbound,
}

/// A mapping, and its first packets.
struct Held {
    host: SocketAddrV4,
    remote: SocketAddrV4,
    external: SocketAddrV4,
    /// The first packet as it came out.
    out: Vec<u8>,
    /// The answer as it came in, if there was one.
    back: Vec<u8>,
}

async fn hold(stage: &Stage, transport: Transport) -> Result<Held, Stop> {
    let (host, remote) = (stage.near(0), stage.far(0));
    let opened = stage.opened(transport, host, remote).await?;
    let external = opened.source();
    let mut back = Vec::new();
    // A SYN gets no answer, so its short timer applies.
    if transport == Udp {
        let answer = stage.inward(&transport.answer(remote, external), *host.ip()).await;
        back = answer.map(|came| came.bytes).unwrap_or_default();
    }
    Ok(Held { host, remote, external, out: opened.bytes, back })
}

async fn touch(
    stage: &Stage,
    transport: Transport,
    held: &Held,
    what: Touch,
    stranger: SocketAddrV4,
) {
    match what {
        Touch::Outbound => {
            stage.outward(&transport.opening(held.host, held.remote)).await;
        }
        Touch::Inbound => {
            stage.inward(&Packet::udp(held.remote, held.external, DATA), *held.host.ip()).await;
        }
        Touch::Refused => stage.send(Outside, &transport.opening(stranger, held.external)),
        Touch::ErrorOutbound => {
            let error = Packet::error(*held.host.ip(), *held.remote.ip(), (3, 3), &held.back);
            stage.send(Inside, &error);
        }
        Touch::ErrorInbound => {
            let error = Packet::error(*held.remote.ip(), *held.external.ip(), (3, 1), &held.out);
            stage.send(Outside, &error);
        }
    }
}

/// The outcome of the ladder.
enum LadderOutcome {
    /// The touched mapping lived, and the other expired, in this time.
    Kept(Duration),
    /// Both mappings expired.
    Lost(Duration),
    /// All mappings lived to the end.
    Longer,
}

async fn climb(stage: &Stage, transport: Transport, what: Touch) -> Result<LadderOutcome, Stop> {
    let begin = stage.now();
    let stranger = stage.far(1);
    let mut rungs = Vec::new();
    let mut steps = Vec::new();
    let mut time = Duration::from_secs(10);
    for number in 0..RUNGS {
        rungs.push([hold(stage, transport).await?, hold(stage, transport).await?]);
        steps.extend([(time * 4 / 5, number, false), (time * 11 / 10, number, true)]);
        time = time * 4 / 3;
    }
    steps.sort_unstable();
    for (at, number, last) in steps {
        stage.until(begin + at).await;
        let [left, touched] = &rungs[number];
        if !last {
            touch(stage, transport, touched, what, stranger).await;
            continue;
        }
        let lives = async |held: &Held| {
            stage.answers(transport, held.remote, held.external, held.host).await
        };
        let (left, touched) = (lives(left).await, lives(touched).await);
        match (left, touched) {
            (true, _) => {}
            (false, true) => return Ok(LadderOutcome::Kept(at)),
            (false, false) => return Ok(LadderOutcome::Lost(at)),
        }
    }
    Ok(LadderOutcome::Longer)
}

/// Result if the timer is longer than the ladder.
fn longer<T>() -> Result<T, Stop> {
    not_tested(format!("Mappings live for more than {}; set a shorter timer.", minutes(LONGEST)))
}

async fn outbound(stage: &Stage) -> Finding {
    match climb(stage, Udp, Touch::Outbound).await? {
        LadderOutcome::Kept(at) => Ok(format!(
            "After {} a mapping was gone, but not one that the inside had used meanwhile.",
            minutes(at)
        )),
        LadderOutcome::Lost(at) => failed(format!(
            "After {} a mapping was gone in spite of a packet from inside.",
            minutes(at)
        )),
        LadderOutcome::Longer => longer(),
    }
}

async fn inbound(stage: &Stage) -> Finding {
    match climb(stage, Udp, Touch::Inbound).await? {
        LadderOutcome::Kept(at) => Ok(format!(
            "Packets from outside keep a mapping that would be gone after {}.",
            minutes(at)
        )),
        LadderOutcome::Lost(_) => {
            not_applicable("Packets from outside do not keep a mapping; they need not.")
        }
        LadderOutcome::Longer => longer(),
    }
}

async fn refused(stage: &Stage, transport: Transport) -> Finding {
    if mapping::filtering(stage, transport).await? == Behavior::EndpointIndependent {
        return not_applicable(
            "Filtering is endpoint-independent: nothing to a mapping is refused.",
        );
    }
    kept_by_nothing(stage, transport, Touch::Refused, "a refused packet").await
}

async fn error_outbound(stage: &Stage) -> Finding {
    kept_by_nothing(stage, Udp, Touch::ErrorOutbound, "an ICMP error from inside").await
}

/// Checks that an error changes the timer in neither direction.
async fn error_about_query(stage: &Stage) -> Finding {
    super::icmp_errors::errors_end_nothing(stage, Echo).await?;
    kept_by_nothing(stage, Echo, Touch::ErrorInbound, "an ICMP error about it").await
}

async fn kept_by_nothing(stage: &Stage, transport: Transport, what: Touch, name: &str) -> Finding {
    match climb(stage, transport, what).await? {
        LadderOutcome::Lost(at) => {
            Ok(format!("After {} a mapping was gone, with and without {name}.", minutes(at)))
        }
        LadderOutcome::Kept(at) => failed(format!(
            "After {} a mapping was gone, but not one that had got {name}.",
            minutes(at)
        )),
        LadderOutcome::Longer => longer(),
    }
}
