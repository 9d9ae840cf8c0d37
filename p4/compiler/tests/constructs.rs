//! One small program for each construct of the language, interpreted.
//!
//! Each program gets the words 0x1234, 0x00ff and 0x00000000 and puts its result into the last.

mod common;

use common::{Parts, program};
use natgate_io::Frame;
use natgate_p4::{Fate, Key, Machine, Outcome, Program, Rates, compile};
use std::time::Duration;

const PACKET: [u8; 10] = [0x12, 0x34, 0x00, 0xff, 0, 0, 0, 0, 0xaa, 0xbb];

fn compiled(parts: Parts<'_>) -> Program {
    let text = program(parts);
    let compiled = compile("test.p4", &text);
    let program = compiled.unwrap_or_else(|error| panic!("{}\n{text}", error.rendered()));
    // Each program must compile to Rust; other tests compare its behavior.
    assert!(program.rust("test").contains("pub struct Test"));
    program
}

/// The packet that leaves by port 2.
fn sent(machine: &mut Machine<'_>, seconds: u64, packet: &[u8]) -> Vec<u8> {
    match machine.process(Duration::from_secs(seconds), 1, packet) {
        Outcome::Sent { port: 2, packet } => packet,
        other => panic!("{other:?}"),
    }
}

/// Last word of the packet that leaves.
fn word(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[4..8].try_into().expect("four bytes"))
}

fn result(parts: Parts<'_>) -> u32 {
    let program = compiled(parts);
    let packet = sent(&mut Machine::new(&program, 0), 0, &PACKET);
    assert_eq!(packet[8..], PACKET[8..], "the payload stays");
    word(&packet)
}

/// Result of an expression that is assigned to `hdr.words.c`.
fn computes(expression: &str) -> u32 {
    result(Parts { body: &format!("hdr.words.c = {expression};"), ..Parts::default() })
}

#[test]
fn operators() {
    for (expression, expected) in [
        ("(bit<32>) (hdr.words.a + hdr.words.b)", 0x1333),
        ("(bit<32>) (hdr.words.b - hdr.words.a)", 0xeecb),
        ("(bit<32>) (hdr.words.a |+| 0xffff)", 0xffff),
        ("(bit<32>) (hdr.words.b |-| hdr.words.a)", 0),
        ("(bit<32>) (hdr.words.a * 16)", 0x2340),
        ("(bit<32>) (hdr.words.a & hdr.words.b)", 0x34),
        ("(bit<32>) (hdr.words.a | hdr.words.b)", 0x12ff),
        ("(bit<32>) (hdr.words.a ^ hdr.words.b)", 0x12cb),
        ("(bit<32>) ~hdr.words.a", 0xedcb),
        ("(bit<32>) -hdr.words.a", 0xedcc),
        ("(bit<32>) hdr.words.a << 20", 0x2340_0000),
        ("(bit<32>) (hdr.words.a >> 4)", 0x123),
        ("(bit<32>) (hdr.words.a >> hdr.words.b)", 0),
        ("hdr.words.a ++ hdr.words.b", 0x1234_00ff),
        ("(bit<32>) hdr.words.a[11:4]", 0x23),
        ("(bit<32>) (hdr.words.a ++ hdr.words.b)[19:12]", 0x40),
        ("hdr.words.a > hdr.words.b ? 32w1 : 2", 1),
        ("hdr.words.a <= hdr.words.b ? 32w1 : 2", 2),
        ("!(hdr.words.a == 0x1234) || hdr.words.b != 0xff ? 32w1 : 2", 2),
        ("(bit<32>) (bit<1>) (hdr.words.a == 0x1234 && true)", 1),
        ("1 + 2 * 3 - 8 / 3 % 2", 7),
        ("1 << 4", 16),
        ("4 == 3 + 1 && 2 < 3 ? 32w5 : 6", 5),
        ("hdr.words.a & 0xf0 == 0x30 ? 32w1 : 0", 1),
    ] {
        assert_eq!(computes(expression), expected, "{expression}");
    }
}

