//! Calls of H.323 through a pair: messages name the endpoints of further connections, which are
//! read wherever the call goes on.

// The messages of the framework's own tests.
#[path = "../../../../../../core/payload/tests/common/h323.rs"]
#[allow(dead_code, clippy::duplicate_mod, reason = "other tests use another part")]
mod messages;

use super::*;
use messages::{
    ADMISSION_CONFIRM, CONNECT_H245, DETERMINATION, OPEN_ACK, OPEN_VIDEO, REGISTRATION, SETUP_H245,
    UNREGISTRATION, octets, with,
};

/// Where the hosts wait for a connection of H.245, in their messages.
const OWN: &str = "10.0.0.5:41000";
const OTHERS: &str = "198.51.100.7:30000";

/// Media of the host inside, in messages that open a channel.
const AUDIO: &str = "10.0.0.5:5001";
const VIDEO: &str = "10.0.0.5:5003";

fn at(text: &str) -> SocketAddrV4 {
    text.parse().expect("an endpoint")
}

fn remote(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from_bits(REMOTE), port)
}

fn setup() -> Vec<u8> {
    with(SETUP_H245, &[("198.51.100.2:1720", "198.51.100.7:1720")])
}

/// The endpoint that a message names in place of one that the host wrote.
fn named(said: &[u8], heard: &[u8], own: &str) -> SocketAddrV4 {
    assert_eq!(said.len(), heard.len());
    let place = said.windows(6).position(|six| six == octets(own)).expect("an endpoint");
    let [a, b, c, d, high, low] = heard[place..place + 6].try_into().expect("six octets");
    SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]))
}

impl Process {
    fn begin_h323(&mut self) {
        let mut settings = AlgSettings::default();
        settings.set(Kind::H323, AlgSettings::usual_ports(Kind::H323).to_vec());
        self.begin_gateway_with(&settings);
    }

    /// The host tells its gatekeeper where it waits for calls. Returns what the gatekeeper hears at
    /// once.
    fn registers(&mut self, message: &[u8]) -> Option<SocketAddrV4> {
        let sent = host::datagram(at("10.0.0.5:1719"), remote(1719), message);
        let out = self.carry(Side::Inside, &sent);
        let packet = out.first().map(|(_, packet)| packet);
        packet.map(|packet| named(message, &packet[28..], "10.0.0.5:1720"))
    }

    fn sweep_all(&mut self) {
        self.sweep();
        let now = Timestamp(self.now);
        for worker in &mut self.others {
            let stage = worker.algs.as_mut().map(|algs| &mut algs.stage);
            stage.expect("a gateway").sweep(&mut worker.engine, now);
        }
    }

    /// Where a datagram to an external endpoint goes.
    fn media(&mut self, end: SocketAddrV4) -> Option<External> {
        self.answer((*end.ip(), end.port()), None).map(|(_, to)| to)
    }
}

/// Lets a long time pass.
fn pass(pair: &mut Pair, seconds: f64) {
    for _ in 0..(seconds / 6.0).ceil() as u32 {
        pair.run(6.0);
        let nodes = [&mut pair.a, &mut pair.b];
        nodes.into_iter().flatten().for_each(Process::sweep_all);
    }
}

fn pair_of_h323(workers: Counts) -> Pair {
    let mut pair = Pair::of(Allotment::Many, workers);
    pair.a().begin_h323();
    pair.b().begin_h323();
    pair.run(1.0);
    pair
}

/// A call whose hosts have named where they wait for H.245.
struct Call {
    talk: Talk,
    /// External endpoint of the host inside.
    waits: SocketAddrV4,
}

