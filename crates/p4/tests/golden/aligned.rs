//! The program `aligned`, made by `natgate p4 compile --emit rust`: changes belong into the program.

use natgate_p4::rt::*;

/// Headers with these fields.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    valid: bool,
    version: u8,
    flag: u8,
    count: u8,
    address: u64,
    offset: u32,
}

impl Head {
    #[inline(always)]
    fn read(bytes: [u8; 12]) -> Self {
        Self {
            valid: true,
            version: bytes[0],
            flag: bytes[1],
            count: bytes[2],
            address: be64(&bytes[3..9]),
            offset: be64(&bytes[9..12]) as u32,
        }
    }

    #[inline(always)]
    fn bytes(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[0] = self.version;
        bytes[1] = self.flag;
        bytes[2] = self.count;
        bytes[3..9].copy_from_slice(&self.address.to_be_bytes()[2..]);
        bytes[9..12].copy_from_slice(&self.offset.to_be_bytes()[1..]);
        bytes
    }
}

/// Headers with these fields.
#[derive(Clone, Copy, Debug, Default)]
struct Label {
    valid: bool,
    label: u32,
    is_last: u8,
}

impl Label {
    #[inline(always)]
    fn read(bytes: [u8; 4]) -> Self {
        Self {
            valid: true,
            label: be64(&bytes[0..3]) as u32,
            is_last: bytes[3],
        }
    }

    #[inline(always)]
    fn bytes(&self) -> [u8; 4] {
        let mut bytes = [0; 4];
        bytes[0..3].copy_from_slice(&self.label.to_be_bytes()[1..]);
        bytes[3] = self.is_last;
        bytes
    }
}

/// Headers with these fields.
#[derive(Clone, Copy, Debug, Default)]
struct Words {
    valid: bool,
    a: u16,
    b: u16,
    c: u32,
    long: u64,
}

impl Words {
    #[inline(always)]
    fn read(bytes: [u8; 16]) -> Self {
        Self {
            valid: true,
            a: u16::from_be_bytes([bytes[0], bytes[1]]),
            b: u16::from_be_bytes([bytes[2], bytes[3]]),
            c: u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            long: u64::from_be_bytes([
                bytes[8],
                bytes[9],
                bytes[10],
                bytes[11],
                bytes[12],
                bytes[13],
                bytes[14],
                bytes[15],
            ]),
        }
    }

    #[inline(always)]
    fn bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[0..2].copy_from_slice(&self.a.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.b.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.c.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.long.to_be_bytes());
        bytes
    }
}

/// What entries of `Main.learning` do.
#[derive(Clone, Copy, Debug)]
enum LearningAction {
    Known { note: u32, marks: bool },
    Learn,
}

impl Action for LearningAction {
    fn of(number: usize, args: &[u128]) -> Self {
        match number {
            0 => {
                LearningAction::Known {
                    note: args[0] as u32,
                    marks: args[1] != 0,
                }
            }
            _ => LearningAction::Learn,
        }
    }

    fn number(&self) -> usize {
        match self {
            Self::Known { .. } => 0,
            Self::Learn { .. } => 1,
        }
    }

    fn args(&self) -> Vec<u128> {
        match self {
            Self::Known { note, marks } => vec![* note as u128, * marks as u128],
            Self::Learn {} => vec![],
        }
    }
}

/// What entries of `Main.prefixes` do.
#[derive(Clone, Copy, Debug)]
enum PrefixesAction {
    Set { x: u32 },
    Leave,
    NoAction,
}

impl Action for PrefixesAction {
    fn of(number: usize, args: &[u128]) -> Self {
        match number {
            0 => {
                PrefixesAction::Set {
                    x: args[0] as u32,
                }
            }
            1 => PrefixesAction::Leave,
            _ => PrefixesAction::NoAction,
        }
    }

    fn number(&self) -> usize {
        match self {
            Self::Set { .. } => 0,
            Self::Leave { .. } => 1,
            Self::NoAction { .. } => 2,
        }
    }

    fn args(&self) -> Vec<u128> {
        match self {
            Self::Set { x } => vec![* x as u128],
            Self::Leave {} => vec![],
            Self::NoAction {} => vec![],
        }
    }
}

/// What entries of `Main.masks` do.
#[derive(Clone, Copy, Debug)]
enum MasksAction {
    Set { x: u32 },
    To { port: u32 },
    NoAction,
}

impl Action for MasksAction {
    fn of(number: usize, args: &[u128]) -> Self {
        match number {
            0 => {
                MasksAction::Set {
                    x: args[0] as u32,
                }
            }
            1 => {
                MasksAction::To {
                    port: args[0] as u32,
                }
            }
            _ => MasksAction::NoAction,
        }
    }

    fn number(&self) -> usize {
        match self {
            Self::Set { .. } => 0,
            Self::To { .. } => 1,
            Self::NoAction { .. } => 2,
        }
    }

    fn args(&self) -> Vec<u128> {
        match self {
            Self::Set { x } => vec![* x as u128],
            Self::To { port } => vec![* port as u128],
            Self::NoAction {} => vec![],
        }
    }
}

/// What entries of `Main.long` do.
#[derive(Clone, Copy, Debug)]
enum LongAction {
    Set { x: u32 },
    Five { a: u8, b: u16, c: u32, d: u32, e: u64 },
    NoAction,
}

