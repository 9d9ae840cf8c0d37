//! Programs that are refused: locations and messages.

mod common;

use common::{Parts, program};
use natgate_p4::compile;

fn refused(text: &str) -> String {
    match compile("test.p4", text) {
        Ok(_) => panic!("this is accepted:\n{text}"),
        Err(error) => {
            assert!(error.rendered().contains(error.message()), "{}", error.rendered());
            format!("{}:{}: {}", error.line(), error.column(), error.message())
        }
    }
}

/// Message about a program that is wrong in one part, without the location.
fn about(parts: Parts<'_>) -> String {
    refused(&program(parts)).splitn(3, ':').nth(2).expect("a sentence").trim().to_owned()
}

#[test]
fn what_is_no_program_is_refused_where_it_stands() {
    for (text, expected) in [
        ("", "1:1: there is no `main`; end the program with `PNA_NIC(...) main;`"),
        ("const bit<8> X = ;", "1:18: an expression is expected here, and not `;`"),
        ("const bit<8> X = 256;", "1:18: 256 does not fit bit<8>; cast it, or widen the type"),
        ("\n  const bit<129> X = 1;", "2:13: 129 bits are not supported; a width is from 1 to 128"),
        ("const foo_t X = 1;", "1:7: there is no type `foo_t`; declare it before its use"),
        (
            "#include <v1model.p4>",
            "1:1: there is no <v1model.p4>; what can be included is <core.p4>, <pna.p4>, \
             <dpdk/pna.p4>",
        ),
        (
            "#define X 1",
            "1:1: of the preprocessor only `#include <...>` is supported; write constants as \
             `const`",
        ),
        ("header h { varbit<8> x; }", "1:12: `varbit` is not supported"),
        ("header_union u { }", "1:1: header unions are not supported"),
        (
            "struct s { bit<8>[4] x; }",
            "1:18: header stacks are not supported; declare a field for each",
        ),
        ("struct s<T> { T x; }", "1:9: generic structs are not supported"),
        ("header h { bit<7> x; }", "1:8: the header `h` has 7 bits; headers are of whole bytes"),
        ("struct s { bit<8> x; bit<8> x; }", "1:29: the field `x` is there twice"),
        ("extern void mine();", "1:13: the extern `mine` is none of the architecture's; delete it"),
        ("match_kind { range }", "1:14: match kinds of one's own are not supported"),
        ("enum bit<8> E { A }", "1:17: the member `A` has no value; write one"),
        ("bit<8> f() { }", "1:8: `f` may end without a value; return one"),
        (
            "void f() { f(); }",
            "1:12: `f` is not known within itself: the language has no recursion",
        ),
        (
            "control C() { C() inner; apply { inner.apply(); } }",
            "1:15: `C` is not known within itself: the language has no recursion",
        ),
        ("T first<T>(in T a) { return a; }", "1:1: generic functions are not supported"),
        ("bit<8> f<T>(in T a) { return 1; }", "1:9: generic functions are not supported"),
        ("header h<T> { T x; }", "1:9: generic headers are not supported"),
        ("extern E { abstract void f(); }", "1:12: abstract methods are not supported"),
        ("const list<bit<8>> X = {1};", "1:7: `list` is not supported"),
        ("void f(bit<8> x = 1) { }", "1:17: default values of parameters are not supported"),
        (
            "control C(@optional in bit<8> x) { apply {} }",
            "1:12: `@optional` is not supported: every parameter has its argument; delete it",
        ),
        (
            "@p4runtime_translation(\"\", string) type bit<8> t;",
            "1:2: `@p4runtime_translation` is not supported: controllers use the program's own \
             numbers; delete it",
        ),
        (
            "@controller_header(\"packet_in\") header h { bit<8> port; }",
            "1:2: `@controller_header` is not supported: packets do not go to controllers; send a \
             digest",
        ),
        (
            "struct inner { bit<8> x; } header h { inner y; }",
            "1:39: inner cannot be a field of a header",
        ),
        ("struct s { @name(\"y\") bit<8> x; }", "1:13: `@name` is not supported here; delete it"),
        ("static_assert(true);", "1:1: `static_assert` is not supported"),
        ("bit<8> x;", "1:8: variables are declared in parsers and controls only"),
        (
            "const bit<8> X = 1; const bit<8> X = 2;",
            "1:34: `X` is declared here already; choose another name",
        ),
        (
            "control C<T>(in T x) { apply {} }",
            "1:9: generic parsers and controls are not supported",
        ),
        ("const int X = 1 << 2000;", "1:15: a number is shifted by 0 to 1024 bits"),
        (
            "control C()(bit<8> x) { apply {} }",
            "1:12: constructor parameters of parsers and controls are not supported",
        ),
        (
            "parser P() { state first { transition accept; } }",
            "1:8: the parser `P` has no state `start`",
        ),
        ("parser P() { state start { transition there; } }", "1:39: there is no state `there`"),
        (
            "parser P() { value_set<bit<8>>(4) v; state start { transition accept; } }",
            "1:14: value sets are not supported",
        ),
        ("void f() { for (bit<8> i in 1..2) {} }", "1:12: `for` is not supported"),
    ] {
        assert_eq!(refused(text), expected, "{text}");
    }
}

