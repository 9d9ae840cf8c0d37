//! The program `small`, made by `natgate p4 compile --emit rust`: changes belong into the program.

use natgate_p4::rt::*;

/// Headers with these fields.
#[derive(Clone, Copy, Debug, Default)]
struct Frame2 {
    valid: bool,
    destination: u64,
    source: u64,
    kind: u16,
}

impl Frame2 {
    #[inline(always)]
    fn read(bytes: [u8; 14]) -> Self {
        Self {
            valid: true,
            destination: be64(&bytes[0..6]),
            source: be64(&bytes[6..12]),
            kind: u16::from_be_bytes([bytes[12], bytes[13]]),
        }
    }

    #[inline(always)]
    fn bytes(&self) -> [u8; 14] {
        let mut bytes = [0; 14];
        bytes[0..6].copy_from_slice(&self.destination.to_be_bytes()[2..]);
        bytes[6..12].copy_from_slice(&self.source.to_be_bytes()[2..]);
        bytes[12..14].copy_from_slice(&self.kind.to_be_bytes());
        bytes
    }
}

/// What entries of `Main.forward` do.
#[derive(Clone, Copy, Debug)]
enum ForwardAction {
    Send { port: u32 },
    NoAction,
}

impl Action for ForwardAction {
    fn of(number: usize, args: &[u128]) -> Self {
        match number {
            0 => {
                ForwardAction::Send {
                    port: args[0] as u32,
                }
            }
            _ => ForwardAction::NoAction,
        }
    }

    fn number(&self) -> usize {
        match self {
            Self::Send { .. } => 0,
            Self::NoAction { .. } => 1,
        }
    }

    fn args(&self) -> Vec<u128> {
        match self {
            Self::Send { port } => vec![* port as u128],
            Self::NoAction {} => vec![],
        }
    }
}

/// Headers, metadata and variables of a packet.
#[derive(Clone, Copy, Debug, Default)]
struct Slots {
    twice_return: u16,
    twice_x: u16,
    parse_hdr_frame: Frame2,
    parse_meta_note: u16,
    parse_istd_direction: u32,
    parse_istd_pass: u8,
    parse_istd_loopedback: bool,
    parse_istd_input_port: u32,
    pre_hdr_frame: Frame2,
    pre_meta_note: u16,
    pre_istd_input_port: u32,
    pre_istd_parser_error: u32,
    pre_istd_direction: u32,
    pre_istd_pass: u8,
    pre_istd_loopedback: bool,
    pre_ostd_decrypt: bool,
    pre_ostd_said: u32,
    pre_ostd_decrypt_start_offset: u16,
    main_hdr_frame: Frame2,
    main_meta_note: u16,
    main_istd_direction: u32,
    main_istd_pass: u8,
    main_istd_loopedback: bool,
    main_istd_timestamp: u64,
    main_istd_parser_error: u32,
    main_istd_class_of_service: u8,
    main_istd_input_port: u32,
    main_ostd_class_of_service: u8,
    main_send_port: u32,
    main_tmp: bool,
    main_tmp_2: u32,
    deparse_hdr_frame: Frame2,
    deparse_meta_note: u16,
    deparse_ostd_class_of_service: u8,
}

/// The table that is being applied, with the key and where its entry is.
#[derive(Clone, Copy, Debug)]
enum Applied {
    Nothing,
}

/// The program's tables, and what its objects remember.
#[derive(Debug)]
pub struct Small {
    forward: Scan<ForwardAction>,
    seen: Counters,
}

