//! Tests of the forms of reports, and of the complete JSON.

use super::*;

fn report(subject: &str, must: Finding) -> Report {
    let evidence = ["sent inside: UDP <1> & more".to_owned()];
    Report {
        natgate: "0".into(),
        subject: subject.into(),
        seconds: 65.0,
        external: vec![Ipv4Addr::new(203, 0, 113, 1)],
        items: vec![
            Item {
                text: "One endpoint <for> all.".to_owned(),
                ..Item::new("rfc4787#REQ-1", must, &evidence, 0.123_456)
            },
            Item::left_out("rfc4787#REQ-6a", Duration::from_secs(7440)),
        ],
    }
}

#[test]
fn json_read_back_is_the_same_report() {
    let report = report("ours", Ok("It is.".into()));
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    assert!(text.contains(r#""verdict":"not-tested""#), "{text}");
}

#[test]
fn only_what_leaves_no_choice_makes_the_whole_fail() {
    let failed = |report: Report, allowed: &[String]| report.failed_musts(allowed).count();
    let fail = || report("ours", Err(Stop::Failed(String::new())));
    assert_eq!(failed(report("ours", Ok(String::new())), &[]), 0);
    assert_eq!(failed(report("ours", Err(Stop::NotTested(String::new()))), &[]), 0);
    assert_eq!(failed(fail(), &[]), 1);
    assert_eq!(failed(fail(), &["rfc5382".into(), "rfc4787#REQ-1a".into()]), 1);
    assert_eq!(failed(fail(), &["rfc5382".into(), "rfc4787".into()]), 0);
    let mut other = fail();
    other.items[0].level = "SHOULD".into();
    assert_eq!(failed(other, &[]), 0);
}

#[test]
fn text_says_why_something_failed_and_shows_it() {
    let text = report("ours", Err(Stop::Failed("Two endpoints.".into()))).text(true);
    for part in ["RFC4787", "fail       REQ-1", "Two endpoints.", "UDP <1>", "needs 2 h 4 min"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn pages_carry_everything_escaped() {
    let page = report("a<b", Ok("Fine & good.".into())).html();
    for part in ["a&lt;b", "UDP &lt;1&gt; &amp; more", "Fine &amp; good.", "203.0.113.1"] {
        assert!(page.contains(part), "{part} is not in\n{page}");
    }
    assert!(!page.contains("<1>") && !page.contains("http"));
}

#[test]
fn a_comparison_has_a_row_a_requirement_and_says_who_differs() {
    let failed = report("theirs", Err(Stop::Failed("Two | endpoints.".into())));
    let table = comparison(&[report("ours", Ok(String::new())), failed]);
    let rows: Vec<_> = table.lines().collect();
    assert_eq!(rows[0], "| requirement | level | ours | theirs | why |");
    assert_eq!(
        rows[2],
        "| `rfc4787#REQ-1` One endpoint &lt;for> all. | MUST | pass | **fail** | \
         theirs: Two \\| endpoints. |"
    );
    assert!(rows[3].ends_with("| not tested | not tested | Not tested: needs 2 h 4 min. |"));
}
