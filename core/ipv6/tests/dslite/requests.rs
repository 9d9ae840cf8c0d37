//! Requests for mappings that come through tunnels.

use super::*;

#[test]
fn a_request_for_a_mapping_is_the_callers_and_gives_no_number() {
    let mut world = World::new();
    let own = [192, 0, 0, 1];
    let request = tunneled(B4, &udp((HOST, own), (4000, 5351), b"request"));
    assert_eq!(world.take(Side::Inside, &request), Err(R::LocalUnsupported));
    assert_eq!(world.hosts(), (0, 0));
    let found = world.translator.tunneled_request(&request).expect("a request");
    assert_eq!((found.b4.to_string(), found.end.to_string()), (B4.into(), AFTR.into()));
    assert_eq!((found.asked, found.packet), (own.into(), &request[40..]));
    // A run of packets goes the same way.
    let inner = |ends: Ends| udp(ends, (4000, 5351), b"request");
    let mut buffers: Vec<Vec<u8>> = [inner((HOST, REMOTE)), inner((HOST, own))]
        .iter()
        .map(|inner| [vec![0; ROOM], tunneled(B4, inner)].concat())
        .collect();
    let mut packets: Vec<Packet<'_>> =
        buffers.iter_mut().map(|buffer| Packet::new(buffer, ROOM)).collect();
    let World { translator, engine, now } = &mut world;
    let mut fates = [Fate::Nothing; 2];
    let count = translator.take_some(engine, *now, Side::Inside, &mut packets, &mut fates);
    assert_eq!(count, 1, "the request must be alone");
    translator.sweep(engine, *now);
    translator.take_some(engine, *now, Side::Inside, &mut packets[1..], &mut fates);
    assert_eq!(fates[0], Fate::Local);
    assert!(translator.tunneled_request(packets[1].bytes()).is_some(), "it is as it came");
}

#[test]
fn what_is_no_request_for_a_mapping() {
    let mut world = World::new();
    let own = [192, 0, 0, 1];
    let good = udp((HOST, own), (4000, 5351), b"request");
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        let sum = {
            bytes[10..12].fill(0);
            checksum(&bytes[..20])
        };
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes
    };
    let others = [
        ("another port", tunneled(B4, &udp((HOST, own), (4000, 5352), b"request"))),
        ("another address", tunneled(B4, &udp((HOST, REMOTE), (4000, 5351), b"request"))),
        ("no B4", tunneled("2001:db8:bad::1", &good)),
        ("no inner host", tunneled(B4, &udp(([198, 51, 100, 9], own), (4000, 5351), b"request"))),
        ("the gateway itself", tunneled(B4, &udp((own, own), (4000, 5351), b"request"))),
        ("a fragment", tunneled(B4, &with(6, 0x20))),
        ("TCP", tunneled(B4, &with(9, 6))),
        (
            "a length beyond the packet",
            tunneled(B4, &{
                let mut bytes = good.clone();
                bytes[25] = 200;
                bytes
            }),
        ),
    ];
    for (name, packet) in others {
        assert_eq!(world.translator.tunneled_request(&packet), None, "{name}");
        let _ = world.take(Side::Inside, &packet);
    }
    for len in 0..40 + good.len() {
        let whole = tunneled(B4, &good);
        assert_eq!(world.translator.tunneled_request(&whole[..len]), None, "{len} bytes");
    }
}
