//! Features that DPDK's SWX pipeline lacks are refused at their location, by name; other programs
//! become a specification.

mod common;

use common::{Parts, program};
use natgate_p4::compile;

/// Problem of a program for the pipeline: the text at its location, and the message.
fn refused(parts: Parts<'_>) -> (String, String) {
    let text = program(parts);
    let compiled = compile("a.p4", &text).unwrap_or_else(|error| panic!("{}", error.rendered()));
    let error = compiled.swx().map(|_| ()).expect_err("SWX does not have it");
    let line = text.lines().nth(error.line() - 1).expect("the line is there");
    let rest: String = line.chars().skip(error.column() - 1).collect();
    (rest, error.message().to_owned())
}

fn check(parts: Parts<'_>, place: &str, what: &str) {
    let (rest, message) = refused(parts);
    assert!(rest.starts_with(place), "{rest:?} is no {place:?}: {message}");
    assert!(message.contains(what), "{message:?} has no {what:?}");
}

#[test]
fn operators_that_it_lacks_are_refused_where_they_stand() {
    let a = "hdr.words.a";
    for (body, place, what) in [
        (format!("{a} = {a} * hdr.words.b;"), "hdr.words.a * ", "operator `*`"),
        (format!("{a} = {a} |+| hdr.words.b;"), "hdr.words.a |+|", "operator `|+|`"),
        (format!("{a} = {a} |-| hdr.words.b;"), "hdr.words.a |-|", "operator `|-|`"),
        (
            format!("int<16> x = (int<16>) {a}; if (x < 3) {{ {a} = 1; }}"),
            "x < 3",
            "order of signed numbers",
        ),
        (
            format!("int<16> x = (int<16>) {a}; {a} = (bit<16>) (x >> hdr.words.b[3:0]);"),
            "x >> ",
            "shifts of signed numbers",
        ),
        (
            format!("int<16> x = (int<16>) {a}; hdr.words.c = (bit<32>) (int<32>) x;"),
            "(int<32>) x",
            "widening of signed numbers",
        ),
    ] {
        check(Parts { body: &body, ..Parts::default() }, place, what);
    }
}

#[test]
fn numbers_and_headers_have_bounds() {
    let decls = "header odd_t { bit<4> x; bit<4> y; }";
    let states = "odd_t odd; state start { pkt.extract(odd); transition accept; }";
    check(Parts { decls, states, ..Parts::default() }, "odd;", "header fields of bit<4>");
    let decls = "header wide_t { bit<128> x; }";
    let states = "wide_t wide; state start { pkt.extract(wide); transition accept; }";
    check(Parts { decls, states, ..Parts::default() }, "wide;", "header fields of bit<128>");
    let body = "bit<72> x = (bit<72>) hdr.words.a; hdr.words.b = x[71:56];";
    check(Parts { body, ..Parts::default() }, "x = (bit<72>)", "numbers of 72 bits");
}

#[test]
fn objects_and_parsers_have_bounds() {
    let locals = "Hash<bit<16>>(PNA_HashAlgorithm_t.CRC32) crc;";
    let body = "hdr.words.a = crc.get_hash({hdr.words.b});";
    check(Parts { locals, body, ..Parts::default() }, "crc;", "hash as `Main.crc`");
    let locals = "Register<bit<72>, bit<8>>(16) wide;";
    check(Parts { locals, ..Parts::default() }, "wide;", "registers of bit<72>");
    let states = "state start { pkt.advance(12); transition accept; }";
    check(Parts { states, ..Parts::default() }, "pkt.advance", "advance by other than");
    let states = "state start { bit<12> x = pkt.lookahead<bit<12>>(); meta.note = (bit<32>) x; \
                  transition accept; }";
    check(Parts { states, ..Parts::default() }, "pkt.lookahead", "lookahead at what is not whole");
}

#[test]
fn every_packet_is_measured_before_it_is_read() {
    let text = program(Parts::default());
    let compiled = compile("a.p4", &text).unwrap_or_else(|error| panic!("{}", error.rendered()));
    let pipeline = compiled.swx().unwrap_or_else(|error| panic!("{}", error.rendered()));
    let place = |start: &str| {
        let found = pipeline.instructions.iter().position(|line| line.contains(start));
        found.unwrap_or_else(|| panic!("no {start} in {pipeline}"))
    };
    assert!(place("h.arrival.length 8") < place("extract h.words"));
    assert_eq!(pipeline.most_read, 8);
}
