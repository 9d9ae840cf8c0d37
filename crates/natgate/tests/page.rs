//! The page of a running gateway, in a browser: what it shows is what subscribers do.
//!
//! The network is that of the demonstration (`natgate-testnet`); the browser is in the gateway's
//! namespace. How the page looks and is used is tested where it is made. Needs root and the programs
//! that `make test` installs, and fails without them.

use natgate_browser::Chromium;
use natgate_testnet::{Gateway, Network, SERVER1, SUBSCRIBER1, config, is_root, remove_leftovers};
use std::path::Path;
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate");
const TAG: &str = "ngpage";
const PAGE: &str = "http://127.0.0.1:9465/";
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn a_browser_shows_what_subscribers_do() {
    assert!(is_root(), "network namespaces need root: run the tests as root");
    remove_leftovers(TAG);
    let network = Network::build(&format!("{TAG}{}", std::process::id())).unwrap();
    let nat = network.node("nat");
    nat.ip_batch("link set lo up\n").unwrap();
    let spool = network.file("spool").display().to_string();
    let with_log = config(&format!("[[log]]\nkind = \"spool\"\nfolder = {spool:?}\n"));
    let gateway = Gateway::start(&network, Path::new(PROGRAM), &with_log).unwrap();
    assert!(gateway.log().contains(&format!("the page is at {PAGE}")), "{}", gateway.log());

    let mut browser = Chromium::start_by(&["ip", "netns", "exec", nat.name()], "gateway");
    browser.open(PAGE);
    browser.wait_text("#state-text", "running for ");
    browser.wait("document.querySelectorAll('[role=gridcell]').length === 4");
    browser.wait("document.querySelectorAll('#workers tbody tr').length === 1");

    let arguments = ["-n", "-c", "20", "-i", "0.1", &SERVER1.to_string()];
    let output = network.node("sub1").run(30, "ping", &arguments).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let subscriber = SUBSCRIBER1.to_string();
    browser.wait_text("#subscribers tbody", &subscriber);
    browser.wait(
        "Number(document.querySelector('#directions tbody').rows[0].cells[3].textContent) >= 20",
    );

    // From the subscriber to the mapping, and from its external endpoint to the subscriber.
    browser.click("#subscribers button");
    browser.wait_text(
        "#answer-body",
        &format!("{subscriber} is a subscriber's address. It has 1 mapping."),
    );
    let external = browser.text("#answer-body td:nth-of-type(2) code");
    assert!(external.starts_with("203.0.113."), "{external}");
    browser.press("/");
    browser.write(&external);
    browser.press("Enter");
    browser.wait_text("#answer-body", &format!("{external} is {subscriber}"));

    // Who had it is in the log on disk, within a second or so, which the page's reader asks for again.
    let now = "new Date().toISOString()";
    let then = browser.value(now);
    let question = format!("{external} icmp at {}", then.as_str().unwrap());
    let until = Instant::now() + PATIENCE;
    while !browser.text("#answer-body").starts_with(&format!("{external} was {subscriber}")) {
        assert!(Instant::now() < until, "{}", browser.text("#answer-body"));
        browser.value(&format!("document.getElementById('query').value = {question:?}"));
        browser.click("#search button");
        browser.wait("!document.getElementById('answer-body').textContent.includes('Looking')");
    }
    assert_eq!(browser.text("#answer-body td:nth-of-type(1) code"), subscriber);
    browser.value(&format!(
        "document.getElementById('query').value = '{external} at 2001-01-01T00:00:00Z'"
    ));
    browser.click("#search button");
    browser.wait_text("#answer-body", "the log has nothing from before that time");

    // What is not natgate's to give through the page.
    let post =
        "fetch('/v1/clear?what=mappings', { method: 'POST' }).then((answer) => answer.status)";
    assert_eq!(browser.value(post), 403);

    gateway.stop().unwrap();
    browser.wait("!document.getElementById('banner').hidden");
    let gateway = Gateway::start(&network, Path::new(PROGRAM), &config("")).unwrap();
    browser.wait("document.getElementById('banner').hidden");
    browser.wait("document.querySelectorAll('[role=gridcell]').length === 4");
    gateway.stop().unwrap();
}
