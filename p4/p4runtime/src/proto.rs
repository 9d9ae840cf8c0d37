//! Messages of P4Runtime, as far as they are supported: fields by the specification's numbers.
//!
//! Fields that are not here are skipped when a message is read. A field that would change the
//! meaning of a request is here to be refused: as [`Unsupported`], whatever its content. Enums are
//! numbers, so that messages can name unknown values.

use prost::{Message, Oneof};

/// A message whose content is ignored.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Unsupported {}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Uint128 {
    #[prost(uint64, tag = "1")]
    pub(crate) high: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) low: u64,
}

impl Uint128 {
    pub(crate) fn value(self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }
}

impl From<u128> for Uint128 {
    fn from(value: u128) -> Self {
        Self { high: (value >> 64) as u64, low: value as u64 }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WriteRequest {
    #[prost(uint64, tag = "1")]
    pub(crate) device_id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) role_id: u64,
    #[prost(message, optional, tag = "3")]
    pub(crate) election_id: Option<Uint128>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) updates: Vec<Update>,
    #[prost(int32, tag = "5")]
    pub(crate) atomicity: i32,
    #[prost(string, tag = "6")]
    pub(crate) role: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WriteResponse {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Update {
    /// One of the constants below.
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) entity: Option<Entity>,
}

pub(crate) const INSERT: i32 = 1;
pub(crate) const MODIFY: i32 = 2;
pub(crate) const DELETE: i32 = 3;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReadRequest {
    #[prost(uint64, tag = "1")]
    pub(crate) device_id: u64,
    #[prost(message, repeated, tag = "2")]
    pub(crate) entities: Vec<Entity>,
    #[prost(string, tag = "3")]
    pub(crate) role: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReadResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) entities: Vec<Entity>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Entity {
    #[prost(oneof = "Of", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12")]
    pub(crate) of: Option<Of>,
}

/// Content of an entity.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Of {
    #[prost(message, tag = "1")]
    Extern(Unsupported),
    #[prost(message, tag = "2")]
    Table(TableEntry),
    #[prost(message, tag = "3")]
    ActionProfileMember(Unsupported),
    #[prost(message, tag = "4")]
    ActionProfileGroup(Unsupported),
    #[prost(message, tag = "5")]
    Meter(MeterEntry),
    #[prost(message, tag = "6")]
    DirectMeter(Unsupported),
    #[prost(message, tag = "7")]
    Counter(CounterEntry),
    #[prost(message, tag = "8")]
    DirectCounter(Unsupported),
    #[prost(message, tag = "9")]
    PacketReplicationEngine(Unsupported),
    #[prost(message, tag = "10")]
    ValueSet(Unsupported),
    #[prost(message, tag = "11")]
    Register(Unsupported),
    #[prost(message, tag = "12")]
    Digest(DigestEntry),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TableEntry {
    #[prost(uint32, tag = "1")]
    pub(crate) table_id: u32,
    #[prost(message, repeated, tag = "2")]
    pub(crate) matches: Vec<FieldMatch>,
    #[prost(message, optional, tag = "3")]
    pub(crate) action: Option<TableAction>,
    #[prost(int32, tag = "4")]
    pub(crate) priority: i32,
    #[prost(uint64, tag = "5")]
    pub(crate) controller_metadata: u64,
    #[prost(message, optional, tag = "6")]
    pub(crate) meter_config: Option<Unsupported>,
    #[prost(message, optional, tag = "7")]
    pub(crate) counter_data: Option<Unsupported>,
    #[prost(bool, tag = "8")]
    pub(crate) is_default_action: bool,
    #[prost(int64, tag = "9")]
    pub(crate) idle_timeout_ns: i64,
    #[prost(bytes = "vec", tag = "11")]
    pub(crate) metadata: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct FieldMatch {
    #[prost(uint32, tag = "1")]
    pub(crate) field_id: u32,
    #[prost(oneof = "MatchType", tags = "2, 3, 4, 6, 7, 100")]
    pub(crate) of: Option<MatchType>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum MatchType {
    #[prost(message, tag = "2")]
    Exact(Exact),
    #[prost(message, tag = "3")]
    Ternary(Ternary),
    #[prost(message, tag = "4")]
    Lpm(Lpm),
    #[prost(message, tag = "6")]
    Range(Unsupported),
    #[prost(message, tag = "7")]
    Optional(Unsupported),
    #[prost(message, tag = "100")]
    Other(Unsupported),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Exact {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Ternary {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) value: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) mask: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Lpm {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) value: Vec<u8>,
    #[prost(int32, tag = "2")]
    pub(crate) prefix_len: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TableAction {
    #[prost(oneof = "ActionType", tags = "1, 2, 3, 4")]
    pub(crate) of: Option<ActionType>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum ActionType {
    #[prost(message, tag = "1")]
    Action(Action),
    #[prost(uint32, tag = "2")]
    ProfileMember(u32),
    #[prost(uint32, tag = "3")]
    ProfileGroup(u32),
    #[prost(message, tag = "4")]
    ProfileActionSet(Unsupported),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Action {
    #[prost(uint32, tag = "1")]
    pub(crate) action_id: u32,
    #[prost(message, repeated, tag = "4")]
    pub(crate) params: Vec<Param>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Param {
    #[prost(uint32, tag = "2")]
    pub(crate) param_id: u32,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) value: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Index {
    #[prost(int64, tag = "1")]
    pub(crate) index: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CounterEntry {
    #[prost(uint32, tag = "1")]
    pub(crate) counter_id: u32,
    #[prost(message, optional, tag = "2")]
    pub(crate) index: Option<Index>,
    #[prost(message, optional, tag = "3")]
    pub(crate) data: Option<CounterData>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct CounterData {
    #[prost(int64, tag = "1")]
    pub(crate) byte_count: i64,
    #[prost(int64, tag = "2")]
    pub(crate) packet_count: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MeterEntry {
    #[prost(uint32, tag = "1")]
    pub(crate) meter_id: u32,
    #[prost(message, optional, tag = "2")]
    pub(crate) index: Option<Index>,
    #[prost(message, optional, tag = "3")]
    pub(crate) config: Option<MeterConfig>,
    #[prost(message, optional, tag = "4")]
    pub(crate) counter_data: Option<Unsupported>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct MeterConfig {
    #[prost(int64, tag = "1")]
    pub(crate) cir: i64,
    #[prost(int64, tag = "2")]
    pub(crate) cburst: i64,
    #[prost(int64, tag = "3")]
    pub(crate) pir: i64,
    #[prost(int64, tag = "4")]
    pub(crate) pburst: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DigestEntry {
    #[prost(uint32, tag = "1")]
    pub(crate) digest_id: u32,
    #[prost(message, optional, tag = "2")]
    pub(crate) config: Option<DigestConfig>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct DigestConfig {
    #[prost(int64, tag = "1")]
    pub(crate) max_timeout_ns: i64,
    #[prost(int32, tag = "2")]
    pub(crate) max_list_size: i32,
    #[prost(int64, tag = "3")]
    pub(crate) ack_timeout_ns: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DigestList {
    #[prost(uint32, tag = "1")]
    pub(crate) digest_id: u32,
    #[prost(uint64, tag = "2")]
    pub(crate) list_id: u64,
    #[prost(message, repeated, tag = "3")]
    pub(crate) data: Vec<P4Data>,
    #[prost(int64, tag = "4")]
    pub(crate) timestamp: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct DigestAck {
    #[prost(uint32, tag = "1")]
    pub(crate) digest_id: u32,
    #[prost(uint64, tag = "2")]
    pub(crate) list_id: u64,
}

/// A value of the program, of the kinds that digests use.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct P4Data {
    #[prost(oneof = "Data", tags = "1, 4, 5")]
    pub(crate) of: Option<Data>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Data {
    #[prost(bytes = "vec", tag = "1")]
    Bits(Vec<u8>),
    #[prost(message, tag = "4")]
    Tuple(P4Members),
    #[prost(message, tag = "5")]
    Struct(P4Members),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct P4Members {
    #[prost(message, repeated, tag = "1")]
    pub(crate) members: Vec<P4Data>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PacketIn {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) payload: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SetConfigRequest {
    #[prost(uint64, tag = "1")]
    pub(crate) device_id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) role_id: u64,
    #[prost(message, optional, tag = "3")]
    pub(crate) election_id: Option<Uint128>,
    /// One of the constants below.
    #[prost(int32, tag = "4")]
    pub(crate) action: i32,
    #[prost(message, optional, tag = "5")]
    pub(crate) config: Option<Config>,
    #[prost(string, tag = "6")]
    pub(crate) role: String,
}

pub(crate) const VERIFY: i32 = 1;
pub(crate) const VERIFY_AND_SAVE: i32 = 2;
pub(crate) const VERIFY_AND_COMMIT: i32 = 3;
pub(crate) const COMMIT: i32 = 4;
pub(crate) const RECONCILE_AND_COMMIT: i32 = 5;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SetConfigResponse {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Config {
    /// A message; its bytes are decoded where it is compared.
    #[prost(bytes = "vec", optional, tag = "1")]
    pub(crate) p4info: Option<Vec<u8>>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) p4_device_config: Vec<u8>,
    #[prost(message, optional, tag = "3")]
    pub(crate) cookie: Option<Cookie>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Cookie {
    #[prost(uint64, tag = "1")]
    pub(crate) cookie: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetConfigRequest {
    #[prost(uint64, tag = "1")]
    pub(crate) device_id: u64,
    /// One of the constants below; 0 means all.
    #[prost(int32, tag = "2")]
    pub(crate) response_type: i32,
}

pub(crate) const COOKIE_ONLY: i32 = 1;
pub(crate) const P4INFO_AND_COOKIE: i32 = 2;
pub(crate) const DEVICE_CONFIG_AND_COOKIE: i32 = 3;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetConfigResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) config: Option<Config>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StreamRequest {
    #[prost(oneof = "ControllerMessage", tags = "1, 2, 3, 4")]
    pub(crate) of: Option<ControllerMessage>,
}

/// Content of a controller's message on its stream.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum ControllerMessage {
    #[prost(message, tag = "1")]
    Arbitration(Arbitration),
    #[prost(message, tag = "2")]
    Packet(Unsupported),
    #[prost(message, tag = "3")]
    DigestAck(DigestAck),
    #[prost(message, tag = "4")]
    Other(Unsupported),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Arbitration {
    #[prost(uint64, tag = "1")]
    pub(crate) device_id: u64,
    #[prost(message, optional, tag = "2")]
    pub(crate) role: Option<Role>,
    #[prost(message, optional, tag = "3")]
    pub(crate) election_id: Option<Uint128>,
    #[prost(message, optional, tag = "4")]
    pub(crate) status: Option<RpcStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Role {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StreamResponse {
    #[prost(oneof = "Answered", tags = "1, 2, 3, 6")]
    pub(crate) of: Option<Answered>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Answered {
    #[prost(message, tag = "1")]
    Arbitration(Arbitration),
    #[prost(message, tag = "2")]
    Packet(PacketIn),
    #[prost(message, tag = "3")]
    Digest(DigestList),
    #[prost(message, tag = "6")]
    Error(StreamError),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StreamError {
    #[prost(int32, tag = "1")]
    pub(crate) canonical_code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
    #[prost(oneof = "Refused", tags = "5, 7")]
    pub(crate) of: Option<Refused>,
}

/// Kind of the refused message of a stream.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Refused {
    #[prost(message, tag = "5")]
    Packet(Unsupported),
    #[prost(message, tag = "7")]
    Other(Unsupported),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CapabilitiesRequest {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CapabilitiesResponse {
    #[prost(string, tag = "1")]
    pub(crate) p4runtime_api_version: String,
}

/// Result of one update.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Error {
    #[prost(int32, tag = "1")]
    pub(crate) canonical_code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
}

/// google.rpc.Status.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) details: Vec<Any>,
}

/// google.protobuf.Any.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Any {
    #[prost(string, tag = "1")]
    pub(crate) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}
