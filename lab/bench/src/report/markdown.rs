//! Tables in Markdown.

use std::fmt;

/// A table: the first column has words, the others figures. Bars within cells are escaped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with this header and no rows.
    pub fn new<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Self {
        Self { header: header.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Returns the table with one more row.
    #[must_use]
    pub fn row<T: Into<String>>(mut self, cells: impl IntoIterator<Item = T>) -> Self {
        self.push(cells);
        self
    }

    /// Adds a row; missing cells stay empty.
    pub fn push<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let mut cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        cells.resize(self.header.len(), String::new());
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            writeln!(f, "| {} |", cells.join(" | "))
        };
        line(&self.header)?;
        let mut rule = vec!["---:".to_string(); self.header.len()];
        if let Some(first) = rule.first_mut() {
            *first = "---".into();
        }
        line(&rule)?;
        self.rows.iter().try_for_each(|row| line(row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_escaped_and_short_rows_filled() {
        let table = Table::new(["a", "b"]).row(["x|y"]);
        assert_eq!(table.to_string(), "| a | b |\n| --- | ---: |\n| x\\|y |  |\n");
    }
}
