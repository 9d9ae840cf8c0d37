//! Health of a pair, as one of its nodes knows it: the partner, and the slices.

use super::alarms::Alarm;
use natgate_gateway::fleet::{FleetStatus, SliceStatus};
use serde_json::{Value, json};

/// Most slices that an alarm names; of more it tells the number.
const MOST_NAMED: usize = 4;

/// Returns the state of the pair. A slice that rests or moves raises no alarm: both end by
/// themselves.
pub(super) fn pair(status: &FleetStatus, alarms: &mut Vec<Alarm>) -> Value {
    let FleetStatus { node, partner, slices, .. } = status;
    let numbers = |is_so: &dyn Fn(&SliceStatus) -> bool| -> Vec<usize> {
        (0..).zip(slices).filter(|(_, slice)| is_so(slice)).map(|(number, _)| number).collect()
    };
    let told = |problem: String| format!("{problem}; `natgate fleet status` tells more");
    let state = match status.link.connected {
        Some(_) => "connected",
        None if status.has_partner_ended => "ended",
        None => "away",
    };
    let absence = match state {
        "ended" => Some(format!("the process of node {partner} has ended")),
        "away" => Some(format!("node {partner} is not heard")),
        _ => None,
    };
    let owned = numbers(&|slice| slice.role == "owner");
    let unowned = numbers(&|slice| slice.owner.is_none());
    // New mappings find no port here, or no node may have the slice.
    let is_critical =
        !owned.is_empty() && !slices.iter().any(|slice| slice.assigns) || !unowned.is_empty();
    alarms.extend(absence.as_ref().map(|absence| match is_critical {
        true => Alarm::critical(told(absence.clone())),
        false => Alarm::warning(told(absence.clone())),
    }));
    let disputed = numbers(&|slice| slice.is_disputed);
    alarms.extend(named(&disputed).map(|it| Alarm::critical(told(it + " two owners"))));
    // Without the partner, copies get old, and a node that has started knows no owner.
    if absence.is_none() {
        alarms.extend(named(&unowned).map(|it| Alarm::critical(told(it + " no known owner"))));
        let incomplete = numbers(&|slice| {
            let is_other = slice.is_disputed || slice.owner.is_none() || slice.only_moves();
            !is_other && slice.fault().is_some()
        });
        alarms.extend(named(&incomplete).map(|it| Alarm::warning(told(it + " no complete copy"))));
    }
    let resting = (0..).zip(slices).filter_map(|(number, slice): (usize, _)| {
        Some(json!({ "slice": number, "rests_s": slice.rests?.as_secs_f64() }))
    });
    json!({
        "node": node,
        "partner": partner,
        "state": state,
        "owned": owned,
        "unowned": unowned,
        "resting": resting.collect::<Vec<_>>(),
    })
}

