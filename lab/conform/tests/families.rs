//! The suite with a gateway that translates between the families, in simulated time.

use natgate_conform::Verdict::{Fail, NotTested, Pass};
use natgate_conform::{Options, Report, Simulated, run, surround};

/// Requirements that natgate deliberately meets in another way: the lists in `requirements/` have
/// the reasons.
const EXCEPTIONS: [&str; 4] = [
    "rfc6146#section-3.4-zero-reassemble",
    "rfc6146#section-3.4-other-ipv6",
    "rfc6146#section-3.4-other-ipv6-error",
    "rfc6146#section-3.4-other-ipv4-error",
];

fn report(inside_mtu: u16, outside_mtu: u16) -> Report {
    let text = format!(
        "[inside]\ndevice = \"a\"\naddress = \"10.77.0.1/16\"\n\
         address6 = \"2001:db8:77::1/64\"\nmtu = {inside_mtu}\n\
         [outside]\ndevice = \"b\"\naddress = \"198.51.100.1/24\"\nmtu = {outside_mtu}\n\
         [[pool]]\naddresses = [\"198.51.100.2-198.51.100.5\"]\nports = \"1-65535\"\n\
         [nat64]\nsubscriber_length = 128\n\
         [siit]\nprefixes = [\"2001:db8:6464::/96\"]\n\
         [[siit.map]]\nipv6 = \"2001:db8:77::a4d:0/120\"\nipv4 = \"192.0.2.0/24\"\n"
    );
    let mut settings = natgate_control::config::parse(&text, "test").expect("it is good");
    let setup = surround(&mut settings).expect("room for hosts");
    let only = vec!["rfc6146".into(), "rfc7915".into(), "rfc7757".into()];
    let bench = Simulated::new(&settings, [7; 32]).expect("it is good");
    let options = Options { only, ..Options::default() };
    run(Box::new(bench), setup, options, &mut |_| {}).expect("packets pass")
}

#[test]
fn between_the_families_natgate_fails_only_what_it_deliberately_does_otherwise() {
    for (inside, outside) in [(1500, 1400), (1400, 1500)] {
        let report = report(inside, outside);
        for item in &report.items {
            let excused = EXCEPTIONS.contains(&&*item.id);
            let (id, why) = (&item.id, &item.why);
            assert!(item.verdict != Fail || excused, "{id}: {why}\n{:#?}", item.evidence);
            assert_ne!(item.verdict, NotTested, "{id}: {why}");
        }
        let passed = report.items.iter().filter(|item| item.verdict == Pass).count();
        assert!(passed > 90, "only {passed} passed");
    }
}
