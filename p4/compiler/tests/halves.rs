//! Division of programs, so that look-ups in large tables can be prefetched.

mod common;

use common::{Parts, program};
use natgate_p4::compile;

/// Two large tables and a small one, and objects that both halves may touch.
const LOCALS: &str = "
    Register<bit<16>, bit<8>>(4) one;
    Register<bit<16>, bit<8>>(4) other;
    InternetChecksum() sum;
    action leave() { exit; }
    action take(bit<16> x) { hdr.words.b = x; }
    table large { key = { hdr.words.a : exact; } actions = { take; NoAction; } size = 8192; }
    table leaving { key = { hdr.words.a : exact; } actions = { leave; NoAction; } size = 64; }
    table small { key = { hdr.words.a : exact; } actions = { take; NoAction; } size = 64; }
    table learning {
        key = { hdr.words.b : exact; }
        actions = { take; @defaultonly NoAction; }
        const default_action = NoAction;
        add_on_miss = true;
        size = 64;
    }
";

/// First half of main control, and the state kept between the halves; `None` if the program is not
/// divided.
fn cut(body: &str) -> Option<(String, String)> {
    let text = program(Parts { locals: LOCALS, body, ..Parts::default() });
    let compiled = compile("cut.p4", &text).unwrap_or_else(|error| panic!("{}", error.rendered()));
    let rust = compiled.rust("cut");
    let part = |begin: &str, end: &str| {
        let rest = &rust[rust.find(begin)? + begin.len()..];
        Some(rest[..rest.find(end)?].to_owned())
    };
    assert_eq!(rust.contains("in_halves(self, world"), rust.contains("fn main_first("));
    Some((
        part("fn main_first(&mut self) {", "/// The second half of `Main`")?,
        part("struct PacketState {", "}")?,
    ))
}

fn first(body: &str) -> String {
    cut(body).expect("it is cut").0
}

#[test]
fn the_cut_is_before_the_first_large_table() {
    let (first, kept) =
        cut("one.write(0, hdr.words.a); small.apply(); large.apply();").expect("it is cut");
    assert!(first.contains("self.code.one") && first.contains("apply_small()"), "{first}");
    assert!(!first.contains("apply_large"), "{first}");
    assert!(kept.contains("main_hdr_words: Words,"), "{kept}");
    let inner = "small.apply(); if (hdr.words.c == 1) { small.apply(); large.apply(); }";
    assert_eq!(self::first(inner).matches("apply_small()").count(), 1);
}

#[test]
fn what_has_no_large_table_stays_in_one_piece() {
    assert_eq!(cut("small.apply(); one.write(0, hdr.words.a);"), None);
}

#[test]
fn the_halves_have_nothing_in_common_that_changes() {
    for (body, is_before) in [
        ("one.write(0, hdr.words.a); large.apply(); other.write(0, hdr.words.a);", true),
        ("one.write(0, hdr.words.a); large.apply(); one.write(0, hdr.words.b);", false),
        ("one.write(0, hdr.words.a); large.apply(); hdr.words.b = one.read(0);", false),
        ("hdr.words.b = one.read(0); large.apply(); one.write(0, hdr.words.a);", false),
        ("hdr.words.b = one.read(0); large.apply(); hdr.words.a = one.read(1);", true),
    ] {
        assert_eq!(first(body).contains("self.code.one"), is_before, "{body}");
    }
    assert!(first("small.apply(); large.apply(); small.apply();").contains("apply_small()"));
    assert!(
        !first("learning.apply(); large.apply(); learning.apply();").contains("apply_learning()")
    );
    assert!(first("learning.apply(); large.apply();").contains("apply_learning()"));
}

#[test]
fn the_first_half_does_not_leave() {
    for leaves in ["return;", "exit;", "leave();", "leaving.apply();"] {
        let body = format!(
            "one.write(0, 1); if (hdr.words.a == 7) {{ {leaves} }} other.write(0, 2); \
             large.apply();"
        );
        let first = first(&body);
        assert!(first.contains("self.code.one") && !first.contains("self.code.other"), "{first}");
    }
}

#[test]
fn no_more_is_kept_than_is_needed() {
    let kept = |body: &str| cut(body).expect("it is cut").1;
    let late = "large.apply(); meta.note = 5; bit<32> x = meta.note; hdr.words.c = x;";
    assert!(!kept(late).contains("note"), "it is written before it is read");
    let perhaps = "meta.note = 1; large.apply(); if (hdr.words.a == 1) { meta.note = 5; \
                   } hdr.words.c = meta.note;";
    assert!(kept(perhaps).contains("main_meta_note: u32,"), "it may not be written");
    let before = "sum.clear(); sum.add(hdr.words.a); large.apply(); hdr.words.b = sum.get();";
    assert!(kept(before).contains("sum_sum: u16,"));
    let behind = "large.apply(); sum.clear(); sum.add(hdr.words.a); hdr.words.b = sum.get();";
    assert!(!kept(behind).contains("sum"));
}

#[test]
fn calls_that_double_do_not_hold_it_up() {
    let doubled = |number: u32| match number {
        0 => "void f0(inout bit<16> x) { x = x + 1; }".to_owned(),
        _ => format!("void f{number}(inout bit<16> x) {{ f{0}(x); f{0}(x); }}", number - 1),
    };
    let decls: String = (0..28).map(doubled).collect();
    let body = "f27(hdr.words.b); large.apply();";
    let text = program(Parts { decls: &decls, locals: LOCALS, body, ..Parts::default() });
    // If it is not refused as too large, compiling must end soon.
    if let Ok(compiled) = compile("doubled.p4", &text) {
        assert!(!compiled.rust("doubled").contains("in_halves(self"), "it is too large to be cut");
    }
}
