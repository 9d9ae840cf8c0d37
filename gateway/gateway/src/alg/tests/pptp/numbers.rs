//! The table of calls alone: the numbers that it draws, and its indexes.

use super::*;
use crate::alg::calls::Calls;
use crate::alg::gre as packets;
use natgate_payload::CallStep;

#[test]
fn workers_draw_from_numbers_of_their_own() {
    let flow = endpoints(0, end("10.0.0.5:40000"), end("203.0.113.1:50000"), end(PAC));
    // A worker that joins draws from no number that others may have.
    for number in [0, 1, 2, 40, 63] {
        let mut calls = Calls::new([number as u8; 32]);
        for own in 0..calls::MOST_OF_HOST as u16 - 1 {
            let outer = calls.open(Timestamp(0), (number, 0), &flow, own).unwrap();
            assert_ne!(outer, 0);
            assert_eq!(calls::likely_worker(outer), usize::from(number));
        }
    }
}

#[test]
fn a_worker_whose_numbers_are_used_up_makes_no_call() {
    let made = |worker: u16| {
        let (mut calls, mut made) = (Calls::new([1; 32]), 0);
        for host in 0..5 {
            let client = format!("10.0.0.{host}:40000");
            let flow = endpoints(0, end(&client), end("203.0.113.1:50000"), end(PAC));
            for own in 0..500 {
                let call = calls.open(Timestamp(0), (worker, 0), &flow, own);
                made += usize::from(call.is_some());
            }
        }
        made
    };
    // 512 numbers of one class; the first worker has many more.
    assert_eq!((made(9), made(0)), (512, 2500));
}

/// Hosts behind several B4s have one address, and choose one Call ID.
#[test]
fn hosts_with_numbers_have_calls_of_their_own() {
    let mut calls = Calls::new([5; 32]);
    let flow = |host: u32| {
        let external = SocketAddrV4::new(address(POOL), 50_000 + host as u16);
        let number = Some(Ipv4Addr::from_bits(0x0100_0000 + host));
        Endpoints { number, ..endpoints(2, end("10.0.0.9:4000"), external, end(PAC)) }
    };
    let mut outers = BTreeSet::new();
    // Two subscribers with two hosts each.
    for host in [0, 1, 256, 257] {
        let outer = calls.open(Timestamp(0), (0, 8), &flow(host), 7).expect("a call");
        assert!(outers.insert(outer));
        calls.step(1, &flow(host), CallStep::Peer { internal: 7, peer: 9000 });
        assert_eq!(calls.external(&flow(host), 7), Some(outer));
        let data = |source: Ipv4Addr| packets::Tunnel {
            source: source.to_bits(),
            destination: end(PAC).ip().to_bits(),
            call: 9000,
        };
        let number = flow(host).number.expect("a number");
        let found = calls.of_outbound(1, 2, data(number)).map(|call| call.outer);
        assert_eq!(found, Some(outer));
        assert_eq!(calls.of_outbound(1, 2, data(address("10.0.0.9"))), None);
        calls.check();
    }
    // Hosts of one subscriber share its room.
    let made = (100..900)
        .filter(|own| calls.open(Timestamp(0), (0, 8), &flow(u32::from(*own) % 2), *own).is_some());
    assert_eq!(made.count(), calls::MOST_OF_HOST - 2);
    assert!(calls.open(Timestamp(0), (0, 8), &flow(256), 999).is_some());
    calls.end_flow(&flow(256));
    assert!(calls.external(&flow(257), 7).is_some() && calls.external(&flow(256), 7).is_none());
    calls.check();
}

/// Random steps of some hosts with few numbers: the indexes stay those of the calls.
#[test]
fn random_steps_keep_the_indexes() {
    let first = std::env::var("NATGATE_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    for seed in first..first + 100_u64 {
        let mut state = seed;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % bound
        };
        let mut calls = Calls::new([3; 32]);
        let mut now = 1000;
        for _ in 0..400 {
            let [host, port, server] = [below(3), below(2), below(2)];
            let ends = [
                format!("10.0.0.{host}:{}", 4000 + port),
                format!("203.0.113.1:{}", 5000 + 10 * host + port + 100 * below(2)),
                format!("198.51.100.{server}:1723"),
            ];
            let [own, external, remote] = ends.map(|text| end(&text));
            let mut flow = endpoints(0, own, external, remote);
            flow.number = [None, Some(Ipv4Addr::new(1, 0, 0, host as u8))][below(2) as usize];
            let [id, peer] = [below(4) as u16, below(4) as u16];
            let time = Timestamp(u64::from(now) * 1_000_000_000);
            let datagram = packets::Datagram {
                source: remote.ip().to_bits(),
                destination: external.ip().to_bits(),
                identification: peer,
            };
            match below(9) {
                0..3 => _ = calls.open(time, (0, 8), &flow, id),
                3 => _ = calls.step(now, &flow, CallStep::Peer { internal: id, peer }),
                4 => _ = calls.step(now, &flow, CallStep::End(id)),
                5 => _ = calls.step(now, &flow, CallStep::Clear(id)),
                6 if below(8) == 0 => _ = calls.step(now, &flow, CallStep::Restart),
                7 => {
                    let call = calls.waiting(now).next().copied();
                    call.inspect(|call| calls.note_first(now + 2, call, (None, datagram), None));
                }
                _ => {
                    now += below(40) as u32;
                    calls.sweep(now, |_| true);
                }
            }
            calls.check();
        }
        assert!(calls.entries()[0] > 0, "NATGATE_SEED={seed}");
    }
}