impl Call {
    fn begin(pair: &mut Pair) -> Self {
        let mut talk = Talk::connect(pair, true, at("10.0.0.5:40000"), remote(1720));
        assert_eq!(talk.external().0, A1);
        talk.run(pair, 0.5);
        talk.write(pair, Side::Inside, &setup());
        assert_eq!(talk.hosts[1].received, b"", "it waits for the partner");
        talk.run(pair, 0.5);
        let waits = named(&setup(), &talk.hosts[1].received, OWN);
        assert_eq!(*waits.ip(), A1);
        let answer = with(CONNECT_H245, &[("198.51.100.2:30000", OTHERS)]);
        talk.write(pair, Side::Outside, &answer);
        talk.run(pair, 0.5);
        assert_eq!(talk.hosts[0].received, answer);
        Self { talk, waits }
    }

    /// The other host connects to the host inside.
    fn called(&self, pair: &mut Pair, at_a: bool) -> Talk {
        Talk::connect_in(pair, at_a, remote(40_001), (self.waits, at(OWN)))
    }

    /// The host inside connects to the other one.
    fn calls(pair: &mut Pair, at_a: bool) -> Talk {
        Talk::connect(pair, at_a, at("10.0.0.5:40002"), at(OTHERS))
    }
}

impl Talk {
    /// The host inside says messages, the last of which opens a channel. Returns the external
    /// endpoint of the media. `None`: the message was not read. A worker may have to wait for
    /// ports.
    fn opens(&mut self, pair: &mut Pair, message: &str, own: &str) -> Option<SocketAddrV4> {
        (0..5).find_map(|_| self.tries_to_open(pair, message, own))
    }

    fn tries_to_open(&mut self, pair: &mut Pair, message: &str, own: &str) -> Option<SocketAddrV4> {
        let before = self.hosts[1].received.len();
        let mut said = Vec::new();
        if before == 0 {
            said = messages::bytes(DETERMINATION);
        }
        said.extend(messages::bytes(message));
        self.write(pair, Side::Inside, &said);
        self.run(pair, 1.0);
        let heard = &self.hosts[1].received[before..];
        let end = named(&said, heard, own);
        (end != at(own)).then_some(end)
    }
}

#[test]
fn a_call_goes_on_after_a_crash_with_its_media_and_connections() {
    for workers in [Counts(1, 1), Counts(2, 3), Counts(3, 1)] {
        for is_called in [true, false] {
            let mut pair = pair_of_h323(workers);
            let call = Call::begin(&mut pair);
            let mut control = match is_called {
                true => call.called(&mut pair, true),
                false => Call::calls(&mut pair, true),
            };
            control.run(&mut pair, 0.5);
            let external = control.external();
            let media = control.opens(&mut pair, OPEN_ACK, AUDIO).expect("it is read");
            assert_eq!(pair.a().media(media), Some(inside(5001)));
            assert_eq!(pair.b().flows(), 2, "{workers:?}");
            pair.end_a_with_guardian();
            control.at_a = false;
            control.run(&mut pair, 0.5);
            assert_eq!(pair.b().media(media), Some(inside(5001)));
            assert_eq!(control.opens(&mut pair, OPEN_ACK, AUDIO), Some(media), "the same again");
            pass(&mut pair, HOLD_DOWN);
            assert_eq!(control.external(), external);
            let video = control.opens(&mut pair, OPEN_VIDEO, VIDEO).expect("it is read");
            assert_eq!((*video.ip(), pair.b().media(video).is_some()), (A1, true));
            // It is read as long as it lasts.
            pass(&mut pair, 400.0);
            assert!(control.opens(&mut pair, OPEN_ACK, AUDIO).is_some(), "{workers:?}");
        }
    }
}

