// A NAT for the Portable NIC Architecture, in the flavour of DPDK.
//
// interface role -> learning of stations, ARP -> NAT (upload, download) -> longest prefix -> next hop
//
// The controller fills `interfaces`, `addresses`, `pool`, `subscribers`, `routes` and `next_hops`, and may put static
// mappings into `upload` and `download`; dynamic ones are added by packets from inside, as `stations` are by what
// stations send.
//
// A mapping is an entry of each of the two, and whoever has the entry of `download` has the external port: that one
// is made first, and only where there is none. Who takes it away from a learnt mapping removes its entry of `upload`
// as well; until then that endpoint's packets are dropped.
//
// It asks for nothing that DPDK's pipeline does not have: fields are whole bytes, and nothing depends on the packet's
// length, or on what adding an entry returns. Whether there was room the table is asked.
// Tables are asked more than once, as the language allows and DPDK's pipeline can; BMv2 could not.

#include <core.p4>
#include <dpdk/pna.p4>

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_ARP = 0x0806;
const bit<8> PROTOCOL_ICMP = 1;
const bit<8> PROTOCOL_TCP = 6;
const bit<8> PROTOCOL_UDP = 17;

// Where packets for the controller go.
const PortId_t CONTROLLER = (PortId_t) 0xfffffffd;

// Expiry profiles, whose times the controller sets: five minutes; one; four; two hours and four; five.
const ExpireTimeProfileId_t UDP = (ExpireTimeProfileId_t) 0;
const ExpireTimeProfileId_t ICMP = (ExpireTimeProfileId_t) 1;
const ExpireTimeProfileId_t TCP_OPENING = (ExpireTimeProfileId_t) 2;
const ExpireTimeProfileId_t TCP_ESTABLISHED = (ExpireTimeProfileId_t) 3;
const ExpireTimeProfileId_t STATION = (ExpireTimeProfileId_t) 4;

// What dropped packets are counted by.
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
    SAME_LINK = 12
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

struct headers_t {
    ethernet_t ethernet;
    arp_t arp;
    ipv4_t ipv4;
    tcp_t tcp;
    udp_t udp;
    icmp_t icmp;
}

struct metadata_t {
    bool is_inside;
    bool is_local;              // for this box, not another station of the link
    bool is_learning;           // a mapping is being made
    bool is_taken;              // the external port is somebody else's
    bool is_claimed;            // it is the sender's
    bool is_sender;             // the station asked for has sent the frame
    bit<48> station;
    bit<16> fragment;           // its offset, and whether more follow
    Reason reason;
    bit<8> protocol;
    bit<32> internal;
    bit<16> internal_port;
    bit<32> external;
    bit<16> external_port;
    bit<16> first_port;         // of those that are given out
    bit<16> last_port;
    bit<16> pool_index;         // of the external address
    ExpireTimeProfileId_t profile;
    bit<32> next_hop;
    PortId_t out_port;
}