impl Action for LongAction {
    fn of(number: usize, args: &[u128]) -> Self {
        match number {
            0 => {
                LongAction::Set {
                    x: args[0] as u32,
                }
            }
            1 => {
                LongAction::Five {
                    a: args[0] as u8,
                    b: args[1] as u16,
                    c: args[2] as u32,
                    d: args[3] as u32,
                    e: args[4] as u64,
                }
            }
            _ => LongAction::NoAction,
        }
    }

    fn number(&self) -> usize {
        match self {
            Self::Set { .. } => 0,
            Self::Five { .. } => 1,
            Self::NoAction { .. } => 2,
        }
    }

    fn args(&self) -> Vec<u128> {
        match self {
            Self::Set { x } => vec![* x as u128],
            Self::Five { a, b, c, d, e } => {
                vec![* a as u128, * b as u128, * c as u128, * d as u128, * e as u128]
            }
            Self::NoAction {} => vec![],
        }
    }
}

/// Where the parser `P` is.
#[derive(Clone, Copy, Debug)]
enum ParsePState {
    Start,
    Labels,
    Skipped,
    BytesOf,
    Plain,
}

/// Headers, metadata and variables of a packet.
#[derive(Clone, Copy, Debug, Default)]
struct Slots {
    folded_return: u16,
    folded_x: u32,
    next_return: u32,
    next_count: u8,
    p_hdr_head: Head,
    p_hdr_label: Label,
    p_hdr_words: Words,
    p_hdr_other: Words,
    p_meta_note: u32,
    p_meta_seen: u8,
    p_meta_is_marked: bool,
    p_meta_pair_left: u16,
    p_meta_pair_right: bool,
    p_meta_version: u8,
    p_meta_a: u16,
    p_meta_b: u16,
    p_meta_flag: u8,
    p_meta_count: u8,
    p_istd_direction: u32,
    p_istd_pass: u8,
    p_istd_loopedback: bool,
    p_istd_input_port: u32,
    p_words_words: Words,
    p_words_note: u32,
    p_ahead: u32,
    p_next: u32,
    pre_hdr_head: Head,
    pre_hdr_label: Label,
    pre_hdr_words: Words,
    pre_hdr_other: Words,
    pre_meta_note: u32,
    pre_meta_seen: u8,
    pre_meta_is_marked: bool,
    pre_meta_pair_left: u16,
    pre_meta_pair_right: bool,
    pre_meta_version: u8,
    pre_meta_a: u16,
    pre_meta_b: u16,
    pre_meta_flag: u8,
    pre_meta_count: u8,
    pre_istd_input_port: u32,
    pre_istd_parser_error: u32,
    pre_istd_direction: u32,
    pre_istd_pass: u8,
    pre_istd_loopedback: bool,
    pre_ostd_decrypt: bool,
    pre_ostd_said: u32,
    pre_ostd_decrypt_start_offset: u16,
    main_hdr_head: Head,
    main_hdr_label: Label,
    main_hdr_words: Words,
    main_hdr_other: Words,
    main_meta_note: u32,
    main_meta_seen: u8,
    main_meta_is_marked: bool,
    main_meta_pair_left: u16,
    main_meta_pair_right: bool,
    main_meta_version: u8,
    main_meta_a: u16,
    main_meta_b: u16,
    main_meta_flag: u8,
    main_meta_count: u8,
    main_istd_direction: u32,
    main_istd_pass: u8,
    main_istd_loopedback: bool,
    main_istd_timestamp: u64,
    main_istd_parser_error: u32,
    main_istd_class_of_service: u8,
    main_istd_input_port: u32,
    main_ostd_class_of_service: u8,
    main_arithmetic_words: Words,
    main_arithmetic_delta: u8,
    main_arithmetic_a: u16,
    main_arithmetic_b: u16,
    main_arithmetic_odd: u16,
    main_arithmetic_small: u8,
    main_arithmetic_is_odd: bool,
    main_arithmetic_tmp: u16,
    main_known_note: u32,
    main_known_marks: bool,
    main_learn_result: bool,
    main_learn_added: bool,
    main_set_x: u32,
    main_to_port: u32,
    main_five_a: u8,
    main_five_b: u16,
    main_five_c: u32,
    main_five_d: u32,
    main_five_e: u64,
    main_tmp: bool,
    main_tmp_2: u32,
    main_tmp_3: bool,
    main_tmp_4: u32,
    main_tmp_5: u32,
    main_tmp_6: bool,
    main_tmp_7: u32,
    main_tmp_8: bool,
    main_tmp_9: u32,
    main_result: u32,
    main_colour: u32,
    main_result_2: u32,
    main_result_3: u32,
    main_number: u32,
    main_result_left: u16,
    main_result_right: bool,
    main_pair_left: u16,
    main_pair_right: bool,
    main_result_4: u16,
    main_state: u16,
    main_result_5: u16,
    main_result_6: u16,
    main_result_7: u16,
    dep_hdr_head: Head,
    dep_hdr_label: Label,
    dep_hdr_words: Words,
    dep_hdr_other: Words,
    dep_meta_note: u32,
    dep_meta_seen: u8,
    dep_meta_is_marked: bool,
    dep_meta_pair_left: u16,
    dep_meta_pair_right: bool,
    dep_meta_version: u8,
    dep_meta_a: u16,
    dep_meta_b: u16,
    dep_meta_flag: u8,
    dep_meta_count: u8,
    dep_ostd_class_of_service: u8,
    sum_sum: u16,
}

