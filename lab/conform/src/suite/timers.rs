//! Lifetimes of mappings and sessions, and hold-down of ports.
//!
//! A test tries a mapping shortly before its timer may expire. A mapping that then works has lived
//! long enough. A configured shorter timer replaces the RFC's, and the report says so.

use super::{Kind, Trial, dccp, mapping, one, several};
use crate::flow::{
    Connection, DATA,
    Transport::{self, Dccp, Echo, Udp},
};
use crate::packet::{Packet, dccp as kinds};
use crate::report::minutes;
use crate::setup::Timers;
use crate::stage::{Finding, Stage, failed, not_tested};
use natgate_engine::Side::{Inside, Outside};
use natgate_wire::tcp::flags::{ACK, FIN, PSH, RST, SYN};
use std::net::SocketAddrV4;
use std::time::Duration;

pub(super) const TRIALS: &[Trial] = &[
    Trial {
        requirements: &["rfc4787#REQ-5"],
        kind: Kind::Timed(|timers| lives(timers.udp, TWO_MINUTES), one!(udp, TWO_MINUTES)),
    },
    Trial {
        requirements: &["rfc4787#REQ-5c"],
        kind: Kind::Timed(|timers| lives(timers.udp, FIVE_MINUTES), one!(udp, FIVE_MINUTES)),
    },
    Trial {
        requirements: &["rfc5382#REQ-5"],
        kind: Kind::Timed(
            |timers| lives(timers.tcp_established, TWO_HOURS_FOUR),
            one!(established),
        ),
    },
    Trial {
        requirements: &["rfc5382#REQ-5-transitory", "rfc7857#section-2.1-default"],
        kind: Kind::Timed(transitory_time, one!(transitory)),
    },
    Trial { requirements: &["rfc7857#section-2"], kind: Kind::Timed(states_time, one!(states)) },
    Trial {
        requirements: &["rfc7857#section-2.2-wait"],
        kind: Kind::Timed(|timers| lives(timers.tcp_closing, FOUR_MINUTES), one!(after_reset)),
    },
    Trial {
        requirements: &["rfc5508#REQ-2"],
        kind: Kind::Timed(|timers| lives(timers.icmp, MINUTE), one!(query)),
    },
    Trial {
        requirements: &["rfc5597#REQ-5"],
        kind: Kind::Timed(
            |timers| lives(timers.tcp_established, TWO_HOURS_FOUR),
            one!(dccp_established),
        ),
    },
    Trial {
        requirements: &["rfc5597#REQ-5-transitory"],
        kind: Kind::Timed(|timers| lives(timers.tcp_closing, FOUR_MINUTES), one!(dccp_closing)),
    },
    Trial {
        requirements: &["rfc6888#REQ-8", "rfc6888#REQ-8a"],
        kind: Kind::Timed(|_| HOLD_DOWN_PROBES[HOLD_DOWN_PROBES.len() - 1], several!(hold_down)),
    },
];

const MINUTE: Duration = Duration::from_secs(60);
const TWO_MINUTES: Duration = Duration::from_secs(120);
const FOUR_MINUTES: Duration = Duration::from_secs(240);
const FIVE_MINUTES: Duration = Duration::from_secs(300);
const TWO_HOURS_FOUR: Duration = Duration::from_secs(7440);

/// Required lifetime: the RFC's, or the shorter configured one.
fn lives(told: Option<Duration>, asked: Duration) -> Duration {
    told.map_or(asked, |told| told.min(asked))
}

/// A moment before the end of a time.
fn shortly_before(time: Duration) -> Duration {
    time - (time / 20).min(Duration::from_secs(2))
}

/// Text of a tested lifetime.
fn told_of(time: Duration, asked: Duration) -> String {
    match time == asked {
        true => minutes(time),
        false => format!(
            "{} (the translator was said to be set so, instead of {})",
            minutes(time),
            minutes(asked)
        ),
    }
}

