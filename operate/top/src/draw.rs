//! The live screen, and all views as one page of text.

use crate::app::{App, View};
use crate::columns::{SPACING, joined, shortened};
use crate::views::{short, table};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{self, Paragraph, Row, Tabs};

/// Width of a page of text, characters.
const PAGE_WIDTH: usize = 100;

/// Draws the screen: a summary, the views to choose from, one view, and the keys.
pub fn draw(frame: &mut Frame<'_>, app: &App) {
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ]);
    let [head, tabs, _, body, foot] = areas.areas(frame.area());
    let width = usize::from(frame.area().width);
    frame.render_widget(Paragraph::new(joined(&summary(app), width)), head);
    let place = View::ALL.iter().position(|view| *view == app.view).unwrap_or_default();
    frame.render_widget(Tabs::new(View::ALL.map(View::title)).select(place), tabs);
    let table = table(app).fit(width);
    let widths = table.widths().into_iter();
    let widths = widths.map(|width| Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX)));
    let header = Row::new(table.columns.iter().map(|column| column.title));
    let header = header.style(Style::new().add_modifier(Modifier::BOLD));
    let rows = table.rows.into_iter().skip(app.first).map(Row::new);
    let shown = widgets::Table::new(rows, widths).header(header).column_spacing(SPACING as u16);
    frame.render_widget(shown, body);
    frame.render_widget(Paragraph::new(foot_line(app, width)), foot);
}

/// All views, one after the other, as text; every row of each.
pub fn page(app: &App) -> String {
    let mut text = joined(&summary(app), usize::MAX) + "\n";
    for view in View::ALL {
        let mut app = app.clone();
        app.view = view;
        text += &format!("\n{}\n", view.title());
        for line in table(&app).fit(PAGE_WIDTH).lines() {
            text += &format!("{line}\n");
        }
    }
    text
}

/// The state of the gateway in parts, the most important first.
fn summary(app: &App) -> Vec<String> {
    let Some(now) = app.now() else {
        return vec!["natgate: waiting for the gateway's first answer".to_owned()];
    };
    let count = |thing: &str| {
        let of = &now.status[thing];
        format!("{thing} {} of {}", short(of["now"].as_f64()), short(of["most"].as_f64()))
    };
    let up = now.status["running_s"].as_f64().unwrap_or_default() as u64;
    let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
    vec![
        format!("natgate {}", now.status["version"].as_str().unwrap_or_default()),
        format!("up {hours}:{minutes:02}:{seconds:02}"),
        format!("workers {}", now.status["workers"]),
        count("mappings"),
        count("subscribers"),
    ]
}

/// The text that is being typed, a failure, or the keys.
fn foot_line(app: &App, width: usize) -> Line<'static> {
    let keys = ["q quit", "tab/arrows view, scroll", "s sort", "p pause", "/ find an owner"];
    let keys = keys.map(str::to_owned);
    match (&app.typed, &app.trouble, app.paused) {
        (Some(typed), ..) => {
            let prompt = format!("address or address:port: {typed}_");
            Line::from(shortened(&prompt, width)).style(Modifier::BOLD)
        }
        (None, Some(trouble), _) => Line::from(shortened(trouble, width)).style(Modifier::REVERSED),
        (None, None, true) => {
            let parts: Vec<String> = std::iter::once("paused".to_owned()).chain(keys).collect();
            Line::from(joined(&parts, width)).style(Modifier::REVERSED)
        }
        (None, None, false) => Line::from(joined(&keys, width)),
    }
}

#[cfg(test)]
mod tests;
