// Headers are valid or not: what is invalid is not sent, and equals what is invalid.
#include <core.p4>
#include <dpdk/pna.p4>

header words_t { bit<16> a; bit<16> b; bit<32> c; }
struct headers_t { words_t words; words_t other; }
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
    apply {
        send_to_port((PortId_t) 2);
        words_t none = {#};
        switch (hdr.words.a) {
            1: { hdr.other = {5, 6, 7}; }
            2: { hdr.words.setInvalid(); }
            3: {
                hdr.other = hdr.words;
                if (hdr.other == hdr.words && hdr.other.isValid()) { hdr.words.c = 1; }
            }
            default: {
                hdr.other.setValid();
                hdr.other = {#};
                if (hdr.other == none && !hdr.other.isValid()) { hdr.words.c = 2; }
            }
        }
    }
}

control Deparser(packet_out pkt, in headers_t hdr, in metadata_t meta,
                 in pna_main_output_metadata_t ostd) {
    apply { pkt.emit(hdr); }
}

PNA_NIC(MainParser(), Pre(), Main(), Deparser()) main;
