//! Messages of H.245 (version 13, 5/2006), as far as natgate reads them: the requests that open
//! logical channels, and their answers.
//!
//! Names are those of the recommendation. Messages that often share a packet with these are read to
//! their ends. All other messages pass unread.

use super::per::{Role, Type, may, must};
use super::types::{FLAG, LONG, NULL, OCTET, WORD, fixed};

const NON_STANDARD: Type = Type::Closed(&[
    must(&Type::ClosedChoice(&[
        &Type::Octets,
        &Type::Closed(&[must(&OCTET), must(&OCTET), must(&WORD)]),
    ])),
    must(&Type::Octets),
]);

/// UnicastAddress. The endpoint of the first alternative has an extension marker.
const UNICAST: Type = Type::Choice(
    &[
        &Type::Open(&[must(&Type::Endpoint)], &[]),
        &Type::Open(&[must(&fixed(6)), must(&fixed(4)), must(&fixed(2))], &[]),
        &Type::Open(&[must(&fixed(16)), must(&WORD)], &[]),
        &fixed(16),
        &Type::Open(
            &[
                must(&Type::ClosedChoice(&[NULL, NULL])),
                must(&fixed(4)),
                must(&WORD),
                must(&Type::List(&fixed(4))),
            ],
            &[],
        ),
    ],
    &[],
);
const MULTICAST: Type = Type::Choice(
    &[
        &Type::Open(&[must(&fixed(4)), must(&WORD)], &[]),
        &Type::Open(&[must(&fixed(16)), must(&WORD)], &[]),
    ],
    &[],
);
const ADDRESS: Type = Type::Choice(&[&UNICAST, &MULTICAST], &[]);

const MEDIA: Type = Type::For(Role::Media, &ADDRESS);
const MEDIA_CONTROL: Type = Type::For(Role::MediaControl, &ADDRESS);

/// Frames of audio in a packet.
const FRAMES: Type = Type::Number(256);

const VIDEO: Type = Type::Choice(
    &[
        &NON_STANDARD,
        // H.261
        &Type::Open(
            &[
                may(&Type::Number(4)),
                may(&Type::Number(4)),
                must(FLAG),
                must(&Type::Number(19_200)),
                must(FLAG),
            ],
            &[],
        ),
        // H.262
        &Type::Open(
            &[
                must(FLAG),
                must(FLAG),
                must(FLAG),
                must(FLAG),
                must(FLAG),
                must(FLAG),
                must(FLAG),
                must(FLAG),
                must(FLAG),
                must(FLAG),
                must(FLAG),
                may(&Type::Number(1 << 30)),
                may(&Type::Number(1 << 18)),
                may(&Type::Number(1 << 14)),
                may(&Type::Number(1 << 14)),
                may(&Type::Number(16)),
                may(&LONG),
            ],
            &[],
        ),
        // H.263
        &Type::Open(
            &[
                may(&Type::Number(32)),
                may(&Type::Number(32)),
                may(&Type::Number(32)),
                may(&Type::Number(32)),
                may(&Type::Number(32)),
                must(&Type::Number(192_400)),
                must(FLAG),
                must(FLAG),
                must(FLAG),
                must(FLAG),
                must(FLAG),
                may(&Type::Number(1 << 19)),
                may(&WORD),
            ],
            &[],
        ),
        // ISO/IEC 11172-2
        &Type::Open(
            &[
                must(FLAG),
                may(&Type::Number(1 << 30)),
                may(&Type::Number(1 << 18)),
                may(&Type::Number(1 << 14)),
                may(&Type::Number(1 << 14)),
                may(&Type::Number(16)),
                may(&LONG),
            ],
            &[],
        ),
    ],
    &[],
);

const AUDIO: Type = Type::Choice(
    &[
        &NON_STANDARD,
        &FRAMES,
        &FRAMES,
        &FRAMES,
        &FRAMES,
        &FRAMES,
        &FRAMES,
        &FRAMES,
        // G.723.1
        &Type::Closed(&[must(&FRAMES), must(FLAG)]),
        &FRAMES,
        &FRAMES,
        &FRAMES,
        // ISO/IEC 11172-3: eight flags and a rate.
        &Type::Open(&[must(&Type::Text(1, 8, 8)), must(&Type::Number(448))], &[]),
        // ISO/IEC 13818-3: twenty flags and a rate.
        &Type::Beyond,
    ],
    &[],
);

