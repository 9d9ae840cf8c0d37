//! The families of a pair of gateways.
//!
//! Counters of a stream begin again with each stream, as after a restart. A label is the number of
//! a slice; there are at most 256.

use super::series::{Page, Series};
use natgate_gateway::fleet::{FleetStatus, ReceivedCounters, Sent, SliceStatus, TunnelCounters};

/// The link and the slices.
pub(super) fn fleet(page: &mut Page, status: Option<&FleetStatus>) {
    let Some(status) = status else { return };
    link(page, status);
    tunnel(page, &status.tunnel);
    slices(page, &status.slices);
    sent(page, &status.slices);
    received(page, &status.slices);
}

fn link(page: &mut Page, status: &FleetStatus) {
    let mut gauge = |name: &str, help: &str, value: f64| {
        page.gauge(name, help, |series| series.add(&[], value));
    };
    let link = &status.link;
    gauge("fleet_connected", "1: the nodes are connected.", flag(link.connected.is_some()));
    let help = "1: the partner's process is known to have ended.";
    gauge("fleet_partner_ended", help, flag(status.has_partner_ended));
    if let Some(time) = link.round_trip {
        gauge("fleet_round_trip_seconds", "Round trip of the link.", time.as_secs_f64());
    }
    if let Some(lead) = link.clock_lead {
        let help = "Lead of the partner's clock over this node's.";
        gauge("fleet_clock_lead_seconds", help, lead as f64 / 1e9);
    }
    let help = "Ports of ended mappings that the partner may have copies of.";
    gauge("fleet_fenced_ports", help, status.resting as f64);
    page.count("fleet_connections_total", "Connections with the partner.", link.connections);
    let help = "Connections that were refused: certificate or version.";
    page.count("fleet_connections_refused_total", help, link.refused);
    let help = "Messages without room in a queue, or without a connection.";
    page.count("fleet_lost_messages_total", help, link.lost);
    let help = "Views of the partner that were refused: late, or of another start.";
    page.count("fleet_refused_views_total", help, status.refused_views);
}

/// The tunnel to the other node.
fn tunnel(page: &mut Page, counters: &TunnelCounters) {
    let TunnelCounters { passed, full, long, taken, foreign, unknown, partial, damaged } =
        *counters;
    let mut count = |name: &str, help: &str, label: &'static str, counts: &[(&str, u64)]| {
        page.counter(name, help, |series| {
            counts.iter().for_each(|(of, count)| series.add(&[(label, *of)], *count as f64));
        });
    };
    let ways = |counts: [u64; 3]| {
        let [outbound, inbound, hairpin] = counts;
        [("outbound", outbound), ("inbound", inbound), ("hairpin", hairpin)]
    };
    let help = "Packets passed on to the owner of their slice, the other node.";
    count("fleet_tunnel_passed_packets_total", help, "direction", &ways(passed));
    let help = "Packets that the other node has passed on.";
    count("fleet_tunnel_taken_packets_total", help, "direction", &ways(taken));
    let help = "Packets for the other node that had no room, or were too long.";
    let reasons = [("full", full), ("long", long)];
    count("fleet_tunnel_dropped_packets_total", help, "reason", &reasons);
    let help = "Packets of the other node that were refused.";
    let reasons =
        [("foreign", foreign), ("unknown", unknown), ("partial", partial), ("damaged", damaged)];
    count("fleet_tunnel_refused_packets_total", help, "reason", &reasons);
}

fn slices(page: &mut Page, slices: &[SliceStatus]) {
    type Read = fn(&SliceStatus) -> Option<f64>;
    let gauges: [(&str, &str, Read); 8] = [
        ("fleet_slice_owned", "1: this node owns the slice.", |slice| {
            Some(flag(slice.role == "owner"))
        }),
        ("fleet_slice_assigns", "1: this node assigns ports of the slice.", |slice| {
            Some(flag(slice.assigns))
        }),
        ("fleet_slice_complete", "1: the copy is complete.", |slice| Some(flag(slice.is_complete))),
        ("fleet_slice_faulty", "1: no owner, two, or no present copy.", |slice| {
            Some(flag(slice.fault().is_some()))
        }),
        ("fleet_slice_epoch", "Changes of the owner so far.", |slice| Some(slice.epoch as f64)),
        ("fleet_slice_lag_seconds", "Wait of the oldest change for its copy.", |slice| {
            slice.sent.map(|_| slice.lag.as_secs_f64())
        }),
        ("fleet_slice_age_seconds", "Time since the copy was complete.", |slice| {
            slice.age.map(|age| age.as_secs_f64())
        }),
        ("fleet_slice_refused_mappings", "Mappings that the partner refuses.", |slice| {
            let refusal = &slice.refusal;
            let counts = [refusal.without_realm, refusal.without_number, refusal.without_gateway];
            Some(counts.into_iter().map(f64::from).sum())
        }),
    ];
    for (name, help, read) in gauges {
        page.gauge(name, help, |series| add(series, slices, read));
    }
    let help = "Mappings that were ended, because the slice moved without them.";
    page.counter("fleet_slice_ended_mappings_total", help, |series| {
        add(series, slices, |slice| Some(slice.ended_to_move as f64));
    });
}

fn sent(page: &mut Page, slices: &[SliceStatus]) {
    type Read = fn(Sent) -> u64;
    let counters: [(&str, &str, Read); 5] = [
        ("fleet_sent_packets_total", "Packets of replication sent.", |sent| sent.packets),
        ("fleet_sent_records_total", "Records sent.", |sent| sent.records),
        ("fleet_sent_bytes_total", "Bytes of replication sent.", |sent| sent.bytes),
        ("fleet_lost_packets_total", "Packets of replication lost, or late.", |sent| sent.lost),
        ("fleet_repaired_records_total", "Records that the partner asked for again.", |sent| {
            sent.repaired
        }),
    ];
    for (name, help, read) in counters {
        page.counter(name, help, |series| {
            add(series, slices, |slice| slice.sent.map(|sent| read(sent) as f64));
        });
    }
}

fn received(page: &mut Page, slices: &[SliceStatus]) {
    type Read = fn(ReceivedCounters) -> u64;
    let counters: [(&str, &str, Read); 7] = [
        ("fleet_received_packets_total", "Packets applied to the copy.", |got| got.packets),
        ("fleet_received_records_total", "Records applied to the copy.", |got| got.records),
        ("fleet_foreign_packets_total", "Packets of another start or epoch.", |got| got.foreign),
        ("fleet_damaged_packets_total", "Messages that no sender writes.", |got| got.damaged),
        ("fleet_gaps_total", "Packets that never came.", |got| got.gaps),
        ("fleet_records_without_room_total", "Records without room in the copy.", |got| {
            got.without_room
        }),
        ("fleet_divergent_buckets_total", "Parts of the copy that differed.", |got| got.divergent),
    ];
    for (name, help, read) in counters {
        page.counter(name, help, |series| {
            add(series, slices, |slice| slice.received.map(|got| read(got) as f64));
        });
    }
    let help = "Records of realms that this node does not have.";
    page.counter("fleet_records_without_realm_total", help, |series| {
        add(series, slices, |slice| slice.records_without_realm.map(|records| records as f64));
    });
}

/// Adds a series for each slice that has the value.
fn add(series: &mut Series, slices: &[SliceStatus], read: impl Fn(&SliceStatus) -> Option<f64>) {
    for (number, slice) in slices.iter().enumerate() {
        if let Some(value) = read(slice) {
            series.add(&[("slice", &number.to_string())], value);
        }
    }
}

fn flag(is_so: bool) -> f64 {
    u8::from(is_so).into()
}
