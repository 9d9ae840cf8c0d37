// A program that has a little of everything, for the stages to be looked at.
#include <core.p4>
#include <dpdk/pna.p4>

header frame_t {
    bit<48> destination;
    bit<48> source;
    bit<16> kind;
}

struct headers_t {
    frame_t frame;
}

struct metadata_t {
    bit<16> note;
}

bit<16> twice(in bit<16> x) {
    return x << 1;
}

parser Parse(
    packet_in pkt,
    out headers_t hdr,
    inout metadata_t meta,
    in pna_main_parser_input_metadata_t istd)
{
    state start {
        pkt.extract(hdr.frame);
        transition select(hdr.frame.kind) {
            0x0800 &&& 0xff00: known;
            default: accept;
        }
    }

    state known {
        meta.note = twice(hdr.frame.kind[7:0] ++ 8w1);
        transition accept;
    }
}

control Pre(
    in headers_t hdr,
    inout metadata_t meta,
    in pna_pre_input_metadata_t istd,
    inout pna_pre_output_metadata_t ostd)
{
    apply {}
}

control Main(
    inout headers_t hdr,
    inout metadata_t meta,
    in pna_main_input_metadata_t istd,
    inout pna_main_output_metadata_t ostd)
{
    Counter<bit<32>, bit<8>>(4, PNA_CounterType_t.PACKETS) seen;

    action send(PortId_t port) {
        seen.count(1);
        send_to_port(port);
    }

    table forward {
        key = {
            hdr.frame.destination : exact;
            meta.note : ternary;
        }
        actions = { send; NoAction; }
        const default_action = NoAction();
        const entries = {
            (0xffffffffffff, _) : send((PortId_t) 7);
        }
        size = 16;
    }

    apply {
        if (forward.apply().miss && hdr.frame.isValid()) {
            drop_packet();
        }
    }
}

control Deparse(
    packet_out pkt,
    in headers_t hdr,
    in metadata_t meta,
    in pna_main_output_metadata_t ostd)
{
    apply {
        pkt.emit(hdr.frame);
    }
}

PNA_NIC(Parse(), Pre(), Main(), Deparse()) main;