const DATA_PROTOCOL: Type = Type::Choice(&[&NON_STANDARD, NULL, NULL, NULL, NULL, NULL, NULL], &[]);
const DATA: Type = Type::Open(
    &[
        must(&Type::Choice(
            &[
                &NON_STANDARD,
                &DATA_PROTOCOL,
                &DATA_PROTOCOL,
                &DATA_PROTOCOL,
                &Type::Beyond,
                &DATA_PROTOCOL,
                &DATA_PROTOCOL,
                &Type::Closed(&[must(&DATA_PROTOCOL), must(&Type::Octets)]),
                NULL,
                &DATA_PROTOCOL,
            ],
            &[],
        )),
        must(&LONG),
    ],
    &[],
);

const DATA_TYPE: Type = Type::Choice(
    &[&NON_STANDARD, NULL, &VIDEO, &AUDIO, &DATA, &Type::Choice(&[&NON_STANDARD, NULL], &[])],
    &[],
);

const LABEL: Type = Type::Open(&[must(&Type::Number(193)), must(&Type::Number(193))], &[]);

/// H2250LogicalChannelParameters.
const CHANNEL: Type = Type::Together(&Type::Open(
    &[
        may(&Type::List(&NON_STANDARD)),
        must(&OCTET),
        may(&Type::Number(255)),
        may(&MEDIA),
        may(FLAG),
        may(&MEDIA_CONTROL),
        may(FLAG),
        may(FLAG),
        may(&LABEL),
        may(&Type::Number(32)),
        may(&Type::Choice(&[NULL], &[])),
    ],
    &[],
));

/// H2250LogicalChannelAckParameters.
const CHANNEL_ACK: Type = Type::Together(&Type::Open(
    &[
        may(&Type::List(&NON_STANDARD)),
        may(&Type::Number(255)),
        may(&MEDIA),
        may(&MEDIA_CONTROL),
        may(&Type::Number(32)),
    ],
    &[],
));

const CHANNEL_NUMBER: Type = Type::Number(65_535);

/// Parameters of other multiplexes than that of H.225.0.
const OTHER: &Type = &Type::Beyond;

/// OpenLogicalChannel.
pub(super) const OPEN_LOGICAL_CHANNEL: Type = Type::Open(
    &[
        must(&CHANNEL_NUMBER),
        must(&Type::Open(
            &[
                may(&WORD),
                must(&DATA_TYPE),
                must(&Type::Choice(&[OTHER, OTHER, OTHER], &[(0, &CHANNEL)])),
            ],
            &[],
        )),
        may(&Type::Open(
            &[must(&DATA_TYPE), may(&Type::Choice(&[OTHER, OTHER], &[(0, &CHANNEL)]))],
            &[],
        )),
    ],
    &[],
);

const OPEN_LOGICAL_CHANNEL_ACK: Type = Type::Open(
    &[
        must(&CHANNEL_NUMBER),
        may(&Type::Open(
            &[must(&CHANNEL_NUMBER), may(&WORD), may(&Type::Choice(&[OTHER], &[(0, &CHANNEL)]))],
            &[],
        )),
    ],
    &[(1, &Type::Choice(&[&CHANNEL_ACK], &[]))],
);

/// A message that passes unread.
const PASSES: &Type = &Type::Rest;

const SEQUENCE_NUMBER: Type = Type::Number(256);
const MASTER_SLAVE_DETERMINATION: Type =
    Type::Open(&[must(&Type::Number(256)), must(&Type::Number(1 << 24))], &[]);
const MASTER_SLAVE_DETERMINATION_ACK: Type =
    Type::Open(&[must(&Type::ClosedChoice(&[NULL, NULL]))], &[]);
const TERMINAL_CAPABILITY_SET_ACK: Type = Type::Open(&[must(&SEQUENCE_NUMBER)], &[]);

const REQUEST: Type = Type::Choice(
    &[
        PASSES,
        &MASTER_SLAVE_DETERMINATION,
        PASSES,
        &OPEN_LOGICAL_CHANNEL,
        PASSES,
        PASSES,
        PASSES,
        PASSES,
        PASSES,
        PASSES,
        PASSES,
    ],
    &[],
);

const RESPONSE: Type = Type::Choice(
    &[
        PASSES,
        &MASTER_SLAVE_DETERMINATION_ACK,
        PASSES,
        &TERMINAL_CAPABILITY_SET_ACK,
        PASSES,
        &OPEN_LOGICAL_CHANNEL_ACK,
        PASSES,
        PASSES,
        PASSES,
        PASSES,
        PASSES,
        PASSES,
        PASSES,
        PASSES,
        PASSES,
        PASSES,
        PASSES,
        PASSES,
        PASSES,
    ],
    &[],
);

/// MultimediaSystemControlMessage.
pub(super) const MESSAGE: Type = Type::Choice(&[&REQUEST, &RESPONSE, PASSES, PASSES], &[]);