impl Small {
    /// Without entries; `seed` is that of its random numbers.
    pub fn new(seed: u64) -> Self {
        Self {
            forward: Scan::new(None, 16, ForwardAction::NoAction),
            seen: Counters::new(4, 0xffffffff_u64),
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

impl Execute for Small {
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
            0 => &self.forward,
            _ => panic!("there is no table {number}"),
        }
    }

    fn table_mut(&mut self, number: usize) -> &mut dyn Store {
        match number {
            0 => &mut self.forward,
            _ => panic!("there is no table {number}"),
        }
    }

    fn counter(&self, object: usize, index: u32) -> (u64, u64) {
        match object {
            0 => self.seen.read(index),
            _ => (0, 0),
        }
    }

    fn set_counter(&mut self, object: usize, index: u32, value: (u64, u64)) -> bool {
        match object {
            0 => self.seen.set(index, value),
            _ => false,
        }
    }

    fn meter(&self, object: usize, index: u32) -> Option<Rates> {
        match object {
            _ => None,
        }
    }

    fn set_meter(&mut self, object: usize, index: u32, meter: Option<Meter>) -> bool {
        match object {
            _ => false,
        }
    }

    fn clear(&mut self) {
        self.seen.clear();
    }
}

/// A packet on its way.
struct Run<'r, P> {
    code: &'r mut Small,
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
        self.v.parse_istd_input_port = port as u32;
        self.v.pre_istd_input_port = port as u32;
        self.v.main_istd_input_port = port as u32;
        self.v.main_istd_timestamp = self.now as u64;
        if let Err(Stop::Reject(error)) = self.parse_parse() {
            self.v.pre_istd_parser_error = error as u32;
            self.v.main_istd_parser_error = error as u32;
        }
        self.v.pre_hdr_frame = self.v.parse_hdr_frame;
        self.v.pre_meta_note = self.v.parse_meta_note;
        self.pre();
        self.v.main_hdr_frame = self.v.parse_hdr_frame;
        self.v.main_meta_note = self.v.pre_meta_note;
    }

    /// The rest; on the way ahead, whether there may be more to fetch.
    #[inline(always)]
    fn finish(&mut self) -> bool {
        self.main();
        if P::IS_AHEAD {
            return false;
        }
        self.v.deparse_hdr_frame = self.v.main_hdr_frame;
        self.v.deparse_meta_note = self.v.main_meta_note;
        self.deparse();
        false
    }

    /// The parser `Parse`.
    #[inline(always)]
    fn parse_parse(&mut self) -> Result<(), Stop> {
        self.parse_parse_start()
    }

    /// Its state `start`.
    #[inline(always)]
    fn parse_parse_start(&mut self) -> Result<(), Stop> {
        self.input.step()?;
        self.v.parse_hdr_frame = Frame2::read(self.input.extract()?);
        let key_0 = self.v.parse_hdr_frame.kind;
        if key_0 & 0xff00_u16 == 0x800_u16 { self.parse_parse_known() } else { Ok(()) }
    }

    /// Its state `known`.
    #[inline(always)]
    fn parse_parse_known(&mut self) -> Result<(), Stop> {
        self.input.step()?;
        self.v.twice_x = ((self.v.parse_hdr_frame.kind as u8) as u16) << 8 | 1_u8 as u16;
        self.twice();
        self.v.parse_meta_note = self.v.twice_return;
        Ok(())
    }

    /// Applies `Main.forward`: whether there was an entry, and which action was run.
    #[inline(always)]
    fn apply_forward(&mut self) -> (bool, u32) {
        let found = self
            .code
            .forward
            .find(
                &[
                    self.v.main_hdr_frame.destination as u128,
                    self.v.main_meta_note as u128,
                ],
            );
        match found.action {
            ForwardAction::Send { port } => {
                self.v.main_send_port = port;
                self.main_send()
            }
            ForwardAction::NoAction {} => self.no_action(),
        };
        (found.hit, found.action.number() as u32)
    }

    /// `NoAction`.
    #[inline(always)]
    fn no_action(&mut self) {}
    /// `twice`.
    #[inline(always)]
    fn twice(&mut self) {
        self.v.twice_return = self.v.twice_x << 1;
    }

    /// `Pre`.
    #[inline(always)]
    fn pre(&mut self) {}
    /// `Main.send`.
    #[inline(always)]
    fn main_send(&mut self) {
        self.pass.count(&mut self.code.seen, 0x1_u128, 0x0_u128);
        self.port = Some(self.v.main_send_port as u32);
    }

    /// `Main`.
    #[inline(always)]
    fn main(&mut self) {
        let (hit, action) = self.apply_forward();
        self.v.main_tmp = hit;
        self.v.main_tmp_2 = action as u32;
        if (!self.v.main_tmp) && self.v.main_hdr_frame.valid {
            self.port = None;
        }
    }

    /// `Deparse`.
    #[inline(always)]
    fn deparse(&mut self) {
        if self.v.deparse_hdr_frame.valid {
            self.head.extend_from_slice(&self.v.deparse_hdr_frame.bytes());
        }
    }
}
