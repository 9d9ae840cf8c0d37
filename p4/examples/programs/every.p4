// A program with every construct that becomes code of its own, for what executes it to be compared.
#include <core.p4>
#include <dpdk/pna.p4>

error { Unwanted }

header head_t {
    bit<4> version;
    bit<1> flag;
    bit<3> count;
    bit<48> address;
    int<8> delta;
    bit<13> offset;
    bit<3> rest;
}

header words_t {
    bit<16> a;
    bit<16> b;
    bit<32> c;
    bit<128> wide;
}

header label_t {
    bit<20> label;
    bit<3> class;
    bit<1> is_last;
    bit<8> ttl;
}

struct headers_t {
    head_t head;
    label_t label;
    words_t words;
    words_t other;
}

struct pair_t {
    bit<16> left;
    bool right;
}

struct metadata_t {
    bit<32> note;
    bit<8> seen;
    bool is_marked;
    pair_t pair;
}

struct told_t {
    bit<48> address;
    bit<16> a;
}

parser Words(packet_in pkt, out words_t words, inout bit<32> note) {
    state start {
        pkt.extract(words);
        note = note + (bit<32>) words.a;
        transition select(words.b) {
            0xdead: reject;
            default: accept;
        }
    }
}

parser P(packet_in pkt, out headers_t hdr, inout metadata_t meta,
         in pna_main_parser_input_metadata_t istd) {
    Words() words;

    state start {
        pkt.extract(hdr.head);
        verify(hdr.head.version != 9, error.Unwanted);
        meta.seen = 0;
        transition select(hdr.head.flag, hdr.head.count) {
            (1, _): labels;
            (_, 1 &&& 3): skipped;
            (0, 0): plain;
            (0, 2): bits_of;
        }
    }

    state labels {
        pkt.extract(hdr.label);
        meta.seen = meta.seen + 1;
        transition select(hdr.label.is_last) {
            0: labels;
            1: plain;
        }
    }

    state skipped {
        pkt.advance(12);
        transition plain;
    }

    state bits_of {
        bit<12> next = pkt.lookahead<bit<12>>();
        meta.note = (bit<32>) next;
        pkt.advance((bit<32>) next[3:0]);
        transition plain;
    }

    state plain {
        words.apply(pkt, hdr.words, meta.note);
        transition accept;
    }
}

control Pre(in headers_t hdr, inout metadata_t meta, in pna_pre_input_metadata_t istd,
            inout pna_pre_output_metadata_t ostd) {
    apply {
        if (istd.parser_error == error.PacketTooShort) {
            meta.is_marked = true;
        }
    }
}

bit<16> folded(in bit<32> x) {
    if (x == 0) {
        return 0xffff;
    }
    return x[31:16] ^ x[15:0];
}

bit<32> next(inout bit<8> count) {
    count = count + 1;
    return (bit<32>) count;
}

control Arithmetic(inout words_t words, in int<8> delta) {
    apply {
        bit<16> a = words.a;
        bit<16> b = words.b;
        bit<13> odd = a[12:0];
        int<5> small = (int<5>) (bit<5>) b[4:0];
        int<16> wide = (int<16>) small;
        words.a = a * b + (a |-| b) - (b |+| a);
        words.b = (a << b[3:0]) | (b >> a[7:0]) ^ (bit<16>) (odd |+| 13w100);
        words.c = (bit<32>) (bit<16>) (wide >> b[2:0]) + (small < 0 ? 32w1 : 2);
        words.c = words.c ^ ((bit<32>) (bit<8>) (delta |+| 8s100) << 8);
        words.c = words.c ^ ((bit<32>) (bit<8>) (delta |-| 8s100) << 16);
        words.c = words.c ^ ((bit<32>) (bit<8>) -delta << 24);
        words.c[7:4] = a[3:0] & ~b[11:8];
        words.wide = (words.wide << 3) + (bit<128>) (odd ++ a[0:0]);
        words.wide = a == 0 ? words.wide : words.wide |-| (bit<128>) words.c;
        if (delta >= 8s5 && !(odd == 3) || small != -5s1) {
            words.b = words.b ^ folded(words.c);
        }
    }
}