/// Checks mappings of one datagram, and of a datagram with an answer.
async fn udp(stage: &Stage, asked: Duration) -> Finding {
    let time = lives(stage.options().timers.udp, asked);
    let begin = stage.now();
    let (quiet, talking, remote) = (stage.near(0), stage.near(1), stage.far(0));
    let quiet_external = stage.map(Udp, quiet, remote).await?;
    let talking_external = stage.map(Udp, talking, remote).await?;
    stage.answers(Udp, remote, talking_external, talking).await;
    stage.until(begin + shortly_before(time)).await;
    let quiet_lives = stage.answers(Udp, remote, quiet_external, quiet).await;
    let talking_lives = stage.answers(Udp, remote, talking_external, talking).await;
    let time = told_of(time, asked);
    match (quiet_lives, talking_lives) {
        (true, true) => Ok(format!(
            "After {time} less a moment, mappings were there, made by one datagram or by several."
        )),
        (false, true) => failed(format!(
            "A mapping made by one datagram did not live for {time}; one with an answer did."
        )),
        (_, false) => {
            failed(format!("A mapping did not live for {time}, with or without an answer."))
        }
    }
}

async fn query(stage: &Stage) -> Finding {
    lived(stage, Echo, lives(stage.options().timers.icmp, MINUTE), MINUTE).await
}

/// Checks a flow from inside that is answered only after a time.
async fn lived(stage: &Stage, transport: Transport, time: Duration, asked: Duration) -> Finding {
    let (host, remote) = (stage.near(0), stage.far(0));
    let begin = stage.now();
    let external = stage.map(transport, host, remote).await?;
    stage.until(begin + shortly_before(time)).await;
    let time = told_of(time, asked);
    match stage.answers(transport, remote, external, host).await {
        true => Ok(format!("An answer after {time} less a moment came in.")),
        false => failed(format!("An answer after {time} less a moment did not come in.")),
    }
}

async fn established(stage: &Stage) -> Finding {
    let time = lives(stage.options().timers.tcp_established, TWO_HOURS_FOUR);
    let mut connection = Connection::open(stage, stage.near(0), stage.far(0)).await?;
    let begin = stage.now();
    stage.until(begin + shortly_before(time)).await;
    let time = told_of(time, TWO_HOURS_FOUR);
    match connection.tries(Outside, ACK | PSH, b"still there?").await {
        true => {
            Ok(format!("Data came in after a connection had been idle for {time} less a moment."))
        }
        false => failed(format!(
            "Data did not come in after a connection had been idle for {time} less a moment."
        )),
    }
}

fn transitory_time(timers: &Timers) -> Duration {
    lives(timers.tcp_opening, FOUR_MINUTES).max(lives(timers.tcp_closing, FOUR_MINUTES))
}

/// Tries an opening connection, and one that both ends have closed, at the end of their timers.
async fn transitory(stage: &Stage) -> Finding {
    let timers = stage.options().timers;
    let opening = lives(timers.tcp_opening, FOUR_MINUTES);
    let closing = lives(timers.tcp_closing, FOUR_MINUTES);
    let mut closed = Connection::open(stage, stage.near(0), stage.far(0)).await?;
    closed.close().await?;
    let begin = stage.now();
    let mut opened = Connection::new(stage, stage.near(1), stage.far(1), None);
    opened.step(Inside, SYN, b"").await?;
    let mut lived = [false; 2];
    let mut order = [(opening, 0), (closing, 1)];
    order.sort_unstable();
    for (time, which) in order {
        stage.until(begin + shortly_before(time)).await;
        lived[which] = match which {
            0 => opened.tries(Outside, SYN | ACK, b"").await,
            _ => closed.tries(Outside, ACK, b"").await,
        };
    }
    let (opening, closing) = (told_of(opening, FOUR_MINUTES), told_of(closing, FOUR_MINUTES));
    match lived {
        [true, true] => Ok(format!(
            "The answer to a SYN came in after {opening}, and a late acknowledgment {closing} \
             after the close, less a moment."
        )),
        [false, true] => {
            failed(format!("The answer to a SYN did not come in after {opening} less a moment."))
        }
        [true, false] => failed(format!(
            "A late acknowledgment did not come in {closing} less a moment after the close."
        )),
        [false, false] => failed(format!(
            "Neither did the answer to a SYN come in after {opening}, nor a late acknowledgment \
             {closing} after the close, less a moment."
        )),
    }
}

