// Longest prefix: of several entries that fit the one with the longest prefix counts.
#include <core.p4>
#include <dpdk/pna.p4>

header words_t { bit<16> a; bit<16> b; bit<32> c; }
struct headers_t { words_t words; }
struct metadata_t { bit<32> note; }

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
    action to(bit<16> x) { hdr.words.b = x; }
    table routes {
        key = { hdr.words.c : lpm; }
        actions = { to; }
        default_action = to(9);
    }

    apply {
        send_to_port((PortId_t) 2);
        routes.apply();
    }
}

control Deparser(packet_out pkt, in headers_t hdr, in metadata_t meta,
                 in pna_main_output_metadata_t ostd) {
    apply { pkt.emit(hdr); }
}

PNA_NIC(MainParser(), Pre(), Main(), Deparser()) main;
