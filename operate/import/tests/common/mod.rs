//! Helpers for tests of conversions.

use natgate_import::{Format, Grade, Hints, Imported, Remark, import};

pub(crate) fn imported(text: &str, format: Format) -> Imported {
    import(text, Some(format), &Hints::default()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A configuration without comments and empty lines, as one string for each table.
pub(crate) fn tables(config: &str) -> Vec<String> {
    let lines = config.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let mut tables: Vec<String> = Vec::new();
    for line in lines {
        match tables.last_mut() {
            Some(last) if !line.starts_with('[') => *last += &format!(" {line}"),
            _ => tables.push(line.to_owned()),
        }
    }
    tables
}

pub(crate) fn has(imported: &Imported, table: &str) {
    let all = tables(&imported.config);
    assert!(all.iter().any(|one| one == table), "{table:?} is not among {all:#?}");
}

pub(crate) fn remark(imported: &Imported, line: usize) -> &Remark {
    let found = imported.remarks.iter().find(|remark| remark.line == line);
    found.unwrap_or_else(|| panic!("nothing is said of line {line}: {:#?}", imported.remarks))
}

pub(crate) fn lacks(imported: &Imported, line: usize, why: &str) {
    let remark = remark(imported, line);
    assert!(remark.grade == Grade::Without && remark.message.contains(why), "{remark:?}");
}

pub(crate) fn lost(imported: &Imported, line: usize, why: &str) {
    let all: Vec<_> = imported.remarks.iter().filter(|remark| remark.line == line).collect();
    let is = |remark: &&&Remark| remark.grade == Grade::Lost && remark.message.contains(why);
    assert!(all.iter().any(|remark| is(&remark)), "{why:?} is not in {all:?}");
}

pub(crate) fn differs(imported: &Imported, line: usize, how: &str) {
    let found = imported.remarks.iter().filter(|remark| remark.line == line);
    let found: Vec<_> = found.collect();
    let is = |remark: &&&Remark| remark.grade == Grade::Differs && remark.message.contains(how);
    assert!(found.iter().any(|remark| is(&remark)), "{found:?}");
}
