// An enum with values of its own choice, and one whose members just differ.
#include <core.p4>
#include <dpdk/pna.p4>

header words_t { bit<16> a; bit<16> b; bit<32> c; }
struct headers_t { words_t words; }
struct metadata_t { bit<32> note; }

enum bit<16> Colour { RED = 7, GREEN = 9 }
enum Found { FIRST, SECOND, NEITHER }

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
        Colour colour = (Colour) hdr.words.a;
        Found found = Found.NEITHER;
        if (colour == Colour.RED) {
            found = Found.FIRST;
        } else if (colour == Colour.GREEN) {
            found = Found.SECOND;
        }
        switch (found) {
            Found.FIRST: { hdr.words.b = 1; }
            Found.SECOND: { hdr.words.b = 2; }
            default: { hdr.words.b = 3; }
        }
        hdr.words.c = (bit<32>) (bit<16>) Colour.GREEN;
    }
}

control Deparser(packet_out pkt, in headers_t hdr, in metadata_t meta,
                 in pna_main_output_metadata_t ostd) {
    apply { pkt.emit(hdr); }
}

PNA_NIC(MainParser(), Pre(), Main(), Deparser()) main;
