//! Screens and pages as text.

use super::*;
use crate::Owners;
use crate::app::Key;
use crate::app::Snapshot;
use crate::columns::Table;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use serde_json::{Value, json};

#[test]
fn a_pool_of_blocks_is_as_full_as_its_blocks_are() {
    let pool = |taken: Value| {
        let in_use = json!({ "tcp": 0.01 });
        json!({ "taken_blocks": taken, "free_blocks": taken, "in_use": in_use })
    };
    assert!((crate::views::fullness(&pool(json!(5))) - 0.5).abs() < 1e-9);
    assert!((crate::views::fullness(&pool(Value::Null)) - 0.01).abs() < 1e-9);
}

fn snapshot(time: f64, packets: u64) -> Snapshot {
    let pool = |name: &str, taken: u64| {
        json!({ "name": name, "addresses": 1, "ports": 1000, "free_blocks": null,
                "taken": { "tcp": taken, "udp": 7, "icmp": 0, "dccp": 0 },
                "used": { "tcp": taken, "udp": 2, "icmp": 0, "dccp": 0 },
                "held": { "tcp": 0, "udp": 5, "icmp": 0, "dccp": 0 },
                "in_use": { "tcp": taken as f64 / 1000.0, "udp": 0.002, "icmp": null } })
    };
    let subscriber = |last: u64, udp: u64, sessions: u64| {
        json!({ "subscriber": format!("10.0.0.{last}"), "external": "203.0.113.1",
                "mappings": { "tcp": 1, "udp": udp, "other": 0 }, "sessions": sessions })
    };
    Snapshot {
        status: json!({ "version": "0.1.0", "time": time, "running_s": 3723.0, "workers": 1,
            "mappings": { "now": 12_345, "most": 1_000_000 },
            "subscribers": { "now": 2, "most": 100 } }),
        counters: json!({
            "packets": { "outbound": { "forwarded": packets, "replied": 0, "dropped": 3 } },
            "bytes": { "outbound": { "forwarded": 100 * packets } },
            "drops": { "no_mapping": packets, "filtered": 9000, "rule": 0 },
        }),
        pools: json!([pool("a", 10), pool("b", 500)]),
        workers: json!([{ "worker": 0, "frames": packets, "busy_ns": (time * 5e8) as u64,
                          "asleep_ns": 0, "mappings": 7, "handed_over": 0, "taken_over": 0,
                          "hand_over_full": 0 }]),
        subscribers: Some(vec![subscriber(5, 30, 900), subscriber(6, 90, 100)]),
        owners: Some(Owners { entries: vec![block()], ..Owners::default() }),
    }
}

/// A block whose ports have no mapping.
fn block() -> Value {
    let none = json!({ "tcp": 0, "udp": 0, "icmp": 0, "dccp": 0 });
    json!({ "pool": "default", "external": "203.0.113.1", "ports": "2048-2559", "kind": "block",
            "subscriber": "10.0.0.9", "used": none, "held": none, "age_s": 7500.0 })
}

fn app() -> App {
    let mut app = App::new(View::Rates);
    app.take(snapshot(1000.0, 5000));
    app.take(snapshot(1002.0, 25_000));
    app
}

fn shown(app: &App) -> Vec<String> {
    shown_in(app, 100)
}

fn shown_in(app: &App, width: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, 20)).unwrap();
    terminal.draw(|frame| draw(frame, app)).unwrap();
    lines(terminal.backend().buffer())
}

/// The lines of a buffer without the blanks at their ends.
fn lines(buffer: &Buffer) -> Vec<String> {
    let width = usize::from(buffer.area.width).max(1);
    let line = |cells: &[ratatui::buffer::Cell]| {
        let text: String = cells.iter().map(|cell| cell.symbol()).collect();
        text.trim_end().to_owned()
    };
    buffer.content.chunks(width).map(line).collect()
}

fn words_of<'l>(lines: &'l [String], first: &str) -> Vec<&'l str> {
    let line = lines.iter().find(|line| line.starts_with(first));
    line.unwrap_or_else(|| panic!("{first}: {lines:#?}")).split_whitespace().collect()
}

#[test]
fn rates_are_of_the_time_between_two_looks() {
    let lines = shown(&app());
    assert!(lines[0].contains("up 1:02:03") && lines[0].contains("mappings 12.3 k of 1000.0 k"));
    let row = words_of(&lines, "outbound    forwarded");
    assert_eq!(row, ["outbound", "forwarded", "10.0", "k", "8000.0", "k", "25.0", "k"]);
    let mut first = App::new(View::Rates);
    first.take(snapshot(1000.0, 5000));
    assert_eq!(words_of(&shown(&first), "outbound    forwarded")[2..], ["-", "-", "5000"]);
}

