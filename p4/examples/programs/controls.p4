// Controls in controls: each instance has its own tables and registers.
#include <core.p4>
#include <dpdk/pna.p4>

header words_t { bit<16> a; bit<16> b; bit<32> c; }
struct headers_t { words_t words; }
struct metadata_t { bit<32> note; }

control Adder(in bit<16> key, inout bit<16> sum, out bit<16> calls) {
    Register<bit<16>, bit<8>>(1) seen;
    action plus(bit<16> x) { sum = sum + x; }
    table add {
        key = { key : exact; }
        actions = { plus; NoAction; }
    }
    apply {
        add.apply();
        calls = seen.read(0) + 1;
        seen.write(0, calls);
    }
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
    Adder() first;
    Adder() second;

    apply {
        send_to_port((PortId_t) 2);
        bit<16> sum = 0;
        bit<16> calls;
        first.apply(hdr.words.a, sum, calls);
        hdr.words.c[31:16] = calls;
        second.apply(hdr.words.a, sum, calls);
        hdr.words.c[15:0] = calls;
        hdr.words.b = sum;
    }
}

control Deparser(packet_out pkt, in headers_t hdr, in metadata_t meta,
                 in pna_main_output_metadata_t ostd) {
    apply { pkt.emit(hdr); }
}

PNA_NIC(MainParser(), Pre(), Main(), Deparser()) main;
