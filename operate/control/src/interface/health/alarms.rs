//! Alarms: conditions that need an operator, with severity and start.
//!
//! The sentence identifies an alarm. An alarm holds from the first examination that finds it until
//! the first one that does not.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Severity of an alarm, in the words of RFC 8632.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    /// Packets, or records of them, are lost or will be soon.
    Critical,
    /// Nothing is lost yet.
    Warning,
}

impl Severity {
    const fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
        }
    }
}

/// A condition that needs an operator.
#[derive(Clone, Debug)]
pub(super) struct Alarm {
    pub(super) severity: Severity,
    /// One sentence without its full stop.
    pub(super) text: String,
}

impl Alarm {
    pub(super) fn critical(text: String) -> Self {
        Self { severity: Severity::Critical, text }
    }

    pub(super) fn warning(text: String) -> Self {
        Self { severity: Severity::Warning, text }
    }
}

/// The start of each active alarm.
#[derive(Debug, Default)]
pub(super) struct Alarms(Mutex<BTreeMap<String, SystemTime>>);

impl Alarms {
    /// Returns the alarms as objects with their start (`since`, seconds since 1970). Inactive
    /// alarms are forgotten unless the examination was incomplete (`keep`).
    pub(super) fn dated(&self, alarms: &[Alarm], keep: bool, now: SystemTime) -> Vec<Value> {
        let mut starts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !keep {
            starts.retain(|text, _| alarms.iter().any(|alarm| alarm.text == *text));
        }
        let object = |alarm: &Alarm| {
            let start = *starts.entry(alarm.text.clone()).or_insert(now);
            let since = start.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            json!({ "severity": alarm.severity.name(), "text": alarm.text, "since": since })
        };
        alarms.iter().map(object).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_alarm_keeps_its_start_until_it_is_over() {
        let (link, log) = (Alarm::critical("link".into()), Alarm::warning("log".into()));
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let alarms = Alarms::default();
        let starts = |found: &[Alarm], keep, seconds| -> Vec<f64> {
            let dated = alarms.dated(found, keep, at(seconds));
            dated.iter().map(|alarm| alarm["since"].as_f64().unwrap()).collect()
        };
        assert_eq!(starts(std::slice::from_ref(&link), false, 10), [10.0]);
        assert_eq!(starts(&[link.clone(), log.clone()], false, 20), [10.0, 20.0]);
        // The workers did not answer, so the link's state is unknown.
        assert_eq!(starts(std::slice::from_ref(&log), true, 30), [20.0]);
        assert_eq!(starts(&[link.clone(), log.clone()], false, 40), [10.0, 20.0]);
        assert_eq!(starts(&[log], false, 50), [20.0]);
        assert_eq!(starts(std::slice::from_ref(&link), false, 60), [60.0]);
        let dated = alarms.dated(&[link], false, at(70));
        assert_eq!(dated, [json!({ "severity": "critical", "text": "link", "since": 60.0 })]);
    }
}
