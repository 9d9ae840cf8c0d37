//! The page in a headless Chromium, as somebody uses it: with a mouse, with a keyboard, on a phone,
//! in light and in dark, while the gateway goes and comes back. The gateway's answers are made up
//! here.

#[path = "browser/gateway.rs"]
mod gateway;

use gateway::Gateway;
use natgate_browser::Chromium;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A page that shows figures, in a browser of this size.
fn opened(name: &str, rate: u64, size: (u32, u32)) -> (Gateway, Chromium) {
    let gateway = Gateway::start(rate);
    let mut browser = Chromium::start(name);
    browser.size(size.0, size.1, size.0 < 500);
    browser.open(&gateway.url());
    browser.wait("document.querySelectorAll('#workers tbody tr').length === 2");
    browser.wait("document.querySelectorAll('[role=gridcell]').length > 0");
    browser.wait("document.querySelectorAll('#events li').length > 1");
    browser.wait_text("[data-under=outbound]", "pps");
    (gateway, browser)
}

const DESK: (u32, u32) = (1320, 900);
const PHONE: (u32, u32) = (360, 740);

#[test]
fn numbers_come_and_change_with_the_traffic() {
    let (gateway, mut browser) = opened("numbers", 0, DESK);
    assert_eq!(browser.text("[data-tile=outbound]"), "0 bit/s");
    assert_eq!(browser.text("[data-note=drops]"), "Nothing has been dropped.");
    gateway.set_rate(2_000_000);
    browser.wait_text("[data-tile=outbound]", "Gbit/s");
    browser.wait_text("[data-under=outbound]", "Mpps");
    browser.wait_text("#drops", "port_quota");
    let meaning = natgate_engine::DropReason::PortQuota.text();
    browser.wait_text("#drops", meaning);
    let shown =
        browser.value("[...document.querySelectorAll('#drops code')].map((c) => c.textContent)");
    assert_eq!(shown, json!(["port_quota", "no_mapping", "filtered", "mapping_rate"]));
    let folded = browser.value("document.querySelectorAll('#never-list dt').length");
    assert_eq!(folded, natgate_engine::DropReason::ALL.len() - 4);
    browser.wait(
        "document.querySelector('path.line.outbound').getAttribute('d').split('L').length > 3",
    );
    let text = browser.text("#state-text");
    assert!(text.starts_with("running for 3 d"), "{text}");
    assert_eq!(browser.text("[data-tile=mappings]"), "245 k");
    // Reserved ports count on neither side: the first address of "business" has none in use.
    let first = "document.querySelector('[aria-labelledby=pool-1] [data-place=\"0\"]').ariaLabel";
    let label = browser.value(first);
    let label = label.as_str().unwrap();
    assert!(label.contains("TCP ports 0 of 64\u{202f}000"), "{label}");
    browser.wait_text("#subscribers tbody tr", "100.64.0.5");
    browser.wait_text("#events", "block assigned");

    // The other unit, by the mouse.
    browser.click("[name=unit][value=bits]");
    browser.wait_text("#chart .axis", "Gbit/s");
    assert_eq!(browser.complaints(&gateway.url()), Vec::<String>::new());
}

