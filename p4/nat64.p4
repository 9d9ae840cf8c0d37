// A stateful NAT64 for the Portable NIC Architecture, in the flavour of DPDK: RFC 6146, with the headers of RFC 7915.
//
// interface role -> ARP, neighbor discovery -> NAT (upload, download) -> headers -> longest prefix -> next hop
//
// Inside is IPv6, outside IPv4. The controller fills `interfaces`, `addresses`, `addresses6`, `pool`, `subscribers`,
// `routes`, `routes6`, `next_hops` and `next_hops6`, and may put static mappings into `upload` and `download`. Packets
// from inside add dynamic mappings. As in nat.p4, a mapping is an entry of each of the two tables, and the owner of the
// entry of `download` has the external port.
//
// It translates TCP, UDP and ICMP echo. It drops fragments, IPv4 options, IPv6 extension headers, ICMP errors, and UDP
// without a checksum, packets that are too big for the other side, and packets from inside to external addresses. It
// makes no ICMP errors. One /96 embeds the IPv4 addresses; the routes decide which of them hosts inside may reach, and
// which may reach hosts inside.
//
// An IPv6 address has three fields, because DPDK's pipeline has none of more than 64 bits, and because a /96 leaves
// the last 32 bits for an IPv4 address.

#include <core.p4>
#include <dpdk/pna.p4>

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_ARP = 0x0806;
const bit<16> ETHERTYPE_IPV6 = 0x86dd;
const bit<8> PROTOCOL_ICMP = 1;
const bit<8> PROTOCOL_TCP = 6;
const bit<8> PROTOCOL_UDP = 17;
const bit<8> PROTOCOL_ICMPV6 = 58;

// ICMP echo request and reply, and those of ICMPv6.
const bit<8> ECHO = 8;
const bit<8> ECHO_REPLY = 0;
const bit<8> ECHO_V6 = 128;
const bit<8> ECHO_REPLY_V6 = 129;

// ICMPv6: neighbor solicitation and advertisement, and the first message of discovery (RFC 4861).
const bit<8> ROUTER_SOLICITATION = 133;
const bit<8> SOLICITATION = 135;
const bit<8> ADVERTISEMENT = 136;

// Port of packets for the controller.
const PortId_t CONTROLLER = (PortId_t) 0xfffffffd;

// Expiry profiles, whose times the controller sets: five minutes; one; four; two hours and four.
const ExpireTimeProfileId_t UDP = (ExpireTimeProfileId_t) 0;
const ExpireTimeProfileId_t ICMP = (ExpireTimeProfileId_t) 1;
const ExpireTimeProfileId_t TCP_OPENING = (ExpireTimeProfileId_t) 2;
const ExpireTimeProfileId_t TCP_ESTABLISHED = (ExpireTimeProfileId_t) 3;

// Counts of dropped packets have these numbers.
enum bit<8> Reason {
    NONE = 0,
    NO_ROLE = 1,
    MALFORMED = 2,
    UNSUPPORTED = 3,
    NOT_SUBSCRIBER = 4,
    METERED = 5,
    NO_MAPPING = 6,
    NO_PORT = 7,
    NO_SYN = 8,
    TTL = 9,
    NO_ROUTE = 10,
    NO_NEIGHBOR = 11,
    NOT_LOCAL = 12,
    NOT_EMBEDDED = 13,
    NO_CHECKSUM = 14,
    SOURCE = 15,
    HAIRPIN = 16,
    TOO_BIG = 17
}

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ethertype;
}

header arp_t {
    bit<16> hardware;
    bit<16> protocol;
    bit<8> hardware_length;
    bit<8> protocol_length;
    bit<16> operation;
    bit<48> sender_mac;
    bit<32> sender;
    bit<48> target_mac;
    bit<32> target;
}

