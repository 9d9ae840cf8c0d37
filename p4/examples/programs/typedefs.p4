// Other names for types, and types of their own, which casts go to and from.
#include <core.p4>
#include <dpdk/pna.p4>

header words_t { bit<16> a; bit<16> b; bit<32> c; }
struct headers_t { words_t words; }
struct metadata_t { bit<32> note; }

typedef bit<16> half_t;
typedef half_t port_t;
type bit<16> Own_t;

parser MainParser(packet_in pkt, out headers_t hdr, inout metadata_t meta,
                  in pna_main_parser_input_metadata_t istd) {
    state start {
        pkt.extract(hdr.words);
        transition accept;
    }
}

control Pre(in headers_t hdr, inout metadata_t meta, in pna_pre_input_metadata_t istd,
            inout pna_pre_output_metadata_t ostd) {
    apply {}
}

control Main(inout headers_t hdr, inout metadata_t meta, in pna_main_input_metadata_t istd,
             inout pna_main_output_metadata_t ostd) {
    apply {
        send_to_port((PortId_t) 2);
        port_t x = hdr.words.a;
        Own_t own = (Own_t) hdr.words.b;
        Own_t other = own;
        hdr.words.a = (half_t) other;
        hdr.words.b = x;
        if (own == other) {
            hdr.words.c = x ++ (bit<16>) own;
        }
    }
}

control Deparser(packet_out pkt, in headers_t hdr, in metadata_t meta,
                 in pna_main_output_metadata_t ostd) {
    apply { pkt.emit(hdr); }
}

PNA_NIC(MainParser(), Pre(), Main(), Deparser()) main;
