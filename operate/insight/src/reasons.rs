//! Explanations of drop reasons: the meaning of each, the deciding configuration, and a remedy.

use natgate_engine::DropReason::{self, self as R};

/// The deciding configuration and a remedy, for one or several reasons. Each reason has one row.
const REMEDIES: &[(&[DropReason], &str)] = &[
    (&[R::NotIpv4], "natgate translates only IPv4; route other protocols past it."),
    (
        &[R::BadLength, R::BadHeaderChecksum, R::BadOptions, R::SourceRoute, R::Land],
        "The sender or a device on the path made the header so; `natgate capture` shows the \
         sources of such packets.",
    ),
    (
        &[R::MartianSource, R::MartianDestination],
        "Such addresses are not valid between networks: a host has a wrong address, or it sends \
         to a broadcast or multicast address.",
    ),
    (
        &[R::SpoofedSource],
        "A host uses an address of the gateway or of a pool; look for two hosts with one address, \
         or for a loop.",
    ),
    (&[R::UnknownRealm], "Name the VLAN in a [[realm]], or keep its frames from the device."),
    (&[R::OtherRealm], "hairpin_to of the sender's realm names the realms that it may reach."),
    (
        &[R::NotSubscriber],
        "Add its prefix to nat.subscribers, or a [[rule]] that translates or bypasses it.",
    ),
    (&[R::Rule], "A [[rule]] of kind drop matches the packet; `natgate trace` names the rule."),
    (
        &[R::SameSide],
        "The sender should reach its own network without the gateway; check its prefix length and \
         its routes.",
    ),
    (
        &[R::NotForUs],
        "A router outside sends packets to the gateway that match no pool, static mapping or \
         bypass rule; check the routes outside.",
    ),
    (
        &[R::LocalUnsupported],
        "The gateway answers only ping; to reach the machine itself, use management addresses.",
    ),
    (
        &[R::RequestLimit],
        "pcp.requests_per_second and client_requests_per_second are the limits; a client that \
         exceeds them alone is faulty or hostile.",
    ),
    (&[R::TtlExceeded], "traceroute causes some of these drops; many of them mean a routing loop."),
    (
        &[R::TooBig],
        "ICMP 3/4 told the sender; raise mtu of the side that the packet leaves by, if the link \
         carries more.",
    ),
    (
        &[R::IcmpBadChecksum, R::IcmpBadEmbedded, R::IcmpUnsupported],
        "The ICMP message is damaged, or no session can be its subject; it has no use behind a \
         translator.",
    ),
    (
        &[R::IcmpNoSession],
        "The session of the error has ended, or the error is forged; no action is needed.",
    ),
    (
        &[R::NoMapping],
        "No internal host has opened this endpoint, or its mapping has ended; a server inside \
         needs a [[static]] mapping.",
    ),
    (
        &[R::Filtered],
        "nat.filtering decides which remote endpoints may answer; \"endpoint-independent\" admits \
         all of them.",
    ),
    (
        &[R::TcpNotSyn],
        "The connection has ended, or it began before a restart; nat.tcp_pickup = true continues \
         such connections.",
    ),
    (
        &[R::HairpinDisabled],
        "nat.hairpinning = true lets subscribers reach each other by external addresses.",
    ),
    (
        &[R::PortQuota],
        "limits.ports_per_subscriber, a class, or nat.block.max_per_subscriber is the limit; \
         `natgate trace` shows which one, and how much of it is used.",
    ),
    (
        &[R::SessionLimit],
        "limits.sessions_per_mapping, sessions_per_subscriber or a class is the limit; `natgate \
         trace` shows which one, and how much of it is used.",
    ),
    (
        &[R::MappingRate],
        "limits.new_mappings_per_second, or the rate of a class, is the limit; the host may be \
         scanning.",
    ),
    (
        &[R::PoolExhausted],
        "Add addresses to the pool, or shorten timeouts; `natgate show pools` shows the free \
         ports.",
    ),
    (
        &[R::MappingTableFull],
        "Raise limits.mappings or limits.subscribers; this takes memory and a restart.",
    ),
    (
        &[R::SessionTableFull],
        "Raise limits.extra_sessions or limits.twice_sessions; this takes memory and a restart.",
    ),
    (
        &[R::Ambiguous],
        "Another session has the same ends; give the subscribers different external addresses.",
    ),
    (
        &[R::FragmentUnmatched, R::FragmentLimit],
        "First fragments are missing, or too many datagrams come in fragments; \
         limits.fragment_memory and timeouts.fragment bound the fragments that wait.",
    ),
    (
        &[R::FragmentOverlap, R::FragmentTooLong, R::FragmentTiny],
        "Ordinary senders do not send such fragments; `natgate capture` shows their sources.",
    ),
    (
        &[R::HandOverFull],
        "All workers are too busy, or one of them is; `natgate show workers` shows the load of \
         each. Add workers.",
    ),
    (
        &[R::NoRoute],
        "Add a [[route]], or a gateway of that side; `natgate show routes` lists the routes.",
    ),
    (
        &[R::NoNeighbor],
        "The next hop is down, or does not answer ARP; `natgate show neighbors` lists the next \
         hops.",
    ),
    (
        &[R::TransmitFull],
        "The link or its queue is full; check the rate and the queue length of the device.",
    ),
    (
        &[R::ExtensionHeaders, R::SegmentsLeft],
        "IPv4 has no such headers; the sender must omit them towards IPv4.",
    ),
    (
        &[R::Untranslatable],
        "Add a prefix or a [[siit.map]] for the address; protocols such as IGMP stay in their own \
         family.",
    ),
    (
        &[R::NotGlobal],
        "Use a prefix of your own, or set non_global = \"translate\" of [nat64] or [siit].",
    ),
    (
        &[R::UdpChecksumZero],
        "ipv6.udp_checksum_zero decides; the checksum of a fragmented datagram cannot be computed.",
    ),
    (
        &[R::FragmentedIcmp],
        "Send a smaller ping; ICMP messages in several fragments do not pass between the families.",
    ),
    (
        &[R::NoBinding],
        "`natgate show bindings` and `natgate show domains` list the customers; protocols without \
         ports need an address that is not shared.",
    ),
    (
        &[R::SoftwireSource],
        "The customer's equipment has an old address or port set, or forges its source; \
         `natgate capture` shows it.",
    ),
    (&[R::InboundIcmp], "lw4o6.inbound_icmp decides."),
    (&[R::EcnCongestion], "A router inside marks packets that it ought to drop; check its queues."),
];

/// The explanation of a drop reason, by its name.
pub fn explanation(name: &str) -> Option<String> {
    let reason = DropReason::ALL.iter().find(|reason| reason.name() == name)?;
    let (_, remedy) = REMEDIES.iter().find(|(reasons, _)| reasons.contains(reason))?;
    Some(format!("{}: {}\n{remedy}\n", reason.name(), reason.text()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_one_row() {
        for reason in DropReason::ALL {
            let rows = REMEDIES.iter().filter(|(reasons, _)| reasons.contains(reason));
            assert_eq!(rows.count(), 1, "rows of {}", reason.name());
        }
        let all = REMEDIES.iter().map(|(reasons, _)| reasons.len());
        assert_eq!(all.sum::<usize>(), DropReason::ALL.len(), "a row names a reason twice");
    }

    #[test]
    fn every_reason_is_explained_by_its_name() {
        for known in DropReason::ALL {
            let said = explanation(known.name());
            assert!(
                said.is_some_and(|said| said.contains(known.text()) && said.lines().count() == 2)
            );
        }
        assert_eq!(explanation("no_reason"), None);
    }
}