header ipv4_t {
    bit<8> version_ihl;
    bit<8> tos;
    bit<16> total_length;
    bit<16> identification;
    bit<16> flags_offset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

header ipv6_t {
    bit<32> version_class_flow;
    bit<16> payload_length;
    bit<8> next_header;
    bit<8> hop_limit;
    bit<64> source_high;
    bit<32> source_middle;
    bit<32> source_low;
    bit<64> destination_high;
    bit<32> destination_middle;
    bit<32> destination_low;
}

header tcp_t {
    bit<16> source;
    bit<16> destination;
    bit<32> sequence;
    bit<32> acknowledgement;
    bit<8> data_offset;
    bit<8> flags;
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent;
}

header udp_t {
    bit<16> source;
    bit<16> destination;
    bit<16> length;
    bit<16> checksum;
}

header icmp_t {
    bit<8> kind;
    bit<8> code;
    bit<16> checksum;
    bit<16> identifier;
    bit<16> sequence;
}

// A neighbor solicitation with the sender's hardware address, or the advertisement that answers it.
header neighbor_t {
    bit<8> kind;
    bit<8> code;
    bit<16> checksum;
    bit<32> flags;
    bit<64> target_high;
    bit<32> target_middle;
    bit<32> target_low;
    bit<8> option_kind;
    bit<8> option_length;
    bit<48> mac;
}

struct headers_t {
    ethernet_t ethernet;
    arp_t arp;
    ipv4_t ipv4;
    ipv6_t ipv6;
    neighbor_t neighbor;
    tcp_t tcp;
    udp_t udp;
    icmp_t icmp;
}

struct metadata_t {
    bool is_inside;
    bool is_local;              // the frame is for this box
    bool is_learning;           // a mapping is being made
    bool is_taken;              // another endpoint has the external port
    bool is_claimed;            // the sender has the external port
    bit<16> fragment;           // offset, and the flag of more fragments
    Reason reason;
    bit<8> protocol;            // as IPv4 numbers it
    bit<64> internal_high;
    bit<32> internal_middle;
    bit<32> internal_low;
    bit<16> internal_port;
    bit<32> external;
    bit<16> external_port;
    bit<16> first_port;         // of the pool's ports
    bit<16> last_port;
    bit<16> pool_index;         // of the external address
    bit<64> prefix_high;        // of embedded IPv4 addresses
    bit<32> prefix_middle;
    bit<16> mtu;                // of the other side
    bit<32> remote;             // IPv4 address of the remote host
    ExpireTimeProfileId_t profile;
    bit<64> hop_high;           // next hop; of an IPv4 next hop only the low part
    bit<32> hop_middle;
    bit<32> hop_low;
    PortId_t out_port;
}

parser Nat64Parser(
    packet_in pkt,
    out headers_t hdr,
    inout metadata_t meta,
    in pna_main_parser_input_metadata_t istd)
{
    state start {
        pkt.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_ARP: arp;
            ETHERTYPE_IPV4: ipv4;
            ETHERTYPE_IPV6: ipv6;
            default: accept;
        }
    }

    state arp {
        pkt.extract(hdr.arp);
        transition accept;
    }

    state ipv4 {
        pkt.extract(hdr.ipv4);
        meta.fragment = hdr.ipv4.flags_offset & 0x3fff;
        transition select(hdr.ipv4.version_ihl, meta.fragment, hdr.ipv4.protocol) {
            (0x45, 0, PROTOCOL_TCP): tcp;
            (0x45, 0, PROTOCOL_UDP): udp;
            (0x45, 0, PROTOCOL_ICMP): icmp;
            default: accept;
        }
    }

    state ipv6 {
        pkt.extract(hdr.ipv6);
        transition select(hdr.ipv6.next_header) {
            PROTOCOL_TCP: tcp;
            PROTOCOL_UDP: udp;
            PROTOCOL_ICMPV6: icmp_v6;
            default: accept;
        }
    }

    state icmp_v6 {
        transition select(hdr.ipv6.payload_length, hdr.ipv6.hop_limit, pkt.lookahead<bit<8>>()) {
            (32, 255, SOLICITATION): neighbor;
            default: icmp;
        }
    }

    state neighbor {
        pkt.extract(hdr.neighbor);
        transition accept;
    }

    state tcp {
        pkt.extract(hdr.tcp);
        transition accept;
    }

    state udp {
        pkt.extract(hdr.udp);
        transition accept;
    }

    state icmp {
        pkt.extract(hdr.icmp);
        transition accept;
    }
}

control Nat64PreControl(
    in headers_t hdr,
    inout metadata_t meta,
    in pna_pre_input_metadata_t istd,
    inout pna_pre_output_metadata_t ostd)
{
    apply {}
}

