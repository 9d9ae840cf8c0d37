//! The program `nat`, made by `natgate p4 compile --emit rust`: changes belong into the program.

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

/// What entries of `NatMain.interfaces` do.
#[derive(Clone, Copy, Debug)]
enum InterfacesAction {
    Inside { mac: u64 },
    Outside { mac: u64 },
    NoRole,
}

impl Action for InterfacesAction {
    fn of(number: usize, args: &[u128]) -> Self {
        match number {
            0 => {
                InterfacesAction::Inside {
                    mac: args[0] as u64,
                }
            }
            1 => {
                InterfacesAction::Outside {
                    mac: args[0] as u64,
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
            Self::Inside { mac } => vec![* mac as u128],
            Self::Outside { mac } => vec![* mac as u128],
            Self::NoRole {} => vec![],
        }
    }
}

/// What entries of `NatMain.stations` do.
#[derive(Clone, Copy, Debug)]
enum StationsAction {
    At { port: u32 },
    UnknownStation,
}

impl Action for StationsAction {
    fn of(number: usize, args: &[u128]) -> Self {
        match number {
            0 => {
                StationsAction::At {
                    port: args[0] as u32,
                }
            }
            _ => StationsAction::UnknownStation,
        }
    }

    fn number(&self) -> usize {
        match self {
            Self::At { .. } => 0,
            Self::UnknownStation { .. } => 1,
        }
    }

    fn args(&self) -> Vec<u128> {
        match self {
            Self::At { port } => vec![* port as u128],
            Self::UnknownStation {} => vec![],
        }
    }
}

/// What entries of `NatMain.addresses` do.
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

/// What entries of `NatMain.subscribers` do.
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

/// What entries of `NatMain.pool` do.
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

/// What entries of `NatMain.upload` do.
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

/// What entries of `NatMain.download` do.
#[derive(Clone, Copy, Debug)]
enum DownloadAction {
    ToInternal { address: u32, port: u16 },
    LearnReturn,
}

impl Action for DownloadAction {
    fn of(number: usize, args: &[u128]) -> Self {
        match number {
            0 => {
                DownloadAction::ToInternal {
                    address: args[0] as u32,
                    port: args[1] as u16,
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
            Self::ToInternal { address, port } => vec![* address as u128, * port as u128],
            Self::LearnReturn {} => vec![],
        }
    }
}

/// What entries of `NatMain.routes` do.
#[derive(Clone, Copy, Debug)]
enum RoutesAction {
    Via { gateway: u32, port: u32 },
    OnLink { port: u32 },
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
            _ => RoutesAction::NoRoute,
        }
    }

    fn number(&self) -> usize {
        match self {
            Self::Via { .. } => 0,
            Self::OnLink { .. } => 1,
            Self::NoRoute { .. } => 2,
        }
    }

    fn args(&self) -> Vec<u128> {
        match self {
            Self::Via { gateway, port } => vec![* gateway as u128, * port as u128],
            Self::OnLink { port } => vec![* port as u128],
            Self::NoRoute {} => vec![],
        }
    }
}

/// What entries of `NatMain.next_hops` do.
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

/// Headers, metadata and variables of a packet.
#[derive(Clone, Copy, Debug, Default)]
struct Slots {
    nat_parser_hdr_ethernet: Ethernet,
    nat_parser_hdr_arp: Arp,
    nat_parser_hdr_ipv4: Ipv4,
    nat_parser_hdr_tcp: Tcp,
    nat_parser_hdr_udp: Udp,
    nat_parser_hdr_icmp: Icmp,
    nat_parser_meta_is_inside: bool,
    nat_parser_meta_is_local: bool,
    nat_parser_meta_is_learning: bool,
    nat_parser_meta_is_taken: bool,
    nat_parser_meta_is_claimed: bool,
    nat_parser_meta_is_sender: bool,
    nat_parser_meta_station: u64,
    nat_parser_meta_fragment: u16,
    nat_parser_meta_reason: u8,
    nat_parser_meta_protocol: u8,
    nat_parser_meta_internal: u32,
    nat_parser_meta_internal_port: u16,
    nat_parser_meta_external: u32,
    nat_parser_meta_external_port: u16,
    nat_parser_meta_first_port: u16,
    nat_parser_meta_last_port: u16,
    nat_parser_meta_pool_index: u16,
    nat_parser_meta_profile: u8,
    nat_parser_meta_next_hop: u32,
    nat_parser_meta_out_port: u32,
    nat_parser_istd_direction: u32,
    nat_parser_istd_pass: u8,
    nat_parser_istd_loopedback: bool,
    nat_parser_istd_input_port: u32,
    nat_pre_control_hdr_ethernet: Ethernet,
    nat_pre_control_hdr_arp: Arp,
    nat_pre_control_hdr_ipv4: Ipv4,
    nat_pre_control_hdr_tcp: Tcp,
    nat_pre_control_hdr_udp: Udp,
    nat_pre_control_hdr_icmp: Icmp,
    nat_pre_control_meta_is_inside: bool,
    nat_pre_control_meta_is_local: bool,
    nat_pre_control_meta_is_learning: bool,
    nat_pre_control_meta_is_taken: bool,
    nat_pre_control_meta_is_claimed: bool,
    nat_pre_control_meta_is_sender: bool,
    nat_pre_control_meta_station: u64,
    nat_pre_control_meta_fragment: u16,
    nat_pre_control_meta_reason: u8,
    nat_pre_control_meta_protocol: u8,
    nat_pre_control_meta_internal: u32,
    nat_pre_control_meta_internal_port: u16,
    nat_pre_control_meta_external: u32,
    nat_pre_control_meta_external_port: u16,
    nat_pre_control_meta_first_port: u16,
    nat_pre_control_meta_last_port: u16,
    nat_pre_control_meta_pool_index: u16,
    nat_pre_control_meta_profile: u8,
    nat_pre_control_meta_next_hop: u32,
    nat_pre_control_meta_out_port: u32,
    nat_pre_control_istd_input_port: u32,
    nat_pre_control_istd_parser_error: u32,
    nat_pre_control_istd_direction: u32,
    nat_pre_control_istd_pass: u8,
    nat_pre_control_istd_loopedback: bool,
    nat_pre_control_ostd_decrypt: bool,
    nat_pre_control_ostd_said: u32,
    nat_pre_control_ostd_decrypt_start_offset: u16,
    nat_main_hdr_ethernet: Ethernet,
    nat_main_hdr_arp: Arp,
    nat_main_hdr_ipv4: Ipv4,
    nat_main_hdr_tcp: Tcp,
    nat_main_hdr_udp: Udp,
    nat_main_hdr_icmp: Icmp,
    nat_main_meta_is_inside: bool,
    nat_main_meta_is_local: bool,
    nat_main_meta_is_learning: bool,
    nat_main_meta_is_taken: bool,
    nat_main_meta_is_claimed: bool,
    nat_main_meta_is_sender: bool,
    nat_main_meta_station: u64,
    nat_main_meta_fragment: u16,
    nat_main_meta_reason: u8,
    nat_main_meta_protocol: u8,
    nat_main_meta_internal: u32,
    nat_main_meta_internal_port: u16,
    nat_main_meta_external: u32,
    nat_main_meta_external_port: u16,
    nat_main_meta_first_port: u16,
    nat_main_meta_last_port: u16,
    nat_main_meta_pool_index: u16,
    nat_main_meta_profile: u8,
    nat_main_meta_next_hop: u32,
    nat_main_meta_out_port: u32,
    nat_main_istd_direction: u32,
    nat_main_istd_pass: u8,
    nat_main_istd_loopedback: bool,
    nat_main_istd_timestamp: u64,
    nat_main_istd_parser_error: u32,
    nat_main_istd_class_of_service: u8,
    nat_main_istd_input_port: u32,
    nat_main_ostd_class_of_service: u8,
    nat_main_translate_hdr_ethernet: Ethernet,
    nat_main_translate_hdr_arp: Arp,
    nat_main_translate_hdr_ipv4: Ipv4,
    nat_main_translate_hdr_tcp: Tcp,
    nat_main_translate_hdr_udp: Udp,
    nat_main_translate_hdr_icmp: Icmp,
    nat_main_translate_meta_is_inside: bool,
    nat_main_translate_meta_is_local: bool,
    nat_main_translate_meta_is_learning: bool,
    nat_main_translate_meta_is_taken: bool,
    nat_main_translate_meta_is_claimed: bool,
    nat_main_translate_meta_is_sender: bool,
    nat_main_translate_meta_station: u64,
    nat_main_translate_meta_fragment: u16,
    nat_main_translate_meta_reason: u8,
    nat_main_translate_meta_protocol: u8,
    nat_main_translate_meta_internal: u32,
    nat_main_translate_meta_internal_port: u16,
    nat_main_translate_meta_external: u32,
    nat_main_translate_meta_external_port: u16,
    nat_main_translate_meta_first_port: u16,
    nat_main_translate_meta_last_port: u16,
    nat_main_translate_meta_pool_index: u16,
    nat_main_translate_meta_profile: u8,
    nat_main_translate_meta_next_hop: u32,
    nat_main_translate_meta_out_port: u32,
    nat_main_translate_old_address: u32,
    nat_main_translate_new_address: u32,
    nat_main_translate_old_port: u16,
    nat_main_translate_new_port: u16,
    nat_main_translate_result: u16,
    nat_main_translate_result_2: u16,
    nat_main_translate_result_3: u16,
    nat_main_translate_result_4: u16,
    nat_main_inside_mac: u64,
    nat_main_outside_mac: u64,
    nat_main_at_port: u32,
    nat_main_unknown_station_result: bool,
    nat_main_answer_mac: u64,
    nat_main_answer_asked: u32,
    nat_main_subscriber_index: u16,
    nat_main_subscriber_pool_index: u16,
    nat_main_subscriber_result: u32,
    nat_main_subscriber_color: u32,
    nat_main_external_address_address: u32,
    nat_main_external_address_first: u16,
    nat_main_external_address_last: u16,
    nat_main_next_port_step: u16,
    nat_main_to_external_address: u32,
    nat_main_to_external_port: u16,
    nat_main_learn_result: bool,
    nat_main_to_internal_address: u32,
    nat_main_to_internal_port: u16,
    nat_main_learn_return_result: bool,
    nat_main_via_gateway: u32,
    nat_main_via_port: u32,
    nat_main_on_link_port: u32,
    nat_main_neighbor_source: u64,
    nat_main_neighbor_destination: u64,
    nat_main_classify_protocol: u8,
    nat_main_classify_near: u16,
    nat_main_classify_far: u16,
    nat_main_classify_profile: u8,
    nat_main_tmp: bool,
    nat_main_tmp_2: u32,
    nat_main_result: u16,
    nat_main_tmp_3: bool,
    nat_main_tmp_4: u32,
    nat_main_tmp_5: bool,
    nat_main_tmp_6: u32,
    nat_main_tmp_7: bool,
    nat_main_tmp_8: u32,
    nat_main_tmp_9: bool,
    nat_main_tmp_10: u32,
    nat_main_tmp_11: bool,
    nat_main_tmp_12: u32,
    nat_main_tmp_13: bool,
    nat_main_tmp_14: u32,
    nat_main_tmp_15: bool,
    nat_main_tmp_16: u32,
    nat_main_tmp_17: bool,
    nat_main_tmp_18: u32,
    nat_main_tmp_19: bool,
    nat_main_tmp_20: u32,
    nat_main_tmp_21: bool,
    nat_main_tmp_22: u32,
    nat_main_tmp_23: bool,
    nat_main_tmp_24: u32,
    nat_main_tmp_25: bool,
    nat_main_tmp_26: u32,
    nat_main_tmp_27: bool,
    nat_main_tmp_28: u32,
    nat_main_tmp_29: bool,
    nat_main_tmp_30: u32,
    nat_main_tmp_31: bool,
    nat_main_tmp_32: u32,
    nat_main_tmp_33: bool,
    nat_main_tmp_34: u32,
    nat_main_tmp_35: bool,
    nat_main_tmp_36: u32,
    nat_deparser_hdr_ethernet: Ethernet,
    nat_deparser_hdr_arp: Arp,
    nat_deparser_hdr_ipv4: Ipv4,
    nat_deparser_hdr_tcp: Tcp,
    nat_deparser_hdr_udp: Udp,
    nat_deparser_hdr_icmp: Icmp,
    nat_deparser_meta_is_inside: bool,
    nat_deparser_meta_is_local: bool,
    nat_deparser_meta_is_learning: bool,
    nat_deparser_meta_is_taken: bool,
    nat_deparser_meta_is_claimed: bool,
    nat_deparser_meta_is_sender: bool,
    nat_deparser_meta_station: u64,
    nat_deparser_meta_fragment: u16,
    nat_deparser_meta_reason: u8,
    nat_deparser_meta_protocol: u8,
    nat_deparser_meta_internal: u32,
    nat_deparser_meta_internal_port: u16,
    nat_deparser_meta_external: u32,
    nat_deparser_meta_external_port: u16,
    nat_deparser_meta_first_port: u16,
    nat_deparser_meta_last_port: u16,
    nat_deparser_meta_pool_index: u16,
    nat_deparser_meta_profile: u8,
    nat_deparser_meta_next_hop: u32,
    nat_deparser_meta_out_port: u32,
    nat_deparser_ostd_class_of_service: u8,
    sum_header_sum: u16,
    sum_ip_sum: u16,
    sum_transport_sum: u16,
}

/// The table that is being applied, with the key and where its entry is.
#[derive(Clone, Copy, Debug)]
enum Applied {
    Nothing,
    Stations { key: u64, place: Place },
    Upload { key: u64, place: Place },
    Download { key: u64, place: Place },
}

/// The program's tables, and what its objects remember.
#[derive(Debug)]
pub struct Nat {
    interfaces: Exact<u64, InterfacesAction>,
    stations: Exact<u64, StationsAction>,
    addresses: Exact<u64, AddressesAction>,
    subscribers: Lpm<u64, SubscribersAction>,
    pool: Exact<u64, PoolAction>,
    upload: Exact<u64, UploadAction>,
    download: Exact<u64, DownloadAction>,
    routes: Lpm<u64, RoutesAction>,
    next_hops: Exact<u64, NextHopsAction>,
    drops: Counters,
    subscriber_out: Counters,
    subscriber_rate: Meters,
}

impl Nat {
    /// Without entries; `seed` is that of its random numbers.
    pub fn new(seed: u64) -> Self {
        Self {
            interfaces: Exact::new(&[32], 64, false, InterfacesAction::NoRole),
            stations: Exact::new(&[48], 4096, true, StationsAction::UnknownStation),
            addresses: Exact::new(&[32, 32], 64, false, AddressesAction::TellController),
            subscribers: Lpm::new(&[32], 65536, SubscribersAction::NoSubscriber),
            pool: Exact::new(&[16], 4096, false, PoolAction::NoAddress),
            upload: Exact::new(&[8, 32, 16], 1048576, true, UploadAction::Learn),
            download: Exact::new(
                &[8, 32, 16],
                1048576,
                true,
                DownloadAction::LearnReturn,
            ),
            routes: Lpm::new(&[32], 65536, RoutesAction::NoRoute),
            next_hops: Exact::new(&[32, 32], 65536, false, NextHopsAction::NoNeighbor),
            drops: Counters::new(256, 0xffffffffffffffff_u64),
            subscriber_out: Counters::new(65536, 0xffffffffffffffff_u64),
            subscriber_rate: Meters::new(65536, true),
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

impl Execute for Nat {
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
            || self.next_hops.is_large()
        {
            in_halves(self, world, port, frames, fates);
        } else {
            one_by_one(self, world, port, frames, fates);
        }
    }

    fn table(&self, number: usize) -> &dyn Store {
        match number {
            0 => &self.interfaces,
            1 => &self.stations,
            2 => &self.addresses,
            3 => &self.subscribers,
            4 => &self.pool,
            5 => &self.upload,
            6 => &self.download,
            7 => &self.routes,
            8 => &self.next_hops,
            _ => panic!("there is no table {number}"),
        }
    }

    fn table_mut(&mut self, number: usize) -> &mut dyn Store {
        match number {
            0 => &mut self.interfaces,
            1 => &mut self.stations,
            2 => &mut self.addresses,
            3 => &mut self.subscribers,
            4 => &mut self.pool,
            5 => &mut self.upload,
            6 => &mut self.download,
            7 => &mut self.routes,
            8 => &mut self.next_hops,
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
    nat_main_hdr_ethernet: Ethernet,
    nat_main_hdr_arp: Arp,
    nat_main_hdr_ipv4: Ipv4,
    nat_main_hdr_tcp: Tcp,
    nat_main_hdr_udp: Udp,
    nat_main_hdr_icmp: Icmp,
    nat_main_meta_is_inside: bool,
    nat_main_meta_is_local: bool,
    nat_main_meta_is_learning: bool,
    nat_main_meta_is_taken: bool,
    nat_main_meta_is_claimed: bool,
    nat_main_meta_is_sender: bool,
    nat_main_meta_station: u64,
    nat_main_meta_fragment: u16,
    nat_main_meta_reason: u8,
    nat_main_meta_protocol: u8,
    nat_main_meta_internal: u32,
    nat_main_meta_internal_port: u16,
    nat_main_meta_external: u32,
    nat_main_meta_external_port: u16,
    nat_main_meta_first_port: u16,
    nat_main_meta_last_port: u16,
    nat_main_meta_pool_index: u16,
    nat_main_meta_profile: u8,
    nat_main_meta_next_hop: u32,
    nat_main_meta_out_port: u32,
}

impl Nat {
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
        run.v.nat_main_hdr_ethernet = kept.nat_main_hdr_ethernet;
        run.v.nat_main_hdr_arp = kept.nat_main_hdr_arp;
        run.v.nat_main_hdr_ipv4 = kept.nat_main_hdr_ipv4;
        run.v.nat_main_hdr_tcp = kept.nat_main_hdr_tcp;
        run.v.nat_main_hdr_udp = kept.nat_main_hdr_udp;
        run.v.nat_main_hdr_icmp = kept.nat_main_hdr_icmp;
        run.v.nat_main_meta_is_inside = kept.nat_main_meta_is_inside;
        run.v.nat_main_meta_is_local = kept.nat_main_meta_is_local;
        run.v.nat_main_meta_is_learning = kept.nat_main_meta_is_learning;
        run.v.nat_main_meta_is_taken = kept.nat_main_meta_is_taken;
        run.v.nat_main_meta_is_claimed = kept.nat_main_meta_is_claimed;
        run.v.nat_main_meta_is_sender = kept.nat_main_meta_is_sender;
        run.v.nat_main_meta_station = kept.nat_main_meta_station;
        run.v.nat_main_meta_fragment = kept.nat_main_meta_fragment;
        run.v.nat_main_meta_reason = kept.nat_main_meta_reason;
        run.v.nat_main_meta_protocol = kept.nat_main_meta_protocol;
        run.v.nat_main_meta_internal = kept.nat_main_meta_internal;
        run.v.nat_main_meta_internal_port = kept.nat_main_meta_internal_port;
        run.v.nat_main_meta_external = kept.nat_main_meta_external;
        run.v.nat_main_meta_external_port = kept.nat_main_meta_external_port;
        run.v.nat_main_meta_first_port = kept.nat_main_meta_first_port;
        run.v.nat_main_meta_last_port = kept.nat_main_meta_last_port;
        run.v.nat_main_meta_pool_index = kept.nat_main_meta_pool_index;
        run.v.nat_main_meta_profile = kept.nat_main_meta_profile;
        run.v.nat_main_meta_next_hop = kept.nat_main_meta_next_hop;
        run.v.nat_main_meta_out_port = kept.nat_main_meta_out_port;
        run
    }
}

impl Halves for Nat {
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
        kept.nat_main_hdr_ethernet = run.v.nat_main_hdr_ethernet;
        kept.nat_main_hdr_arp = run.v.nat_main_hdr_arp;
        kept.nat_main_hdr_ipv4 = run.v.nat_main_hdr_ipv4;
        kept.nat_main_hdr_tcp = run.v.nat_main_hdr_tcp;
        kept.nat_main_hdr_udp = run.v.nat_main_hdr_udp;
        kept.nat_main_hdr_icmp = run.v.nat_main_hdr_icmp;
        kept.nat_main_meta_is_inside = run.v.nat_main_meta_is_inside;
        kept.nat_main_meta_is_local = run.v.nat_main_meta_is_local;
        kept.nat_main_meta_is_learning = run.v.nat_main_meta_is_learning;
        kept.nat_main_meta_is_taken = run.v.nat_main_meta_is_taken;
        kept.nat_main_meta_is_claimed = run.v.nat_main_meta_is_claimed;
        kept.nat_main_meta_is_sender = run.v.nat_main_meta_is_sender;
        kept.nat_main_meta_station = run.v.nat_main_meta_station;
        kept.nat_main_meta_fragment = run.v.nat_main_meta_fragment;
        kept.nat_main_meta_reason = run.v.nat_main_meta_reason;
        kept.nat_main_meta_protocol = run.v.nat_main_meta_protocol;
        kept.nat_main_meta_internal = run.v.nat_main_meta_internal;
        kept.nat_main_meta_internal_port = run.v.nat_main_meta_internal_port;
        kept.nat_main_meta_external = run.v.nat_main_meta_external;
        kept.nat_main_meta_external_port = run.v.nat_main_meta_external_port;
        kept.nat_main_meta_first_port = run.v.nat_main_meta_first_port;
        kept.nat_main_meta_last_port = run.v.nat_main_meta_last_port;
        kept.nat_main_meta_pool_index = run.v.nat_main_meta_pool_index;
        kept.nat_main_meta_profile = run.v.nat_main_meta_profile;
        kept.nat_main_meta_next_hop = run.v.nat_main_meta_next_hop;
        kept.nat_main_meta_out_port = run.v.nat_main_meta_out_port;
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
    code: &'r mut Nat,
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
        self.v.nat_parser_istd_input_port = port as u32;
        self.v.nat_pre_control_istd_input_port = port as u32;
        self.v.nat_main_istd_input_port = port as u32;
        self.v.nat_main_istd_timestamp = self.now as u64;
        if let Err(Stop::Reject(error)) = self.parse_nat_parser() {
            self.v.nat_pre_control_istd_parser_error = error as u32;
            self.v.nat_main_istd_parser_error = error as u32;
        }
        self.v.nat_pre_control_hdr_ethernet = self.v.nat_parser_hdr_ethernet;
        self.v.nat_pre_control_hdr_arp = self.v.nat_parser_hdr_arp;
        self.v.nat_pre_control_hdr_ipv4 = self.v.nat_parser_hdr_ipv4;
        self.v.nat_pre_control_hdr_tcp = self.v.nat_parser_hdr_tcp;
        self.v.nat_pre_control_hdr_udp = self.v.nat_parser_hdr_udp;
        self.v.nat_pre_control_hdr_icmp = self.v.nat_parser_hdr_icmp;
        self.v.nat_pre_control_meta_is_inside = self.v.nat_parser_meta_is_inside;
        self.v.nat_pre_control_meta_is_local = self.v.nat_parser_meta_is_local;
        self.v.nat_pre_control_meta_is_learning = self.v.nat_parser_meta_is_learning;
        self.v.nat_pre_control_meta_is_taken = self.v.nat_parser_meta_is_taken;
        self.v.nat_pre_control_meta_is_claimed = self.v.nat_parser_meta_is_claimed;
        self.v.nat_pre_control_meta_is_sender = self.v.nat_parser_meta_is_sender;
        self.v.nat_pre_control_meta_station = self.v.nat_parser_meta_station;
        self.v.nat_pre_control_meta_fragment = self.v.nat_parser_meta_fragment;
        self.v.nat_pre_control_meta_reason = self.v.nat_parser_meta_reason;
        self.v.nat_pre_control_meta_protocol = self.v.nat_parser_meta_protocol;
        self.v.nat_pre_control_meta_internal = self.v.nat_parser_meta_internal;
        self.v.nat_pre_control_meta_internal_port = self.v.nat_parser_meta_internal_port;
        self.v.nat_pre_control_meta_external = self.v.nat_parser_meta_external;
        self.v.nat_pre_control_meta_external_port = self.v.nat_parser_meta_external_port;
        self.v.nat_pre_control_meta_first_port = self.v.nat_parser_meta_first_port;
        self.v.nat_pre_control_meta_last_port = self.v.nat_parser_meta_last_port;
        self.v.nat_pre_control_meta_pool_index = self.v.nat_parser_meta_pool_index;
        self.v.nat_pre_control_meta_profile = self.v.nat_parser_meta_profile;
        self.v.nat_pre_control_meta_next_hop = self.v.nat_parser_meta_next_hop;
        self.v.nat_pre_control_meta_out_port = self.v.nat_parser_meta_out_port;
        self.nat_pre_control();
        self.v.nat_main_hdr_ethernet = self.v.nat_parser_hdr_ethernet;
        self.v.nat_main_hdr_arp = self.v.nat_parser_hdr_arp;
        self.v.nat_main_hdr_ipv4 = self.v.nat_parser_hdr_ipv4;
        self.v.nat_main_hdr_tcp = self.v.nat_parser_hdr_tcp;
        self.v.nat_main_hdr_udp = self.v.nat_parser_hdr_udp;
        self.v.nat_main_hdr_icmp = self.v.nat_parser_hdr_icmp;
        self.v.nat_main_meta_is_inside = self.v.nat_pre_control_meta_is_inside;
        self.v.nat_main_meta_is_local = self.v.nat_pre_control_meta_is_local;
        self.v.nat_main_meta_is_learning = self.v.nat_pre_control_meta_is_learning;
        self.v.nat_main_meta_is_taken = self.v.nat_pre_control_meta_is_taken;
        self.v.nat_main_meta_is_claimed = self.v.nat_pre_control_meta_is_claimed;
        self.v.nat_main_meta_is_sender = self.v.nat_pre_control_meta_is_sender;
        self.v.nat_main_meta_station = self.v.nat_pre_control_meta_station;
        self.v.nat_main_meta_fragment = self.v.nat_pre_control_meta_fragment;
        self.v.nat_main_meta_reason = self.v.nat_pre_control_meta_reason;
        self.v.nat_main_meta_protocol = self.v.nat_pre_control_meta_protocol;
        self.v.nat_main_meta_internal = self.v.nat_pre_control_meta_internal;
        self.v.nat_main_meta_internal_port = self.v.nat_pre_control_meta_internal_port;
        self.v.nat_main_meta_external = self.v.nat_pre_control_meta_external;
        self.v.nat_main_meta_external_port = self.v.nat_pre_control_meta_external_port;
        self.v.nat_main_meta_first_port = self.v.nat_pre_control_meta_first_port;
        self.v.nat_main_meta_last_port = self.v.nat_pre_control_meta_last_port;
        self.v.nat_main_meta_pool_index = self.v.nat_pre_control_meta_pool_index;
        self.v.nat_main_meta_profile = self.v.nat_pre_control_meta_profile;
        self.v.nat_main_meta_next_hop = self.v.nat_pre_control_meta_next_hop;
        self.v.nat_main_meta_out_port = self.v.nat_pre_control_meta_out_port;
        self.nat_main_first();
    }

    /// The rest; on the way ahead, whether there may be more to fetch.
    #[inline(always)]
    fn finish(&mut self) -> bool {
        if let Err(Stop::Ahead { more }) = self.nat_main() {
            return more;
        }
        if P::IS_AHEAD {
            return false;
        }
        self.v.nat_deparser_hdr_ethernet = self.v.nat_main_hdr_ethernet;
        self.v.nat_deparser_hdr_arp = self.v.nat_main_hdr_arp;
        self.v.nat_deparser_hdr_ipv4 = self.v.nat_main_hdr_ipv4;
        self.v.nat_deparser_hdr_tcp = self.v.nat_main_hdr_tcp;
        self.v.nat_deparser_hdr_udp = self.v.nat_main_hdr_udp;
        self.v.nat_deparser_hdr_icmp = self.v.nat_main_hdr_icmp;
        self.v.nat_deparser_meta_is_inside = self.v.nat_main_meta_is_inside;
        self.v.nat_deparser_meta_is_local = self.v.nat_main_meta_is_local;
        self.v.nat_deparser_meta_is_learning = self.v.nat_main_meta_is_learning;
        self.v.nat_deparser_meta_is_taken = self.v.nat_main_meta_is_taken;
        self.v.nat_deparser_meta_is_claimed = self.v.nat_main_meta_is_claimed;
        self.v.nat_deparser_meta_is_sender = self.v.nat_main_meta_is_sender;
        self.v.nat_deparser_meta_station = self.v.nat_main_meta_station;
        self.v.nat_deparser_meta_fragment = self.v.nat_main_meta_fragment;
        self.v.nat_deparser_meta_reason = self.v.nat_main_meta_reason;
        self.v.nat_deparser_meta_protocol = self.v.nat_main_meta_protocol;
        self.v.nat_deparser_meta_internal = self.v.nat_main_meta_internal;
        self.v.nat_deparser_meta_internal_port = self.v.nat_main_meta_internal_port;
        self.v.nat_deparser_meta_external = self.v.nat_main_meta_external;
        self.v.nat_deparser_meta_external_port = self.v.nat_main_meta_external_port;
        self.v.nat_deparser_meta_first_port = self.v.nat_main_meta_first_port;
        self.v.nat_deparser_meta_last_port = self.v.nat_main_meta_last_port;
        self.v.nat_deparser_meta_pool_index = self.v.nat_main_meta_pool_index;
        self.v.nat_deparser_meta_profile = self.v.nat_main_meta_profile;
        self.v.nat_deparser_meta_next_hop = self.v.nat_main_meta_next_hop;
        self.v.nat_deparser_meta_out_port = self.v.nat_main_meta_out_port;
        self.nat_deparser();
        false
    }

    /// The parser `NatParser`.
    #[inline(always)]
    fn parse_nat_parser(&mut self) -> Result<(), Stop> {
        self.parse_nat_parser_start()
    }

    /// Its state `start`.
    #[inline(always)]
    fn parse_nat_parser_start(&mut self) -> Result<(), Stop> {
        self.input.step()?;
        self.v.nat_parser_hdr_ethernet = Ethernet::read(self.input.extract()?);
        let key_0 = self.v.nat_parser_hdr_ethernet.ethertype;
        if key_0 == 0x806_u16 {
            self.parse_nat_parser_arp()
        } else if key_0 == 0x800_u16 {
            self.parse_nat_parser_ipv4()
        } else {
            Ok(())
        }
    }

    /// Its state `arp`.
    #[inline(always)]
    fn parse_nat_parser_arp(&mut self) -> Result<(), Stop> {
        self.input.step()?;
        self.v.nat_parser_hdr_arp = Arp::read(self.input.extract()?);
        Ok(())
    }

    /// Its state `ipv4`.
    #[inline(always)]
    fn parse_nat_parser_ipv4(&mut self) -> Result<(), Stop> {
        self.input.step()?;
        self.v.nat_parser_hdr_ipv4 = Ipv4::read(self.input.extract()?);
        self.v.nat_parser_meta_fragment = self.v.nat_parser_hdr_ipv4.flags_offset
            & 0x3fff_u16;
        let key_0 = self.v.nat_parser_hdr_ipv4.version_ihl;
        let key_1 = self.v.nat_parser_meta_fragment;
        let key_2 = self.v.nat_parser_hdr_ipv4.protocol;
        if key_0 == 69_u8 && key_1 == 0_u16 && key_2 == 6_u8 {
            self.parse_nat_parser_tcp()
        } else if key_0 == 69_u8 && key_1 == 0_u16 && key_2 == 17_u8 {
            self.parse_nat_parser_udp()
        } else if key_0 == 69_u8 && key_1 == 0_u16 && key_2 == 1_u8 {
            self.parse_nat_parser_icmp()
        } else {
            Ok(())
        }
    }

    /// Its state `tcp`.
    #[inline(always)]
    fn parse_nat_parser_tcp(&mut self) -> Result<(), Stop> {
        self.input.step()?;
        self.v.nat_parser_hdr_tcp = Tcp::read(self.input.extract()?);
        Ok(())
    }

    /// Its state `udp`.
    #[inline(always)]
    fn parse_nat_parser_udp(&mut self) -> Result<(), Stop> {
        self.input.step()?;
        self.v.nat_parser_hdr_udp = Udp::read(self.input.extract()?);
        Ok(())
    }

    /// Its state `icmp`.
    #[inline(always)]
    fn parse_nat_parser_icmp(&mut self) -> Result<(), Stop> {
        self.input.step()?;
        self.v.nat_parser_hdr_icmp = Icmp::read(self.input.extract()?);
        Ok(())
    }

    /// Applies `NatMain.interfaces`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_interfaces(&mut self) -> (bool, u32) {
        let key = self.v.nat_main_istd_input_port as u64;
        let (found, place) = self.code.interfaces.find(self.tick, key);
        match found.action {
            InterfacesAction::Inside { mac } => {
                self.v.nat_main_inside_mac = mac;
                self.nat_main_inside()
            }
            InterfacesAction::Outside { mac } => {
                self.v.nat_main_outside_mac = mac;
                self.nat_main_outside()
            }
            InterfacesAction::NoRole {} => self.nat_main_no_role(),
        };
        (found.hit, found.action.number() as u32)
    }

    /// Applies `NatMain.stations`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_stations(&mut self) -> (bool, u32) {
        let key = self.v.nat_main_meta_station;
        let (found, place) = self.code.stations.find(self.tick, key);
        self.applied = Applied::Stations { key, place };
        match found.action {
            StationsAction::At { port } => {
                self.v.nat_main_at_port = port;
                self.nat_main_at()
            }
            StationsAction::UnknownStation {} => self.nat_main_unknown_station(),
        };
        self.applied = Applied::Nothing;
        (found.hit, found.action.number() as u32)
    }

    /// Applies `NatMain.addresses`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_addresses(&mut self) -> (bool, u32) {
        let key = (self.v.nat_main_istd_input_port as u64) << 32
            | self.v.nat_main_hdr_arp.target as u64;
        let (found, place) = self.code.addresses.find(self.tick, key);
        match found.action {
            AddressesAction::Answer { mac } => {
                self.v.nat_main_answer_mac = mac;
                self.nat_main_answer()
            }
            AddressesAction::TellController {} => self.nat_main_tell_controller(),
        };
        (found.hit, found.action.number() as u32)
    }

    /// Applies `NatMain.subscribers`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_subscribers(&mut self) -> (bool, u32) {
        let found = self.code.subscribers.find(self.v.nat_main_hdr_ipv4.source as u64);
        match found.action {
            SubscribersAction::Subscriber { index, pool_index } => {
                self.v.nat_main_subscriber_index = index;
                self.v.nat_main_subscriber_pool_index = pool_index;
                self.nat_main_subscriber()
            }
            SubscribersAction::NoSubscriber {} => self.nat_main_no_subscriber(),
        };
        (found.hit, found.action.number() as u32)
    }

