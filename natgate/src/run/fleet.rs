//! The part of one of two gateways: its guardian, the link to the partner, and the workers that use
//! them.

use super::say;
use crate::Failure;
use anyhow::Context;
use natgate_engine::Timestamp;
use natgate_gateway::fleet::{
    Fleet, FleetAsker, FleetSettings, LinkStatus, PartnerLink, TUNNEL_HEAD,
};
use natgate_gateway::{Settings, Worker};
use natgate_partner::{Link, Memory};
use rustix::io::ioctl_fionbio;
use std::io::{self, PipeWriter, Write, pipe};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Command, Stdio};

/// The heartbeats to the guardian: a pipe. They end with the first worker, which has them.
pub(super) struct Heartbeats(PipeWriter);

/// Starts the guardian, a process of this program, if the gateway is one of a pair. It is started
/// before devices are open, and so has none of them.
pub(super) fn guard(settings: &Settings, config: &Path) -> Result<Option<Heartbeats>, Failure> {
    if settings.fleet.is_none() {
        return Ok(None);
    }
    let start = || {
        let (reader, writer) = pipe()?;
        // A worker never waits for its guardian.
        ioctl_fionbio(&writer, true)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("natgate").arg("guard").arg("-c").arg(config);
        command.args(["--process", &process::id().to_string()]);
        // It ends after this process.
        command.stdin(reader).stdout(Stdio::null()).spawn()?;
        Ok::<_, io::Error>(Heartbeats(writer))
    };
    Ok(Some(start().context("the guardian cannot be started")?))
}

const _: () = assert!(TUNNEL_HEAD == natgate_partner::TUNNEL_HEAD);

/// The link as a worker sees it. The first worker has the heartbeats.
struct Carrier {
    link: Link,
    memory: Memory,
    heartbeats: Option<Heartbeats>,
}

impl PartnerLink for Carrier {
    fn send(&mut self, message: Vec<u8>) -> bool {
        self.link.queue(message)
    }

    fn send_copy(&mut self, message: &[u8]) -> bool {
        self.link.queue(self.memory.copy(message))
    }

    fn flush(&mut self) {
        self.link.flush();
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        self.link.receive()
    }

    fn room(&self) -> usize {
        self.link.datagram_room()
    }

    fn tell(&mut self, view: Vec<u8>) {
        // A view of the most slices is far below the limit.
        let _ = self.link.tell(view);
    }

    fn heard(&mut self) -> Option<Vec<u8>> {
        self.link.heard()
    }

    fn pass(&mut self, datagram: &[u8]) -> bool {
        self.link.pass(datagram)
    }

    fn passed(&mut self) -> Option<Vec<u8>> {
        self.link.passed()
    }

    fn status(&self) -> LinkStatus {
        let status = self.link.status();
        let is_before = |first| status.version.is_some_and(|version| version < first);
        LinkStatus {
            lacks_flows: is_before(natgate_partner::FLOWS),
            lacks_sums: is_before(natgate_partner::KEYS),
            connected: status.connected_since.map(|since| since.elapsed()),
            round_trip: status.round_trip,
            clock_lead: status.clock_lead,
            connections: status.connections,
            refused: status.refused,
            reason: status.certificate_error.or(status.last_refusal).or(status.last_failure),
            lost: status.send_overflow + status.abandoned + status.receive_overflow,
            tunnel_lost: status.unpassed + status.passed_overflow,
            leaves_keys: status.version.is_some_and(|version| version >= natgate_partner::KEYS),
        }
    }

    fn ended(&mut self) -> Option<u64> {
        self.link.partner_ended()
    }

    fn beat(&mut self, boot: u64) {
        // A full pipe means that the guardian stands still: it reads them later.
        if let Some(Heartbeats(pipe)) = &mut self.heartbeats {
            let _ = pipe.write(&boot.to_le_bytes());
        }
    }
}

/// Starts the link and makes the workers those of one of a pair, if the settings say so. `waker`
/// wakes the first worker.
pub(super) fn join(
    settings: &Settings,
    workers: &mut [Worker],
    (heartbeats, waker): (Option<Heartbeats>, UnixStream),
    now: Timestamp,
) -> Result<Option<(FleetAsker, Link)>, Failure> {
    let (Some(fleet), Some(heartbeats)) = (&settings.fleet, heartbeats) else { return Ok(None) };
    let link = natgate_partner::start(&link_settings(fleet))
        .map_err(|error| Failure::Input(vec![format!("fleet: {error}")]))?;
    waker.set_nonblocking(true).context("the first worker cannot be woken")?;
    // A full pipe wakes the worker, too.
    link.wake_by(Box::new(move || _ = (&waker).write(&[0])));
    let random = getrandom::u32().context("no random numbers")?;
    let mut heartbeats = Some(heartbeats);
    let carrier = |_: &Worker| -> Box<dyn PartnerLink> {
        Box::new(Carrier {
            link: link.clone(),
            memory: Memory::default(),
            heartbeats: heartbeats.take(),
        })
    };
    let carriers = workers.iter().map(carrier).collect();
    let (parts, asker) = Fleet::team(fleet.clone(), carriers, random).with_context(|| {
        format!("the number of starts cannot be kept in {}", fleet.starts.display())
    })?;
    for (worker, part) in workers.iter_mut().zip(parts) {
        worker.join_fleet(part, now);
    }
    let FleetSettings { node, partner, listen, .. } = fleet;
    let (partner, at) = (&partner.node, partner.address);
    say(format!("node {node} at {listen}, the partner is {partner} at {at}"));
    Ok(Some((asker, link)))
}

/// Settings of the link.
pub(crate) fn link_settings(fleet: &FleetSettings) -> natgate_partner::Settings {
    natgate_partner::Settings {
        node: fleet.node.clone(),
        listen: fleet.listen,
        certificate: fleet.certificate.clone(),
        key: fleet.key.clone(),
        authorities: fleet.authorities.clone(),
        partner: fleet.partner.node.clone(),
        address: fleet.partner.address,
    }
}
