//! What is shown, on a terminal or as a page of text.

use crate::app::{App, Snapshot, View};
use crate::source::mappings;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Table, Tabs};
use ratatui::{Frame, buffer::Buffer};
use serde_json::Value;
use std::cmp::Reverse;

/// Size of a page of text.
const PAGE: (u16, u16) = (100, 48);

const DIRECTIONS: [&str; 4] = ["outbound", "inbound", "hairpin", "local"];
const VERDICTS: [&str; 3] = ["forwarded", "replied", "dropped"];

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, app: &App) {
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ]);
    let [head, tabs, _, body, foot] = areas.areas(frame.area());
    frame.render_widget(Paragraph::new(summary(app)), head);
    let place = View::ALL.iter().position(|view| *view == app.view).unwrap_or_default();
    frame.render_widget(Tabs::new(View::ALL.map(View::title)).select(place), tabs);
    let (widths, header, rows) = table(app);
    let header = Row::new(header).style(Style::new().add_modifier(Modifier::BOLD));
    let rows = rows.into_iter().skip(app.first).map(Row::new);
    let widths = widths.into_iter().map(Constraint::Length);
    frame.render_widget(Table::new(rows, widths).header(header).column_spacing(2), body);
    frame.render_widget(Paragraph::new(help(app)), foot);
}

/// All views, one after the other, as text.
pub fn page(app: &App) -> String {
    let mut text = String::new();
    for view in View::ALL {
        let mut app = app.clone();
        app.view = view;
        let Ok(mut terminal) = Terminal::new(TestBackend::new(PAGE.0, PAGE.1));
        let Ok(_) = terminal.draw(|frame| draw(frame, &app));
        let lines = lines(terminal.backend().buffer());
        // What is said of the gateway once, and of tabs and keys not at all.
        if view == View::Rates {
            text += &format!("{}\n", lines[0]);
        }
        text += &format!("\n{}\n", view.title());
        let body = &lines[3..lines.len() - 1];
        let end = body.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
        body[..end].iter().for_each(|line| text += &format!("{line}\n"));
    }
    text
}

/// What a buffer shows, without what is blank at the ends of lines.
fn lines(buffer: &Buffer) -> Vec<String> {
    let width = usize::from(buffer.area.width).max(1);
    let line = |cells: &[ratatui::buffer::Cell]| {
        let text: String = cells.iter().map(|cell| cell.symbol()).collect();
        text.trim_end().to_owned()
    };
    buffer.content.chunks(width).map(line).collect()
}

fn summary(app: &App) -> Line<'static> {
    let Some(now) = app.now() else {
        return Line::from("natgate: waiting for the gateway's first answer".to_owned());
    };
    let count = |thing: &str| {
        let of = &now.status[thing];
        format!("{} of {}", short(of["now"].as_f64()), short(of["most"].as_f64()))
    };
    let up = now.status["running_s"].as_f64().unwrap_or_default() as u64;
    let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
    Line::from(format!(
        "natgate {}  up {hours}:{minutes:02}:{seconds:02}  workers {}  mappings {}  subscribers {}",
        now.status["version"].as_str().unwrap_or_default(),
        now.status["workers"],
        count("mappings"),
        count("subscribers"),
    ))
}

fn help(app: &App) -> Line<'static> {
    let keys = "q quit  tab/arrows view, scroll  s sort  p pause";
    match (&app.trouble, app.paused) {
        (Some(trouble), _) => Line::from(trouble.clone()).style(Modifier::REVERSED),
        (None, true) => Line::from(format!("paused  {keys}")).style(Modifier::REVERSED),
        (None, false) => Line::from(keys),
    }
}

/// Widths, header and rows.
type Shown = (Vec<u16>, Vec<String>, Vec<Vec<String>>);