#[test]
fn signed_numbers() {
    for (expression, expected) in [
        ("(bit<32>) (int<32>) (int<16>) hdr.words.a", 0x1234),
        ("(bit<32>) (int<32>) (int<16>) ~hdr.words.a", 0xffff_edcb),
        ("(bit<32>) ((int<32>) (int<16>) ~hdr.words.a >> 4)", 0xffff_fedc),
        ("(int<16>) ~hdr.words.a < 16s0 ? 32w1 : 0", 1),
        ("(bit<32>) (8s127 |+| 8s1 == 8s127 ? 32w1 : 0)", 1),
        ("(bit<32>) (int<32>) (-8s3)", 0xffff_fffd),
    ] {
        assert_eq!(computes(expression), expected, "{expression}");
    }
}

#[test]
fn types_of_all_kinds() {
    let decls = "
        typedef bit<32> word_t;
        type bit<32> Own_t;
        enum Colour { RED, GREEN }
        enum bit<8> Kind { A = 7, B = 9 }
        const word_t BASE = 0x100;
        struct pair_t { word_t one; bit<8> two; }
        bit<32> both(in pair_t pair) { return pair.one + (bit<32>) pair.two; }";
    for (body, expected) in [
        ("Own_t own = (Own_t) 5; hdr.words.c = (bit<32>) own;", 5),
        ("Colour c = Colour.GREEN; if (c == Colour.GREEN) { hdr.words.c = BASE; }", 0x100),
        ("Kind k = Kind.B; hdr.words.c = (bit<32>) (bit<8>) k;", 9),
        ("Kind k = (Kind) 7; if (k == Kind.A) { hdr.words.c = 1; }", 1),
        ("pair_t p = {3, 4}; hdr.words.c = p.one + (bit<32>) p.two;", 7),
        ("pair_t p = {two = 4, one = 5}; hdr.words.c = both(p);", 9),
        ("pair_t p = {1, 2}; pair_t q = p; q.one = 1; if (p == q) { hdr.words.c = 1; }", 1),
        ("hdr.words.c = both({BASE, 1}) + both({1, 1});", 0x103),
        ("hdr.words.c[15:8] = 0xab; hdr.words.c[7:0] = hdr.words.a[7:0];", 0xab34),
        ("hdr.words.c = 8w1 ++ 24w2;", 0x0100_0002),
        ("error e = error.NoMatch; if (e != error.NoError) { hdr.words.c = 1; }", 1),
        ("tuple<bit<8>, bit<8>> t = {1, 2}; if (t == {8w1, 8w2}) { hdr.words.c = 1; }", 1),
        ("hdr.words.c = (bit<32>) hdr.words.minSizeInBytes();", 8),
    ] {
        assert_eq!(result(Parts { decls, body, ..Parts::default() }), expected, "{body}");
    }
}

#[test]
fn headers_are_valid_or_not() {
    for (body, expected) in [
        ("if (hdr.words.isValid() && !hdr.other.isValid()) { hdr.words.c = 1; }", 1),
        ("if (hdr.words != hdr.other) { hdr.words.c = 1; }", 1),
        (
            "hdr.other = hdr.words; if (hdr.words == hdr.other) { hdr.words.c = 1; \
             } hdr.other = {#};",
            1,
        ),
        ("hdr.other.setValid(); hdr.other.setInvalid(); hdr.words.c = 2;", 2),
    ] {
        assert_eq!(result(Parts { body, ..Parts::default() }), expected, "{body}");
    }
    let body = "hdr.other = {1, 2, 3}; hdr.words.setInvalid();";
    let program = compiled(Parts { body, ..Parts::default() });
    let packet = sent(&mut Machine::new(&program, 0), 0, &PACKET);
    assert_eq!(packet, [0, 1, 0, 2, 0, 0, 0, 3, 0xaa, 0xbb]);
}

