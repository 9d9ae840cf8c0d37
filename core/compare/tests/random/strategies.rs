//! Random operations. They prefer edges (ticks, timeouts, windows, checksums) to the vast middle.
//! Large strategies are boxed, because proptest moves them about.

use crate::changes::{Other, PoolEdit};
use crate::common::{Sum, end};
use crate::configs::{config, rules};
use crate::operations::{
    About, Ask, Body, Burst, Forged, Forgery, Jump, Oddity, Operation, Send, Sequence, Target,
    Wait, What,
};
use crate::realms;
use crate::world::{INSIDE, POOL, PORTS};
use natgate_engine::{Config, Prefix, TICK};
use natgate_wire::dccp::kind::{CLOSE, CLOSE_REQUEST, LISTEN, REQUEST, RESET, RESPONSE};
use natgate_wire::tcp::flags::{ACK, FIN, PSH, RST, SYN};
use proptest::prelude::*;

fn flags() -> impl Strategy<Value = u8> {
    prop_oneof![
        5 => Just(SYN),
        3 => Just(SYN | ACK),
        4 => Just(ACK),
        2 => Just(ACK | PSH),
        3 => Just(FIN | ACK),
        3 => Just(RST),
        2 => Just(RST | ACK),
        2 => 0u8..64,
    ]
}

fn sequence() -> impl Strategy<Value = Sequence> {
    prop_oneof![
        6 => Just(Sequence::Off(0)),
        3 => (-2i32..4).prop_map(Sequence::Off),
        3 => (-2i32..2, prop_oneof![Just(0u8), Just(2), 0u8..15])
            .prop_map(|(off, shift)| Sequence::OffWindow(off, shift)),
        1 => any::<u32>().prop_map(Sequence::Any),
    ]
}

pub(crate) fn edge() -> impl Strategy<Value = u16> {
    prop_oneof![Just(0u16), Just(0xffff), Just(1), Just(0xfffe), any::<u16>()]
}

/// A maximum segment size at an even or odd place.
fn mss() -> impl Strategy<Value = Option<(u16, usize)>> {
    let size = prop_oneof![Just(1460u16), Just(1220), Just(1221), edge()];
    prop_oneof![2 => Just(None), 3 => (size, 0usize..4).prop_map(Some)]
}

fn dccp() -> impl Strategy<Value = (u8, bool)> {
    let kind = prop_oneof![
        6 => Just(REQUEST),
        3 => Just(RESPONSE),
        2 => Just(LISTEN),
        3 => prop::sample::select(vec![CLOSE_REQUEST, CLOSE, RESET]),
        4 => 0u8..16,
    ];
    (kind, any::<bool>())
}

fn body() -> BoxedStrategy<Body> {
    let tcp = (
        flags(),
        sequence(),
        prop_oneof![4 => Just(0i32), 1 => -3i32..3, 1 => any::<i32>()],
        prop_oneof![2 => Just(1000u16), 1 => Just(0), 1 => Just(1), 1 => any::<u16>()],
        prop_oneof![2 => Just(None), 2 => Just(Some(2u8)), 1 => (0u8..20).prop_map(Some)],
        mss(),
    );
    let icmp_kind = prop_oneof![
        6 => Just(None),
        2 => prop::sample::select(vec![8u8, 13, 0, 14]).prop_map(Some),
        1 => (0u8..20).prop_map(Some),
    ];
    let sum = prop_oneof![
        4 => Just(Sum::Right),
        1 => edge().prop_map(Sum::Is),
        2 => edge().prop_map(Sum::Aimed),
    ];
    let ttl = prop_oneof![16 => Just(64u8), 1 => 0u8..4, 1 => Just(255)];
    let service = prop_oneof![4 => Just(0u8), 1 => any::<u8>()];
    let len = prop_oneof![3 => 0u8..9, 1 => any::<u8>()];
    (tcp, dccp(), icmp_kind, len, sum, (ttl, service), oddity())
        .prop_map(|(tcp, dccp, icmp_kind, len, sum, (ttl, service), oddity)| {
            let (flags, sequence, acknowledgment, window, scale, mss) = tcp;
            Body {
                flags,
                sequence,
                acknowledgment,
                window,
                scale,
                mss,
                dccp,
                service,
                icmp_kind,
                len,
                sum,
                ttl,
                oddity,
            }
        })
        .boxed()
}