control Main(inout headers_t hdr, inout metadata_t meta, in pna_main_input_metadata_t istd,
             inout pna_main_output_metadata_t ostd) {
    Counter<bit<16>, bit<8>>(100, PNA_CounterType_t.PACKETS_AND_BYTES) seen;
    Meter<bit<8>>(8, PNA_MeterType_t.BYTES) rate;
    Meter<bit<8>>(8, PNA_MeterType_t.PACKETS) packets;
    Register<bit<32>, bit<8>>(16, 7) numbers;
    Register<pair_t, bit<16>>(64, {5, true}) pairs;
    Hash<bit<16>>(PNA_HashAlgorithm_t.CRC32) crc;
    Hash<bit<32>>(PNA_HashAlgorithm_t.ONES_COMPLEMENT16) sum_of;
    Hash<bit<13>>(PNA_HashAlgorithm_t.IDENTITY) same;
    Random<bit<16>>(3, 1000) chance;
    Digest<told_t>() stations;
    InternetChecksum() sum;
    Arithmetic() arithmetic;

    action known(bit<32> note, bool marks) {
        meta.note = note;
        meta.is_marked = marks;
        if (hdr.head.count == 0) {
            set_entry_expire_time((ExpireTimeProfileId_t) (ExpireTimeProfileIdUint_t) hdr.words.a[1:0]);
        }
        restart_expire_timer();
    }

    action learn() {
        bool added = add_entry("known", {meta.note, true}, (ExpireTimeProfileId_t) 1);
        if (added) {
            stations.pack({hdr.head.address, hdr.words.a});
        } else {
            meta.seen = 99;
        }
    }

    table learning {
        key = { hdr.words.a : exact; hdr.head.version : exact; }
        actions = { known; @defaultonly learn; }
        const default_action = learn();
        add_on_miss = true;
        idle_timeout_with_auto_delete = true;
        size = 4;
    }

    action set(bit<32> x) {
        hdr.words.c = x;
    }

    action leave() {
        meta.note = 3;
        exit;
    }

    action to(PortId_t port) {
        send_to_port(port);
    }

    table prefixes {
        key = { hdr.words.b : lpm; meta.is_marked : exact; }
        actions = { set; leave; NoAction; }
        size = 6;
    }

    table masks {
        key = { hdr.words.a : ternary; hdr.words.b : lpm; hdr.head.flag : exact; }
        actions = { set; to; NoAction; }
        const entries = {
            (0x0100 &&& 0xff00, _, 1) : set(17);
            (_, 0x8000 &&& 0x8000, 0) : set(18);
        }
        size = 8;
    }

    table long {
        key = { hdr.words.wide : exact; hdr.head.address : exact; }
        actions = { set; to; NoAction; }
        default_action = set(1);
        size = 9000;
    }

    apply {
        send_to_port((PortId_t) 2);
        seen.count((bit<8>) hdr.head.version, (bit<32>) hdr.words.a);
        seen.count(hdr.words.a[7:0]);
        if (learning.apply().hit) {
            meta.pair.left = meta.pair.left + 1;
        }
        switch (prefixes.apply().action_run) {
            set: { meta.note = meta.note + next(meta.seen); }
            default: { hdr.other = hdr.words; }
        }
        if (masks.apply().miss) {
            arithmetic.apply(hdr.words, hdr.head.delta);
        }
        long.apply();
        PNA_MeterColor_t colour =
            rate.dpdk_execute(hdr.words.a[7:0], PNA_MeterColor_t.GREEN, hdr.words.c);
        if (colour == PNA_MeterColor_t.RED) {
            drop_packet();
        } else {
            colour = packets.dpdk_execute(hdr.words.b[7:0], colour, 1);
        }
        bit<32> number = numbers.read(hdr.words.b[7:0]);
        numbers.write(hdr.words.b[7:0], number + hdr.words.c);
        pair_t pair = pairs.read(hdr.words.a);
        pairs.write(hdr.words.a, {pair.left + 1, !pair.right});
        sum.clear();
        sum.add({hdr.head.version, hdr.head.flag, hdr.head.count, hdr.head.delta, hdr.words.wide});
        sum.subtract({hdr.words.c, hdr.words.b, hdr.head.address});
        switch (hdr.head.count) {
            1: 2: { hdr.words.b = crc.get_hash({hdr.words.wide, hdr.head.count}); }
            3: { hdr.words.c = sum_of.get_hash({hdr.words.a, hdr.head.offset}); }
            4: { hdr.words.a = (bit<16>) same.get_hash(13w7, {hdr.words.wide}, 13w1024); }
            5: { hdr.words.b = chance.read(); }
            default: { hdr.words.b = sum.get(); }
        }
        if (meta.is_marked) {
            hdr.head.offset = hdr.head.offset + 1;
            hdr.label.setInvalid();
        }
        if (pair.right) {
            hdr.words.c = hdr.words.c ^ number ^ (colour == PNA_MeterColor_t.YELLOW ? 32w1 : meta.note);
        }
        hdr.head.count = (bit<3>) meta.pair.left;
    }
}

control Dep(packet_out pkt, in headers_t hdr, in metadata_t meta,
            in pna_main_output_metadata_t ostd) {
    apply {
        pkt.emit(hdr.head);
        pkt.emit(hdr.label);
        if (meta.seen == 2) {
            pkt.emit(hdr.other);
        }
        pkt.emit(hdr.words);
    }
}

PNA_NIC(P(), Pre(), Main(), Dep()) main;
