//! The program `nat64`, made by `natgate p4 compile --emit rust`: changes belong into the program.

use natgate_p4::rt::*;

/// Headers with these fields.
#[derive(Clone, Copy, Debug, Default)]
struct Ethernet {
    valid: bool,
    destination: u64,
    source: u64,
    ethertype: u16,
}

impl Ethernet {
    #[inline(always)]
    fn read(bytes: [u8; 14]) -> Self {
        Self {
            valid: true,
            destination: be64(&bytes[0..6]),
            source: be64(&bytes[6..12]),
            ethertype: u16::from_be_bytes([bytes[12], bytes[13]]),
        }
    }

    #[inline(always)]
    fn bytes(&self) -> [u8; 14] {
        let mut bytes = [0; 14];
        bytes[0..6].copy_from_slice(&self.destination.to_be_bytes()[2..]);
        bytes[6..12].copy_from_slice(&self.source.to_be_bytes()[2..]);
        bytes[12..14].copy_from_slice(&self.ethertype.to_be_bytes());
        bytes
    }
}

/// Headers with these fields.
#[derive(Clone, Copy, Debug, Default)]
struct Arp {
    valid: bool,
    hardware: u16,
    protocol: u16,
    hardware_length: u8,
    protocol_length: u8,
    operation: u16,
    sender_mac: u64,
    sender: u32,
    target_mac: u64,
    target: u32,
}

impl Arp {
    #[inline(always)]
    fn read(bytes: [u8; 28]) -> Self {
        Self {
            valid: true,
            hardware: u16::from_be_bytes([bytes[0], bytes[1]]),
            protocol: u16::from_be_bytes([bytes[2], bytes[3]]),
            hardware_length: bytes[4],
            protocol_length: bytes[5],
            operation: u16::from_be_bytes([bytes[6], bytes[7]]),
            sender_mac: be64(&bytes[8..14]),
            sender: u32::from_be_bytes([bytes[14], bytes[15], bytes[16], bytes[17]]),
            target_mac: be64(&bytes[18..24]),
            target: u32::from_be_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]),
        }
    }

    #[inline(always)]
    fn bytes(&self) -> [u8; 28] {
        let mut bytes = [0; 28];
        bytes[0..2].copy_from_slice(&self.hardware.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.protocol.to_be_bytes());
        bytes[4] = self.hardware_length;
        bytes[5] = self.protocol_length;
        bytes[6..8].copy_from_slice(&self.operation.to_be_bytes());
        bytes[8..14].copy_from_slice(&self.sender_mac.to_be_bytes()[2..]);
        bytes[14..18].copy_from_slice(&self.sender.to_be_bytes());
        bytes[18..24].copy_from_slice(&self.target_mac.to_be_bytes()[2..]);
        bytes[24..28].copy_from_slice(&self.target.to_be_bytes());
        bytes
    }
}

/// Headers with these fields.
#[derive(Clone, Copy, Debug, Default)]
struct Ipv4 {
    valid: bool,
    version_ihl: u8,
    tos: u8,
    total_length: u16,
    identification: u16,
    flags_offset: u16,
    ttl: u8,
    protocol: u8,
    checksum: u16,
    source: u32,
    destination: u32,
}

impl Ipv4 {
    #[inline(always)]
    fn read(bytes: [u8; 20]) -> Self {
        Self {
            valid: true,
            version_ihl: bytes[0],
            tos: bytes[1],
            total_length: u16::from_be_bytes([bytes[2], bytes[3]]),
            identification: u16::from_be_bytes([bytes[4], bytes[5]]),
            flags_offset: u16::from_be_bytes([bytes[6], bytes[7]]),
            ttl: bytes[8],
            protocol: bytes[9],
            checksum: u16::from_be_bytes([bytes[10], bytes[11]]),
            source: u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]),
            destination: u32::from_be_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]),
        }
    }

    #[inline(always)]
    fn bytes(&self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[0] = self.version_ihl;
        bytes[1] = self.tos;
        bytes[2..4].copy_from_slice(&self.total_length.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.identification.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.flags_offset.to_be_bytes());
        bytes[8] = self.ttl;
        bytes[9] = self.protocol;
        bytes[10..12].copy_from_slice(&self.checksum.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.source.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.destination.to_be_bytes());
        bytes
    }
}

/// Headers with these fields.
#[derive(Clone, Copy, Debug, Default)]
struct Ipv6 {
    valid: bool,
    version_class_flow: u32,
    payload_length: u16,
    next_header: u8,
    hop_limit: u8,
    source_high: u64,
    source_middle: u32,
    source_low: u32,
    destination_high: u64,
    destination_middle: u32,
    destination_low: u32,
}

impl Ipv6 {
    #[inline(always)]
    fn read(bytes: [u8; 40]) -> Self {
        Self {
            valid: true,
            version_class_flow: u32::from_be_bytes([
                bytes[0],
                bytes[1],
                bytes[2],
                bytes[3],
            ]),
            payload_length: u16::from_be_bytes([bytes[4], bytes[5]]),
            next_header: bytes[6],
            hop_limit: bytes[7],
            source_high: u64::from_be_bytes([
                bytes[8],
                bytes[9],
                bytes[10],
                bytes[11],
                bytes[12],
                bytes[13],
                bytes[14],
                bytes[15],
            ]),
            source_middle: u32::from_be_bytes([
                bytes[16],
                bytes[17],
                bytes[18],
                bytes[19],
            ]),
            source_low: u32::from_be_bytes([bytes[20], bytes[21], bytes[22], bytes[23]]),
            destination_high: u64::from_be_bytes([
                bytes[24],
                bytes[25],
                bytes[26],
                bytes[27],
                bytes[28],
                bytes[29],
                bytes[30],
                bytes[31],
            ]),
            destination_middle: u32::from_be_bytes([
                bytes[32],
                bytes[33],
                bytes[34],
                bytes[35],
            ]),
            destination_low: u32::from_be_bytes([
                bytes[36],
                bytes[37],
                bytes[38],
                bytes[39],
            ]),
        }
    }

    #[inline(always)]
    fn bytes(&self) -> [u8; 40] {
        let mut bytes = [0; 40];
        bytes[0..4].copy_from_slice(&self.version_class_flow.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.payload_length.to_be_bytes());
        bytes[6] = self.next_header;
        bytes[7] = self.hop_limit;
        bytes[8..16].copy_from_slice(&self.source_high.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.source_middle.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.source_low.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.destination_high.to_be_bytes());
        bytes[32..36].copy_from_slice(&self.destination_middle.to_be_bytes());
        bytes[36..40].copy_from_slice(&self.destination_low.to_be_bytes());
        bytes
    }
}

/// Headers with these fields.
#[derive(Clone, Copy, Debug, Default)]
struct Neighbor {
    valid: bool,
    kind: u8,
    code: u8,
    checksum: u16,
    flags: u32,
    target_high: u64,
    target_middle: u32,
    target_low: u32,
    option_kind: u8,
    option_length: u8,
    mac: u64,
}

impl Neighbor {
    #[inline(always)]
    fn read(bytes: [u8; 32]) -> Self {
        Self {
            valid: true,
            kind: bytes[0],
            code: bytes[1],
            checksum: u16::from_be_bytes([bytes[2], bytes[3]]),
            flags: u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            target_high: u64::from_be_bytes([
                bytes[8],
                bytes[9],
                bytes[10],
                bytes[11],
                bytes[12],
                bytes[13],
                bytes[14],
                bytes[15],
            ]),
            target_middle: u32::from_be_bytes([
                bytes[16],
                bytes[17],
                bytes[18],
                bytes[19],
            ]),
            target_low: u32::from_be_bytes([bytes[20], bytes[21], bytes[22], bytes[23]]),
            option_kind: bytes[24],
            option_length: bytes[25],
            mac: be64(&bytes[26..32]),
        }
    }

    #[inline(always)]
    fn bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[0] = self.kind;
        bytes[1] = self.code;
        bytes[2..4].copy_from_slice(&self.checksum.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.flags.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.target_high.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.target_middle.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.target_low.to_be_bytes());
        bytes[24] = self.option_kind;
        bytes[25] = self.option_length;
        bytes[26..32].copy_from_slice(&self.mac.to_be_bytes()[2..]);
        bytes
    }
}

/// Headers with these fields.
#[derive(Clone, Copy, Debug, Default)]
struct Tcp {
    valid: bool,
    source: u16,
    destination: u16,
    sequence: u32,
    acknowledgement: u32,
    data_offset: u8,
    flags: u8,
    window: u16,
    checksum: u16,
    urgent: u16,
}

impl Tcp {
    #[inline(always)]
    fn read(bytes: [u8; 20]) -> Self {
        Self {
            valid: true,
            source: u16::from_be_bytes([bytes[0], bytes[1]]),
            destination: u16::from_be_bytes([bytes[2], bytes[3]]),
            sequence: u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            acknowledgement: u32::from_be_bytes([
                bytes[8],
                bytes[9],
                bytes[10],
                bytes[11],
            ]),
            data_offset: bytes[12],
            flags: bytes[13],
            window: u16::from_be_bytes([bytes[14], bytes[15]]),
            checksum: u16::from_be_bytes([bytes[16], bytes[17]]),
            urgent: u16::from_be_bytes([bytes[18], bytes[19]]),
        }
    }

    #[inline(always)]
    fn bytes(&self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[0..2].copy_from_slice(&self.source.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.destination.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.acknowledgement.to_be_bytes());
        bytes[12] = self.data_offset;
        bytes[13] = self.flags;
        bytes[14..16].copy_from_slice(&self.window.to_be_bytes());
        bytes[16..18].copy_from_slice(&self.checksum.to_be_bytes());
        bytes[18..20].copy_from_slice(&self.urgent.to_be_bytes());
        bytes
    }
}

/// Headers with these fields.
#[derive(Clone, Copy, Debug, Default)]
struct Udp {
    valid: bool,
    source: u16,
    destination: u16,
    length: u16,
    checksum: u16,
}

impl Udp {
    #[inline(always)]
    fn read(bytes: [u8; 8]) -> Self {
        Self {
            valid: true,
            source: u16::from_be_bytes([bytes[0], bytes[1]]),
            destination: u16::from_be_bytes([bytes[2], bytes[3]]),
            length: u16::from_be_bytes([bytes[4], bytes[5]]),
            checksum: u16::from_be_bytes([bytes[6], bytes[7]]),
        }
    }

    #[inline(always)]
    fn bytes(&self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[0..2].copy_from_slice(&self.source.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.destination.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.length.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.checksum.to_be_bytes());
        bytes
    }
}

/// Headers with these fields.
#[derive(Clone, Copy, Debug, Default)]
struct Icmp {
    valid: bool,
    kind: u8,
    code: u8,
    checksum: u16,
    identifier: u16,
    sequence: u16,
}

impl Icmp {
    #[inline(always)]
    fn read(bytes: [u8; 8]) -> Self {
        Self {
            valid: true,
            kind: bytes[0],
            code: bytes[1],
            checksum: u16::from_be_bytes([bytes[2], bytes[3]]),
            identifier: u16::from_be_bytes([bytes[4], bytes[5]]),
            sequence: u16::from_be_bytes([bytes[6], bytes[7]]),
        }
    }

    #[inline(always)]
    fn bytes(&self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[0] = self.kind;
        bytes[1] = self.code;
        bytes[2..4].copy_from_slice(&self.checksum.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.identifier.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.sequence.to_be_bytes());
        bytes
    }
}

/// What entries of `Nat64Main.interfaces` do.
#[derive(Clone, Copy, Debug)]
enum InterfacesAction {
    Inside { mac: u64, prefix_high: u64, prefix_middle: u32, mtu: u16 },
    Outside { mac: u64, prefix_high: u64, prefix_middle: u32, mtu: u16 },
    NoRole,
}

impl Action for InterfacesAction {
    fn of(number: usize, args: &[u128]) -> Self {
        match number {
            0 => {
                InterfacesAction::Inside {
                    mac: args[0] as u64,
                    prefix_high: args[1] as u64,
                    prefix_middle: args[2] as u32,
                    mtu: args[3] as u16,
                }
            }
            1 => {
                InterfacesAction::Outside {
                    mac: args[0] as u64,
                    prefix_high: args[1] as u64,
                    prefix_middle: args[2] as u32,
                    mtu: args[3] as u16,
                }
            }
            _ => InterfacesAction::NoRole,
        }
    }

    fn number(&self) -> usize {
        match self {
            Self::Inside { .. } => 0,
            Self::Outside { .. } => 1,
            Self::NoRole { .. } => 2,
        }
    }

    fn args(&self) -> Vec<u128> {
        match self {
            Self::Inside { mac, prefix_high, prefix_middle, mtu } => {
                vec![
                    * mac as u128, * prefix_high as u128, * prefix_middle as u128, * mtu
                    as u128
                ]
            }
            Self::Outside { mac, prefix_high, prefix_middle, mtu } => {
                vec![
                    * mac as u128, * prefix_high as u128, * prefix_middle as u128, * mtu
                    as u128
                ]
            }
            Self::NoRole {} => vec![],
        }
    }
}

/// What entries of `Nat64Main.addresses` do.
#[derive(Clone, Copy, Debug)]
enum AddressesAction {
    Answer { mac: u64 },
    TellController,
}

impl Action for AddressesAction {
    fn of(number: usize, args: &[u128]) -> Self {
        match number {
            0 => {
                AddressesAction::Answer {
                    mac: args[0] as u64,
                }
            }
            _ => AddressesAction::TellController,
        }
    }

    fn number(&self) -> usize {
        match self {
            Self::Answer { .. } => 0,
            Self::TellController { .. } => 1,
        }
    }

    fn args(&self) -> Vec<u128> {
        match self {
            Self::Answer { mac } => vec![* mac as u128],
            Self::TellController {} => vec![],
        }
    }
}

/// What entries of `Nat64Main.addresses6` do.
#[derive(Clone, Copy, Debug)]
enum Addresses6Action {
    Advertise { mac: u64 },
    TellController,
}

impl Action for Addresses6Action {
    fn of(number: usize, args: &[u128]) -> Self {
        match number {
            0 => {
                Addresses6Action::Advertise {
                    mac: args[0] as u64,
                }
            }
            _ => Addresses6Action::TellController,
        }
    }

    fn number(&self) -> usize {
        match self {
            Self::Advertise { .. } => 0,
            Self::TellController { .. } => 1,
        }
    }

    fn args(&self) -> Vec<u128> {
        match self {
            Self::Advertise { mac } => vec![* mac as u128],
            Self::TellController {} => vec![],
        }
    }
}

/// What entries of `Nat64Main.subscribers` do.
#[derive(Clone, Copy, Debug)]
enum SubscribersAction {
    Subscriber { index: u16, pool_index: u16 },
    NoSubscriber,
}

impl Action for SubscribersAction {
    fn of(number: usize, args: &[u128]) -> Self {
        match number {
            0 => {
                SubscribersAction::Subscriber {
                    index: args[0] as u16,
                    pool_index: args[1] as u16,
                }
            }
            _ => SubscribersAction::NoSubscriber,
        }
    }

    fn number(&self) -> usize {
        match self {
            Self::Subscriber { .. } => 0,
            Self::NoSubscriber { .. } => 1,
        }
    }

    fn args(&self) -> Vec<u128> {
        match self {
            Self::Subscriber { index, pool_index } => {
                vec![* index as u128, * pool_index as u128]
            }
            Self::NoSubscriber {} => vec![],
        }
    }
}

/// What entries of `Nat64Main.pool` do.
#[derive(Clone, Copy, Debug)]
enum PoolAction {
    ExternalAddress { address: u32, first: u16, last: u16 },
    NoAddress,
}

impl Action for PoolAction {
    fn of(number: usize, args: &[u128]) -> Self {
        match number {
            0 => {
                PoolAction::ExternalAddress {
                    address: args[0] as u32,
                    first: args[1] as u16,
                    last: args[2] as u16,
                }
            }
            _ => PoolAction::NoAddress,
        }
    }

    fn number(&self) -> usize {
        match self {
            Self::ExternalAddress { .. } => 0,
            Self::NoAddress { .. } => 1,
        }
    }

    fn args(&self) -> Vec<u128> {
        match self {
            Self::ExternalAddress { address, first, last } => {
                vec![* address as u128, * first as u128, * last as u128]
            }
            Self::NoAddress {} => vec![],
        }
    }
}

/// What entries of `Nat64Main.upload` do.
#[derive(Clone, Copy, Debug)]
enum UploadAction {
    ToExternal { address: u32, port: u16 },
    Learn,
}

impl Action for UploadAction {
    fn of(number: usize, args: &[u128]) -> Self {
        match number {
            0 => {
                UploadAction::ToExternal {
                    address: args[0] as u32,
                    port: args[1] as u16,
                }
            }
            _ => UploadAction::Learn,
        }
    }

    fn number(&self) -> usize {
        match self {
            Self::ToExternal { .. } => 0,
            Self::Learn { .. } => 1,
        }
    }

    fn args(&self) -> Vec<u128> {
        match self {
            Self::ToExternal { address, port } => vec![* address as u128, * port as u128],
            Self::Learn {} => vec![],
        }
    }
}

/// What entries of `Nat64Main.download` do.
#[derive(Clone, Copy, Debug)]
enum DownloadAction {
    ToInternal { high: u64, middle: u32, low: u32, port: u16 },
    LearnReturn,
}

impl Action for DownloadAction {
    fn of(number: usize, args: &[u128]) -> Self {
        match number {
            0 => {
                DownloadAction::ToInternal {
                    high: args[0] as u64,
                    middle: args[1] as u32,
                    low: args[2] as u32,
                    port: args[3] as u16,
                }
            }
            _ => DownloadAction::LearnReturn,
        }
    }

    fn number(&self) -> usize {
        match self {
            Self::ToInternal { .. } => 0,
            Self::LearnReturn { .. } => 1,
        }
    }

    fn args(&self) -> Vec<u128> {
        match self {
            Self::ToInternal { high, middle, low, port } => {
                vec![* high as u128, * middle as u128, * low as u128, * port as u128]
            }
            Self::LearnReturn {} => vec![],
        }
    }
}

/// What entries of `Nat64Main.routes` do.
#[derive(Clone, Copy, Debug)]
enum RoutesAction {
    Via { gateway: u32, port: u32 },
    OnLink { port: u32 },
    Hairpin,
    NoRoute,
}

impl Action for RoutesAction {
    fn of(number: usize, args: &[u128]) -> Self {
        match number {
            0 => {
                RoutesAction::Via {
                    gateway: args[0] as u32,
                    port: args[1] as u32,
                }
            }
            1 => {
                RoutesAction::OnLink {
                    port: args[0] as u32,
                }
            }
            2 => RoutesAction::Hairpin,
            _ => RoutesAction::NoRoute,
        }
    }