/// Some slices, with the verb. `None`: there is none.
fn named(slices: &[usize]) -> Option<String> {
    let numbers: Vec<String> = slices.iter().map(ToString::to_string).collect();
    match slices {
        [] => None,
        [one] => Some(format!("slice {one} has")),
        some if some.len() <= MOST_NAMED => Some(format!("slices {} have", numbers.join(", "))),
        many => Some(format!("{} slices have", many.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::alarms::Severity;
    use super::*;
    use natgate_gateway::fleet::{LinkStatus, Refusal};
    use std::time::Duration;

    fn slice(owner: &str, assigns: bool) -> SliceStatus {
        SliceStatus {
            owner: Some(owner.into()),
            role: if owner == "a" { "owner" } else { "partner" },
            assigns,
            is_complete: true,
            age: Some(Duration::from_secs(1)),
            ..SliceStatus::default()
        }
    }

    /// Node a, with its slices.
    fn node(slices: Vec<SliceStatus>) -> FleetStatus {
        let connected = Some(Duration::from_secs(9));
        FleetStatus {
            node: "a".into(),
            partner: "b".into(),
            link: LinkStatus { connected, ..LinkStatus::default() },
            slices,
            ..FleetStatus::default()
        }
    }

    #[track_caller]
    fn raises(status: &FleetStatus, expected: &[(Severity, &str)]) -> Value {
        let mut alarms = Vec::new();
        let object = pair(status, &mut alarms);
        let raised: Vec<_> = alarms.iter().map(|alarm| (alarm.severity, &alarm.text[..])).collect();
        let text = |text: &str| format!("{text}; `natgate fleet status` tells more");
        let expected: Vec<_> = expected.iter().map(|(level, it)| (*level, text(it))).collect();
        let expected: Vec<_> = expected.iter().map(|(level, it)| (*level, &it[..])).collect();
        assert_eq!(raised, expected);
        object
    }

    #[test]
    fn a_pair_without_trouble_is_well_also_in_standby_and_while_slices_rest_and_move() {
        let standby = raises(&node(vec![slice("b", false)]), &[]);
        let expected = json!({
            "node": "a", "partner": "b", "state": "connected", "owned": [], "unowned": [],
            "resting": [],
        });
        assert_eq!(standby, expected);
        let rests = Some(Duration::from_secs(90));
        let resting = SliceStatus { rests, ..slice("a", false) };
        let (moves_to, is_complete) = (Some("b".into()), false);
        let moving = SliceStatus { moves_to, is_complete, ..slice("a", false) };
        let object = raises(&node(vec![slice("b", false), resting, moving]), &[]);
        assert_eq!(object["owned"], json!([1, 2]));
        assert_eq!(object["resting"], json!([{ "slice": 1, "rests_s": 90.0 }]));
    }

    #[test]
    fn an_absent_partner_is_one_alarm() {
        let old = SliceStatus { is_complete: false, age: None, ..slice("a", true) };
        let mut status = node(vec![old, slice("b", false)]);
        status.link.connected = None;
        let object = raises(&status, &[(Severity::Warning, "node b is not heard")]);
        assert_eq!(object["state"], "away");
        status.slices[0].assigns = false;
        raises(&status, &[(Severity::Critical, "node b is not heard")]);
        let mut standby = node(vec![slice("b", false); 2]);
        standby.link.connected = None;
        raises(&standby, &[(Severity::Warning, "node b is not heard")]);
        standby.slices[1].owner = None;
        let object = raises(&standby, &[(Severity::Critical, "node b is not heard")]);
        assert_eq!(object["unowned"], json!([1]));
        status.has_partner_ended = true;
        let object = raises(&status, &[(Severity::Critical, "the process of node b has ended")]);
        assert_eq!(object["state"], "ended");
    }

    #[test]
    fn a_drain_that_does_not_end_and_one_that_is_refused_raise_an_alarm() {
        let moving = SliceStatus {
            moves_to: Some("b".into()),
            is_complete: false,
            drains: true,
            ..slice("a", true)
        };
        raises(&node(vec![moving.clone()]), &[]);
        let overdue = SliceStatus { is_move_overdue: true, ..moving.clone() };
        let refusal = Refusal { without_realm: 1, ..Refusal::default() };
        for slice in [overdue, SliceStatus { refusal, ..moving }] {
            let alarm = (Severity::Warning, "slice 0 has no complete copy");
            raises(&node(vec![slice]), &[alarm]);
        }
    }

    #[test]
    fn slices_without_copy_or_with_a_wrong_number_of_owners_raise_alarms() {
        let bad = SliceStatus { is_complete: false, ..slice("a", true) };
        let old = SliceStatus { age: Some(Duration::from_secs(6)), ..slice("b", false) };
        let unowned = SliceStatus { owner: None, ..slice("b", false) };
        let disputed = SliceStatus { is_disputed: true, ..slice("a", true) };
        let status = node(vec![bad.clone(), unowned, disputed, old]);
        raises(
            &status,
            &[
                (Severity::Critical, "slice 2 has two owners"),
                (Severity::Critical, "slice 1 has no known owner"),
                (Severity::Warning, "slices 0, 3 have no complete copy"),
            ],
        );
        raises(&node(vec![bad; 5]), &[(Severity::Warning, "5 slices have no complete copy")]);
    }
}
