//! Messages about links that are down, at the start and repeated while they stay down, and about
//! devices with a smaller MTU than configured.

use super::say;
use natgate_engine::Timestamp;
use natgate_gateway::{Settings, Worker};
use natgate_io::LinkInfo;
use std::time::Duration;

/// Duration of a link's failure when each reminder is due. The last value is the pause of all later
/// reminders.
const REMINDERS: [Duration; 3] =
    [Duration::from_secs(60), Duration::from_secs(600), Duration::from_secs(3600)];

/// A link that is down.
#[derive(Debug)]
struct DownLink {
    side: &'static str,
    device: String,
    since: Timestamp,
    /// Number of reminders so far.
    told: u32,
}

/// The links that are down.
#[derive(Debug, Default)]
pub(super) struct DownLinks(Vec<DownLink>);

impl DownLinks {
    /// Records a link's state at the start, and reports the link if it is down.
    pub(super) fn begin(&mut self, now: Timestamp, side: &'static str, link: &LinkInfo) {
        if !link.up {
            let device = &link.name;
            say(format!("warning: {side} device {device} is down; {}", remedy(device)));
        }
        self.note(now, side, link);
    }

    /// Records a link's present state.
    pub(super) fn note(&mut self, now: Timestamp, side: &'static str, link: &LinkInfo) {
        let is_known = self.0.iter().any(|down| down.device == link.name);
        if link.up {
            self.0.retain(|down| down.device != link.name);
        } else if !is_known {
            self.0.push(DownLink { side, device: link.name.clone(), since: now, told: 0 });
        }
    }

    /// Forgets links of devices that the gateway no longer has.
    pub(super) fn keep(&mut self, devices: &[&str]) {
        self.0.retain(|down| devices.contains(&&*down.device));
    }

    /// Reports links that stay down.
    pub(super) fn remind(&mut self, now: Timestamp) {
        self.0.iter_mut().filter_map(|down| down.reminder(now)).for_each(say);
    }
}

impl DownLink {
    /// Returns the reminder that is due, if any.
    fn reminder(&mut self, now: Timestamp) -> Option<String> {
        let down_for = now.since(self.since);
        if down_for < due(self.told) {
            return None;
        }
        self.told += 1;
        let Self { side, device, .. } = self;
        let minutes = down_for.as_secs() / 60;
        Some(format!(
            "warning: {side} device {device} has been down for {minutes} min; {}",
            remedy(device)
        ))
    }
}

/// Duration of a link's failure when reminder number `told` is due.
fn due(told: u32) -> Duration {
    let [.., pause] = REMINDERS;
    match REMINDERS.get(told as usize) {
        Some(due) => *due,
        None => pause * (told + 2 - REMINDERS.len() as u32),
    }
}

fn remedy(device: &str) -> String {
    format!(
        "no packet passes it until it has a carrier and is switched on; `ip link set {device} up` \
         switches it on"
    )
}

/// Reports at the start which devices carry less than the configuration says.
pub(super) fn tell_narrow(worker: &Worker, settings: &Settings) {
    for narrow in worker.narrow_devices(settings) {
        say(format!("warning: {narrow}; natgate goes by what the device carries"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_stays_down_is_told_after_a_minute_ten_and_every_hour() {
        let hours = |hours: u64| Duration::from_secs(3600 * hours);
        let dues: Vec<Duration> = (0..6).map(due).collect();
        let [minute, ten, _] = REMINDERS;
        assert_eq!(dues, [minute, ten, hours(1), hours(2), hours(3), hours(4)]);
    }

    #[test]
    fn a_link_is_told_while_it_is_down_and_no_longer() {
        let (start, mut links) = (Timestamp(1_000_000_000), DownLinks::default());
        let link = |name: &str, up| LinkInfo {
            name: name.into(),
            index: 1,
            mac: Default::default(),
            mtu: 1500,
            up,
        };
        links.note(start, "inside", &link("in0", false));
        links.note(start.plus(Duration::from_secs(30)), "inside", &link("in0", false));
        links.note(start, "outside", &link("out0", true));
        let later = start.plus(Duration::from_secs(60));
        let told: Vec<String> =
            links.0.iter_mut().filter_map(|down| down.reminder(later)).collect();
        assert_eq!(told.len(), 1);
        assert!(told[0].starts_with("warning: inside device in0 has been down for 1 min; "));
        assert_eq!(links.0[0].reminder(later), None);
        links.note(later, "inside", &link("in0", true));
        assert!(links.0.is_empty());
        links.note(later, "inside", &link("gone0", false));
        links.keep(&["in0"]);
        assert!(links.0.is_empty());
    }
}
