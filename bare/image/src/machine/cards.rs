//! Network cards of this machine.

use super::{boot, ports, watchdog, wires};
use natgate_bare::alarm::Alarm;
use natgate_bare::e1000::{self, E1000};
use natgate_bare::pci::{self, ConfigSpace, Function, Messages, Place, Window};
use natgate_bare::registers::Mapped;
use natgate_bare::sharing::Sharing;
use natgate_bare::virtio::{self, Virtio};
use natgate_io::Device;

/// Configuration space, accessed by its two ports.
struct Ports;

const ADDRESS: u16 = 0xcf8;
const DATA: u16 = 0xcfc;

impl Ports {
    fn select(place: Place, at: u8) {
        let Place { bus, slot, function } = place;
        let place = u32::from(bus) << 16 | u32::from(slot) << 11 | u32::from(function) << 8;
        ports::out32(ADDRESS, 1 << 31 | place | u32::from(at & !3));
    }
}

impl ConfigSpace for Ports {
    fn read(&mut self, place: Place, at: u8) -> u32 {
        Self::select(place, at);
        ports::in32(DATA)
    }

    fn write(&mut self, place: Place, at: u8, value: u32) {
        Self::select(place, at);
        ports::out32(DATA, value);
    }
}

/// A card of the machine.
pub(crate) struct Card {
    /// Its name in configurations, by the order of the places.
    pub(crate) name: String,
    /// Its place.
    pub(crate) place: Place,
    /// Its kind.
    pub(crate) kind: &'static str,
    /// The running card with its part for further workers, or the reason why it does not run.
    pub(crate) device: Result<(Box<dyn Device>, Sharing), String>,
    /// True if a frame ends a sleep.
    pub(crate) interrupts: bool,
}

/// A running card, its part for further workers, and true if it interrupts.
type Opened = (Box<dyn Device>, Sharing, bool);

/// Finds cards, and starts the cards with a driver. `alarm` controls their interrupts.
pub(crate) fn find(alarm: &Alarm) -> Vec<Card> {
    let mut space = Ports;
    let known = pci::functions(&mut space).into_iter().filter_map(|function| {
        let kind = match (function.vendor, function.device) {
            (e1000::VENDOR, device) => e1000::name(device),
            (virtio::VENDOR, device) if virtio::DEVICES.contains(&device) => Some("virtio-net"),
            _ => None,
        };
        kind.map(|kind| (function, kind))
    });
    let known: Vec<(Function, &'static str)> = known.collect();
    let open = |(number, (function, kind)): (usize, (Function, &'static str))| {
        let name = format!("eth{number}");
        let (device, interrupts) = match open(&mut space, function, &name, alarm) {
            Ok((device, sharing, interrupts)) => (Ok((device, sharing)), interrupts),
            Err(problem) => (Err(problem), false),
        };
        Card { name, place: function.place, kind, device, interrupts }
    };
    known.into_iter().enumerate().map(open).collect()
}

fn open(
    space: &mut Ports,
    function: Function,
    name: &str,
    alarm: &Alarm,
) -> Result<Opened, String> {
    let place = function.place;
    let windows: Vec<Option<Window>> =
        (0..6).map(|number| pci::window(space, place, number)).collect();
    pci::enable(space, place);
    let map = |window: u8, at: u32, len: u32| {
        let window = windows.get(usize::from(window)).copied().flatten();
        window.and_then(|window| map(window, at, len)).ok_or_else(|| {
            let sentence = "its registers lie where this image cannot reach them; let the machine \
                            place them below 4 GiB";
            sentence.to_owned()
        })
    };
    if function.vendor == e1000::VENDOR {
        let registers = map(0, 0, e1000::REGISTERS_LEN)?;
        let card = E1000::open(function.device, registers, name);
        let mut card = card.map_err(|error| error.to_string())?;
        let interrupts = try_wire(space, place, &mut card);
        card.obey(interrupts.then(|| alarm.clone()));
        let sharing = card.sharing();
        return Ok((Box::new(card), sharing, interrupts));
    }
    let places = virtio::places(space, place).map_err(|error| error.to_string())?;
    let places = places.try_map(|place| map(place.window, place.at, place.len))?;
    let alarm = arrange_messages(space, place, map).map(|()| alarm.clone());
    let card = Virtio::open(places, name, alarm).map_err(|error| error.to_string())?;
    let (sharing, interrupts) = (card.sharing(), card.interrupts());
    Ok((Box::new(card), sharing, interrupts))
}

/// Makes a card use its wire, if the wire leads to the input that the firmware reports.
fn try_wire(space: &mut Ports, place: Place, card: &mut E1000<Mapped>) -> bool {
    let Some(input) = pci::wire(space, place).filter(|_| watchdog::is_ticking()) else {
        return false;
    };
    pci::enable_wire(space, place, true);
    let arrives = wires::try_out(input, || card.ring());
    if !arrives {
        pci::enable_wire(space, place, false);
    }
    arrives
}

/// Directs a card's first message to this processor; `None` if that is impossible.
fn arrange_messages(
    space: &mut Ports,
    place: Place,
    map: impl Fn(u8, u32, u32) -> Result<Mapped, String>,
) -> Option<()> {
    let target = watchdog::alarm()?;
    let messages = Messages::find(space, place)?;
    let mut table = map(messages.window, messages.at, Messages::ENTRY).ok()?;
    messages.enable(space, place, &mut table, target);
    Some(())
}

/// Maps a part of a card's memory as registers.
fn map(window: Window, at: u32, len: u32) -> Option<Mapped> {
    let end = u64::from(at).checked_add(u64::from(len)).filter(|end| *end <= window.len)?;
    let start = window.address + u64::from(at);
    if window.address + end > boot::registers_end() || !start.is_multiple_of(4) {
        return None;
    }
    // SAFETY: the card reports its registers at this place, the firmware has given the place to no
    // other device, and one driver gets them.
    Some(unsafe { Mapped::new(start as usize, len) })
}
