//! Requirements that no packet from outside can show, and the reasons.

/// Requirements with a reason of their own.
const REASONS: &[(&str, &str)] = &[
    (
        "rfc4787#REQ-7",
        "Whether addresses that the translator gets by itself conflict is settled where it does.",
    ),
    (
        "rfc4787#REQ-10a",
        "Which gateways for applications can be turned on is a matter of its settings.",
    ),
    ("rfc5382#REQ-4a", "Whether silence is the translator's policy cannot be seen in it."),
    ("rfc5508#REQ-9", "What the operator may forbid is a matter of its settings."),
    ("rfc5508#REQ-11", "Either is permitted."),
    ("rfc6888#REQ-1", "Settled by the requirements of the protocols' own RFCs."),
    ("rfc6888#REQ-1a", "Settled by the requirements of RFC 4787."),
    ("rfc6888#REQ-1b", "Settled by the requirements of RFC 5382."),
    ("rfc6888#REQ-1c", "Settled by the requirements of RFC 5508."),
    ("rfc6888#REQ-1d", "Settled by the requirements of RFC 5597."),
    ("rfc6888#REQ-3", "How external addresses can be configured is a matter of its settings."),
    ("rfc6888#REQ-8-restart", "Nothing is restarted during the tests."),
    ("rfc6888#REQ-10", "Management is a matter of its interfaces."),
    ("rfc6888#REQ-11c", "Notifications go elsewhere."),
    ("rfc6888#REQ-12", "Logs go elsewhere."),
    ("rfc6888#REQ-13", "Using up every port would take longer than it tells."),
    ("rfc6888#REQ-14", "Logs go elsewhere."),
    ("rfc7857#section-3", "Either is permitted."),
    ("rfc7857#section-4", "Using up an external address would take longer than it tells."),
    ("rfc7857#section-11", "Either is permitted."),
    ("rfc1812#section-4.3.3.5", "RFC 5508 section 7.5 has taken it back for translators."),
    ("rfc1812#section-4.3.3.9", "RFC 5508 section 7.4 has taken it back for translators."),
    ("rfc1812#section-4.3.3.10", "RFC 5508 section 7.6 has taken it back for translators."),
    ("rfc1812#section-5.3.13.4", "RFC 5508 section 7.3 has taken it back for translators."),
    (
        "rfc1812#section-4.3.2.7-source",
        "An error to an address that is no single host's does not come back to one.",
    ),
];

/// Names of these requirements.
#[cfg(test)]
pub(super) const NAMED: [&str; REASONS.len()] = {
    let mut names = [""; REASONS.len()];
    let mut at = 0;
    while at < REASONS.len() {
        names[at] = REASONS[at].0;
        at += 1;
    }
    names
};

/// Reason why a requirement has no test.
pub(crate) fn why_unseen(id: &str) -> &'static str {
    let known = REASONS.iter().find(|(name, _)| *name == id);
    known.map_or(
        "It is a matter of settings, or leaves a choice, or shows in no packet.",
        |(_, why)| why,
    )
}