/// Time after which a closing connection would have been removed.
fn states_time(timers: &Timers) -> Duration {
    lives(timers.tcp_closing, FOUR_MINUTES) * 5 / 4
}

/// Checks the effects of one FIN, and of traffic after a RST.
async fn states(stage: &Stage) -> Finding {
    let time = states_time(&stage.options().timers);
    let mut by_inside = Connection::open(stage, stage.near(0), stage.far(0)).await?;
    by_inside.step(Inside, FIN | ACK, b"").await?;
    by_inside.step(Outside, ACK, b"").await?;
    let mut by_outside = Connection::open(stage, stage.near(0), stage.far(0)).await?;
    by_outside.step(Outside, FIN | ACK, b"").await?;
    by_outside.step(Inside, ACK, b"").await?;
    let mut revived = Connection::open(stage, stage.near(0), stage.far(0)).await?;
    revived.step(Outside, RST, b"").await?;
    revived.step(Inside, ACK | PSH, b"what reset?").await?;
    revived.step(Outside, ACK | PSH, b"not mine").await?;
    let begin = stage.now();
    stage.until(begin + time).await;
    let alive = [
        (by_inside.tries(Outside, ACK | PSH, b"more").await, "one FIN from inside"),
        (by_outside.tries(Inside, ACK | PSH, b"more").await, "one FIN from outside"),
        (revived.tries(Outside, ACK | PSH, b"more").await, "a RST that traffic followed"),
    ];
    let gone: Vec<_> = alive.iter().filter(|(alive, _)| !alive).map(|(_, what)| *what).collect();
    let time = minutes(time);
    match gone.is_empty() {
        true => Ok(format!(
            "After one FIN from either side, and after a RST that traffic followed, connections \
             lived for {time}."
        )),
        false => {
            failed(format!("{time} after {}, the connection was gone.", gone.join(", and after ")))
        }
    }
}

async fn after_reset(stage: &Stage) -> Finding {
    let time = lives(stage.options().timers.tcp_closing, FOUR_MINUTES);
    let mut connection = Connection::open(stage, stage.near(0), stage.far(0)).await?;
    connection.step(Outside, ACK | PSH, b"data").await?;
    connection.step(Inside, ACK, b"").await?;
    connection.step(Outside, RST, b"").await?;
    let begin = stage.now();
    stage.until(begin + shortly_before(time)).await;
    let time = told_of(time, FOUR_MINUTES);
    match connection.tries(Outside, ACK | PSH, b"still there?").await {
        true => Ok(format!("{time} less a moment after a RST, data still came in.")),
        false => {
            failed(format!("{time} less a moment after a RST, data did not come in any more."))
        }
    }
}

async fn dccp_established(stage: &Stage) -> Finding {
    let time = lives(stage.options().timers.tcp_established, TWO_HOURS_FOUR);
    dccp_lives(stage, &[], time, TWO_HOURS_FOUR).await
}

async fn dccp_closing(stage: &Stage) -> Finding {
    let time = lives(stage.options().timers.tcp_closing, FOUR_MINUTES);
    dccp_lives(stage, &[kinds::CLOSE], time, FOUR_MINUTES).await
}

