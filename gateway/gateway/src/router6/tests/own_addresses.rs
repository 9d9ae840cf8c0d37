//! Duplicate address detection for own addresses.

use super::*;

fn states(router: &Router6, link: Link) -> Vec<AddressState> {
    router.addresses(link).into_iter().map(|(_, state)| state).collect()
}

/// The question whether another host has an own address of the inside.
fn dad(target: Ipv6Addr) -> Out {
    let group = nd::solicited_node(target);
    let message = Message::NeighborSolicitation { target, mac: None };
    Out::Message(IN, nd::group_mac(group), Ipv6Addr::UNSPECIFIED, group, message)
}

fn announced(target: Ipv6Addr) -> Out {
    let said =
        Advertisement { target, mac: Some(INSIDE), router: true, solicited: false, replaces: true };
    let mac = nd::group_mac(nd::ALL_NODES);
    Out::Message(IN, mac, target, nd::ALL_NODES, Message::NeighborAdvertisement(said))
}

fn inside_alone() -> Router6 {
    let mut settings = settings();
    settings.ipv6.outside = Side6::default();
    settings.router6.routes.clear();
    new(&settings)
}

/// A question of another host for one of the router's addresses, which it wants to have.
fn contend(router: &mut Router6, now: Timestamp, target: &str) {
    let group = nd::solicited_node(ip(target));
    let question = Solicitation { target: ip(target), mac: OTHER }.packet(None, group);
    assert_eq!(router.receive(now, IN, OTHER, question.bytes()), Received::Discovery);
}

//= test rfc4862#section-5.4
#[test]
fn addresses_are_asked_for_before_use() {
    let mut router = inside_alone();
    let own = [nd::link_local(INSIDE), ip("2001:db8:1::1")];
    router.advance(at(0));
    assert_eq!(take(&mut router), own.map(dad));
    assert_eq!(states(&router, IN), [AddressState::Tentative; 2]);
    // A tentative address is neither answered for nor used.
    solicit(&mut router, at(1), IN, ("fe80::5", HOST), "2001:db8:1::1");
    assert_eq!(send(&mut router, at(1), IN, "2001:db8:1::5").0, Fate::Kept);
    let to_own = packet("2001:db8:1::5", "2001:db8:1::1");
    assert_eq!(router.receive(at(1), IN, HOST, &to_own), Received::Ignored);
    assert_eq!((take(&mut router), router.next_deadline()), (vec![], Some(at(1000))));
    router.advance(at(1000));
    assert_eq!(take(&mut router), own.map(announced));
    assert_eq!(states(&router, IN), [AddressState::Assigned; 2]);
    // Packets that wait have their neighbours asked for now.
    router.advance(at(1001));
    assert_eq!(take(&mut router), [question(IN, "2001:db8:1::5")]);
}

//= test rfc4862#section-5.4.3
//= test rfc4862#section-5.4.4
//= test rfc4862#section-5.4.5
#[test]
fn an_address_that_another_host_has_is_not_used() {
    for asks in [true, false] {
        let mut router = inside_alone();
        router.advance(at(0));
        take(&mut router);
        match asks {
            true => contend(&mut router, at(500), "2001:db8:1::1"),
            false => {
                let said = Advertisement { solicited: false, ..said("2001:db8:1::1", OTHER) };
                hear(&mut router, at(500), IN, said);
            }
        }
        router.advance(at(1000));
        assert_eq!(take(&mut router), [announced(nd::link_local(INSIDE))]);
        assert_eq!(states(&router, IN), [AddressState::Assigned, AddressState::Duplicate]);
        assert_eq!(router.counters().address_conflicts, 1);
        solicit(&mut router, at(1001), IN, ("fe80::5", HOST), "2001:db8:1::1");
        assert_eq!(take(&mut router), []);
        // The router asks again after a while, and has the address if nobody answers.
        assert_eq!(router.next_deadline(), Some(at(60_500)));
        router.advance(at(60_500));
        assert_eq!(take(&mut router), [dad(ip("2001:db8:1::1"))]);
        router.advance(at(61_500));
        assert_eq!(states(&router, IN), [AddressState::Assigned; 2]);
    }
}

#[test]
fn a_question_that_a_switch_sends_back_is_no_other_host() {
    let mut router = inside_alone();
    router.advance(at(0));
    let (_, frame, _) = router.poll_transmit().expect("a question");
    router.receive(at(1), IN, INSIDE, &frame[ETHERNET_LEN..]);
    router.advance(at(1000));
    assert_eq!(states(&router, IN), [AddressState::Assigned; 2]);
}

//= test rfc4861#section-7.2.4-probe
//= test rfc4861#section-7.2.3-probe
#[test]
fn an_address_is_defended() {
    let mut router = inside_alone();
    router.advance(at(0));
    router.advance(at(1000));
    take(&mut router);
    contend(&mut router, at(2000), "2001:db8:1::1");
    assert_eq!(take(&mut router), [announced(ip("2001:db8:1::1"))]);
    assert_eq!(router.neighbors(IN), []);
    // A claim of another host takes nothing away.
    let claim = Advertisement { solicited: false, ..said("2001:db8:1::1", OTHER) };
    hear(&mut router, at(2001), IN, claim);
    assert_eq!(states(&router, IN), [AddressState::Assigned; 2]);
    assert_eq!(router.counters().address_conflicts, 1);
}
