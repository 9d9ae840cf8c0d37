//! Requirements that the RFCs share for all transports: mapping, filtering, hairpinning.
//!
//! Every test creates contention for ports before it concludes: another host already has the same
//! internal port. So a translator that only preserves ports does not pass for one with
//! endpoint-independent mapping.

use crate::flow::Transport;
use crate::packet::{Received, describe};
use crate::stage::{Finding, Stage, Stop, failed, not_applicable};
use natgate_engine::Side;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Dependence of a behavior on the remote endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behavior {
    EndpointIndependent,
    AddressDependent,
    AddressAndPortDependent,
}

impl Behavior {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::EndpointIndependent => "endpoint-independent",
            Self::AddressDependent => "address-dependent",
            Self::AddressAndPortDependent => "address-and-port-dependent",
        }
    }
}

/// Two endpoints of one outside host, and two of another. Without ports there is one of each.
pub(super) fn remotes(stage: &Stage, transport: Transport) -> Vec<SocketAddrV4> {
    match transport {
        Transport::Echo => (0..3).map(|host| stage.far(host)).collect(),
        _ => [0, 0, 1, 1].map(|host| stage.far(host)).to_vec(),
    }
}

/// Most hosts that are tried to find one with an equal external address.
const RIVALS: usize = 24;

/// Finds an inside host with the first host's external address, if possible. Only such a host
/// competes for the first one's ports.
pub(super) async fn rival(stage: &Stage) -> Result<Ipv4Addr, Stop> {
    if let Some(found) = stage.others().last() {
        return Ok(*found);
    }
    let remote = stage.far(0);
    let address = async |host: Ipv4Addr| {
        let endpoint = SocketAddrV4::new(host, stage.port());
        stage.map(Transport::Udp, endpoint, remote).await.map(|external| *external.ip())
    };
    let first = address(stage.inside(0)).await?;
    for _ in 0..RIVALS {
        let Some(host) = stage.another() else { break };
        if address(host).await? == first {
            break;
        }
    }
    Ok(stage.others().last().copied().unwrap_or(stage.inside(1)))
}

/// One port at two inside hosts with one external address.
pub(super) async fn contenders(stage: &Stage) -> Result<[SocketAddrV4; 2], Stop> {
    let rival = rival(stage).await?;
    let port = stage.port();
    Ok([stage.inside(0), rival].map(|host| SocketAddrV4::new(host, port)))
}

/// Checks that an internal endpoint has one external endpoint towards all remote endpoints. Another
/// host takes its port before the packets to the first remote endpoint, and after it for the
/// others.
pub(super) async fn endpoint_independent(stage: &Stage, transport: Transport) -> Finding {
    let remotes = remotes(stage, transport);
    for other_first in [true, false] {
        let [host, other] = contenders(stage).await?;
        if other_first {
            stage.map(transport, other, remotes[0]).await?;
        }
        let external = stage.map(transport, host, remotes[0]).await?;
        for remote in &remotes[1..] {
            stage.map(transport, other, *remote).await?;
        }
        for remote in &remotes[1..] {
            let another = stage.map(transport, host, *remote).await?;
            if another != external {
                let first = remotes[0];
                return failed(format!(
                    "{host} is {external} towards {first}, and {another} towards {remote}; {other} \
                     has the same port."
                ));
            }
        }
    }
    Ok(format!(
        "Two endpoints are one external endpoint each towards {} remote endpoints, while another \
         host has the same ports.",
        remotes.len()
    ))
}

/// Checks that two internal endpoints with equal ports and remote endpoints have different external
/// endpoints.
pub(super) async fn not_overloaded(stage: &Stage, transport: Transport) -> Finding {
    let [first, second] = contenders(stage).await?;
    let port = first.port();
    let hosts = [first, second, SocketAddrV4::new(stage.inside(2), port)];
    let remote = stage.far(0);
    let mut externals = Vec::new();
    for host in hosts {
        externals.push(stage.map(transport, host, remote).await?);
    }
    for (first, second) in [(0, 1), (0, 2), (1, 2)] {
        if externals[first] == externals[second] {
            let (one, other, both) = (hosts[first], hosts[second], externals[first]);
            return failed(format!("{one} and {other} are both {both} towards {remote}."));
        }
    }
    for (host, external) in hosts.iter().zip(&externals) {
        if !stage.answers(transport, remote, *external, *host).await {
            return failed(format!("The answer to {external} did not come back to {host}."));
        }
    }
    Ok(format!(
        "Three hosts with port {port} have three endpoints towards {remote}, and each its answer."
    ))
}

