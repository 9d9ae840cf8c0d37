// `select` by values, masks and ranges, of one key and of several; the first case that fits counts.
#include <core.p4>
#include <dpdk/pna.p4>

header words_t { bit<16> a; bit<16> b; bit<32> c; }
struct headers_t { words_t words; }
struct metadata_t { bit<32> note; }

parser MainParser(packet_in pkt, out headers_t hdr, inout metadata_t meta,
                  in pna_main_parser_input_metadata_t istd) {
    state start {
        pkt.extract(hdr.words);
        transition select(hdr.words.a, hdr.words.b) {
            (1, 2): values;
            (0x1200 &&& 0xff00, _): mask;
            (1000 .. 1999, 5 .. 9): ranges;
            default: other;
        }
    }
    state values {
        meta.note = 1;
        transition accept;
    }
    state mask {
        meta.note = 2;
        transition accept;
    }
    state ranges {
        meta.note = 3;
        transition accept;
    }
    state other {
        meta.note = 4;
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
        hdr.words.c = meta.note;
    }
}

control Deparser(packet_out pkt, in headers_t hdr, in metadata_t meta,
                 in pna_main_output_metadata_t ostd) {
    apply { pkt.emit(hdr); }
}

PNA_NIC(MainParser(), Pre(), Main(), Deparser()) main;
