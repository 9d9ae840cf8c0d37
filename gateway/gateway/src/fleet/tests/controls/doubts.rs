//! Connections of which the owner may not know all.

use super::*;
use natgate_engine::Config;

/// The former owner has ended, and has let out what `b` does not know: `b` owns the slice.
fn doubted() -> (Pair, Talk) {
    let mut pair = pair();
    let mut talk = Talk::open(&mut pair);
    talk.name_port(&mut pair);
    talk.run(&mut pair, 0.5);
    pair.wire().is_cut = true;
    talk.name_port(&mut pair);
    talk.run(&mut pair, 30.0);
    assert_eq!(talk.check().len(), 2, "it has gone without the partner");
    talk.lose_owner(&mut pair);
    (pair, talk)
}

impl Talk {
    /// The owner `a` has ended, behind a cut link. `b` hears so, and knows no connection.
    pub(super) fn lose_owner(&mut self, pair: &mut Pair) {
        pair.a = None;
        let beat = pair.wire().beats[0];
        pair.wire().is_cut = false;
        pair.wire().ends[1] = Some(beat);
        self.at_a = false;
        self.run(pair, 1.0);
        assert_eq!((pair.b().status().slices[0].role, pair.b().flows()), ("owner", 0));
    }

    /// `b` ends and starts again. Meanwhile the client names a port.
    fn restart_partner(&mut self, pair: &mut Pair) {
        pair.b = None;
        let beat = pair.wire().beats[1];
        pair.wire().ends[0] = Some(beat);
        self.run(pair, 1.0);
        self.name_port(pair);
        let settings = (pair.folder.path(), pair.allotment, pair.workers);
        pair.b = Some(Process::start("b", settings, &pair.wire, pair.now));
        pair.b().begin_gateway();
    }

    /// Both hosts say something, and it comes.
    pub(super) fn goes_on(&mut self, pair: &mut Pair) {
        self.say(pair, Side::Inside, "NOOP\r\n");
        self.run(pair, 1.0);
        self.say(pair, Side::Outside, "200 fine\r\n");
        self.run(pair, 1.0);
        assert!(self.is_whole());
    }

    /// Nothing comes.
    pub(super) fn stands_still(&mut self, pair: &mut Pair) {
        let before = self.hosts.each_ref().map(|host| host.received.len());
        self.say(pair, Side::Inside, "NOOP\r\n");
        self.say(pair, Side::Outside, "226 done\r\n");
        self.run(pair, 2.0);
        assert_eq!(self.hosts.each_ref().map(|host| host.received.len()), before);
    }
}

/// The partner gets the mapping of a connection that the owner does not know, and no flow. Packets
/// come to it.
#[test]
fn a_partner_passes_no_segment_of_a_connection_that_the_owner_does_not_know() {
    let (mut pair, mut talk) = doubted();
    pair.restart_a();
    pair.a().begin_gateway();
    pair.run(3.0);
    assert_eq!(pair.a().status().slices[0].role, "partner");
    assert!(pair.a().engine.mappings().count() > 0 && pair.a().flows() == 0);
    talk.at_a = true;
    talk.stands_still(&mut pair);
    talk.check();
    pair.ask("b", FleetRequest::Move(0, "a".into())).expect_err("the hold-down");
    pair.run(HOLD_DOWN);
    pair.ask("b", FleetRequest::Move(0, "a".into())).expect("it moves");
    pair.run(2.0);
    assert_eq!(pair.a().status().slices[0].role, "owner");
    talk.stands_still(&mut pair);
    talk.check();
}

#[test]
fn new_connections_go_on_although_they_are_not_read() {
    let (mut pair, _) = doubted();
    pair.run(HOLD_DOWN);
    // There is no partner to send to, whatever the last one took.
    pair.wire().is_old = true;
    pair.run(1.0);
    let mut talk = Talk::open_at(&mut pair, false, 4001);
    talk.name_port(&mut pair);
    talk.run(&mut pair, 1.0);
    assert_eq!((talk.check().len(), pair.b().flows()), (1, 1));
    talk.goes_on(&mut pair);
    pair.restart_a();
    pair.run(3.0);
    let mut talk = Talk::open_at(&mut pair, false, 4002);
    talk.goes_on(&mut pair);
    assert_eq!(pair.b().flows(), 1, "it is not read");
    // A connection of its own port is another one.
    pair.wire().is_old = false;
    pair.run(1.0);
    let mut talk = Talk::open_at(&mut pair, false, 4003);
    talk.goes_on(&mut pair);
    assert_eq!(pair.b().flows(), 2);
}

#[test]
fn new_connections_go_on_although_they_have_no_place() {
    let (mut pair, _) = doubted();
    pair.run(HOLD_DOWN);
    pair.b().limit_flows(1);
    pair.run(0.1);
    for port in 4001..4004 {
        Talk::open_at(&mut pair, false, port).goes_on(&mut pair);
    }
    assert_eq!(pair.b().flows(), 1);
}