    fn number(&self) -> usize {
        match self {
            Self::Via { .. } => 0,
            Self::OnLink { .. } => 1,
            Self::Hairpin { .. } => 2,
            Self::NoRoute { .. } => 3,
        }
    }

    fn args(&self) -> Vec<u128> {
        match self {
            Self::Via { gateway, port } => vec![* gateway as u128, * port as u128],
            Self::OnLink { port } => vec![* port as u128],
            Self::Hairpin {} => vec![],
            Self::NoRoute {} => vec![],
        }
    }
}

/// What entries of `Nat64Main.routes6` do.
#[derive(Clone, Copy, Debug)]
enum Routes6Action {
    Via6 { high: u64, middle: u32, low: u32, port: u32 },
    OnLink6 { port: u32 },
    NoRoute,
}

impl Action for Routes6Action {
    fn of(number: usize, args: &[u128]) -> Self {
        match number {
            0 => {
                Routes6Action::Via6 {
                    high: args[0] as u64,
                    middle: args[1] as u32,
                    low: args[2] as u32,
                    port: args[3] as u32,
                }
            }
            1 => {
                Routes6Action::OnLink6 {
                    port: args[0] as u32,
                }
            }
            _ => Routes6Action::NoRoute,
        }
    }

    fn number(&self) -> usize {
        match self {
            Self::Via6 { .. } => 0,
            Self::OnLink6 { .. } => 1,
            Self::NoRoute { .. } => 2,
        }
    }

    fn args(&self) -> Vec<u128> {
        match self {
            Self::Via6 { high, middle, low, port } => {
                vec![* high as u128, * middle as u128, * low as u128, * port as u128]
            }
            Self::OnLink6 { port } => vec![* port as u128],
            Self::NoRoute {} => vec![],
        }
    }
}

/// What entries of `Nat64Main.next_hops` do.
#[derive(Clone, Copy, Debug)]
enum NextHopsAction {
    Neighbor { source: u64, destination: u64 },
    NoNeighbor,
}

impl Action for NextHopsAction {
    fn of(number: usize, args: &[u128]) -> Self {
        match number {
            0 => {
                NextHopsAction::Neighbor {
                    source: args[0] as u64,
                    destination: args[1] as u64,
                }
            }
            _ => NextHopsAction::NoNeighbor,
        }
    }

    fn number(&self) -> usize {
        match self {
            Self::Neighbor { .. } => 0,
            Self::NoNeighbor { .. } => 1,
        }
    }

    fn args(&self) -> Vec<u128> {
        match self {
            Self::Neighbor { source, destination } => {
                vec![* source as u128, * destination as u128]
            }
            Self::NoNeighbor {} => vec![],
        }
    }
}

/// What entries of `Nat64Main.next_hops6` do.
#[derive(Clone, Copy, Debug)]
enum NextHops6Action {
    Neighbor { source: u64, destination: u64 },
    NoNeighbor,
}

impl Action for NextHops6Action {
    fn of(number: usize, args: &[u128]) -> Self {
        match number {
            0 => {
                NextHops6Action::Neighbor {
                    source: args[0] as u64,
                    destination: args[1] as u64,
                }
            }
            _ => NextHops6Action::NoNeighbor,
        }
    }

    fn number(&self) -> usize {
        match self {
            Self::Neighbor { .. } => 0,
            Self::NoNeighbor { .. } => 1,
        }
    }

    fn args(&self) -> Vec<u128> {
        match self {
            Self::Neighbor { source, destination } => {
                vec![* source as u128, * destination as u128]
            }
            Self::NoNeighbor {} => vec![],
        }
    }
}

/// Headers, metadata and variables of a packet.
#[derive(Clone, Copy, Debug, Default)]
struct Slots {
    nat64parser_hdr_ethernet: Ethernet,
    nat64parser_hdr_arp: Arp,
    nat64parser_hdr_ipv4: Ipv4,
    nat64parser_hdr_ipv6: Ipv6,
    nat64parser_hdr_neighbor: Neighbor,
    nat64parser_hdr_tcp: Tcp,
    nat64parser_hdr_udp: Udp,
    nat64parser_hdr_icmp: Icmp,
    nat64parser_meta_is_inside: bool,
    nat64parser_meta_is_local: bool,
    nat64parser_meta_is_learning: bool,
    nat64parser_meta_is_taken: bool,
    nat64parser_meta_is_claimed: bool,
    nat64parser_meta_fragment: u16,
    nat64parser_meta_reason: u8,
    nat64parser_meta_protocol: u8,
    nat64parser_meta_internal_high: u64,
    nat64parser_meta_internal_middle: u32,
    nat64parser_meta_internal_low: u32,
    nat64parser_meta_internal_port: u16,
    nat64parser_meta_external: u32,
    nat64parser_meta_external_port: u16,
    nat64parser_meta_first_port: u16,
    nat64parser_meta_last_port: u16,
    nat64parser_meta_pool_index: u16,
    nat64parser_meta_prefix_high: u64,
    nat64parser_meta_prefix_middle: u32,
    nat64parser_meta_mtu: u16,
    nat64parser_meta_remote: u32,
    nat64parser_meta_profile: u8,
    nat64parser_meta_hop_high: u64,
    nat64parser_meta_hop_middle: u32,
    nat64parser_meta_hop_low: u32,
    nat64parser_meta_out_port: u32,
    nat64parser_istd_direction: u32,
    nat64parser_istd_pass: u8,
    nat64parser_istd_loopedback: bool,
    nat64parser_istd_input_port: u32,
    nat64parser_ahead: u8,
    nat64parser_tmp: u16,
    nat64parser_tmp_2: u8,
    nat64pre_control_hdr_ethernet: Ethernet,
    nat64pre_control_hdr_arp: Arp,
    nat64pre_control_hdr_ipv4: Ipv4,
    nat64pre_control_hdr_ipv6: Ipv6,
    nat64pre_control_hdr_neighbor: Neighbor,
    nat64pre_control_hdr_tcp: Tcp,
    nat64pre_control_hdr_udp: Udp,
    nat64pre_control_hdr_icmp: Icmp,
    nat64pre_control_meta_is_inside: bool,
    nat64pre_control_meta_is_local: bool,
    nat64pre_control_meta_is_learning: bool,
    nat64pre_control_meta_is_taken: bool,
    nat64pre_control_meta_is_claimed: bool,
    nat64pre_control_meta_fragment: u16,
    nat64pre_control_meta_reason: u8,
    nat64pre_control_meta_protocol: u8,
    nat64pre_control_meta_internal_high: u64,
    nat64pre_control_meta_internal_middle: u32,
    nat64pre_control_meta_internal_low: u32,
    nat64pre_control_meta_internal_port: u16,
    nat64pre_control_meta_external: u32,
    nat64pre_control_meta_external_port: u16,
    nat64pre_control_meta_first_port: u16,
    nat64pre_control_meta_last_port: u16,
    nat64pre_control_meta_pool_index: u16,
    nat64pre_control_meta_prefix_high: u64,
    nat64pre_control_meta_prefix_middle: u32,
    nat64pre_control_meta_mtu: u16,
    nat64pre_control_meta_remote: u32,
    nat64pre_control_meta_profile: u8,
    nat64pre_control_meta_hop_high: u64,
    nat64pre_control_meta_hop_middle: u32,
    nat64pre_control_meta_hop_low: u32,
    nat64pre_control_meta_out_port: u32,
    nat64pre_control_istd_input_port: u32,
    nat64pre_control_istd_parser_error: u32,
    nat64pre_control_istd_direction: u32,
    nat64pre_control_istd_pass: u8,
    nat64pre_control_istd_loopedback: bool,
    nat64pre_control_ostd_decrypt: bool,
    nat64pre_control_ostd_said: u32,
    nat64pre_control_ostd_decrypt_start_offset: u16,
    nat64main_hdr_ethernet: Ethernet,
    nat64main_hdr_arp: Arp,
    nat64main_hdr_ipv4: Ipv4,
    nat64main_hdr_ipv6: Ipv6,
    nat64main_hdr_neighbor: Neighbor,
    nat64main_hdr_tcp: Tcp,
    nat64main_hdr_udp: Udp,
    nat64main_hdr_icmp: Icmp,
    nat64main_meta_is_inside: bool,
    nat64main_meta_is_local: bool,
    nat64main_meta_is_learning: bool,
    nat64main_meta_is_taken: bool,
    nat64main_meta_is_claimed: bool,
    nat64main_meta_fragment: u16,
    nat64main_meta_reason: u8,
    nat64main_meta_protocol: u8,
    nat64main_meta_internal_high: u64,
    nat64main_meta_internal_middle: u32,
    nat64main_meta_internal_low: u32,
    nat64main_meta_internal_port: u16,
    nat64main_meta_external: u32,
    nat64main_meta_external_port: u16,
    nat64main_meta_first_port: u16,
    nat64main_meta_last_port: u16,
    nat64main_meta_pool_index: u16,
    nat64main_meta_prefix_high: u64,
    nat64main_meta_prefix_middle: u32,
    nat64main_meta_mtu: u16,
    nat64main_meta_remote: u32,
    nat64main_meta_profile: u8,
    nat64main_meta_hop_high: u64,
    nat64main_meta_hop_middle: u32,
    nat64main_meta_hop_low: u32,
    nat64main_meta_out_port: u32,
    nat64main_istd_direction: u32,
    nat64main_istd_pass: u8,
    nat64main_istd_loopedback: bool,
    nat64main_istd_timestamp: u64,
    nat64main_istd_parser_error: u32,
    nat64main_istd_class_of_service: u8,
    nat64main_istd_input_port: u32,
    nat64main_ostd_class_of_service: u8,
    nat64main_translate_hdr_ethernet: Ethernet,
    nat64main_translate_hdr_arp: Arp,
    nat64main_translate_hdr_ipv4: Ipv4,
    nat64main_translate_hdr_ipv6: Ipv6,
    nat64main_translate_hdr_neighbor: Neighbor,
    nat64main_translate_hdr_tcp: Tcp,
    nat64main_translate_hdr_udp: Udp,
    nat64main_translate_hdr_icmp: Icmp,
    nat64main_translate_meta_is_inside: bool,
    nat64main_translate_meta_is_local: bool,
    nat64main_translate_meta_is_learning: bool,
    nat64main_translate_meta_is_taken: bool,
    nat64main_translate_meta_is_claimed: bool,
    nat64main_translate_meta_fragment: u16,
    nat64main_translate_meta_reason: u8,
    nat64main_translate_meta_protocol: u8,
    nat64main_translate_meta_internal_high: u64,
    nat64main_translate_meta_internal_middle: u32,
    nat64main_translate_meta_internal_low: u32,
    nat64main_translate_meta_internal_port: u16,
    nat64main_translate_meta_external: u32,
    nat64main_translate_meta_external_port: u16,
    nat64main_translate_meta_first_port: u16,
    nat64main_translate_meta_last_port: u16,
    nat64main_translate_meta_pool_index: u16,
    nat64main_translate_meta_prefix_high: u64,
    nat64main_translate_meta_prefix_middle: u32,
    nat64main_translate_meta_mtu: u16,
    nat64main_translate_meta_remote: u32,
    nat64main_translate_meta_profile: u8,
    nat64main_translate_meta_hop_high: u64,
    nat64main_translate_meta_hop_middle: u32,
    nat64main_translate_meta_hop_low: u32,
    nat64main_translate_meta_out_port: u32,
    nat64main_translate_new_port: u16,
    nat64main_translate_make_ipv4_result: u16,
    nat64main_translate_make_ipv4_result_2: u16,
    nat64main_translate_result: u16,
    nat64main_translate_result_2: u16,
    nat64main_translate_result_3: u16,
    nat64main_inside_mac: u64,
    nat64main_inside_prefix_high: u64,
    nat64main_inside_prefix_middle: u32,
    nat64main_inside_mtu: u16,
    nat64main_outside_mac: u64,
    nat64main_outside_prefix_high: u64,
    nat64main_outside_prefix_middle: u32,
    nat64main_outside_mtu: u16,
    nat64main_answer_mac: u64,
    nat64main_answer_asked: u32,
    nat64main_advertise_mac: u64,
    nat64main_advertise_result: u16,
    nat64main_subscriber_index: u16,
    nat64main_subscriber_pool_index: u16,
    nat64main_subscriber_result: u32,
    nat64main_subscriber_color: u32,
    nat64main_external_address_address: u32,
    nat64main_external_address_first: u16,
    nat64main_external_address_last: u16,
    nat64main_next_port_step: u16,
    nat64main_to_external_address: u32,
    nat64main_to_external_port: u16,
    nat64main_learn_result: bool,
    nat64main_to_internal_high: u64,
    nat64main_to_internal_middle: u32,
    nat64main_to_internal_low: u32,
    nat64main_to_internal_port: u16,
    nat64main_learn_return_result: bool,
    nat64main_via_gateway: u32,
    nat64main_via_port: u32,
    nat64main_on_link_port: u32,
    nat64main_via6_high: u64,
    nat64main_via6_middle: u32,
    nat64main_via6_low: u32,
    nat64main_via6_port: u32,
    nat64main_on_link6_port: u32,
    nat64main_neighbor_source: u64,
    nat64main_neighbor_destination: u64,
    nat64main_classify_protocol: u8,
    nat64main_classify_near: u16,
    nat64main_classify_far: u16,
    nat64main_classify_profile: u8,
    nat64main_check_ipv4_result: u16,
    nat64main_check_neighbor_result: u16,
    nat64main_tmp: bool,
    nat64main_tmp_2: u32,
    nat64main_tmp_3: bool,
    nat64main_tmp_4: u32,
    nat64main_tmp_5: bool,
    nat64main_tmp_6: u32,
    nat64main_tmp_7: bool,
    nat64main_tmp_8: u32,
    nat64main_tmp_9: bool,
    nat64main_tmp_10: u32,
    nat64main_tmp_11: bool,
    nat64main_tmp_12: u32,
    nat64main_tmp_13: bool,
    nat64main_tmp_14: u32,
    nat64main_tmp_15: bool,
    nat64main_tmp_16: u32,
    nat64main_tmp_17: bool,
    nat64main_tmp_18: u32,
    nat64main_tmp_19: bool,
    nat64main_tmp_20: u32,
    nat64main_tmp_21: bool,
    nat64main_tmp_22: u32,
    nat64main_tmp_23: bool,
    nat64main_tmp_24: u32,
    nat64main_tmp_25: bool,
    nat64main_tmp_26: u32,
    nat64main_tmp_27: bool,
    nat64main_tmp_28: u32,
    nat64main_tmp_29: bool,
    nat64main_tmp_30: u32,
    nat64main_tmp_31: bool,
    nat64main_tmp_32: u32,
    nat64main_tmp_33: bool,
    nat64main_tmp_34: u32,
    nat64main_tmp_35: bool,
    nat64main_tmp_36: u32,
    nat64main_tmp_37: bool,
    nat64main_tmp_38: u32,
    nat64deparser_hdr_ethernet: Ethernet,
    nat64deparser_hdr_arp: Arp,
    nat64deparser_hdr_ipv4: Ipv4,
    nat64deparser_hdr_ipv6: Ipv6,
    nat64deparser_hdr_neighbor: Neighbor,
    nat64deparser_hdr_tcp: Tcp,
    nat64deparser_hdr_udp: Udp,
    nat64deparser_hdr_icmp: Icmp,
    nat64deparser_meta_is_inside: bool,
    nat64deparser_meta_is_local: bool,
    nat64deparser_meta_is_learning: bool,
    nat64deparser_meta_is_taken: bool,
    nat64deparser_meta_is_claimed: bool,
    nat64deparser_meta_fragment: u16,
    nat64deparser_meta_reason: u8,
    nat64deparser_meta_protocol: u8,
    nat64deparser_meta_internal_high: u64,
    nat64deparser_meta_internal_middle: u32,
    nat64deparser_meta_internal_low: u32,
    nat64deparser_meta_internal_port: u16,
    nat64deparser_meta_external: u32,
    nat64deparser_meta_external_port: u16,
    nat64deparser_meta_first_port: u16,
    nat64deparser_meta_last_port: u16,
    nat64deparser_meta_pool_index: u16,
    nat64deparser_meta_prefix_high: u64,
    nat64deparser_meta_prefix_middle: u32,
    nat64deparser_meta_mtu: u16,
    nat64deparser_meta_remote: u32,
    nat64deparser_meta_profile: u8,
    nat64deparser_meta_hop_high: u64,
    nat64deparser_meta_hop_middle: u32,
    nat64deparser_meta_hop_low: u32,
    nat64deparser_meta_out_port: u32,
    nat64deparser_ostd_class_of_service: u8,
    sum_header_sum: u16,
    sum_neighbor_sum: u16,
    sum_ip_sum: u16,
    sum_sum: u16,
}

/// The table that is being applied, with the key and where its entry is.
#[derive(Clone, Copy, Debug)]
enum Applied {
    Nothing,
    Upload { key: [u128; 5], place: Place },
    Download { key: u64, place: Place },
}

/// The program's tables, and what its objects remember.
#[derive(Debug)]
pub struct Nat64 {
    interfaces: Exact<u64, InterfacesAction>,
    addresses: Exact<u64, AddressesAction>,
    addresses6: Exact<[u128; 4], Addresses6Action>,
    subscribers: Lpm<u64, SubscribersAction>,
    pool: Exact<u64, PoolAction>,
    upload: Exact<[u128; 5], UploadAction>,
    download: Exact<u64, DownloadAction>,
    routes: Lpm<u64, RoutesAction>,
    routes6: Lpm<u64, Routes6Action>,
    next_hops: Exact<u64, NextHopsAction>,
    next_hops6: Exact<[u128; 4], NextHops6Action>,
    drops: Counters,
    subscriber_out: Counters,
    subscriber_rate: Meters,
    identification: Random,
}

impl Nat64 {
    /// Without entries; `seed` is that of its random numbers.
    pub fn new(seed: u64) -> Self {
        Self {
            interfaces: Exact::new(&[32], 64, false, InterfacesAction::NoRole),
            addresses: Exact::new(&[32, 32], 64, false, AddressesAction::TellController),
            addresses6: Exact::new(
                &[32, 64, 32, 32],
                64,
                false,
                Addresses6Action::TellController,
            ),
            subscribers: Lpm::new(&[64], 65536, SubscribersAction::NoSubscriber),
            pool: Exact::new(&[16], 4096, false, PoolAction::NoAddress),
            upload: Exact::new(&[8, 64, 32, 32, 16], 1048576, true, UploadAction::Learn),
            download: Exact::new(
                &[8, 32, 16],
                1048576,
                true,
                DownloadAction::LearnReturn,
            ),
            routes: Lpm::new(&[32], 65536, RoutesAction::NoRoute),
            routes6: Lpm::new(&[64], 65536, Routes6Action::NoRoute),
            next_hops: Exact::new(&[32, 32], 65536, false, NextHopsAction::NoNeighbor),
            next_hops6: Exact::new(
                &[32, 64, 32, 32],
                65536,
                false,
                NextHops6Action::NoNeighbor,
            ),
            drops: Counters::new(256, 0xffffffffffffffff_u64),
            subscriber_out: Counters::new(65536, 0xffffffffffffffff_u64),
            subscriber_rate: Meters::new(65536, true),
            identification: Random::new(seed),
        }
    }