#[test]
fn the_strip_of_health_says_what_is_wrong_and_since_when() {
    let (mut gateway, mut browser) = opened("health", 1000, DESK);
    browser.wait_text("#health-level", "All is well");
    assert_eq!(browser.text("#health-host"), "nat1.example.net · natgate 0.1.0");
    assert!(browser.value("document.title").as_str().unwrap().contains("nat1.example.net"));
    let part = |name: &str| format!("[data-part={name}]");
    for (name, text) in [
        ("links", "Links 2 of 2 up"),
        ("next_hops", "Next hops 1 of 1 resolved"),
        ("logs", "Event logs 4 of 4 connected"),
        ("routes", "Routes 4 announced"),
        ("workers", "Workers 2 of 2 alive"),
    ] {
        assert_eq!(browser.text(&part(name)), format!("\u{2713}{text}"));
    }
    assert_eq!(browser.value("document.getElementById('health-alarms').hidden"), true);

    gateway.set_ill(true);
    browser.wait_text("#health-level", "Needs attention: 3 problems");
    for (name, text) in [
        ("links", "\u{2717}Links 1 of 2 up, 1 down"),
        ("next_hops", "\u{2713}Next hops 1 of 1 resolved"),
        ("logs", "\u{2717}Event logs 2 of 4 connected, 1 failed, 1 lagging"),
    ] {
        assert_eq!(browser.text(&part(name)), text);
    }
    let alarms = browser.text("#health-alarms");
    for text in [
        "\u{2717}Critical: link ens2f1 (inside) is down since ",
        "\u{2717}Critical: log syslog tcp 192.0.2.9:6514 cannot be written since ",
        "!Warning: log ipfix udp 192.0.2.9:4739 is lagging since ",
        "2 h 5 min ago",
    ] {
        assert!(alarms.contains(text), "no {text:?} in {alarms}");
    }
    // No level is told by colour alone: each has a symbol and a word.
    let bare = browser.value(
        "[...document.querySelectorAll('#health [data-level]')].filter((one) => \
         one.querySelector('.symbol').textContent === '' || one.querySelector('.text').textContent \
         === '').length",
    );
    assert_eq!(bare, 0);
    assert_eq!(browser.text("#health-symbol"), "\u{2717}");
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        check_contrast(&mut browser, scheme);
    }

    gateway.set_ill(false);
    browser.wait_text("#health-level", "All is well");
    gateway.go();
    browser.wait_text("#health-level", "Not known: natgate does not answer");
    gateway.come();
    browser.wait_text("#health-level", "All is well");
}

#[test]
fn a_pair_shows_its_link_its_slices_and_what_is_wrong() {
    let (gateway, mut browser) = opened("pair", 1000, DESK);
    assert_eq!(browser.value("document.getElementById('pair').hidden"), true);
    gateway.set_pair();
    browser.wait_text("#pair-link", "Partner b: its process has ended. Ports that rest: 12.");
    browser.wait_text("#slices tbody tr", "203.0.113.0/25");
    assert_eq!(browser.value("document.querySelectorAll('#slices tbody tr').length"), 2);
    browser.wait_text("#slices tbody tr:last-child", "not known");
    assert_eq!(browser.text("#pair-faults"), "\u{2717}slice 1: its copy is not complete");
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        check_contrast(&mut browser, scheme);
    }
    assert_eq!(browser.complaints(&gateway.url()), Vec::<String>::new());
}