#[test]
fn calls_happen_in_order_and_only_if_they_should() {
    let decls = "
        bit<32> next(inout bit<32> count) { count = count + 1; return count; }
        bool yes(inout bit<32> count) { count = count + 1; return true; }
        bit<16> early(in bit<16> x) { if (x > 3) { return 1; } return 2; }
        void both(out bit<32> a, inout bit<32> b) { a = b; b = b + 1; }";
    for (body, expected) in [
        ("hdr.words.c = next(meta.note) + next(meta.note) * 16;", 0x21),
        ("hdr.words.c = meta.note + next(meta.note);", 1),
        ("hdr.words.c = next(meta.note) - meta.note;", 0),
        ("bool x = false && yes(meta.note); hdr.words.c = meta.note;", 0),
        ("bool x = true || yes(meta.note); hdr.words.c = meta.note;", 0),
        ("bool x = true && yes(meta.note); hdr.words.c = meta.note + (bit<32>) (bit<1>) x;", 2),
        (
            "hdr.words.c = hdr.words.a == 0 ? next(meta.note) : 7; hdr.words.c = hdr.words.c + \
             meta.note;",
            7,
        ),
        ("hdr.words.c = (bit<32>) (early(1) ++ early(9));", 0x0002_0001),
        ("bit<32> a; meta.note = 5; both(a, meta.note); hdr.words.c = a * 16 + meta.note;", 0x56),
        ("both(_, meta.note); hdr.words.c = meta.note;", 1),
        ("both(b = meta.note, a = hdr.words.c); hdr.words.c = hdr.words.c + meta.note;", 1),
    ] {
        assert_eq!(result(Parts { decls, body, ..Parts::default() }), expected, "{body}");
    }
}

#[test]
fn statements_of_all_kinds() {
    let locals = "
        action set(in bit<32> x) { hdr.words.c = x; }
        action leave() { hdr.words.c = 3; exit; }
        action back() { hdr.words.c = 4; if (hdr.words.a == 0x1234) { return; } hdr.words.c = 5; }";
    for (body, expected) in [
        ("set(9);", 9),
        ("leave(); hdr.words.c = 1;", 3),
        ("back();", 4),
        (
            "if (hdr.words.a == 1) { set(1); } else if (hdr.words.b == 0xff) { set(2); \
             } else { set(3); }",
            2,
        ),
        ("switch (hdr.words.a) { 1: 2: { set(1); } 0x1234: { set(2); } default: { set(3); } }", 2),
        ("switch (hdr.words.b) { 1: { set(1); } default: { set(3); } }", 3),
        ("const bit<32> k = 6; { bit<32> x = k; set(x + 1); }", 7),
        ("set(1); return; set(2);", 1),
    ] {
        assert_eq!(result(Parts { locals, body, ..Parts::default() }), expected, "{body}");
    }
}

#[test]
fn parsers() {
    let after = "hdr.words.c = meta.note;";
    let extract = "pkt.extract(hdr.words);";
    for (states, expected) in [
        (
            "state start { EXTRACT transition select(hdr.words.a, hdr.words.b) {
                (0x1200 &&& 0xff00, 0xff): one; default: accept; } }
             state one { meta.note = 1; transition accept; }",
            1,
        ),
        (
            "state start { bit<8> next = pkt.lookahead<bit<8>>(); EXTRACT
                meta.note = (bit<32>) next; transition accept; }",
            0x12,
        ),
        ("state start { EXTRACT meta.note = pkt.length(); transition accept; }", 10),
        (
            "state start { meta.note = 0; transition loop; }
             state loop { meta.note = meta.note + 1;
                transition select(meta.note) { 5: done; _: loop; } }
             state done { EXTRACT transition accept; }",
            5,
        ),
        (
            "Sub() sub; state start { sub.apply(pkt, hdr.words, meta.note); transition accept; }",
            0x1234,
        ),
    ] {
        let decls = "parser Sub(packet_in pkt, out words_t words, inout bit<32> note) {
            state start { pkt.extract(words); note = (bit<32>) words.a; transition accept; } }";
        let states = &states.replace("EXTRACT", extract);
        assert_eq!(
            result(Parts { decls, states, body: after, ..Parts::default() }),
            expected,
            "{states}"
        );
    }
}