#[test]
fn statements_that_make_no_sense_are_refused() {
    for (body, expected) in [
        ("hdr.words.d = 1;", "words_t has no field `d`"),
        ("hdr.words.a = hdr.words.c;", "bit<16> is expected here, and not bit<32>"),
        (
            "hdr.words.a = hdr.words.a + hdr.words.c;",
            "`+` wants two of one type, not bit<16> and bit<32>; cast one",
        ),
        ("hdr.words.a = 8w1 ++ true;", "`++` does not go with bit<8> and bool"),
        ("if (hdr.words.a) { }", "bool is expected here, and not bit<16>"),
        ("istd.input_port = (PortId_t) 1;", "this cannot be written; copy it to a variable"),
        ("hdr.words.a[3:9] = 1;", "[3:9] is no slice of 16 bits; the higher bit comes first"),
        (
            "hdr.words.a = hdr.words.a / 3;",
            "division is for numbers known when the program is compiled",
        ),
        ("hdr.words;", "this does nothing; a statement assigns or calls"),
        ("hdr.words.c = nothing;", "there is no `nothing` here; declare it before its use"),
        ("send_to_port(1);", "PortId_t is expected here, and not the number 1"),
        ("send_to_port();", "`send_to_port` does not take 0 arguments"),
        (
            "hdr.words.a = (bit<16>) true;",
            "bool cannot be cast to bit<16>; cast to bit<W> in between",
        ),
        ("recirculate();", "`recirculate` is not supported"),
        ("mirror_packet(1, 2);", "`mirror_packet` is not supported"),
        ("restart_expire_timer();", "`restart_expire_timer` is called in actions only"),
        ("verify(true, error.NoError);", "`verify` is called in parsers only"),
        ("switch (hdr.words.a) { 1: { } 1: { } }", "this case is there already; delete one"),
        ("switch (hdr.words.a) { 1: }", "the last case has no block; write one"),
        ("meta.foo();", "metadata_t has no method `foo`"),
        ("hdr.words.a += 1;", "operators that assign are not supported; write `x = x + 1`"),
        ("hdr.words.a >>= 1;", "operators that assign are not supported; write `x = x + 1`"),
        ("hdr.words = {1, ...};", "values left to `...` are not supported; write all of them"),
        (
            "tuple<bit<8>, bit<8>> t = {1, 2}; hdr.words.a = (bit<16>) t[0];",
            "an index is not supported, for there are neither header stacks nor members of tuples \
             by number; a slice is `x[7:0]`",
        ),
        ("break;", "`break` is not supported"),
        ("continue;", "`continue` is not supported"),
        ("switch (hdr.words.a) { 1 .. 2: { } }", "this stands in cases only; a value is expected"),
        ("return 1;", "there is nothing to return a value to"),
        (
            "bit<16> x = hdr.words.a |+| 8w1;",
            "`|+|` wants two of one type, not bit<16> and bit<8>; cast one",
        ),
        ("bool x = hdr.words.a |+| 1 == 3 && true |-| false;", "`|-|` does not go with bool"),
        (
            "Counter<bit<8>, bit<8>>(1, PNA_CounterType_t.BYTES) c;",
            "an instance is declared outside of statements; move it before `apply`",
        ),
        ("error e = error.Nothing;", "there is no error `Nothing`"),
        ("PNA_MeterColor_t c = PNA_MeterColor_t.BLUE;", "PNA_MeterColor_t has no member `BLUE`"),
        ("bit<8> metadata_t = 1;", "`metadata_t` is a type's name already; choose another"),
    ] {
        assert_eq!(about(Parts { body, ..Parts::default() }), expected, "{body}");
    }
}

