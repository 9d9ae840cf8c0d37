// Fields that are no bytes: a header is packed bit by bit.
#include <core.p4>
#include <dpdk/pna.p4>

header odd_t { bit<3> a; bit<11> b; bool c; bit<1> d; bit<16> e; }
struct headers_t { odd_t odd; }
struct metadata_t { bit<32> note; }

parser MainParser(packet_in pkt, out headers_t hdr, inout metadata_t meta,
                  in pna_main_parser_input_metadata_t istd) {
    state start {
        pkt.extract(hdr.odd);
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
        hdr.odd.a = ~hdr.odd.a ^ 1;
        hdr.odd.b = hdr.odd.b >> 1;
        hdr.odd.c = !hdr.odd.c;
        hdr.odd.e = (bit<16>) hdr.odd.e[15:4];
    }
}

control Deparser(packet_out pkt, in headers_t hdr, in metadata_t meta,
                 in pna_main_output_metadata_t ostd) {
    apply { pkt.emit(hdr); }
}

PNA_NIC(MainParser(), Pre(), Main(), Deparser()) main;