fn table(app: &App) -> Shown {
    let Some(now) = app.now() else { return (vec![1], vec![String::new()], Vec::new()) };
    match app.view {
        View::Rates => rates(app),
        View::Drops => drops(app, now),
        View::Pools => pools(app, now),
        View::Subscribers => subscribers(app, now),
        View::Workers => workers(app, now),
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn rates(app: &App) -> Shown {
    let row = |(direction, verdict): (&str, &str)| {
        let count = |table: &str, snapshot: &Snapshot| {
            snapshot.counters[table][direction][verdict].as_u64().unwrap_or_default()
        };
        let packets = app.rate(|snapshot| count("packets", snapshot));
        let bits = app.rate(|snapshot| 8 * count("bytes", snapshot));
        let all = app.now().map(|now| count("packets", now) as f64);
        vec![direction.to_owned(), verdict.to_owned(), short(packets), short(bits), short(all)]
    };
    let both = DIRECTIONS.iter().flat_map(|&one| VERDICTS.map(|verdict| (one, verdict)));
    let header = words(&["direction", "verdict", "packets/s", "bits/s", "packets"]);
    (vec![10, 10, 10, 10, 10], header, both.map(row).collect())
}

fn drops(app: &App, now: &Snapshot) -> Shown {
    let count = |snapshot: &Snapshot, reason: &str| {
        snapshot.counters["drops"][reason].as_u64().unwrap_or_default()
    };
    let reasons = now.counters["drops"].as_object().into_iter().flatten();
    let mut all: Vec<(&String, Option<f64>, u64)> = reasons
        .map(|(reason, all)| {
            let rate = app.rate(|snapshot| count(snapshot, reason));
            (reason, rate, all.as_u64().unwrap_or_default())
        })
        .filter(|(.., all)| *all > 0)
        .collect();
    all.sort_by(|a, b| {
        let by_rate = b.1.unwrap_or_default().total_cmp(&a.1.unwrap_or_default());
        let by_count = b.2.cmp(&a.2);
        if app.sort == 0 { by_rate.then(by_count) } else { by_count.then(by_rate) }
    });
    let row = |(reason, rate, all): (&String, Option<f64>, u64)| {
        vec![reason.clone(), short(rate), short(Some(all as f64))]
    };
    let header = words(&["reason", "packets/s", "packets"]);
    let mut rows: Vec<_> = all.into_iter().map(row).collect();
    if rows.is_empty() {
        rows.push(words(&["none", "", ""]));
    }
    (vec![24, 10, 10], header, rows)
}

/// The share of a pool's ports that are taken, of the protocol with most.
fn fullness(pool: &Value) -> f64 {
    let taken = pool["taken"].as_object().into_iter().flatten();
    let most = taken.filter_map(|(_, count)| count.as_f64()).fold(0.0, f64::max);
    match pool["ports"].as_f64() {
        Some(all) if all > 0.0 => most / all,
        _ => 0.0,
    }
}

fn pools(app: &App, now: &Snapshot) -> Shown {
    let mut all: Vec<&Value> = now.pools.as_array().into_iter().flatten().collect();
    match app.sort {
        0 => all.sort_by(|a, b| fullness(b).total_cmp(&fullness(a))),
        _ => all.sort_by_key(|pool| pool["name"].as_str().unwrap_or_default().to_owned()),
    }
    let row = |pool: &Value| {
        let share = fullness(pool);
        let used = |protocol: &str| short(pool["used"][protocol].as_f64());
        let held = pool["held"].as_object().into_iter().flatten();
        let held = held.filter_map(|(_, count)| count.as_f64()).sum();
        let bar = "#".repeat((share.clamp(0.0, 1.0) * 14.0).ceil() as usize);
        vec![
            pool["name"].as_str().unwrap_or_default().to_owned(),
            pool["addresses"].to_string(),
            used("tcp"),
            used("udp"),
            used("icmp"),
            short(Some(held)),
            pool["free_blocks"].as_u64().map_or("-".to_owned(), |blocks| blocks.to_string()),
            format!("{:.1} %", 100.0 * share),
            bar,
        ]
    };
    let header =
        words(&["pool", "addresses", "tcp", "udp", "icmp", "held", "free blocks", "full", ""]);
    (vec![16, 9, 8, 8, 8, 8, 11, 7, 14], header, all.into_iter().map(row).collect())
}

fn subscribers(app: &App, now: &Snapshot) -> Shown {
    let header =
        words(&["subscriber", "realm", "mappings", "tcp", "udp", "other", "sessions", "external"]);
    let widths = vec![16, 10, 9, 8, 8, 8, 9, 16];
    let Some(all) = &now.subscribers else {
        return (widths, header, vec![words(&["being counted"])]);
    };
    let mut all: Vec<&Value> = all.iter().collect();
    match app.sort {
        0 => all.sort_by_key(|one| Reverse(mappings(one))),
        _ => all.sort_by_key(|one| Reverse(one["sessions"].as_u64())),
    }
    let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let row = |one: &Value| {
        let of = |protocol: &str| short(one["mappings"][protocol].as_f64());
        vec![
            word(&one["subscriber"]),
            word(&one["realm"]),
            short(Some(mappings(one) as f64)),
            of("tcp"),
            of("udp"),
            of("other"),
            short(one["sessions"].as_f64()),
            word(&one["external"]),
        ]
    };
    (widths, header, all.into_iter().map(row).collect())
}

fn workers(app: &App, now: &Snapshot) -> Shown {
    let row = |place: usize, worker: &Value| {
        let count = |snapshot: &Snapshot, key: &str| {
            snapshot.workers[place][key].as_u64().unwrap_or_default()
        };
        let rate = |key: &str| app.rate(|snapshot| count(snapshot, key));
        // Nanoseconds a second.
        let share = |key: &str| {
            rate(key).map_or("-".to_owned(), |nanos| format!("{:.0} %", (nanos / 1e7).min(100.0)))
        };
        vec![
            worker["worker"].to_string(),
            short(rate("frames")),
            share("busy_ns"),
            share("asleep_ns"),
            short(worker["mappings"].as_f64()),
            short(rate("handed_over")),
            short(rate("taken_over")),
            short(worker["hand_over_full"].as_f64()),
        ]
    };
    let all = now.workers.as_array().into_iter().flatten().enumerate();
    let header =
        words(&["worker", "frames/s", "busy", "asleep", "mappings", "handed/s", "taken/s", "lost"]);
    (vec![6, 9, 6, 6, 9, 9, 9, 8], header, all.map(|(place, one)| row(place, one)).collect())
}

/// A number in at most six characters; `None`: it is not known yet.
fn short(number: Option<f64>) -> String {
    let Some(number) = number else { return "-".to_owned() };
    match number {
        n if n < 10_000.0 => format!("{n:.0}"),
        n if n < 10_000_000.0 => format!("{:.1} k", n / 1e3),
        n if n < 10_000_000_000.0 => format!("{:.1} M", n / 1e6),
        n => format!("{:.1} G", n / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::Key;
    use serde_json::json;

    fn snapshot(time: f64, packets: u64) -> Snapshot {
        let pool = |name: &str, taken: u64| {
            json!({ "name": name, "addresses": 1, "ports": 1000, "free_blocks": null,
                    "taken": { "tcp": taken, "udp": 7, "icmp": 0, "dccp": 0 },
                    "used": { "tcp": taken, "udp": 2, "icmp": 0, "dccp": 0 },
                    "held": { "tcp": 0, "udp": 5, "icmp": 0, "dccp": 0 } })
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
        }
    }

    fn app() -> App {
        let mut app = App::new(View::Rates);
        app.take(snapshot(1000.0, 5000));
        app.take(snapshot(1002.0, 25_000));
        app
    }

    fn shown(app: &App) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(100, 20)).unwrap();
        terminal.draw(|frame| draw(frame, app)).unwrap();
        lines(terminal.backend().buffer())
    }

    fn words_of<'l>(lines: &'l [String], first: &str) -> Vec<&'l str> {
        let line = lines.iter().find(|line| line.starts_with(first));
        line.unwrap_or_else(|| panic!("{first}: {lines:#?}")).split_whitespace().collect()
    }

    #[test]
    fn rates_are_of_the_time_between_two_looks() {
        let lines = shown(&app());
        assert!(
            lines[0].contains("up 1:02:03") && lines[0].contains("mappings 12.3 k of 1000.0 k")
        );
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
}