#[test]
fn keys_change_the_view_and_the_order_and_hold_the_picture() {
    let mut app = app();
    let order = |app: &App, names: [&str; 2]| {
        let lines = shown(app);
        names.map(|name| lines.iter().position(|line| line.starts_with(name)).unwrap())
    };
    app.press(Key::Next);
    let [first, second] = order(&app, ["no_mapping", "filtered"]);
    assert!(first < second && !shown(&app).iter().any(|line| line.starts_with("rule")));
    app.press(Key::Next);
    let [a, b] = order(&app, ["a ", "b "]);
    assert!(b < a);
    let row = ["b", "1", "500", "2", "0", "5", "-", "50.0", "%", "#######"];
    assert_eq!(words_of(&shown(&app), "b "), row);
    app.press(Key::Sort);
    let [a, b] = order(&app, ["a ", "b "]);
    assert!(a < b);
    app.press(Key::Next);
    let [five, six] = order(&app, ["10.0.0.5", "10.0.0.6"]);
    assert!(six < five);
    app.press(Key::Sort);
    let [five, six] = order(&app, ["10.0.0.5", "10.0.0.6"]);
    assert!(five < six);
    app.press(Key::Down);
    assert!(!shown(&app).iter().any(|line| line.starts_with("10.0.0.5")));
    app.press(Key::Next);
    assert_eq!(words_of(&shown(&app), "0 ")[..4], ["0", "10.0", "k", "50"]);
    app.press(Key::Pause);
    let before = shown(&app);
    app.take(snapshot(1003.0, 99_000));
    assert_eq!(shown(&app), before);
    assert!(before.last().unwrap().starts_with("paused"));
    app.press(Key::Previous);
    assert_eq!(app.view, View::Subscribers);
}

#[test]
fn a_page_has_every_view_and_no_keys() {
    let text = page(&app());
    for part in ["Rates", "Drops", "Pools", "Subscribers", "Workers", "no_mapping", "50.0 %"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("quit"));
    assert!(page(&App::new(View::Rates)).contains("waiting for the gateway"));
}

#[test]
fn a_small_terminal_and_strange_answers_are_no_trouble() {
    let mut app = App::new(View::Rates);
    app.take(Snapshot::default());
    app.take(Snapshot { counters: json!([1, "x"]), pools: json!(3), ..Snapshot::default() });
    for view in View::ALL {
        app.view = view;
        for size in [(1, 1), (3, 2), (200, 3)] {
            let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
            terminal.draw(|frame| draw(frame, &app)).unwrap();
        }
    }
}

/// A gateway with the longest names and numbers that there are.
fn wide() -> App {
    let mut app = App::new(View::Rates);
    for (time, packets) in [(1000.0, 0), (1001.0, 9_999_900_000_000_u64)] {
        let mut snapshot = snapshot(time, packets);
        let most = json!({ "now": 9_999_900, "most": 9_999_900 });
        snapshot.status["mappings"] = most.clone();
        snapshot.status["subscribers"] = most;
        let ports = json!({ "tcp": 9_999_900, "udp": 9_999_900, "icmp": 9_999_900, "dccp": 0 });
        snapshot.pools = json!([{
            "name": "a pool of a name that is as long as anybody gives one", "addresses": 65_536,
            "used": ports, "held": ports, "free_blocks": 99_999_999,
            "in_use": { "tcp": 1.0, "udp": 1.0, "icmp": 1.0, "dccp": 0.0 },
        }]);
        let subscriber = json!({
            "subscriber": "100.100.100.100", "external": "203.203.113.113",
            "realm": "a-realm-of-a-long-name", "mappings": ports, "sessions": 9_999_900,
        });
        snapshot.subscribers = Some(vec![subscriber; 60]);
        snapshot.counters["drops"]["a_reason_with_a_name_longer_than_any"] = packets.into();
        let mut owned = block();
        owned["external"] = "203.203.113.113".into();
        owned["ports"] = "60928-61439".into();
        owned["kind"] = "deterministic".into();
        owned["realm"] = "a-realm-of-a-long-name".into();
        owned["used"] = ports;
        snapshot.owners = Some(Owners { entries: vec![owned], ..Owners::default() });
        app.take(snapshot);
    }
    app
}