/// Determines which packets from outside a mapping admits.
pub(super) async fn filtering(stage: &Stage, transport: Transport) -> Result<Behavior, Stop> {
    let (host, remote) = (stage.near(0), stage.far(0));
    let external = stage.map(transport, host, remote).await?;
    if !stage.answers(transport, remote, external, host).await {
        return failed(format!(
            "Not even the answer from {remote} to {external} came in to {host}."
        ));
    }
    if stage.enters(transport, stage.far(1), external, *host.ip()).await {
        return Ok(Behavior::EndpointIndependent);
    }
    if stage.enters(transport, stage.far(0), external, *host.ip()).await {
        return Ok(Behavior::AddressDependent);
    }
    Ok(Behavior::AddressAndPortDependent)
}

/// Checks that the filtering is one of the two recommended behaviors.
pub(super) async fn filtering_recommended(stage: &Stage, transport: Transport) -> Finding {
    match filtering(stage, transport).await? {
        Behavior::AddressAndPortDependent => failed(
            "Filtering is address-and-port-dependent: a packet from another port of a remote host \
             that had been sent to was kept out.",
        ),
        behavior => Ok(format!("Filtering is {}.", behavior.name())),
    }
}

/// Sends between two inside hosts by external endpoints. Checks that packets arrive, and that their
/// source is the sender's external endpoint.
pub(super) async fn hairpin(stage: &Stage, transport: Transport) -> [Finding; 2] {
    match hairpin_source(stage, transport).await {
        Err(stop) => {
            let second = "Nothing was hairpinned whose source could be looked at.";
            [Err(stop), not_applicable(second)]
        }
        Ok((source, external)) => {
            let works = "A packet to another host's external endpoint arrived, and its answer.";
            let second = match source == external {
                true => Ok(format!("It arrived from the sender's external endpoint, {external}.")),
                false => failed(format!("It arrived from {source} instead of {external}.")),
            };
            [Ok(works.to_owned()), second]
        }
    }
}

/// Source of a hairpin packet, and the sender's external endpoint.
async fn hairpin_source(
    stage: &Stage,
    transport: Transport,
) -> Result<(SocketAddrV4, SocketAddrV4), Stop> {
    let pair = Pair::open(stage, transport).await?;
    let came = pair.call(stage, transport).await?;
    if !came.valid() || (transport != Transport::Echo && came.destination() != pair.callee) {
        let line = describe(&came.bytes);
        return failed(format!("It arrived at {} damaged: {line}.", pair.callee));
    }
    let source = came.source();
    let answer = transport.answer(pair.callee, source);
    let at = (Side::Inside, *pair.caller.ip());
    if stage.crosses(Side::Inside, &answer, at).await.is_none() {
        return failed(format!("The answer, {}, did not come back.", describe(&answer.bytes())));
    }
    Ok((source, pair.caller_external))
}

/// Two inside hosts with mappings, one of which sends to the other.
pub(super) struct Pair {
    pub(super) caller: SocketAddrV4,
    pub(super) callee: SocketAddrV4,
    pub(super) caller_external: SocketAddrV4,
    pub(super) callee_external: SocketAddrV4,
}

impl Pair {
    pub(super) async fn open(stage: &Stage, transport: Transport) -> Result<Self, Stop> {
        let (caller, callee, remote) = (stage.near(0), stage.near(1), stage.far(0));
        let caller_external = stage.map(transport, caller, remote).await?;
        let callee_external = stage.map(transport, callee, remote).await?;
        Ok(Self { caller, callee, caller_external, callee_external })
    }

    /// Sends a packet to the callee's external endpoint; returns it as it arrives. If the filter
    /// refuses it, the callee first sends to the caller, like two peers with a common server.
    pub(super) async fn call(&self, stage: &Stage, transport: Transport) -> Result<Received, Stop> {
        let mut caller = self.caller;
        if transport == Transport::Echo {
            // The identifier selects the mapping of the sender and the destination.
            caller.set_port(self.callee_external.port());
        }
        let packet = transport.opening(caller, self.callee_external);
        let at = (Side::Inside, *self.callee.ip());
        if let Some(came) = stage.crosses(Side::Inside, &packet, at).await {
            return Ok(came);
        }
        stage.send(Side::Inside, &transport.opening(self.callee, self.caller_external));
        match stage.crosses(Side::Inside, &packet, at).await {
            Some(came) => Ok(came),
            None => {
                failed(format!("{} did not arrive at {}.", describe(&packet.bytes()), self.callee))
            }
        }
    }
}