#[test]
fn search_by_click_and_by_keyboard() {
    let (gateway, mut browser) = opened("search", 1000, DESK);
    // By keyboard: the key leads into the box, Enter asks, Escape closes and leads back.
    browser.press("/");
    assert_eq!(browser.value("document.activeElement.id"), "query");
    browser.write("203.0.113.97:40000");
    browser.press("Enter");
    browser.wait_text("#answer-body", "203.0.113.97:40000 is 100.64.0.5");
    browser.wait_text("#answer-body table", "100.64.0.5:4000");
    browser.press("Escape");
    assert_eq!(browser.value("document.getElementById('answer').hidden"), true);
    assert_eq!(browser.value("document.activeElement.id"), "query");

    // By the mouse: a subscriber in the list.
    browser.click("#subscribers button");
    browser.wait_text("#answer-body", "100.64.0.5 is a subscriber's address. It has 2 mappings.");
    browser.click("#answer-close");
    assert_eq!(browser.value("document.getElementById('answer').hidden"), true);

    // Every other question has an answer in words.
    for (question, answer) in [
        ("100.64.0.5:4000", "It has 1 mapping."),
        ("203.0.113.97", "203.0.113.97 is an external address. It has 2 mappings."),
        ("203.0.113.9:1", "Nobody has 203.0.113.9:1 now"),
        ("10.0.0.300", "“10.0.0.300” is no IPv4 address; write one such as"),
        ("1.2.3.4:70000", "“70000” is no port; write a number up to 65535"),
        ("203.0.113.97 40000 UDP", "203.0.113.97:40000 is 100.64.0.5"),
        ("203.0.113.97:40000 tcp", "Nobody has 203.0.113.97:40000 by tcp now"),
        ("203.0.113.50:2100", "203.0.113.50:2100 is 100.64.0.21"),
        ("203.0.113.50:2100", "No mapping has the port now. It is in a block of 100.64.0.21:"),
        ("203.0.113.50:2100", "203.0.113.50:2048-2559"),
        ("203.0.113.50:2101", "udp, 42 s more"),
        ("203.0.113.51:2100", "203.0.113.51:2100: nobody has it now; it is in hold-down for udp"),
        (
            "203.0.113.50",
            "203.0.113.50 is an external address. No mapping has it now. It has 1 block",
        ),
        (
            "100.64.0.21",
            "100.64.0.21 is a subscriber's address. It has no mapping now, and 1 block",
        ),
        ("100.64.0.21:4000", "It has no mapping by that port now, and 1 block"),
        ("2001:DB8:1:0::5", "2001:db8:1::5 is a subscriber. It has 2 mappings."),
        ("[2001:db8:1::5]:4000", "2001:db8:1::5 is a subscriber. It has 1 mapping."),
        ("[2001:db8:1::5] 14000 udp", "203.0.113.98:2"),
        ("2001:db8:1::5 tcp", "No host of 2001:db8:1::5 has a mapping by tcp now"),
        ("2001:db8:b4::/64", "2001:db8:b4::/64 is a subscriber. It has 2 mappings."),
        ("2001:db8:b4::/64", "192.168.1.9:4001"),
        ("2001:db8:b4::/64 4000", "[2001:db8:b4::7]:4000"),
        ("2001:db8:5::5", "No host of 2001:db8:5::5"),
        ("2001:db8::/129", "“2001:db8::/129” is no IPv6 address; write one such as"),
        ("2001:db8:::5", "“2001:db8:::5” is no IPv6 address"),
        ("[2001:db8::g]:80", "“2001:db8::g” is no IPv6 address"),
        ("[2001:db8::5]:70000", "“70000” is no port"),
        ("[2001:db8::5]:80 at 1772368200", "Who had it then is known by an external endpoint"),
        ("<b>x</b>", "“<b>x</b>” is no IPv4 address"),
        ("", "Nothing is typed; write one such as"),
    ] {
        browser.value(&format!("document.getElementById('query').value = {question:?}"));
        browser.click("#search button");
        browser.wait_text("#answer-body", answer);
    }
    browser.value("document.getElementById('query').value = '203.0.113.97:40000'");
    browser.value("document.getElementById('protocol').value = 'tcp'");
    browser.click("#search button");
    browser.wait_text("#answer-body", "Nobody has 203.0.113.97:40000 by tcp now");

    // With a time: the subscriber that had the endpoint then.
    browser.value("document.getElementById('protocol').value = ''");
    for (question, answer) in [
        ("203.0.113.97:40000 2026-03-01T12:30:00Z", "203.0.113.97:40000 was 100.64.0.9"),
        ("203.0.113.97 40000 udp at 1772368200.5", "100.64.0.9:5000"),
        ("203.0.113.97:40000 at 1772368200", "2026-03-01T12:29:50.125Z"),
        ("203.0.113.97:40000 at 1772368200", "as far as the log goes"),
        ("203.0.113.97:40000 at 1772368200", "12 events are missing in the log since"),
        ("198.51.100.8:2300 17 1772368200", "198.51.100.8:2300 was 100.64.0.7"),
        ("198.51.100.8:2300 17 1772368200", "The log records the configuration of that time"),
        ("203.0.113.9:1 at 1772368200", "The log names nobody who had it then."),
        ("203.0.113.9:1 at yesterday", "write a time such as 2026-03-01T12:30:00Z."),
        ("203.0.113.9:1 at", "A time is to follow “at”"),
        ("203.0.113.9 udp at 1772368200", "write the port as well"),
    ] {
        browser.value(&format!("document.getElementById('query').value = {question:?}"));
        browser.click("#search button");
        browser.wait_text("#answer-body", answer);
    }

    // A link to a question asks it.
    browser.open("about:blank");
    browser.open(&format!("{}#who=203.0.113.97:40001", gateway.url()));
    browser.wait_text("#answer-body", "203.0.113.97:40001 is 100.64.0.5");
    // To the browser, requests fail if nobody has an endpoint, and if a list needs a realm.
    let expected = ["/v1/who?", "/v1/mappings?subscriber=2001%3Adb8%3Ab4"];
    let complaints = browser.complaints(&gateway.url());
    let is_other = |text: &&String| !expected.iter().any(|path| text.contains(path));
    let others: Vec<_> = complaints.iter().filter(is_other).collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn the_heat_map_by_keyboard() {
    let (gateway, mut browser) = opened("map", 1000, DESK);
    assert_eq!(
        browser
            .value("document.querySelectorAll('[aria-labelledby=pool-0] [role=gridcell]').length"),
        256
    );
    // One cell of a map can be reached by Tab; arrows go on from there.
    let stops = "document.querySelectorAll('[aria-labelledby=pool-0] \
                 [role=gridcell][tabindex=\"0\"]').length";
    assert_eq!(browser.value(stops), 1);
    browser.value("document.querySelector('[aria-labelledby=pool-0] [role=gridcell]').focus()");
    assert!(browser.text(".pick").starts_with("203.0.113.0: TCP ports"));
    for (key, address) in [
        ("ArrowRight", "203.0.113.1:"),
        ("ArrowDown", "203.0.113.33:"),
        ("ArrowDown", "203.0.113.65:"),
        ("ArrowDown", "203.0.113.97:"),
    ] {
        browser.press(key);
        assert!(browser.text(".pick").starts_with(address), "{}", browser.text(".pick"));
    }
    let label = browser.value("document.activeElement.getAttribute('aria-label')");
    assert_eq!(
        label,
        "203.0.113.97: TCP ports 64\u{202f}382 of 64\u{202f}512, UDP ports 32\u{202f}191 of \
         64\u{202f}512, ICMP ids 1\u{202f}548 of 64\u{202f}512, port blocks 125 of 126, \
         subscribers 49"
    );
    assert_eq!(browser.value("document.activeElement.dataset.step"), "5");
    // The address stays where the focus is when the next figures come.
    browser.value(
        "new Promise((done) => { window.seen = 0; new MutationObserver(() => done()) \
         .observe(document.querySelector('#workers tbody'), { subtree: true, childList: true, \
         characterData: true }); })",
    );
    assert_eq!(browser.value("document.activeElement.getAttribute('aria-label')"), label);
    browser.press("Enter");
    browser.wait_text("#answer-body", "203.0.113.97 is an external address. It has 2 mappings.");
    browser.press("Escape");
    assert_eq!(browser.value("document.activeElement.getAttribute('aria-label')"), label);
    browser.press("End");
    assert!(browser.text(".pick").starts_with("203.0.113.255:"));
    browser.press("ArrowDown");
    assert!(browser.text(".pick").starts_with("203.0.113.255:"));
    // Another measure, another colour.
    browser.value(
        "{ const s = document.getElementById('measure'); s.value = 'icmp'; \
        s.dispatchEvent(new Event('change', { bubbles: true })); }",
    );
    let step =
        "document.querySelector('[aria-labelledby=pool-0] [data-place=\"97\"]').dataset.step";
    assert_eq!(browser.value(step), "1");
    assert_eq!(browser.complaints(&gateway.url()), Vec::<String>::new());
}

#[test]
fn a_cell_of_a_large_pool_opens() {
    let gateway = Gateway::large();
    let mut browser = Chromium::start("large");
    browser.size(DESK.0, DESK.1, false);
    browser.open(&gateway.url());
    let cell = |place: u32| format!("[aria-labelledby=pool-2] [data-place=\"{place}\"]");
    browser.wait(&format!("document.querySelector({:?})", cell(511)));
    let count = "document.querySelectorAll('[aria-labelledby=pool-2] [role=gridcell]').length";
    assert_eq!(browser.value(count), 512);
    let head = browser.text("[aria-labelledby=pool-2] .extent");
    assert_eq!(head, "2\u{202f}048 addresses, 4 to a cell");
    let step = format!("document.querySelector({:?}).dataset.step", cell(256));
    assert_eq!(browser.value(&step), "3");
    browser.click(&cell(256));
    assert_eq!(browser.value(count), 4);
    let label = "document.activeElement.getAttribute('aria-label')";
    assert!(browser.value(label).as_str().unwrap().starts_with("198.18.4.0: "));
    browser.press("ArrowRight");
    browser.press("ArrowRight");
    let told = browser.value(label);
    assert_eq!(
        told,
        "198.18.4.2: TCP ports 38\u{202f}707 of 64\u{202f}512, \
        UDP ports 19\u{202f}353 of 64\u{202f}512, ICMP ids 967 of 64\u{202f}512, subscribers 30"
    );
    browser.click("[aria-labelledby=pool-2] .title button");
    assert_eq!(browser.value(count), 512);
    assert_eq!(browser.complaints(&gateway.url()), Vec::<String>::new());
}

#[test]
fn a_keyboard_alone_suffices() {
    let (gateway, mut browser) = opened("keyboard", 1000, DESK);
    browser.press("Tab");
    assert_eq!(browser.text(":focus"), "Skip to the figures");
    browser.press("Enter");
    assert_eq!(browser.value("document.activeElement.id"), "main");
    browser.press("Tab");
    assert_eq!(browser.value("document.activeElement.name"), "unit");
    browser.press("ArrowRight");
    assert_eq!(browser.value("document.activeElement.value"), "bits");
    browser.press("Tab");
    assert_eq!(browser.value("document.activeElement.getAttribute('role')"), "slider");
    browser.wait(
        "document.querySelectorAll('path.line.outbound')[0].getAttribute('d').split('L').length \
         > 3",
    );
    browser.press("ArrowLeft");
    let told = browser.value("document.activeElement.getAttribute('aria-valuetext')");
    let told = told.as_str().unwrap();
    assert!(told.contains("Outbound") && told.contains("bit/s"), "{told}");
    assert!(browser.text(".when").starts_with("at "));
    browser.press("End");
    assert_eq!(browser.text(".when"), "now");

    // From the beginning to the end every stop is seen, and its focus, too.
    browser.open(&gateway.url());
    browser.wait("document.querySelectorAll('[role=gridcell]').length > 0");
    let mut stops = Vec::new();
    for _ in 0..60 {
        browser.press("Tab");
        let stop = browser.value(FOCUS);
        if stop.is_null() {
            break;
        }
        assert_eq!(stop["outline"], true, "{stop}");
        stops.push(stop["name"].as_str().unwrap().to_owned());
    }
    for wanted in [
        "query",
        "protocol",
        "theme",
        "unit",
        "slider",
        "never-summary",
        "measure",
        "gridcell",
        "events-hold",
    ] {
        assert!(stops.iter().any(|stop| stop == wanted), "{wanted} is not among {stops:?}");
    }
    assert_eq!(browser.complaints(&gateway.url()), Vec::<String>::new());
}

/// The focused element, and true if its focus is visible: an outline around it or around its label.
const FOCUS: &str = "(() => { const at = document.activeElement; \
    if (at === document.body) return null; const lines = (one) => one && \
      getComputedStyle(one).outlineStyle !== 'none' && \
    parseFloat(getComputedStyle(one).outlineWidth) > 0; \
      return { name: at.id || at.name || at.getAttribute('role') || at.localName, \
      outline: Boolean(lines(at) || lines(at.nextElementSibling) || at.classList.contains('skip')) \
      }; })()";

#[test]
fn light_dark_and_as_the_system_has_it() {
    let (gateway, mut browser) = opened("theme", 900_000, DESK);
    let ground = "getComputedStyle(document.body).backgroundColor";
    browser.prefer("light");
    let light = browser.value(ground);
    check_contrast(&mut browser, "light");
    browser.prefer("dark");
    let dark = browser.value(ground);
    check_contrast(&mut browser, "dark");
    assert_ne!(light, dark);
    // The switch has its way against the system, and is remembered.
    browser.click("[name=theme][value=light]");
    assert_eq!(browser.value(ground), light);
    browser.open(&gateway.url());
    assert_eq!(browser.value(ground), light);
    assert_eq!(browser.value("document.querySelector('[name=theme]:checked').value"), "light");
    browser.press("/");
    browser.value("document.querySelector('[name=theme]:checked').focus()");
    browser.press("ArrowRight");
    assert_eq!(browser.value(ground), dark);
    browser.prefer("light");
    assert_eq!(browser.value(ground), dark);
    browser.click("[name=theme][value=auto]");
    assert_eq!(browser.value(ground), light);
    assert_eq!(browser.complaints(&gateway.url()), Vec::<String>::new());
}

#[test]
fn on_a_phone() {
    let (gateway, mut browser) = opened("phone", 900_000, PHONE);
    gateway.set_ill(true);
    browser.wait_text("#health-level", "3 problems");
    browser.value("document.querySelector('#never').open = true");
    browser.value("document.getElementById('query').value = '203.0.113.97:40000'");
    browser.click("#search button");
    browser.wait_text("#answer-body table", "100.64.0.5:4000");
    for width in [360, 412, 768, 1024] {
        browser.size(width, 740, true);
        browser.wait(&format!("innerWidth === {width}"));
        let wide = browser.value("document.documentElement.scrollWidth");
        assert_eq!(wide, width);
        // Nothing is cut off but what scrolls by itself.
        let cut = browser.value(
            "[...document.body.querySelectorAll('*')].filter((one) => \
             one.getClientRects().length > 0 && one.getBoundingClientRect().right > innerWidth + 1 \
             && !one.closest('.wide') && !one.closest('.unseen')).map((one) => \
             one.outerHTML.slice(0, 90))",
        );
        assert_eq!(cut, json!([]), "at {width}");
    }
    browser.size(PHONE.0, PHONE.1, true);
    check_contrast(&mut browser, "phone");
    assert_eq!(browser.complaints(&gateway.url()), Vec::<String>::new());
}

#[test]
fn the_gateway_goes_and_comes_back() {
    let (mut gateway, mut browser) = opened("gone", 500_000, DESK);
    browser.wait_text("#drops", "port_quota");
    gateway.go();
    browser.wait("!document.getElementById('banner').hidden");
    let text = browser.text("#banner");
    assert!(text.starts_with("natgate has not answered since "), "{text}");
    assert!(text.contains("goes on by itself") && text.contains("Is natgate running?"), "{text}");
    assert_eq!(browser.text("#state-text"), "no answer");
    // The figures from before stay, and a search says why there is no answer.
    assert!(browser.text("#drops").contains("port_quota"));
    browser.press("/");
    browser.write("203.0.113.97:40000");
    browser.press("Enter");
    browser.wait_text("#answer-body", "natgate does not answer; try again when it is back.");
    check_contrast(&mut browser, "gone");
    browser.picture("gone", false);

    let events = browser.value("document.querySelectorAll('#events li').length").as_u64();
    gateway.come();
    browser.wait("document.getElementById('banner').hidden");
    browser.wait_text("#state-text", "running");
    browser.press("Enter");
    browser.wait_text("#answer-body", "203.0.113.97:40000 is 100.64.0.5");
    let more = format!("document.querySelectorAll('#events li').length > {}", events.unwrap());
    browser.wait(&more);
    // Failed requests are all that stands on the console.
    let complaints = browser.complaints(&gateway.url());
    let others: Vec<_> = complaints.iter().filter(|text| !text.contains("\"network\"")).collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn every_control_has_a_name() {
    let (_gateway, mut browser) = opened("names", 1000, DESK);
    browser.click("#subscribers button");
    browser.wait_text("#answer-body", "It has 2 mappings.");
    let tree = browser.call("Accessibility.getFullAXTree", json!({}));
    let nodes = tree["nodes"].as_array().expect("nodes");
    let roles = [
        "button",
        "combobox",
        "grid",
        "gridcell",
        "link",
        "meter",
        "radio",
        "searchbox",
        "slider",
        "table",
        "textbox",
        "region",
        "article",
    ];
    let mut seen = BTreeSet::new();
    for node in nodes.iter().filter(|node| node["ignored"] == false) {
        let role = node["role"]["value"].as_str().unwrap_or_default();
        if let Some(role) = roles.iter().find(|known| **known == role) {
            seen.insert(*role);
            let name = node["name"]["value"].as_str().unwrap_or_default();
            assert!(!name.trim().is_empty(), "{node}");
        }
    }
    for role in
        ["button", "combobox", "gridcell", "link", "meter", "radio", "searchbox", "slider", "table"]
    {
        assert!(seen.contains(role), "{role} is not among {seen:?}");
    }
    let landmarks = browser.value(
        "['main', 'header', 'footer', '[role=search]', 'h1', 'html[lang]'].filter((one) => \
         document.querySelectorAll(one).length !== 1)",
    );
    assert_eq!(landmarks, json!([]));
    let doubled = browser.value(
        "(() => { const all = [...document.querySelectorAll('[id]')].map((one) => one.id); \
         return all.filter((id, place) => all.indexOf(id) !== place); })()",
    );
    assert_eq!(doubled, json!([]));
}

#[test]
fn pictures() {
    let (gateway, mut browser) = opened("pictures", 900_000, DESK);
    browser.wait(
        "document.querySelector('path.line.outbound').getAttribute('d').split('L').length > 20",
    );
    // The pictures of docs/page.md.
    browser.prefer("light");
    browser.picture("page-light", false);
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        let picture = browser.picture(scheme, true);
        assert!(picture.starts_with(b"\x89PNG") && picture.len() > 20_000, "{}", picture.len());
    }
    browser.size(PHONE.0, PHONE.1, true);
    browser.wait("innerWidth === 360");
    browser.picture("page-phone", false);
    browser.picture("phone", true);
    gateway.set_ill(true);
    browser.wait_text("#health-level", "3 problems");
    for (name, size) in [("desk", (1280, 800)), ("phone", (390, 844))] {
        browser.size(size.0, size.1, size.0 < 500);
        browser.wait(&format!("innerWidth === {}", size.0));
        for scheme in ["light", "dark"] {
            browser.prefer(scheme);
            browser.picture(&format!("health-{name}-{scheme}"), false);
        }
    }
    assert_eq!(browser.complaints(&gateway.url()), Vec::<String>::new());
}

/// Every text that is seen has the contrast that WCAG 2 asks for at level AA (1.4.3).
fn check_contrast(browser: &mut Chromium, which: &str) {
    let poor = browser.value(CONTRAST);
    assert_eq!(poor["poor"], json!([]), "{which}");
    assert!(poor["looked"].as_u64().unwrap_or_default() > 50, "{which}: {poor}");
}

const CONTRAST: &str = include_str!("browser/contrast.js");

/// Headers and files, without a browser.
mod plain {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn ask(gateway: &Gateway, request: &str) -> String {
        let mut stream = TcpStream::connect(gateway.address).expect("it listens");
        let request = format!("{request}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8(answer).expect("text")
    }

    fn get(gateway: &Gateway, path: &str) -> String {
        ask(gateway, &format!("GET {path} HTTP/1.1\r\nHost: {}\r\n", gateway.address))
    }

    #[test]
    fn answers_have_the_headers_that_keep_others_out() {
        let gateway = Gateway::start(0);
        for path in
            ["/", "/main.js", "/drop-reasons.json", "/v1/counters", "/nothing", "/v1/nothing"]
        {
            let answer = get(&gateway, path);
            let head = answer.split("\r\n\r\n").next().unwrap().to_lowercase();
            for wanted in [
                "content-security-policy: default-src 'none'; script-src 'self';",
                "frame-ancestors 'none'",
                "x-content-type-options: nosniff",
                "referrer-policy: no-referrer",
                "cross-origin-resource-policy: same-origin",
            ] {
                assert!(head.contains(wanted), "{path}: {wanted:?} is not in {head}");
            }
            let keep = if path.starts_with("/v1/") { "cache-control: no-store" } else { "\r\n" };
            assert!(head.contains(keep), "{path}: {head}");
        }
    }

    #[test]
    fn what_is_refused_is_refused_in_words() {
        let gateway = Gateway::start(0);
        let rebound = ask(&gateway, "GET /v1/counters HTTP/1.1\r\nHost: evil.example:9465\r\n");
        assert!(rebound.starts_with("HTTP/1.1 421 "), "{rebound}");
        assert!(
            rebound.contains("\"evil.example\" is no name of this page; ask for it by its address")
        );
        let own = format!("Host: {}\r\n", gateway.address);
        let changed = ask(&gateway, &format!("POST /v1/clear HTTP/1.1\r\n{own}"));
        assert!(changed.starts_with("HTTP/1.1 403 ") && changed.contains("use the control socket"));
        let foreign = format!("GET /v1/who HTTP/1.1\r\n{own}Sec-Fetch-Site: cross-site\r\n");
        assert!(ask(&gateway, &foreign).starts_with("HTTP/1.1 403 "));
        assert!(get(&gateway, "/nothing").contains("there is no /nothing here; the page is at /"));
        assert!(get(&gateway, "/v1/nothing").contains("docs/control.md has the list"));
        assert!(get(&gateway, "/%00").starts_with("HTTP/1.1 404 "));
    }

    /// The page works where there is no network: no file names another origin, and none has a
    /// script or a style in an attribute, which the policy would not let run.
    #[test]
    fn files_ask_for_nothing_from_elsewhere() {
        let gateway = Gateway::start(0);
        let page = get(&gateway, "/");
        let mut paths: Vec<String> = vec!["/".into()];
        for start in page.match_indices("=\"/").map(|(at, _)| at + 2) {
            paths.push(page[start..].split('"').next().unwrap().to_owned());
        }
        for name in ["api", "chart", "format", "health", "heatmap", "panels", "search"] {
            paths.push(format!("/{name}.js"));
        }
        let mut size = 0;
        for path in &paths {
            let file = get(&gateway, path);
            assert!(file.starts_with("HTTP/1.1 200 "), "{path}: {file}");
            size += file.len();
            let body = file.replace("http://www.w3.org/2000/svg", "");
            for never in
                ["http:", "https:", "//cdn", "@import", " style=", " onclick=", "<script>", "eval("]
            {
                assert!(!body.contains(never), "{path} has {never}");
            }
        }
        assert!(paths.len() >= 12 && size < 120_000, "{size} bytes in {paths:?}");
    }

    #[test]
    fn reasons_are_the_engines() {
        let gateway = Gateway::start(0);
        let answer = get(&gateway, "/drop-reasons.json");
        let body = answer.split("\r\n\r\n").nth(1).unwrap();
        let texts: Value = serde_json::from_str(body).expect("JSON");
        for reason in natgate_engine::DropReason::ALL {
            assert_eq!(texts[reason.name()], reason.text());
        }
    }
}
