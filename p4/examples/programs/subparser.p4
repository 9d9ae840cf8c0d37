// A parser in a parser, with parameters of its own.
#include <core.p4>
#include <dpdk/pna.p4>

header words_t { bit<16> a; bit<16> b; bit<32> c; }
struct headers_t { words_t words; words_t other; }
struct metadata_t { bit<32> note; }

parser Words(packet_in pkt, out words_t words, inout bit<32> sum) {
    state start {
        pkt.extract(words);
        sum = sum + (bit<32>) words.a;
        transition accept;
    }
}

parser MainParser(packet_in pkt, out headers_t hdr, inout metadata_t meta,
                  in pna_main_parser_input_metadata_t istd) {
    Words() one;
    Words() two;
    state start {
        one.apply(pkt, hdr.words, meta.note);
        two.apply(pkt, hdr.other, meta.note);
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