/// The table that is being applied, with the key and where its entry is.
#[derive(Clone, Copy, Debug)]
enum Applied {
    Nothing,
    Learning { key: u64, place: Place },
}

/// The program's tables, and what its objects remember.
#[derive(Debug)]
pub struct Aligned {
    learning: Exact<u64, LearningAction>,
    prefixes: Lpm<u64, PrefixesAction>,
    masks: Scan<MasksAction>,
    long: Exact<[u128; 3], LongAction>,
    seen: Counters,
    wide: Counters,
    rate: Meters,
    packets: Meters,
    numbers: Registers<u32>,
    pairs_0_: Registers<u16>,
    pairs_1_: Registers<bool>,
    chance: Random,
}

impl Aligned {
    /// Without entries; `seed` is that of its random numbers.
    pub fn new(seed: u64) -> Self {
        Self {
            learning: Exact::new(&[16, 8], 4, true, LearningAction::Learn),
            prefixes: Lpm::new(&[16, 1], 6, PrefixesAction::NoAction),
            masks: Scan::new(Some(1), 8, MasksAction::NoAction),
            long: Exact::new(&[64, 48, 32], 3, false, LongAction::Set { x: 1_u32 }),
            seen: Counters::new(100, 0xffff_u64),
            wide: Counters::new(100, 0xffffffffffffffff_u64),
            rate: Meters::new(8, true),
            packets: Meters::new(8, false),
            numbers: Registers::new(16, 7_u32),
            pairs_0_: Registers::new(64, 5_u16),
            pairs_1_: Registers::new(64, true),
            chance: Random::new(seed),
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

impl Execute for Aligned {
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

    fn table(&self, number: usize) -> &dyn Store {
        match number {
            0 => &self.learning,
            1 => &self.prefixes,
            2 => &self.masks,
            3 => &self.long,
            _ => panic!("there is no table {number}"),
        }
    }

    fn table_mut(&mut self, number: usize) -> &mut dyn Store {
        match number {
            0 => &mut self.learning,
            1 => &mut self.prefixes,
            2 => &mut self.masks,
            3 => &mut self.long,
            _ => panic!("there is no table {number}"),
        }
    }

    fn counter(&self, object: usize, index: u32) -> (u64, u64) {
        match object {
            0 => self.seen.read(index),
            1 => self.wide.read(index),
            _ => (0, 0),
        }
    }

    fn set_counter(&mut self, object: usize, index: u32, value: (u64, u64)) -> bool {
        match object {
            0 => self.seen.set(index, value),
            1 => self.wide.set(index, value),
            _ => false,
        }
    }

    fn meter(&self, object: usize, index: u32) -> Option<Rates> {
        match object {
            2 => self.rate.read(index),
            3 => self.packets.read(index),
            _ => None,
        }
    }

    fn set_meter(&mut self, object: usize, index: u32, meter: Option<Meter>) -> bool {
        match object {
            2 => self.rate.set(index, meter),
            3 => self.packets.set(index, meter),
            _ => false,
        }
    }

    fn clear(&mut self) {
        self.seen.clear();
        self.wide.clear();
        self.rate.clear();
        self.packets.clear();
        self.numbers.clear();
        self.pairs_0_.clear();
        self.pairs_1_.clear();
    }
}

/// A packet on its way.
struct Run<'r, P> {
    code: &'r mut Aligned,
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
        self.v.p_istd_input_port = port as u32;
        self.v.pre_istd_input_port = port as u32;
        self.v.main_istd_input_port = port as u32;
        self.v.main_istd_timestamp = self.now as u64;
        if let Err(Stop::Reject(error)) = self.parse_p() {
            self.v.pre_istd_parser_error = error as u32;
            self.v.main_istd_parser_error = error as u32;
        }
        self.v.pre_hdr_head = self.v.p_hdr_head;
        self.v.pre_hdr_label = self.v.p_hdr_label;
        self.v.pre_hdr_words = self.v.p_hdr_words;
        self.v.pre_hdr_other = self.v.p_hdr_other;
        self.v.pre_meta_note = self.v.p_meta_note;
        self.v.pre_meta_seen = self.v.p_meta_seen;
        self.v.pre_meta_is_marked = self.v.p_meta_is_marked;
        self.v.pre_meta_pair_left = self.v.p_meta_pair_left;
        self.v.pre_meta_pair_right = self.v.p_meta_pair_right;
        self.v.pre_meta_version = self.v.p_meta_version;
        self.v.pre_meta_a = self.v.p_meta_a;
        self.v.pre_meta_b = self.v.p_meta_b;
        self.v.pre_meta_flag = self.v.p_meta_flag;
        self.v.pre_meta_count = self.v.p_meta_count;
        self.pre();
        self.v.main_hdr_head = self.v.p_hdr_head;
        self.v.main_hdr_label = self.v.p_hdr_label;
        self.v.main_hdr_words = self.v.p_hdr_words;
        self.v.main_hdr_other = self.v.p_hdr_other;
        self.v.main_meta_note = self.v.pre_meta_note;
        self.v.main_meta_seen = self.v.pre_meta_seen;
        self.v.main_meta_is_marked = self.v.pre_meta_is_marked;
        self.v.main_meta_pair_left = self.v.pre_meta_pair_left;
        self.v.main_meta_pair_right = self.v.pre_meta_pair_right;
        self.v.main_meta_version = self.v.pre_meta_version;
        self.v.main_meta_a = self.v.pre_meta_a;
        self.v.main_meta_b = self.v.pre_meta_b;
        self.v.main_meta_flag = self.v.pre_meta_flag;
        self.v.main_meta_count = self.v.pre_meta_count;
    }

    /// The rest; on the way ahead, whether there may be more to fetch.
    #[inline(always)]
    fn finish(&mut self) -> bool {
        if let Err(Stop::Ahead { more }) = self.main() {
            return more;
        }
        if P::IS_AHEAD {
            return false;
        }
        self.v.dep_hdr_head = self.v.main_hdr_head;
        self.v.dep_hdr_label = self.v.main_hdr_label;
        self.v.dep_hdr_words = self.v.main_hdr_words;
        self.v.dep_hdr_other = self.v.main_hdr_other;
        self.v.dep_meta_note = self.v.main_meta_note;
        self.v.dep_meta_seen = self.v.main_meta_seen;
        self.v.dep_meta_is_marked = self.v.main_meta_is_marked;
        self.v.dep_meta_pair_left = self.v.main_meta_pair_left;
        self.v.dep_meta_pair_right = self.v.main_meta_pair_right;
        self.v.dep_meta_version = self.v.main_meta_version;
        self.v.dep_meta_a = self.v.main_meta_a;
        self.v.dep_meta_b = self.v.main_meta_b;
        self.v.dep_meta_flag = self.v.main_meta_flag;
        self.v.dep_meta_count = self.v.main_meta_count;
        self.dep();
        false
    }

    /// The parser `P.words`.
    #[inline(always)]
    fn parse_p_words(&mut self) -> Result<(), Stop> {
        self.parse_p_words_start()
    }

    /// Its state `start`.
    #[inline(always)]
    fn parse_p_words_start(&mut self) -> Result<(), Stop> {
        self.input.step()?;
        self.v.p_words_words = Words::read(self.input.extract()?);
        self.v.p_words_note = self
            .v
            .p_words_note
            .wrapping_add((self.v.p_words_words.a as u32));
        let key_0 = self.v.p_words_words.b;
        if key_0 == 0xdead_u16 { Err(Stop::Reject(0)) } else { Ok(()) }
    }

    /// The parser `P`.
    #[inline(always)]
    fn parse_p(&mut self) -> Result<(), Stop> {
        let mut state = ParsePState::Start;
        loop {
            self.input.step()?;
            state = match state {
                ParsePState::Start => {
                    self.v.p_hdr_head = Head::read(self.input.extract()?);
                    if !(!(self.v.p_hdr_head.version == 9_u8)) {
                        return Err(Stop::Reject(7_u32 as u32));
                    }
                    self.v.p_meta_seen = 0_u8;
                    let key_0 = self.v.p_hdr_head.flag;
                    let key_1 = self.v.p_hdr_head.count;
                    if key_0 == 1_u8 {
                        ParsePState::Labels
                    } else if key_1 & 3_u8 == 1_u8 {
                        ParsePState::Skipped
                    } else if key_0 == 0_u8 && key_1 == 0_u8 {
                        ParsePState::Plain
                    } else if key_0 == 0_u8 && key_1 == 2_u8 {
                        ParsePState::BytesOf
                    } else {
                        return Err(Stop::Reject(2))
                    }
                }
                ParsePState::Labels => {
                    self.v.p_hdr_label = Label::read(self.input.extract()?);
                    self.v.p_meta_seen = self.v.p_meta_seen.wrapping_add(1_u8);
                    let key_0 = self.v.p_hdr_label.is_last;
                    if key_0 == 0_u8 {
                        ParsePState::Labels
                    } else if key_0 & 0x81_u8 == 1_u8 {
                        ParsePState::Plain
                    } else {
                        return Err(Stop::Reject(2))
                    }
                }
                ParsePState::Skipped => {
                    self.input.advance(0x18_u128)?;
                    ParsePState::Plain
                }
                ParsePState::BytesOf => {
                    let bytes = self.input.peek::<3>(24)?;
                    self.v.p_ahead = be64(&bytes[0..3]) as u32;
                    self.v.p_next = self.v.p_ahead;
                    self.v.p_meta_note = self.v.p_next;
                    ParsePState::Plain
                }
                ParsePState::Plain => {
                    self.v.p_words_words.valid = false;
                    self.v.p_words_words.a = 0_u16;
                    self.v.p_words_words.b = 0_u16;
                    self.v.p_words_words.c = 0_u32;
                    self.v.p_words_words.long = 0_u64;
                    self.v.p_words_note = self.v.p_meta_note;
                    self.parse_p_words()?;
                    self.v.p_hdr_words.valid = self.v.p_words_words.valid;
                    self.v.p_hdr_words.a = self.v.p_words_words.a;
                    self.v.p_hdr_words.b = self.v.p_words_words.b;
                    self.v.p_hdr_words.c = self.v.p_words_words.c;
                    self.v.p_hdr_words.long = self.v.p_words_words.long;
                    self.v.p_meta_note = self.v.p_words_note;
                    return Ok(());
                }
            };
        }
    }

    /// Applies `Main.learning`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_learning(&mut self) -> (bool, u32) {
        let key = (self.v.main_meta_a as u64) << 8 | self.v.main_meta_version as u64;
        let (found, place) = self.code.learning.find(self.tick, key);
        self.applied = Applied::Learning { key, place };
        match found.action {
            LearningAction::Known { note, marks } => {
                self.v.main_known_note = note;
                self.v.main_known_marks = marks;
                self.main_known()
            }
            LearningAction::Learn {} => self.main_learn(),
        };
        self.applied = Applied::Nothing;
        (found.hit, found.action.number() as u32)
    }

