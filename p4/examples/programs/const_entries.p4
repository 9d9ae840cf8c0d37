// Entries that are part of the program: the first that fits counts.
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
    action to(bit<32> x) { hdr.words.c = x; }
    table rules {
        key = { hdr.words.a : ternary; }
        actions = { to; }
        const default_action = to(9);
        const entries = {
            1 : to(1);
            0x0102 &&& 0xff02 : to(2);
            0x0100 &&& 0xff00 : to(x = 3);
        }
    }

    apply {
        send_to_port((PortId_t) 2);
        rules.apply();
    }
}

control Deparser(packet_out pkt, in headers_t hdr, in metadata_t meta,
                 in pna_main_output_metadata_t ostd) {
    apply { pkt.emit(hdr); }
}

PNA_NIC(MainParser(), Pre(), Main(), Deparser()) main;
