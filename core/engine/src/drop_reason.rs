//! Reasons for dropping packets. One list makes the enum, the names of the counters and
//! docs/drop-reasons.md.

macro_rules! drop_reasons {
    ($($variant:ident $name:literal $text:literal;)*) => {
        /// Reason for which a packet was dropped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DropReason {
            $(#[doc = $text] $variant,)*
        }

        impl DropReason {
            /// Every reason, in the order of the enum.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The reason's name in counters, logs and documentation.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// One sentence for people about the reason.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }
    };
}

drop_reasons! {
    NotIpv4 "not_ipv4" "The frame does not carry IPv4.";
    BadLength "bad_length" "The frame or a header ends too early, or length fields contradict each other.";
    BadHeaderChecksum "bad_header_checksum" "The IPv4 header checksum is wrong.";
    BadOptions "bad_options" "An IP option runs past the header.";
    SourceRoute "source_route" "The packet carries a source-route option.";
    MartianSource "martian_source" "The source is a loopback, multicast, broadcast, class E or zero address.";
    MartianDestination "martian_destination" "The destination is a loopback, multicast, broadcast, class E or zero address.";
    Land "land" "Source and destination are the same address (the LAND attack).";
    SpoofedSource "spoofed_source" "The source is one of the gateway's own or external addresses.";
    UnknownRealm "unknown_realm" "The frame's VLAN tag names no realm.";
    OtherRealm "other_realm" "The packet is for another realm, which its own may not reach.";
    NotSubscriber "not_subscriber" "The inside source is no subscriber and matches no rule.";
    Rule "rule" "A rule of kind drop applies.";
    SameSide "same_side" "The packet would leave by the side it came from.";
    NotForUs "not_for_us" "The packet came from outside and its destination is not an external address.";
    LocalUnsupported "local_unsupported" "The packet is addressed to the gateway itself, which answers only ping.";
    RequestLimit "request_limit" "Requests for mappings (PCP, NAT-PMP) come faster than they are served.";
    TtlExceeded "ttl_exceeded" "The time to live ran out here.";
    TooBig "too_big" "The packet does not fit the next link's MTU and may not be fragmented.";
    IcmpBadChecksum "icmp_bad_checksum" "An ICMP error's checksum, or its embedded packet's header checksum, is wrong.";
    IcmpBadEmbedded "icmp_bad_embedded" "An ICMP error's embedded packet cannot be read.";
    IcmpUnsupported "icmp_unsupported" "The ICMP type is not one that is translated.";
    IcmpNoSession "icmp_no_session" "An ICMP error quotes a packet of no session.";
    NoMapping "no_mapping" "No mapping has this external endpoint.";
    Filtered "filtered" "The filtering behavior does not admit this remote endpoint.";
    TcpNotSyn "tcp_not_syn" "A TCP packet other than a SYN belongs to no session.";
    HairpinDisabled "hairpin_disabled" "Subscribers may not reach each other through external addresses.";
    PortQuota "port_quota" "The subscriber, or its class in all, has as many mappings of this protocol as it may have, or the subscriber as many blocks or ports of the pool.";
    SessionLimit "session_limit" "The mapping, the subscriber, or its class in all, has as many sessions as it may have.";
    MappingRate "mapping_rate" "The subscriber, or its class in all, makes new mappings faster than it may.";
    PoolExhausted "pool_exhausted" "No external port is free that the subscriber may have.";
    MappingTableFull "mapping_table_full" "The configured number of mappings is reached.";
    SessionTableFull "session_table_full" "The configured number of sessions is reached.";
    Ambiguous "ambiguous" "Answers could not be told apart: a protocol without ports is in use by another subscriber towards this remote address, one endpoint would be reached, or seen, under two names, or another mapping of the same external endpoint has a session with this remote endpoint.";
    FragmentUnmatched "fragment_unmatched" "The first fragment of this datagram did not come in time, or was itself dropped.";
    FragmentOverlap "fragment_overlap" "Fragments of this datagram overlap.";
    FragmentTooLong "fragment_too_long" "The fragment ends beyond 65,535 bytes.";
    FragmentTiny "fragment_tiny" "The first fragment is too short to hold the transport header, or a later one is malformed.";
    FragmentLimit "fragment_limit" "Memory for waiting fragments, the table of fragmented datagrams, or the identifications of an external address are used up, in all or by this sender.";
    HandOverFull "hand_over_full" "The worker that the packet is for has no room for more packets.";
    NoRoute "no_route" "No route leads to the destination.";
    NoNeighbor "no_neighbor" "The next hop did not answer ARP, or too many packets were waiting for it.";
    TransmitFull "transmit_full" "The device could not take the packet.";
    ExtensionHeaders "extension_headers" "The IPv6 extension headers are too many, end too early, or follow a fragment header, so that the packet cannot become IPv4.";
    SegmentsLeft "segments_left" "An IPv6 routing header has segments left, which IPv4 cannot express.";
    Untranslatable "untranslatable" "The other address family has no counterpart of the protocol or of an address.";
    NotGlobal "not_global" "An IPv4 address that is not global stands in the well-known prefix 64:ff9b::/96.";
    UdpChecksumZero "udp_checksum_zero" "The UDP datagram has no checksum, which IPv6 requires, and none may or can be computed.";
    FragmentedIcmp "fragmented_icmp" "The checksum of a fragmented ICMP message cannot be translated to the other address family.";
}