    #[inline(always)]
    fn run<'r, P: Pass>(
        &'r mut self,
        world: &'r mut World,
        packet: &'r [u8],
        head: &'r mut Vec<u8>,
        pass: P,
    ) -> Run<'r, P> {
        let errors = Errors { too_short: 1, timeout: 5 };
        Run {
            now: world.now(),
            tick: world.tick(),
            code: self,
            world,
            head,
            input: Input::new(packet, errors),
            port: None,
            applied: Applied::Nothing,
            pass,
            v: Slots::default(),
        }
    }
}

impl Execute for Nat64 {
    fn process(
        &mut self,
        world: &mut World,
        port: u32,
        packet: &[u8],
        head: &mut Vec<u8>,
    ) -> Verdict {
        let mut run = self.run(world, packet, head, Work);
        run.process(port);
        Verdict {
            port: run.port,
            taken: run.input.taken(),
        }
    }

    fn forward_all(
        &mut self,
        world: &mut World,
        port: u32,
        frames: &mut [Frame<'_>],
        fates: &mut [Fate],
    ) {
        if self.upload.is_large() || self.download.is_large()
            || self.next_hops.is_large() || self.next_hops6.is_large()
        {
            in_halves(self, world, port, frames, fates);
        } else {
            one_by_one(self, world, port, frames, fates);
        }
    }

    fn table(&self, number: usize) -> &dyn Store {
        match number {
            0 => &self.interfaces,
            1 => &self.addresses,
            2 => &self.addresses6,
            3 => &self.subscribers,
            4 => &self.pool,
            5 => &self.upload,
            6 => &self.download,
            7 => &self.routes,
            8 => &self.routes6,
            9 => &self.next_hops,
            10 => &self.next_hops6,
            _ => panic!("there is no table {number}"),
        }
    }

    fn table_mut(&mut self, number: usize) -> &mut dyn Store {
        match number {
            0 => &mut self.interfaces,
            1 => &mut self.addresses,
            2 => &mut self.addresses6,
            3 => &mut self.subscribers,
            4 => &mut self.pool,
            5 => &mut self.upload,
            6 => &mut self.download,
            7 => &mut self.routes,
            8 => &mut self.routes6,
            9 => &mut self.next_hops,
            10 => &mut self.next_hops6,
            _ => panic!("there is no table {number}"),
        }
    }

    fn counter(&self, object: usize, index: u32) -> (u64, u64) {
        match object {
            0 => self.drops.read(index),
            1 => self.subscriber_out.read(index),
            _ => (0, 0),
        }
    }

    fn set_counter(&mut self, object: usize, index: u32, value: (u64, u64)) -> bool {
        match object {
            0 => self.drops.set(index, value),
            1 => self.subscriber_out.set(index, value),
            _ => false,
        }
    }

    fn meter(&self, object: usize, index: u32) -> Option<Rates> {
        match object {
            2 => self.subscriber_rate.read(index),
            _ => None,
        }
    }

    fn set_meter(&mut self, object: usize, index: u32, meter: Option<Meter>) -> bool {
        match object {
            2 => self.subscriber_rate.set(index, meter),
            _ => false,
        }
    }

    fn clear(&mut self) {
        self.drops.clear();
        self.subscriber_out.clear();
        self.subscriber_rate.clear();
    }
}

/// What the second half needs to know of a packet that has been through the first.
#[derive(Debug, Default)]
pub struct PacketState {
    taken: ReadPosition,
    port: Option<u32>,
    nat64main_hdr_ethernet: Ethernet,
    nat64main_hdr_arp: Arp,
    nat64main_hdr_ipv4: Ipv4,
    nat64main_hdr_ipv6: Ipv6,
    nat64main_hdr_neighbor: Neighbor,
    nat64main_hdr_tcp: Tcp,
    nat64main_hdr_udp: Udp,
    nat64main_hdr_icmp: Icmp,
    nat64main_meta_is_inside: bool,
    nat64main_meta_is_local: bool,
    nat64main_meta_is_learning: bool,
    nat64main_meta_is_taken: bool,
    nat64main_meta_is_claimed: bool,
    nat64main_meta_fragment: u16,
    nat64main_meta_reason: u8,
    nat64main_meta_protocol: u8,
    nat64main_meta_internal_high: u64,
    nat64main_meta_internal_middle: u32,
    nat64main_meta_internal_low: u32,
    nat64main_meta_internal_port: u16,
    nat64main_meta_external: u32,
    nat64main_meta_external_port: u16,
    nat64main_meta_first_port: u16,
    nat64main_meta_last_port: u16,
    nat64main_meta_pool_index: u16,
    nat64main_meta_prefix_high: u64,
    nat64main_meta_prefix_middle: u32,
    nat64main_meta_mtu: u16,
    nat64main_meta_remote: u32,
    nat64main_meta_profile: u8,
    nat64main_meta_hop_high: u64,
    nat64main_meta_hop_middle: u32,
    nat64main_meta_hop_low: u32,
    nat64main_meta_out_port: u32,
}

impl Nat64 {
    /// A packet at the beginning of the second half.
    #[inline(always)]
    fn resume<'r, P: Pass>(
        &'r mut self,
        world: &'r mut World,
        packet: &'r [u8],
        kept: &PacketState,
        head: &'r mut Vec<u8>,
        pass: P,
    ) -> Run<'r, P> {
        let mut run = self.run(world, packet, head, pass);
        run.input.resume(kept.taken);
        run.port = kept.port;
        run.v.nat64main_hdr_ethernet = kept.nat64main_hdr_ethernet;
        run.v.nat64main_hdr_arp = kept.nat64main_hdr_arp;
        run.v.nat64main_hdr_ipv4 = kept.nat64main_hdr_ipv4;
        run.v.nat64main_hdr_ipv6 = kept.nat64main_hdr_ipv6;
        run.v.nat64main_hdr_neighbor = kept.nat64main_hdr_neighbor;
        run.v.nat64main_hdr_tcp = kept.nat64main_hdr_tcp;
        run.v.nat64main_hdr_udp = kept.nat64main_hdr_udp;
        run.v.nat64main_hdr_icmp = kept.nat64main_hdr_icmp;
        run.v.nat64main_meta_is_inside = kept.nat64main_meta_is_inside;
        run.v.nat64main_meta_is_local = kept.nat64main_meta_is_local;
        run.v.nat64main_meta_is_learning = kept.nat64main_meta_is_learning;
        run.v.nat64main_meta_is_taken = kept.nat64main_meta_is_taken;
        run.v.nat64main_meta_is_claimed = kept.nat64main_meta_is_claimed;
        run.v.nat64main_meta_fragment = kept.nat64main_meta_fragment;
        run.v.nat64main_meta_reason = kept.nat64main_meta_reason;
        run.v.nat64main_meta_protocol = kept.nat64main_meta_protocol;
        run.v.nat64main_meta_internal_high = kept.nat64main_meta_internal_high;
        run.v.nat64main_meta_internal_middle = kept.nat64main_meta_internal_middle;
        run.v.nat64main_meta_internal_low = kept.nat64main_meta_internal_low;
        run.v.nat64main_meta_internal_port = kept.nat64main_meta_internal_port;
        run.v.nat64main_meta_external = kept.nat64main_meta_external;
        run.v.nat64main_meta_external_port = kept.nat64main_meta_external_port;
        run.v.nat64main_meta_first_port = kept.nat64main_meta_first_port;
        run.v.nat64main_meta_last_port = kept.nat64main_meta_last_port;
        run.v.nat64main_meta_pool_index = kept.nat64main_meta_pool_index;
        run.v.nat64main_meta_prefix_high = kept.nat64main_meta_prefix_high;
        run.v.nat64main_meta_prefix_middle = kept.nat64main_meta_prefix_middle;
        run.v.nat64main_meta_mtu = kept.nat64main_meta_mtu;
        run.v.nat64main_meta_remote = kept.nat64main_meta_remote;
        run.v.nat64main_meta_profile = kept.nat64main_meta_profile;
        run.v.nat64main_meta_hop_high = kept.nat64main_meta_hop_high;
        run.v.nat64main_meta_hop_middle = kept.nat64main_meta_hop_middle;
        run.v.nat64main_meta_hop_low = kept.nat64main_meta_hop_low;
        run.v.nat64main_meta_out_port = kept.nat64main_meta_out_port;
        run
    }
}

impl Halves for Nat64 {
    type PacketState = PacketState;
    #[inline(always)]
    fn begin(
        &mut self,
        world: &mut World,
        port: u32,
        packet: &[u8],
        kept: &mut PacketState,
    ) {
        let mut head = Vec::new();
        let mut run = self.run(world, packet, &mut head, Work);
        run.begin(port);
        kept.taken = run.input.so_far();
        kept.port = run.port;
        kept.nat64main_hdr_ethernet = run.v.nat64main_hdr_ethernet;
        kept.nat64main_hdr_arp = run.v.nat64main_hdr_arp;
        kept.nat64main_hdr_ipv4 = run.v.nat64main_hdr_ipv4;
        kept.nat64main_hdr_ipv6 = run.v.nat64main_hdr_ipv6;
        kept.nat64main_hdr_neighbor = run.v.nat64main_hdr_neighbor;
        kept.nat64main_hdr_tcp = run.v.nat64main_hdr_tcp;
        kept.nat64main_hdr_udp = run.v.nat64main_hdr_udp;
        kept.nat64main_hdr_icmp = run.v.nat64main_hdr_icmp;
        kept.nat64main_meta_is_inside = run.v.nat64main_meta_is_inside;
        kept.nat64main_meta_is_local = run.v.nat64main_meta_is_local;
        kept.nat64main_meta_is_learning = run.v.nat64main_meta_is_learning;
        kept.nat64main_meta_is_taken = run.v.nat64main_meta_is_taken;
        kept.nat64main_meta_is_claimed = run.v.nat64main_meta_is_claimed;
        kept.nat64main_meta_fragment = run.v.nat64main_meta_fragment;
        kept.nat64main_meta_reason = run.v.nat64main_meta_reason;
        kept.nat64main_meta_protocol = run.v.nat64main_meta_protocol;
        kept.nat64main_meta_internal_high = run.v.nat64main_meta_internal_high;
        kept.nat64main_meta_internal_middle = run.v.nat64main_meta_internal_middle;
        kept.nat64main_meta_internal_low = run.v.nat64main_meta_internal_low;
        kept.nat64main_meta_internal_port = run.v.nat64main_meta_internal_port;
        kept.nat64main_meta_external = run.v.nat64main_meta_external;
        kept.nat64main_meta_external_port = run.v.nat64main_meta_external_port;
        kept.nat64main_meta_first_port = run.v.nat64main_meta_first_port;
        kept.nat64main_meta_last_port = run.v.nat64main_meta_last_port;
        kept.nat64main_meta_pool_index = run.v.nat64main_meta_pool_index;
        kept.nat64main_meta_prefix_high = run.v.nat64main_meta_prefix_high;
        kept.nat64main_meta_prefix_middle = run.v.nat64main_meta_prefix_middle;
        kept.nat64main_meta_mtu = run.v.nat64main_meta_mtu;
        kept.nat64main_meta_remote = run.v.nat64main_meta_remote;
        kept.nat64main_meta_profile = run.v.nat64main_meta_profile;
        kept.nat64main_meta_hop_high = run.v.nat64main_meta_hop_high;
        kept.nat64main_meta_hop_middle = run.v.nat64main_meta_hop_middle;
        kept.nat64main_meta_hop_low = run.v.nat64main_meta_hop_low;
        kept.nat64main_meta_out_port = run.v.nat64main_meta_out_port;
    }

    #[inline(always)]
    fn fetch(
        &mut self,
        world: &mut World,
        packet: &[u8],
        kept: &PacketState,
        found: u32,
    ) -> bool {
        self.resume(world, packet, kept, &mut Vec::new(), Ahead::new(found)).finish()
    }

    #[inline(always)]
    fn finish(
        &mut self,
        world: &mut World,
        packet: &[u8],
        kept: &PacketState,
        head: &mut Vec<u8>,
    ) -> Verdict {
        let mut run = self.resume(world, packet, kept, head, Work);
        run.finish();
        Verdict {
            port: run.port,
            taken: run.input.taken(),
        }
    }
}

/// A packet on its way.
struct Run<'r, P> {
    code: &'r mut Nat64,
    world: &'r mut World,
    now: u64,
    tick: Tick,
    input: Input<'r>,
    head: &'r mut Vec<u8>,
    port: Option<u32>,
    applied: Applied,
    pass: P,
    v: Slots,
}

