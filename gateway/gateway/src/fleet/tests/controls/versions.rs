//! A partner whose version takes no control flows.

use super::*;

#[test]
fn gateways_read_nothing_new_while_the_partner_is_old() {
    let mut pair = pair();
    let mut before = Talk::open(&mut pair);
    before.name_port(&mut pair);
    before.run(&mut pair, 0.5);
    assert!(before.is_whole() && before.check().len() == 1);
    pair.wire().is_old = true;
    pair.run(1.0);
    let fault = pair.a().status().link.flows_fault().expect("a reason");
    assert!(fault.contains("does not take control flows"), "{fault}");
    // What is read goes on at this node alone, without a copy.
    before.name_port(&mut pair);
    before.run(&mut pair, 1.0);
    assert_eq!(before.check().len(), 2);
    assert_eq!(pair.b().flows(), 0);
    // It could not read that one session only may come.
    let (external, _) = before.last_port().expect("an external port");
    let has_copy = pair.b().hosts().contains_key(&(protocol::TCP, external));
    assert!(!has_copy && pair.a().hosts().contains_key(&(protocol::TCP, external)));
    let request = host::datagram(
        SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, CLIENT), 7000),
        SocketAddrV4::new(Ipv4Addr::from_bits(REMOTE), 69),
        b"\0\x01file\0octet\0",
    );
    assert_eq!(pair.a().carry(Side::Inside, &request).len(), 1, "it waits for nobody");
    pair.run(1.0);
    pair.ask("a", FleetRequest::Move(0, "b".into())).expect("it drains");
    pair.run(5.0);
    assert_eq!(pair.b().status().slices[0].role, "owner");
    pair.wire().is_old = false;
    pair.run(1.0);
    assert_eq!(pair.a().status().link.flows_fault(), None);
}

#[test]
fn both_nodes_tell_which_gateways_differ() {
    let mut pair = pair();
    pair.b().begin_gateway_of(&[(Kind::Ftp, 2121), (Kind::Sip, 5060)]);
    pair.run(3.0);
    for node in ["a", "b"] {
        for slice in pair.either(node == "a").status().slices {
            let fault = slice.fault().expect("a reason");
            assert!(fault.ends_with("differ in alg.ftp, alg.tftp"), "{fault}");
        }
    }
    pair.b().begin_gateway();
    pair.run(3.0);
    assert!(pair.status_is_whole());
}