#[test]
fn errors_of_parsers_reach_the_control() {
    for (states, error) in [
        ("state start { transition reject; }", "NoError"),
        ("state start { transition select(8w1) { 2: accept; } }", "NoMatch"),
        ("state start { verify(false, error.Mine); transition accept; }", "Mine"),
        ("state start { pkt.advance(81); transition accept; }", "PacketTooShort"),
        (
            "state start { pkt.extract(hdr.words); pkt.extract(hdr.other); transition accept; }",
            "PacketTooShort",
        ),
        ("state start { transition start; }", "ParserTimeout"),
    ] {
        let body = &format!(
            "hdr.words = {{0, 0, 0}}; if (istd.parser_error == error.{error}) {{ hdr.words.c = 1; \
             }}"
        );
        let program = compiled(Parts { decls: "error { Mine }", states, body, ..Parts::default() });
        let packet = sent(&mut Machine::new(&program, 0), 0, &PACKET);
        assert_eq!(word(&packet), 1, "{states}");
    }
}

const TABLE: &str = "
    action set(bit<32> x) { hdr.words.c = x; }
    action miss() { hdr.words.c = 99; }
    table t {
        key = { hdr.words.a : KIND; }
        actions = { set; miss; }
        default_action = miss();
        ENTRIES
    }";

#[test]
fn tables_of_all_kinds() {
    let body = "t.apply();";
    let table = |kind: &str, entries: &str| TABLE.replace("KIND", kind).replace("ENTRIES", entries);
    let exact = compiled(Parts { locals: &table("exact", "size = 2;"), body, ..Parts::default() });
    let mut machine = Machine::new(&exact, 0);
    let next = |machine: &mut Machine<'_>| word(&sent(machine, 0, &PACKET));
    assert_eq!(next(&mut machine), 99);
    machine.insert("t", &[Key::Exact(0x1234)], "set", &[5], 0).expect("it fits");
    assert_eq!(next(&mut machine), 5);
    machine.set_default("t", "set", &[7]).expect("it can be set");
    assert_eq!((machine.remove("t", &[Key::Exact(0x1234)]), next(&mut machine)), (Ok(true), 7));
    machine.insert("t", &[Key::Exact(1)], "set", &[5], 0).expect("it fits");
    machine.insert("Main.t", &[Key::Exact(2)], "Main.set", &[5], 0).expect("it fits");
    let refused =
        |result: Result<(), natgate_p4::MachineError>| result.expect_err("refused").to_string();
    let full = refused(machine.insert("t", &[Key::Exact(3)], "set", &[5], 0));
    assert_eq!(full, "the table `Main.t` is full; give it a larger `size`");
    let wide = refused(machine.insert("t", &[Key::Exact(0x1_0000)], "set", &[5], 0));
    assert_eq!(wide, "the keys of `Main.t` are bit<16> hdr.words.a (exact)");
    let few = refused(machine.insert("t", &[Key::Exact(1)], "set", &[], 0));
    assert_eq!(few, "`set` takes the arguments (bit<32> x)");
    let unknown = refused(machine.insert("u", &[], "set", &[], 0));
    assert_eq!(unknown, "there is no one table `u`; the program has `Main.t`");

    let lpm = compiled(Parts { locals: &table("lpm", ""), body, ..Parts::default() });
    let mut machine = Machine::new(&lpm, 0);
    for (value, length, result) in [(0, 0, 1), (0x1200, 8, 2), (0x1230, 12, 3), (0x1238, 13, 4)] {
        machine.insert("t", &[Key::Prefix(value, length)], "set", &[result], 0).expect("it fits");
    }
    assert_eq!(next(&mut machine), 3);

    let ternary = compiled(Parts { locals: &table("ternary", ""), body, ..Parts::default() });
    let mut machine = Machine::new(&ternary, 0);
    for (mask, priority, result) in [(0x000f, 3, 1), (0xff00, 4, 2), (0xffff, 2, 3)] {
        machine
            .insert("t", &[Key::Masked(0x1234, mask)], "set", &[result], priority)
            .expect("it fits");
    }
    assert_eq!(next(&mut machine), 2);
}

#[test]
fn entries_of_the_program() {
    let entries = "const entries = { 0x1200 &&& 0xff00 : set(1); 0x1234 : set(2); _ : set(3); }";
    let locals = TABLE.replace("KIND", "ternary").replace("ENTRIES", entries);
    let program = compiled(Parts { locals: &locals, body: "t.apply();", ..Parts::default() });
    let mut machine = Machine::new(&program, 0);
    assert_eq!(word(&sent(&mut machine, 0, &PACKET)), 1);
    let refused =
        machine.insert("t", &[Key::Masked(0, 0)], "set", &[9], 9).expect_err("it is const");
    assert_eq!(refused.to_string(), "`Main.t` is const in the program; change it there");
}

