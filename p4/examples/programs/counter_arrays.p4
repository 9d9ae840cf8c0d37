// Counters of packets and bytes; what is beyond the array counts nowhere.
#include <core.p4>
#include <dpdk/pna.p4>

header words_t { bit<16> a; bit<16> b; bit<32> c; }
struct headers_t { words_t words; }
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
    Counter<bit<64>, bit<16>>(4, PNA_CounterType_t.PACKETS_AND_BYTES) both;
    Counter<bit<32>, bit<8>>(4, PNA_CounterType_t.PACKETS) packets;

    apply {
        send_to_port((PortId_t) 2);
        both.count(hdr.words.a, (bit<32>) hdr.words.b);
        packets.count(3);
    }
}

control Deparser(packet_out pkt, in headers_t hdr, in metadata_t meta,
                 in pna_main_output_metadata_t ostd) {
    apply { pkt.emit(hdr); }
}

PNA_NIC(MainParser(), Pre(), Main(), Deparser()) main;