#[test]
fn no_screen_cuts_a_title_or_a_cell() {
    for app in [app(), wide()] {
        for view in View::ALL {
            let mut app = app.clone();
            app.view = view;
            let whole = table(&app);
            for width in [80, 100, 120, 200] {
                let lines = shown_in(&app, width);
                let told = format!("{view:?} at {width}: {lines:#?}");
                // The summary, the tabs and the keys are shown in whole parts.
                let parts = summary(&app);
                assert!((1..=parts.len()).any(|end| lines[0] == parts[..end].join("  ")), "{told}");
                for title in View::ALL.map(View::title) {
                    assert!(lines[1].contains(title), "no {title} in {told}");
                }
                assert!(lines[19].ends_with("/ find an owner"), "{told}");
                // Titles are those of whole columns, and the columns that matter most are there.
                let fitted = whole.clone().fit(usize::from(width));
                let titles: Vec<&str> = fitted.columns.iter().map(|column| column.title).collect();
                let shown: Vec<&str> = split(&lines[3]);
                let wanted: Vec<&str> =
                    titles.iter().copied().filter(|title| !title.is_empty()).collect();
                assert_eq!(shown, wanted, "{told}");
                for column in whole.columns.iter().filter(|column| column.rank == 0) {
                    assert!(titles.contains(&column.title), "no {} in {told}", column.title);
                }
                // Cells are whole, but for the one column that may be shortened.
                for (line, row) in lines[4..19].iter().zip(&fitted.rows) {
                    for cell in row.iter().filter(|cell| !cell.is_empty()) {
                        assert!(line.contains(cell.as_str()), "no {cell:?} in {told}");
                    }
                }
            }
        }
    }
}

/// The cells of a line of titles, which have single blanks at most.
fn split(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

#[test]
fn a_usual_screen_has_room_for_the_columns_of_usual_tables() {
    let mut app = app();
    for (view, left_out) in [
        (View::Rates, &[][..]),
        (View::Drops, &[]),
        (View::Pools, &[""]),
        (View::Subscribers, &[]),
        (View::Workers, &[]),
        (View::Blocks, &["pool", "age"]),
    ] {
        app.view = view;
        let titles = |table: Table| -> Vec<&str> {
            table.columns.iter().map(|column| column.title).collect()
        };
        let (all, shown) = (titles(table(&app)), titles(table(&app).fit(80)));
        let missing: Vec<&str> = all.into_iter().filter(|title| !shown.contains(title)).collect();
        assert_eq!(missing, left_out, "{view:?}");
        assert_eq!(titles(table(&app)), titles(table(&app).fit(120)), "{view:?}");
    }
}

#[test]
fn a_page_has_every_row_and_whole_titles() {
    let text = page(&wide());
    assert_eq!(text.matches("100.100.100.100").count(), 60);
    assert!(text.contains("free blocks") && text.lines().next().unwrap().contains("subscribers"));
    assert!(text.lines().skip(1).all(|line| line.chars().count() <= PAGE_WIDTH), "{text}");
}

#[test]
fn an_owner_is_looked_for_by_what_is_typed() {
    let mut app = app();
    let press = |app: &mut App, keys: &[Key]| keys.iter().for_each(|&key| app.press(key));
    press(&mut app, &[Key::Find, Key::Letter('1'), Key::Letter('2'), Key::Erase]);
    assert_eq!(shown(&app)[19], "address or address:port: 1_");
    press(&mut app, &[Key::GiveUp]);
    assert_eq!((app.view, &app.search[..]), (View::Rates, ""));
    press(&mut app, &[Key::Find]);
    "203.0.113.1:2100".chars().for_each(|letter| app.press(Key::Letter(letter)));
    press(&mut app, &[Key::Send]);
    assert_eq!((app.view, &app.search[..]), (View::Blocks, "203.0.113.1:2100"));
    assert!(shown(&app).contains(&"being looked for".to_owned()), "{:#?}", shown(&app));
    // An answer to the search before comes too late.
    app.take(snapshot(1003.0, 30_000));
    assert!(shown(&app).contains(&"being looked for".to_owned()));
    let mut answer = snapshot(1004.0, 30_000);
    let owners = Owners { search: app.search.clone(), entries: vec![block()], message: None };
    answer.owners = Some(owners);
    app.take(answer);
    let row = ["203.0.113.1", "2048-2559", "10.0.0.9", "block", "default", "0", "0", "2", "h"];
    assert_eq!(words_of(&shown(&app), "203.0.113.1")[..9], row);
    let mut nobody = snapshot(1005.0, 30_000);
    let message = Some("nobody has it ".repeat(20));
    nobody.owners = Some(Owners { search: app.search.clone(), entries: vec![], message });
    app.take(nobody);
    let words: usize = shown_in(&app, 80).iter().map(|line| line.matches("nobody").count()).sum();
    assert_eq!(words, 20);
}
