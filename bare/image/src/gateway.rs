//! The main loop: packets, and between them keys and the housekeeping.

use crate::attendant::{self, Attendant, Look, Work, grant};
use crate::crew::{self, Crew, LogObserver, SharedLogs, lock};
use crate::machine::cards::Card;
use crate::machine::last_words::{self, Words};
use crate::machine::{clock, processors, system, watchdog};
use natgate_bare::log::{self, Logs, Sent, Way};
use natgate_bare::menu::{ALONE, HELP, Menu, PATIENCE, Wish};
use natgate_bare::options::Options;
use natgate_bare::settings;
use natgate_bare::status::Server;
use natgate_bare::text::{self, Figures};
use natgate_control::config::Configuration;
use natgate_control::meaning::Meaning;
use natgate_engine::{Counters, Cursor, Filter, MappingInfo, Side, TableTotals, Timestamp};
use natgate_gateway::router::Fate;
use natgate_gateway::{
    self as gateway, Link, LoadNow, Settings, TimingNow, Worker, write_datagram,
};
use natgate_io::Statistics;
use natgate_metrics::{SinkFigures, prometheus_text};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::SystemTime;

/// Mappings of a page, and table slots that are searched at once; packets wait during the search.
const PAGE: usize = 20;
const SLOTS: usize = 2048;

/// Link of the status page.
const INSIDE: Link = Link::inside(0);

/// Longest packet to a log's collector, bytes; bytes of its IPv4 and UDP headers; its time to live.
const LONGEST: usize = 1500;
const HEADERS: usize = 28;
const TTL: u8 = 64;

/// The gateway as the machine's work.
pub(crate) struct Gateway {
    options: Options,
    cards: Vec<Card>,
    attendant: Attendant,
    /// Ids of the processors, as far as they are known.
    processors: Vec<u32>,
    configuration: Option<Configuration>,
    crew: Option<Crew>,
    logs: SharedLogs,
    /// Server of the status page, and the start time of the gateway.
    server: Option<(Server, SystemTime)>,
    menu: Menu,
    /// Time of the automatic start.
    starts: Option<Timestamp>,
    shows_counters: bool,
    /// Next place in the list of mappings, and the missing mappings of an incomplete page.
    page: Option<(Place, usize)>,
    place: Place,
}

/// A place in the list of mappings: the worker, and the place in its table.
#[derive(Clone, Copy, Default)]
struct Place {
    worker: usize,
    cursor: Cursor,
}

impl Gateway {
    /// Creates the gateway with these cards. Without a configuration it does not start.
    pub(crate) fn new(
        options: Options,
        (cards, processors, attendant): (Vec<Card>, Vec<u32>, Attendant),
        configuration: Option<Configuration>,
    ) -> Self {
        let starts = configuration.is_some().then(|| clock::timestamp().plus(PATIENCE));
        Self {
            options,
            cards,
            attendant,
            processors,
            configuration,
            crew: None,
            logs: SharedLogs::default(),
            server: None,
            menu: Menu::default(),
            starts,
            shows_counters: false,
            page: None,
            place: Place::default(),
        }
    }

    /// Runs until the machine restarts.
    pub(crate) fn run(mut self) -> ! {
        print!("{HELP}");
        if self.options.start {
            self.start();
        } else if self.starts.is_some() {
            println!("starts in {} s; any key stops that", PATIENCE.as_secs());
        }
        attendant::run(self)
    }

    fn take_key(&mut self, key: u8) {
        let was_waiting = self.starts.take().is_some();
        match self.menu.key(key) {
            Some(wish) => self.grant(wish),
            None if was_waiting => println!("waiting for a key"),
            None => {}
        }
    }

    fn grant(&mut self, wish: Wish) {
        match grant(wish) {
            Some(Wish::Start) if self.crew.is_some() => println!("it is running already"),
            Some(Wish::Start) => self.start(),
            Some(Wish::Configuration) => self.show_configuration(),
            Some(Wish::Counters) => self.shows_counters = !self.shows_counters,
            Some(Wish::Fail(_)) => match self.crew.as_ref().and_then(Crew::last) {
                Some(other) => other.hold(),
                None => println!("{ALONE}"),
            },
            Some(Wish::Mappings) => self.page = Some((self.place, PAGE)),
            Some(_) => print!("{HELP}"),
            None => {}
        }
    }

    fn start(&mut self) {
        self.starts = None;
        // Allocating the memory of a large table is slow.
        watchdog::pause();
        if let Err(problem) = self.try_to_start() {
            println!("{problem}");
        }
        watchdog::feed();
    }

