//! Description of programs for controllers: names, numbers, and changes by annotations.

mod common;

use common::{Parts, program};
use natgate_p4::{Info, MatchKind, Unit, compile};

fn info(parts: Parts<'_>) -> Info {
    match compile("test.p4", &program(parts)) {
        Ok(program) => program.info(),
        Err(error) => panic!("{}", error.rendered()),
    }
}

fn refused(locals: &str) -> String {
    let text = program(Parts { locals, ..Parts::default() });
    compile("test.p4", &text).expect_err("it is refused").message().to_owned()
}

const LOCALS: &str = "
    Counter<bit<32>, bit<8>>(16, PNA_CounterType_t.BYTES) passed;
    @id(9) Meter<bit<8>>(4, PNA_MeterType_t.PACKETS) rate;
    Register<bit<64>, bit<8>>(8) seen;
    Digest<words_t2>() heard;
    action set(bit<32> x, bool y) { hdr.words.c = x; }
    @name(\".plain\") action other() {}
    action direct(bit<8> z) {}
    @name(\"renamed\") @id(0x02000007)
    table t {
        key = {
            hdr.words.a : exact;
            hdr.words.b : lpm @name(\"b\");
            hdr.words.c : ternary;
        }
        actions = { set; other; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 99;
    }
    table listed {
        key = { hdr.words.a : exact; }
        actions = { set; }
        default_action = set(1, true);
        const entries = { 5 : set(1, false); }
    }";

fn whole() -> Info {
    let decls = "struct words_t2 { bit<16> a; int<8> b; }";
    let body = "t.apply(); listed.apply(); direct(1); passed.count(0);";
    info(Parts { decls, locals: LOCALS, body, ..Parts::default() })
}

#[test]
fn tables_and_actions_have_names_and_numbers() {
    let info = whole();
    let [t, listed] = &info.tables[..] else { panic!("two tables") };
    assert_eq!((&*t.preamble.name, t.preamble.id), ("Main.renamed", 0x0200_0007));
    assert_eq!((&*t.preamble.alias, t.size, t.is_const), ("renamed", 99, false));
    let fields: Vec<_> =
        t.fields.iter().map(|one| (one.id, &*one.name, one.bits, one.kind)).collect();
    assert_eq!(
        fields,
        [
            (1, "hdr.words.a", 16, MatchKind::Exact),
            (2, "b", 16, MatchKind::Lpm),
            (3, "hdr.words.c", 32, MatchKind::Ternary),
        ]
    );
    let names: Vec<_> = info.actions.iter().map(|one| &*one.preamble.name).collect();
    assert_eq!(names, ["NoAction", "Main.set", "plain"], "what no table lists is not there");
    let ids: Vec<_> = t.actions.iter().map(|one| (one.id, one.is_default_only)).collect();
    let number = |name: &str| {
        let found = info.actions.iter().find(|one| one.preamble.name == name);
        found.expect("it is there").preamble.id
    };
    let expected = [(number("Main.set"), false), (number("plain"), false), (21_257_015, true)];
    assert_eq!(ids, expected, "NoAction has the number that p4c gives it");
    assert_eq!(t.const_default, Some(21_257_015));
    assert_eq!((listed.is_const, listed.const_default), (true, None));
    let set = &info.actions[1];
    let params: Vec<_> = set.params.iter().map(|one| (one.id, &*one.name, one.bits)).collect();
    assert_eq!(params, [(1, "x", 32), (2, "y", 1)]);
}

#[test]
fn arrays_and_messages_have_names_and_numbers() {
    let info = whole();
    let [passed] = &info.counters[..] else { panic!("a counter") };
    assert_eq!(
        (&*passed.preamble.name, passed.unit, passed.size),
        ("Main.passed", Unit::Bytes, 16)
    );
    assert_eq!(passed.preamble.id >> 24, 0x12);
    let [rate] = &info.meters[..] else { panic!("a meter") };
    assert_eq!((rate.preamble.id, rate.unit, rate.size), (0x1400_0009, Unit::Packets, 4));
    let [seen] = &info.registers[..] else { panic!("registers") };
    assert_eq!((seen.preamble.id >> 24, seen.size, &seen.struct_name), (0x16, 8, &None));
    let [heard] = &info.digests[..] else { panic!("a digest") };
    assert_eq!((heard.preamble.id >> 24, heard.struct_name.as_deref()), (0x17, Some("words_t2")));
    assert_eq!(heard.members, [("a".to_owned(), 16, false), ("b".to_owned(), 8, true)]);
}

#[test]
fn numbers_stay_when_other_things_come() {
    let table = |name: &str| {
        format!("table {name} {{ key = {{ hdr.words.a : exact; }} actions = {{ NoAction; }} }}")
    };
    let numbers = |names: &[&str]| -> Vec<(String, u32)> {
        let locals: String = names.iter().map(|name| table(name)).collect();
        let info = info(Parts { locals: &locals, ..Parts::default() });
        info.tables.into_iter().map(|one| (one.preamble.name, one.preamble.id)).collect()
    };
    let [one, two] = &numbers(&["one", "two"])[..] else { panic!("two tables") };
    let more = numbers(&["zero", "two", "one"]);
    assert!(more.contains(one) && more.contains(two), "{more:?}");
}

#[test]
fn text_says_what_bytes_say() {
    let info = whole();
    let text = info.to_text();
    for line in [
        "pkg_info {\n  arch: \"pna\"\n}\n",
        "    id: 33554439\n    name: \"Main.renamed\"\n    alias: \"renamed\"\n",
        "  match_fields {\n    id: 2\n    name: \"b\"\n    bitwidth: 16\n    match_type: LPM\n  }\n\
         ",
        "    id: 21257015\n    scope: DEFAULT_ONLY\n",
        "  spec {\n    unit: BYTES\n  }\n  size: 16\n",
        "  is_const_table: true\n",
        "    struct {\n      name: \"words_t2\"\n    }\n",
    ] {
        assert!(text.contains(line), "{line}\nis not in\n{text}");
    }
    assert_eq!(info.difference(&info.to_bytes()), None);
    let mut other = info.clone();
    other.tables[0].size = 100;
    assert_eq!(
        info.difference(&other.to_bytes()).as_deref(),
        Some("`p4info.tables.size` is another")
    );
}

#[test]
fn annotations_that_cannot_be_followed_are_refused() {
    let table = "table t { key = { hdr.words.a : exact; } actions = { NoAction; } }";
    for (locals, expected) in [
        ("@name(\"a b\") action x() {}", "a name is expected here, as in @name(\"upload\")"),
        (
            "action x() {} @name(\"x\") action y() {}",
            "`Main.x` is there already; choose another name",
        ),
        (
            "@name(\"x\") bit<8> y;",
            "`@name` is supported for tables, actions, externs' instances and keys only",
        ),
        ("@id(0) action x() {}", "a number from 0x1000001 to 0x1ffffff is expected here"),
        ("@id(0x02000001) action x() {}", "a number from 0x1000001 to 0x1ffffff is expected here"),
        (
            "@id(5) action x() {} @id(5) action y() {}",
            "the number 0x1000005 is given already; choose another",
        ),
        (
            "@id(5) InternetChecksum() sum;",
            "controllers do not know this extern; delete its number",
        ),
        ("action x(@id(5) bit<8> y) {}", "`@id` is not supported here; delete it"),
        (
            "table t { key = { hdr.words.a : exact @id(5); } actions = { NoAction; } }",
            "`@id` is not supported here; delete it",
        ),
    ] {
        assert_eq!(refused(locals), expected, "{locals}");
    }
    assert!(info(Parts { locals: table, ..Parts::default() }).tables[0].preamble.id >> 24 == 2);
}
