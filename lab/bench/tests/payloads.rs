//! The measurement of messages of application-level gateways, in small: every figure is present.

use natgate_lab::payloads::{Plan, measure};
use serde_json::Value;

#[test]
fn every_message_and_way_has_its_figures() {
    let report = measure(&Plan::quick(), "test");
    let json = report.json();
    let positive = |value: &Value| assert!(value.as_f64() > Some(0.0), "{json}");
    for (list, figures) in [
        ("messages", &["/ns/median", "/each_second"][..]),
        ("packets", &["/off_ns/median", "/on_ns/median", "/ratio/median"]),
    ] {
        let rows = json[list].as_array().expect("rows");
        assert_eq!(rows.len(), if list == "messages" { 3 } else { 2 });
        for row in rows {
            figures.iter().for_each(|figure| positive(row.pointer(figure).expect("a figure")));
        }
    }
    assert_eq!(json["targets"].as_array().map(Vec::len), Some(5));
    let page = report.markdown();
    assert!(page.contains("registration") && page.contains("inbound"), "{page}");
}
