//! The families of each part of the gateway.

use super::series::Page;
use crate::{
    DeviceFigures, Figures, ListenerFigures, PoolFigures, ServerFigures, SinkFigures, WorkerFigures,
};
use natgate_engine::{Direction, DropReason, Outcome};
use natgate_gateway::{AlgReason, Durations, TimingNow};
use natgate_io::Statistics;
use std::time::{SystemTime, UNIX_EPOCH};

const NANOSECONDS: f64 = 1e9;

/// Kinds of mappings that are counted apart.
const KINDS: [&str; 3] = ["tcp", "udp", "icmp"];

/// Packets, drops, tables.
pub(super) fn engine(page: &mut Page, figures: &Figures) {
    let counters = &figures.counters;
    let mut ways = |name: &str, help: &str, counts: &[[u64; 3]; 4]| {
        page.counter(name, help, |series| {
            for direction in Direction::ALL {
                for verdict in Outcome::ALL {
                    let labels = [("direction", direction.name()), ("verdict", verdict.name())];
                    series.add(&labels, counts[direction as usize][verdict as usize] as f64);
                }
            }
        });
    };
    ways("packets_total", "Packets that came in, by what became of them.", &counters.packets);
    ways("bytes_total", "IP bytes that came in, by what became of them.", &counters.bytes);
    let help = "Packets dropped, by reason (docs/drop-reasons.md).";
    page.counter("drops_total", help, |series| {
        for reason in DropReason::ALL {
            series.add(&[("reason", reason.name())], counters.drops[*reason as usize] as f64);
        }
    });
    let further = [
        ("portless_packets_total", "Packets translated by address alone.", counters.portless),
        ("generated_packets_total", "Packets of the translator's making.", counters.generated),
        (
            "icmp_errors_suppressed_total",
            "ICMP errors of the translator's that were due and not sent.",
            counters.errors_suppressed,
        ),
        (
            "events_lost_total",
            "Events lost between translator and logs; 0 unless something is broken.",
            counters.events_lost,
        ),
        (
            "subscribers_reclaimed_total",
            "Subscribers whose packets nobody had answered and that gave way to others.",
            counters.subscribers_reclaimed,
        ),
        (
            "mappings_reclaimed_total",
            "Mappings of such subscribers that were removed.",
            counters.mappings_reclaimed,
        ),
        ("clock_steps_back_total", "Times that went back and were held.", counters.clock_backwards),
    ];
    for (name, help, value) in further {
        page.count(name, help, value);
    }
    tables(page, figures);
}

/// Application-level gateways that are on.
pub(super) fn algs(page: &mut Page, figures: &Figures) {
    let help = "Expectations that application-level gateways have made.";
    page.counter("alg_expectations_total", help, |series| {
        for (kind, counters) in &figures.algs {
            series.add(&[("alg", kind.name())], counters.expectations as f64);
        }
    });
    let help = "What application-level gateways have not done, by reason (docs/alg.md).";
    page.counter("alg_refused_total", help, |series| {
        for (kind, counters) in &figures.algs {
            for (reason, count) in AlgReason::ALL.iter().zip(counters.refused) {
                series.add(&[("alg", kind.name()), ("reason", reason.name())], count as f64);
            }
        }
    });
}

/// Servers of static mappings that are checked.
pub(super) fn servers(page: &mut Page, figures: &Figures) {
    let ends = |server: &ServerFigures| (server.external.to_string(), server.internal.to_string());
    let help = "1 for a server whose health checks do not fail, 0 for one whose checks fail.";
    page.gauge("server_up", help, |series| {
        for server in &figures.servers {
            let (external, internal) = ends(server);
            let labels =
                [("external", &external[..]), ("internal", &internal), ("realm", &server.realm)];
            series.add(&labels, f64::from(u8::from(server.up)));
        }
    });
    page.counter("server_checks_total", "Health checks of servers, by result.", |series| {
        for server in &figures.servers {
            let (external, internal) = ends(server);
            for (result, count) in [("succeeded", server.succeeded), ("failed", server.failed)] {
                let labels = [
                    ("external", &external[..]),
                    ("internal", &internal),
                    ("realm", &server.realm),
                    ("result", result),
                ];
                series.add(&labels, count as f64);
            }
        }
    });
}

