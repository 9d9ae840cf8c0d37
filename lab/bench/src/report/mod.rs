//! Report of an experiment: `<name>.json` for programs, `<name>.md` for people, one SVG picture for
//! each plot. All have the facts of the machine and the command of the experiment.
//!
//! An experiment adds text, tables and plots in the order of the page, and gives its figures once
//! as data. Only [`Report::write`] writes files.

mod machine;
mod markdown;
mod plot;
mod progress;

pub use machine::{Cache, HugePages, Machine};
pub use markdown::Table;
pub use plot::{Axis, Plot, Series, Style};
pub use progress::progress;

use serde::Serialize;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Failure to write a report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory cannot be written.
    #[error("{}: cannot be written: {cause}", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's reason.
        cause: std::io::Error,
    },
    /// A plot cannot be drawn.
    #[error("plot {name:?} cannot be drawn: {cause}")]
    Plot {
        /// Name of the plot.
        name: String,
        /// Error of the drawing library.
        cause: String,
    },
}

/// Report of one experiment.
#[derive(Debug)]
pub struct Report {
    name: String,
    title: String,
    command: String,
    machine: Machine,
    data: Map<String, Value>,
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    Text(String),
    Table(Table),
    Plot(Plot),
}

impl Report {
    /// Creates a report of `command` whose files have the name `name`. Records the machine's facts.
    pub fn new(name: &str, title: &str, command: &str) -> Self {
        Self {
            name: name.into(),
            title: title.into(),
            command: command.into(),
            machine: Machine::look(),
            data: Map::new(),
            parts: Vec::new(),
        }
    }

    /// The machine's facts.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Adds Markdown; a heading begins with `##`.
    pub fn text(&mut self, markdown: impl Into<String>) {
        self.parts.push(Part::Text(markdown.into()));
    }

    /// Adds a table.
    pub fn table(&mut self, table: Table) {
        self.parts.push(Part::Table(table));
    }

    /// Adds a plot in a file of its own: `<name>.svg` if the plot's name is empty, otherwise
    /// `<name>-<the plot's>.svg`.
    pub fn plot(&mut self, plot: Plot) {
        self.parts.push(Part::Plot(plot));
    }

    /// Adds the fields of a struct to the JSON object. A later field replaces an earlier one of the
    /// same name.
    ///
    /// # Panics
    ///
    /// If `data` is no struct or map.
    pub fn data(&mut self, data: &impl Serialize) {
        match serde_json::to_value(data) {
            Ok(Value::Object(fields)) => self.data.extend(fields),
            other => panic!("a report's data are a struct's: {other:?}"),
        }
    }

    /// The JSON object: `benchmark`, `command`, `machine`, then the fields of the data.
    pub fn json(&self) -> Value {
        let mut object = Map::new();
        object.insert("benchmark".into(), self.name.clone().into());
        object.insert("command".into(), self.command.clone().into());
        object.insert("machine".into(), json!(self.machine));
        object.extend(self.data.clone());
        Value::Object(object)
    }

    /// The Markdown page.
    pub fn markdown(&self) -> String {
        let mut page = format!("# {}\n\n    {}\n", self.title, self.command);
        for part in &self.parts {
            page.push('\n');
            match part {
                Part::Text(text) => page.push_str(&format!("{}\n", text.trim())),
                Part::Table(table) => page.push_str(&table.to_string()),
                Part::Plot(plot) => {
                    page.push_str(&format!("![{}]({})\n", plot.title, self.picture(plot)));
                }
            }
        }
        page.push_str(&format!("\n## Machine\n\n{}", self.machine.table()));
        page
    }

    /// Writes every file, creates the directory if necessary, and returns the paths.
    ///
    /// # Errors
    ///
    /// The error of the first file or plot that fails.
    pub fn write(&self, directory: &Path) -> Result<Vec<PathBuf>, Error> {
        let mut files = vec![
            (format!("{}.json", self.name), format!("{:#}\n", self.json())),
            (format!("{}.md", self.name), self.markdown()),
        ];
        for part in &self.parts {
            if let Part::Plot(plot) = part {
                files.push((self.picture(plot), plot.svg()?));
            }
        }
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            |cause| Error::Write { path, cause }
        };
        std::fs::create_dir_all(directory).map_err(failed(directory))?;
        let mut paths = Vec::new();
        for (name, content) in files {
            let path = directory.join(name);
            std::fs::write(&path, content).map_err(failed(&path))?;
            paths.push(path);
        }
        Ok(paths)
    }

    fn picture(&self, plot: &Plot) -> String {
        match plot.name.as_str() {
            "" => format!("{}.svg", self.name),
            name => format!("{}-{name}.svg", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        #[derive(Serialize)]
        struct Data {
            answer: f64,
        }
        let mut report = Report::new("trial", "A trial", "natgate bench trial");
        report.data(&Data { answer: 42.0 });
        report.text("Some words.");
        report.table(Table::new(["thing", "figure"]).row(["a", "1"]));
        report.plot(Plot {
            name: String::new(),
            title: "Figures".into(),
            x: Axis::log("sessions"),
            y: Axis::linear("cycles"),
            series: vec![Series::new("ours", Style::Line, vec![(500.0, 1.0), (65e6, 9.0)])],
        });
        report
    }

    #[test]
    fn everything_is_in_the_files() {
        let directory = std::env::temp_dir().join(format!("natgate-report-{}", std::process::id()));
        let paths = report().write(&directory).unwrap();
        let read = |at: usize| std::fs::read_to_string(&paths[at]).unwrap();
        let json: Value = serde_json::from_str(&read(0)).unwrap();
        assert_eq!(json["answer"], 42.0);
        assert_eq!(json["benchmark"], "trial");
        assert!(json["machine"]["processors"].as_u64().unwrap() > 0);
        let page = read(1);
        for wanted in ["# A trial", "natgate bench trial", "| a | 1 |", "](trial.svg)", "Kernel"] {
            assert!(page.contains(wanted), "{wanted} is not in {page}");
        }
        assert!(read(2).contains("<svg") && read(2).contains("ours"));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_directory_that_cannot_be_is_named() {
        let error = report().write(Path::new("/proc/natgate")).unwrap_err();
        assert!(error.to_string().starts_with("/proc/natgate: cannot be written: "), "{error}");
    }
}