#[test]
fn connections_that_were_named_before_a_crash_are_read_after_it() {
    // With as many workers as addresses, a worker may have no port of the call's address.
    for workers in [Counts(1, 1), Counts(2, 1), Counts(2, 3)] {
        let mut pair = pair_of_h323(workers);
        let call = Call::begin(&mut pair);
        pair.end_a_with_guardian();
        pass(&mut pair, HOLD_DOWN);
        let mut called = call.called(&mut pair, false);
        assert!(called.opens(&mut pair, OPEN_ACK, AUDIO).is_some(), "{workers:?}");
        let mut calling = Call::calls(&mut pair, false);
        assert!(calling.opens(&mut pair, OPEN_VIDEO, VIDEO).is_some(), "{workers:?}");
        // The time of the endpoints passes, but not for the connections.
        pass(&mut pair, 200.0);
        assert!(calling.opens(&mut pair, OPEN_VIDEO, VIDEO).is_some());
        let mut late = Talk::connect(&mut pair, false, at("10.0.0.5:40003"), at(OTHERS));
        assert!(late.opens(&mut pair, OPEN_ACK, AUDIO).is_some(), "as the other one lasts");
    }
}

/// The partner knows all that the other host heard before the crash.
#[test]
fn an_endpoint_that_was_told_just_before_a_crash_is_read() {
    let mut told = 0;
    for turns in 0..12 {
        let mut pair = pair_of_h323(Counts::default());
        let mut talk = Talk::connect(&mut pair, true, at("10.0.0.5:40000"), remote(1720));
        talk.run(&mut pair, 0.5);
        talk.write(&mut pair, Side::Inside, &setup());
        talk.run(&mut pair, f64::from(turns) / 100.0);
        let heard = talk.hosts[1].received.clone();
        pair.end_a_with_guardian();
        if heard.is_empty() {
            continue;
        }
        told += 1;
        pass(&mut pair, HOLD_DOWN);
        let call = Call { talk, waits: named(&setup(), &heard, OWN) };
        let mut control = call.called(&mut pair, false);
        assert!(control.opens(&mut pair, OPEN_ACK, AUDIO).is_some(), "{turns}");
    }
    assert!(told > 3, "it waits for few turns");
}

#[test]
fn a_call_moves_and_comes_back() {
    let mut pair = pair_of_h323(Counts::default());
    let call = Call::begin(&mut pair);
    let mut controls = [call.called(&mut pair, true), Call::calls(&mut pair, true)];
    let channels = [(OPEN_ACK, AUDIO), (OPEN_VIDEO, VIDEO)];
    for (from, to) in [("a", "b"), ("b", "a"), ("a", "b")] {
        let media = [0, 1].map(|at| {
            let (message, own) = channels[at];
            controls[at].run(&mut pair, 0.5);
            controls[at].opens(&mut pair, message, own).expect("it is read")
        });
        pair.ask(from, FleetRequest::Move(0, to.into())).expect("it drains");
        pair.run(5.0);
        assert_eq!(pair.either(to == "a").status().slices[0].role, "owner");
        assert!(pair.status_is_whole());
        for (control, end) in controls.iter_mut().zip(media) {
            control.at_a = to == "a";
            assert!(pair.either(to == "a").media(end).is_some(), "{from} to {to}");
        }
    }
    for (control, (message, own)) in controls.iter_mut().zip(channels) {
        assert!(control.opens(&mut pair, message, own).is_some());
    }
}

#[test]
fn a_registration_stands_after_a_crash_although_it_was_renewed_unheard() {
    for is_cut in [false, true] {
        let mut pair = pair_of_h323(Counts::default());
        let message = messages::bytes(REGISTRATION);
        let calls = pair.a().registers(&message);
        assert_eq!(calls, None, "it waits");
        pair.run(0.5);
        let kept = pair.a().kept();
        let [(Side::Outside, packet)] = &kept[..] else { panic!("{kept:?}") };
        let calls = named(&message, &packet[28..], "10.0.0.5:1720");
        pair.wire().is_cut = is_cut;
        for _ in 0..40 {
            pass(&mut pair, 20.0);
            let told = pair.a().registers(&message);
            assert!(told.is_none_or(|told| told == calls));
        }
        pair.a = None;
        let beat = pair.wire().beats[0];
        pair.wire().is_cut = false;
        pair.wire().ends[1] = Some(beat);
        pair.run(1.0);
        assert_eq!(pair.b().status().slices[0].role, "owner");
        let mut call = Talk::connect_in(&mut pair, false, remote(9), (calls, at("10.0.0.5:1720")));
        let external = calls.to_string();
        let ends = [("198.51.100.2:1720", &external[..]), ("10.0.0.5:41000", OTHERS)];
        call.write(&mut pair, Side::Outside, &with(SETUP_H245, &ends));
        call.run(&mut pair, 1.0);
        let heard = &call.hosts[0].received;
        let known = octets("10.0.0.5:1720");
        assert!(heard.windows(6).any(|six| six == known), "{is_cut}: {heard:x?}");
    }
}

