//! External ports and addresses of mappings: RFC 6056 section 4, RFC 7857 section 9, and RFC 6888
//! on addresses.

use super::mapping::contenders;
use super::{Kind, Trial, one, several};
use crate::flow::Transport;
use crate::stage::{Finding, Stage, Stop, failed, not_applicable};
use std::net::SocketAddrV4;

pub(super) const TRIALS: &[Trial] = &[
    Trial {
        requirements: &[
            "rfc6056#section-4-obfuscate",
            "rfc6056#section-4-preserve",
            "rfc6056#section-4-parity",
            "rfc7857#section-9",
            "rfc7857#section-9-preserve",
            "rfc7857#section-9-parity",
            "rfc6888#REQ-15",
        ],
        kind: Kind::Quick(several!(port_selection)),
    },
    Trial { requirements: &["rfc6888#REQ-2"], kind: Kind::Quick(one!(paired_over_protocols)) },
];

/// Number of sampled mappings. In a sample of random ports three consecutive ports are never close.
const SAMPLE: usize = 64;

/// Largest distance of ports that make a guess worthwhile.
const CLOSE: i32 = 32;

/// Observed choice of ports by a translator.
struct Selection {
    /// Pairs of internal and external port of endpoints whose port was free.
    free: Vec<(u16, u16)>,
    /// Pairs of internal and external port of endpoints whose port another host already had.
    taken: Vec<(u16, u16)>,
}

async fn sample(stage: &Stage) -> Result<Selection, Stop> {
    let mut selection = Selection { free: Vec::new(), taken: Vec::new() };
    for number in 0..SAMPLE {
        let [host, other] = contenders(stage).await?;
        let remote = stage.far(number % 3);
        let first = stage.map(Transport::Udp, other, remote).await?;
        let second = stage.map(Transport::Udp, host, remote).await?;
        selection.free.push((other.port(), first.port()));
        selection.taken.push((host.port(), second.port()));
    }
    Ok(selection)
}

/// Predictable property of ports in the order of their assignment; `None` if there is none.
fn guessable(ports: &[(u16, u16)]) -> Option<String> {
    let close = |a: u16, b: u16| (i32::from(a) - i32::from(b)).abs() <= CLOSE;
    let pairs = ports.windows(2).filter(|two| close(two[0].1, two[1].1)).count();
    // Repeated offsets from the internal port are predictable, too.
    let offset = |(internal, external): (u16, u16)| external.wrapping_sub(internal);
    let alike = ports.windows(2).filter(|two| offset(two[0]) == offset(two[1])).count();
    let many = ports.len() / 8;
    if pairs > many {
        return Some(format!(
            "{pairs} of {} external ports are within {CLOSE} of the one before",
            ports.len() - 1
        ));
    }
    (alike > many).then(|| {
        format!(
            "{alike} of {} external ports are as far from the internal as the one before",
            ports.len() - 1
        )
    })
}

async fn port_selection(stage: &Stage) -> [Finding; 7] {
    let selection = match sample(stage).await {
        Ok(selection) => selection,
        Err(stop) => return std::array::from_fn(|_| Err(stop.clone())),
    };
    let kept = selection.free.iter().filter(|(internal, external)| internal == external).count();
    let preserves = kept > SAMPLE / 2;
    let changed: Vec<_> = match preserves {
        true => &selection.taken,
        false => &selection.free,
    }
    .iter()
    .copied()
    .filter(|(internal, external)| internal != external)
    .collect();
    let parity = changed.iter().all(|(internal, external)| internal % 2 == external % 2);
    let hard = match guessable(&changed) {
        Some(why) => failed(format!("Ports can be guessed: {why}.")),
        None => Ok(format!(
            "Among {} external ports that differ from the internal ones, nothing tells the next.",
            changed.len()
        )),
    };
    let preserved: Finding = match (&hard, kept == SAMPLE) {
        (Ok(why), true) => Ok(format!("All {SAMPLE} ports that were free were kept. {why}")),
        (Ok(_), false) => {
            failed(format!("Of {SAMPLE} ports that were free, only {kept} were kept."))
        }
        (Err(stop), _) => Err(stop.clone()),
    };
    let keeps = "Ports are preserved where they are free.";
    let not = "Ports are not preserved.";
    let pick = |applies: bool, finding: &Finding, else_: &str| {
        if applies { finding.clone() } else { not_applicable(else_) }
    };
    let obfuscated = pick(!preserves, &hard, keeps);
    let preserved = pick(preserves, &preserved, not);
    let of_parity = pick(parity, &hard, "Parity is not preserved.");
    [
        obfuscated.clone(),
        preserved.clone(),
        of_parity.clone(),
        obfuscated,
        preserved,
        of_parity,
        hard_to_guess(&selection),
    ]
}

/// Checks that ports are not predictable; preserved ports count as predictable.
fn hard_to_guess(selection: &Selection) -> Finding {
    match guessable(&selection.free) {
        Some(why) => failed(format!("Ports can be guessed: {why}.")),
        None => Ok(format!("Among {SAMPLE} external ports nothing tells the next.")),
    }
}

/// Checks that all of a host's protocols have one external address.
async fn paired_over_protocols(stage: &Stage) -> Finding {
    let mut choice = false;
    for host in 0..3 {
        let mut first: Option<SocketAddrV4> = None;
        for transport in [Transport::Udp, Transport::Tcp, Transport::Echo, Transport::Udp] {
            for remote in 0..3 {
                let external = stage.map(transport, stage.near(host), stage.far(remote)).await?;
                let before = *first.get_or_insert(external);
                if before.ip() != external.ip() {
                    let name = transport.name();
                    return failed(format!(
                        "{} is {before} by UDP and {external} by {name}.",
                        stage.inside(host)
                    ));
                }
            }
        }
        choice |= stage.externals().len() > 1;
    }
    match choice {
        true => Ok("Three hosts each have one external address for UDP, TCP and ICMP.".to_owned()),
        false => not_applicable("Only one external address was seen."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_in_sequence_and_at_one_distance_are_guessed_and_scattered_ones_are_not() {
        let ports = |f: &dyn Fn(u16) -> (u16, u16)| (0..64).map(f).collect::<Vec<_>>();
        assert!(guessable(&ports(&|n| (n * 577, 1024 + n))).is_some());
        assert!(guessable(&ports(&|n| (n * 577, (n * 577).wrapping_add(9)))).is_some());
        let scattered = |n: u16| (20_000 + n, (u32::from(n) * 40_503 % 65_521) as u16);
        assert!(guessable(&ports(&scattered)).is_none());
    }
}
