// Constants, and arithmetic without widths, when the program is compiled.
#include <core.p4>
#include <dpdk/pna.p4>

header words_t { bit<16> a; bit<16> b; bit<32> c; }
struct headers_t { words_t words; }
struct metadata_t { bit<32> note; }

const int KILO = 1 << 10;
const bit<16> LIMIT = (bit<16>) KILO;
const int SEVEN = 100 / 13 % 8;
const bit<32> TOP = 1 << (32 - 1);
const bool IS_LARGE = KILO > 1000;

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
    const bit<32> FIVE = IS_LARGE ? 32w5 : 6;

    apply {
        send_to_port((PortId_t) 2);
        hdr.words.a = LIMIT;
        hdr.words.b = SEVEN;
        hdr.words.c = TOP + FIVE;
    }
}

control Deparser(packet_out pkt, in headers_t hdr, in metadata_t meta,
                 in pna_main_output_metadata_t ostd) {
    apply { pkt.emit(hdr); }
}

PNA_NIC(MainParser(), Pre(), Main(), Deparser()) main;
