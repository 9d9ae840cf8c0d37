//! RFC 5508: ICMP queries without their timers.

use super::mapping;
use super::{Kind, Trial, one, several, udp};
use crate::flow::Transport::{Echo, Udp};
use crate::packet::Packet;
use crate::stage::{Finding, Stage, failed, not_applicable};
use natgate_engine::Side::Inside;

pub(super) const TRIALS: &[Trial] = &[
    Trial { requirements: &["rfc5508#REQ-1"], kind: Kind::Quick(one!(udp::pings)) },
    Trial {
        requirements: &["rfc5508#REQ-1a"],
        kind: Kind::Quick(one!(mapping::endpoint_independent, Echo)),
    },
    Trial {
        requirements: &["rfc5508#REQ-10c", "rfc1812#section-4.3.3.3", "rfc1812#section-4.3.3.7"],
        kind: Kind::Quick(several!(neither_quench_nor_information)),
    },
    Trial { requirements: &["rfc7857#section-12"], kind: Kind::Quick(one!(hairpinned_query)) },
];

/// Checks each requirement by itself, and both together.
async fn neither_quench_nor_information(stage: &Stage) -> [Finding; 3] {
    let (quench, information) = (no_source_quench(stage).await, no_information(stage).await);
    let both = match (&quench, &information) {
        (Ok(one), Ok(other)) => Ok(format!("{one} {other}")),
        (Err(stop), _) | (_, Err(stop)) => Err(stop.clone()),
    };
    [both, quench, information]
}

/// Checks that no source quench answers a burst.
async fn no_source_quench(stage: &Stage) -> Finding {
    let (host, remote) = (stage.near(0), stage.far(0));
    for _ in 0..200 {
        stage.send(Inside, &Udp.opening(host, remote));
    }
    let quench =
        stage.take((Inside, *host.ip()), |it| it.error().is_some_and(|(kind, _)| kind == 4));
    match quench.await {
        Some(_) => failed("A burst of 200 datagrams was answered with a source quench message."),
        None => Ok("A burst of 200 datagrams was not answered with source quench.".to_owned()),
    }
}

/// Checks that the translator does not answer information requests.
async fn no_information(stage: &Stage) -> Finding {
    const INFORMATION_REQUEST: u8 = 15;
    const INFORMATION_REPLY: u8 = 16;
    let host = stage.near(0);
    let gateway = stage.setup().inside_gateway;
    stage.send(Inside, &Packet::query(INFORMATION_REQUEST, *host.ip(), gateway, 1, b""));
    let is_reply = |kind: u8| kind == INFORMATION_REPLY;
    let reply =
        stage.take((Inside, *host.ip()), |it| it.icmp().is_some_and(|it| is_reply(it.kind())));
    match reply.await {
        Some(_) => failed("An information request was answered."),
        None => Ok("An information request was not answered.".to_owned()),
    }
}

/// Address translators must hairpin queries, and port translators may.
async fn hairpinned_query(stage: &Stage) -> Finding {
    let [works, _] = mapping::hairpin(stage, Echo).await;
    match works {
        Ok(why) => Ok(why),
        Err(_) => not_applicable(
            "An echo request by another host's external identifier did not pass; only translators \
             of addresses alone must pass it.",
        ),
    }
}