fn oddity() -> BoxedStrategy<Oddity> {
    let option = prop_oneof![
        Just(vec![1u8]),
        Just(vec![7, 7, 4, 0, 0, 0, 0]),
        Just(vec![148, 4, 0, 0]),
        Just(vec![131, 3, 4]),
        Just(vec![1, 137, 3, 4]),
        Just(vec![0, 137, 3, 4]),
        Just(vec![7, 1]),
        prop::collection::vec(any::<u8>(), 1..12),
    ];
    prop_oneof![
        30 => Just(Oddity::None),
        1 => Just(Oddity::DontFragment),
        1 => any::<bool>().prop_map(Oddity::Long),
        1 => (1u8..20).prop_map(Oddity::Trailing),
        1 => option.prop_map(Oddity::Options),
        1 => (0usize..48, any::<u8>(), prop::bool::weighted(0.8))
            .prop_map(|(at, value, fix)| Oddity::Byte(at, value, fix)),
        1 => (0usize..44).prop_map(Oddity::Cut),
    ]
    .boxed()
}

fn target() -> BoxedStrategy<Target> {
    prop_oneof![
        10 => (0usize..3, 0usize..3).prop_map(|(address, port)| Target::Remote(address, port)),
        6 => any::<usize>().prop_map(Target::Mapping),
        1 => (0u8..4, 1020u16..1030).prop_map(|(address, port)| Target::Pool(address, port)),
        1 => (0usize..2).prop_map(Target::Own),
        1 => (0usize..2, 0usize..8).prop_map(|(index, port)| Target::Fixed(index, port)),
        1 => prop::sample::select(vec![
            [127, 0, 0, 1], [0, 0, 0, 0], [224, 0, 0, 1], [255, 255, 255, 255], [10, 0, 0, 1],
            [10, 0, 9, 9], [172, 30, 0, 1], [10, 0, 0, 0], [10, 0, 255, 255], [203, 0, 113, 0],
            [203, 0, 113, 3], [169, 254, 169, 254],
        ])
        .prop_map(Target::Raw),
    ]
    .boxed()
}

fn near() -> impl Strategy<Value = (usize, usize)> {
    (
        (prop_oneof![12 => 0usize..3, 2 => Just(3), 1 => Just(4), 1 => Just(5)], 0usize..3)
            .prop_map(|(host, realm)| host + realm * INSIDE.len()),
        prop_oneof![6 => 0usize..2, 3 => 0usize..8],
    )
}

fn send() -> BoxedStrategy<Send> {
    let protocol =
        prop_oneof![6 => Just(0usize), 5 => Just(1), 3 => Just(2), 3 => Just(3), 2 => 4usize..7];
    prop_oneof![
        8 => (prop::bool::weighted(0.25), near(), target(), protocol, body()).prop_map(
            |(outside, near, target, protocol, body)| Send::Fresh {
                outside, near, target, protocol, body,
            }
        ),
        5 => (any::<usize>(), body()).prop_map(|(pick, body)| Send::Again { pick, body }),
        7 => (any::<usize>(), any::<bool>(), body())
            .prop_map(|(pick, exact, body)| Send::Back { pick, exact, body }),
        3 => error(),
    ]
    .boxed()
}

fn error() -> BoxedStrategy<Send> {
    let kind = prop_oneof![
        6 => (prop::sample::select(vec![3u8, 4, 11, 12]), 0u8..5),
        1 => Just((5u8, 1u8)),
    ];
    let from = prop::option::of(0usize..5);
    let len = prop_oneof![2 => Just(28usize), 2 => Just(548), 1 => 20usize..60];
    let rare = [[7u8, 4, 4, 0], [1, 131, 3, 4], [137, 3, 4, 0], [0, 131, 3, 4], [7, 9, 4, 0]];
    let options = prop_oneof![
        6 => Just(vec![]),
        1 => prop::sample::select(rare.to_vec()).prop_map(|options| options.to_vec()),
    ];
    let about = (
        prop::bool::weighted(0.1),
        options,
        prop::bool::weighted(0.05),
        prop::option::weighted(0.2, any::<usize>()),
    )
        .prop_map(|(short, options, later, spoil)| About { short, options, later, spoil });
    (any::<usize>(), kind, from, len, about)
        .prop_map(|(pick, kind, from, len, about)| Send::Error { pick, kind, from, len, about })
        .boxed()
}