/// Checks a connection after these further packets from inside and a silence.
async fn dccp_lives(stage: &Stage, then: &[u8], time: Duration, asked: Duration) -> Finding {
    dccp::translated(stage).await?;
    let (host, remote) = (stage.near(0), stage.far(0));
    let external = stage.map(Dccp, host, remote).await?;
    if !stage.answers(Dccp, remote, external, host).await {
        return failed("The answer to a DCCP-Request did not come in.");
    }
    for kind in [kinds::ACK].iter().chain(then) {
        if stage.outward(&Packet::dccp(host, remote, *kind, b"")).await.is_none() {
            return failed("A packet of a DCCP connection did not come out.");
        }
    }
    let begin = stage.now();
    stage.until(begin + shortly_before(time)).await;
    let time = told_of(time, asked);
    let packet = Packet::dccp(remote, external, kinds::RESET, b"");
    match stage.inward(&packet, *host.ip()).await {
        Some(_) => Ok(format!("A packet came in after {time} less a moment.")),
        None => failed(format!("A packet did not come in after {time} less a moment.")),
    }
}

/// Times of the probes. A mapping that has expired between two probes has done so within the last
/// minute.
const HOLD_DOWN_PROBES: [Duration; 12] = {
    let times = [20, 35, 60, 95, 125, 150, 185, 220, 260, 310, 360, 410];
    let mut probes = [Duration::ZERO; 12];
    let mut at = 0;
    while at < times.len() {
        probes[at] = Duration::from_secs(times[at]);
        at += 1;
    }
    probes
};

/// Checks that another host does not get the ports of expired mappings. For TCP, where it may, the
/// result is a note.
async fn hold_down(stage: &Stage) -> [Finding; 2] {
    let tcp = "Whether TCP ports are used again sooner is the translator's choice.";
    [udp_hold_down(stage).await, Err(crate::stage::Stop::NotApplicable(tcp.to_owned()))]
}

async fn udp_hold_down(stage: &Stage) -> Finding {
    const SPARE: usize = 12;
    let remote = stage.far(0);
    let begin = stage.now();
    let mut probed = Vec::new();
    for _ in HOLD_DOWN_PROBES {
        let host = stage.near(0);
        probed.push((host, stage.map(Udp, host, remote).await?));
    }
    let mut spare = Vec::new();
    for _ in 0..SPARE {
        spare.push(stage.map(Udp, stage.near(0), remote).await?);
    }
    for (time, (host, external)) in HOLD_DOWN_PROBES.iter().zip(probed) {
        stage.until(begin + *time).await;
        if !stage.answers(Udp, remote, external, host).await {
            return reused(stage, &spare, *time).await;
        }
    }
    not_tested(
        "The mappings lived longer than the test waits; set a shorter UDP timer, and say so.",
    )
}

/// Makes other hosts request the ports, by equal internal ports, and many more mappings.
async fn reused(stage: &Stage, gone: &[SocketAddrV4], after: Duration) -> Finding {
    const MORE: usize = 400;
    let remotes = [stage.far(0), stage.far(1)];
    let rivals = [mapping::rival(stage).await?, stage.inside(1)];
    let asks = |external: &SocketAddrV4| rivals.map(|it| SocketAddrV4::new(it, external.port()));
    let mut asked: Vec<_> = gone.iter().flat_map(asks).collect();
    asked.extend((0..MORE).map(|number| stage.near(1 + number % 2)));
    for (number, host) in asked.iter().enumerate() {
        let packet = Packet::udp(*host, remotes[number % 2], DATA);
        let Some(came) = stage.outward(&packet).await else { continue };
        if gone.contains(&came.source()) {
            return failed(format!(
                "{}, whose mapping went within the last minute of {}, was given to {host}.",
                came.source(),
                minutes(after)
            ));
        }
        stage.rest(Duration::from_millis(3)).await;
    }
    Ok(format!(
        "Mappings were gone after {}; {} new ones, {} of which asked for the same ports, got none \
         of {} ports that had just become free.",
        minutes(after),
        asked.len(),
        gone.len() * 2,
        gone.len()
    ))
}