#[test]
fn declarations_that_make_no_sense_are_refused() {
    let table = |inside: &str| format!("action a(bit<8> x) {{}} table t {{ {inside} }}");
    let key = "key = { hdr.words.a : exact; } actions = { a; NoAction; }";
    for (locals, expected) in [
        (table("actions = { b; }"), "there is no `b` here; declare it before its use"),
        (
            table("key = { hdr.words : exact; } actions = { a; }"),
            "words_t is no key; use its fields",
        ),
        (table("key = { hdr.words.a : range; } actions = { a; }"), "`range` is not supported"),
        (table("key = { hdr.words.a : exact; }"), "the table `t` lists no actions"),
        (
            table(&format!("{key} pna_direct_counter = 1;")),
            "the table property `pna_direct_counter` is not supported",
        ),
        (
            table(&format!("{key} default_action = a();")),
            "1 arguments are expected here, and not 0",
        ),
        (table(&format!("{key} size = 0;")), "a table has from 1 to 16777216 entries"),
        (table(&format!("{key} key = {{ }}")), "`key` is there twice; delete one"),
        (
            table(&format!("{key} entries = {{ }}")),
            "entries that can be changed are not supported; write `const entries`",
        ),
        (
            table("key = { hdr.words.a : lpm; hdr.words.b : lpm; } actions = { a; }"),
            "a table has one lpm key at most",
        ),
        (
            table(
                "key = { hdr.words.a : lpm; } actions = { NoAction; \
                 } const entries = { 1 &&& 1 : NoAction(); }",
            ),
            "the key `hdr.words.a` wants one value, or a prefix if it is lpm",
        ),
        (
            "action a(bit<8> x, in bit<8> y) {}".to_owned(),
            "parameters without direction stand behind those with one",
        ),
        ("DirectCounter<bit<8>>(1) x;".to_owned(), "`DirectCounter` is not supported"),
        ("ActionSelector(1) x;".to_owned(), "`ActionSelector` is not supported"),
        ("bit<8>[2] x;".to_owned(), "header stacks are not supported; declare a field for each"),
        ("varbit<8> x;".to_owned(), "`varbit` is not supported"),
        (
            table("key = { hdr.words.a : optional; } actions = { a; }"),
            "`optional` is not supported",
        ),
        (table(&format!("{key} counters = x;")), "the table property `counters` is not supported"),
        (
            table(&format!("{key} largest_priority_wins = true;")),
            "the table property `largest_priority_wins` is not supported",
        ),
        (
            table(&format!("{key} const entries = {{ priority = 3: 1 : a(1); }}")),
            "priorities of entries are not supported; the first wins",
        ),
        (
            table(&format!("{key} const entries = {{ 1 : a(1) @priority(3); }}")),
            "`@priority` is not supported: the first entry that fits wins; put them in that order",
        ),
        (
            table(&format!("{key} const entries = {{ 1 .. 3 : a(1); }}")),
            "ranges are supported in `select` only; write values or masks",
        ),
        (
            table("key = { hdr.words.a : exact; } actions = { @tableonly NoAction; }"),
            "`@tableonly` is not supported: every action can be a default; delete it",
        ),
        (
            table("key = { hdr.words.a : exact; } actions = { @name(\"b\") a; }"),
            "`@name` is not supported here; delete it",
        ),
        (
            "@hidden action h() {}".to_owned(),
            "`@hidden` is not supported: controllers are told of all that there is; delete it",
        ),
        ("action h() { return 1; }".to_owned(), "there is nothing to return a value to"),
        ("Random<bit<8>>(3, 2) x;".to_owned(), "the least random number is not above the most"),
        (
            "Counter<bit<8>, bit<8>>(0, PNA_CounterType_t.BYTES) x;".to_owned(),
            "an array has from 1 to 16777216 places",
        ),
        (
            "action b() { bool x = add_entry(\"b\", {}, (ExpireTimeProfileId_t) 1); }".to_owned(),
            "there is no action `b`; declare it before",
        ),
        (
            "action h() {} action b() { bool x = add_entry(\"h\", {}, (ExpireTimeProfileId_t) 1); }
             table t { key = { hdr.words.a : exact; } actions = { h; b; } default_action = b(); }"
                .to_owned(),
            "`Main.b` adds entries; the table needs `add_on_miss = true`, and it as its default",
        ),
        (
            "action h() { restart_expire_timer(); }
             table t { key = { hdr.words.a : exact; } actions = { h; } default_action = h(); }"
                .to_owned(),
            "`Main.h` sets timers; the table needs `idle_timeout_with_auto_delete = true`",
        ),
    ] {
        assert_eq!(about(Parts { locals: &locals, ..Parts::default() }), expected, "{locals}");
    }
}

