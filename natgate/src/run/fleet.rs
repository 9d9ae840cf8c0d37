//! The part of one of two gateways: the link to the partner, and the worker that uses it.

use super::say;
use crate::Failure;
use anyhow::{Context, anyhow};
use natgate_engine::Timestamp;
use natgate_gateway::fleet::{Fleet, FleetAsker, FleetSettings, LinkStatus, PartnerLink};
use natgate_gateway::{Settings, Worker};
use natgate_partner::Link;

/// The link as the worker sees it.
struct Carrier(Link);

impl PartnerLink for Carrier {
    fn send(&mut self, message: Vec<u8>) -> bool {
        self.0.send(message)
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        self.0.receive()
    }

    fn room(&self) -> usize {
        self.0.datagram_room()
    }

    fn tell(&mut self, view: Vec<u8>) {
        // A view of the most slices is far below the limit.
        let _ = self.0.tell(view);
    }

    fn heard(&mut self) -> Option<Vec<u8>> {
        self.0.heard()
    }

    fn status(&self) -> LinkStatus {
        let status = self.0.status();
        LinkStatus {
            connected: status.connected_since.map(|since| since.elapsed()),
            round_trip: status.round_trip,
            connections: status.connections,
            refused: status.refused,
            reason: status.certificate_error.or(status.last_refusal).or(status.last_failure),
            lost: status.send_overflow + status.abandoned + status.receive_overflow,
        }
    }
}

/// Starts the link and makes the worker one of a pair, if the settings say so.
pub(super) fn join(
    settings: &Settings,
    workers: &mut [Worker],
    now: Timestamp,
) -> Result<Option<(FleetAsker, Link)>, Failure> {
    let Some(fleet) = &settings.fleet else { return Ok(None) };
    let [worker] = workers else {
        return Err(anyhow!("a pair works with one worker so far; write workers.count = 1").into());
    };
    let link = natgate_partner::start(&link_settings(fleet))
        .map_err(|error| Failure::Input(vec![format!("fleet: {error}")]))?;
    let random = getrandom::u32().context("no random numbers")?;
    let carrier = Box::new(Carrier(link.clone()));
    let (fleet_of_worker, asker) =
        Fleet::new(fleet.clone(), carrier, random).with_context(|| {
            format!("the number of starts cannot be kept in {}", fleet.starts.display())
        })?;
    worker.join_fleet(fleet_of_worker, now);
    let FleetSettings { node, partner, listen, .. } = fleet;
    let (partner, at) = (&partner.node, partner.address);
    say(format!("node {node} at {listen}, the partner is {partner} at {at}"));
    Ok(Some((asker, link)))
}

fn link_settings(fleet: &FleetSettings) -> natgate_partner::Settings {
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
