//! The file of lw4o6's bindings is read again when it changes.
//!
//! A thread looks at the file once a second. A file is read when it has been the same at two looks,
//! so that a file in the middle of being written is not. A file with a fault changes nothing, and
//! is a problem of the gateway's health.

use crate::config::{Problem, Rivals, read_bindings};
use crate::reload::Reloader;
use natgate_gateway::{FileVersion, Settings};
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Result of a look at the file.
#[derive(Debug)]
pub enum Look {
    /// The file is as before, or is being written.
    Same,
    /// The bindings of the file are in force: their number.
    Read(usize),
    /// The file has faults; the bindings in force stay.
    Faulty(Vec<Problem>),
}

/// Looks at the file of the bindings.
#[derive(Debug, Default)]
pub struct Refresher {
    /// The version at the last look, and the last version with faults.
    seen: FileVersion,
    faulty: FileVersion,
}

impl Refresher {
    /// Looks at the file once, and puts its bindings in force if it has changed.
    pub fn look(&mut self, settings: &Settings) -> Look {
        let (Some(bindings), Some(lw4o6)) = (&settings.bindings, &settings.ipv6.lw4o6) else {
            return Look::Same;
        };
        let now = FileVersion::of(bindings.path());
        let is_settled = now == self.seen;
        self.seen = now;
        let is_known = now == bindings.file() || now == self.faulty;
        if !is_settled || is_known || !now.exists() {
            return Look::Same;
        }
        let fault = match read_bindings(bindings.path(), lw4o6.address) {
            Ok(table) => {
                let rivals = Rivals::of(settings);
                let fault = table.iter().find_map(|binding| rivals.fault(&binding));
                match fault {
                    None => {
                        let count = table.len();
                        bindings.put(Arc::new(table), now);
                        return Look::Read(count);
                    }
                    Some(fault) => {
                        let name = bindings.path().display().to_string();
                        vec![Problem::of_file(&name, fault)]
                    }
                }
            }
            Err(problems) => problems,
        };
        self.faulty = now;
        bindings.note_fault(sentence(&fault));
        Look::Faulty(fault)
    }
}

/// A sentence about the problems of a file.
fn sentence(problems: &[Problem]) -> String {
    let first = problems.first().map(ToString::to_string).unwrap_or_default();
    let (count, s) = (problems.len(), if problems.len() == 1 { "" } else { "s" });
    format!("the changed file of bindings is not in force, {count} problem{s}, the first: {first}")
}

/// Starts the thread that looks at the file, if the settings have one. `tell` gets a sentence about
/// each new version of the file.
///
/// # Errors
/// The error of the system, if there can be no thread.
pub fn watch_bindings(
    reloader: Arc<Reloader>,
    tell: impl Fn(String) + Send + 'static,
) -> io::Result<()> {
    let settings = reloader.settings();
    if settings.bindings.is_none() {
        return Ok(());
    }
    let mut refresher = Refresher::default();
    drop(settings);
    let name = thread::Builder::new().name("bindings".to_owned());
    name.spawn(move || {
        loop {
            thread::sleep(INTERVAL);
            match refresher.look(&reloader.settings()) {
                Look::Same => {}
                Look::Read(count) => tell(format!("bindings read again: {count}")),
                Look::Faulty(problems) => tell(sentence(&problems)),
            }
        }
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use std::fs;

    const TEXT: &str = "[inside]\ndevice = \"a\"\naddress6 = \"2001:db8::1/64\"\n[outside]\n\
        device = \"b\"\naddress = \"198.51.100.1/24\"\n[lw4o6]\naddress = \"2001:db8::2\"\n\
        bindings = \"bindings.csv\"\n";

    #[test]
    fn a_changed_file_is_read_once_and_a_faulty_one_changes_nothing() {
        let folder = std::env::temp_dir().join(format!("natgate-refresh-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let (file, bindings) = (folder.join("natgate.toml"), folder.join("bindings.csv"));
        fs::write(&file, TEXT).expect("a file");
        fs::write(&bindings, "203.0.113.7,0,6,1,2001:db8:b4::1\n").expect("a file");
        let settings = config::load(&file).expect("a good file");
        let shared = settings.bindings.clone().expect("bindings");
        let mut refresher = Refresher::default();
        assert!(matches!(refresher.look(&settings), Look::Same));
        fs::write(
            &bindings,
            "203.0.113.7,0,6,1,2001:db8:b4::1\n203.0.113.7,0,6,2,2001:db8:b4::2\n",
        )
        .expect("a file");
        assert!(matches!(refresher.look(&settings), Look::Same), "the file may be growing");
        assert!(matches!(refresher.look(&settings), Look::Read(2)));
        assert!(matches!(refresher.look(&settings), Look::Same));
        assert_eq!(shared.table().len(), 2);
        fs::write(&bindings, "203.0.113.7,0,6,99,2001:db8:b4::1\n").expect("a file");
        refresher.look(&settings);
        let Look::Faulty(problems) = refresher.look(&settings) else { panic!("99 needs 7 bits") };
        assert!(problems[0].to_string().contains("bindings.csv:1:17: psid: 99 needs 7 bits"));
        assert_eq!(shared.table().len(), 2);
        assert!(matches!(refresher.look(&settings), Look::Same), "its faults are told once");
        // A version that came between the start's read and the first look is not missed.
        fs::write(&bindings, "203.0.113.9,0,6,1,2001:db8:b4::1\n").expect("a file");
        let mut refresher = Refresher::default();
        assert!(matches!(refresher.look(&settings), Look::Same), "the file may be growing");
        assert!(matches!(refresher.look(&settings), Look::Read(1)));
        fs::remove_dir_all(&folder).expect("the folder");
    }
}
