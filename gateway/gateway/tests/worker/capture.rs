//! Captures show packets that leave by themselves, too, from whichever worker.

use crate::team::{Team, subscriber, with_pool};
use crate::world::*;
use natgate_engine::{Side, Verdict};
use natgate_gateway::capture::{Capture, Filter, Way};
use natgate_wire::Ipv4;
use natgate_wire::protocol::ICMP;
use std::thread;

/// Starts a capture. The capture waits for the workers, so they take turns meanwhile.
pub(crate) fn watch(team: &mut Team, filter: Filter) -> Capture {
    let commander = team.commander.clone();
    let begins = thread::spawn(move || Capture::begin(&commander, filter));
    while !begins.is_finished() {
        team.settle();
    }
    begins.join().expect("it ends").expect("it begins")
}

/// Captured packets: stage, side, and protocol.
fn seen(capture: &mut Capture) -> Vec<(Way, Side, u8)> {
    let mut all = Vec::new();
    capture.read(|record| {
        all.push((record.way, record.side, view(record.bytes).protocol()));
    });
    all
}

fn with(mut packet: Vec<u8>, change: impl Fn(&mut Ipv4<&mut [u8]>)) -> Vec<u8> {
    let mut header = Ipv4::new_checked(&mut packet[..]).expect("a packet");
    change(&mut header);
    header.fill_checksum();
    packet
}

#[test]
fn errors_of_the_gateways_own_and_fragments_that_had_waited_are_there() {
    let mut team = Team::new(&with_pool(1, (1024, 65535)), 1);
    let mut capture = watch(&mut team, Filter::default());
    let whole = udp((SUBSCRIBER, 4000), (REMOTE, 53), &[0x5a; 64]);
    let udp_of = |way, side| (way, side, natgate_wire::protocol::UDP);

    let dying = with(whole.clone(), |header| header.set_ttl(1));
    assert_eq!(team.send_inside(&dying).inside.len(), 1, "it is answered");
    let expected = [udp_of(Way::Came, Side::Inside), (Way::Made, Side::Inside, ICMP)];
    assert_eq!(seen(&mut capture), expected);

    // The second half comes first, and waits.
    let half = |range: std::ops::Range<usize>, fragment: u16| {
        let piece = ip(natgate_wire::protocol::UDP, SUBSCRIBER, REMOTE, &whole[20..][range]);
        with(piece, |header| {
            header.set_identification(7);
            header.set_fragment_field(fragment);
        })
    };
    const MORE: u16 = 1 << 13;
    assert!(team.send_inside(&half(32..72, 4)).outside.is_empty());
    assert_eq!(team.send_inside(&half(0..32, MORE)).outside.len(), 2);
    let expected = [
        udp_of(Way::Came, Side::Inside),
        udp_of(Way::Came, Side::Inside),
        udp_of(Way::Left, Side::Outside),
        udp_of(Way::Released, Side::Outside),
    ];
    assert_eq!(seen(&mut capture), expected);

    // The next hop of a translated packet does not answer: the router reports that.
    let lost = udp((SUBSCRIBER, 4000), (REMOTE, 54), b"lost");
    let unreachable = std::net::Ipv4Addr::new(198, 51, 100, 9);
    let lost = with(lost, |header| header.set_destination(unreachable.to_bits()));
    assert_eq!(team.send_inside(&lost).inside.len(), 1, "there is no route");
    let expected = [
        udp_of(Way::Came, Side::Inside),
        udp_of(Way::Left, Side::Outside),
        (Way::Made, Side::Inside, ICMP),
    ];
    assert_eq!(seen(&mut capture), expected);
    drop(team);
    assert!(capture.is_over());
}

#[test]
fn a_worker_that_joins_while_somebody_watches_shows_its_packets() {
    let settings = with_pool(1, (1024, 65535));
    for count in [1, 2] {
        let mut team = Team::new(&settings, count);
        let mut capture = watch(&mut team, Filter::default());
        team.grow(&settings);
        // The newcomer is asked at the first read, and starts the capture in its next turn.
        assert_eq!(seen(&mut capture), []);
        team.settle();
        team.pass(std::time::Duration::from_millis(50));
        for number in 0..40 {
            let packet = udp((subscriber(number), 4000), (REMOTE, 53), b"hello");
            assert_eq!(team.send_inside(&packet).outside.len(), 1);
            let mut ways = Vec::new();
            capture.read(|record| ways.push((record.way, record.verdict)));
            let forward = Verdict::Forward(Side::Outside);
            assert_eq!(ways, [(Way::Came, forward), (Way::Left, forward)]);
        }
        assert!(!team.mappings()[count].is_empty(), "the newcomer has subscribers");
        drop(team);
    }
}