/// A node that gets the slice back knows no more than the one that gives it.
#[test]
fn a_doubt_moves_with_the_slice() {
    let (mut pair, mut talk) = doubted();
    let mut later = None;
    for to in ["a", "b", "a"] {
        if to == "a" {
            pair.restart_a();
            pair.a().begin_gateway();
            pair.run(HOLD_DOWN);
        }
        let from = if to == "a" { "b" } else { "a" };
        pair.ask(from, FleetRequest::Move(0, to.into())).expect("it drains");
        pair.run(6.0);
        assert_eq!(pair.either(to == "a").status().slices[0].role, "owner");
        talk.at_a = to == "a";
        talk.stands_still(&mut pair);
        let mut new = later.take().unwrap_or_else(|| Talk::open_at(&mut pair, to == "a", 4001));
        new.at_a = to == "a";
        new.goes_on(&mut pair);
        later = Some(new);
        if to == "b" {
            pair.a = None;
            let beat = pair.wire().beats[0];
            pair.wire().ends[1] = Some(beat);
        }
    }
}

/// A segment without SYN would begin a mapping, perhaps with the same port.
#[test]
fn refused_connections_are_known_where_segments_begin_mappings() {
    for tcp_pickup in [false, true] {
        let mut pair = pair();
        let config = Config { tcp_pickup, ..pair.b().engine.config().clone() };
        pair.b().reload_with(&config);
        pair.b().limit_flows(1);
        pair.run(0.1);
        let before = Timestamp(pair.now);
        for port in [4001, 4002] {
            Talk::open_at(&mut pair, true, port).name_port(&mut pair);
        }
        pair.run(2.0);
        let now = Timestamp(pair.now);
        let algs = pair.b().algs.as_ref().expect("a gateway");
        // The owner's own doubt is older.
        let doubted = algs.stage.doubted(now, 0).is_some_and(|since| since > before);
        assert_eq!(doubted, tcp_pickup);
    }
}

/// Without a fault of the slice the owner may end at once: on a new stream, and after some time in
/// which the partner heard nothing of the slice. States come once a second, all the time.
#[test]
fn a_partner_whose_copy_is_complete_is_in_no_doubt() {
    let later = (0..10).map(|tenths| Some(30.0 + f64::from(tenths) / 10.0));
    for (workers, deaf) in [None]
        .into_iter()
        .chain(later)
        .flat_map(|deaf| [Counts::default(), Counts(2, 2)].map(|workers| (workers, deaf)))
    {
        let mut pair = pair_of(workers);
        let mut talk = Talk::open(&mut pair);
        talk.name_port(&mut pair);
        talk.run(&mut pair, 0.5);
        assert!(talk.is_whole());
        match deaf {
            None => talk.restart_partner(&mut pair),
            Some(time) => {
                pair.wire().deaf = Some(0);
                talk.name_port(&mut pair);
                talk.run(&mut pair, time);
                pair.wire().deaf = None;
            }
        }
        assert_eq!(talk.check().len(), 2, "it has gone without the partner");
        talk.name_port(&mut pair);
        let is_faultless = (0..1000).any(|_| {
            talk.run(&mut pair, 0.01);
            pair.b().status().slices[0].fault().is_none()
        });
        assert!(is_faultless);
        pair.end_a_with_guardian();
        talk.at_a = false;
        talk.run(&mut pair, 1.0);
        let owner = (pair.b().status().slices[0].role, pair.b().flows());
        assert_eq!(owner, ("owner", 1), "{workers:?}, {deaf:?}");
        talk.goes_on(&mut pair);
    }
}

/// The slice is `b`'s, which gives it to `a`. Returns when `a` is the owner, or is about to be.
fn given_to_a() -> (Pair, Talk) {
    let mut pair = pair();
    let mut talk = Talk::open(&mut pair);
    talk.name_port(&mut pair);
    talk.run(&mut pair, 0.5);
    pair.ask("a", FleetRequest::Move(0, "b".into())).expect("it drains");
    pair.run(5.0);
    talk.at_a = false;
    talk.goes_on(&mut pair);
    pair.ask("b", FleetRequest::Move(0, "a".into())).expect("it drains");
    for _ in 0..500 {
        if pair.b().status().slices[0].role != "owner" {
            return (pair, talk);
        }
        pair.run(0.01);
    }
    panic!("the slice does not move");
}

/// The next owner waits for this node.
#[test]
fn a_node_that_takes_a_slice_again_at_once_is_in_no_doubt() {
    for pause in [0.0, 0.02, 0.1, 0.3] {
        let (mut pair, mut talk) = given_to_a();
        pair.run(pause);
        pair.end_a_with_guardian();
        talk.run(&mut pair, 1.0);
        assert_eq!((pair.b().status().slices[0].role, pair.b().flows()), ("owner", 1), "{pause}");
        talk.goes_on(&mut pair);
        talk.check();
    }
}

#[test]
fn a_node_that_has_given_a_slice_does_not_know_what_the_next_owner_did_alone() {
    let (mut pair, mut talk) = given_to_a();
    pair.run(0.5);
    assert_eq!(pair.a().status().slices[0].role, "owner");
    pair.wire().is_cut = true;
    talk.at_a = true;
    talk.name_port(&mut pair);
    talk.run(&mut pair, 30.0);
    assert_eq!(talk.check().len(), 2, "it has gone without the partner");
    talk.lose_owner(&mut pair);
    talk.stands_still(&mut pair);
}