#[test]
fn what_a_table_did_can_be_asked() {
    let entries = "const entries = { 0x1234 : set(2); }";
    let locals = TABLE.replace("KIND", "exact").replace("ENTRIES", entries);
    for (body, expected) in [
        ("if (t.apply().hit) { hdr.words.c = hdr.words.c + 1; }", 3),
        ("hdr.words.a = 1; if (t.apply().miss) { hdr.words.c = hdr.words.c + 1; }", 100),
        (
            "switch (t.apply().action_run) { set: { hdr.words.c = 5; } default: { hdr.words.c = 6; \
             } }",
            5,
        ),
        (
            "hdr.words.a = 1; switch (t.apply().action_run) { set: { } miss: { hdr.words.c = 6; \
             } }",
            6,
        ),
    ] {
        assert_eq!(result(Parts { locals: &locals, body, ..Parts::default() }), expected, "{body}");
    }
}

#[test]
fn controls_have_instances_of_their_own() {
    let decls = "control Add(inout bit<32> x, in bit<32> y) {
        bit<32> sum = y;
        Register<bit<32>, bit<8>>(1, 10) count;
        apply { bit<32> n = count.read(0); count.write(0, n + 1); sum = sum + n; x = x + sum; } }";
    let locals = "Add() first; Add() second;";
    let body =
        "first.apply(hdr.words.c, 1); first.apply(hdr.words.c, 2); second.apply(hdr.words.c, 3);";
    assert_eq!(result(Parts { decls, locals, body, ..Parts::default() }), 11 + 13 + 13);
}

#[test]
fn entries_are_added_on_a_miss_and_expire() {
    let locals = "
        action hit(bit<32> x) { hdr.words.c = x; if (hdr.words.b == 0) { restart_expire_timer(); } }
        action add() {
            bool added = add_entry(\"hit\", {(bit<32>) hdr.words.b}, (ExpireTimeProfileId_t) 3);
            hdr.words.c = added ? 32w1 : 2;
        }
        table t {
            key = { hdr.words.a : exact; }
            actions = { hit; @defaultonly add; }
            const default_action = add();
            add_on_miss = true;
            idle_timeout_with_auto_delete = true;
            size = 2;
        }";
    let program = compiled(Parts { locals, body: "t.apply();", ..Parts::default() });
    let mut machine = Machine::new(&program, 0);
    machine.set_profile(3, Duration::from_secs(10));
    let ask = |machine: &mut Machine<'_>, seconds, a: u8, b: u8| {
        word(&sent(machine, seconds, &[0, a, 0, b, 0, 0, 0, 0]))
    };
    assert_eq!(
        (ask(&mut machine, 0, 1, 7), ask(&mut machine, 5, 1, 0)),
        (1, 7),
        "added, hit, restarted"
    );
    assert_eq!(
        (ask(&mut machine, 14, 1, 9), machine.entries("t")),
        (7, Ok(1)),
        "hit, not restarted"
    );
    assert_eq!((machine.entries("t"), ask(&mut machine, 15, 1, 9)), (Ok(1), 1), "expired, added");
    assert_eq!(
        (ask(&mut machine, 15, 2, 9), ask(&mut machine, 15, 3, 9)),
        (1, 2),
        "then it is full"
    );
    assert_eq!(ask(&mut machine, 25, 3, 9), 1, "what has expired makes room");
}