// Headers of one family for those of the other (RFC 7915). Sums of TCP and UDP differ by the addresses alone, as both
// pseudo headers have the same length and protocol; ICMP of IPv4 has no pseudo header.
control Translate(inout headers_t hdr, inout metadata_t meta) {
    InternetChecksum() ip_sum;
    InternetChecksum() sum;
    Random<bit<16>>(0, 0xffff) identification;

    bit<16> new_port;

    action subtract_ipv6() {
        sum.subtract({hdr.ipv6.source_high, hdr.ipv6.source_middle, hdr.ipv6.source_low});
        sum.subtract({hdr.ipv6.destination_high, hdr.ipv6.destination_middle, hdr.ipv6.destination_low});
    }

    action add_ipv6() {
        sum.add({hdr.ipv6.source_high, hdr.ipv6.source_middle, hdr.ipv6.source_low});
        sum.add({hdr.ipv6.destination_high, hdr.ipv6.destination_middle, hdr.ipv6.destination_low});
    }

    // Section 5.1. A packet that may not fit IPv6's smallest link is not cut further on.
    action make_ipv4() {
        hdr.ipv4.setValid();
        hdr.ipv4.version_ihl = 0x45;
        hdr.ipv4.tos = (bit<8>) (hdr.ipv6.version_class_flow >> 20);
        hdr.ipv4.total_length = hdr.ipv6.payload_length + 20;
        hdr.ipv4.identification = 0;
        hdr.ipv4.flags_offset = 0x4000;
        if (hdr.ipv4.total_length <= 1260) {
            hdr.ipv4.identification = identification.read();
            hdr.ipv4.flags_offset = 0;
        }
        hdr.ipv4.ttl = hdr.ipv6.hop_limit - 1;
        hdr.ipv4.protocol = meta.protocol;
        hdr.ipv4.checksum = 0;
        hdr.ipv4.source = meta.external;
        hdr.ipv4.destination = hdr.ipv6.destination_low;
        ip_sum.clear();
        ip_sum.add(hdr.ipv4);
        hdr.ipv4.checksum = ip_sum.get();
        hdr.ethernet.ethertype = ETHERTYPE_IPV4;
    }

    // Section 4.1.
    action make_ipv6() {
        hdr.ipv6.setValid();
        hdr.ipv6.version_class_flow = 0x60000000 | ((bit<32>) hdr.ipv4.tos << 20);
        hdr.ipv6.payload_length = hdr.ipv4.total_length - 20;
        hdr.ipv6.next_header = hdr.ipv4.protocol;
        if (meta.protocol == PROTOCOL_ICMP) {
            hdr.ipv6.next_header = PROTOCOL_ICMPV6;
        }
        hdr.ipv6.hop_limit = hdr.ipv4.ttl - 1;
        hdr.ipv6.source_high = meta.prefix_high;
        hdr.ipv6.source_middle = meta.prefix_middle;
        hdr.ipv6.source_low = hdr.ipv4.source;
        hdr.ipv6.destination_high = meta.internal_high;
        hdr.ipv6.destination_middle = meta.internal_middle;
        hdr.ipv6.destination_low = meta.internal_low;
        hdr.ethernet.ethertype = ETHERTYPE_IPV6;
    }

    apply {
        sum.clear();
        if (meta.is_inside) {
            make_ipv4();
            new_port = meta.external_port;
            subtract_ipv6();
            if (hdr.icmp.isValid()) {
                sum.subtract({hdr.ipv6.payload_length, 8w0, PROTOCOL_ICMPV6});
            } else {
                sum.add({hdr.ipv4.source, hdr.ipv4.destination});
            }
            sum.subtract({meta.internal_port});
        } else {
            make_ipv6();
            new_port = meta.internal_port;
            add_ipv6();
            if (hdr.icmp.isValid()) {
                sum.add({hdr.ipv6.payload_length, 8w0, PROTOCOL_ICMPV6});
            } else {
                sum.subtract({hdr.ipv4.source, hdr.ipv4.destination});
            }
            sum.subtract({meta.external_port});
        }
        sum.add({new_port});
        if (hdr.tcp.isValid()) {
            sum.subtract({hdr.tcp.checksum});
            hdr.tcp.checksum = sum.get();
            if (meta.is_inside) {
                hdr.tcp.source = new_port;
            } else {
                hdr.tcp.destination = new_port;
            }
        } else if (hdr.udp.isValid()) {
            sum.subtract({hdr.udp.checksum});
            hdr.udp.checksum = sum.get();
            // Zero would say that there is no checksum.
            if (hdr.udp.checksum == 0) {
                hdr.udp.checksum = 0xffff;
            }
            if (meta.is_inside) {
                hdr.udp.source = new_port;
            } else {
                hdr.udp.destination = new_port;
            }
        } else {
            sum.subtract({hdr.icmp.checksum, hdr.icmp.kind, hdr.icmp.code});
            if (hdr.icmp.kind == ECHO_V6) {
                hdr.icmp.kind = ECHO;
            } else if (hdr.icmp.kind == ECHO_REPLY_V6) {
                hdr.icmp.kind = ECHO_REPLY;
            } else if (hdr.icmp.kind == ECHO) {
                hdr.icmp.kind = ECHO_V6;
            } else {
                hdr.icmp.kind = ECHO_REPLY_V6;
            }
            sum.add({hdr.icmp.kind, hdr.icmp.code});
            hdr.icmp.checksum = sum.get();
            hdr.icmp.identifier = new_port;
        }
        if (meta.is_inside) {
            hdr.ipv6.setInvalid();
        } else {
            hdr.ipv4.setInvalid();
        }
    }
}