impl<P: Pass> Run<'_, P> {
    /// Takes the packet through the program.
    #[inline(always)]
    fn process(&mut self, port: u32) {
        self.begin(port);
        self.finish();
    }

    /// As far as nothing waits for a large table.
    #[inline(always)]
    fn begin(&mut self, port: u32) {
        self.v.nat64parser_istd_input_port = port as u32;
        self.v.nat64pre_control_istd_input_port = port as u32;
        self.v.nat64main_istd_input_port = port as u32;
        self.v.nat64main_istd_timestamp = self.now as u64;
        if let Err(Stop::Reject(error)) = self.parse_nat64parser() {
            self.v.nat64pre_control_istd_parser_error = error as u32;
            self.v.nat64main_istd_parser_error = error as u32;
        }
        self.v.nat64pre_control_hdr_ethernet = self.v.nat64parser_hdr_ethernet;
        self.v.nat64pre_control_hdr_arp = self.v.nat64parser_hdr_arp;
        self.v.nat64pre_control_hdr_ipv4 = self.v.nat64parser_hdr_ipv4;
        self.v.nat64pre_control_hdr_ipv6 = self.v.nat64parser_hdr_ipv6;
        self.v.nat64pre_control_hdr_neighbor = self.v.nat64parser_hdr_neighbor;
        self.v.nat64pre_control_hdr_tcp = self.v.nat64parser_hdr_tcp;
        self.v.nat64pre_control_hdr_udp = self.v.nat64parser_hdr_udp;
        self.v.nat64pre_control_hdr_icmp = self.v.nat64parser_hdr_icmp;
        self.v.nat64pre_control_meta_is_inside = self.v.nat64parser_meta_is_inside;
        self.v.nat64pre_control_meta_is_local = self.v.nat64parser_meta_is_local;
        self.v.nat64pre_control_meta_is_learning = self.v.nat64parser_meta_is_learning;
        self.v.nat64pre_control_meta_is_taken = self.v.nat64parser_meta_is_taken;
        self.v.nat64pre_control_meta_is_claimed = self.v.nat64parser_meta_is_claimed;
        self.v.nat64pre_control_meta_fragment = self.v.nat64parser_meta_fragment;
        self.v.nat64pre_control_meta_reason = self.v.nat64parser_meta_reason;
        self.v.nat64pre_control_meta_protocol = self.v.nat64parser_meta_protocol;
        self.v.nat64pre_control_meta_internal_high = self
            .v
            .nat64parser_meta_internal_high;
        self.v.nat64pre_control_meta_internal_middle = self
            .v
            .nat64parser_meta_internal_middle;
        self.v.nat64pre_control_meta_internal_low = self.v.nat64parser_meta_internal_low;
        self.v.nat64pre_control_meta_internal_port = self
            .v
            .nat64parser_meta_internal_port;
        self.v.nat64pre_control_meta_external = self.v.nat64parser_meta_external;
        self.v.nat64pre_control_meta_external_port = self
            .v
            .nat64parser_meta_external_port;
        self.v.nat64pre_control_meta_first_port = self.v.nat64parser_meta_first_port;
        self.v.nat64pre_control_meta_last_port = self.v.nat64parser_meta_last_port;
        self.v.nat64pre_control_meta_pool_index = self.v.nat64parser_meta_pool_index;
        self.v.nat64pre_control_meta_prefix_high = self.v.nat64parser_meta_prefix_high;
        self.v.nat64pre_control_meta_prefix_middle = self
            .v
            .nat64parser_meta_prefix_middle;
        self.v.nat64pre_control_meta_mtu = self.v.nat64parser_meta_mtu;
        self.v.nat64pre_control_meta_remote = self.v.nat64parser_meta_remote;
        self.v.nat64pre_control_meta_profile = self.v.nat64parser_meta_profile;
        self.v.nat64pre_control_meta_hop_high = self.v.nat64parser_meta_hop_high;
        self.v.nat64pre_control_meta_hop_middle = self.v.nat64parser_meta_hop_middle;
        self.v.nat64pre_control_meta_hop_low = self.v.nat64parser_meta_hop_low;
        self.v.nat64pre_control_meta_out_port = self.v.nat64parser_meta_out_port;
        self.nat64pre_control();
        self.v.nat64main_hdr_ethernet = self.v.nat64parser_hdr_ethernet;
        self.v.nat64main_hdr_arp = self.v.nat64parser_hdr_arp;
        self.v.nat64main_hdr_ipv4 = self.v.nat64parser_hdr_ipv4;
        self.v.nat64main_hdr_ipv6 = self.v.nat64parser_hdr_ipv6;
        self.v.nat64main_hdr_neighbor = self.v.nat64parser_hdr_neighbor;
        self.v.nat64main_hdr_tcp = self.v.nat64parser_hdr_tcp;
        self.v.nat64main_hdr_udp = self.v.nat64parser_hdr_udp;
        self.v.nat64main_hdr_icmp = self.v.nat64parser_hdr_icmp;
        self.v.nat64main_meta_is_inside = self.v.nat64pre_control_meta_is_inside;
        self.v.nat64main_meta_is_local = self.v.nat64pre_control_meta_is_local;
        self.v.nat64main_meta_is_learning = self.v.nat64pre_control_meta_is_learning;
        self.v.nat64main_meta_is_taken = self.v.nat64pre_control_meta_is_taken;
        self.v.nat64main_meta_is_claimed = self.v.nat64pre_control_meta_is_claimed;
        self.v.nat64main_meta_fragment = self.v.nat64pre_control_meta_fragment;
        self.v.nat64main_meta_reason = self.v.nat64pre_control_meta_reason;
        self.v.nat64main_meta_protocol = self.v.nat64pre_control_meta_protocol;
        self.v.nat64main_meta_internal_high = self.v.nat64pre_control_meta_internal_high;
        self.v.nat64main_meta_internal_middle = self
            .v
            .nat64pre_control_meta_internal_middle;
        self.v.nat64main_meta_internal_low = self.v.nat64pre_control_meta_internal_low;
        self.v.nat64main_meta_internal_port = self.v.nat64pre_control_meta_internal_port;
        self.v.nat64main_meta_external = self.v.nat64pre_control_meta_external;
        self.v.nat64main_meta_external_port = self.v.nat64pre_control_meta_external_port;
        self.v.nat64main_meta_first_port = self.v.nat64pre_control_meta_first_port;
        self.v.nat64main_meta_last_port = self.v.nat64pre_control_meta_last_port;
        self.v.nat64main_meta_pool_index = self.v.nat64pre_control_meta_pool_index;
        self.v.nat64main_meta_prefix_high = self.v.nat64pre_control_meta_prefix_high;
        self.v.nat64main_meta_prefix_middle = self.v.nat64pre_control_meta_prefix_middle;
        self.v.nat64main_meta_mtu = self.v.nat64pre_control_meta_mtu;
        self.v.nat64main_meta_remote = self.v.nat64pre_control_meta_remote;
        self.v.nat64main_meta_profile = self.v.nat64pre_control_meta_profile;
        self.v.nat64main_meta_hop_high = self.v.nat64pre_control_meta_hop_high;
        self.v.nat64main_meta_hop_middle = self.v.nat64pre_control_meta_hop_middle;
        self.v.nat64main_meta_hop_low = self.v.nat64pre_control_meta_hop_low;
        self.v.nat64main_meta_out_port = self.v.nat64pre_control_meta_out_port;
        self.nat64main_first();
    }

    /// The rest; on the way ahead, whether there may be more to fetch.
    #[inline(always)]
    fn finish(&mut self) -> bool {
        if let Err(Stop::Ahead { more }) = self.nat64main() {
            return more;
        }
        if P::IS_AHEAD {
            return false;
        }
        self.v.nat64deparser_hdr_ethernet = self.v.nat64main_hdr_ethernet;
        self.v.nat64deparser_hdr_arp = self.v.nat64main_hdr_arp;
        self.v.nat64deparser_hdr_ipv4 = self.v.nat64main_hdr_ipv4;
        self.v.nat64deparser_hdr_ipv6 = self.v.nat64main_hdr_ipv6;
        self.v.nat64deparser_hdr_neighbor = self.v.nat64main_hdr_neighbor;
        self.v.nat64deparser_hdr_tcp = self.v.nat64main_hdr_tcp;
        self.v.nat64deparser_hdr_udp = self.v.nat64main_hdr_udp;
        self.v.nat64deparser_hdr_icmp = self.v.nat64main_hdr_icmp;
        self.v.nat64deparser_meta_is_inside = self.v.nat64main_meta_is_inside;
        self.v.nat64deparser_meta_is_local = self.v.nat64main_meta_is_local;
        self.v.nat64deparser_meta_is_learning = self.v.nat64main_meta_is_learning;
        self.v.nat64deparser_meta_is_taken = self.v.nat64main_meta_is_taken;
        self.v.nat64deparser_meta_is_claimed = self.v.nat64main_meta_is_claimed;
        self.v.nat64deparser_meta_fragment = self.v.nat64main_meta_fragment;
        self.v.nat64deparser_meta_reason = self.v.nat64main_meta_reason;
        self.v.nat64deparser_meta_protocol = self.v.nat64main_meta_protocol;
        self.v.nat64deparser_meta_internal_high = self.v.nat64main_meta_internal_high;
        self.v.nat64deparser_meta_internal_middle = self
            .v
            .nat64main_meta_internal_middle;
        self.v.nat64deparser_meta_internal_low = self.v.nat64main_meta_internal_low;
        self.v.nat64deparser_meta_internal_port = self.v.nat64main_meta_internal_port;
        self.v.nat64deparser_meta_external = self.v.nat64main_meta_external;
        self.v.nat64deparser_meta_external_port = self.v.nat64main_meta_external_port;
        self.v.nat64deparser_meta_first_port = self.v.nat64main_meta_first_port;
        self.v.nat64deparser_meta_last_port = self.v.nat64main_meta_last_port;
        self.v.nat64deparser_meta_pool_index = self.v.nat64main_meta_pool_index;
        self.v.nat64deparser_meta_prefix_high = self.v.nat64main_meta_prefix_high;
        self.v.nat64deparser_meta_prefix_middle = self.v.nat64main_meta_prefix_middle;
        self.v.nat64deparser_meta_mtu = self.v.nat64main_meta_mtu;
        self.v.nat64deparser_meta_remote = self.v.nat64main_meta_remote;
        self.v.nat64deparser_meta_profile = self.v.nat64main_meta_profile;
        self.v.nat64deparser_meta_hop_high = self.v.nat64main_meta_hop_high;
        self.v.nat64deparser_meta_hop_middle = self.v.nat64main_meta_hop_middle;
        self.v.nat64deparser_meta_hop_low = self.v.nat64main_meta_hop_low;
        self.v.nat64deparser_meta_out_port = self.v.nat64main_meta_out_port;
        self.nat64deparser();
        false
    }

    /// The parser `Nat64Parser`.
    #[inline(always)]
    fn parse_nat64parser(&mut self) -> Result<(), Stop> {
        self.parse_nat64parser_start()
    }

    /// Its state `start`.
    #[inline(always)]
    fn parse_nat64parser_start(&mut self) -> Result<(), Stop> {
        self.input.step()?;
        self.v.nat64parser_hdr_ethernet = Ethernet::read(self.input.extract()?);
        let key_0 = self.v.nat64parser_hdr_ethernet.ethertype;
        if key_0 == 0x806_u16 {
            self.parse_nat64parser_arp()
        } else if key_0 == 0x800_u16 {
            self.parse_nat64parser_ipv4()
        } else if key_0 == 0x86dd_u16 {
            self.parse_nat64parser_ipv6()
        } else {
            Ok(())
        }
    }

    /// Its state `arp`.
    #[inline(always)]
    fn parse_nat64parser_arp(&mut self) -> Result<(), Stop> {
        self.input.step()?;
        self.v.nat64parser_hdr_arp = Arp::read(self.input.extract()?);
        Ok(())
    }

    /// Its state `ipv4`.
    #[inline(always)]
    fn parse_nat64parser_ipv4(&mut self) -> Result<(), Stop> {
        self.input.step()?;
        self.v.nat64parser_hdr_ipv4 = Ipv4::read(self.input.extract()?);
        self.v.nat64parser_meta_fragment = self.v.nat64parser_hdr_ipv4.flags_offset
            & 0x3fff_u16;
        let key_0 = self.v.nat64parser_hdr_ipv4.version_ihl;
        let key_1 = self.v.nat64parser_meta_fragment;
        let key_2 = self.v.nat64parser_hdr_ipv4.protocol;
        if key_0 == 69_u8 && key_1 == 0_u16 && key_2 == 6_u8 {
            self.parse_nat64parser_tcp()
        } else if key_0 == 69_u8 && key_1 == 0_u16 && key_2 == 17_u8 {
            self.parse_nat64parser_udp()
        } else if key_0 == 69_u8 && key_1 == 0_u16 && key_2 == 1_u8 {
            self.parse_nat64parser_icmp()
        } else {
            Ok(())
        }
    }

    /// Its state `ipv6`.
    #[inline(always)]
    fn parse_nat64parser_ipv6(&mut self) -> Result<(), Stop> {
        self.input.step()?;
        self.v.nat64parser_hdr_ipv6 = Ipv6::read(self.input.extract()?);
        let key_0 = self.v.nat64parser_hdr_ipv6.next_header;
        if key_0 == 6_u8 {
            self.parse_nat64parser_tcp()
        } else if key_0 == 17_u8 {
            self.parse_nat64parser_udp()
        } else if key_0 == 58_u8 {
            self.parse_nat64parser_icmp_v6()
        } else {
            Ok(())
        }
    }

    /// Its state `icmp_v6`.
    #[inline(always)]
    fn parse_nat64parser_icmp_v6(&mut self) -> Result<(), Stop> {
        self.input.step()?;
        self.v.nat64parser_tmp = self.v.nat64parser_hdr_ipv6.payload_length;
        self.v.nat64parser_tmp_2 = self.v.nat64parser_hdr_ipv6.hop_limit;
        let bytes = self.input.peek::<1>(8)?;
        self.v.nat64parser_ahead = bytes[0];
        let key_0 = self.v.nat64parser_tmp;
        let key_1 = self.v.nat64parser_tmp_2;
        let key_2 = self.v.nat64parser_ahead;
        if key_0 == 32_u16 && key_1 == 0xff_u8 && key_2 == 0x87_u8 {
            self.parse_nat64parser_neighbor()
        } else {
            self.parse_nat64parser_icmp()
        }
    }

    /// Its state `neighbor`.
    #[inline(always)]
    fn parse_nat64parser_neighbor(&mut self) -> Result<(), Stop> {
        self.input.step()?;
        self.v.nat64parser_hdr_neighbor = Neighbor::read(self.input.extract()?);
        Ok(())
    }

    /// Its state `tcp`.
    #[inline(always)]
    fn parse_nat64parser_tcp(&mut self) -> Result<(), Stop> {
        self.input.step()?;
        self.v.nat64parser_hdr_tcp = Tcp::read(self.input.extract()?);
        Ok(())
    }

    /// Its state `udp`.
    #[inline(always)]
    fn parse_nat64parser_udp(&mut self) -> Result<(), Stop> {
        self.input.step()?;
        self.v.nat64parser_hdr_udp = Udp::read(self.input.extract()?);
        Ok(())
    }

    /// Its state `icmp`.
    #[inline(always)]
    fn parse_nat64parser_icmp(&mut self) -> Result<(), Stop> {
        self.input.step()?;
        self.v.nat64parser_hdr_icmp = Icmp::read(self.input.extract()?);
        Ok(())
    }

    /// Applies `Nat64Main.interfaces`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_interfaces(&mut self) -> (bool, u32) {
        let key = self.v.nat64main_istd_input_port as u64;
        let (found, place) = self.code.interfaces.find(self.tick, key);
        match found.action {
            InterfacesAction::Inside { mac, prefix_high, prefix_middle, mtu } => {
                self.v.nat64main_inside_mac = mac;
                self.v.nat64main_inside_prefix_high = prefix_high;
                self.v.nat64main_inside_prefix_middle = prefix_middle;
                self.v.nat64main_inside_mtu = mtu;
                self.nat64main_inside()
            }
            InterfacesAction::Outside { mac, prefix_high, prefix_middle, mtu } => {
                self.v.nat64main_outside_mac = mac;
                self.v.nat64main_outside_prefix_high = prefix_high;
                self.v.nat64main_outside_prefix_middle = prefix_middle;
                self.v.nat64main_outside_mtu = mtu;
                self.nat64main_outside()
            }
            InterfacesAction::NoRole {} => self.nat64main_no_role(),
        };
        (found.hit, found.action.number() as u32)
    }

    /// Applies `Nat64Main.addresses`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_addresses(&mut self) -> (bool, u32) {
        let key = (self.v.nat64main_istd_input_port as u64) << 32
            | self.v.nat64main_hdr_arp.target as u64;
        let (found, place) = self.code.addresses.find(self.tick, key);
        match found.action {
            AddressesAction::Answer { mac } => {
                self.v.nat64main_answer_mac = mac;
                self.nat64main_answer()
            }
            AddressesAction::TellController {} => self.nat64main_tell_controller(),
        };
        (found.hit, found.action.number() as u32)
    }

    /// Applies `Nat64Main.addresses6`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_addresses6(&mut self) -> (bool, u32) {
        let key = [
            self.v.nat64main_istd_input_port as u128,
            self.v.nat64main_hdr_neighbor.target_high as u128,
            self.v.nat64main_hdr_neighbor.target_middle as u128,
            self.v.nat64main_hdr_neighbor.target_low as u128,
        ];
        let (found, place) = self.code.addresses6.find(self.tick, key);
        match found.action {
            Addresses6Action::Advertise { mac } => {
                self.v.nat64main_advertise_mac = mac;
                self.nat64main_advertise()
            }
            Addresses6Action::TellController {} => self.nat64main_tell_controller(),
        };
        (found.hit, found.action.number() as u32)
    }

    /// Applies `Nat64Main.subscribers`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_subscribers(&mut self) -> (bool, u32) {
        let found = self.code.subscribers.find(self.v.nat64main_hdr_ipv6.source_high);
        match found.action {
            SubscribersAction::Subscriber { index, pool_index } => {
                self.v.nat64main_subscriber_index = index;
                self.v.nat64main_subscriber_pool_index = pool_index;
                self.nat64main_subscriber()
            }
            SubscribersAction::NoSubscriber {} => self.nat64main_no_subscriber(),
        };
        (found.hit, found.action.number() as u32)
    }

    /// Applies `Nat64Main.pool`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_pool(&mut self) -> (bool, u32) {
        let key = self.v.nat64main_meta_pool_index as u64;
        let (found, place) = self.code.pool.find(self.tick, key);
        match found.action {
            PoolAction::ExternalAddress { address, first, last } => {
                self.v.nat64main_external_address_address = address;
                self.v.nat64main_external_address_first = first;
                self.v.nat64main_external_address_last = last;
                self.nat64main_external_address()
            }
            PoolAction::NoAddress {} => self.nat64main_no_address(),
        };
        (found.hit, found.action.number() as u32)
    }

    /// Applies `Nat64Main.upload`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_upload(&mut self, more: bool) -> (bool, u32, Result<(), Stop>) {
        let key = [
            self.v.nat64main_meta_protocol as u128,
            self.v.nat64main_meta_internal_high as u128,
            self.v.nat64main_meta_internal_middle as u128,
            self.v.nat64main_meta_internal_low as u128,
            self.v.nat64main_meta_internal_port as u128,
        ];
        let (found, place) = match self
            .pass
            .find(&self.code.upload, self.tick, key, more)
        {
            Ok(found) => found,
            Err(stop) => return (false, 0, Err(stop)),
        };
        self.applied = Applied::Upload { key, place };
        let flow = match found.action {
            UploadAction::ToExternal { address, port } => {
                self.v.nat64main_to_external_address = address;
                self.v.nat64main_to_external_port = port;
                self.nat64main_to_external();
                Ok(())
            }
            UploadAction::Learn {} => {
                self.nat64main_learn();
                Ok(())
            }
        };
        self.applied = Applied::Nothing;
        (found.hit, found.action.number() as u32, flow)
    }

    /// Applies `Nat64Main.download`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_download(&mut self, more: bool) -> (bool, u32, Result<(), Stop>) {
        let key = (self.v.nat64main_meta_protocol as u64) << 48
            | (self.v.nat64main_meta_external as u64) << 16
            | self.v.nat64main_meta_external_port as u64;
        let (found, place) = match self
            .pass
            .find(&self.code.download, self.tick, key, more)
        {
            Ok(found) => found,
            Err(stop) => return (false, 0, Err(stop)),
        };
        self.applied = Applied::Download { key, place };
        let flow = match found.action {
            DownloadAction::ToInternal { high, middle, low, port } => {
                self.v.nat64main_to_internal_high = high;
                self.v.nat64main_to_internal_middle = middle;
                self.v.nat64main_to_internal_low = low;
                self.v.nat64main_to_internal_port = port;
                self.nat64main_to_internal();
                Ok(())
            }
            DownloadAction::LearnReturn {} => {
                self.nat64main_learn_return();
                Ok(())
            }
        };
        self.applied = Applied::Nothing;
        (found.hit, found.action.number() as u32, flow)
    }

    /// Applies `Nat64Main.routes`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_routes(&mut self) -> (bool, u32) {
        let found = self.code.routes.find(self.v.nat64main_meta_remote as u64);
        match found.action {
            RoutesAction::Via { gateway, port } => {
                self.v.nat64main_via_gateway = gateway;
                self.v.nat64main_via_port = port;
                self.nat64main_via()
            }
            RoutesAction::OnLink { port } => {
                self.v.nat64main_on_link_port = port;
                self.nat64main_on_link()
            }
            RoutesAction::Hairpin {} => self.nat64main_hairpin(),
            RoutesAction::NoRoute {} => self.nat64main_no_route(),
        };
        (found.hit, found.action.number() as u32)
    }

    /// Applies `Nat64Main.routes6`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_routes6(&mut self) -> (bool, u32) {
        let found = self.code.routes6.find(self.v.nat64main_hdr_ipv6.destination_high);
        match found.action {
            Routes6Action::Via6 { high, middle, low, port } => {
                self.v.nat64main_via6_high = high;
                self.v.nat64main_via6_middle = middle;
                self.v.nat64main_via6_low = low;
                self.v.nat64main_via6_port = port;
                self.nat64main_via6()
            }
            Routes6Action::OnLink6 { port } => {
                self.v.nat64main_on_link6_port = port;
                self.nat64main_on_link6()
            }
            Routes6Action::NoRoute {} => self.nat64main_no_route(),
        };
        (found.hit, found.action.number() as u32)
    }

    /// Applies `Nat64Main.next_hops`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_next_hops(&mut self, more: bool) -> (bool, u32, Result<(), Stop>) {
        let key = (self.v.nat64main_meta_out_port as u64) << 32
            | self.v.nat64main_meta_hop_low as u64;
        let (found, place) = match self
            .pass
            .find(&self.code.next_hops, self.tick, key, more)
        {
            Ok(found) => found,
            Err(stop) => return (false, 0, Err(stop)),
        };
        let flow = match found.action {
            NextHopsAction::Neighbor { source, destination } => {
                self.v.nat64main_neighbor_source = source;
                self.v.nat64main_neighbor_destination = destination;
                self.nat64main_neighbor();
                Ok(())
            }
            NextHopsAction::NoNeighbor {} => {
                self.nat64main_no_neighbor();
                Ok(())
            }
        };
        (found.hit, found.action.number() as u32, flow)
    }

    /// Applies `Nat64Main.next_hops6`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_next_hops6(&mut self, more: bool) -> (bool, u32, Result<(), Stop>) {
        let key = [
            self.v.nat64main_meta_out_port as u128,
            self.v.nat64main_meta_hop_high as u128,
            self.v.nat64main_meta_hop_middle as u128,
            self.v.nat64main_meta_hop_low as u128,
        ];
        let (found, place) = match self
            .pass
            .find(&self.code.next_hops6, self.tick, key, more)
        {
            Ok(found) => found,
            Err(stop) => return (false, 0, Err(stop)),
        };
        let flow = match found.action {
            NextHops6Action::Neighbor { source, destination } => {
                self.v.nat64main_neighbor_source = source;
                self.v.nat64main_neighbor_destination = destination;
                self.nat64main_neighbor();
                Ok(())
            }
            NextHops6Action::NoNeighbor {} => {
                self.nat64main_no_neighbor();
                Ok(())
            }
        };
        (found.hit, found.action.number() as u32, flow)
    }

    /// `NoAction`.
    #[inline(always)]
    fn no_action(&mut self) {}
    /// `Nat64PreControl`.
    #[inline(always)]
    fn nat64pre_control(&mut self) {}
    /// `Nat64Main.translate.subtract_ipv6`.
    #[inline(always)]
    fn nat64main_translate_subtract_ipv6(&mut self) {
        let part_0 = self.v.nat64main_translate_hdr_ipv6.source_high;
        let part_1 = self.v.nat64main_translate_hdr_ipv6.source_middle;
        let part_2 = self.v.nat64main_translate_hdr_ipv6.source_low;
        self.v.sum_sum = checksum(
            self.v.sum_sum,
            [
                !(((part_0 >> 48) as u16)),
                !(((part_0 >> 32) as u16)),
                !(((part_0 >> 16) as u16)),
                !((part_0 as u16)),
                !(((part_1 >> 16) as u16)),
                !((part_1 as u16)),
                !(((part_2 >> 16) as u16)),
                !((part_2 as u16)),
            ],
        );
        let part_0 = self.v.nat64main_translate_hdr_ipv6.destination_high;
        let part_1 = self.v.nat64main_translate_hdr_ipv6.destination_middle;
        let part_2 = self.v.nat64main_translate_hdr_ipv6.destination_low;
        self.v.sum_sum = checksum(
            self.v.sum_sum,
            [
                !(((part_0 >> 48) as u16)),
                !(((part_0 >> 32) as u16)),
                !(((part_0 >> 16) as u16)),
                !((part_0 as u16)),
                !(((part_1 >> 16) as u16)),
                !((part_1 as u16)),
                !(((part_2 >> 16) as u16)),
                !((part_2 as u16)),
            ],
        );
    }

    /// `Nat64Main.translate.add_ipv6`.
    #[inline(always)]
    fn nat64main_translate_add_ipv6(&mut self) {
        let part_0 = self.v.nat64main_translate_hdr_ipv6.source_high;
        let part_1 = self.v.nat64main_translate_hdr_ipv6.source_middle;
        let part_2 = self.v.nat64main_translate_hdr_ipv6.source_low;
        self.v.sum_sum = checksum(
            self.v.sum_sum,
            [
                ((part_0 >> 48) as u16),
                ((part_0 >> 32) as u16),
                ((part_0 >> 16) as u16),
                (part_0 as u16),
                ((part_1 >> 16) as u16),
                (part_1 as u16),
                ((part_2 >> 16) as u16),
                (part_2 as u16),
            ],
        );
        let part_0 = self.v.nat64main_translate_hdr_ipv6.destination_high;
        let part_1 = self.v.nat64main_translate_hdr_ipv6.destination_middle;
        let part_2 = self.v.nat64main_translate_hdr_ipv6.destination_low;
        self.v.sum_sum = checksum(
            self.v.sum_sum,
            [
                ((part_0 >> 48) as u16),
                ((part_0 >> 32) as u16),
                ((part_0 >> 16) as u16),
                (part_0 as u16),
                ((part_1 >> 16) as u16),
                (part_1 as u16),
                ((part_2 >> 16) as u16),
                (part_2 as u16),
            ],
        );
    }

    /// `Nat64Main.translate.make_ipv4`.
    #[inline(always)]
    fn nat64main_translate_make_ipv4(&mut self) {
        self.v.nat64main_translate_hdr_ipv4.valid = true;
        self.v.nat64main_translate_hdr_ipv4.version_ihl = 69_u8;
        self.v.nat64main_translate_hdr_ipv4.tos = (self
            .v
            .nat64main_translate_hdr_ipv6
            .version_class_flow >> 20) as u8;
        self.v.nat64main_translate_hdr_ipv4.total_length = self
            .v
            .nat64main_translate_hdr_ipv6
            .payload_length
            .wrapping_add(20_u16);
        self.v.nat64main_translate_hdr_ipv4.identification = 0_u16;
        self.v.nat64main_translate_hdr_ipv4.flags_offset = 0x4000_u16;
        if self.v.nat64main_translate_hdr_ipv4.total_length <= 0x4ec_u16 {
            self.v.nat64main_translate_make_ipv4_result = ((self
                .pass
                .next(&mut self.code.identification, 0x0, 0xffff) & 0xffff)) as u16;
            self.v.nat64main_translate_hdr_ipv4.identification = self
                .v
                .nat64main_translate_make_ipv4_result;
            self.v.nat64main_translate_hdr_ipv4.flags_offset = 0_u16;
        }
        self.v.nat64main_translate_hdr_ipv4.ttl = self
            .v
            .nat64main_translate_hdr_ipv6
            .hop_limit
            .wrapping_sub(1_u8);
        self.v.nat64main_translate_hdr_ipv4.protocol = self
            .v
            .nat64main_translate_meta_protocol;
        self.v.nat64main_translate_hdr_ipv4.checksum = 0_u16;
        self.v.nat64main_translate_hdr_ipv4.source = self
            .v
            .nat64main_translate_meta_external;
        self.v.nat64main_translate_hdr_ipv4.destination = self
            .v
            .nat64main_translate_hdr_ipv6
            .destination_low;
        self.v.sum_ip_sum = 0;
        let part_0 = self.v.nat64main_translate_hdr_ipv4.version_ihl;
        let part_1 = self.v.nat64main_translate_hdr_ipv4.tos;
        let part_2 = self.v.nat64main_translate_hdr_ipv4.total_length;
        let part_3 = self.v.nat64main_translate_hdr_ipv4.identification;
        let part_4 = self.v.nat64main_translate_hdr_ipv4.flags_offset;
        let part_5 = self.v.nat64main_translate_hdr_ipv4.ttl;
        let part_6 = self.v.nat64main_translate_hdr_ipv4.protocol;
        let part_7 = self.v.nat64main_translate_hdr_ipv4.checksum;
        let part_8 = self.v.nat64main_translate_hdr_ipv4.source;
        let part_9 = self.v.nat64main_translate_hdr_ipv4.destination;
        self.v.sum_ip_sum = checksum(
            self.v.sum_ip_sum,
            [
                (part_0 as u16) << 8 | (part_1 as u16),
                part_2,
                part_3,
                part_4,
                (part_5 as u16) << 8 | (part_6 as u16),
                part_7,
                ((part_8 >> 16) as u16),
                (part_8 as u16),
                ((part_9 >> 16) as u16),
                (part_9 as u16),
            ],
        );
        self.v.nat64main_translate_make_ipv4_result_2 = (!self.v.sum_ip_sum as u128)
            as u16;
        self.v.nat64main_translate_hdr_ipv4.checksum = self
            .v
            .nat64main_translate_make_ipv4_result_2;
        self.v.nat64main_translate_hdr_ethernet.ethertype = 0x800_u16;
    }

    /// `Nat64Main.translate.make_ipv6`.
    #[inline(always)]
    fn nat64main_translate_make_ipv6(&mut self) {
        self.v.nat64main_translate_hdr_ipv6.valid = true;
        self.v.nat64main_translate_hdr_ipv6.version_class_flow = 0x60000000_u32
            | ((self.v.nat64main_translate_hdr_ipv4.tos as u32) << 20);
        self.v.nat64main_translate_hdr_ipv6.payload_length = self
            .v
            .nat64main_translate_hdr_ipv4
            .total_length
            .wrapping_sub(20_u16);
        self.v.nat64main_translate_hdr_ipv6.next_header = self
            .v
            .nat64main_translate_hdr_ipv4
            .protocol;
        if self.v.nat64main_translate_meta_protocol == 1_u8 {
            self.v.nat64main_translate_hdr_ipv6.next_header = 58_u8;
        }
        self.v.nat64main_translate_hdr_ipv6.hop_limit = self
            .v
            .nat64main_translate_hdr_ipv4
            .ttl
            .wrapping_sub(1_u8);
        self.v.nat64main_translate_hdr_ipv6.source_high = self
            .v
            .nat64main_translate_meta_prefix_high;
        self.v.nat64main_translate_hdr_ipv6.source_middle = self
            .v
            .nat64main_translate_meta_prefix_middle;
        self.v.nat64main_translate_hdr_ipv6.source_low = self
            .v
            .nat64main_translate_hdr_ipv4
            .source;
        self.v.nat64main_translate_hdr_ipv6.destination_high = self
            .v
            .nat64main_translate_meta_internal_high;
        self.v.nat64main_translate_hdr_ipv6.destination_middle = self
            .v
            .nat64main_translate_meta_internal_middle;
        self.v.nat64main_translate_hdr_ipv6.destination_low = self
            .v
            .nat64main_translate_meta_internal_low;
        self.v.nat64main_translate_hdr_ethernet.ethertype = 0x86dd_u16;
    }

    /// `Nat64Main.translate`.
    #[inline(always)]
    fn nat64main_translate(&mut self) {
        self.v.nat64main_translate_new_port = 0_u16;
        self.v.sum_sum = 0;
        if self.v.nat64main_translate_meta_is_inside {
            self.nat64main_translate_make_ipv4();
            self.v.nat64main_translate_new_port = self
                .v
                .nat64main_translate_meta_external_port;
            self.nat64main_translate_subtract_ipv6();
            if self.v.nat64main_translate_hdr_icmp.valid {
                let part_0 = self.v.nat64main_translate_hdr_ipv6.payload_length;
                let part_1 = 0_u8;
                let part_2 = 58_u8;
                self.v.sum_sum = checksum(
                    self.v.sum_sum,
                    [!(part_0), !((part_1 as u16) << 8 | (part_2 as u16))],
                );
            } else {
                let part_0 = self.v.nat64main_translate_hdr_ipv4.source;
                let part_1 = self.v.nat64main_translate_hdr_ipv4.destination;
                self.v.sum_sum = checksum(
                    self.v.sum_sum,
                    [
                        ((part_0 >> 16) as u16),
                        (part_0 as u16),
                        ((part_1 >> 16) as u16),
                        (part_1 as u16),
                    ],
                );
            }
            let part_0 = self.v.nat64main_translate_meta_internal_port;
            self.v.sum_sum = checksum(self.v.sum_sum, [!(part_0)]);
        } else {
            self.nat64main_translate_make_ipv6();
            self.v.nat64main_translate_new_port = self
                .v
                .nat64main_translate_meta_internal_port;
            self.nat64main_translate_add_ipv6();
            if self.v.nat64main_translate_hdr_icmp.valid {
                let part_0 = self.v.nat64main_translate_hdr_ipv6.payload_length;
                let part_1 = 0_u8;
                let part_2 = 58_u8;
                self.v.sum_sum = checksum(
                    self.v.sum_sum,
                    [part_0, (part_1 as u16) << 8 | (part_2 as u16)],
                );
            } else {
                let part_0 = self.v.nat64main_translate_hdr_ipv4.source;
                let part_1 = self.v.nat64main_translate_hdr_ipv4.destination;
                self.v.sum_sum = checksum(
                    self.v.sum_sum,
                    [
                        !(((part_0 >> 16) as u16)),
                        !((part_0 as u16)),
                        !(((part_1 >> 16) as u16)),
                        !((part_1 as u16)),
                    ],
                );
            }
            let part_0 = self.v.nat64main_translate_meta_external_port;
            self.v.sum_sum = checksum(self.v.sum_sum, [!(part_0)]);
        }
        let part_0 = self.v.nat64main_translate_new_port;
        self.v.sum_sum = checksum(self.v.sum_sum, [part_0]);
        if self.v.nat64main_translate_hdr_tcp.valid {
            let part_0 = self.v.nat64main_translate_hdr_tcp.checksum;
            self.v.sum_sum = checksum(self.v.sum_sum, [!(part_0)]);
            self.v.nat64main_translate_result = (!self.v.sum_sum as u128) as u16;
            self.v.nat64main_translate_hdr_tcp.checksum = self
                .v
                .nat64main_translate_result;
            if self.v.nat64main_translate_meta_is_inside {
                self.v.nat64main_translate_hdr_tcp.source = self
                    .v
                    .nat64main_translate_new_port;
            } else {
                self.v.nat64main_translate_hdr_tcp.destination = self
                    .v
                    .nat64main_translate_new_port;
            }
        } else {
            if self.v.nat64main_translate_hdr_udp.valid {
                let part_0 = self.v.nat64main_translate_hdr_udp.checksum;
                self.v.sum_sum = checksum(self.v.sum_sum, [!(part_0)]);
                self.v.nat64main_translate_result_2 = (!self.v.sum_sum as u128) as u16;
                self.v.nat64main_translate_hdr_udp.checksum = self
                    .v
                    .nat64main_translate_result_2;
                if self.v.nat64main_translate_hdr_udp.checksum == 0_u16 {
                    self.v.nat64main_translate_hdr_udp.checksum = 0xffff_u16;
                }
                if self.v.nat64main_translate_meta_is_inside {
                    self.v.nat64main_translate_hdr_udp.source = self
                        .v
                        .nat64main_translate_new_port;
                } else {
                    self.v.nat64main_translate_hdr_udp.destination = self
                        .v
                        .nat64main_translate_new_port;
                }
            } else {
                let part_0 = self.v.nat64main_translate_hdr_icmp.checksum;
                let part_1 = self.v.nat64main_translate_hdr_icmp.kind;
                let part_2 = self.v.nat64main_translate_hdr_icmp.code;
                self.v.sum_sum = checksum(
                    self.v.sum_sum,
                    [!(part_0), !((part_1 as u16) << 8 | (part_2 as u16))],
                );
                if self.v.nat64main_translate_hdr_icmp.kind == 0x80_u8 {
                    self.v.nat64main_translate_hdr_icmp.kind = 8_u8;
                } else {
                    if self.v.nat64main_translate_hdr_icmp.kind == 0x81_u8 {
                        self.v.nat64main_translate_hdr_icmp.kind = 0_u8;
                    } else {
                        if self.v.nat64main_translate_hdr_icmp.kind == 8_u8 {
                            self.v.nat64main_translate_hdr_icmp.kind = 0x80_u8;
                        } else {
                            self.v.nat64main_translate_hdr_icmp.kind = 0x81_u8;
                        }
                    }
                }
                let part_0 = self.v.nat64main_translate_hdr_icmp.kind;
                let part_1 = self.v.nat64main_translate_hdr_icmp.code;
                self.v.sum_sum = checksum(
                    self.v.sum_sum,
                    [(part_0 as u16) << 8 | (part_1 as u16)],
                );
                self.v.nat64main_translate_result_3 = (!self.v.sum_sum as u128) as u16;
                self.v.nat64main_translate_hdr_icmp.checksum = self
                    .v
                    .nat64main_translate_result_3;
                self.v.nat64main_translate_hdr_icmp.identifier = self
                    .v
                    .nat64main_translate_new_port;
            }
        }
        if self.v.nat64main_translate_meta_is_inside {
            self.v.nat64main_translate_hdr_ipv6.valid = false;
        } else {
            self.v.nat64main_translate_hdr_ipv4.valid = false;
        }
    }

    /// `Nat64Main.no_role`.
    #[inline(always)]
    fn nat64main_no_role(&mut self) {
        self.v.nat64main_meta_reason = 1_u8;
    }

    /// `Nat64Main.inside`.
    #[inline(always)]
    fn nat64main_inside(&mut self) {
        self.v.nat64main_meta_is_inside = true;
        self.v.nat64main_meta_is_local = self.v.nat64main_hdr_ethernet.destination
            == self.v.nat64main_inside_mac;
        self.v.nat64main_meta_prefix_high = self.v.nat64main_inside_prefix_high;
        self.v.nat64main_meta_prefix_middle = self.v.nat64main_inside_prefix_middle;
        self.v.nat64main_meta_mtu = self.v.nat64main_inside_mtu;
    }

    /// `Nat64Main.outside`.
    #[inline(always)]
    fn nat64main_outside(&mut self) {
        self.v.nat64main_meta_is_inside = false;
        self.v.nat64main_meta_is_local = self.v.nat64main_hdr_ethernet.destination
            == self.v.nat64main_outside_mac;
        self.v.nat64main_meta_prefix_high = self.v.nat64main_outside_prefix_high;
        self.v.nat64main_meta_prefix_middle = self.v.nat64main_outside_prefix_middle;
        self.v.nat64main_meta_mtu = self.v.nat64main_outside_mtu;
    }

    /// `Nat64Main.answer`.
    #[inline(always)]
    fn nat64main_answer(&mut self) {
        self.v.nat64main_hdr_arp.operation = 2_u16;
        self.v.nat64main_hdr_arp.target_mac = self.v.nat64main_hdr_arp.sender_mac;
        self.v.nat64main_hdr_arp.sender_mac = self.v.nat64main_answer_mac;
        self.v.nat64main_answer_asked = self.v.nat64main_hdr_arp.target;
        self.v.nat64main_hdr_arp.target = self.v.nat64main_hdr_arp.sender;
        self.v.nat64main_hdr_arp.sender = self.v.nat64main_answer_asked;
        self.v.nat64main_hdr_ethernet.destination = self.v.nat64main_hdr_ethernet.source;
        self.v.nat64main_hdr_ethernet.source = self.v.nat64main_answer_mac;
        self.port = Some(self.v.nat64main_istd_input_port as u32);
    }

    /// `Nat64Main.tell_controller`.
    #[inline(always)]
    fn nat64main_tell_controller(&mut self) {
        self.port = Some(0xfffffffd_u32 as u32);
    }

    /// `Nat64Main.sum_neighbor`.
    #[inline(always)]
    fn nat64main_sum_neighbor(&mut self) {
        self.v.sum_neighbor_sum = 0;
        let part_0 = self.v.nat64main_hdr_ipv6.source_high;
        let part_1 = self.v.nat64main_hdr_ipv6.source_middle;
        let part_2 = self.v.nat64main_hdr_ipv6.source_low;
        self.v.sum_neighbor_sum = checksum(
            self.v.sum_neighbor_sum,
            [
                ((part_0 >> 48) as u16),
                ((part_0 >> 32) as u16),
                ((part_0 >> 16) as u16),
                (part_0 as u16),
                ((part_1 >> 16) as u16),
                (part_1 as u16),
                ((part_2 >> 16) as u16),
                (part_2 as u16),
            ],
        );
        let part_0 = self.v.nat64main_hdr_ipv6.destination_high;
        let part_1 = self.v.nat64main_hdr_ipv6.destination_middle;
        let part_2 = self.v.nat64main_hdr_ipv6.destination_low;
        self.v.sum_neighbor_sum = checksum(
            self.v.sum_neighbor_sum,
            [
                ((part_0 >> 48) as u16),
                ((part_0 >> 32) as u16),
                ((part_0 >> 16) as u16),
                (part_0 as u16),
                ((part_1 >> 16) as u16),
                (part_1 as u16),
                ((part_2 >> 16) as u16),
                (part_2 as u16),
            ],
        );
        let part_0 = self.v.nat64main_hdr_ipv6.payload_length;
        let part_1 = 0_u8;
        let part_2 = 58_u8;
        self.v.sum_neighbor_sum = checksum(
            self.v.sum_neighbor_sum,
            [part_0, (part_1 as u16) << 8 | (part_2 as u16)],
        );
        let part_0 = self.v.nat64main_hdr_neighbor.kind;
        let part_1 = self.v.nat64main_hdr_neighbor.code;
        let part_2 = self.v.nat64main_hdr_neighbor.checksum;
        let part_3 = self.v.nat64main_hdr_neighbor.flags;
        let part_4 = self.v.nat64main_hdr_neighbor.target_high;
        let part_5 = self.v.nat64main_hdr_neighbor.target_middle;
        let part_6 = self.v.nat64main_hdr_neighbor.target_low;
        let part_7 = self.v.nat64main_hdr_neighbor.option_kind;
        let part_8 = self.v.nat64main_hdr_neighbor.option_length;
        let part_9 = self.v.nat64main_hdr_neighbor.mac;
        self.v.sum_neighbor_sum = checksum(
            self.v.sum_neighbor_sum,
            [
                (part_0 as u16) << 8 | (part_1 as u16),
                part_2,
                ((part_3 >> 16) as u16),
                (part_3 as u16),
                ((part_4 >> 48) as u16),
                ((part_4 >> 32) as u16),
                ((part_4 >> 16) as u16),
                (part_4 as u16),
                ((part_5 >> 16) as u16),
                (part_5 as u16),
                ((part_6 >> 16) as u16),
                (part_6 as u16),
                (part_7 as u16) << 8 | (part_8 as u16),
                ((part_9 >> 32) as u16),
                ((part_9 >> 16) as u16),
                (part_9 as u16),
            ],
        );
    }

    /// `Nat64Main.advertise`.
    #[inline(always)]
    fn nat64main_advertise(&mut self) {
        self.v.nat64main_hdr_neighbor.kind = 0x88_u8;
        self.v.nat64main_hdr_neighbor.flags = 0xe0000000_u32;
        self.v.nat64main_hdr_neighbor.option_kind = 2_u8;
        self.v.nat64main_hdr_neighbor.mac = self.v.nat64main_advertise_mac;
        self.v.nat64main_hdr_ipv6.destination_high = self
            .v
            .nat64main_hdr_ipv6
            .source_high;
        self.v.nat64main_hdr_ipv6.destination_middle = self
            .v
            .nat64main_hdr_ipv6
            .source_middle;
        self.v.nat64main_hdr_ipv6.destination_low = self.v.nat64main_hdr_ipv6.source_low;
        self.v.nat64main_hdr_ipv6.source_high = self
            .v
            .nat64main_hdr_neighbor
            .target_high;
        self.v.nat64main_hdr_ipv6.source_middle = self
            .v
            .nat64main_hdr_neighbor
            .target_middle;
        self.v.nat64main_hdr_ipv6.source_low = self.v.nat64main_hdr_neighbor.target_low;
        self.v.nat64main_hdr_neighbor.checksum = 0_u16;
        self.nat64main_sum_neighbor();
        self.v.nat64main_advertise_result = (!self.v.sum_neighbor_sum as u128) as u16;
        self.v.nat64main_hdr_neighbor.checksum = self.v.nat64main_advertise_result;
        self.v.nat64main_hdr_ethernet.destination = self.v.nat64main_hdr_ethernet.source;
        self.v.nat64main_hdr_ethernet.source = self.v.nat64main_advertise_mac;
        self.port = Some(self.v.nat64main_istd_input_port as u32);
    }

    /// `Nat64Main.subscriber`.
    #[inline(always)]
    fn nat64main_subscriber(&mut self) {
        self.v.nat64main_meta_pool_index = self.v.nat64main_subscriber_pool_index;
        self.pass
            .count(
                &mut self.code.subscriber_out,
                self.v.nat64main_subscriber_index as u128,
                ((self.v.nat64main_hdr_ipv6.payload_length as u32).wrapping_add(40_u32))
                    as u128,
            );
        self.v.nat64main_subscriber_result = (self
            .pass
            .colour(
                &mut self.code.subscriber_rate,
                self.now,
                self.v.nat64main_subscriber_index as u128,
                0x1_u128,
                ((self.v.nat64main_hdr_ipv6.payload_length as u32).wrapping_add(40_u32))
                    as u128,
            )) as u32;
        self.v.nat64main_subscriber_color = self.v.nat64main_subscriber_result;
        if self.v.nat64main_subscriber_color == 0_u32 {
            self.v.nat64main_meta_reason = 5_u8;
        }
    }

    /// `Nat64Main.no_subscriber`.
    #[inline(always)]
    fn nat64main_no_subscriber(&mut self) {
        self.v.nat64main_meta_reason = 4_u8;
    }

    /// `Nat64Main.external_address`.
    #[inline(always)]
    fn nat64main_external_address(&mut self) {
        self.v.nat64main_meta_external = self.v.nat64main_external_address_address;
        self.v.nat64main_meta_first_port = self.v.nat64main_external_address_first;
        self.v.nat64main_meta_last_port = self.v.nat64main_external_address_last;
    }

    /// `Nat64Main.no_address`.
    #[inline(always)]
    fn nat64main_no_address(&mut self) {
        self.v.nat64main_meta_reason = 7_u8;
    }

    /// `Nat64Main.first_port`.
    #[inline(always)]
    fn nat64main_first_port(&mut self) {
        self.v.nat64main_meta_external_port = self.v.nat64main_meta_internal_port;
        if (self.v.nat64main_meta_external_port < self.v.nat64main_meta_first_port)
            || (self.v.nat64main_meta_external_port > self.v.nat64main_meta_last_port)
        {
            self.v.nat64main_meta_external_port = self
                .v
                .nat64main_meta_first_port
                .wrapping_add(
                    ((self.v.nat64main_meta_external_port
                        ^ self.v.nat64main_meta_first_port) & 1_u16),
                );
        }
        if (self.v.nat64main_meta_external_port < self.v.nat64main_meta_first_port)
            || (self.v.nat64main_meta_external_port > self.v.nat64main_meta_last_port)
        {
            self.v.nat64main_meta_external_port = self.v.nat64main_meta_first_port;
        }
    }

    /// `Nat64Main.next_port`.
    #[inline(always)]
    fn nat64main_next_port(&mut self) {
        self.v.nat64main_next_port_step = 1_u16;
        if self.v.nat64main_meta_protocol == 17_u8 {
            self.v.nat64main_next_port_step = 2_u16;
        }
        if (self
            .v
            .nat64main_meta_last_port
            .wrapping_sub(self.v.nat64main_meta_external_port))
            >= self.v.nat64main_next_port_step
        {
            self.v.nat64main_meta_external_port = self
                .v
                .nat64main_meta_external_port
                .wrapping_add(self.v.nat64main_next_port_step);
        } else {
            self.v.nat64main_meta_external_port = self
                .v
                .nat64main_meta_first_port
                .wrapping_add(
                    ((self.v.nat64main_meta_external_port
                        ^ self.v.nat64main_meta_first_port)
                        & (self.v.nat64main_next_port_step.wrapping_sub(1_u16))),
                );
            if self.v.nat64main_meta_external_port > self.v.nat64main_meta_last_port {
                self.v.nat64main_meta_external_port = self.v.nat64main_meta_first_port;
            }
        }
        self.v.nat64main_meta_is_taken = false;
    }

    /// `Nat64Main.refresh`.
    #[inline(always)]
    fn nat64main_refresh(&mut self) {
        if !(self.v.nat64main_meta_profile == 2_u8) {
            let timeout = self.world.timeout(self.v.nat64main_meta_profile as u128);
            match &self.applied {
                Applied::Upload { place, .. } => {
                    self.pass.set_timeout(&mut self.code.upload, *place, timeout)
                }
                Applied::Download { place, .. } => {
                    self.pass.set_timeout(&mut self.code.download, *place, timeout)
                }
                _ => {}
            }
        }
        match &self.applied {
            Applied::Upload { place, .. } => {
                self.pass.restart(&mut self.code.upload, self.now, *place)
            }
            Applied::Download { place, .. } => {
                self.pass.restart(&mut self.code.download, self.now, *place)
            }
            _ => {}
        }
    }

    /// `Nat64Main.to_external`.
    #[inline(always)]
    fn nat64main_to_external(&mut self) {
        if self.v.nat64main_meta_is_inside {
            self.v.nat64main_meta_external = self.v.nat64main_to_external_address;
            self.v.nat64main_meta_external_port = self.v.nat64main_to_external_port;
            self.v.nat64main_meta_is_learning = false;
        }
        if (self.v.nat64main_meta_external == self.v.nat64main_to_external_address)
            && (self.v.nat64main_meta_external_port == self.v.nat64main_to_external_port)
        {
            self.nat64main_refresh();
        }
    }

    /// `Nat64Main.learn`.
    #[inline(always)]
    fn nat64main_learn(&mut self) {
        if self.v.nat64main_meta_is_learning {
            let timeout = self.world.timeout(self.v.nat64main_meta_profile as u128);
            self.v.nat64main_learn_result = match &mut self.applied {
                Applied::Upload { key, place } => {
                    let added = self
                        .pass
                        .add(
                            &mut self.code.upload,
                            self.now,
                            *key,
                            UploadAction::ToExternal {
                                address: self.v.nat64main_meta_external,
                                port: self.v.nat64main_meta_external_port,
                            },
                            timeout,
                        );
                    *place = added.or(*place);
                    added.is_some()
                }
                _ => false,
            };
        } else {
            if self.v.nat64main_meta_is_inside {
                if (self.v.nat64main_meta_protocol == 6_u8)
                    && (!((self.v.nat64main_hdr_tcp.flags & 22_u8) == 2_u8))
                {
                    self.v.nat64main_meta_reason = 8_u8;
                } else {
                    if (self.v.nat64main_meta_protocol == 1_u8)
                        && (!(self.v.nat64main_hdr_icmp.kind == 0x80_u8))
                    {
                        self.v.nat64main_meta_reason = 6_u8;
                    } else {
                        self.v.nat64main_meta_is_learning = true;
                        self.nat64main_first_port();
                    }
                }
            }
        }
    }

    /// `Nat64Main.to_internal`.
    #[inline(always)]
    fn nat64main_to_internal(&mut self) {
        if self.v.nat64main_meta_is_inside
            && ((((!(self.v.nat64main_to_internal_high
                == self.v.nat64main_meta_internal_high))
                || (!(self.v.nat64main_to_internal_middle
                    == self.v.nat64main_meta_internal_middle)))
                || (!(self.v.nat64main_to_internal_low
                    == self.v.nat64main_meta_internal_low)))
                || (!(self.v.nat64main_to_internal_port
                    == self.v.nat64main_meta_internal_port)))
        {
            self.v.nat64main_meta_is_taken = true;
        } else {
            self.v.nat64main_meta_internal_high = self.v.nat64main_to_internal_high;
            self.v.nat64main_meta_internal_middle = self.v.nat64main_to_internal_middle;
            self.v.nat64main_meta_internal_low = self.v.nat64main_to_internal_low;
            self.v.nat64main_meta_internal_port = self.v.nat64main_to_internal_port;
            self.v.nat64main_meta_is_claimed = true;
            self.nat64main_refresh();
        }
    }

    /// `Nat64Main.learn_return`.
    #[inline(always)]
    fn nat64main_learn_return(&mut self) {
        if self.v.nat64main_meta_is_inside {
            let timeout = self.world.timeout(self.v.nat64main_meta_profile as u128);
            self.v.nat64main_learn_return_result = match &mut self.applied {
                Applied::Download { key, place } => {
                    let added = self
                        .pass
                        .add(
                            &mut self.code.download,
                            self.now,
                            *key,
                            DownloadAction::ToInternal {
                                high: self.v.nat64main_meta_internal_high,
                                middle: self.v.nat64main_meta_internal_middle,
                                low: self.v.nat64main_meta_internal_low,
                                port: self.v.nat64main_meta_internal_port,
                            },
                            timeout,
                        );
                    *place = added.or(*place);
                    added.is_some()
                }
                _ => false,
            };
        } else {
            self.v.nat64main_meta_reason = 6_u8;
        }
    }

    /// `Nat64Main.via`.
    #[inline(always)]
    fn nat64main_via(&mut self) {
        self.v.nat64main_meta_hop_low = self.v.nat64main_via_gateway;
        self.v.nat64main_meta_out_port = self.v.nat64main_via_port;
    }

    /// `Nat64Main.on_link`.
    #[inline(always)]
    fn nat64main_on_link(&mut self) {
        self.v.nat64main_meta_hop_low = self.v.nat64main_meta_remote;
        self.v.nat64main_meta_out_port = self.v.nat64main_on_link_port;
    }

    /// `Nat64Main.no_route`.
    #[inline(always)]
    fn nat64main_no_route(&mut self) {
        self.v.nat64main_meta_reason = 10_u8;
    }

    /// `Nat64Main.hairpin`.
    #[inline(always)]
    fn nat64main_hairpin(&mut self) {
        self.v.nat64main_meta_reason = 16_u8;
    }

    /// `Nat64Main.via6`.
    #[inline(always)]
    fn nat64main_via6(&mut self) {
        self.v.nat64main_meta_hop_high = self.v.nat64main_via6_high;
        self.v.nat64main_meta_hop_middle = self.v.nat64main_via6_middle;
        self.v.nat64main_meta_hop_low = self.v.nat64main_via6_low;
        self.v.nat64main_meta_out_port = self.v.nat64main_via6_port;
    }

    /// `Nat64Main.on_link6`.
    #[inline(always)]
    fn nat64main_on_link6(&mut self) {
        self.v.nat64main_meta_hop_high = self.v.nat64main_hdr_ipv6.destination_high;
        self.v.nat64main_meta_hop_middle = self.v.nat64main_hdr_ipv6.destination_middle;
        self.v.nat64main_meta_hop_low = self.v.nat64main_hdr_ipv6.destination_low;
        self.v.nat64main_meta_out_port = self.v.nat64main_on_link6_port;
    }

    /// `Nat64Main.neighbor`.
    #[inline(always)]
    fn nat64main_neighbor(&mut self) {
        self.v.nat64main_hdr_ethernet.source = self.v.nat64main_neighbor_source;
        self.v.nat64main_hdr_ethernet.destination = self
            .v
            .nat64main_neighbor_destination;
        self.port = Some(self.v.nat64main_meta_out_port as u32);
    }

    /// `Nat64Main.no_neighbor`.
    #[inline(always)]
    fn nat64main_no_neighbor(&mut self) {
        self.v.nat64main_meta_reason = 11_u8;
    }

    /// `Nat64Main.classify`.
    #[inline(always)]
    fn nat64main_classify(&mut self) {
        self.v.nat64main_meta_protocol = self.v.nat64main_classify_protocol;
        self.v.nat64main_meta_profile = self.v.nat64main_classify_profile;
        if self.v.nat64main_meta_is_inside {
            self.v.nat64main_meta_internal_high = self.v.nat64main_hdr_ipv6.source_high;
            self.v.nat64main_meta_internal_middle = self
                .v
                .nat64main_hdr_ipv6
                .source_middle;
            self.v.nat64main_meta_internal_low = self.v.nat64main_hdr_ipv6.source_low;
            self.v.nat64main_meta_internal_port = self.v.nat64main_classify_near;
        } else {
            self.v.nat64main_meta_external = self.v.nat64main_hdr_ipv4.destination;
            self.v.nat64main_meta_external_port = self.v.nat64main_classify_far;
        }
    }

    /// `Nat64Main.check_ipv4`.
    #[inline(always)]
    fn nat64main_check_ipv4(&mut self) {
        self.v.sum_header_sum = 0;
        let part_0 = self.v.nat64main_hdr_ipv4.version_ihl;
        let part_1 = self.v.nat64main_hdr_ipv4.tos;
        let part_2 = self.v.nat64main_hdr_ipv4.total_length;
        let part_3 = self.v.nat64main_hdr_ipv4.identification;
        let part_4 = self.v.nat64main_hdr_ipv4.flags_offset;
        let part_5 = self.v.nat64main_hdr_ipv4.ttl;
        let part_6 = self.v.nat64main_hdr_ipv4.protocol;
        let part_7 = self.v.nat64main_hdr_ipv4.checksum;
        let part_8 = self.v.nat64main_hdr_ipv4.source;
        let part_9 = self.v.nat64main_hdr_ipv4.destination;
        self.v.sum_header_sum = checksum(
            self.v.sum_header_sum,
            [
                (part_0 as u16) << 8 | (part_1 as u16),
                part_2,
                part_3,
                part_4,
                (part_5 as u16) << 8 | (part_6 as u16),
                part_7,
                ((part_8 >> 16) as u16),
                (part_8 as u16),
                ((part_9 >> 16) as u16),
                (part_9 as u16),
            ],
        );
        self.v.nat64main_meta_remote = self.v.nat64main_hdr_ipv4.source;
        self.v.nat64main_check_ipv4_result = (!self.v.sum_header_sum as u128) as u16;
        if ((!(self.v.nat64main_check_ipv4_result == 0_u16))
            || (self.v.nat64main_hdr_ipv4.total_length < 28_u16))
            || (self.v.nat64main_hdr_tcp.valid
                && (self.v.nat64main_hdr_ipv4.total_length < 40_u16))
        {
            self.v.nat64main_meta_reason = 2_u8;
        } else {
            if self.v.nat64main_meta_is_inside {
                self.v.nat64main_meta_reason = 3_u8;
            } else {
                if (((self.v.nat64main_meta_remote & 0xff000000_u32) == 0_u32)
                    || ((self.v.nat64main_meta_remote & 0xff000000_u32)
                        == 0x7f000000_u32))
                    || (self.v.nat64main_meta_remote >= 0xe0000000_u32)
                {
                    self.v.nat64main_meta_reason = 15_u8;
                } else {
                    if self.v.nat64main_hdr_ipv4.ttl <= 1_u8 {
                        self.v.nat64main_meta_reason = 9_u8;
                    } else {
                        if self.v.nat64main_hdr_ipv4.total_length
                            > (self.v.nat64main_meta_mtu.wrapping_sub(20_u16))
                        {
                            self.v.nat64main_meta_reason = 17_u8;
                        }
                    }
                }
            }
        }
    }

    /// `Nat64Main.check_ipv6`.
    #[inline(always)]
    fn nat64main_check_ipv6(&mut self) {
        self.v.nat64main_meta_remote = self.v.nat64main_hdr_ipv6.destination_low;
        if (((!((self.v.nat64main_hdr_ipv6.version_class_flow & 0xf0000000_u32)
            == 0x60000000_u32))
            || (self.v.nat64main_hdr_ipv6.payload_length > 0xffeb_u16))
            || (self.v.nat64main_hdr_ipv6.payload_length < 8_u16))
            || (self.v.nat64main_hdr_tcp.valid
                && (self.v.nat64main_hdr_ipv6.payload_length < 20_u16))
        {
            self.v.nat64main_meta_reason = 2_u8;
        } else {
            if !self.v.nat64main_meta_is_inside {
                self.v.nat64main_meta_reason = 3_u8;
            } else {
                if (self.v.nat64main_hdr_ipv6.source_high
                    == self.v.nat64main_meta_prefix_high)
                    && (self.v.nat64main_hdr_ipv6.source_middle
                        == self.v.nat64main_meta_prefix_middle)
                {
                    self.v.nat64main_meta_reason = 15_u8;
                } else {
                    if self.v.nat64main_hdr_ipv6.hop_limit <= 1_u8 {
                        self.v.nat64main_meta_reason = 9_u8;
                    } else {
                        if (!(self.v.nat64main_hdr_ipv6.destination_high
                            == self.v.nat64main_meta_prefix_high))
                            || (!(self.v.nat64main_hdr_ipv6.destination_middle
                                == self.v.nat64main_meta_prefix_middle))
                        {
                            self.v.nat64main_meta_reason = 13_u8;
                        } else {
                            if self.v.nat64main_hdr_ipv6.payload_length
                                > (self.v.nat64main_meta_mtu.wrapping_sub(20_u16))
                            {
                                self.v.nat64main_meta_reason = 17_u8;
                            }
                        }
                    }
                }
            }
        }
    }

    /// `Nat64Main.check_neighbor`.
    #[inline(always)]
    fn nat64main_check_neighbor(&mut self) {
        self.nat64main_sum_neighbor();
        self.v.nat64main_check_neighbor_result = (!self.v.sum_neighbor_sum as u128)
            as u16;
        if ((((!(self.v.nat64main_check_neighbor_result == 0_u16))
            || (!(self.v.nat64main_hdr_neighbor.code == 0_u8)))
            || (!(self.v.nat64main_hdr_neighbor.option_kind == 1_u8)))
            || (!(self.v.nat64main_hdr_neighbor.option_length == 1_u8)))
            || (((self.v.nat64main_hdr_ipv6.source_high == 0_u64)
                && (self.v.nat64main_hdr_ipv6.source_middle == 0_u32))
                && (self.v.nat64main_hdr_ipv6.source_low == 0_u32))
        {
            self.v.nat64main_meta_reason = 2_u8;
        }
    }

    /// The first half of `Nat64Main`, which waits for no large table.
    #[inline(always)]
    fn nat64main_first(&mut self) {
        self.v.nat64main_meta_reason = 0_u8;
        self.v.nat64main_meta_protocol = 0_u8;
        self.v.nat64main_meta_is_learning = false;
        self.v.nat64main_meta_is_taken = false;
        self.v.nat64main_meta_is_claimed = false;
        let (hit, action) = self.apply_interfaces();
        self.v.nat64main_tmp = hit;
        self.v.nat64main_tmp_2 = action as u32;
        if !(self.v.nat64main_istd_parser_error == 0_u32) {
            self.v.nat64main_meta_reason = 2_u8;
        }
        if self.v.nat64main_meta_reason == 0_u8 {
            if self.v.nat64main_hdr_arp.valid
                && (self.v.nat64main_hdr_arp.operation == 1_u16)
            {
                let (hit, action) = self.apply_addresses();
                self.v.nat64main_tmp_3 = hit;
                self.v.nat64main_tmp_4 = action as u32;
            } else {
                if self.v.nat64main_hdr_arp.valid {
                    self.nat64main_tell_controller();
                } else {
                    if self.v.nat64main_hdr_neighbor.valid {
                        self.nat64main_check_neighbor();
                        if self.v.nat64main_meta_reason == 0_u8 {
                            let (hit, action) = self.apply_addresses6();
                            self.v.nat64main_tmp_5 = hit;
                            self.v.nat64main_tmp_6 = action as u32;
                        }
                    } else {
                        if ((self.v.nat64main_hdr_ipv6.valid
                            && self.v.nat64main_hdr_icmp.valid)
                            && (self.v.nat64main_hdr_icmp.kind >= 0x85_u8))
                            && (self.v.nat64main_hdr_icmp.kind <= 0x88_u8)
                        {
                            self.nat64main_tell_controller();
                        } else {
                            if !self.v.nat64main_meta_is_local {
                                self.v.nat64main_meta_reason = 12_u8;
                            } else {
                                if (self.v.nat64main_hdr_tcp.valid
                                    || self.v.nat64main_hdr_udp.valid)
                                    || self.v.nat64main_hdr_icmp.valid
                                {
                                    if self.v.nat64main_hdr_ipv4.valid {
                                        self.nat64main_check_ipv4();
                                    } else {
                                        self.nat64main_check_ipv6();
                                    }
                                    if self.v.nat64main_meta_reason == 0_u8 {
                                        if self.v.nat64main_hdr_tcp.valid {
                                            if (self.v.nat64main_hdr_tcp.flags & 22_u8) == 2_u8 {
                                                self.v.nat64main_classify_protocol = 6_u8;
                                                self.v.nat64main_classify_near = self
                                                    .v
                                                    .nat64main_hdr_tcp
                                                    .source;
                                                self.v.nat64main_classify_far = self
                                                    .v
                                                    .nat64main_hdr_tcp
                                                    .destination;
                                                self.v.nat64main_classify_profile = 2_u8;
                                                self.nat64main_classify();
                                            } else {
                                                self.v.nat64main_classify_protocol = 6_u8;
                                                self.v.nat64main_classify_near = self
                                                    .v
                                                    .nat64main_hdr_tcp
                                                    .source;
                                                self.v.nat64main_classify_far = self
                                                    .v
                                                    .nat64main_hdr_tcp
                                                    .destination;
                                                self.v.nat64main_classify_profile = 3_u8;
                                                self.nat64main_classify();
                                            }
                                        } else {
                                            if self.v.nat64main_hdr_udp.valid {
                                                self.v.nat64main_classify_protocol = 17_u8;
                                                self.v.nat64main_classify_near = self
                                                    .v
                                                    .nat64main_hdr_udp
                                                    .source;
                                                self.v.nat64main_classify_far = self
                                                    .v
                                                    .nat64main_hdr_udp
                                                    .destination;
                                                self.v.nat64main_classify_profile = 0_u8;
                                                self.nat64main_classify();
                                                if self.v.nat64main_hdr_udp.checksum == 0_u16 {
                                                    self.v.nat64main_meta_reason = 14_u8;
                                                }
                                            } else {
                                                if self.v.nat64main_meta_is_inside
                                                    && ((self.v.nat64main_hdr_icmp.kind == 0x80_u8)
                                                        || (self.v.nat64main_hdr_icmp.kind == 0x81_u8))
                                                {
                                                    self.v.nat64main_classify_protocol = 1_u8;
                                                    self.v.nat64main_classify_near = self
                                                        .v
                                                        .nat64main_hdr_icmp
                                                        .identifier;
                                                    self.v.nat64main_classify_far = self
                                                        .v
                                                        .nat64main_hdr_icmp
                                                        .identifier;
                                                    self.v.nat64main_classify_profile = 1_u8;
                                                    self.nat64main_classify();
                                                } else {
                                                    if (!self.v.nat64main_meta_is_inside)
                                                        && ((self.v.nat64main_hdr_icmp.kind == 8_u8)
                                                            || (self.v.nat64main_hdr_icmp.kind == 0_u8))
                                                    {
                                                        self.v.nat64main_classify_protocol = 1_u8;
                                                        self.v.nat64main_classify_near = self
                                                            .v
                                                            .nat64main_hdr_icmp
                                                            .identifier;
                                                        self.v.nat64main_classify_far = self
                                                            .v
                                                            .nat64main_hdr_icmp
                                                            .identifier;
                                                        self.v.nat64main_classify_profile = 1_u8;
                                                        self.nat64main_classify();
                                                    } else {
                                                        self.v.nat64main_meta_reason = 3_u8;
                                                    }
                                                }
                                            }
                                        }
                                    }
                                } else {
                                    self.v.nat64main_meta_reason = 3_u8;
                                }
                            }
                        }
                    }
                }
            }
        }
        if (self.v.nat64main_meta_reason == 0_u8)
            && (!(self.v.nat64main_meta_protocol == 0_u8))
        {
            let (hit, action) = self.apply_routes();
            self.v.nat64main_tmp_7 = hit;
            self.v.nat64main_tmp_8 = action as u32;
        }
        if ((self.v.nat64main_meta_reason == 0_u8)
            && (!(self.v.nat64main_meta_protocol == 0_u8)))
            && self.v.nat64main_meta_is_inside
        {
            let (hit, action) = self.apply_subscribers();
            self.v.nat64main_tmp_9 = hit;
            self.v.nat64main_tmp_10 = action as u32;
            if self.v.nat64main_meta_reason == 0_u8 {
                let (hit, action) = self.apply_pool();
                self.v.nat64main_tmp_11 = hit;
                self.v.nat64main_tmp_12 = action as u32;
            }
        }
    }

    /// The second half of `Nat64Main`.
    #[inline(always)]
    fn nat64main(&mut self) -> Result<(), Stop> {
        if (self.v.nat64main_meta_reason == 0_u8)
            && (!(self.v.nat64main_meta_protocol == 0_u8))
        {
            if self.v.nat64main_meta_is_inside {
                let (hit, action, flow) = self
                    .apply_upload(
                        self.code.download.is_large() || self.code.next_hops.is_large()
                            || self.code.next_hops6.is_large(),
                    );
                self.v.nat64main_tmp_13 = hit;
                self.v.nat64main_tmp_14 = action as u32;
                flow?;
                if self.v.nat64main_meta_reason == 0_u8 {
                    let (hit, action, flow) = self
                        .apply_download(
                            self.code.next_hops.is_large()
                                || self.code.next_hops6.is_large(),
                        );
                    self.v.nat64main_tmp_15 = hit;
                    self.v.nat64main_tmp_16 = action as u32;
                    flow?;
                    if self.v.nat64main_meta_is_learning {
                        if self.v.nat64main_meta_is_taken {
                            self.nat64main_next_port();
                            let (hit, action, flow) = self
                                .apply_download(
                                    self.code.next_hops.is_large()
                                        || self.code.next_hops6.is_large(),
                                );
                            self.v.nat64main_tmp_17 = hit;
                            self.v.nat64main_tmp_18 = action as u32;
                            flow?;
                        }
                        if self.v.nat64main_meta_is_taken {
                            self.nat64main_next_port();
                            let (hit, action, flow) = self
                                .apply_download(
                                    self.code.next_hops.is_large()
                                        || self.code.next_hops6.is_large(),
                                );
                            self.v.nat64main_tmp_19 = hit;
                            self.v.nat64main_tmp_20 = action as u32;
                            flow?;
                        }
                        if self.v.nat64main_meta_is_taken {
                            self.nat64main_next_port();
                            let (hit, action, flow) = self
                                .apply_download(
                                    self.code.next_hops.is_large()
                                        || self.code.next_hops6.is_large(),
                                );
                            self.v.nat64main_tmp_21 = hit;
                            self.v.nat64main_tmp_22 = action as u32;
                            flow?;
                        }
                    }
                    if (!self.v.nat64main_meta_is_claimed)
                        && (!self.v.nat64main_meta_is_taken)
                    {
                        let (hit, action, flow) = self
                            .apply_download(
                                self.code.next_hops.is_large()
                                    || self.code.next_hops6.is_large(),
                            );
                        self.v.nat64main_tmp_23 = hit;
                        self.v.nat64main_tmp_24 = action as u32;
                        flow?;
                    }
                    if self.v.nat64main_meta_is_claimed
                        && self.v.nat64main_meta_is_learning
                    {
                        let (hit, action, flow) = self
                            .apply_upload(
                                self.code.next_hops.is_large()
                                    || self.code.next_hops6.is_large(),
                            );
                        self.v.nat64main_tmp_25 = hit;
                        self.v.nat64main_tmp_26 = action as u32;
                        flow?;
                        let (hit, action, flow) = self
                            .apply_upload(
                                self.code.next_hops.is_large()
                                    || self.code.next_hops6.is_large(),
                            );
                        self.v.nat64main_tmp_27 = hit;
                        self.v.nat64main_tmp_28 = action as u32;
                        flow?;
                    }
                    if (!self.v.nat64main_meta_is_claimed)
                        || self.v.nat64main_meta_is_learning
                    {
                        self.v.nat64main_meta_reason = 7_u8;
                    }
                }
            } else {
                let (hit, action, flow) = self
                    .apply_download(
                        self.code.upload.is_large() || self.code.next_hops.is_large()
                            || self.code.next_hops6.is_large(),
                    );
                self.v.nat64main_tmp_29 = hit;
                self.v.nat64main_tmp_30 = action as u32;
                flow?;
                if self.v.nat64main_meta_reason == 0_u8 {
                    let (hit, action, flow) = self
                        .apply_upload(
                            self.code.next_hops.is_large()
                                || self.code.next_hops6.is_large(),
                        );
                    self.v.nat64main_tmp_31 = hit;
                    self.v.nat64main_tmp_32 = action as u32;
                    flow?;
                }
            }
        }
        self.pass
            .rest(self.code.next_hops.is_large() || self.code.next_hops6.is_large())?;
        if (self.v.nat64main_meta_reason == 0_u8)
            && (!(self.v.nat64main_meta_protocol == 0_u8))
        {
            self.v.nat64main_translate_hdr_ethernet.valid = self
                .v
                .nat64main_hdr_ethernet
                .valid;
            self.v.nat64main_translate_hdr_ethernet.destination = self
                .v
                .nat64main_hdr_ethernet
                .destination;
            self.v.nat64main_translate_hdr_ethernet.source = self
                .v
                .nat64main_hdr_ethernet
                .source;
            self.v.nat64main_translate_hdr_ethernet.ethertype = self
                .v
                .nat64main_hdr_ethernet
                .ethertype;
            self.v.nat64main_translate_hdr_arp.valid = self.v.nat64main_hdr_arp.valid;
            self.v.nat64main_translate_hdr_arp.hardware = self
                .v
                .nat64main_hdr_arp
                .hardware;
            self.v.nat64main_translate_hdr_arp.protocol = self
                .v
                .nat64main_hdr_arp
                .protocol;
            self.v.nat64main_translate_hdr_arp.hardware_length = self
                .v
                .nat64main_hdr_arp
                .hardware_length;
            self.v.nat64main_translate_hdr_arp.protocol_length = self
                .v
                .nat64main_hdr_arp
                .protocol_length;
            self.v.nat64main_translate_hdr_arp.operation = self
                .v
                .nat64main_hdr_arp
                .operation;
            self.v.nat64main_translate_hdr_arp.sender_mac = self
                .v
                .nat64main_hdr_arp
                .sender_mac;
            self.v.nat64main_translate_hdr_arp.sender = self.v.nat64main_hdr_arp.sender;
            self.v.nat64main_translate_hdr_arp.target_mac = self
                .v
                .nat64main_hdr_arp
                .target_mac;
            self.v.nat64main_translate_hdr_arp.target = self.v.nat64main_hdr_arp.target;
            self.v.nat64main_translate_hdr_ipv4.valid = self.v.nat64main_hdr_ipv4.valid;
            self.v.nat64main_translate_hdr_ipv4.version_ihl = self
                .v
                .nat64main_hdr_ipv4
                .version_ihl;
            self.v.nat64main_translate_hdr_ipv4.tos = self.v.nat64main_hdr_ipv4.tos;
            self.v.nat64main_translate_hdr_ipv4.total_length = self
                .v
                .nat64main_hdr_ipv4
                .total_length;
            self.v.nat64main_translate_hdr_ipv4.identification = self
                .v
                .nat64main_hdr_ipv4
                .identification;
            self.v.nat64main_translate_hdr_ipv4.flags_offset = self
                .v
                .nat64main_hdr_ipv4
                .flags_offset;
            self.v.nat64main_translate_hdr_ipv4.ttl = self.v.nat64main_hdr_ipv4.ttl;
            self.v.nat64main_translate_hdr_ipv4.protocol = self
                .v
                .nat64main_hdr_ipv4
                .protocol;
            self.v.nat64main_translate_hdr_ipv4.checksum = self
                .v
                .nat64main_hdr_ipv4
                .checksum;
            self.v.nat64main_translate_hdr_ipv4.source = self
                .v
                .nat64main_hdr_ipv4
                .source;
            self.v.nat64main_translate_hdr_ipv4.destination = self
                .v
                .nat64main_hdr_ipv4
                .destination;
            self.v.nat64main_translate_hdr_ipv6.valid = self.v.nat64main_hdr_ipv6.valid;
            self.v.nat64main_translate_hdr_ipv6.version_class_flow = self
                .v
                .nat64main_hdr_ipv6
                .version_class_flow;
            self.v.nat64main_translate_hdr_ipv6.payload_length = self
                .v
                .nat64main_hdr_ipv6
                .payload_length;
            self.v.nat64main_translate_hdr_ipv6.next_header = self
                .v
                .nat64main_hdr_ipv6
                .next_header;
            self.v.nat64main_translate_hdr_ipv6.hop_limit = self
                .v
                .nat64main_hdr_ipv6
                .hop_limit;
            self.v.nat64main_translate_hdr_ipv6.source_high = self
                .v
                .nat64main_hdr_ipv6
                .source_high;
            self.v.nat64main_translate_hdr_ipv6.source_middle = self
                .v
                .nat64main_hdr_ipv6
                .source_middle;
            self.v.nat64main_translate_hdr_ipv6.source_low = self
                .v
                .nat64main_hdr_ipv6
                .source_low;
            self.v.nat64main_translate_hdr_ipv6.destination_high = self
                .v
                .nat64main_hdr_ipv6
                .destination_high;
            self.v.nat64main_translate_hdr_ipv6.destination_middle = self
                .v
                .nat64main_hdr_ipv6
                .destination_middle;
            self.v.nat64main_translate_hdr_ipv6.destination_low = self
                .v
                .nat64main_hdr_ipv6
                .destination_low;
            self.v.nat64main_translate_hdr_neighbor.valid = self
                .v
                .nat64main_hdr_neighbor
                .valid;
            self.v.nat64main_translate_hdr_neighbor.kind = self
                .v
                .nat64main_hdr_neighbor
                .kind;
            self.v.nat64main_translate_hdr_neighbor.code = self
                .v
                .nat64main_hdr_neighbor
                .code;
            self.v.nat64main_translate_hdr_neighbor.checksum = self
                .v
                .nat64main_hdr_neighbor
                .checksum;
            self.v.nat64main_translate_hdr_neighbor.flags = self
                .v
                .nat64main_hdr_neighbor
                .flags;
            self.v.nat64main_translate_hdr_neighbor.target_high = self
                .v
                .nat64main_hdr_neighbor
                .target_high;
            self.v.nat64main_translate_hdr_neighbor.target_middle = self
                .v
                .nat64main_hdr_neighbor
                .target_middle;
            self.v.nat64main_translate_hdr_neighbor.target_low = self
                .v
                .nat64main_hdr_neighbor
                .target_low;
            self.v.nat64main_translate_hdr_neighbor.option_kind = self
                .v
                .nat64main_hdr_neighbor
                .option_kind;
            self.v.nat64main_translate_hdr_neighbor.option_length = self
                .v
                .nat64main_hdr_neighbor
                .option_length;
            self.v.nat64main_translate_hdr_neighbor.mac = self
                .v
                .nat64main_hdr_neighbor
                .mac;
            self.v.nat64main_translate_hdr_tcp.valid = self.v.nat64main_hdr_tcp.valid;
            self.v.nat64main_translate_hdr_tcp.source = self.v.nat64main_hdr_tcp.source;
            self.v.nat64main_translate_hdr_tcp.destination = self
                .v
                .nat64main_hdr_tcp
                .destination;
            self.v.nat64main_translate_hdr_tcp.sequence = self
                .v
                .nat64main_hdr_tcp
                .sequence;
            self.v.nat64main_translate_hdr_tcp.acknowledgement = self
                .v
                .nat64main_hdr_tcp
                .acknowledgement;
            self.v.nat64main_translate_hdr_tcp.data_offset = self
                .v
                .nat64main_hdr_tcp
                .data_offset;
            self.v.nat64main_translate_hdr_tcp.flags = self.v.nat64main_hdr_tcp.flags;
            self.v.nat64main_translate_hdr_tcp.window = self.v.nat64main_hdr_tcp.window;
            self.v.nat64main_translate_hdr_tcp.checksum = self
                .v
                .nat64main_hdr_tcp
                .checksum;
            self.v.nat64main_translate_hdr_tcp.urgent = self.v.nat64main_hdr_tcp.urgent;
            self.v.nat64main_translate_hdr_udp.valid = self.v.nat64main_hdr_udp.valid;
            self.v.nat64main_translate_hdr_udp.source = self.v.nat64main_hdr_udp.source;
            self.v.nat64main_translate_hdr_udp.destination = self
                .v
                .nat64main_hdr_udp
                .destination;
            self.v.nat64main_translate_hdr_udp.length = self.v.nat64main_hdr_udp.length;
            self.v.nat64main_translate_hdr_udp.checksum = self
                .v
                .nat64main_hdr_udp
                .checksum;
            self.v.nat64main_translate_hdr_icmp.valid = self.v.nat64main_hdr_icmp.valid;
            self.v.nat64main_translate_hdr_icmp.kind = self.v.nat64main_hdr_icmp.kind;
            self.v.nat64main_translate_hdr_icmp.code = self.v.nat64main_hdr_icmp.code;
            self.v.nat64main_translate_hdr_icmp.checksum = self
                .v
                .nat64main_hdr_icmp
                .checksum;
            self.v.nat64main_translate_hdr_icmp.identifier = self
                .v
                .nat64main_hdr_icmp
                .identifier;
            self.v.nat64main_translate_hdr_icmp.sequence = self
                .v
                .nat64main_hdr_icmp
                .sequence;
            self.v.nat64main_translate_meta_is_inside = self.v.nat64main_meta_is_inside;
            self.v.nat64main_translate_meta_is_local = self.v.nat64main_meta_is_local;
            self.v.nat64main_translate_meta_is_learning = self
                .v
                .nat64main_meta_is_learning;
            self.v.nat64main_translate_meta_is_taken = self.v.nat64main_meta_is_taken;
            self.v.nat64main_translate_meta_is_claimed = self
                .v
                .nat64main_meta_is_claimed;
            self.v.nat64main_translate_meta_fragment = self.v.nat64main_meta_fragment;
            self.v.nat64main_translate_meta_reason = self.v.nat64main_meta_reason;
            self.v.nat64main_translate_meta_protocol = self.v.nat64main_meta_protocol;
            self.v.nat64main_translate_meta_internal_high = self
                .v
                .nat64main_meta_internal_high;
            self.v.nat64main_translate_meta_internal_middle = self
                .v
                .nat64main_meta_internal_middle;
            self.v.nat64main_translate_meta_internal_low = self
                .v
                .nat64main_meta_internal_low;
            self.v.nat64main_translate_meta_internal_port = self
                .v
                .nat64main_meta_internal_port;
            self.v.nat64main_translate_meta_external = self.v.nat64main_meta_external;
            self.v.nat64main_translate_meta_external_port = self
                .v
                .nat64main_meta_external_port;
            self.v.nat64main_translate_meta_first_port = self
                .v
                .nat64main_meta_first_port;
            self.v.nat64main_translate_meta_last_port = self.v.nat64main_meta_last_port;
            self.v.nat64main_translate_meta_pool_index = self
                .v
                .nat64main_meta_pool_index;
            self.v.nat64main_translate_meta_prefix_high = self
                .v
                .nat64main_meta_prefix_high;
            self.v.nat64main_translate_meta_prefix_middle = self
                .v
                .nat64main_meta_prefix_middle;
            self.v.nat64main_translate_meta_mtu = self.v.nat64main_meta_mtu;
            self.v.nat64main_translate_meta_remote = self.v.nat64main_meta_remote;
            self.v.nat64main_translate_meta_profile = self.v.nat64main_meta_profile;
            self.v.nat64main_translate_meta_hop_high = self.v.nat64main_meta_hop_high;
            self.v.nat64main_translate_meta_hop_middle = self
                .v
                .nat64main_meta_hop_middle;
            self.v.nat64main_translate_meta_hop_low = self.v.nat64main_meta_hop_low;
            self.v.nat64main_translate_meta_out_port = self.v.nat64main_meta_out_port;
            self.nat64main_translate();
            self.v.nat64main_hdr_ethernet.valid = self
                .v
                .nat64main_translate_hdr_ethernet
                .valid;
            self.v.nat64main_hdr_ethernet.destination = self
                .v
                .nat64main_translate_hdr_ethernet
                .destination;
            self.v.nat64main_hdr_ethernet.source = self
                .v
                .nat64main_translate_hdr_ethernet
                .source;
            self.v.nat64main_hdr_ethernet.ethertype = self
                .v
                .nat64main_translate_hdr_ethernet
                .ethertype;
            self.v.nat64main_hdr_arp.valid = self.v.nat64main_translate_hdr_arp.valid;
            self.v.nat64main_hdr_arp.hardware = self
                .v
                .nat64main_translate_hdr_arp
                .hardware;
            self.v.nat64main_hdr_arp.protocol = self
                .v
                .nat64main_translate_hdr_arp
                .protocol;
            self.v.nat64main_hdr_arp.hardware_length = self
                .v
                .nat64main_translate_hdr_arp
                .hardware_length;
            self.v.nat64main_hdr_arp.protocol_length = self
                .v
                .nat64main_translate_hdr_arp
                .protocol_length;
            self.v.nat64main_hdr_arp.operation = self
                .v
                .nat64main_translate_hdr_arp
                .operation;
            self.v.nat64main_hdr_arp.sender_mac = self
                .v
                .nat64main_translate_hdr_arp
                .sender_mac;
            self.v.nat64main_hdr_arp.sender = self.v.nat64main_translate_hdr_arp.sender;
            self.v.nat64main_hdr_arp.target_mac = self
                .v
                .nat64main_translate_hdr_arp
                .target_mac;
            self.v.nat64main_hdr_arp.target = self.v.nat64main_translate_hdr_arp.target;
            self.v.nat64main_hdr_ipv4.valid = self.v.nat64main_translate_hdr_ipv4.valid;
            self.v.nat64main_hdr_ipv4.version_ihl = self
                .v
                .nat64main_translate_hdr_ipv4
                .version_ihl;
            self.v.nat64main_hdr_ipv4.tos = self.v.nat64main_translate_hdr_ipv4.tos;
            self.v.nat64main_hdr_ipv4.total_length = self
                .v
                .nat64main_translate_hdr_ipv4
                .total_length;
            self.v.nat64main_hdr_ipv4.identification = self
                .v
                .nat64main_translate_hdr_ipv4
                .identification;
            self.v.nat64main_hdr_ipv4.flags_offset = self
                .v
                .nat64main_translate_hdr_ipv4
                .flags_offset;
            self.v.nat64main_hdr_ipv4.ttl = self.v.nat64main_translate_hdr_ipv4.ttl;
            self.v.nat64main_hdr_ipv4.protocol = self
                .v
                .nat64main_translate_hdr_ipv4
                .protocol;
            self.v.nat64main_hdr_ipv4.checksum = self
                .v
                .nat64main_translate_hdr_ipv4
                .checksum;
            self.v.nat64main_hdr_ipv4.source = self
                .v
                .nat64main_translate_hdr_ipv4
                .source;
            self.v.nat64main_hdr_ipv4.destination = self
                .v
                .nat64main_translate_hdr_ipv4
                .destination;
            self.v.nat64main_hdr_ipv6.valid = self.v.nat64main_translate_hdr_ipv6.valid;
            self.v.nat64main_hdr_ipv6.version_class_flow = self
                .v
                .nat64main_translate_hdr_ipv6
                .version_class_flow;
            self.v.nat64main_hdr_ipv6.payload_length = self
                .v
                .nat64main_translate_hdr_ipv6
                .payload_length;
            self.v.nat64main_hdr_ipv6.next_header = self
                .v
                .nat64main_translate_hdr_ipv6
                .next_header;
            self.v.nat64main_hdr_ipv6.hop_limit = self
                .v
                .nat64main_translate_hdr_ipv6
                .hop_limit;
            self.v.nat64main_hdr_ipv6.source_high = self
                .v
                .nat64main_translate_hdr_ipv6
                .source_high;
            self.v.nat64main_hdr_ipv6.source_middle = self
                .v
                .nat64main_translate_hdr_ipv6
                .source_middle;
            self.v.nat64main_hdr_ipv6.source_low = self
                .v
                .nat64main_translate_hdr_ipv6
                .source_low;
            self.v.nat64main_hdr_ipv6.destination_high = self
                .v
                .nat64main_translate_hdr_ipv6
                .destination_high;
            self.v.nat64main_hdr_ipv6.destination_middle = self
                .v
                .nat64main_translate_hdr_ipv6
                .destination_middle;
            self.v.nat64main_hdr_ipv6.destination_low = self
                .v
                .nat64main_translate_hdr_ipv6
                .destination_low;
            self.v.nat64main_hdr_neighbor.valid = self
                .v
                .nat64main_translate_hdr_neighbor
                .valid;
            self.v.nat64main_hdr_neighbor.kind = self
                .v
                .nat64main_translate_hdr_neighbor
                .kind;
            self.v.nat64main_hdr_neighbor.code = self
                .v
                .nat64main_translate_hdr_neighbor
                .code;
            self.v.nat64main_hdr_neighbor.checksum = self
                .v
                .nat64main_translate_hdr_neighbor
                .checksum;
            self.v.nat64main_hdr_neighbor.flags = self
                .v
                .nat64main_translate_hdr_neighbor
                .flags;
            self.v.nat64main_hdr_neighbor.target_high = self
                .v
                .nat64main_translate_hdr_neighbor
                .target_high;
            self.v.nat64main_hdr_neighbor.target_middle = self
                .v
                .nat64main_translate_hdr_neighbor
                .target_middle;
            self.v.nat64main_hdr_neighbor.target_low = self
                .v
                .nat64main_translate_hdr_neighbor
                .target_low;
            self.v.nat64main_hdr_neighbor.option_kind = self
                .v
                .nat64main_translate_hdr_neighbor
                .option_kind;
            self.v.nat64main_hdr_neighbor.option_length = self
                .v
                .nat64main_translate_hdr_neighbor
                .option_length;
            self.v.nat64main_hdr_neighbor.mac = self
                .v
                .nat64main_translate_hdr_neighbor
                .mac;
            self.v.nat64main_hdr_tcp.valid = self.v.nat64main_translate_hdr_tcp.valid;
            self.v.nat64main_hdr_tcp.source = self.v.nat64main_translate_hdr_tcp.source;
            self.v.nat64main_hdr_tcp.destination = self
                .v
                .nat64main_translate_hdr_tcp
                .destination;
            self.v.nat64main_hdr_tcp.sequence = self
                .v
                .nat64main_translate_hdr_tcp
                .sequence;
            self.v.nat64main_hdr_tcp.acknowledgement = self
                .v
                .nat64main_translate_hdr_tcp
                .acknowledgement;
            self.v.nat64main_hdr_tcp.data_offset = self
                .v
                .nat64main_translate_hdr_tcp
                .data_offset;
            self.v.nat64main_hdr_tcp.flags = self.v.nat64main_translate_hdr_tcp.flags;
            self.v.nat64main_hdr_tcp.window = self.v.nat64main_translate_hdr_tcp.window;
            self.v.nat64main_hdr_tcp.checksum = self
                .v
                .nat64main_translate_hdr_tcp
                .checksum;
            self.v.nat64main_hdr_tcp.urgent = self.v.nat64main_translate_hdr_tcp.urgent;
            self.v.nat64main_hdr_udp.valid = self.v.nat64main_translate_hdr_udp.valid;
            self.v.nat64main_hdr_udp.source = self.v.nat64main_translate_hdr_udp.source;
            self.v.nat64main_hdr_udp.destination = self
                .v
                .nat64main_translate_hdr_udp
                .destination;
            self.v.nat64main_hdr_udp.length = self.v.nat64main_translate_hdr_udp.length;
            self.v.nat64main_hdr_udp.checksum = self
                .v
                .nat64main_translate_hdr_udp
                .checksum;
            self.v.nat64main_hdr_icmp.valid = self.v.nat64main_translate_hdr_icmp.valid;
            self.v.nat64main_hdr_icmp.kind = self.v.nat64main_translate_hdr_icmp.kind;
            self.v.nat64main_hdr_icmp.code = self.v.nat64main_translate_hdr_icmp.code;
            self.v.nat64main_hdr_icmp.checksum = self
                .v
                .nat64main_translate_hdr_icmp
                .checksum;
            self.v.nat64main_hdr_icmp.identifier = self
                .v
                .nat64main_translate_hdr_icmp
                .identifier;
            self.v.nat64main_hdr_icmp.sequence = self
                .v
                .nat64main_translate_hdr_icmp
                .sequence;
            self.v.nat64main_meta_is_inside = self.v.nat64main_translate_meta_is_inside;
            self.v.nat64main_meta_is_local = self.v.nat64main_translate_meta_is_local;
            self.v.nat64main_meta_is_learning = self
                .v
                .nat64main_translate_meta_is_learning;
            self.v.nat64main_meta_is_taken = self.v.nat64main_translate_meta_is_taken;
            self.v.nat64main_meta_is_claimed = self
                .v
                .nat64main_translate_meta_is_claimed;
            self.v.nat64main_meta_fragment = self.v.nat64main_translate_meta_fragment;
            self.v.nat64main_meta_reason = self.v.nat64main_translate_meta_reason;
            self.v.nat64main_meta_protocol = self.v.nat64main_translate_meta_protocol;
            self.v.nat64main_meta_internal_high = self
                .v
                .nat64main_translate_meta_internal_high;
            self.v.nat64main_meta_internal_middle = self
                .v
                .nat64main_translate_meta_internal_middle;
            self.v.nat64main_meta_internal_low = self
                .v
                .nat64main_translate_meta_internal_low;
            self.v.nat64main_meta_internal_port = self
                .v
                .nat64main_translate_meta_internal_port;
            self.v.nat64main_meta_external = self.v.nat64main_translate_meta_external;
            self.v.nat64main_meta_external_port = self
                .v
                .nat64main_translate_meta_external_port;
            self.v.nat64main_meta_first_port = self
                .v
                .nat64main_translate_meta_first_port;
            self.v.nat64main_meta_last_port = self.v.nat64main_translate_meta_last_port;
            self.v.nat64main_meta_pool_index = self
                .v
                .nat64main_translate_meta_pool_index;
            self.v.nat64main_meta_prefix_high = self
                .v
                .nat64main_translate_meta_prefix_high;
            self.v.nat64main_meta_prefix_middle = self
                .v
                .nat64main_translate_meta_prefix_middle;
            self.v.nat64main_meta_mtu = self.v.nat64main_translate_meta_mtu;
            self.v.nat64main_meta_remote = self.v.nat64main_translate_meta_remote;
            self.v.nat64main_meta_profile = self.v.nat64main_translate_meta_profile;
            self.v.nat64main_meta_hop_high = self.v.nat64main_translate_meta_hop_high;
            self.v.nat64main_meta_hop_middle = self
                .v
                .nat64main_translate_meta_hop_middle;
            self.v.nat64main_meta_hop_low = self.v.nat64main_translate_meta_hop_low;
            self.v.nat64main_meta_out_port = self.v.nat64main_translate_meta_out_port;
            if self.v.nat64main_meta_is_inside {
                let (hit, action, flow) = self.apply_next_hops(false);
                self.v.nat64main_tmp_33 = hit;
                self.v.nat64main_tmp_34 = action as u32;
                flow?;
            } else {
                let (hit, action) = self.apply_routes6();
                self.v.nat64main_tmp_35 = hit;
                self.v.nat64main_tmp_36 = action as u32;
                if self.v.nat64main_meta_reason == 0_u8 {
                    let (hit, action, flow) = self.apply_next_hops6(false);
                    self.v.nat64main_tmp_37 = hit;
                    self.v.nat64main_tmp_38 = action as u32;
                    flow?;
                }
            }
        }
        self.pass.rest(false)?;
        if !(self.v.nat64main_meta_reason == 0_u8) {
            self.pass
                .count(
                    &mut self.code.drops,
                    self.v.nat64main_meta_reason as u128,
                    0x0_u128,
                );
            self.port = None;
        }
        Ok(())
    }

    /// `Nat64Deparser`.
    #[inline(always)]
    fn nat64deparser(&mut self) {
        if self.v.nat64deparser_hdr_ethernet.valid {
            self.head.extend_from_slice(&self.v.nat64deparser_hdr_ethernet.bytes());
        }
        if self.v.nat64deparser_hdr_arp.valid {
            self.head.extend_from_slice(&self.v.nat64deparser_hdr_arp.bytes());
        }
        if self.v.nat64deparser_hdr_ipv4.valid {
            self.head.extend_from_slice(&self.v.nat64deparser_hdr_ipv4.bytes());
        }
        if self.v.nat64deparser_hdr_ipv6.valid {
            self.head.extend_from_slice(&self.v.nat64deparser_hdr_ipv6.bytes());
        }
        if self.v.nat64deparser_hdr_neighbor.valid {
            self.head.extend_from_slice(&self.v.nat64deparser_hdr_neighbor.bytes());
        }
        if self.v.nat64deparser_hdr_tcp.valid {
            self.head.extend_from_slice(&self.v.nat64deparser_hdr_tcp.bytes());
        }
        if self.v.nat64deparser_hdr_udp.valid {
            self.head.extend_from_slice(&self.v.nat64deparser_hdr_udp.bytes());
        }
        if self.v.nat64deparser_hdr_icmp.valid {
            self.head.extend_from_slice(&self.v.nat64deparser_hdr_icmp.bytes());
        }
    }
}