/// Domains of MAP, and tunnels of lw4o6 and DS-Lite.
pub(super) fn domains(page: &mut Page, figures: &Figures) {
    type Read = fn((u64, u64)) -> u64;
    let counts: [(&str, &str, Read); 2] = [
        (
            "domain_packets_total",
            "Packets of a domain of MAP, or in tunnels, that went on.",
            |(packets, _)| packets,
        ),
        (
            "domain_bytes_total",
            "Bytes of such packets; with the outer headers, if there are any.",
            |(_, bytes)| bytes,
        ),
    ];
    for (name, help, read) in counts {
        page.counter(name, help, |series| {
            for domain in &figures.domains {
                let (kind, of) = (("kind", domain.kind), ("domain", &domain.name[..]));
                let ways = [
                    (Direction::Outbound, domain.counters.outbound),
                    (Direction::Inbound, domain.counters.inbound),
                ];
                for (direction, counts) in ways {
                    let labels = [of, kind, ("direction", direction.name())];
                    series.add(&labels, read(counts) as f64);
                }
            }
        });
    }
    let help = "Packets whose source is not the customer's.";
    page.counter("domain_spoofed_packets_total", help, |series| {
        for domain in &figures.domains {
            let labels = [("domain", &domain.name[..]), ("kind", domain.kind)];
            series.add(&labels, domain.counters.spoofed as f64);
        }
    });
    page.gauge("lw4o6_bindings", "Bindings of lw4o6.", |series| {
        if let Some(count) = figures.bindings {
            series.add(&[], count as f64);
        }
    });
}

fn tables(page: &mut Page, figures: &Figures) {
    let tables = [
        ("mappings", "Mappings", figures.mappings),
        ("sessions", "Sessions", figures.sessions),
        ("subscribers", "Subscribers that have mappings", figures.subscribers),
    ];
    for (name, what, filled) in tables {
        page.gauge(name, &format!("{what} now."), |series| series.add(&[], filled.used as f64));
        let (name, help) = (format!("{name}_limit"), format!("{what}: the most there may be."));
        page.gauge(&name, &help, |series| series.add(&[], filled.limit as f64));
    }
    let help = "Subscribers that have mappings and whose packets nobody has answered yet.";
    page.gauge("subscribers_unanswered", help, |series| {
        series.add(&[], figures.unanswered as f64);
    });
    let kinds = [
        (
            "mappings_created_total",
            "Dynamic mappings made, by what quota they count against.",
            figures.made,
        ),
        (
            "mappings_removed_total",
            "Dynamic mappings gone, by what quota they counted against.",
            figures.gone,
        ),
    ];
    for (name, help, counts) in kinds {
        page.counter(name, help, |series| {
            for (kind, count) in KINDS.into_iter().zip(counts) {
                series.add(&[("protocol", kind)], count as f64);
            }
        });
    }
}

/// Pools.
pub(super) fn pools(page: &mut Page, pools: &[PoolFigures]) {
    page.gauge("pool_addresses", "External addresses of a pool.", |series| {
        for pool in pools {
            series.add(&[("pool", &pool.name)], pool.addresses as f64);
        }
    });
    let help = "Ports of a pool over all its addresses: free, used by dynamic mappings, held after \
                use, or reserved: kept for static mappings, draining, or in no block.";
    page.gauge("pool_ports", help, |series| {
        for pool in pools {
            for (protocol, usage) in &pool.ports {
                let states = [
                    ("free", usage.free),
                    ("used", usage.used),
                    ("held", usage.held),
                    ("reserved", usage.reserved),
                ];
                for (state, count) in states {
                    let labels =
                        [("pool", &pool.name[..]), ("protocol", protocol), ("state", state)];
                    series.add(&labels, count as f64);
                }
            }
        }
    });
    page.gauge("pool_blocks", "Blocks of ports: free, or used by subscribers.", |series| {
        for (pool, blocks) in pools.iter().filter_map(|pool| Some((pool, pool.blocks?))) {
            let free = blocks.limit.saturating_sub(blocks.used);
            for (state, count) in [("free", free), ("used", blocks.used)] {
                series.add(&[("pool", &pool.name), ("state", state)], count as f64);
            }
        }
    });
}

