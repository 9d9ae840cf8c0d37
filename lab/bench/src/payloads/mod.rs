//! Application-level gateways: messages of SIP a second, and the time that gateways that are on add
//! to packets of other protocols.

mod report;

use crate::instructions::gateway::Pair;
use crate::instructions::sip;
use crate::report::{Report, progress};
use crate::spread::Spread;
use natgate_engine::Side;
use serde::Serialize;

/// Rounds of packets of other protocols for each round of messages: they take less time.
const PACKET_ROUNDS: usize = 8;
/// Messages of SIP a second that a core has to take.
const WANTED_MESSAGES: f64 = 100_000.0;
/// Highest ratio of the time with all gateways to that without one.
const WANTED_RATIO: f64 = 1.01;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Rounds of each kind of message.
    pub rounds: usize,
}

impl Plan {
    /// The full measurement: some seconds.
    pub fn full() -> Self {
        Self { rounds: 60 }
    }

    /// A measurement of seconds.
    pub fn quick() -> Self {
        Self { rounds: 2 }
    }
}

/// Time of a message of a kind.
#[derive(Clone, Debug, Serialize)]
struct Message {
    message: &'static str,
    /// Processor time, nanoseconds.
    ns: Spread,
    /// Messages a second of processor time, by the median.
    each_second: f64,
}

/// Time of a packet that is of no gateway's protocol, nanoseconds.
#[derive(Clone, Debug, Serialize)]
struct Packets {
    way: &'static str,
    off_ns: Spread,
    on_ns: Spread,
    /// Time with all gateways on, divided by the time without, round by round.
    ratio: Spread,
}

/// A target, and what was found.
#[derive(Clone, Debug, Serialize)]
struct Target {
    what: String,
    wanted: f64,
    found: f64,
    reached: bool,
}

#[derive(Clone, Debug, Serialize)]
struct Results {
    rounds: usize,
    messages: Vec<Message>,
    packets: Vec<Packets>,
    targets: Vec<Target>,
}

/// Measures; `command` is the command line for the report.
pub fn measure(plan: &Plan, command: &str) -> Report {
    let mut report = Report::new("payloads", "Messages of application-level gateways", command);
    let results = run(plan);
    report::write(&mut report, &results);
    report.data(&results);
    report
}

fn run(plan: &Plan) -> Results {
    let bar = progress(plan.rounds as u64);
    let mut times = [(); 3].map(|()| Vec::new());
    let mut ways = [(); 2].map(|()| [Vec::new(), Vec::new()]);
    let [mut off, mut on] = [false, true].map(Pair::new);
    for round in 0..plan.rounds {
        for (times, time) in times.iter_mut().zip(messages()) {
            times.push(time);
        }
        for number in 0..PACKET_ROUNDS {
            for (side, [without, with]) in [Side::Inside, Side::Outside].into_iter().zip(&mut ways)
            {
                let forward = |pair: &mut Pair| pair.timed(|pair| pair.gateway(side));
                // None is always the first.
                if (round + number) % 2 == 0 {
                    without.push(forward(&mut off));
                    with.push(forward(&mut on));
                } else {
                    with.push(forward(&mut on));
                    without.push(forward(&mut off));
                }
            }
        }
        bar.inc(1);
    }
    let names = ["registration", "answer to a registration", "call with an offer of audio"];
    let messages: Vec<Message> = names
        .into_iter()
        .zip(&times)
        .map(|(message, times)| {
            let ns = Spread::of(times);
            Message { message, ns, each_second: 1e9 / ns.median }
        })
        .collect();
    let packets: Vec<Packets> = ["outbound", "inbound"]
        .into_iter()
        .zip(&ways)
        .map(|(way, [off, on])| {
            let ratios: Vec<f64> = on.iter().zip(off).map(|(on, off)| on / off).collect();
            let [off_ns, on_ns] = [off, on].map(|times| Spread::of(times));
            Packets { way, off_ns, on_ns, ratio: Spread::of(&ratios) }
        })
        .collect();
    let targets = targets(&messages, &packets);
    Results { rounds: plan.rounds, messages, packets, targets }
}

/// Times of a registration, an answer and a call with a new gateway, nanoseconds each.
fn messages() -> [f64; 3] {
    let mut pair = Pair::new(true);
    pair.ask_by_sip(sip::register);
    pair.answer_by_sip();
    let register = pair.timed(|pair| pair.ask_by_sip(sip::register));
    let answer = pair.timed(Pair::answer_by_sip);
    let invite = pair.timed(|pair| pair.ask_by_sip(sip::invite));
    [register, answer, invite]
}

fn targets(messages: &[Message], packets: &[Packets]) -> Vec<Target> {
    let messages = messages.iter().map(|one| Target {
        what: format!("messages a second: {}", one.message),
        wanted: WANTED_MESSAGES,
        found: one.each_second,
        reached: one.each_second >= WANTED_MESSAGES,
    });
    let packets = packets.iter().map(|one| Target {
        what: format!("time with all gateways on to that without, {}", one.way),
        wanted: WANTED_RATIO,
        found: one.ratio.median,
        reached: one.ratio.median <= WANTED_RATIO,
    });
    messages.chain(packets).collect()
}
