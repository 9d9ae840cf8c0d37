// States that lead back: a list of options, each with its length, up to the end mark.
#include <core.p4>
#include <dpdk/pna.p4>

header words_t { bit<16> a; bit<16> b; bit<32> c; }
struct headers_t { words_t words; }
struct metadata_t { bit<32> note; }

parser MainParser(packet_in pkt, out headers_t hdr, inout metadata_t meta,
                  in pna_main_parser_input_metadata_t istd) {
    state start {
        meta.note = 0;
        transition option;
    }
    state option {
        bit<8> size = pkt.lookahead<bit<8>>();
        transition select(size) {
            0: end;
            default: skip;
        }
    }
    state skip {
        bit<8> bytes = pkt.lookahead<bit<8>>();
        pkt.advance((bit<32>) bytes << 3);
        meta.note = meta.note + 1;
        transition option;
    }
    state end {
        pkt.advance(8);
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
        if (hdr.words.isValid()) { hdr.words.c = meta.note; }
    }
}

control Deparser(packet_out pkt, in headers_t hdr, in metadata_t meta,
                 in pna_main_output_metadata_t ostd) {
    apply { pkt.emit(hdr); }
}

PNA_NIC(MainParser(), Pre(), Main(), Deparser()) main;