/// Workers.
pub(super) fn workers(page: &mut Page, workers: &[WorkerFigures]) {
    let loads =
        || workers.iter().enumerate().map(|(number, worker)| (number.to_string(), &worker.load));
    type Read = fn(&natgate_gateway::LoadNow) -> u64;
    let seconds: [(&str, &str, Read); 2] = [
        ("worker_busy_seconds_total", "Time of turns in which packets came.", |load| load.busy_ns),
        ("worker_asleep_seconds_total", "Time asleep.", |load| load.asleep_ns),
    ];
    for (name, help, read) in seconds {
        page.counter(name, help, |series| {
            for (number, load) in loads() {
                series.add(&[("worker", &number)], read(load) as f64 / NANOSECONDS);
            }
        });
    }
    let counts: [(&str, &str, Read); 7] = [
        ("worker_bursts_total", "Turns in which packets came.", |load| load.bursts),
        ("worker_frames_total", "Frames that came from devices.", |load| load.frames),
        (
            "worker_handed_over_packets_total",
            "Packets given to the worker that they belong to.",
            |load| load.handed_over,
        ),
        (
            "worker_hand_over_full_packets_total",
            "Packets that were to be given to another worker when there was no room.",
            |load| load.hand_over_full,
        ),
        ("worker_taken_over_packets_total", "Packets taken from other workers.", |load| {
            load.taken_over
        }),
        ("worker_borrowed_ports_total", "Ports that other workers gave it.", |load| {
            load.ports_borrowed
        }),
        ("worker_lent_ports_total", "Ports that it gave other workers.", |load| load.ports_lent),
    ];
    for (name, help, read) in counts {
        page.counter(name, help, |series| {
            for (number, load) in loads() {
                series.add(&[("worker", &number)], read(load) as f64);
            }
        });
    }
    let gauges: [(&str, &str, Read); 2] = [
        ("worker_largest_burst_frames", "Most frames of one turn.", |load| load.largest_burst),
        ("worker_mappings", "Dynamic mappings of a worker.", |load| load.mappings),
    ];
    for (name, help, read) in gauges {
        page.gauge(name, help, |series| {
            for (number, load) in loads() {
                series.add(&[("worker", &number)], read(load) as f64);
            }
        });
    }
    timings(page, workers);
}

fn timings(page: &mut Page, workers: &[WorkerFigures]) {
    type Read = fn(&TimingNow) -> &Durations;
    let histograms: [(&str, &str, Read); 3] = [
        (
            "worker_turn_duration_seconds",
            "Time of a turn in which packets came: the longest that one of them waited here.",
            |timing| &timing.turn,
        ),
        (
            "worker_packet_duration_seconds",
            "Time of a turn divided by the packets that came in it.",
            |timing| &timing.packet,
        ),
        (
            "worker_mapping_duration_seconds",
            "Time of a turn divided by the mappings that were made in it: the most that making one \
             cost.",
            |timing| &timing.creation,
        ),
    ];
    for (name, help, read) in histograms {
        page.histogram(name, help, |series| {
            for (number, worker) in workers.iter().enumerate() {
                series.add_durations(&[("worker", &number.to_string())], read(&worker.timing));
            }
        });
    }
}

/// Devices.
pub(super) fn devices(page: &mut Page, devices: &[DeviceFigures]) {
    page.gauge("device_up", "Whether a device is on and has a carrier.", |series| {
        for device in devices {
            series.add(&labels(device), f64::from(u8::from(device.up)));
        }
    });
    page.gauge("device_mtu_bytes", "Largest payload of a frame.", |series| {
        for device in devices {
            series.add(&labels(device), f64::from(device.mtu));
        }
    });
    type Read = fn(&Statistics) -> u64;
    let counts: [(&str, &str, Read); 4] = [
        ("device_received_frames_total", "Frames that came in.", |frames| frames.received),
        ("device_transmitted_frames_total", "Frames sent.", |frames| frames.transmitted),
        (
            "device_receive_no_buffer_frames_total",
            "Frames lost by receive_overrun for want of an empty buffer.",
            |frames| frames.receive_no_buffer,
        ),
        ("device_link_losses_total", "Times that the link went.", |frames| frames.link_losses),
    ];
    for (name, help, read) in counts {
        page.counter(name, help, |series| {
            for device in devices {
                series.add(&labels(device), read(&device.frames) as f64);
            }
        });
    }
    page.counter("device_lost_frames_total", "Frames lost at a device.", |series| {
        for device in devices {
            let frames = &device.frames;
            let reasons = [
                ("receive_overrun", frames.receive_overrun),
                ("receive_oversize", frames.receive_oversize),
                ("receive_unfinished", frames.receive_unfinished),
                ("transmit_full", frames.transmit_full),
                ("transmit_refused", frames.transmit_refused),
            ];
            let [name, side] = labels(device);
            for (reason, count) in reasons {
                series.add(&[name, ("reason", reason), side], count as f64);
            }
        }
    });
}