    fn try_to_start(&mut self) -> Result<(), String> {
        if clock::frequency() == 0 {
            return Err(clock::MISSING.to_owned());
        }
        let configuration = self.configuration.as_ref();
        let settings = &configuration.ok_or("there is no configuration to start with")?.settings;
        let places = places(settings, &self.cards)?;
        let workers = settings.workers.count;
        processors::start(workers - 1, &self.processors)?;
        let (mut devices, mut sharing) = (Vec::new(), Vec::new());
        for (place, name) in places.into_iter().zip(settings.devices()) {
            let card = &mut self.cards[place];
            self.attendant.uses_card(card.interrupts);
            let card = std::mem::replace(&mut card.device, Err("it is in use".to_owned()));
            let (device, shared) = card.map_err(|problem| format!("device {name}: {problem}"))?;
            devices.push(device);
            sharing.push(shared);
        }
        let now = clock::timestamp();
        // After a failed start the cards stay in use, because another start with the same
        // configuration would fail, too.
        let seed = |number| self.seed(number);
        let mut crew =
            Crew::new(settings, seed, devices, &sharing, now).map_err(|e| e.to_string())?;
        for device in crew.first.devices() {
            println!("{}", text::link(device.link()));
        }
        for narrow in crew.first.narrow_devices(settings) {
            println!("{narrow}; natgate goes by what the card carries");
        }
        *lock(&self.logs) = Logs::new(settings);
        self.server = settings::status_page(settings).map(|(address, port)| {
            crew.each(|worker| worker.open_door(port));
            let mtu = crew.first.mtu(INSIDE);
            (Server::new(address, port, mtu, system::random(), now), SystemTime::now())
        });
        crew.begin(&self.logs);
        self.crew = Some(crew);
        println!("{}", text::running(workers, self.processors.len()));
        Ok(())
    }

    /// Seed of a worker's ports.
    fn seed(&self, worker: u8) -> [u8; 32] {
        let mut seed = [0; 32];
        match self.options.seed {
            Some(number) => {
                seed[..8].copy_from_slice(&number.to_le_bytes());
                seed[8] = worker;
            }
            None => seed.fill_with(|| system::random() as u8),
        }
        seed
    }

    fn show_configuration(&self) {
        match &self.configuration {
            Some(configuration) => {
                let meaning = Meaning::of(configuration.clone()).to_string();
                // The back end of an operating system does not matter here.
                println!("{}", meaning.replace(" (af-packet)", ""));
            }
            None => println!("there is no configuration that can be used; see above"),
        }
    }

    /// Serves the status page.
    fn serve(&mut self, now: Timestamp) {
        let Self { server, crew, logs, configuration, .. } = self;
        let (Some((server, began)), Some(crew)) = (server, crew) else { return };
        let Some(configuration) = configuration else { return };
        while let Some(packet) = crew.visitor() {
            server.receive(packet);
        }
        let settings = &configuration.settings;
        server.turn(now, &mut || metrics(now, crew, settings, *began, logs));
        while let Some(packet) = server.poll_transmit() {
            // The client requests lost packets again.
            crew.first.send(now, INSIDE, &packet);
        }
    }

    fn every_second(&mut self, now: Timestamp) {
        lock(&self.logs).summarize(now);
        let Some(crew) = &mut self.crew else {
            if self.shows_counters {
                println!("it is not running");
            }
            self.shows_counters = false;
            return;
        };
        let sleeps = [self.attendant.sleeps() + crew.sleeps(), processors::alarms()];
        let told: Vec<_> = tell(crew, now).into_iter().map(|(figures, _)| figures).collect();
        let logs = lock(&self.logs).total();
        let figures = figures(&told, sleeps, logs);
        if self.shows_counters {
            let mut text = String::new();
            // Writing to a string does not fail.
            let _ = text::figures(&mut text, &figures);
            println!("{text}");
        }
        last_words::remember(Words::Gateway(figures));
    }

    /// Searches some slots for mappings at a time, until a page is full.
    fn go_on_with_page(&mut self, now: Timestamp) {
        let Some((mut place, wanted)) = self.page.take() else { return };
        let Some(crew) = &mut self.crew else {
            println!("it is not running");
            return;
        };
        let mut found = Vec::with_capacity(wanted);
        let (is_done, lines) = crew.with(place.worker, |worker| {
            let status = worker.status(now);
            let all = Filter::default();
            let is_done = status.engine.scan_mappings(&mut place.cursor, SLOTS, &all, &mut found);
            // All workers know the static mappings.
            found.retain(|mapping| mapping.expires.is_some() || status.is_own(&mapping.id));
            let line = |mapping: &MappingInfo| {
                let host = status.host(mapping.id.realm, mapping.id.internal.address);
                text::mapping(mapping, host.as_ref(), now)
            };
            (is_done, found.iter().map(line).collect::<Vec<_>>())
        });
        // The console is slow, and the worker works again.
        lines.iter().for_each(|line| println!("{line}"));
        let left = wanted - lines.len();
        if is_done && place.worker + 1 == crew.count() {
            println!("these are all");
            self.place = Place::default();
            return;
        }
        if is_done {
            place = Place { worker: place.worker + 1, cursor: Cursor::default() };
        }
        if left == 0 {
            println!("m: further mappings");
            self.place = place;
        } else {
            self.page = Some((place, left));
        }
    }
}

impl Work for Gateway {
    fn attendant(&mut self) -> &mut Attendant {
        &mut self.attendant
    }