#[test]
fn counters_meters_hashes_randoms_digests() {
    let decls = "struct told_t { bit<16> a; bit<8> n; }";
    let locals = "
        Counter<bit<64>, bit<8>>(4, PNA_CounterType_t.PACKETS_AND_BYTES) counter;
        Meter<bit<8>>(4, PNA_MeterType_t.BYTES) meter;
        Hash<bit<32>>(PNA_HashAlgorithm_t.CRC32) hash;
        Random<bit<8>>(10, 13) random;
        Digest<told_t>() digest;";
    let parts = |body| Parts { decls, locals, body, ..Parts::default() };
    let counts = compiled(parts(
        "counter.count(2, 100); counter.count(9, 1); digest.pack({hdr.words.a, 5});",
    ));
    let mut machine = Machine::new(&counts, 0);
    sent(&mut machine, 0, &PACKET);
    sent(&mut machine, 0, &PACKET);
    assert_eq!(machine.counter("counter", 2), Ok((2, 200)));
    assert_eq!(machine.digest(), Some(("Main.digest", vec![("a", 0x1234), ("n", 5)])));
    assert!(machine.digest().is_some() && machine.digest().is_none());
    assert!(machine.counter("meter", 2).is_err() && machine.counter("nothing", 0).is_err());

    let body = "PNA_MeterColor_t c = meter.dpdk_execute(1, 100); \
                if (c == PNA_MeterColor_t.RED) { hdr.words.c = 1; }";
    let meters = compiled(parts(body));
    let mut machine = Machine::new(&meters, 0);
    assert_eq!(word(&sent(&mut machine, 0, &PACKET)), 0, "without rates all is green");
    let rates = Rates { committed: 100, committed_burst: 100, peak: 100, peak_burst: 100 };
    machine.set_meter("meter", 1, rates).expect("it is there");
    let mut red = |seconds| word(&sent(&mut machine, seconds, &PACKET));
    assert_eq!((red(0), red(0), red(1)), (0, 1, 0));
    assert_eq!(result(parts("hdr.words.c = hash.get_hash({hdr.words.a});")), 0x1899_9699);
    assert_eq!(
        result(parts("hdr.words.c = hash.get_hash(32w0x100, {hdr.words.a}, 32w16);")),
        0x109
    );
    let random = result(parts("hdr.words.c = (bit<32>) random.read();"));
    assert!((10..=13).contains(&random));
}

#[test]
fn checksums_are_updated_by_what_changes() {
    let locals = "InternetChecksum() sum;";
    let body = "
        sum.add({hdr.words.a, hdr.words.b}); bit<16> whole = sum.get();
        sum.clear(); sum.subtract({whole, hdr.words.a}); sum.add({16w0x4321});
        bit<16> updated = sum.get();
        bit<16> kept = sum.get_state(); sum.clear(); sum.set_state(kept);
        hdr.words.c = updated ++ sum.get();";
    let expected = !(0x4321 + 0xff_u16);
    assert_eq!(
        result(Parts { locals, body, ..Parts::default() }),
        u32::from(expected) << 16 | u32::from(expected)
    );
}

#[test]
fn packets_without_a_port_are_dropped() {
    let program = compiled(Parts { body: "drop_packet();", ..Parts::default() });
    let outcome = Machine::new(&program, 0).process(Duration::ZERO, 1, &PACKET);
    assert_eq!(outcome, Outcome::Dropped);
}

#[test]
fn the_architecture_tells_port_and_time() {
    let body = "hdr.words.c = (bit<32>) (PortIdUint_t) istd.input_port << 16
        | (bit<32>) (TimestampUint_t) istd.timestamp;";
    let program = compiled(Parts { body, ..Parts::default() });
    let outcome = Machine::new(&program, 0).process(Duration::from_nanos(77), 5, &PACKET);
    let Outcome::Sent { packet, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(word(&packet), 5 << 16 | 77);
}

#[test]
fn packets_that_stay_in_their_buffer_grow_into_what_is_before_them() {
    let body = "hdr.other = {1, 2, 3};";
    let program = compiled(Parts { body, ..Parts::default() });
    let mut machine = Machine::new(&program, 0);
    let mut forward = |room: usize| {
        let mut buffer = [&vec![0; room][..], &PACKET].concat();
        let (end, mut fates) = (buffer.len(), [Fate::Dropped]);
        let mut frames = [Frame::of(&mut buffer, room, end)];
        machine.forward_all(Duration::ZERO, 1, &mut frames, &mut fates);
        (fates[0], buffer)
    };
    let (fate, buffer) = forward(9);
    assert_eq!(fate, Fate::Sent { port: 2, start: 1 });
    assert_eq!(buffer[1..9], PACKET[..8]);
    assert_eq!(buffer[9..], [0, 1, 0, 2, 0, 0, 0, 3, 0xaa, 0xbb]);
    assert_eq!(forward(7).0, Fate::NoRoom);
}
