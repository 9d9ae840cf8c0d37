// Numbers of 128 bits.
#include <core.p4>
#include <dpdk/pna.p4>

header wide_t { bit<128> a; bit<128> b; }
struct headers_t { wide_t wide; }
struct metadata_t { bit<32> note; }

parser MainParser(packet_in pkt, out headers_t hdr, inout metadata_t meta,
                  in pna_main_parser_input_metadata_t istd) {
    state start {
        pkt.extract(hdr.wide);
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
        bit<128> x = hdr.wide.a;
        hdr.wide.a = x + hdr.wide.b;
        hdr.wide.b = x << 127;
    }
}

control Deparser(packet_out pkt, in headers_t hdr, in metadata_t meta,
                 in pna_main_output_metadata_t ostd) {
    apply { pkt.emit(hdr); }
}

PNA_NIC(MainParser(), Pre(), Main(), Deparser()) main;