    /// Applies `NatMain.pool`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_pool(&mut self) -> (bool, u32) {
        let key = self.v.nat_main_meta_pool_index as u64;
        let (found, place) = self.code.pool.find(self.tick, key);
        match found.action {
            PoolAction::ExternalAddress { address, first, last } => {
                self.v.nat_main_external_address_address = address;
                self.v.nat_main_external_address_first = first;
                self.v.nat_main_external_address_last = last;
                self.nat_main_external_address()
            }
            PoolAction::NoAddress {} => self.nat_main_no_address(),
        };
        (found.hit, found.action.number() as u32)
    }

    /// Applies `NatMain.upload`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_upload(&mut self, more: bool) -> (bool, u32, Result<(), Stop>) {
        let key = (self.v.nat_main_meta_protocol as u64) << 48
            | (self.v.nat_main_meta_internal as u64) << 16
            | self.v.nat_main_meta_internal_port as u64;
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
                self.v.nat_main_to_external_address = address;
                self.v.nat_main_to_external_port = port;
                self.nat_main_to_external();
                Ok(())
            }
            UploadAction::Learn {} => {
                self.nat_main_learn();
                Ok(())
            }
        };
        self.applied = Applied::Nothing;
        (found.hit, found.action.number() as u32, flow)
    }

    /// Applies `NatMain.download`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_download(&mut self, more: bool) -> (bool, u32, Result<(), Stop>) {
        let key = (self.v.nat_main_meta_protocol as u64) << 48
            | (self.v.nat_main_meta_external as u64) << 16
            | self.v.nat_main_meta_external_port as u64;
        let (found, place) = match self
            .pass
            .find(&self.code.download, self.tick, key, more)
        {
            Ok(found) => found,
            Err(stop) => return (false, 0, Err(stop)),
        };
        self.applied = Applied::Download { key, place };
        let flow = match found.action {
            DownloadAction::ToInternal { address, port } => {
                self.v.nat_main_to_internal_address = address;
                self.v.nat_main_to_internal_port = port;
                self.nat_main_to_internal();
                Ok(())
            }
            DownloadAction::LearnReturn {} => {
                self.nat_main_learn_return();
                Ok(())
            }
        };
        self.applied = Applied::Nothing;
        (found.hit, found.action.number() as u32, flow)
    }

    /// Applies `NatMain.routes`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_routes(&mut self) -> (bool, u32) {
        let found = self.code.routes.find(self.v.nat_main_hdr_ipv4.destination as u64);
        match found.action {
            RoutesAction::Via { gateway, port } => {
                self.v.nat_main_via_gateway = gateway;
                self.v.nat_main_via_port = port;
                self.nat_main_via()
            }
            RoutesAction::OnLink { port } => {
                self.v.nat_main_on_link_port = port;
                self.nat_main_on_link()
            }
            RoutesAction::NoRoute {} => self.nat_main_no_route(),
        };
        (found.hit, found.action.number() as u32)
    }

    /// Applies `NatMain.next_hops`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_next_hops(&mut self, more: bool) -> (bool, u32, Result<(), Stop>) {
        let key = (self.v.nat_main_meta_out_port as u64) << 32
            | self.v.nat_main_meta_next_hop as u64;
        let (found, place) = match self
            .pass
            .find(&self.code.next_hops, self.tick, key, more)
        {
            Ok(found) => found,
            Err(stop) => return (false, 0, Err(stop)),
        };
        let flow = match found.action {
            NextHopsAction::Neighbor { source, destination } => {
                self.v.nat_main_neighbor_source = source;
                self.v.nat_main_neighbor_destination = destination;
                self.nat_main_neighbor();
                Ok(())
            }
            NextHopsAction::NoNeighbor {} => {
                self.nat_main_no_neighbor();
                Ok(())
            }
        };
        (found.hit, found.action.number() as u32, flow)
    }

    /// `NoAction`.
    #[inline(always)]
    fn no_action(&mut self) {}
    /// `NatPreControl`.
    #[inline(always)]
    fn nat_pre_control(&mut self) {}
    /// `NatMain.translate`.
    #[inline(always)]
    fn nat_main_translate(&mut self) {
        self.v.nat_main_translate_old_address = 0_u32;
        self.v.nat_main_translate_new_address = 0_u32;
        self.v.nat_main_translate_old_port = 0_u16;
        self.v.nat_main_translate_new_port = 0_u16;
        self.v.sum_ip_sum = 0;
        let part_0 = self.v.nat_main_translate_hdr_ipv4.checksum;
        let part_1 = self.v.nat_main_translate_hdr_ipv4.ttl;
        let part_2 = self.v.nat_main_translate_hdr_ipv4.protocol;
        self.v.sum_ip_sum = checksum(
            self.v.sum_ip_sum,
            [!(part_0), !((part_1 as u16) << 8 | (part_2 as u16))],
        );
        let part_0 = self.v.nat_main_translate_hdr_ipv4.source;
        let part_1 = self.v.nat_main_translate_hdr_ipv4.destination;
        self.v.sum_ip_sum = checksum(
            self.v.sum_ip_sum,
            [
                !(((part_0 >> 16) as u16)),
                !((part_0 as u16)),
                !(((part_1 >> 16) as u16)),
                !((part_1 as u16)),
            ],
        );
        if self.v.nat_main_translate_meta_is_inside {
            self.v.nat_main_translate_old_address = self
                .v
                .nat_main_translate_hdr_ipv4
                .source;
            self.v.nat_main_translate_new_address = self
                .v
                .nat_main_translate_meta_external;
            self.v.nat_main_translate_old_port = self
                .v
                .nat_main_translate_meta_internal_port;
            self.v.nat_main_translate_new_port = self
                .v
                .nat_main_translate_meta_external_port;
            self.v.nat_main_translate_hdr_ipv4.source = self
                .v
                .nat_main_translate_new_address;
        } else {
            self.v.nat_main_translate_old_address = self
                .v
                .nat_main_translate_hdr_ipv4
                .destination;
            self.v.nat_main_translate_new_address = self
                .v
                .nat_main_translate_meta_internal;
            self.v.nat_main_translate_old_port = self
                .v
                .nat_main_translate_meta_external_port;
            self.v.nat_main_translate_new_port = self
                .v
                .nat_main_translate_meta_internal_port;
            self.v.nat_main_translate_hdr_ipv4.destination = self
                .v
                .nat_main_translate_new_address;
        }
        self.v.nat_main_translate_hdr_ipv4.ttl = self
            .v
            .nat_main_translate_hdr_ipv4
            .ttl
            .wrapping_sub(1_u8);
        let part_0 = self.v.nat_main_translate_hdr_ipv4.ttl;
        let part_1 = self.v.nat_main_translate_hdr_ipv4.protocol;
        self.v.sum_ip_sum = checksum(
            self.v.sum_ip_sum,
            [(part_0 as u16) << 8 | (part_1 as u16)],
        );
        let part_0 = self.v.nat_main_translate_hdr_ipv4.source;
        let part_1 = self.v.nat_main_translate_hdr_ipv4.destination;
        self.v.sum_ip_sum = checksum(
            self.v.sum_ip_sum,
            [
                ((part_0 >> 16) as u16),
                (part_0 as u16),
                ((part_1 >> 16) as u16),
                (part_1 as u16),
            ],
        );
        self.v.nat_main_translate_result = (!self.v.sum_ip_sum as u128) as u16;
        self.v.nat_main_translate_hdr_ipv4.checksum = self.v.nat_main_translate_result;
        self.v.sum_transport_sum = 0;
        if self.v.nat_main_translate_hdr_tcp.valid {
            let part_0 = self.v.nat_main_translate_hdr_tcp.checksum;
            let part_1 = self.v.nat_main_translate_old_address;
            let part_2 = self.v.nat_main_translate_old_port;
            self.v.sum_transport_sum = checksum(
                self.v.sum_transport_sum,
                [!(part_0), !(((part_1 >> 16) as u16)), !((part_1 as u16)), !(part_2)],
            );
            let part_0 = self.v.nat_main_translate_new_address;
            let part_1 = self.v.nat_main_translate_new_port;
            self.v.sum_transport_sum = checksum(
                self.v.sum_transport_sum,
                [((part_0 >> 16) as u16), (part_0 as u16), part_1],
            );
            self.v.nat_main_translate_result_2 = (!self.v.sum_transport_sum as u128)
                as u16;
            self.v.nat_main_translate_hdr_tcp.checksum = self
                .v
                .nat_main_translate_result_2;
            if self.v.nat_main_translate_meta_is_inside {
                self.v.nat_main_translate_hdr_tcp.source = self
                    .v
                    .nat_main_translate_new_port;
            } else {
                self.v.nat_main_translate_hdr_tcp.destination = self
                    .v
                    .nat_main_translate_new_port;
            }
        } else {
            if self.v.nat_main_translate_hdr_udp.valid {
                if !(self.v.nat_main_translate_hdr_udp.checksum == 0_u16) {
                    let part_0 = self.v.nat_main_translate_hdr_udp.checksum;
                    let part_1 = self.v.nat_main_translate_old_address;
                    let part_2 = self.v.nat_main_translate_old_port;
                    self.v.sum_transport_sum = checksum(
                        self.v.sum_transport_sum,
                        [
                            !(part_0),
                            !(((part_1 >> 16) as u16)),
                            !((part_1 as u16)),
                            !(part_2),
                        ],
                    );
                    let part_0 = self.v.nat_main_translate_new_address;
                    let part_1 = self.v.nat_main_translate_new_port;
                    self.v.sum_transport_sum = checksum(
                        self.v.sum_transport_sum,
                        [((part_0 >> 16) as u16), (part_0 as u16), part_1],
                    );
                    self.v.nat_main_translate_result_3 = (!self.v.sum_transport_sum
                        as u128) as u16;
                    self.v.nat_main_translate_hdr_udp.checksum = self
                        .v
                        .nat_main_translate_result_3;
                    if self.v.nat_main_translate_hdr_udp.checksum == 0_u16 {
                        self.v.nat_main_translate_hdr_udp.checksum = 0xffff_u16;
                    }
                }
                if self.v.nat_main_translate_meta_is_inside {
                    self.v.nat_main_translate_hdr_udp.source = self
                        .v
                        .nat_main_translate_new_port;
                } else {
                    self.v.nat_main_translate_hdr_udp.destination = self
                        .v
                        .nat_main_translate_new_port;
                }
            } else {
                let part_0 = self.v.nat_main_translate_hdr_icmp.checksum;
                let part_1 = self.v.nat_main_translate_old_port;
                self.v.sum_transport_sum = checksum(
                    self.v.sum_transport_sum,
                    [!(part_0), !(part_1)],
                );
                let part_0 = self.v.nat_main_translate_new_port;
                self.v.sum_transport_sum = checksum(self.v.sum_transport_sum, [part_0]);
                self.v.nat_main_translate_result_4 = (!self.v.sum_transport_sum as u128)
                    as u16;
                self.v.nat_main_translate_hdr_icmp.checksum = self
                    .v
                    .nat_main_translate_result_4;
                self.v.nat_main_translate_hdr_icmp.identifier = self
                    .v
                    .nat_main_translate_new_port;
            }
        }
    }

    /// `NatMain.no_role`.
    #[inline(always)]
    fn nat_main_no_role(&mut self) {
        self.v.nat_main_meta_reason = 1_u8;
    }

    /// `NatMain.inside`.
    #[inline(always)]
    fn nat_main_inside(&mut self) {
        self.v.nat_main_meta_is_inside = true;
        self.v.nat_main_meta_is_local = self.v.nat_main_hdr_ethernet.destination
            == self.v.nat_main_inside_mac;
    }

    /// `NatMain.outside`.
    #[inline(always)]
    fn nat_main_outside(&mut self) {
        self.v.nat_main_meta_is_inside = false;
        self.v.nat_main_meta_is_local = self.v.nat_main_hdr_ethernet.destination
            == self.v.nat_main_outside_mac;
    }

    /// `NatMain.at`.
    #[inline(always)]
    fn nat_main_at(&mut self) {
        if self.v.nat_main_meta_is_sender {
            if self.v.nat_main_at_port == self.v.nat_main_istd_input_port {
                match &self.applied {
                    Applied::Stations { place, .. } => {
                        self.pass.restart(&mut self.code.stations, self.now, *place)
                    }
                    Applied::Upload { place, .. } => {
                        self.pass.restart(&mut self.code.upload, self.now, *place)
                    }
                    Applied::Download { place, .. } => {
                        self.pass.restart(&mut self.code.download, self.now, *place)
                    }
                    _ => {}
                }
            }
        } else {
            if self.v.nat_main_at_port == self.v.nat_main_istd_input_port {
                self.v.nat_main_meta_reason = 12_u8;
            } else {
                self.port = Some(self.v.nat_main_at_port as u32);
            }
        }
    }

    /// `NatMain.unknown_station`.
    #[inline(always)]
    fn nat_main_unknown_station(&mut self) {
        if self.v.nat_main_meta_is_sender {
            let timeout = self.world.timeout(0x4_u128);
            self.v.nat_main_unknown_station_result = match &mut self.applied {
                Applied::Stations { key, place } => {
                    let added = self
                        .pass
                        .add(
                            &mut self.code.stations,
                            self.now,
                            *key,
                            StationsAction::At {
                                port: self.v.nat_main_istd_input_port,
                            },
                            timeout,
                        );
                    *place = added.or(*place);
                    added.is_some()
                }
                _ => false,
            };
        } else {
            self.v.nat_main_meta_reason = 11_u8;
        }
    }

    /// `NatMain.answer`.
    #[inline(always)]
    fn nat_main_answer(&mut self) {
        self.v.nat_main_hdr_arp.operation = 2_u16;
        self.v.nat_main_hdr_arp.target_mac = self.v.nat_main_hdr_arp.sender_mac;
        self.v.nat_main_hdr_arp.sender_mac = self.v.nat_main_answer_mac;
        self.v.nat_main_answer_asked = self.v.nat_main_hdr_arp.target;
        self.v.nat_main_hdr_arp.target = self.v.nat_main_hdr_arp.sender;
        self.v.nat_main_hdr_arp.sender = self.v.nat_main_answer_asked;
        self.v.nat_main_hdr_ethernet.destination = self.v.nat_main_hdr_ethernet.source;
        self.v.nat_main_hdr_ethernet.source = self.v.nat_main_answer_mac;
        self.port = Some(self.v.nat_main_istd_input_port as u32);
    }

    /// `NatMain.tell_controller`.
    #[inline(always)]
    fn nat_main_tell_controller(&mut self) {
        self.port = Some(0xfffffffd_u32 as u32);
    }

    /// `NatMain.subscriber`.
    #[inline(always)]
    fn nat_main_subscriber(&mut self) {
        self.v.nat_main_meta_pool_index = self.v.nat_main_subscriber_pool_index;
        self.pass
            .count(
                &mut self.code.subscriber_out,
                self.v.nat_main_subscriber_index as u128,
                (self.v.nat_main_hdr_ipv4.total_length as u32) as u128,
            );
        self.v.nat_main_subscriber_result = (self
            .pass
            .colour(
                &mut self.code.subscriber_rate,
                self.now,
                self.v.nat_main_subscriber_index as u128,
                0x1_u128,
                (self.v.nat_main_hdr_ipv4.total_length as u32) as u128,
            )) as u32;
        self.v.nat_main_subscriber_color = self.v.nat_main_subscriber_result;
        if self.v.nat_main_subscriber_color == 0_u32 {
            self.v.nat_main_meta_reason = 5_u8;
        }
    }

    /// `NatMain.no_subscriber`.
    #[inline(always)]
    fn nat_main_no_subscriber(&mut self) {
        self.v.nat_main_meta_reason = 4_u8;
    }

    /// `NatMain.external_address`.
    #[inline(always)]
    fn nat_main_external_address(&mut self) {
        self.v.nat_main_meta_external = self.v.nat_main_external_address_address;
        self.v.nat_main_meta_first_port = self.v.nat_main_external_address_first;
        self.v.nat_main_meta_last_port = self.v.nat_main_external_address_last;
    }

    /// `NatMain.no_address`.
    #[inline(always)]
    fn nat_main_no_address(&mut self) {
        self.v.nat_main_meta_reason = 7_u8;
    }

    /// `NatMain.first_port`.
    #[inline(always)]
    fn nat_main_first_port(&mut self) {
        self.v.nat_main_meta_external_port = self.v.nat_main_meta_internal_port;
        if (self.v.nat_main_meta_external_port < self.v.nat_main_meta_first_port)
            || (self.v.nat_main_meta_external_port > self.v.nat_main_meta_last_port)
        {
            self.v.nat_main_meta_external_port = self
                .v
                .nat_main_meta_first_port
                .wrapping_add(
                    ((self.v.nat_main_meta_external_port
                        ^ self.v.nat_main_meta_first_port) & 1_u16),
                );
        }
        if (self.v.nat_main_meta_external_port < self.v.nat_main_meta_first_port)
            || (self.v.nat_main_meta_external_port > self.v.nat_main_meta_last_port)
        {
            self.v.nat_main_meta_external_port = self.v.nat_main_meta_first_port;
        }
    }

    /// `NatMain.next_port`.
    #[inline(always)]
    fn nat_main_next_port(&mut self) {
        self.v.nat_main_next_port_step = 1_u16;
        if self.v.nat_main_meta_protocol == 17_u8 {
            self.v.nat_main_next_port_step = 2_u16;
        }
        if (self
            .v
            .nat_main_meta_last_port
            .wrapping_sub(self.v.nat_main_meta_external_port))
            >= self.v.nat_main_next_port_step
        {
            self.v.nat_main_meta_external_port = self
                .v
                .nat_main_meta_external_port
                .wrapping_add(self.v.nat_main_next_port_step);
        } else {
            self.v.nat_main_meta_external_port = self
                .v
                .nat_main_meta_first_port
                .wrapping_add(
                    ((self.v.nat_main_meta_external_port
                        ^ self.v.nat_main_meta_first_port)
                        & (self.v.nat_main_next_port_step.wrapping_sub(1_u16))),
                );
            if self.v.nat_main_meta_external_port > self.v.nat_main_meta_last_port {
                self.v.nat_main_meta_external_port = self.v.nat_main_meta_first_port;
            }
        }
        self.v.nat_main_meta_is_taken = false;
    }

    /// `NatMain.refresh`.
    #[inline(always)]
    fn nat_main_refresh(&mut self) {
        if !(self.v.nat_main_meta_profile == 2_u8) {
            let timeout = self.world.timeout(self.v.nat_main_meta_profile as u128);
            match &self.applied {
                Applied::Stations { place, .. } => {
                    self.pass.set_timeout(&mut self.code.stations, *place, timeout)
                }
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
            Applied::Stations { place, .. } => {
                self.pass.restart(&mut self.code.stations, self.now, *place)
            }
            Applied::Upload { place, .. } => {
                self.pass.restart(&mut self.code.upload, self.now, *place)
            }
            Applied::Download { place, .. } => {
                self.pass.restart(&mut self.code.download, self.now, *place)
            }
            _ => {}
        }
    }

    /// `NatMain.to_external`.
    #[inline(always)]
    fn nat_main_to_external(&mut self) {
        if self.v.nat_main_meta_is_inside {
            self.v.nat_main_meta_external = self.v.nat_main_to_external_address;
            self.v.nat_main_meta_external_port = self.v.nat_main_to_external_port;
            self.v.nat_main_meta_is_learning = false;
        }
        if (self.v.nat_main_meta_external == self.v.nat_main_to_external_address)
            && (self.v.nat_main_meta_external_port == self.v.nat_main_to_external_port)
        {
            self.nat_main_refresh();
        }
    }

    /// `NatMain.learn`.
    #[inline(always)]
    fn nat_main_learn(&mut self) {
        if self.v.nat_main_meta_is_learning {
            let timeout = self.world.timeout(self.v.nat_main_meta_profile as u128);
            self.v.nat_main_learn_result = match &mut self.applied {
                Applied::Upload { key, place } => {
                    let added = self
                        .pass
                        .add(
                            &mut self.code.upload,
                            self.now,
                            *key,
                            UploadAction::ToExternal {
                                address: self.v.nat_main_meta_external,
                                port: self.v.nat_main_meta_external_port,
                            },
                            timeout,
                        );
                    *place = added.or(*place);
                    added.is_some()
                }
                _ => false,
            };
        } else {
            if self.v.nat_main_meta_is_inside {
                if (self.v.nat_main_meta_protocol == 6_u8)
                    && (!((self.v.nat_main_hdr_tcp.flags & 22_u8) == 2_u8))
                {
                    self.v.nat_main_meta_reason = 8_u8;
                } else {
                    if ((self.v.nat_main_meta_protocol == 1_u8)
                        && (!(self.v.nat_main_hdr_icmp.kind == 8_u8)))
                        && (!(self.v.nat_main_hdr_icmp.kind == 13_u8))
                    {
                        self.v.nat_main_meta_reason = 6_u8;
                    } else {
                        self.v.nat_main_meta_is_learning = true;
                        self.nat_main_first_port();
                    }
                }
            }
        }
    }

    /// `NatMain.to_internal`.
    #[inline(always)]
    fn nat_main_to_internal(&mut self) {
        if self.v.nat_main_meta_is_inside
            && ((!(self.v.nat_main_to_internal_address == self.v.nat_main_meta_internal))
                || (!(self.v.nat_main_to_internal_port
                    == self.v.nat_main_meta_internal_port)))
        {
            self.v.nat_main_meta_is_taken = true;
        } else {
            self.v.nat_main_meta_internal = self.v.nat_main_to_internal_address;
            self.v.nat_main_meta_internal_port = self.v.nat_main_to_internal_port;
            self.v.nat_main_meta_is_claimed = true;
            self.nat_main_refresh();
        }
    }

    /// `NatMain.learn_return`.
    #[inline(always)]
    fn nat_main_learn_return(&mut self) {
        if self.v.nat_main_meta_is_inside {
            let timeout = self.world.timeout(self.v.nat_main_meta_profile as u128);
            self.v.nat_main_learn_return_result = match &mut self.applied {
                Applied::Download { key, place } => {
                    let added = self
                        .pass
                        .add(
                            &mut self.code.download,
                            self.now,
                            *key,
                            DownloadAction::ToInternal {
                                address: self.v.nat_main_meta_internal,
                                port: self.v.nat_main_meta_internal_port,
                            },
                            timeout,
                        );
                    *place = added.or(*place);
                    added.is_some()
                }
                _ => false,
            };
        } else {
            self.v.nat_main_meta_reason = 6_u8;
        }
    }

    /// `NatMain.via`.
    #[inline(always)]
    fn nat_main_via(&mut self) {
        self.v.nat_main_meta_next_hop = self.v.nat_main_via_gateway;
        self.v.nat_main_meta_out_port = self.v.nat_main_via_port;
    }

    /// `NatMain.on_link`.
    #[inline(always)]
    fn nat_main_on_link(&mut self) {
        self.v.nat_main_meta_next_hop = self.v.nat_main_hdr_ipv4.destination;
        self.v.nat_main_meta_out_port = self.v.nat_main_on_link_port;
    }

    /// `NatMain.no_route`.
    #[inline(always)]
    fn nat_main_no_route(&mut self) {
        self.v.nat_main_meta_reason = 10_u8;
    }

    /// `NatMain.neighbor`.
    #[inline(always)]
    fn nat_main_neighbor(&mut self) {
        self.v.nat_main_hdr_ethernet.source = self.v.nat_main_neighbor_source;
        self.v.nat_main_hdr_ethernet.destination = self.v.nat_main_neighbor_destination;
        self.port = Some(self.v.nat_main_meta_out_port as u32);
    }

    /// `NatMain.no_neighbor`.
    #[inline(always)]
    fn nat_main_no_neighbor(&mut self) {
        self.v.nat_main_meta_reason = 11_u8;
    }

    /// `NatMain.classify`.
    #[inline(always)]
    fn nat_main_classify(&mut self) {
        self.v.nat_main_meta_protocol = self.v.nat_main_classify_protocol;
        self.v.nat_main_meta_profile = self.v.nat_main_classify_profile;
        if self.v.nat_main_meta_is_inside {
            self.v.nat_main_meta_internal = self.v.nat_main_hdr_ipv4.source;
            self.v.nat_main_meta_internal_port = self.v.nat_main_classify_near;
        } else {
            self.v.nat_main_meta_external = self.v.nat_main_hdr_ipv4.destination;
            self.v.nat_main_meta_external_port = self.v.nat_main_classify_far;
        }
    }

    /// The first half of `NatMain`, which waits for no large table.
    #[inline(always)]
    fn nat_main_first(&mut self) {
        self.v.nat_main_meta_reason = 0_u8;
        self.v.nat_main_meta_protocol = 0_u8;
        self.v.nat_main_meta_is_learning = false;
        self.v.nat_main_meta_is_taken = false;
        self.v.nat_main_meta_is_claimed = false;
        let (hit, action) = self.apply_interfaces();
        self.v.nat_main_tmp = hit;
        self.v.nat_main_tmp_2 = action as u32;
        if !(self.v.nat_main_istd_parser_error == 0_u32) {
            self.v.nat_main_meta_reason = 2_u8;
        }
        if ((self.v.nat_main_meta_reason == 0_u8) && self.v.nat_main_hdr_ipv4.valid)
            && (self.v.nat_main_hdr_ipv4.version_ihl == 69_u8)
        {
            self.v.sum_header_sum = 0;
            let part_0 = self.v.nat_main_hdr_ipv4.version_ihl;
            let part_1 = self.v.nat_main_hdr_ipv4.tos;
            let part_2 = self.v.nat_main_hdr_ipv4.total_length;
            let part_3 = self.v.nat_main_hdr_ipv4.identification;
            let part_4 = self.v.nat_main_hdr_ipv4.flags_offset;
            let part_5 = self.v.nat_main_hdr_ipv4.ttl;
            let part_6 = self.v.nat_main_hdr_ipv4.protocol;
            let part_7 = self.v.nat_main_hdr_ipv4.checksum;
            let part_8 = self.v.nat_main_hdr_ipv4.source;
            let part_9 = self.v.nat_main_hdr_ipv4.destination;
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
            self.v.nat_main_result = (!self.v.sum_header_sum as u128) as u16;
            if !(self.v.nat_main_result == 0_u16) {
                self.v.nat_main_meta_reason = 2_u8;
            }
        }
        if self.v.nat_main_meta_reason == 0_u8 {
            if (self.v.nat_main_hdr_ethernet.source & 0x10000000000_u64) == 0_u64 {
                self.v.nat_main_meta_station = self.v.nat_main_hdr_ethernet.source;
                self.v.nat_main_meta_is_sender = true;
                let (hit, action) = self.apply_stations();
                self.v.nat_main_tmp_3 = hit;
                self.v.nat_main_tmp_4 = action as u32;
            }
            if self.v.nat_main_hdr_arp.valid
                && (self.v.nat_main_hdr_arp.operation == 1_u16)
            {
                let (hit, action) = self.apply_addresses();
                self.v.nat_main_tmp_5 = hit;
                self.v.nat_main_tmp_6 = action as u32;
            } else {
                if self.v.nat_main_hdr_arp.valid {
                    self.nat_main_tell_controller();
                } else {
                    if !self.v.nat_main_meta_is_local {
                        self.v.nat_main_meta_station = self
                            .v
                            .nat_main_hdr_ethernet
                            .destination;
                        self.v.nat_main_meta_is_sender = false;
                        let (hit, action) = self.apply_stations();
                        self.v.nat_main_tmp_7 = hit;
                        self.v.nat_main_tmp_8 = action as u32;
                    } else {
                        if (self.v.nat_main_hdr_tcp.valid
                            || self.v.nat_main_hdr_udp.valid)
                            || self.v.nat_main_hdr_icmp.valid
                        {
                            if self.v.nat_main_hdr_tcp.valid {
                                if (self.v.nat_main_hdr_tcp.flags & 22_u8) == 2_u8 {
                                    self.v.nat_main_classify_protocol = 6_u8;
                                    self.v.nat_main_classify_near = self
                                        .v
                                        .nat_main_hdr_tcp
                                        .source;
                                    self.v.nat_main_classify_far = self
                                        .v
                                        .nat_main_hdr_tcp
                                        .destination;
                                    self.v.nat_main_classify_profile = 2_u8;
                                    self.nat_main_classify();
                                } else {
                                    self.v.nat_main_classify_protocol = 6_u8;
                                    self.v.nat_main_classify_near = self
                                        .v
                                        .nat_main_hdr_tcp
                                        .source;
                                    self.v.nat_main_classify_far = self
                                        .v
                                        .nat_main_hdr_tcp
                                        .destination;
                                    self.v.nat_main_classify_profile = 3_u8;
                                    self.nat_main_classify();
                                }
                            } else {
                                if self.v.nat_main_hdr_udp.valid {
                                    self.v.nat_main_classify_protocol = 17_u8;
                                    self.v.nat_main_classify_near = self
                                        .v
                                        .nat_main_hdr_udp
                                        .source;
                                    self.v.nat_main_classify_far = self
                                        .v
                                        .nat_main_hdr_udp
                                        .destination;
                                    self.v.nat_main_classify_profile = 0_u8;
                                    self.nat_main_classify();
                                } else {
                                    if (((self.v.nat_main_hdr_icmp.kind == 0_u8)
                                        || (self.v.nat_main_hdr_icmp.kind == 8_u8))
                                        || (self.v.nat_main_hdr_icmp.kind == 13_u8))
                                        || (self.v.nat_main_hdr_icmp.kind == 14_u8)
                                    {
                                        self.v.nat_main_classify_protocol = 1_u8;
                                        self.v.nat_main_classify_near = self
                                            .v
                                            .nat_main_hdr_icmp
                                            .identifier;
                                        self.v.nat_main_classify_far = self
                                            .v
                                            .nat_main_hdr_icmp
                                            .identifier;
                                        self.v.nat_main_classify_profile = 1_u8;
                                        self.nat_main_classify();
                                    } else {
                                        self.v.nat_main_meta_reason = 3_u8;
                                    }
                                }
                            }
                            if (self.v.nat_main_meta_reason == 0_u8)
                                && (self.v.nat_main_hdr_ipv4.ttl <= 1_u8)
                            {
                                self.v.nat_main_meta_reason = 9_u8;
                            }
                        } else {
                            self.v.nat_main_meta_reason = 3_u8;
                        }
                    }
                }
            }
        }
        if ((self.v.nat_main_meta_reason == 0_u8)
            && (!(self.v.nat_main_meta_protocol == 0_u8)))
            && self.v.nat_main_meta_is_inside
        {
            let (hit, action) = self.apply_subscribers();
            self.v.nat_main_tmp_9 = hit;
            self.v.nat_main_tmp_10 = action as u32;
            if self.v.nat_main_meta_reason == 0_u8 {
                let (hit, action) = self.apply_pool();
                self.v.nat_main_tmp_11 = hit;
                self.v.nat_main_tmp_12 = action as u32;
            }
        }
    }

    /// The second half of `NatMain`.
    #[inline(always)]
    fn nat_main(&mut self) -> Result<(), Stop> {
        if (self.v.nat_main_meta_reason == 0_u8)
            && (!(self.v.nat_main_meta_protocol == 0_u8))
        {
            if self.v.nat_main_meta_is_inside {
                let (hit, action, flow) = self
                    .apply_upload(
                        self.code.download.is_large() || self.code.next_hops.is_large(),
                    );
                self.v.nat_main_tmp_13 = hit;
                self.v.nat_main_tmp_14 = action as u32;
                flow?;
                if self.v.nat_main_meta_reason == 0_u8 {
                    let (hit, action, flow) = self
                        .apply_download(self.code.next_hops.is_large());
                    self.v.nat_main_tmp_15 = hit;
                    self.v.nat_main_tmp_16 = action as u32;
                    flow?;
                    if self.v.nat_main_meta_is_learning {
                        if self.v.nat_main_meta_is_taken {
                            self.nat_main_next_port();
                            let (hit, action, flow) = self
                                .apply_download(self.code.next_hops.is_large());
                            self.v.nat_main_tmp_17 = hit;
                            self.v.nat_main_tmp_18 = action as u32;
                            flow?;
                        }
                        if self.v.nat_main_meta_is_taken {
                            self.nat_main_next_port();
                            let (hit, action, flow) = self
                                .apply_download(self.code.next_hops.is_large());
                            self.v.nat_main_tmp_19 = hit;
                            self.v.nat_main_tmp_20 = action as u32;
                            flow?;
                        }
                        if self.v.nat_main_meta_is_taken {
                            self.nat_main_next_port();
                            let (hit, action, flow) = self
                                .apply_download(self.code.next_hops.is_large());
                            self.v.nat_main_tmp_21 = hit;
                            self.v.nat_main_tmp_22 = action as u32;
                            flow?;
                        }
                    }
                    if (!self.v.nat_main_meta_is_claimed)
                        && (!self.v.nat_main_meta_is_taken)
                    {
                        let (hit, action, flow) = self
                            .apply_download(self.code.next_hops.is_large());
                        self.v.nat_main_tmp_23 = hit;
                        self.v.nat_main_tmp_24 = action as u32;
                        flow?;
                    }
                    if self.v.nat_main_meta_is_claimed
                        && self.v.nat_main_meta_is_learning
                    {
                        let (hit, action, flow) = self
                            .apply_upload(self.code.next_hops.is_large());
                        self.v.nat_main_tmp_25 = hit;
                        self.v.nat_main_tmp_26 = action as u32;
                        flow?;
                        let (hit, action, flow) = self
                            .apply_upload(self.code.next_hops.is_large());
                        self.v.nat_main_tmp_27 = hit;
                        self.v.nat_main_tmp_28 = action as u32;
                        flow?;
                    }
                    if (!self.v.nat_main_meta_is_claimed)
                        || self.v.nat_main_meta_is_learning
                    {
                        self.v.nat_main_meta_reason = 7_u8;
                    }
                }
            } else {
                let (hit, action, flow) = self
                    .apply_download(
                        self.code.upload.is_large() || self.code.next_hops.is_large(),
                    );
                self.v.nat_main_tmp_29 = hit;
                self.v.nat_main_tmp_30 = action as u32;
                flow?;
                if self.v.nat_main_meta_reason == 0_u8 {
                    let (hit, action, flow) = self
                        .apply_upload(self.code.next_hops.is_large());
                    self.v.nat_main_tmp_31 = hit;
                    self.v.nat_main_tmp_32 = action as u32;
                    flow?;
                }
            }
        }
        self.pass.rest(self.code.next_hops.is_large())?;
        if (self.v.nat_main_meta_reason == 0_u8)
            && (!(self.v.nat_main_meta_protocol == 0_u8))
        {
            self.v.nat_main_translate_hdr_ethernet.valid = self
                .v
                .nat_main_hdr_ethernet
                .valid;
            self.v.nat_main_translate_hdr_ethernet.destination = self
                .v
                .nat_main_hdr_ethernet
                .destination;
            self.v.nat_main_translate_hdr_ethernet.source = self
                .v
                .nat_main_hdr_ethernet
                .source;
            self.v.nat_main_translate_hdr_ethernet.ethertype = self
                .v
                .nat_main_hdr_ethernet
                .ethertype;
            self.v.nat_main_translate_hdr_arp.valid = self.v.nat_main_hdr_arp.valid;
            self.v.nat_main_translate_hdr_arp.hardware = self
                .v
                .nat_main_hdr_arp
                .hardware;
            self.v.nat_main_translate_hdr_arp.protocol = self
                .v
                .nat_main_hdr_arp
                .protocol;
            self.v.nat_main_translate_hdr_arp.hardware_length = self
                .v
                .nat_main_hdr_arp
                .hardware_length;
            self.v.nat_main_translate_hdr_arp.protocol_length = self
                .v
                .nat_main_hdr_arp
                .protocol_length;
            self.v.nat_main_translate_hdr_arp.operation = self
                .v
                .nat_main_hdr_arp
                .operation;
            self.v.nat_main_translate_hdr_arp.sender_mac = self
                .v
                .nat_main_hdr_arp
                .sender_mac;
            self.v.nat_main_translate_hdr_arp.sender = self.v.nat_main_hdr_arp.sender;
            self.v.nat_main_translate_hdr_arp.target_mac = self
                .v
                .nat_main_hdr_arp
                .target_mac;
            self.v.nat_main_translate_hdr_arp.target = self.v.nat_main_hdr_arp.target;
            self.v.nat_main_translate_hdr_ipv4.valid = self.v.nat_main_hdr_ipv4.valid;
            self.v.nat_main_translate_hdr_ipv4.version_ihl = self
                .v
                .nat_main_hdr_ipv4
                .version_ihl;
            self.v.nat_main_translate_hdr_ipv4.tos = self.v.nat_main_hdr_ipv4.tos;
            self.v.nat_main_translate_hdr_ipv4.total_length = self
                .v
                .nat_main_hdr_ipv4
                .total_length;
            self.v.nat_main_translate_hdr_ipv4.identification = self
                .v
                .nat_main_hdr_ipv4
                .identification;
            self.v.nat_main_translate_hdr_ipv4.flags_offset = self
                .v
                .nat_main_hdr_ipv4
                .flags_offset;
            self.v.nat_main_translate_hdr_ipv4.ttl = self.v.nat_main_hdr_ipv4.ttl;
            self.v.nat_main_translate_hdr_ipv4.protocol = self
                .v
                .nat_main_hdr_ipv4
                .protocol;
            self.v.nat_main_translate_hdr_ipv4.checksum = self
                .v
                .nat_main_hdr_ipv4
                .checksum;
            self.v.nat_main_translate_hdr_ipv4.source = self.v.nat_main_hdr_ipv4.source;
            self.v.nat_main_translate_hdr_ipv4.destination = self
                .v
                .nat_main_hdr_ipv4
                .destination;
            self.v.nat_main_translate_hdr_tcp.valid = self.v.nat_main_hdr_tcp.valid;
            self.v.nat_main_translate_hdr_tcp.source = self.v.nat_main_hdr_tcp.source;
            self.v.nat_main_translate_hdr_tcp.destination = self
                .v
                .nat_main_hdr_tcp
                .destination;
            self.v.nat_main_translate_hdr_tcp.sequence = self
                .v
                .nat_main_hdr_tcp
                .sequence;
            self.v.nat_main_translate_hdr_tcp.acknowledgement = self
                .v
                .nat_main_hdr_tcp
                .acknowledgement;
            self.v.nat_main_translate_hdr_tcp.data_offset = self
                .v
                .nat_main_hdr_tcp
                .data_offset;
            self.v.nat_main_translate_hdr_tcp.flags = self.v.nat_main_hdr_tcp.flags;
            self.v.nat_main_translate_hdr_tcp.window = self.v.nat_main_hdr_tcp.window;
            self.v.nat_main_translate_hdr_tcp.checksum = self
                .v
                .nat_main_hdr_tcp
                .checksum;
            self.v.nat_main_translate_hdr_tcp.urgent = self.v.nat_main_hdr_tcp.urgent;
            self.v.nat_main_translate_hdr_udp.valid = self.v.nat_main_hdr_udp.valid;
            self.v.nat_main_translate_hdr_udp.source = self.v.nat_main_hdr_udp.source;
            self.v.nat_main_translate_hdr_udp.destination = self
                .v
                .nat_main_hdr_udp
                .destination;
            self.v.nat_main_translate_hdr_udp.length = self.v.nat_main_hdr_udp.length;
            self.v.nat_main_translate_hdr_udp.checksum = self
                .v
                .nat_main_hdr_udp
                .checksum;
            self.v.nat_main_translate_hdr_icmp.valid = self.v.nat_main_hdr_icmp.valid;
            self.v.nat_main_translate_hdr_icmp.kind = self.v.nat_main_hdr_icmp.kind;
            self.v.nat_main_translate_hdr_icmp.code = self.v.nat_main_hdr_icmp.code;
            self.v.nat_main_translate_hdr_icmp.checksum = self
                .v
                .nat_main_hdr_icmp
                .checksum;
            self.v.nat_main_translate_hdr_icmp.identifier = self
                .v
                .nat_main_hdr_icmp
                .identifier;
            self.v.nat_main_translate_hdr_icmp.sequence = self
                .v
                .nat_main_hdr_icmp
                .sequence;
            self.v.nat_main_translate_meta_is_inside = self.v.nat_main_meta_is_inside;
            self.v.nat_main_translate_meta_is_local = self.v.nat_main_meta_is_local;
            self.v.nat_main_translate_meta_is_learning = self
                .v
                .nat_main_meta_is_learning;
            self.v.nat_main_translate_meta_is_taken = self.v.nat_main_meta_is_taken;
            self.v.nat_main_translate_meta_is_claimed = self.v.nat_main_meta_is_claimed;
            self.v.nat_main_translate_meta_is_sender = self.v.nat_main_meta_is_sender;
            self.v.nat_main_translate_meta_station = self.v.nat_main_meta_station;
            self.v.nat_main_translate_meta_fragment = self.v.nat_main_meta_fragment;
            self.v.nat_main_translate_meta_reason = self.v.nat_main_meta_reason;
            self.v.nat_main_translate_meta_protocol = self.v.nat_main_meta_protocol;
            self.v.nat_main_translate_meta_internal = self.v.nat_main_meta_internal;
            self.v.nat_main_translate_meta_internal_port = self
                .v
                .nat_main_meta_internal_port;
            self.v.nat_main_translate_meta_external = self.v.nat_main_meta_external;
            self.v.nat_main_translate_meta_external_port = self
                .v
                .nat_main_meta_external_port;
            self.v.nat_main_translate_meta_first_port = self.v.nat_main_meta_first_port;
            self.v.nat_main_translate_meta_last_port = self.v.nat_main_meta_last_port;
            self.v.nat_main_translate_meta_pool_index = self.v.nat_main_meta_pool_index;
            self.v.nat_main_translate_meta_profile = self.v.nat_main_meta_profile;
            self.v.nat_main_translate_meta_next_hop = self.v.nat_main_meta_next_hop;
            self.v.nat_main_translate_meta_out_port = self.v.nat_main_meta_out_port;
            self.nat_main_translate();
            self.v.nat_main_hdr_ethernet.valid = self
                .v
                .nat_main_translate_hdr_ethernet
                .valid;
            self.v.nat_main_hdr_ethernet.destination = self
                .v
                .nat_main_translate_hdr_ethernet
                .destination;
            self.v.nat_main_hdr_ethernet.source = self
                .v
                .nat_main_translate_hdr_ethernet
                .source;
            self.v.nat_main_hdr_ethernet.ethertype = self
                .v
                .nat_main_translate_hdr_ethernet
                .ethertype;
            self.v.nat_main_hdr_arp.valid = self.v.nat_main_translate_hdr_arp.valid;
            self.v.nat_main_hdr_arp.hardware = self
                .v
                .nat_main_translate_hdr_arp
                .hardware;
            self.v.nat_main_hdr_arp.protocol = self
                .v
                .nat_main_translate_hdr_arp
                .protocol;
            self.v.nat_main_hdr_arp.hardware_length = self
                .v
                .nat_main_translate_hdr_arp
                .hardware_length;
            self.v.nat_main_hdr_arp.protocol_length = self
                .v
                .nat_main_translate_hdr_arp
                .protocol_length;
            self.v.nat_main_hdr_arp.operation = self
                .v
                .nat_main_translate_hdr_arp
                .operation;
            self.v.nat_main_hdr_arp.sender_mac = self
                .v
                .nat_main_translate_hdr_arp
                .sender_mac;
            self.v.nat_main_hdr_arp.sender = self.v.nat_main_translate_hdr_arp.sender;
            self.v.nat_main_hdr_arp.target_mac = self
                .v
                .nat_main_translate_hdr_arp
                .target_mac;
            self.v.nat_main_hdr_arp.target = self.v.nat_main_translate_hdr_arp.target;
            self.v.nat_main_hdr_ipv4.valid = self.v.nat_main_translate_hdr_ipv4.valid;
            self.v.nat_main_hdr_ipv4.version_ihl = self
                .v
                .nat_main_translate_hdr_ipv4
                .version_ihl;
            self.v.nat_main_hdr_ipv4.tos = self.v.nat_main_translate_hdr_ipv4.tos;
            self.v.nat_main_hdr_ipv4.total_length = self
                .v
                .nat_main_translate_hdr_ipv4
                .total_length;
            self.v.nat_main_hdr_ipv4.identification = self
                .v
                .nat_main_translate_hdr_ipv4
                .identification;
            self.v.nat_main_hdr_ipv4.flags_offset = self
                .v
                .nat_main_translate_hdr_ipv4
                .flags_offset;
            self.v.nat_main_hdr_ipv4.ttl = self.v.nat_main_translate_hdr_ipv4.ttl;
            self.v.nat_main_hdr_ipv4.protocol = self
                .v
                .nat_main_translate_hdr_ipv4
                .protocol;
            self.v.nat_main_hdr_ipv4.checksum = self
                .v
                .nat_main_translate_hdr_ipv4
                .checksum;
            self.v.nat_main_hdr_ipv4.source = self.v.nat_main_translate_hdr_ipv4.source;
            self.v.nat_main_hdr_ipv4.destination = self
                .v
                .nat_main_translate_hdr_ipv4
                .destination;
            self.v.nat_main_hdr_tcp.valid = self.v.nat_main_translate_hdr_tcp.valid;
            self.v.nat_main_hdr_tcp.source = self.v.nat_main_translate_hdr_tcp.source;
            self.v.nat_main_hdr_tcp.destination = self
                .v
                .nat_main_translate_hdr_tcp
                .destination;
            self.v.nat_main_hdr_tcp.sequence = self
                .v
                .nat_main_translate_hdr_tcp
                .sequence;
            self.v.nat_main_hdr_tcp.acknowledgement = self
                .v
                .nat_main_translate_hdr_tcp
                .acknowledgement;
            self.v.nat_main_hdr_tcp.data_offset = self
                .v
                .nat_main_translate_hdr_tcp
                .data_offset;
            self.v.nat_main_hdr_tcp.flags = self.v.nat_main_translate_hdr_tcp.flags;
            self.v.nat_main_hdr_tcp.window = self.v.nat_main_translate_hdr_tcp.window;
            self.v.nat_main_hdr_tcp.checksum = self
                .v
                .nat_main_translate_hdr_tcp
                .checksum;
            self.v.nat_main_hdr_tcp.urgent = self.v.nat_main_translate_hdr_tcp.urgent;
            self.v.nat_main_hdr_udp.valid = self.v.nat_main_translate_hdr_udp.valid;
            self.v.nat_main_hdr_udp.source = self.v.nat_main_translate_hdr_udp.source;
            self.v.nat_main_hdr_udp.destination = self
                .v
                .nat_main_translate_hdr_udp
                .destination;
            self.v.nat_main_hdr_udp.length = self.v.nat_main_translate_hdr_udp.length;
            self.v.nat_main_hdr_udp.checksum = self
                .v
                .nat_main_translate_hdr_udp
                .checksum;
            self.v.nat_main_hdr_icmp.valid = self.v.nat_main_translate_hdr_icmp.valid;
            self.v.nat_main_hdr_icmp.kind = self.v.nat_main_translate_hdr_icmp.kind;
            self.v.nat_main_hdr_icmp.code = self.v.nat_main_translate_hdr_icmp.code;
            self.v.nat_main_hdr_icmp.checksum = self
                .v
                .nat_main_translate_hdr_icmp
                .checksum;
            self.v.nat_main_hdr_icmp.identifier = self
                .v
                .nat_main_translate_hdr_icmp
                .identifier;
            self.v.nat_main_hdr_icmp.sequence = self
                .v
                .nat_main_translate_hdr_icmp
                .sequence;
            self.v.nat_main_meta_is_inside = self.v.nat_main_translate_meta_is_inside;
            self.v.nat_main_meta_is_local = self.v.nat_main_translate_meta_is_local;
            self.v.nat_main_meta_is_learning = self
                .v
                .nat_main_translate_meta_is_learning;
            self.v.nat_main_meta_is_taken = self.v.nat_main_translate_meta_is_taken;
            self.v.nat_main_meta_is_claimed = self.v.nat_main_translate_meta_is_claimed;
            self.v.nat_main_meta_is_sender = self.v.nat_main_translate_meta_is_sender;
            self.v.nat_main_meta_station = self.v.nat_main_translate_meta_station;
            self.v.nat_main_meta_fragment = self.v.nat_main_translate_meta_fragment;
            self.v.nat_main_meta_reason = self.v.nat_main_translate_meta_reason;
            self.v.nat_main_meta_protocol = self.v.nat_main_translate_meta_protocol;
            self.v.nat_main_meta_internal = self.v.nat_main_translate_meta_internal;
            self.v.nat_main_meta_internal_port = self
                .v
                .nat_main_translate_meta_internal_port;
            self.v.nat_main_meta_external = self.v.nat_main_translate_meta_external;
            self.v.nat_main_meta_external_port = self
                .v
                .nat_main_translate_meta_external_port;
            self.v.nat_main_meta_first_port = self.v.nat_main_translate_meta_first_port;
            self.v.nat_main_meta_last_port = self.v.nat_main_translate_meta_last_port;
            self.v.nat_main_meta_pool_index = self.v.nat_main_translate_meta_pool_index;
            self.v.nat_main_meta_profile = self.v.nat_main_translate_meta_profile;
            self.v.nat_main_meta_next_hop = self.v.nat_main_translate_meta_next_hop;
            self.v.nat_main_meta_out_port = self.v.nat_main_translate_meta_out_port;
            let (hit, action) = self.apply_routes();
            self.v.nat_main_tmp_33 = hit;
            self.v.nat_main_tmp_34 = action as u32;
            if self.v.nat_main_meta_reason == 0_u8 {
                let (hit, action, flow) = self.apply_next_hops(false);
                self.v.nat_main_tmp_35 = hit;
                self.v.nat_main_tmp_36 = action as u32;
                flow?;
            }
        }
        self.pass.rest(false)?;
        if !(self.v.nat_main_meta_reason == 0_u8) {
            self.pass
                .count(
                    &mut self.code.drops,
                    self.v.nat_main_meta_reason as u128,
                    0x0_u128,
                );
            self.port = None;
        }
        Ok(())
    }

    /// `NatDeparser`.
    #[inline(always)]
    fn nat_deparser(&mut self) {
        if self.v.nat_deparser_hdr_ethernet.valid {
            self.head.extend_from_slice(&self.v.nat_deparser_hdr_ethernet.bytes());
        }
        if self.v.nat_deparser_hdr_arp.valid {
            self.head.extend_from_slice(&self.v.nat_deparser_hdr_arp.bytes());
        }
        if self.v.nat_deparser_hdr_ipv4.valid {
            self.head.extend_from_slice(&self.v.nat_deparser_hdr_ipv4.bytes());
        }
        if self.v.nat_deparser_hdr_tcp.valid {
            self.head.extend_from_slice(&self.v.nat_deparser_hdr_tcp.bytes());
        }
        if self.v.nat_deparser_hdr_udp.valid {
            self.head.extend_from_slice(&self.v.nat_deparser_hdr_udp.bytes());
        }
        if self.v.nat_deparser_hdr_icmp.valid {
            self.head.extend_from_slice(&self.v.nat_deparser_hdr_icmp.bytes());
        }
    }
}