    fn turn(&mut self, now: Timestamp) -> bool {
        let Some(Crew { first: worker, .. }) = &mut self.crew else { return false };
        let frames = worker.turn(now, &mut LogObserver { logs: &self.logs, is_first: true });
        worker.note_turn(now, clock::timestamp(), frames);
        let told = lock(&self.logs).turn(&mut Road { worker, now });
        frames > 0 || told
    }

    fn look(&mut self, now: Timestamp, look: Look) {
        if self.starts.is_some_and(|starts| starts <= now) {
            self.start();
        }
        if let Some(key) = look.key {
            self.take_key(key);
        }
        self.serve(now);
        self.go_on_with_page(now);
        if look.is_second {
            self.every_second(now);
        }
    }

    fn is_idle(&self, now: Timestamp) -> bool {
        self.page.is_none()
            && self.crew.as_ref().is_none_or(|crew| crew.first.next_deadline() > now)
    }

    fn falls_asleep(&mut self) -> bool {
        self.crew.as_ref().is_none_or(|crew| crew.first.falls_asleep())
    }

    fn wakes_up(&mut self, slept: Option<Timestamp>) {
        if let Some(Crew { first, .. }) = &mut self.crew {
            crew::wake_up(first, slept);
        }
    }
}

/// Figures and load of all workers.
fn tell(crew: &mut Crew, now: Timestamp) -> Vec<(gateway::Figures, TimingNow)> {
    crew.each(|worker| (worker.figures(now), worker.load().timing()))
}

/// Sums of the workers' figures.
fn figures(told: &[gateway::Figures], sleeps: [u64; 2], logs: Option<log::Figures>) -> Figures {
    let (mut counters, mut totals) = (Counters::default(), TableTotals::default());
    for one in told {
        counters.add(&one.counters);
        totals.add(&one.totals);
    }
    let frames = |wanted: Link| {
        let links = told.iter().flat_map(|one| &one.links);
        let of_side = links.filter(|link| link.link == wanted);
        Statistics::of_group(of_side.map(|link| link.frames))
    };
    let frames = [INSIDE, Link::OUTSIDE].map(frames);
    let load = |of: fn(&LoadNow) -> u64| told.iter().map(|one| of(&one.load)).sum();
    let handed_over = [load(|load| load.handed_over), load(|load| load.hand_over_full)];
    Figures { counters, totals, frames, sleeps, logs, workers: told.len(), handed_over }
}

/// Text of the status page, and its content type: the metrics of `natgate run`.
fn metrics(
    now: Timestamp,
    crew: &mut Crew,
    settings: &Settings,
    began: SystemTime,
    logs: &SharedLogs,
) -> (String, &'static str) {
    let (told, timings): (Vec<_>, Vec<_>) = tell(crew, now).into_iter().unzip();
    let timings = timings.into_iter();
    let config = (&settings.engine, &settings.ipv6);
    let mut figures = natgate_metrics::Figures::gather(config, began, &told, timings);
    let logs = lock(logs);
    let sinks = logs.figures().map(|(name, log)| SinkFigures {
        name,
        written: log.sent,
        lost: log.lost,
        gaps: log.gaps,
        waiting: log.waiting,
        up: log.up,
    });
    figures.sinks = sinks.collect();
    prometheus_text(&figures)
}

/// Indexes of the devices' cards, found by name, place or hardware address.
fn places(settings: &Settings, cards: &[Card]) -> Result<Vec<usize>, String> {
    let is_called = |card: &Card, name: &str| {
        let mac = card.device.as_ref().map(|(device, _)| device.link().mac.to_string());
        card.name == name || card.place.to_string() == name || mac.is_ok_and(|mac| mac == name)
    };
    let mut places = Vec::new();
    for name in settings.devices() {
        let place = cards.iter().position(|card| is_called(card, name));
        let all: Vec<&str> = cards.iter().map(|card| &card.name[..]).collect();
        let place = place.filter(|place| !places.contains(place)).ok_or_else(|| {
            format!("there is no card {name:?} that is free; the cards are {}", all.join(", "))
        })?;
        places.push(place);
    }
    Ok(places)
}

/// Path of the gateway's own packets.
struct Road<'a> {
    worker: &'a mut Worker,
    now: Timestamp,
}

impl Way for Road<'_> {
    fn is_open(&mut self, side: Side, to: Ipv4Addr) -> bool {
        self.worker.is_reachable(self.now, side.into(), to)
    }

    fn send(&mut self, side: Side, to: SocketAddrV4, payload: &[u8]) -> Sent {
        let mut packet = [0; LONGEST];
        let most = self.worker.mtu(side.into()).min(packet.len());
        if HEADERS + payload.len() > most {
            return Sent::Never;
        }
        let from = (self.worker.address(side.into()), log::PORT);
        let len = write_datagram((from, (*to.ip(), to.port())), TTL, payload, &mut packet);
        match self.worker.send(self.now, side.into(), &packet[..len]) {
            Fate::Ready | Fate::Kept => Sent::Gone,
            Fate::Lost => Sent::Later,
        }
    }
}