/// A gatekeeper names where the host has to call.
#[test]
fn a_server_that_a_datagram_names_is_known_before_the_host_hears_of_it() {
    let mut pair = pair_of_h323(Counts::default());
    let request = host::datagram(at("10.0.0.5:1719"), remote(1719), &messages::bytes(REGISTRATION));
    let mut out = pair.a().carry(Side::Inside, &request);
    pair.run(0.5);
    out.extend(pair.a().kept());
    let [(Side::Outside, packet)] = &out[..] else { panic!("{out:?}") };
    let header = Ipv4::new_checked(&packet[..]).expect("a packet");
    let port = u16::from_be_bytes([packet[20], packet[21]]);
    let external = SocketAddrV4::new(Ipv4Addr::from_bits(header.source()), port);
    let answer = with(ADMISSION_CONFIRM, &[("198.51.100.2:1720", "198.51.100.7:1800")]);
    let answer = host::datagram(remote(1719), external, &answer);
    assert_eq!(pair.a().carry(Side::Outside, &answer), [], "it waits");
    pair.run(0.5);
    let kept = pair.a().kept();
    assert!(matches!(kept[..], [(Side::Inside, _)]), "{kept:?}");
    pair.end_a_with_guardian();
    pass(&mut pair, HOLD_DOWN);
    let mut talk = Talk::connect(&mut pair, false, at("10.0.0.5:40000"), remote(1800));
    talk.write(&mut pair, Side::Inside, &setup());
    talk.run(&mut pair, 1.0);
    assert_ne!(named(&setup(), &talk.hosts[1].received, OWN), at(OWN));
}

#[test]
fn a_partner_without_the_gateway_has_no_copy_of_what_a_call_needs() {
    let mut pair = pair_of_h323(Counts::default());
    pair.b().begin_gateway();
    let call = Call::begin(&mut pair);
    let mut control = call.called(&mut pair, true);
    control.run(&mut pair, 0.5);
    assert!(control.opens(&mut pair, OPEN_ACK, AUDIO).is_some(), "it waits for nobody");
    pair.run(3.0);
    let known = [call.talk.external(), (*call.waits.ip(), call.waits.port())];
    let copies = pair.b().hosts();
    assert!(known.iter().all(|end| !copies.contains_key(&(protocol::TCP, *end))));
    let fault = pair.a().status().slices[0].fault().expect("a reason");
    assert!(fault.contains("alg.h323"), "{fault}");
    pair.ask("a", FleetRequest::Move(0, "b".into())).expect("it drains");
    pair.run(5.0);
    assert_eq!(pair.b().status().slices[0].role, "owner", "the call does not keep the slice");
}

