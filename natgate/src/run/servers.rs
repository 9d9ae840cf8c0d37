//! Messages about servers that go down or come up.

use natgate_gateway::ServerChange;

/// A change as a sentence. `realm`: the realm's name, if the gateway has several.
pub(super) fn line(change: &ServerChange, realm: Option<&str>) -> String {
    let ServerChange { external, server, failure, is_last, .. } = change;
    let realm = realm.map(|realm| format!(" (realm {realm})")).unwrap_or_default();
    match failure {
        None => format!("server {server}{realm} of {external} is up"),
        Some(failure) if *is_last => format!(
            "warning: server {server}{realm} of {external} is down: {failure}; no server of \
             {external} is up, so new sessions are refused"
        ),
        Some(failure) => {
            format!("warning: server {server}{realm} of {external} is down: {failure}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_engine::Timestamp;
    use natgate_gateway::CheckFailure;

    #[test]
    fn a_line_says_what_happened_to_which_server() {
        let change = ServerChange {
            time: Timestamp(0),
            realm: 1,
            external: "203.0.113.1:80".parse().unwrap(),
            server: "10.0.0.5:8080".parse().unwrap(),
            failure: Some(CheckFailure::Refused),
            is_last: false,
        };
        assert_eq!(
            line(&change, Some("blue")),
            "warning: server 10.0.0.5:8080 (realm blue) of 203.0.113.1:80 is down: connection \
             refused"
        );
        let last = ServerChange { is_last: true, ..change };
        assert!(line(&last, None).ends_with("is up, so new sessions are refused"));
        let up = ServerChange { failure: None, ..change };
        assert_eq!(line(&up, None), "server 10.0.0.5:8080 of 203.0.113.1:80 is up");
    }
}