    /// Applies `Main.prefixes`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_prefixes(&mut self) -> (bool, u32, Result<(), Stop>) {
        let found = self
            .code
            .prefixes
            .find((self.v.main_meta_b as u64) << 1 | self.v.main_meta_is_marked as u64);
        let flow = match found.action {
            PrefixesAction::Set { x } => {
                self.v.main_set_x = x;
                self.main_set();
                Ok(())
            }
            PrefixesAction::Leave {} => self.main_leave(),
            PrefixesAction::NoAction {} => {
                self.no_action();
                Ok(())
            }
        };
        (found.hit, found.action.number() as u32, flow)
    }

    /// Applies `Main.masks`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_masks(&mut self) -> (bool, u32) {
        let found = self
            .code
            .masks
            .find(
                &[
                    self.v.main_hdr_words.a as u128,
                    self.v.main_hdr_words.b as u128,
                    self.v.main_hdr_head.flag as u128,
                ],
            );
        match found.action {
            MasksAction::Set { x } => {
                self.v.main_set_x = x;
                self.main_set()
            }
            MasksAction::To { port } => {
                self.v.main_to_port = port;
                self.main_to()
            }
            MasksAction::NoAction {} => self.no_action(),
        };
        (found.hit, found.action.number() as u32)
    }

    /// Applies `Main.long`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_long(&mut self) -> (bool, u32) {
        let key = [
            self.v.main_hdr_words.long as u128,
            self.v.main_hdr_head.address as u128,
            (self.v.main_hdr_words.c & 3_u32) as u128,
        ];
        let (found, place) = self.code.long.find(self.tick, key);
        match found.action {
            LongAction::Set { x } => {
                self.v.main_set_x = x;
                self.main_set()
            }
            LongAction::Five { a, b, c, d, e } => {
                self.v.main_five_a = a;
                self.v.main_five_b = b;
                self.v.main_five_c = c;
                self.v.main_five_d = d;
                self.v.main_five_e = e;
                self.main_five()
            }
            LongAction::NoAction {} => self.no_action(),
        };
        (found.hit, found.action.number() as u32)
    }

    /// `NoAction`.
    #[inline(always)]
    fn no_action(&mut self) {}
    /// `folded`.
    #[inline(always)]
    fn folded(&mut self) {
        if self.v.folded_x == 0_u32 {
            self.v.folded_return = 0xffff_u16;
            return;
        }
        self.v.folded_return = ((self.v.folded_x >> 16) as u16)
            ^ (self.v.folded_x as u16);
    }

    /// `next`.
    #[inline(always)]
    fn next(&mut self) {
        self.v.next_count = self.v.next_count.wrapping_add(1_u8);
        self.v.next_return = self.v.next_count as u32;
    }

    /// `Pre`.
    #[inline(always)]
    fn pre(&mut self) {
        if self.v.pre_istd_parser_error == 1_u32 {
            self.v.pre_meta_is_marked = true;
        }
    }

    /// `Main.arithmetic`.
    #[inline(always)]
    fn main_arithmetic(&mut self) {
        self.v.main_arithmetic_a = self.v.main_arithmetic_words.a;
        self.v.main_arithmetic_b = self.v.main_arithmetic_words.b;
        self.v.main_arithmetic_odd = self.v.main_arithmetic_a as u16 & 0x1fff_u16;
        self.v.main_arithmetic_small = self.v.main_arithmetic_b as u8 & 7_u8;
        self.v.main_arithmetic_words.a = ((self
            .v
            .main_arithmetic_a
            .wrapping_sub(self.v.main_arithmetic_b))
            .wrapping_add((self.v.main_arithmetic_a ^ (!self.v.main_arithmetic_b))))
            .wrapping_sub((self.v.main_arithmetic_a.wrapping_neg()));
        self.v.main_arithmetic_words.b = ((shift_left(
            self.v.main_arithmetic_a as u128,
            (self.v.main_arithmetic_b as u8 & 15_u8) as u128,
        )) as u16)
            | (((shift_right(
                self.v.main_arithmetic_b as u128,
                (self.v.main_arithmetic_a as u8) as u128,
            )) as u16)
                ^ ((self.v.main_arithmetic_odd.wrapping_add(0x1f40_u16) & 0x1fff_u16)));
        self.v.main_arithmetic_words.c = ((self
            .v
            .main_arithmetic_b
            .wrapping_sub(self.v.main_arithmetic_a)) as u32)
            .wrapping_add(
                ((if self.v.main_arithmetic_small < 4_u8 { 1_u32 } else { 2_u32 })),
            );
        self.v.main_arithmetic_words.c = (self.v.main_arithmetic_words.c
            ^ ((self.v.main_arithmetic_delta as u32) << 8))
            ^ (((self.v.main_arithmetic_small.wrapping_sub(5_u8) & 7_u8) as u32) << 28);
        self.v.main_arithmetic_words.c = (self.v.main_arithmetic_words.c
            & 0xffffff0f_u32)
            | ((((self.v.main_arithmetic_a as u8 & 15_u8)
                & (!((self.v.main_arithmetic_b >> 8) as u8 & 15_u8) & 15_u8)) as u32)
                << 4);
        self.v.main_arithmetic_words.long = (self.v.main_arithmetic_words.long << 3)
            .wrapping_add(
                (((self.v.main_arithmetic_odd as u16) << 1
                    | (self.v.main_arithmetic_a as u8 & 1_u8) as u16) as u64),
            );
        self.v.main_arithmetic_words.long = (if self.v.main_arithmetic_a == 0_u16 {
            self.v.main_arithmetic_words.long
        } else {
            self.v
                .main_arithmetic_words
                .long
                .wrapping_sub((self.v.main_arithmetic_words.c as u64))
        });
        self.v.main_arithmetic_is_odd = (self.v.main_arithmetic_odd == 3_u16)
            || (self.v.main_arithmetic_a > self.v.main_arithmetic_b);
        if ((self.v.main_arithmetic_delta >= 5_u8) && (!self.v.main_arithmetic_is_odd))
            || ((self.v.main_arithmetic_small <= 1_u8)
                && (self.v.main_arithmetic_a >= self.v.main_arithmetic_b))
        {
            self.v.main_arithmetic_tmp = self.v.main_arithmetic_words.b;
            self.v.folded_x = self.v.main_arithmetic_words.c;
            self.folded();
            self.v.main_arithmetic_words.b = self.v.main_arithmetic_tmp
                ^ self.v.folded_return;
        } else {
            if (self.v.main_arithmetic_delta < 3_u8) && self.v.main_arithmetic_is_odd {
                self.v.main_arithmetic_words.b = (shift_right(
                    self.v.main_arithmetic_words.b as u128,
                    (self.v.main_arithmetic_small) as u128,
                )) as u16;
            }
        }
        self.v.main_arithmetic_delta = self
            .v
            .main_arithmetic_delta
            .wrapping_add((self.v.main_arithmetic_small));
    }

    /// `Main.known`.
    #[inline(always)]
    fn main_known(&mut self) {
        self.v.main_meta_note = self.v.main_known_note;
        self.v.main_meta_is_marked = self.v.main_known_marks;
        if self.v.main_meta_count == 0_u8 {
            let timeout = self
                .world
                .timeout(((self.v.main_meta_a as u8 & 3_u8)) as u128);
            match &self.applied {
                Applied::Learning { place, .. } => {
                    self.pass.set_timeout(&mut self.code.learning, *place, timeout)
                }
                _ => {}
            }
        }
        match &self.applied {
            Applied::Learning { place, .. } => {
                self.pass.restart(&mut self.code.learning, self.now, *place)
            }
            _ => {}
        }
    }

    /// `Main.learn`.
    #[inline(always)]
    fn main_learn(&mut self) {
        let timeout = self.world.timeout(0x1_u128);
        self.v.main_learn_result = match &mut self.applied {
            Applied::Learning { key, place } => {
                let added = self
                    .pass
                    .add(
                        &mut self.code.learning,
                        self.now,
                        *key,
                        LearningAction::Known {
                            note: self.v.main_meta_note,
                            marks: true,
                        },
                        timeout,
                    );
                *place = added.or(*place);
                added.is_some()
            }
            _ => false,
        };
        self.v.main_learn_added = self.v.main_learn_result;
        if self.v.main_learn_added {
            if !P::IS_AHEAD {
                self.world
                    .tell(
                        7,
                        vec![
                            self.v.main_hdr_head.address as u128, self.v.main_meta_a as
                            u128
                        ],
                    );
            }
        } else {
            self.v.main_meta_seen = 99_u8;
        }
    }

    /// `Main.set`.
    #[inline(always)]
    fn main_set(&mut self) {
        self.v.main_hdr_words.c = self.v.main_set_x;
    }

    /// `Main.leave`.
    #[inline(always)]
    fn main_leave(&mut self) -> Result<(), Stop> {
        self.v.main_meta_note = 3_u32;
        return Err(Stop::Exit);
        Ok(())
    }

    /// `Main.to`.
    #[inline(always)]
    fn main_to(&mut self) {
        self.port = Some(self.v.main_to_port as u32);
    }

    /// `Main.five`.
    #[inline(always)]
    fn main_five(&mut self) {
        self.v.main_hdr_words.long = self
            .v
            .main_five_e
            .wrapping_add((self.v.main_five_d as u64));
        self.v.main_hdr_head.offset = self.v.main_five_c ^ (self.v.main_five_b as u32);
        self.v.main_hdr_words.a = self.v.main_five_a as u16;
    }

    /// `Main`.
    #[inline(always)]
    fn main(&mut self) -> Result<(), Stop> {
        self.port = Some(2_u32 as u32);
        if (!self.v.main_hdr_head.valid) || (!self.v.main_hdr_words.valid) {
            if self.v.main_istd_parser_error == 2_u32 {
                self.pass.count(&mut self.code.seen, 0x1_u128, 0x0_u128);
            } else {
                if self.v.main_istd_parser_error == 7_u32 {
                    self.pass.count(&mut self.code.seen, 0x2_u128, 0x0_u128);
                } else {
                    if self.v.main_istd_parser_error == 1_u32 {
                        self.pass.count(&mut self.code.seen, 0x3_u128, 0x0_u128);
                    }
                }
            }
            if !self.v.main_hdr_head.valid {
                self.port = None;
            }
            return Ok(());
        }
        self.v.main_meta_version = self.v.main_hdr_head.version;
        self.v.main_meta_count = self.v.main_hdr_head.count;
        self.v.main_meta_a = self.v.main_hdr_words.a;
        self.v.main_meta_b = self.v.main_hdr_words.b;
        self.pass
            .count(
                &mut self.code.seen,
                self.v.main_hdr_head.version as u128,
                (self.v.main_hdr_words.a as u32) as u128,
            );
        self.pass
            .count(
                &mut self.code.seen,
                (self.v.main_hdr_words.a as u8) as u128,
                0x0_u128,
            );
        self.pass
            .count(
                &mut self.code.wide,
                (self.v.main_hdr_words.a as u8 & 15_u8) as u128,
                (self.v.main_hdr_words.b as u32) as u128,
            );
        let (hit, action) = self.apply_learning();
        self.v.main_tmp = hit;
        self.v.main_tmp_2 = action as u32;
        if self.v.main_tmp {
            self.v.main_meta_pair_left = self.v.main_meta_pair_left.wrapping_add(1_u16);
        }
        let (hit, action, flow) = self.apply_prefixes();
        self.v.main_tmp_3 = hit;
        self.v.main_tmp_4 = action as u32;
        flow?;
        match self.v.main_tmp_4 {
            0_u32 => {
                self.v.main_tmp_5 = self.v.main_meta_note;
                self.v.next_count = self.v.main_meta_seen;
                self.next();
                self.v.main_meta_seen = self.v.next_count;
                self.v.main_meta_note = self
                    .v
                    .main_tmp_5
                    .wrapping_add(self.v.next_return);
            }
            _ => {
                self.v.main_hdr_other.valid = self.v.main_hdr_words.valid;
                self.v.main_hdr_other.a = self.v.main_hdr_words.a;
                self.v.main_hdr_other.b = self.v.main_hdr_words.b;
                self.v.main_hdr_other.c = self.v.main_hdr_words.c;
                self.v.main_hdr_other.long = self.v.main_hdr_words.long;
            }
        }
        let (hit, action) = self.apply_masks();
        self.v.main_tmp_6 = hit;
        self.v.main_tmp_7 = action as u32;
        if !self.v.main_tmp_6 {
            self.v.main_arithmetic_words.valid = self.v.main_hdr_words.valid;
            self.v.main_arithmetic_words.a = self.v.main_hdr_words.a;
            self.v.main_arithmetic_words.b = self.v.main_hdr_words.b;
            self.v.main_arithmetic_words.c = self.v.main_hdr_words.c;
            self.v.main_arithmetic_words.long = self.v.main_hdr_words.long;
            self.v.main_arithmetic_delta = self.v.main_meta_seen;
            self.main_arithmetic();
            self.v.main_hdr_words.valid = self.v.main_arithmetic_words.valid;
            self.v.main_hdr_words.a = self.v.main_arithmetic_words.a;
            self.v.main_hdr_words.b = self.v.main_arithmetic_words.b;
            self.v.main_hdr_words.c = self.v.main_arithmetic_words.c;
            self.v.main_hdr_words.long = self.v.main_arithmetic_words.long;
            self.v.main_meta_seen = self.v.main_arithmetic_delta;
        }
        let (hit, action) = self.apply_long();
        self.v.main_tmp_8 = hit;
        self.v.main_tmp_9 = action as u32;
        self.v.main_result = (self
            .pass
            .colour(
                &mut self.code.rate,
                self.now,
                (self.v.main_hdr_words.a as u8) as u128,
                0x1_u128,
                self.v.main_hdr_words.c as u128,
            )) as u32;
        self.v.main_colour = self.v.main_result;
        if self.v.main_colour == 0_u32 {
            self.port = None;
        } else {
            self.v.main_result_2 = (self
                .pass
                .colour(
                    &mut self.code.packets,
                    self.now,
                    (self.v.main_hdr_words.b as u8) as u128,
                    self.v.main_colour as u128,
                    0x1_u128,
                )) as u32;
            self.v.main_colour = self.v.main_result_2;
        }
        let index = (self.v.main_hdr_words.b as u8) as u128;
        self.v.main_result_3 = self.pass.read(&self.code.numbers, index);
        self.v.main_number = self.v.main_result_3;
        let index = (self.v.main_hdr_words.b as u8) as u128;
        self.pass
            .write(
                &mut self.code.numbers,
                index,
                self.v.main_number.wrapping_add(self.v.main_hdr_words.c),
            );
        let index = self.v.main_hdr_words.a as u128;
        self.v.main_result_left = self.pass.read(&self.code.pairs_0_, index);
        self.v.main_result_right = self.pass.read(&self.code.pairs_1_, index);
        self.v.main_pair_left = self.v.main_result_left;
        self.v.main_pair_right = self.v.main_result_right;
        let index = self.v.main_hdr_words.a as u128;
        self.pass
            .write(
                &mut self.code.pairs_0_,
                index,
                self.v.main_pair_left.wrapping_add(1_u16),
            );
        self.pass.write(&mut self.code.pairs_1_, index, !self.v.main_pair_right);
        self.v.sum_sum = 0;
        let part_0 = self.v.main_hdr_head.version;
        let part_1 = self.v.main_hdr_head.flag;
        let part_2 = self.v.main_hdr_head.count;
        let part_3 = self.v.main_hdr_head.offset;
        let part_4 = self.v.main_hdr_words.long;
        self.v.sum_sum = checksum(
            self.v.sum_sum,
            [
                (part_0 as u16) << 8 | (part_1 as u16),
                (part_2 as u16) << 8 | ((part_3 >> 16) as u16),
                (part_3 as u16),
                ((part_4 >> 48) as u16),
                ((part_4 >> 32) as u16),
                ((part_4 >> 16) as u16),
                (part_4 as u16),
            ],
        );
        let part_0 = self.v.main_hdr_words.c;
        let part_1 = self.v.main_hdr_words.b;
        let part_2 = self.v.main_hdr_head.address;
        self.v.sum_sum = checksum(
            self.v.sum_sum,
            [
                !(((part_0 >> 16) as u16)),
                !((part_0 as u16)),
                !(part_1),
                !(((part_2 >> 32) as u16)),
                !(((part_2 >> 16) as u16)),
                !((part_2 as u16)),
            ],
        );
        self.v.main_result_4 = (self.v.sum_sum as u128) as u16;
        self.v.main_state = self.v.main_result_4;
        let part_0 = 3_u8;
        let part_1 = self.v.main_hdr_words.b;
        let part_2 = 7_u8;
        self.v.sum_sum = checksum(
            self.v.sum_sum,
            [
                (part_0 as u16) << 8 | ((part_1 >> 8) as u16),
                (part_1 as u16 & 0xff) << 8 | (part_2 as u16),
            ],
        );
        match self.v.main_hdr_head.count {
            1_u8 | 2_u8 => {
                self.v.main_hdr_words.b = self.v.main_state;
            }
            3_u8 => {
                self.v.sum_sum = self.v.main_hdr_words.a as u16;
                let part_0 = self.v.main_hdr_words.a;
                let part_1 = self.v.main_hdr_words.b;
                let part_2 = self.v.main_hdr_words.c;
                let part_3 = self.v.main_hdr_words.long;
                self.v.sum_sum = checksum(
                    self.v.sum_sum,
                    [
                        part_0,
                        part_1,
                        ((part_2 >> 16) as u16),
                        (part_2 as u16),
                        ((part_3 >> 48) as u16),
                        ((part_3 >> 32) as u16),
                        ((part_3 >> 16) as u16),
                        (part_3 as u16),
                    ],
                );
                self.v.main_result_5 = (!self.v.sum_sum as u128) as u16;
                self.v.main_hdr_words.c = self.v.main_result_5 as u32;
            }
            5_u8 => {
                self.v.main_result_6 = ((self
                    .pass
                    .next(&mut self.code.chance, 0x3, 0x3e8) & 0xffff)) as u16;
                self.v.main_hdr_words.b = self.v.main_result_6;
            }
            _ => {
                self.v.main_result_7 = (!self.v.sum_sum as u128) as u16;
                self.v.main_hdr_words.b = self.v.main_result_7;
            }
        }
        if self.v.main_meta_is_marked {
            self.v.main_hdr_head.offset = self.v.main_hdr_head.offset.wrapping_add(1_u32)
                & 0xffffff_u32;
            self.v.main_hdr_label.valid = false;
        }
        if self.v.main_pair_right {
            self.v.main_hdr_words.c = (self.v.main_hdr_words.c ^ self.v.main_number)
                ^ ((if self.v.main_colour == 2_u32 {
                    1_u32
                } else {
                    self.v.main_meta_note
                }));
        }
        self.v.main_hdr_head.count = self.v.main_meta_pair_left as u8;
        Ok(())
    }

    /// `Dep`.
    #[inline(always)]
    fn dep(&mut self) {
        if self.v.dep_hdr_head.valid {
            self.head.extend_from_slice(&self.v.dep_hdr_head.bytes());
        }
        if self.v.dep_hdr_label.valid {
            self.head.extend_from_slice(&self.v.dep_hdr_label.bytes());
        }
        if self.v.dep_meta_seen == 2_u8 {
            if self.v.dep_hdr_other.valid {
                self.head.extend_from_slice(&self.v.dep_hdr_other.bytes());
            }
        }
        if self.v.dep_hdr_words.valid {
            self.head.extend_from_slice(&self.v.dep_hdr_words.bytes());
        }
    }
}