/// A connection of TCP or, less often, DCCP.
fn connect() -> BoxedStrategy<Operation> {
    let body = (body(), prop::bool::weighted(0.9)).prop_map(|(body, plain)| match plain {
        true => Body {
            flags: SYN,
            dccp: (REQUEST, body.dccp.1),
            sequence: Sequence::Off(0),
            ttl: 64,
            oddity: Oddity::None,
            ..body
        },
        false => body,
    });
    let protocol = prop_oneof![3 => Just(0usize), 1 => Just(3)];
    (near(), target(), protocol, body)
        .prop_map(|(near, target, protocol, body)| Operation::Connect {
            near,
            target,
            protocol,
            body,
        })
        .boxed()
}

fn burst() -> BoxedStrategy<Operation> {
    // Requesters 4,096 apart share their limit.
    let step = prop::sample::select(vec![0u32, 0, 1, 7, 4096]);
    let count = prop_oneof![12 => 1usize..20, 1 => 20usize..160];
    let port_step = prop::sample::select(vec![0u16, 1, 1, 256]);
    let ends = (prop::bool::weighted(0.4), 0..3 * INSIDE.len(), target());
    (ends, prop::bool::ANY, step, port_step, count, 0usize..7)
        .prop_map(|((outside, first, target), last, step, port_step, count, protocol)| {
            let ttl = if last { 1 } else { 64 };
            Operation::Burst(Burst {
                outside,
                first,
                ttl,
                step,
                port_step,
                count,
                target,
                protocol,
            })
        })
        .boxed()
}

fn forgery() -> BoxedStrategy<Operation> {
    let flags = prop_oneof![
        3 => Just(SYN),
        2 => prop::sample::select(vec![SYN | ACK, SYN | FIN, SYN | FIN | ACK]),
        3 => Just(FIN),
        2 => Just(FIN | ACK),
        4 => Just(RST),
        2 => Just(ACK),
    ];
    let jump = prop_oneof![
        3 => (-1i32..2).prop_map(Jump::Off),
        3 => (-1i32..3).prop_map(Jump::Lie),
        2 => (any::<bool>(), prop::sample::select(vec![0u8, 2, 14]), -2i32..3)
            .prop_map(|(ahead, shift, off)| Jump::Window(ahead, shift, off)),
    ];
    let forged =
        (any::<bool>(), flags, jump).prop_map(|(back, flags, jump)| Forged { back, flags, jump });
    let lie = prop_oneof![2 => 1i32..3000, 1 => any::<i32>()];
    (any::<usize>(), lie, prop::collection::vec(forged, 1..6))
        .prop_map(|(pick, lie, segments)| Operation::Forgery(Forgery { pick, lie, segments }))
        .boxed()
}

/// One or more changes of the pools.
fn pool_edits() -> BoxedStrategy<Operation> {
    let pool = 0usize..2;
    let ranges = prop::collection::vec((0u16..24, 0u16..20), 0..3);
    let edit = prop_oneof![
        4 => (pool.clone(), prop::collection::vec(any::<u8>(), 0..3))
            .prop_map(|(pool, places)| PoolEdit::Drain(pool, places)),
        2 => (pool.clone(), 1u8..30).prop_map(|(pool, off)| PoolEdit::Grow(pool, off)),
        2 => (pool.clone(), 0u8..3).prop_map(|(pool, left)| PoolEdit::Shrink(pool, left)),
        1 => Just(PoolEdit::Exchange),
        2 => (pool.clone(), ranges).prop_map(|(pool, ranges)| PoolEdit::Exclude(pool, ranges)),
        1 => (pool, -3i8..4, -3i8..4).prop_map(|(pool, a, b)| PoolEdit::Ports(pool, a, b)),
    ];
    prop::collection::vec(edit, 1..4).prop_map(Operation::Pools).boxed()
}