/// The partner has no place for servers of the host: a call goes on without them.
#[test]
fn a_call_whose_servers_have_no_place_at_the_partner_is_copied_without_them() {
    let mut pair = pair_of_h323(Counts::default());
    let stage = pair.b().algs.as_mut().map(|algs| &mut algs.stage).expect("a gateway");
    stage.fill_servers(Ipv4Addr::new(10, 0, 0, 5));
    let mut call = Call::begin(&mut pair);
    let mut controls = [call.called(&mut pair, true), Call::calls(&mut pair, true)];
    for (control, (message, own)) in
        controls.iter_mut().zip([(OPEN_ACK, AUDIO), (OPEN_VIDEO, VIDEO)])
    {
        control.run(&mut pair, 0.5);
        control.opens(&mut pair, message, own).expect("the owner reads it");
    }
    let before = pair.b().status().slices[0].received.expect("a stream");
    // Digests are compared several times.
    pair.run(100.0);
    let received = pair.b().status().slices[0].received.expect("a stream");
    assert!(received.compared > before.compared);
    assert_eq!((received.divergent, received.without_room), (0, 0));
    assert!(pair.status_is_whole());
    let known = [call.talk.external(), controls[1].external(), (A1, call.waits.port())];
    let copies = pair.b().hosts();
    assert!(known.iter().all(|end| copies.contains_key(&(protocol::TCP, *end))));
    assert_eq!(pair.b().flows(), 1, "the call");
    pair.ask("a", FleetRequest::Move(0, "b".into())).expect("it drains");
    pair.run(5.0);
    assert_eq!(pair.b().status().slices[0].role, "owner");
    // The connections go on: no message of H.323 has another length outside.
    for talk in controls.iter_mut().chain([&mut call.talk]) {
        talk.at_a = false;
        let before = talk.hosts[1].received.len();
        talk.write(&mut pair, Side::Inside, &messages::bytes(DETERMINATION));
        talk.run(&mut pair, 1.0);
        assert!(talk.hosts[1].received.len() > before);
    }
}

/// The mapping of the server stands at both nodes.
#[test]
fn the_copy_of_a_registration_ends_with_it() {
    let mut pair = servers::pair_with(&[servers::server(protocol::TCP, 1800)]);
    pair.a().begin_h323();
    pair.b().begin_h323();
    pair.run(1.0);
    let calls = SocketAddrV4::new(A1, 1800);
    let tell = |pair: &mut Pair, message: &str| {
        let message = with(message, &[("10.0.0.5:1720", "10.0.0.5:1800")]);
        let sent = host::datagram(at("10.0.0.5:1719"), remote(1719), &message);
        pair.a().carry(Side::Inside, &sent);
        pair.run(0.5);
        assert_ne!(pair.a().kept().len(), 2);
    };
    let know = |pair: &mut Pair| {
        [true, false].map(|to_a| {
            let stage = pair.either(to_a).algs.as_ref().map(|algs| &algs.stage);
            stage.expect("a gateway").knows_server(calls)
        })
    };
    for _ in 0..2 {
        tell(&mut pair, REGISTRATION);
        pass(&mut pair, 30.0);
        assert_eq!(know(&mut pair), [true, true]);
        tell(&mut pair, UNREGISTRATION);
        pass(&mut pair, 30.0);
        assert_eq!(know(&mut pair), [false, false]);
    }
}

/// The former owner may have let out what this node does not know.
#[test]
fn connections_of_which_the_partner_may_not_know_all_end() {
    for is_called in [true, false] {
        let mut pair = pair_of_h323(Counts::default());
        let call = Call::begin(&mut pair);
        let mut control = match is_called {
            true => call.called(&mut pair, true),
            false => Call::calls(&mut pair, true),
        };
        control.run(&mut pair, 0.5);
        pair.wire().is_cut = true;
        control.write(&mut pair, Side::Inside, &messages::bytes(DETERMINATION));
        control.run(&mut pair, 30.0);
        assert!(!control.hosts[1].received.is_empty(), "it has gone without the partner");
        control.lose_owner(&mut pair);
        control.stands_still(&mut pair);
        // It does so when the time of its endpoint has passed, too.
        pass(&mut pair, 400.0);
        control.stands_still(&mut pair);
        // A message for one host says nothing of the connections of another.
        let mut other = Talk::connect(&mut pair, false, at("10.0.0.6:40002"), at(OTHERS));
        other.write(&mut pair, Side::Outside, b"for another host");
        other.run(&mut pair, 0.5);
        assert_eq!(other.hosts[0].received, b"for another host");
    }
}
