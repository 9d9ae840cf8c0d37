// What parsers fail with reaches the control: errors of the core library and of its own.
#include <core.p4>
#include <dpdk/pna.p4>

header words_t { bit<16> a; bit<16> b; bit<32> c; }
struct headers_t { words_t words; }
struct metadata_t { bit<32> note; }

error { Refused }

parser MainParser(packet_in pkt, out headers_t hdr, inout metadata_t meta,
                  in pna_main_parser_input_metadata_t istd) {
    state start {
        pkt.extract(hdr.words);
        verify(hdr.words.a != 2, error.Refused);
        transition select(hdr.words.a) {
            1: accept;
            4: reject;
        }
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
        if (istd.parser_error == error.NoError) {
            hdr.words.c = 1;
        } else if (istd.parser_error == error.Refused) {
            hdr.words.c = 2;
        } else if (istd.parser_error == error.NoMatch) {
            hdr.words.c = 3;
        } else if (istd.parser_error == error.PacketTooShort) {
            drop_packet();
        }
    }
}

control Deparser(packet_out pkt, in headers_t hdr, in metadata_t meta,
                 in pna_main_output_metadata_t ostd) {
    apply { pkt.emit(hdr); }
}

PNA_NIC(MainParser(), Pre(), Main(), Deparser()) main;
