// A program that is cut in two, with everything before the cut that something behind it may need.
#include <core.p4>
#include <dpdk/pna.p4>

header words_t {
    bit<16> a;
    bit<16> b;
    bit<32> c;
}

struct headers_t {
    words_t words;
    words_t other;
}

struct metadata_t {
    bit<32> note;
    bit<32> kept;
    bit<8> kind;
    bool was_hit;
}

struct told_t {
    bit<16> a;
    bit<32> note;
}

parser MainParser(packet_in pkt, out headers_t hdr, inout metadata_t meta,
                  in pna_main_parser_input_metadata_t istd) {
    state start {
        pkt.extract(hdr.words);
        meta.kept = hdr.words.c;
        transition select(hdr.words.b[1:0]) {
            1: more;
            default: accept;
        }
    }

    state more {
        pkt.extract(hdr.other);
        transition accept;
    }
}

control Pre(in headers_t hdr, inout metadata_t meta, in pna_pre_input_metadata_t istd,
            inout pna_pre_output_metadata_t ostd) {
    apply {
        meta.kind = hdr.words.a[7:0];
        if (meta.kind == 3) {
            exit;
        }
        meta.note = 77;
    }
}

// Its way out may be in the middle.
control Adder(inout bit<32> sum, in bit<32> more, out bit<16> calls) {
    Register<bit<16>, bit<8>>(4) seen;
    apply {
        calls = seen.read(sum[1:0] ++ 6w0 == 0 ? 8w0 : 8w1);
        if (more == 2) {
            calls = 9;
            return;
        }
        sum = sum + more;
        seen.write(0, calls + 1);
        if (sum[2:0] == 5) {
            sum = 0;
            exit;
        }
    }
}

control Main(inout headers_t hdr, inout metadata_t meta, in pna_main_input_metadata_t istd,
             inout pna_main_output_metadata_t ostd) {
    Counter<bit<16>, bit<8>>(100, PNA_CounterType_t.PACKETS_AND_BYTES) counted;
    Register<bit<32>, bit<8>>(16, 7) numbers;
    Random<bit<16>>(3, 1000) chance;
    Digest<told_t>() stations;
    InternetChecksum() sum;
    Adder() adder;

    bit<16> calls;
    bit<32> local;
    bit<16> drawn;

    action set(bit<32> x) {
        meta.note = x;
    }

    action mark(bit<16> x) {
        hdr.words.b = hdr.words.b ^ x;
        hdr.other.setInvalid();
    }

    table small {
        key = { hdr.words.a : exact; }
        actions = { set; mark; NoAction; }
        size = 8;
    }

    action known(bit<32> x) {
        local = local + x;
        restart_expire_timer();
    }

    action learn() {
        add_entry("known", {meta.kept}, (ExpireTimeProfileId_t) 1);
    }

    table learning {
        key = { hdr.words.a : exact; meta.kind : exact; }
        actions = { known; @defaultonly learn; }
        const default_action = learn();
        add_on_miss = true;
        idle_timeout_with_auto_delete = true;
        size = 4;
    }

    action take(bit<32> x) {
        hdr.words.c = hdr.words.c + x;
    }

    action leave() {
        meta.kept = 1;
        exit;
    }

    table large {
        key = { meta.note : exact; hdr.words.b : exact; }
        actions = { take; leave; NoAction; }
        size = 9000;
    }

    apply {
        send_to_port((PortId_t) 2);
        counted.count(meta.kind, hdr.words.c);
        bool small_hit = small.apply().hit;
        meta.was_hit = small_hit;
        if (learning.apply().miss) {
            local = local ^ 0x55;
        }
        sum.clear();
        sum.add({hdr.words.a, hdr.words.c});
        drawn = chance.read();
        bit<32> number = numbers.read(hdr.words.a[7:0]);
        numbers.write(hdr.words.a[7:0], number + 1);
        if (meta.kind == 2) {
            drop_packet();
        }
        switch (large.apply().action_run) {
            take: {
                adder.apply(local, meta.note, calls);
                hdr.words.b = calls;
            }
            NoAction: {
                if (meta.was_hit) {
                    send_to_port((PortId_t) (bit<32>) drawn);
                }
            }
        }
        if (hdr.words.a[0:0] == 1) {
            local = number;
        }
        stations.pack({hdr.words.a, meta.note});
        hdr.words.a = sum.get();
        hdr.words.c = hdr.words.c ^ local ^ number ^ meta.kept;
        if (small_hit) {
            large.apply();
        }
        hdr.words.b = hdr.words.b + drawn;
    }
}

control Deparser(packet_out pkt, in headers_t hdr, in metadata_t meta,
                 in pna_main_output_metadata_t ostd) {
    apply {
        pkt.emit(hdr.words);
        if (meta.kept != 1) {
            pkt.emit(hdr.other);
        }
    }
}

PNA_NIC(MainParser(), Pre(), Main(), Deparser()) main;
