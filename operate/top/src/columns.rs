//! Tables that fit a screen: a column is shown whole or not at all.
//!
//! A column is as wide as its title and its longest cell. If the table is wider than the screen,
//! columns are left out whole, the least important one first. Only if the columns that are never
//! left out are too wide, cells of the widest one are shortened, and end with an ellipsis.

/// Blanks between two columns.
pub(crate) const SPACING: usize = 2;

/// The end of a shortened text.
const ELLIPSIS: char = '\u{2026}';

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    /// The least width, so that columns stay in place while numbers change.
    pub(crate) least: usize,
    /// The order in which columns are left out, the highest first; 0: never.
    pub(crate) rank: u8,
}

/// A column that is never left out.
pub(crate) const fn always(title: &'static str, least: usize) -> Column {
    Column { title, least, rank: 0 }
}

/// A column that is left out in the order of ranks, the highest first.
pub(crate) const fn ranked(rank: u8, title: &'static str, least: usize) -> Column {
    Column { title, least, rank }
}

/// A table of text. Each row has a cell for each column.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// The width of each column.
    pub(crate) fn widths(&self) -> Vec<usize> {
        let width = |(place, column): (usize, &Column)| {
            let cells = self.rows.iter().map(|row| length(&row[place]));
            cells.max().unwrap_or_default().max(length(column.title)).max(column.least)
        };
        self.columns.iter().enumerate().map(width).collect()
    }

    /// The table as far as a screen of this width shows it.
    pub(crate) fn fit(mut self, width: usize) -> Self {
        while self.width() > width {
            let ranks = self.columns.iter().enumerate().filter(|(_, column)| column.rank > 0);
            let Some((place, _)) = ranks.max_by_key(|(_, column)| column.rank) else { break };
            self.columns.remove(place);
            self.rows.iter_mut().for_each(|row| drop(row.remove(place)));
        }
        let excess = self.width().saturating_sub(width);
        let widths = self.widths();
        let widest = widths.iter().enumerate().max_by_key(|(_, width)| **width);
        if let Some((place, &wide)) = widest.filter(|_| excess > 0) {
            let column = &mut self.columns[place];
            column.least = length(column.title).max(wide.saturating_sub(excess));
            let room = column.least;
            self.rows.iter_mut().for_each(|row| row[place] = shortened(&row[place], room));
        }
        self
    }

    fn width(&self) -> usize {
        let widths = self.widths();
        widths.iter().sum::<usize>() + SPACING * widths.len().saturating_sub(1)
    }

    /// The lines of the table, titles first.
    pub(crate) fn lines(&self) -> Vec<String> {
        let widths = self.widths();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let cells = cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            let line = cells.collect::<Vec<_>>().join(&" ".repeat(SPACING));
            line.trim_end().to_owned()
        };
        let titles = line(&mut self.columns.iter().map(|column| column.title));
        let rows = self.rows.iter().map(|row| line(&mut row.iter().map(String::as_str)));
        std::iter::once(titles).chain(rows).collect()
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// A text in so many characters; a longer one ends with an ellipsis.
pub(crate) fn shortened(text: &str, room: usize) -> String {
    if length(text) <= room {
        return text.to_owned();
    }
    let kept: String = text.chars().take(room.saturating_sub(1)).collect();
    if room == 0 { kept } else { kept + &ELLIPSIS.to_string() }
}

/// The first parts of a line that fit as a whole, with blanks between them.
pub(crate) fn joined(parts: &[String], room: usize) -> String {
    let mut line = String::new();
    for part in parts {
        let blanks = if line.is_empty() { 0 } else { SPACING };
        if !line.is_empty() && length(&line) + blanks + length(part) > room {
            break;
        }
        line += &" ".repeat(blanks);
        line += part;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let columns = vec![always("name", 4), ranked(1, "second", 6), ranked(2, "third", 8)];
        let row = |name: &str| vec![name.to_owned(), "2".to_owned(), "3".to_owned()];
        Table { columns, rows: vec![row("a"), row("a long name")] }
    }

    fn titles(width: usize) -> Vec<&'static str> {
        table().fit(width).columns.iter().map(|column| column.title).collect()
    }

    #[test]
    fn columns_go_whole_and_in_order() {
        assert_eq!(table().widths(), [11, 6, 8]);
        assert_eq!(titles(29), ["name", "second", "third"]);
        assert_eq!(titles(28), ["name", "second"]);
        assert_eq!(titles(18), ["name"]);
        let lines = table().fit(8).lines();
        assert_eq!(lines, ["name", "a", "a long \u{2026}"]);
        assert_eq!(table().fit(0).lines(), ["name", "a", "a l\u{2026}"]);
    }

    #[test]
    fn parts_of_a_line_go_whole() {
        let parts = ["one".to_owned(), "two".to_owned(), "three".to_owned()];
        assert_eq!(joined(&parts, 15), "one  two  three");
        assert_eq!(joined(&parts, 14), "one  two");
        assert_eq!(joined(&parts, 0), "one");
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("abcd", 3), "ab\u{2026}");
        assert_eq!(shortened("abcd", 0), "");
    }
}