control Nat64Main(
    inout headers_t hdr,
    inout metadata_t meta,
    in pna_main_input_metadata_t istd,
    inout pna_main_output_metadata_t ostd)
{
    Counter<bit<64>, bit<8>>(256, PNA_CounterType_t.PACKETS) drops;
    Counter<bit<64>, bit<16>>(65536, PNA_CounterType_t.PACKETS_AND_BYTES) subscriber_out;
    Meter<bit<16>>(65536, PNA_MeterType_t.BYTES) subscriber_rate;

    InternetChecksum() header_sum;
    InternetChecksum() neighbor_sum;
    Translate() translate;

    action no_role() {
        meta.reason = Reason.NO_ROLE;
    }

    // The prefix is that of embedded IPv4 addresses: the first 96 bits. The MTU is that of the other side, at least
    // 1280.
    action inside(bit<48> mac, bit<64> prefix_high, bit<32> prefix_middle, bit<16> mtu) {
        meta.is_inside = true;
        meta.is_local = hdr.ethernet.destination == mac;
        meta.prefix_high = prefix_high;
        meta.prefix_middle = prefix_middle;
        meta.mtu = mtu;
    }

    action outside(bit<48> mac, bit<64> prefix_high, bit<32> prefix_middle, bit<16> mtu) {
        meta.is_inside = false;
        meta.is_local = hdr.ethernet.destination == mac;
        meta.prefix_high = prefix_high;
        meta.prefix_middle = prefix_middle;
        meta.mtu = mtu;
    }

    table interfaces {
        key = { istd.input_port : exact; }
        actions = { inside; outside; @defaultonly no_role; }
        const default_action = no_role();
        size = 64;
    }

    action answer(bit<48> mac) {
        hdr.arp.operation = 2;
        hdr.arp.target_mac = hdr.arp.sender_mac;
        hdr.arp.sender_mac = mac;
        bit<32> asked = hdr.arp.target;
        hdr.arp.target = hdr.arp.sender;
        hdr.arp.sender = asked;
        hdr.ethernet.destination = hdr.ethernet.source;
        hdr.ethernet.source = mac;
        send_to_port(istd.input_port);
    }

    action tell_controller() {
        send_to_port(CONTROLLER);
    }

    // The box's own IPv4 addresses, by port.
    table addresses {
        key = { istd.input_port : exact; hdr.arp.target : exact; }
        actions = { answer; @defaultonly tell_controller; }
        const default_action = tell_controller();
        size = 64;
    }

    action sum_neighbor() {
        neighbor_sum.clear();
        neighbor_sum.add({hdr.ipv6.source_high, hdr.ipv6.source_middle, hdr.ipv6.source_low});
        neighbor_sum.add({hdr.ipv6.destination_high, hdr.ipv6.destination_middle, hdr.ipv6.destination_low});
        neighbor_sum.add({hdr.ipv6.payload_length, 8w0, PROTOCOL_ICMPV6});
        neighbor_sum.add(hdr.neighbor);
    }

    // The advertisement is that of a router, solicited, and overrides (RFC 4861 section 4.4).
    action advertise(bit<48> mac) {
        hdr.neighbor.kind = ADVERTISEMENT;
        hdr.neighbor.flags = 0xe0000000;
        hdr.neighbor.option_kind = 2;
        hdr.neighbor.mac = mac;
        hdr.ipv6.destination_high = hdr.ipv6.source_high;
        hdr.ipv6.destination_middle = hdr.ipv6.source_middle;
        hdr.ipv6.destination_low = hdr.ipv6.source_low;
        hdr.ipv6.source_high = hdr.neighbor.target_high;
        hdr.ipv6.source_middle = hdr.neighbor.target_middle;
        hdr.ipv6.source_low = hdr.neighbor.target_low;
        hdr.neighbor.checksum = 0;
        sum_neighbor();
        hdr.neighbor.checksum = neighbor_sum.get();
        hdr.ethernet.destination = hdr.ethernet.source;
        hdr.ethernet.source = mac;
        send_to_port(istd.input_port);
    }

    // The box's own IPv6 addresses, by port.
    table addresses6 {
        key = {
            istd.input_port : exact;
            hdr.neighbor.target_high : exact;
            hdr.neighbor.target_middle : exact;
            hdr.neighbor.target_low : exact;
        }
        actions = { advertise; @defaultonly tell_controller; }
        const default_action = tell_controller();
        size = 64;
    }

    action subscriber(bit<16> index, bit<16> pool_index) {
        meta.pool_index = pool_index;
        subscriber_out.count(index, (bit<32>) hdr.ipv6.payload_length + 40);
        PNA_MeterColor_t color = subscriber_rate.dpdk_execute(
            index, PNA_MeterColor_t.GREEN, (bit<32>) hdr.ipv6.payload_length + 40);
        if (color == PNA_MeterColor_t.RED) {
            meta.reason = Reason.METERED;
        }
    }

    action no_subscriber() {
        meta.reason = Reason.NOT_SUBSCRIBER;
    }

    // Prefixes of at most 64 bits.
    table subscribers {
        key = { hdr.ipv6.source_high : lpm; }
        actions = { subscriber; @defaultonly no_subscriber; }
        const default_action = no_subscriber();
        size = 65536;
    }

    action external_address(bit<32> address, bit<16> first, bit<16> last) {
        meta.external = address;
        meta.first_port = first;
        meta.last_port = last;
    }

    action no_address() {
        meta.reason = Reason.NO_PORT;
    }

    table pool {
        key = { meta.pool_index : exact; }
        actions = { external_address; @defaultonly no_address; }
        const default_action = no_address();
        size = 4096;
    }

    // The internal port is the first candidate, or the first port of its parity.
    action first_port() {
        meta.external_port = meta.internal_port;
        if (meta.external_port < meta.first_port || meta.external_port > meta.last_port) {
            meta.external_port = meta.first_port + ((meta.external_port ^ meta.first_port) & 1);
        }
        if (meta.external_port < meta.first_port || meta.external_port > meta.last_port) {
            meta.external_port = meta.first_port;
        }
    }

    // The next candidate. Ports of UDP keep their parity (RFC 4787, REQ-4).
    action next_port() {
        bit<16> step = 1;
        if (meta.protocol == PROTOCOL_UDP) {
            step = 2;
        }
        if (meta.last_port - meta.external_port >= step) {
            meta.external_port = meta.external_port + step;
        } else {
            meta.external_port = meta.first_port + ((meta.external_port ^ meta.first_port) & (step - 1));
            if (meta.external_port > meta.last_port) {
                meta.external_port = meta.first_port;
            }
        }
        meta.is_taken = false;
    }

    // A SYN of another session does not shorten the time of an established one.
    action refresh() {
        if (meta.profile != TCP_OPENING) {
            set_entry_expire_time(meta.profile);
        }
        restart_expire_timer();
    }

    // A packet from outside has an external endpoint. If it is the entry's, the timer starts anew.
    action to_external(bit<32> address, bit<16> port) {
        if (meta.is_inside) {
            meta.external = address;
            meta.external_port = port;
            meta.is_learning = false;
        }
        if (meta.external == address && meta.external_port == port) {
            refresh();
        }
    }

    // Packets from outside make no mapping; TCP begins with a SYN alone, ICMP with a request. The second lookup, with
    // a port, adds the entry.
    action learn() {
        if (meta.is_learning) {
            add_entry("to_external", {meta.external, meta.external_port}, meta.profile);
        } else if (meta.is_inside) {
            if (meta.protocol == PROTOCOL_TCP && (hdr.tcp.flags & 0x16) != 0x02) {
                meta.reason = Reason.NO_SYN;
            } else if (meta.protocol == PROTOCOL_ICMP && hdr.icmp.kind != ECHO_V6) {
                meta.reason = Reason.NO_MAPPING;
            } else {
                meta.is_learning = true;
                first_port();
            }
        }
    }

    table upload {
        key = {
            meta.protocol : exact;
            meta.internal_high : exact;
            meta.internal_middle : exact;
            meta.internal_low : exact;
            meta.internal_port : exact;
        }
        actions = { to_external; @defaultonly learn; }
        const default_action = learn();
        add_on_miss = true;
        idle_timeout_with_auto_delete = true;
        size = 1048576;
    }

    action to_internal(bit<64> high, bit<32> middle, bit<32> low, bit<16> port) {
        if (meta.is_inside && (high != meta.internal_high || middle != meta.internal_middle ||
            low != meta.internal_low || port != meta.internal_port)) {
            meta.is_taken = true;
        } else {
            meta.internal_high = high;
            meta.internal_middle = middle;
            meta.internal_low = low;
            meta.internal_port = port;
            meta.is_claimed = true;
            refresh();
        }
    }

    // Packets from outside add nothing.
    action learn_return() {
        if (meta.is_inside) {
            add_entry(
                "to_internal",
                {meta.internal_high, meta.internal_middle, meta.internal_low, meta.internal_port},
                meta.profile);
        } else {
            meta.reason = Reason.NO_MAPPING;
        }
    }

    table download {
        key = {
            meta.protocol : exact;
            meta.external : exact;
            meta.external_port : exact;
        }
        actions = { to_internal; @defaultonly learn_return; }
        const default_action = learn_return();
        add_on_miss = true;
        idle_timeout_with_auto_delete = true;
        size = 1048576;
    }

    action via(bit<32> gateway, PortId_t port) {
        meta.hop_low = gateway;
        meta.out_port = port;
    }

    action on_link(PortId_t port) {
        meta.hop_low = meta.remote;
        meta.out_port = port;
    }

    action no_route() {
        meta.reason = Reason.NO_ROUTE;
    }

    // The prefix is that of external addresses.
    action hairpin() {
        meta.reason = Reason.HAIRPIN;
    }

    // Routes of remote hosts, for packets of both directions: a host outside without one may not send, either. With the
    // well-known prefix, `no_route` refuses the addresses that are not global (RFC 6052 section 3.1).
    table routes {
        key = { meta.remote : lpm; }
        actions = { via; on_link; hairpin; no_route; }
        const default_action = no_route();
        size = 65536;
    }

    action via6(bit<64> high, bit<32> middle, bit<32> low, PortId_t port) {
        meta.hop_high = high;
        meta.hop_middle = middle;
        meta.hop_low = low;
        meta.out_port = port;
    }

    action on_link6(PortId_t port) {
        meta.hop_high = hdr.ipv6.destination_high;
        meta.hop_middle = hdr.ipv6.destination_middle;
        meta.hop_low = hdr.ipv6.destination_low;
        meta.out_port = port;
    }

    // Prefixes of at most 64 bits.
    table routes6 {
        key = { hdr.ipv6.destination_high : lpm; }
        actions = { via6; on_link6; @defaultonly no_route; }
        const default_action = no_route();
        size = 65536;
    }

    action neighbor(bit<48> source, bit<48> destination) {
        hdr.ethernet.source = source;
        hdr.ethernet.destination = destination;
        send_to_port(meta.out_port);
    }

    action no_neighbor() {
        meta.reason = Reason.NO_NEIGHBOR;
    }

    table next_hops {
        key = { meta.out_port : exact; meta.hop_low : exact; }
        actions = { neighbor; @defaultonly no_neighbor; }
        const default_action = no_neighbor();
        size = 65536;
    }

    table next_hops6 {
        key = {
            meta.out_port : exact;
            meta.hop_high : exact;
            meta.hop_middle : exact;
            meta.hop_low : exact;
        }
        actions = { neighbor; @defaultonly no_neighbor; }
        const default_action = no_neighbor();
        size = 65536;
    }

    // Keys of the tables, and the time of a mapping.
    action classify(bit<8> protocol, bit<16> near, bit<16> far, ExpireTimeProfileId_t profile) {
        meta.protocol = protocol;
        meta.profile = profile;
        if (meta.is_inside) {
            meta.internal_high = hdr.ipv6.source_high;
            meta.internal_middle = hdr.ipv6.source_middle;
            meta.internal_low = hdr.ipv6.source_low;
            meta.internal_port = near;
        } else {
            meta.external = hdr.ipv4.destination;
            meta.external_port = far;
        }
    }

    // Checks the header, and that the family is that of the side. No host has an address of 0.0.0.0/8, 127.0.0.0/8, or
    // from 224.0.0.0 on.
    action check_ipv4() {
        header_sum.clear();
        header_sum.add(hdr.ipv4);
        meta.remote = hdr.ipv4.source;
        if (header_sum.get() != 0 || hdr.ipv4.total_length < 28 ||
            (hdr.tcp.isValid() && hdr.ipv4.total_length < 40)) {
            meta.reason = Reason.MALFORMED;
        } else if (meta.is_inside) {
            meta.reason = Reason.UNSUPPORTED;
        } else if ((meta.remote & 0xff000000) == 0 || (meta.remote & 0xff000000) == 0x7f000000 ||
            meta.remote >= 0xe0000000) {
            meta.reason = Reason.SOURCE;
        } else if (hdr.ipv4.ttl <= 1) {
            meta.reason = Reason.TTL;
        } else if (hdr.ipv4.total_length > meta.mtu - 20) {
            meta.reason = Reason.TOO_BIG;
        }
    }

    // IPv4's length has room for 65,515 bytes behind its header. No host has an address of the prefix (RFC 6146
    // section 3.5).
    action check_ipv6() {
        meta.remote = hdr.ipv6.destination_low;
        if ((hdr.ipv6.version_class_flow & 0xf0000000) != 0x60000000 || hdr.ipv6.payload_length > 65515 ||
            hdr.ipv6.payload_length < 8 || (hdr.tcp.isValid() && hdr.ipv6.payload_length < 20)) {
            meta.reason = Reason.MALFORMED;
        } else if (!meta.is_inside) {
            meta.reason = Reason.UNSUPPORTED;
        } else if (hdr.ipv6.source_high == meta.prefix_high && hdr.ipv6.source_middle == meta.prefix_middle) {
            meta.reason = Reason.SOURCE;
        } else if (hdr.ipv6.hop_limit <= 1) {
            meta.reason = Reason.TTL;
        } else if (hdr.ipv6.destination_high != meta.prefix_high ||
            hdr.ipv6.destination_middle != meta.prefix_middle) {
            meta.reason = Reason.NOT_EMBEDDED;
        } else if (hdr.ipv6.payload_length > meta.mtu - 20) {
            meta.reason = Reason.TOO_BIG;
        }
    }

    // Discovery of neighbors, on the side of IPv6.
    action check_neighbor() {
        sum_neighbor();
        if (neighbor_sum.get() != 0 || hdr.neighbor.code != 0 || hdr.neighbor.option_kind != 1 ||
            hdr.neighbor.option_length != 1 ||
            (hdr.ipv6.source_high == 0 && hdr.ipv6.source_middle == 0 && hdr.ipv6.source_low == 0)) {
            meta.reason = Reason.MALFORMED;
        }
    }

    apply {
        meta.reason = Reason.NONE;
        meta.protocol = 0;
        meta.is_learning = false;
        meta.is_taken = false;
        meta.is_claimed = false;
        interfaces.apply();
        if (istd.parser_error != error.NoError) {
            meta.reason = Reason.MALFORMED;
        }
        if (meta.reason == Reason.NONE) {
            if (hdr.arp.isValid() && hdr.arp.operation == 1) {
                addresses.apply();
            } else if (hdr.arp.isValid()) {
                tell_controller();
            } else if (hdr.neighbor.isValid()) {
                check_neighbor();
                if (meta.reason == Reason.NONE) {
                    addresses6.apply();
                }
            } else if (hdr.ipv6.isValid() && hdr.icmp.isValid() && hdr.icmp.kind >= ROUTER_SOLICITATION &&
                hdr.icmp.kind <= ADVERTISEMENT) {
                tell_controller();
            } else if (!meta.is_local) {
                meta.reason = Reason.NOT_LOCAL;
            } else if (hdr.tcp.isValid() || hdr.udp.isValid() || hdr.icmp.isValid()) {
                if (hdr.ipv4.isValid()) {
                    check_ipv4();
                } else {
                    check_ipv6();
                }
                if (meta.reason == Reason.NONE) {
                    if (hdr.tcp.isValid()) {
                        if ((hdr.tcp.flags & 0x16) == 0x02) {
                            classify(PROTOCOL_TCP, hdr.tcp.source, hdr.tcp.destination, TCP_OPENING);
                        } else {
                            classify(PROTOCOL_TCP, hdr.tcp.source, hdr.tcp.destination, TCP_ESTABLISHED);
                        }
                    } else if (hdr.udp.isValid()) {
                        classify(PROTOCOL_UDP, hdr.udp.source, hdr.udp.destination, UDP);
                        if (hdr.udp.checksum == 0) {
                            meta.reason = Reason.NO_CHECKSUM;
                        }
                    } else if (meta.is_inside && (hdr.icmp.kind == ECHO_V6 || hdr.icmp.kind == ECHO_REPLY_V6)) {
                        classify(PROTOCOL_ICMP, hdr.icmp.identifier, hdr.icmp.identifier, ICMP);
                    } else if (!meta.is_inside && (hdr.icmp.kind == ECHO || hdr.icmp.kind == ECHO_REPLY)) {
                        classify(PROTOCOL_ICMP, hdr.icmp.identifier, hdr.icmp.identifier, ICMP);
                    } else {
                        meta.reason = Reason.UNSUPPORTED;
                    }
                }
            } else {
                meta.reason = Reason.UNSUPPORTED;
            }
        }
        if (meta.reason == Reason.NONE && meta.protocol != 0) {
            routes.apply();
        }
        if (meta.reason == Reason.NONE && meta.protocol != 0 && meta.is_inside) {
            subscribers.apply();
            if (meta.reason == Reason.NONE) {
                pool.apply();
            }
        }
        if (meta.reason == Reason.NONE && meta.protocol != 0) {
            if (meta.is_inside) {
                upload.apply();
                if (meta.reason == Reason.NONE) {
                    download.apply();
                    if (meta.is_learning) {
                        if (meta.is_taken) {
                            next_port();
                            download.apply();
                        }
                        if (meta.is_taken) {
                            next_port();
                            download.apply();
                        }
                        if (meta.is_taken) {
                            next_port();
                            download.apply();
                        }
                    }
                    // An added entry is there now, if there was room.
                    if (!meta.is_claimed && !meta.is_taken) {
                        download.apply();
                    }
                    if (meta.is_claimed && meta.is_learning) {
                        upload.apply();
                        upload.apply();
                    }
                    if (!meta.is_claimed || meta.is_learning) {
                        meta.reason = Reason.NO_PORT;
                    }
                }
            } else {
                download.apply();
                if (meta.reason == Reason.NONE) {
                    upload.apply();
                }
            }
        }
        if (meta.reason == Reason.NONE && meta.protocol != 0) {
            translate.apply(hdr, meta);
            if (meta.is_inside) {
                next_hops.apply();
            } else {
                routes6.apply();
                if (meta.reason == Reason.NONE) {
                    next_hops6.apply();
                }
            }
        }
        if (meta.reason != Reason.NONE) {
            drops.count((bit<8>) meta.reason);
            drop_packet();
        }
    }
}

control Nat64Deparser(
    packet_out pkt,
    in headers_t hdr,
    in metadata_t meta,
    in pna_main_output_metadata_t ostd)
{
    apply {
        pkt.emit(hdr.ethernet);
        pkt.emit(hdr.arp);
        pkt.emit(hdr.ipv4);
        pkt.emit(hdr.ipv6);
        pkt.emit(hdr.neighbor);
        pkt.emit(hdr.tcp);
        pkt.emit(hdr.udp);
        pkt.emit(hdr.icmp);
    }
}

PNA_NIC(Nat64Parser(), Nat64PreControl(), Nat64Main(), Nat64Deparser()) main;
