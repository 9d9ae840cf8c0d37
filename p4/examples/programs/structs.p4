// Structs in structs: initial values by place and by name, copies, comparison.
#include <core.p4>
#include <dpdk/pna.p4>

header words_t { bit<16> a; bit<16> b; bit<32> c; }
struct headers_t { words_t words; }
struct metadata_t { bit<32> note; }

struct pair_t { bit<16> one; bit<16> two; }
struct both_t { pair_t left; pair_t right; }

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
        both_t both = {{hdr.words.a, hdr.words.b}, {two = hdr.words.a, one = hdr.words.b}};
        both_t copy = both;
        copy.left.one = both.left.one + both.right.one;
        hdr.words.b = copy.left.one;
        hdr.words.c[31:16] = both.left.one == copy.right.two ? 16w1 : 0;
        hdr.words.c[15:0] = both.left == both.right ? 16w1 : 0;
    }
}

control Deparser(packet_out pkt, in headers_t hdr, in metadata_t meta,
                 in pna_main_output_metadata_t ostd) {
    apply { pkt.emit(hdr); }
}

PNA_NIC(MainParser(), Pre(), Main(), Deparser()) main;