parser NatParser(
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

control NatPreControl(
    in headers_t hdr,
    inout metadata_t meta,
    in pna_pre_input_metadata_t istd,
    inout pna_pre_output_metadata_t ostd)
{
    apply {}
}

// Incremental checksums (RFC 1624, equation 3).
control Translate(inout headers_t hdr, inout metadata_t meta) {
    InternetChecksum() ip_sum;
    InternetChecksum() transport_sum;

    bit<32> old_address;
    bit<32> new_address;
    bit<16> old_port;
    bit<16> new_port;

    apply {
        ip_sum.clear();
        ip_sum.subtract({hdr.ipv4.checksum, hdr.ipv4.ttl, hdr.ipv4.protocol});
        ip_sum.subtract({hdr.ipv4.source, hdr.ipv4.destination});
        if (meta.is_inside) {
            old_address = hdr.ipv4.source;
            new_address = meta.external;
            old_port = meta.internal_port;
            new_port = meta.external_port;
            hdr.ipv4.source = new_address;
        } else {
            old_address = hdr.ipv4.destination;
            new_address = meta.internal;
            old_port = meta.external_port;
            new_port = meta.internal_port;
            hdr.ipv4.destination = new_address;
        }
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        ip_sum.add({hdr.ipv4.ttl, hdr.ipv4.protocol});
        ip_sum.add({hdr.ipv4.source, hdr.ipv4.destination});
        hdr.ipv4.checksum = ip_sum.get();

        transport_sum.clear();
        if (hdr.tcp.isValid()) {
            transport_sum.subtract({hdr.tcp.checksum, old_address, old_port});
            transport_sum.add({new_address, new_port});
            hdr.tcp.checksum = transport_sum.get();
            if (meta.is_inside) {
                hdr.tcp.source = new_port;
            } else {
                hdr.tcp.destination = new_port;
            }
        } else if (hdr.udp.isValid()) {
            // Zero says that there is no checksum.
            if (hdr.udp.checksum != 0) {
                transport_sum.subtract({hdr.udp.checksum, old_address, old_port});
                transport_sum.add({new_address, new_port});
                hdr.udp.checksum = transport_sum.get();
                if (hdr.udp.checksum == 0) {
                    hdr.udp.checksum = 0xffff;
                }
            }
            if (meta.is_inside) {
                hdr.udp.source = new_port;
            } else {
                hdr.udp.destination = new_port;
            }
        } else {
            // ICMP has no pseudo header.
            transport_sum.subtract({hdr.icmp.checksum, old_port});
            transport_sum.add({new_port});
            hdr.icmp.checksum = transport_sum.get();
            hdr.icmp.identifier = new_port;
        }
    }
}

control NatMain(
    inout headers_t hdr,
    inout metadata_t meta,
    in pna_main_input_metadata_t istd,
    inout pna_main_output_metadata_t ostd)
{
    Counter<bit<64>, bit<8>>(256, PNA_CounterType_t.PACKETS) drops;
    Counter<bit<64>, bit<16>>(65536, PNA_CounterType_t.PACKETS_AND_BYTES) subscriber_out;
    Meter<bit<16>>(65536, PNA_MeterType_t.BYTES) subscriber_rate;

    InternetChecksum() header_sum;
    Translate() translate;

    action no_role() {
        meta.reason = Reason.NO_ROLE;
    }

    action inside(bit<48> mac) {
        meta.is_inside = true;
        meta.is_local = hdr.ethernet.destination == mac;
    }

    action outside(bit<48> mac) {
        meta.is_inside = false;
        meta.is_local = hdr.ethernet.destination == mac;
    }

    table interfaces {
        key = { istd.input_port : exact; }
        actions = { inside; outside; @defaultonly no_role; }
        const default_action = no_role();
        size = 64;
    }

    // A station that has moved is known by its old port until that is forgotten.
    action at(PortId_t port) {
        if (meta.is_sender) {
            if (port == istd.input_port) {
                restart_expire_timer();
            }
        } else if (port == istd.input_port) {
            meta.reason = Reason.SAME_LINK;
        } else {
            send_to_port(port);
        }
    }

    action unknown_station() {
        if (meta.is_sender) {
            add_entry("at", {istd.input_port}, STATION);
        } else {
            meta.reason = Reason.NO_NEIGHBOR;
        }
    }

    // Asked for who sends the frame, and for whom it is if it is not for this box.
    table stations {
        key = { meta.station : exact; }
        actions = { at; @defaultonly unknown_station; }
        const default_action = unknown_station();
        add_on_miss = true;
        idle_timeout_with_auto_delete = true;
        size = 4096;
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

    // The box's own addresses, by the port that is asked.
    table addresses {
        key = { istd.input_port : exact; hdr.arp.target : exact; }
        actions = { answer; @defaultonly tell_controller; }
        const default_action = tell_controller();
        size = 64;
    }

    action subscriber(bit<16> index, bit<16> pool_index) {
        meta.pool_index = pool_index;
        subscriber_out.count(index, (bit<32>) hdr.ipv4.total_length);
        PNA_MeterColor_t color = subscriber_rate.dpdk_execute(
            index, PNA_MeterColor_t.GREEN, (bit<32>) hdr.ipv4.total_length);
        if (color == PNA_MeterColor_t.RED) {
            meta.reason = Reason.METERED;
        }
    }

    action no_subscriber() {
        meta.reason = Reason.NOT_SUBSCRIBER;
    }

    table subscribers {
        key = { hdr.ipv4.source : lpm; }
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

    // The internal port is asked for first, or the first of its parity.
    action first_port() {
        meta.external_port = meta.internal_port;
        if (meta.external_port < meta.first_port || meta.external_port > meta.last_port) {
            meta.external_port = meta.first_port + ((meta.external_port ^ meta.first_port) & 1);
        }
        if (meta.external_port < meta.first_port || meta.external_port > meta.last_port) {
            meta.external_port = meta.first_port;
        }
    }

    // The port after one that is taken. UDP's keep their parity (RFC 4787, REQ-4).
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

    // Another session's SYN does not shorten what an established one has.
    action refresh() {
        if (meta.profile != TCP_OPENING) {
            set_entry_expire_time(meta.profile);
        }
        restart_expire_timer();
    }

    // A packet from outside has its external endpoint. If it is this one, the timer starts anew.
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

    // Packets from outside make no mapping; TCP begins with a SYN alone, ICMP with a query. Asked again when it has a
    // port, the table gets the entry.
    action learn() {
        if (meta.is_learning) {
            add_entry("to_external", {meta.external, meta.external_port}, meta.profile);
        } else if (meta.is_inside) {
            if (meta.protocol == PROTOCOL_TCP && (hdr.tcp.flags & 0x16) != 0x02) {
                meta.reason = Reason.NO_SYN;
            } else if (meta.protocol == PROTOCOL_ICMP && hdr.icmp.kind != 8 && hdr.icmp.kind != 13) {
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
            meta.internal : exact;
            meta.internal_port : exact;
        }
        actions = { to_external; @defaultonly learn; }
        const default_action = learn();
        add_on_miss = true;
        idle_timeout_with_auto_delete = true;
        size = 1048576;
    }

    action to_internal(bit<32> address, bit<16> port) {
        if (meta.is_inside && (address != meta.internal || port != meta.internal_port)) {
            meta.is_taken = true;
        } else {
            meta.internal = address;
            meta.internal_port = port;
            meta.is_claimed = true;
            refresh();
        }
    }

    // From outside nothing is learnt.
    action learn_return() {
        if (meta.is_inside) {
            add_entry("to_internal", {meta.internal, meta.internal_port}, meta.profile);
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
        meta.next_hop = gateway;
        meta.out_port = port;
    }

    action on_link(PortId_t port) {
        meta.next_hop = hdr.ipv4.destination;
        meta.out_port = port;
    }

    action no_route() {
        meta.reason = Reason.NO_ROUTE;
    }

    table routes {
        key = { hdr.ipv4.destination : lpm; }
        actions = { via; on_link; @defaultonly no_route; }
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
        key = { meta.out_port : exact; meta.next_hop : exact; }
        actions = { neighbor; @defaultonly no_neighbor; }
        const default_action = no_neighbor();
        size = 65536;
    }

    // What the tables are asked by, and how long a mapping lives.
    action classify(bit<8> protocol, bit<16> near, bit<16> far, ExpireTimeProfileId_t profile) {
        meta.protocol = protocol;
        meta.profile = profile;
        if (meta.is_inside) {
            meta.internal = hdr.ipv4.source;
            meta.internal_port = near;
        } else {
            meta.external = hdr.ipv4.destination;
            meta.external_port = far;
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
        if (meta.reason == Reason.NONE && hdr.ipv4.isValid() && hdr.ipv4.version_ihl == 0x45) {
            header_sum.clear();
            header_sum.add(hdr.ipv4);
            if (header_sum.get() != 0) {
                meta.reason = Reason.MALFORMED;
            }
        }
        if (meta.reason == Reason.NONE) {
            // Nobody sends as a group.
            if ((hdr.ethernet.source & 0x010000000000) == 0) {
                meta.station = hdr.ethernet.source;
                meta.is_sender = true;
                stations.apply();
            }
            if (hdr.arp.isValid() && hdr.arp.operation == 1) {
                addresses.apply();
            } else if (hdr.arp.isValid()) {
                tell_controller();
            } else if (!meta.is_local) {
                meta.station = hdr.ethernet.destination;
                meta.is_sender = false;
                stations.apply();
            } else if (hdr.tcp.isValid() || hdr.udp.isValid() || hdr.icmp.isValid()) {
                if (hdr.tcp.isValid()) {
                    if ((hdr.tcp.flags & 0x16) == 0x02) {
                        classify(PROTOCOL_TCP, hdr.tcp.source, hdr.tcp.destination, TCP_OPENING);
                    } else {
                        classify(PROTOCOL_TCP, hdr.tcp.source, hdr.tcp.destination, TCP_ESTABLISHED);
                    }
                } else if (hdr.udp.isValid()) {
                    classify(PROTOCOL_UDP, hdr.udp.source, hdr.udp.destination, UDP);
                } else if (hdr.icmp.kind == 0 || hdr.icmp.kind == 8 || hdr.icmp.kind == 13 || hdr.icmp.kind == 14) {
                    classify(PROTOCOL_ICMP, hdr.icmp.identifier, hdr.icmp.identifier, ICMP);
                } else {
                    meta.reason = Reason.UNSUPPORTED;
                }
                if (meta.reason == Reason.NONE && hdr.ipv4.ttl <= 1) {
                    meta.reason = Reason.TTL;
                }
            } else {
                meta.reason = Reason.UNSUPPORTED;
            }
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
                    // What was added is there now, if there was room.
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
            routes.apply();
            if (meta.reason == Reason.NONE) {
                next_hops.apply();
            }
        }
        if (meta.reason != Reason.NONE) {
            drops.count((bit<8>) meta.reason);
            drop_packet();
        }
    }
}

control NatDeparser(
    packet_out pkt,
    in headers_t hdr,
    in metadata_t meta,
    in pna_main_output_metadata_t ostd)
{
    apply {
        pkt.emit(hdr.ethernet);
        pkt.emit(hdr.arp);
        pkt.emit(hdr.ipv4);
        pkt.emit(hdr.tcp);
        pkt.emit(hdr.udp);
        pkt.emit(hdr.icmp);
    }
}

PNA_NIC(NatParser(), NatPreControl(), NatMain(), NatDeparser()) main;
