//! docs/drop-reasons.md is generated from the list in the code. `NATGATE_BLESS=1` writes it anew.

use natgate_engine::DropReason;
use std::fmt::Write;

#[test]
fn the_page_of_drop_reasons_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/drop-reasons.md");
    let mut page = String::from(
        "# Why packets are dropped\n\n\
         natgate counts every dropped packet under one of these names: in `--stats`, in the status \
         of a\nrunning gateway, and in the metrics. The list is complete: the enum in\n\
         `core/engine/src/drop_reason.rs` generates this page.\n\n\
         | name | meaning |\n|---|---|\n",
    );
    for reason in DropReason::ALL {
        writeln!(page, "| `{}` | {} |", reason.name(), reason.text()).unwrap();
    }
    if std::env::var_os("NATGATE_BLESS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(written, page, "{path} is out of date: NATGATE_BLESS=1 cargo test writes it anew");
}
