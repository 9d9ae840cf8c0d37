// The Portable NIC Architecture as DPDK has it, with adding of entries on a miss, as far as it is supported.

#include <core.p4>

typedef bit<32> PortIdUint_t;
typedef bit<64> TimestampUint_t;
typedef bit<8> ClassOfServiceUint_t;
typedef bit<8> ExpireTimeProfileIdUint_t;
typedef bit<3> PassNumberUint_t;
typedef bit<32> SecurityAssocIdUint_t;

type PortIdUint_t PortId_t;
type TimestampUint_t Timestamp_t;                       // nanoseconds
type ClassOfServiceUint_t ClassOfService_t;
type ExpireTimeProfileIdUint_t ExpireTimeProfileId_t;
type PassNumberUint_t PassNumber_t;
type SecurityAssocIdUint_t SecurityAssocId_t;
typedef error ParserError_t;

enum PNA_Direction_t { NET_TO_HOST, HOST_TO_NET }
enum PNA_HashAlgorithm_t { IDENTITY, CRC32, CRC16, ONES_COMPLEMENT16, TARGET_DEFAULT }
enum PNA_CounterType_t { PACKETS, BYTES, PACKETS_AND_BYTES }
enum PNA_MeterType_t { PACKETS, BYTES }
enum PNA_MeterColor_t { RED, GREEN, YELLOW }

extern Hash<O> {
    Hash(PNA_HashAlgorithm_t algo);
    O get_hash<D>(in D data);
    O get_hash<T, D>(in T base, in D data, in T max);   // base + hash % max
}

// The Internet checksum, which can be updated; its state is the packet's own.
extern InternetChecksum {
    InternetChecksum();
    void clear();
    void add<T>(in T data);                             // of whole 16-bit words
    void subtract<T>(in T data);
    bit<16> get();
    bit<16> get_state();
    void set_state(in bit<16> checksum_state);
}

extern Counter<W, S> {
    Counter(bit<32> n_counters, PNA_CounterType_t kind);
    void count(in S index);
    void count(in S index, in bit<32> pkt_len);
}

// Two rates, three colours (RFC 2698).
extern Meter<S> {
    Meter(bit<32> n_meters, PNA_MeterType_t kind);
    PNA_MeterColor_t dpdk_execute(in S index, in PNA_MeterColor_t color, in bit<32> pkt_len);
    PNA_MeterColor_t dpdk_execute(in S index, in bit<32> pkt_len);
}

extern Register<T, S> {
    Register(bit<32> size);
    Register(bit<32> size, T initial_value);
    T read(in S index);
    void write(in S index, in T value);
}

extern Random<T> {
    Random(T min, T max);                               // both can come out
    T read();
}

// Messages to the control plane.
extern Digest<T> {
    Digest();
    void pack(in T data);
}

struct pna_pre_input_metadata_t {
    PortId_t input_port;
    ParserError_t parser_error;
    PNA_Direction_t direction;
    PassNumber_t pass;
    bool loopedback;
}

struct pna_pre_output_metadata_t {
    bool decrypt;
    SecurityAssocId_t said;
    bit<16> decrypt_start_offset;
}

struct pna_main_parser_input_metadata_t {
    PNA_Direction_t direction;
    PassNumber_t pass;
    bool loopedback;
    PortId_t input_port;
}

struct pna_main_input_metadata_t {
    PNA_Direction_t direction;
    PassNumber_t pass;
    bool loopedback;
    Timestamp_t timestamp;
    ParserError_t parser_error;
    ClassOfService_t class_of_service;
    PortId_t input_port;
}

struct pna_main_output_metadata_t {
    ClassOfService_t class_of_service;
}

// Where the packet goes; the last call counts. Without one it is dropped.
extern void drop_packet();
extern void send_to_port(PortId_t dest_port);

// In the default action of a table that adds on a miss: the key just missed gets an entry.
extern bool add_entry<T>(
    string action_name,
    in T action_params,
    in ExpireTimeProfileId_t expire_time_profile_id);

// In an action of a table whose entries expire: the entry just hit.
extern void set_entry_expire_time(in ExpireTimeProfileId_t expire_time_profile_id);
extern void restart_expire_timer();

extern T SelectByDirection<T>(in PNA_Direction_t direction, in T n2h_value, in T h2n_value);

control PreControlT<PH, PM>(
    in PH pre_hdr,
    inout PM pre_user_meta,
    in pna_pre_input_metadata_t istd,
    inout pna_pre_output_metadata_t ostd);

parser MainParserT<MH, MM>(
    packet_in pkt,
    out MH main_hdr,
    inout MM main_user_meta,
    in pna_main_parser_input_metadata_t istd);

control MainControlT<MH, MM>(
    inout MH main_hdr,
    inout MM main_user_meta,
    in pna_main_input_metadata_t istd,
    inout pna_main_output_metadata_t ostd);

control MainDeparserT<MH, MM>(
    packet_out pkt,
    in MH main_hdr,
    in MM main_user_meta,
    in pna_main_output_metadata_t ostd);

package PNA_NIC<PH, PM, MH, MM>(
    MainParserT<MH, MM> main_parser,
    PreControlT<PH, PM> pre_control,
    MainControlT<MH, MM> main_control,
    MainDeparserT<MH, MM> main_deparser);
