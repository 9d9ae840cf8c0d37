//! Comparison of the engine's explanation of a packet with the result. An explanation borrows the
//! engine for reading; any change by it nevertheless would show in the comparison with the model.

use crate::same::{Hex, same};
use crate::{Divergence, Done};
use natgate_engine::{
    Becomes, Direction, End, Engine, Explanation, Outcome, Packet, Side, Timestamp, Verdict,
};
use natgate_wire::Ipv4;
use std::net::Ipv4Addr;

/// Makes the engine explain the first of some packets, given with their realms.
pub(crate) fn explain(
    engine: &Engine,
    now: Timestamp,
    from: Side,
    packets: &[(u16, Vec<u8>)],
) -> Option<Explanation> {
    let (realm, bytes) = packets.first()?;
    let mut bytes = bytes.clone();
    let packet = Packet::new(&mut bytes, 0).in_realm(*realm);
    let mut explanation = Explanation::new();
    engine.explain(now, from, &packet, &mut explanation);
    Some(explanation)
}

/// Compares an explanation with the result of the packet. `before` and `after` are the counters
/// around the packet, if it came alone.
pub(crate) fn check(
    explanation: &Explanation,
    packet: &[u8],
    done: &Done,
    alone: Option<[&[[u64; 3]; 4]; 2]>,
) -> Result<(), Divergence> {
    if !explanation.is_certain {
        return Ok(());
    }
    let steps = || format!("of {:?}, explained by {:#?}", Hex(packet), explanation.steps());
    if explanation.verdict != done.verdict {
        let (said, was) = (explanation.verdict, done.verdict);
        return Err(format!("explained as {said:?}, came to {was:?} {}", steps()));
    }
    if explanation.steps().len() == Explanation::MOST {
        return Err(format!("more steps than there is room for {}", steps()));
    }
    let lives = matches!(done.verdict, Verdict::Forward(_) | Verdict::Reply(_));
    if let Some([before, after]) = alone
        && done.verdict != Verdict::Held
    {
        let counted = |direction: &Direction| {
            let place = *direction as usize;
            let outcomes = Outcome::ALL.iter();
            outcomes
                .map(|one| after[place][*one as usize] - before[place][*one as usize])
                .sum::<u64>()
        };
        // Fragments that had waited are counted with the packet.
        if counted(&explanation.direction) == 0 {
            return Err(format!("counted as none of {:?} {}", explanation.direction, steps()));
        }
    }
    same("packets that live", &lives, &explanation.becomes.is_some())?;
    match explanation.becomes {
        Some(becomes) => same_ends(&becomes, done).map_err(|error| format!("{error} {}", steps())),
        None => Ok(()),
    }
}

fn same_ends(becomes: &Becomes, done: &Done) -> Result<(), Divergence> {
    let packet = Ipv4::new_checked(&done.bytes[..]).expect("the engine sent it on");
    let payload = packet.payload();
    let port = |at: usize| {
        let bytes = payload.get(at..at + 2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    };
    let is_query = packet.protocol() == natgate_wire::protocol::ICMP;
    let places = if is_query { [4, 4] } else { [0, 2] };
    let ends = [
        (becomes.source, packet.source(), port(places[0])),
        (becomes.destination, packet.destination(), port(places[1])),
    ];
    for (End { address, port }, real, real_port) in ends {
        if let Some(address) = address {
            same("address", &Ipv4Addr::from_bits(real), &address)?;
        }
        if port.is_some() {
            same("port", &real_port, &port)?;
        }
    }
    if done.verdict == Verdict::Forward(Side::Inside) {
        same("realm", &done.realm, &becomes.realm)?;
    }
    Ok(())
}