pub(crate) fn operation() -> impl Strategy<Value = Operation> {
    let tick = TICK.as_nanos() as i64;
    let off = move || prop::sample::select(vec![-tick, -1, 0, 1, tick - 1, tick]);
    let wait = prop_oneof![
        4 => (0u64..300_000_000).prop_map(Wait::Nanos),
        4 => off().prop_map(Wait::Next),
        4 => (0usize..9, off()).prop_map(|(index, off)| Wait::Timeout(index, off)),
        1 => (0u64..4).prop_map(Wait::Hours),
        1 => (0u64..500_000_000).prop_map(Wait::Back),
    ];
    prop_oneof![
        64 => prop::collection::vec(send(), 1..2).prop_map(Operation::Packets),
        14 => prop::collection::vec(send(), 2..12).prop_map(Operation::Packets),
        3 => prop::collection::vec(send(), 17..120).prop_map(Operation::Packets),
        8 => connect(),
        5 => burst(),
        8 => forgery(),
        32 => wait.prop_map(Operation::Wait),
        8 => (0u64..2_000_000_000).prop_map(Operation::Unnoticed),
        1 => any::<[u8; 32]>().prop_map(Operation::Restart),
        2 => (rules(), 0usize..3).prop_map(|(rules, realm)| Operation::Rules(rules, realm)),
        3 => other().prop_map(|other| Operation::Reconfigure(Box::new(other))),
        4 => pool_edits(),
        16 => ask().prop_map(Operation::Ask),
        3 => (0usize..3, any::<bool>()).prop_map(|(server, up)| Operation::Server(server, up)),
    ]
}

/// A request of a subscriber, mostly for an endpoint that other operations use.
fn ask() -> impl Strategy<Value = Ask> {
    let what = prop_oneof![5 => Just(What::Map), 2 => Just(What::Unmap), 3 => Just(What::Peer)];
    let ends = ((0usize..5, 0usize..8), (0usize..3, 0usize..7));
    let place = (0usize..5, 0usize..3);
    let port =
        prop_oneof![3 => Just(0u16), 3 => prop::sample::select(PORTS.to_vec()), 1 => Just(5351)];
    let wanted = (prop::option::weighted(0.3, 0u8..4), port);
    let lifetime = prop_oneof![1 => Just(0u64), 4 => 1u64..9000, 1 => 1u64..4_000_000];
    let filter = prop::option::weighted(0.2, (0u8..33, any::<bool>()));
    let flags = (prop::bool::weighted(0.3), 0u8..2, prop::bool::weighted(0.2));
    (what, ends, place, wanted, lifetime, filter, flags).prop_map(
        |(what, (near, far), (protocol, realm), wanted, lifetime, filter, flags)| {
            let (strict, nonce, replaces) = flags;
            let lifetime = if matches!(what, What::Map) { lifetime.max(1) } else { lifetime };
            Ask {
                what,
                near,
                far,
                protocol,
                realm,
                wanted,
                strict,
                lifetime,
                nonce,
                filter,
                replaces,
            }
        },
    )
}

/// Another configuration, of which one part or many are taken.
fn other() -> BoxedStrategy<Other> {
    let prefix = |address, len| Prefix::new(end(address, 0).address, len);
    let subscribers = prop::sample::select(vec![
        Config::default().subscribers,
        Config::default().subscribers,
        vec![],
        vec![prefix(INSIDE[0], 32)],
        vec![prefix(INSIDE[1], 31), prefix(INSIDE[3], 32)],
        vec![prefix(INSIDE[4], 24)],
        vec![prefix(INSIDE[0], 8), prefix(INSIDE[4], 32)],
        vec![prefix(POOL, 8)],
    ]);
    let config =
        (config(), realms::some_realms()).prop_map(|(config, all)| realms::add(config, all));
    (config, subscribers, prop::array::uniform8(prop::bool::weighted(0.4)))
        .prop_map(|(config, subscribers, parts)| Other { config, subscribers, parts })
        .boxed()
}