fn labels(device: &DeviceFigures) -> [(&'static str, &str); 2] {
    [("device", &device.name), ("side", &device.side)]
}

/// The router.
pub(super) fn router(page: &mut Page, figures: &Figures) {
    let router = &figures.router;
    page.counter("router_arp_messages_total", "ARP messages.", |series| {
        let kinds = [
            ("received", router.arp_received),
            ("asked", router.arp_asked),
            ("answered", router.arp_answered),
            ("ignored", router.arp_ignored),
            ("conflict", router.arp_conflicts),
        ];
        for (kind, count) in kinds {
            series.add(&[("kind", kind)], count as f64);
        }
    });
    page.counter("router_icmp_errors_total", "ICMP errors of the router's.", |series| {
        series.add(&[("result", "sent")], router.errors_made as f64);
        series.add(&[("result", "suppressed")], router.errors_suppressed as f64);
    });
    page.gauge("router_learnt_routes", "Routes learnt from the kernel.", |series| {
        series.add(&[], router.learnt_routes as f64);
    });
    let counts = [
        ("router_neighbors_lost_total", "Neighbors that did not answer.", router.neighbors_lost),
        (
            "router_neighbors_refused_total",
            "Times that a neighbor was not asked for or learnt, because of the limits.",
            router.neighbors_refused,
        ),
        (
            "router_sources_refused_total",
            "Packets of new sources that no neighbor entry agreed with, in a crowded table.",
            router.sources_refused,
        ),
        (
            "neighbor_conflicts_total",
            "Claims to a neighbor's address that were not believed.",
            router.neighbor_conflicts,
        ),
        (
            "neighbor_changes_total",
            "Neighbors that got another hardware address.",
            router.neighbor_changes,
        ),
        (
            "router_kernel_packets_total",
            "Packets to addresses of the kernel's own.",
            router.left_to_the_kernel,
        ),
        ("router_own_packets_lost_total", "Packets of natgate's own lost.", figures.own_lost),
        (
            "router_not_addressed_frames_total",
            "Frames that were not sent to natgate.",
            figures.not_addressed,
        ),
    ];
    for (name, help, value) in counts {
        page.count(name, help, value);
    }
    if let Some(router6) = &figures.router6 {
        page.counter("router6_events_total", "Events of the router of IPv6.", |series| {
            for (kind, count) in router6.each() {
                series.add(&[("kind", kind)], count as f64);
            }
        });
    }
}

/// Event logs.
pub(super) fn logs(page: &mut Page, sinks: &[SinkFigures]) {
    type Read = fn(&SinkFigures) -> u64;
    let counts: [(&str, &str, Read); 3] = [
        ("log_events_total", "Events written to a log.", |sink| sink.written),
        ("log_lost_events_total", "Events that a log lacks.", |sink| sink.lost),
        ("log_gaps_total", "Times that a log lost events in a row.", |sink| sink.gaps),
    ];
    for (name, help, read) in counts {
        page.counter(name, help, |series| {
            for sink in sinks {
                series.add(&[("sink", &sink.name)], read(sink) as f64);
            }
        });
    }
    page.gauge("log_waiting_events", "Events that wait to be written.", |series| {
        for sink in sinks {
            series.add(&[("sink", &sink.name)], sink.waiting as f64);
        }
    });
    page.gauge("log_up", "Whether what a log writes to takes events.", |series| {
        for sink in sinks {
            series.add(&[("sink", &sink.name)], f64::from(u8::from(sink.up)));
        }
    });
}

/// TCP ports that limit their connections.
pub(super) fn listeners(page: &mut Page, listeners: &[ListenerFigures]) {
    let help = "Connections closed because there were too many, by what the port serves.";
    page.counter("connections_refused_total", help, |series| {
        for listener in listeners {
            series.add(&[("listener", listener.name)], listener.refused as f64);
        }
    });
}

/// Readings of the configuration, and the beginning.
pub(super) fn reloads(page: &mut Page, figures: &Figures) {
    let reloads = &figures.reloads;
    page.counter("reloads_total", "Readings of the configuration.", |series| {
        series.add(&[("result", "success")], reloads.succeeded as f64);
        series.add(&[("result", "failure")], reloads.failed as f64);
    });
    let name = "reload_last_success_timestamp_seconds";
    page.gauge(name, "When the configuration in force was read.", |series| {
        series.add(&[], seconds(reloads.last_success.unwrap_or(figures.began)));
    });
    let what = "Panics of the control plane (requests, logs, routes), after which it went on.";
    page.counter("control_panics_total", what, |series| {
        series.add(&[], figures.control_panics as f64);
    });
    page.gauge("start_timestamp_seconds", "When the gateway began.", |series| {
        series.add(&[], seconds(figures.began));
    });
}

/// Routes that the kernel is to have, where external addresses are announced.
pub(super) fn announced(page: &mut Page, figures: &Figures) {
    let Some(routes) = figures.announced else { return };
    page.gauge("announced_routes", "Routes to external addresses in the kernel.", |series| {
        series.add(&[("state", "present")], routes.present as f64);
        series.add(&[("state", "missing")], routes.missing as f64);
    });
    let what = "Announced routes that other programs removed and that were put back.";
    page.counter("announced_routes_restored_total", what, |series| {
        series.add(&[], routes.restored as f64);
    });
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
