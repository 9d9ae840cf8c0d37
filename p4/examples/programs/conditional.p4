// `if` and `?:`; the right side of && and || is only looked at if the left side leaves it open.
#include <core.p4>
#include <dpdk/pna.p4>

header words_t { bit<16> a; bit<16> b; bit<32> c; }
struct headers_t { words_t words; }
struct metadata_t { bit<32> note; }

bool is_set(in bit<16> value, inout bit<16> calls) {
    calls = calls + 1;
    return value != 0;
}

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
        bit<16> calls = 0;
        bit<16> x = hdr.words.a;
        bit<16> y = hdr.words.b;
        bool both = x != 0 && is_set(y, calls);
        bool either = y != 0 || is_set(x, calls);
        if (x == 0 && y == 0) {
            calls = calls + 1;
        } else {
            calls = calls + 1;
        }
        hdr.words.a = both ? 16w1 : 0;
        hdr.words.b = calls;
        hdr.words.c = either ? 32w1 : 2;
    }
}

control Deparser(packet_out pkt, in headers_t hdr, in metadata_t meta,
                 in pna_main_output_metadata_t ostd) {
    apply { pkt.emit(hdr); }
}

PNA_NIC(MainParser(), Pre(), Main(), Deparser()) main;