#[test]
fn states_that_make_no_sense_are_refused() {
    let select = |keys: &str, sets: &str| {
        format!("state start {{ transition select({keys}) {{ {sets}: accept; }} }}")
    };
    let wide = "0 .. 0x7ffffffffffffffe";
    for (states, expected) in [
        (select("8w1", "5 .. 1"), "a range goes from the least to the most: `1 .. 5`"),
        (select("8w1", "1 .. 256"), "256 does not fit bit<8>; cast it, or widen the type"),
        (select("8s1", "1 .. 5"), "a range is of bit<W>, not int<8>"),
        (select("8w1", "1, 2"), "`:` is expected here, and not `,`"),
        (select("8w1", "(1, 2 .. 3)"), "1 values are expected here, and not 2"),
        (
            select("64w1, 64w1", &format!("({wide}, {wide})")),
            "these ranges come to more than 1024 masks; ask one key after the other",
        ),
        (
            "state start { if (true) { } transition accept; }".to_owned(),
            "`if` in parsers is not supported; use `select`",
        ),
        ("state start { return; }".to_owned(), "`return` does not stand in parsers"),
        ("state start { exit; }".to_owned(), "`exit` stands in controls and actions only"),
        (
            "state start { pkt.extract(hdr.words, 32w8); }".to_owned(),
            "`extract` does not take 2 arguments",
        ),
        (
            "state start { switch (8w1) { default: { } } }".to_owned(),
            "`switch` does not stand in parsers; use `select`",
        ),
    ] {
        assert_eq!(about(Parts { states: &states, ..Parts::default() }), expected, "{states}");
    }
    let function = "void f() { exit; }";
    assert_eq!(
        about(Parts { decls: function, ..Parts::default() }),
        "`exit` stands in controls and actions only"
    );
}

#[test]
fn what_would_take_too_much_is_refused() {
    let deep = format!("const int X = {}1{};", "(".repeat(10_000), ")".repeat(10_000));
    let chain = format!("const int X = 1{};", "+1".repeat(100_000));
    let minus = format!("const int X = {}1;", "-".repeat(100_000));
    let blocks = format!("void f() {{ {} }}", "{".repeat(100_000));
    let ifs = format!("void f() {{ {} ; }}", "if (true) ; else ".repeat(10_000));
    let types = format!("typedef {}bit<8>{} t;", "tuple<".repeat(10_000), ">".repeat(10_000));
    let members = format!("const int X = x{};", ".x".repeat(100_000));
    for text in [deep, chain, minus, blocks, ifs, types, members] {
        let sentence = refused(&text);
        assert!(
            sentence.ends_with("this nests deeper than 64; use variables in between"),
            "{sentence}"
        );
    }
    let mut nested = "struct s0 { bit<8> x; }".to_owned();
    for depth in 1..40 {
        nested += &format!(" struct s{depth} {{ s{} a; s{} b; }}", depth - 1, depth - 1);
    }
    assert!(refused(&nested).ends_with("types nest deeper than 16"));
    let wide = |fields: usize| (0..fields).map(|n| format!("bit<8> x{n};")).collect::<String>();
    assert!(
        refused(&format!("struct s {{ {} }}", wide(300))).ends_with("has more than 256 fields")
    );
    let pair = |name: &str| format!("struct {name} {{ {} }}", wide(200));
    let compared = format!(
        "{} struct t {{ s a; s b; }} bool f(in t x, in t y) {{ return x == y; }}",
        pair("s")
    );
    assert!(refused(&compared).ends_with("more than 256 fields are not compared at once"));
    let mut doubled = "control c0() { apply {} }".to_owned();
    for depth in 1..30 {
        let below = depth - 1;
        doubled += &format!(
            " control c{depth}() {{ c{below}() a; c{below}() b; apply {{ a.apply(); b.apply(); \
             }} }}"
        );
    }
    assert!(refused(&doubled).contains("operations; use fewer instances"), "{}", refused(&doubled));
    let mut calls = "void f0() {}".to_owned();
    for depth in 1..50 {
        calls += &format!(" void f{depth}() {{ f{}(); }}", depth - 1);
    }
    assert!(refused(&calls).ends_with("calls go deeper than 32"));
    assert!(refused(&" ".repeat(2 << 20)).contains("more than 1 MiB"));
}
