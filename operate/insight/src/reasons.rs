//! Explanations of drop reasons: the meaning of each, the deciding configuration, and a remedy.

use natgate_engine::DropReason;

/// The explanation of a drop reason, by its name.
pub fn explanation(name: &str) -> Option<String> {
    let reason = DropReason::ALL.iter().find(|reason| reason.name() == name)?;
    Some(format!("{}: {}\n{}\n", reason.name(), reason.text(), remedy(*reason)))
}

/// The deciding configuration, and a remedy.
fn remedy(reason: DropReason) -> &'static str {
    use DropReason as R;
    match reason {
        R::NotIpv4 => "Only IPv4 is translated; IPv6 and others need a way of their own.",
        R::BadLength | R::BadHeaderChecksum | R::BadOptions | R::SourceRoute | R::Land => {
            "The sender or a device on the way made it so; `natgate capture` shows from where such \
             packets come."
        }
        R::MartianSource | R::MartianDestination => {
            "Such addresses never travel between networks; a host has the wrong address or sends \
             at everybody."
        }
        R::SpoofedSource => {
            "Somebody uses an address of the gateway's own or of a pool; look for two hosts with \
             one address, or a loop."
        }
        R::UnknownRealm => "Name the VLAN in a [[realm]], or keep it from the device.",
        R::OtherRealm => "The realm's hairpin_to decides which others may be reached.",
        R::NotSubscriber => {
            "Add its prefix to nat.subscribers, or a [[rule]] that translates or bypasses it."
        }
        R::Rule => "A [[rule]] of kind drop decided; `natgate trace` names it.",
        R::SameSide => {
            "The sender should reach its own network without the gateway; look at its prefix \
             length and routes."
        }
        R::NotForUs => {
            "Somebody routes to this gateway what no pool, static mapping or bypass rule is about; \
             look at routes outside."
        }
        R::LocalUnsupported => {
            "The gateway answers ping only; what else is meant for the machine needs management \
             addresses."
        }
        R::RequestLimit => {
            "pcp.requests_per_second and client_requests_per_second decide; one client that asks \
             so often is broken or means harm."
        }
        R::TtlExceeded => "Usual with traceroute; many of them are a routing loop.",
        R::TooBig => {
            "The sender was told by ICMP 3/4; raise mtu of the side that it leaves by if the link \
             carries more."
        }
        R::IcmpBadChecksum | R::IcmpBadEmbedded | R::IcmpUnsupported => {
            "ICMP that cannot be about a session, or is damaged, is of no use behind a translator."
        }
        R::IcmpNoSession => {
            "Errors about sessions that have ended, or forged ones; nothing is lost by it."
        }
        R::NoMapping => {
            "Nobody inside has opened that endpoint, or its mapping has ended; a server inside \
             needs a [[static]] mapping."
        }
        R::Filtered => {
            "nat.filtering decides who may answer; \"endpoint-independent\" lets everybody."
        }
        R::TcpNotSyn => {
            "Its connection ended, or began before a restart; nat.tcp_pickup = true takes up such \
             connections."
        }
        R::HairpinDisabled => {
            "nat.hairpinning = true lets subscribers reach each other by external addresses."
        }
        R::PortQuota => {
            "limits.ports_per_subscriber, a class, or nat.block.max_per_subscriber decides; \
             `natgate trace` says which and how much is used."
        }
        R::SessionLimit => {
            "limits.sessions_per_mapping, sessions_per_subscriber or a class decides; `natgate \
             trace` says which and how much is used."
        }
        R::MappingRate => {
            "limits.new_mappings_per_second, or that of a class, decides; a host may be scanning."
        }
        R::PoolExhausted => {
            "Add addresses to the pool, or shorten timeouts; `natgate show pools` says what is \
             free."
        }
        R::MappingTableFull => {
            "Raise limits.mappings or limits.subscribers, which takes memory and a restart."
        }
        R::SessionTableFull => {
            "Raise limits.extra_sessions or limits.twice_sessions, which takes memory and a \
             restart."
        }
        R::Ambiguous => {
            "Another session has the same ends; give the subscribers different external addresses."
        }
        R::FragmentUnmatched | R::FragmentLimit => {
            "First fragments are missing, or there are too many at a time; limits.fragment_memory \
             and timeouts.fragment bound what waits."
        }
        R::FragmentOverlap | R::FragmentTooLong | R::FragmentTiny => {
            "Honest senders do not send such fragments; `natgate capture` shows from where they \
             come."
        }
        R::HandOverFull => {
            "Workers are too busy, or one far more than others: `natgate show workers`; add \
             workers."
        }
        R::NoRoute => {
            "Add a [[route]], or a gateway of that side; `natgate show routes` says what there is."
        }
        R::NoNeighbor => "The next hop is down, or does not answer ARP: `natgate show neighbors`.",
        R::TransmitFull => {
            "The link or its queue is full; look at the device's rate and queue length."
        }
        R::ExtensionHeaders | R::SegmentsLeft => {
            "IPv4 has no such headers; the sender must do without them towards IPv4."
        }
        R::Untranslatable => {
            "Add a prefix or a [[siit.map]] for the address; protocols such as IGMP stay in their own family."
        }
        R::NotGlobal => {
            "Use a prefix of your own, or set non_global = \"translate\" of [nat64] or [siit]."
        }
        R::UdpChecksumZero => {
            "ipv6.udp_checksum_zero decides; of fragments nobody can compute the checksum."
        }
        R::FragmentedIcmp => {
            "Send a smaller ping; ICMP of more than one fragment does not pass between the families."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
