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
    BadLength "bad_length" "The frame or a header ends too early, or length fields contradict \
        each other.";
    BadHeaderChecksum "bad_header_checksum" "The IPv4 header checksum is wrong.";
    BadOptions "bad_options" "An IP option runs past the header.";
    SourceRoute "source_route" "The packet carries a source-route option.";
    MartianSource "martian_source" "The source is a loopback, multicast, broadcast, class E or \
        zero address.";
    MartianDestination "martian_destination" "The destination is a loopback, multicast, \
        broadcast, class E or zero address.";
    Land "land" "Source and destination are the same address (the LAND attack).";
    SpoofedSource "spoofed_source" "The source is an own or an external address, or in a prefix \
        of NAT64.";
    UnknownRealm "unknown_realm" "The frame's VLAN tag names no realm.";
    OtherRealm "other_realm" "The packet is for another realm, which the sender's realm may not \
        reach.";
    NotSubscriber "not_subscriber" "The inside source is not a subscriber and matches no rule.";
    Rule "rule" "A rule of kind drop applies.";
    SameSide "same_side" "The packet would leave by the side of its arrival.";
    NotForUs "not_for_us" "The packet came from outside and its destination is not an external \
        address.";
    LocalUnsupported "local_unsupported" "The packet is for an address of the gateway itself, \
        which answers only ping.";
    RequestLimit "request_limit" "Requests for mappings (PCP, NAT-PMP) arrive faster than the \
        gateway answers them.";
    TtlExceeded "ttl_exceeded" "The time to live expired at the gateway.";
    TooBig "too_big" "The packet exceeds the MTU of the next link and prohibits fragmentation.";
    IcmpBadChecksum "icmp_bad_checksum" "An ICMP error's checksum, or its embedded packet's \
        header checksum, is wrong.";
    IcmpBadEmbedded "icmp_bad_embedded" "An ICMP error's embedded packet cannot be read.";
    IcmpUnsupported "icmp_unsupported" "The gateway does not translate ICMP messages of this type.";
    IcmpNoSession "icmp_no_session" "An ICMP error quotes a packet that belongs to no session.";
    NoMapping "no_mapping" "No mapping has this external endpoint.";
    Filtered "filtered" "The filtering behavior does not admit this remote endpoint.";
    TcpNotSyn "tcp_not_syn" "A TCP packet other than a SYN belongs to no session.";
    HairpinDisabled "hairpin_disabled" "Subscribers may not reach each other through external \
        addresses.";
    PortQuota "port_quota" "The subscriber or its class has reached the limit of mappings of this \
        protocol, or the subscriber has reached the limit of blocks or ports of the pool.";
    SessionLimit "session_limit" "The mapping, the subscriber or its class has reached the limit \
        of sessions.";
    MappingRate "mapping_rate" "The subscriber or its class creates mappings faster than the \
        limit permits.";
    PoolExhausted "pool_exhausted" "The pool has no free external port that the subscriber may \
        use.";
    MappingTableFull "mapping_table_full" "The number of mappings has reached the configured \
        maximum.";
    SessionTableFull "session_table_full" "The number of sessions has reached the configured \
        maximum.";
    Ambiguous "ambiguous" "The NAT could not assign replies: another subscriber uses this \
        portless protocol with this remote address, one endpoint would be reached, or seen, as \
        two endpoints, or another mapping of the same external endpoint has a session with this \
        remote endpoint.";
    FragmentUnmatched "fragment_unmatched" "The first fragment of this datagram did not arrive in \
        time, or was dropped.";
    FragmentOverlap "fragment_overlap" "Fragments of this datagram overlap.";
    FragmentTooLong "fragment_too_long" "The fragment ends beyond 65,535 bytes.";
    FragmentTiny "fragment_tiny" "The first fragment is too short to hold the transport header, \
        or a later one is malformed.";
    FragmentLimit "fragment_limit" "The memory for held fragments, the table of fragmented \
        datagrams, or the identifications of an external address are exhausted, in total or for \
        this sender.";
    HandOverFull "hand_over_full" "The worker that must process the packet has no room for more \
        packets.";
    NoRoute "no_route" "No route leads to the destination.";
    NoNeighbor "no_neighbor" "The next hop did not answer ARP or Neighbor Discovery, or too many \
        packets waited for its answer.";
    TransmitFull "transmit_full" "The device did not accept the packet.";
    ExtensionHeaders "extension_headers" "The IPv6 extension headers are too many, end too early, \
        or follow a fragment header, so that the packet cannot become IPv4.";
    SegmentsLeft "segments_left" "An IPv6 routing header has segments left, which IPv4 cannot \
        express.";
    Untranslatable "untranslatable" "The other address family has no counterpart of the protocol \
        or of an address.";
    NotGlobal "not_global" "An address in the well-known prefix 64:ff9b::/96 contains an IPv4 \
        address that is not global.";
    UdpChecksumZero "udp_checksum_zero" "The UDP datagram has no checksum, IPv6 requires a \
        checksum, and the gateway may not or cannot compute the checksum.";
    FragmentedIcmp "fragmented_icmp" "The checksum of a fragmented ICMP message cannot be \
        translated to the other address family.";
    NoBinding "no_binding" "No customer of a softwire has the IPv4 address and the port of the \
        packet.";
    SoftwireSource "softwire_source" "A customer of a softwire sent from an IPv4 address, a port \
        or an IPv6 address that is not its own.";
    InboundIcmp "inbound_icmp" "ICMP from outside to customers of lw4o6 is switched off.";
    EcnCongestion "ecn_congestion" "The path through the tunnel is congested, and the sender of \
        the packet does not understand the mark (RFC 6040).";
}
