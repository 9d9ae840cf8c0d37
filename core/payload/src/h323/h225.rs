//! Messages of H.225.0 (version 7, 12/2009), as far as natgate reads them: call signalling, and
//! RAS.
//!
//! Names are those of the recommendation. Extensions are listed with their numbers from 0 on, if
//! they hold endpoints, or what leads to endpoints.

use super::h245;
use super::per::{Role, Type, Value, may, must};
use super::types::{DIGITS, FLAG, LONG, NULL, OCTET, WORD, fixed};

/// {itu-t (0) recommendation (0) h (8) 2250 version (0)} and the number of the version.
const PROTOCOL_IDENTIFIER: Type = Type::Identifier(&[0, 8, 0x91, 0x4a, 0]);
const GUID: Type = fixed(16);
const IDENTIFIER: Type = Type::Text(16, 1, 128);

const H221_NON_STANDARD: Type = Type::Open(&[must(&OCTET), must(&OCTET), must(&WORD)], &[]);
const NON_STANDARD: Type = Type::Closed(&[
    must(&Type::Choice(&[&Type::Octets, &H221_NON_STANDARD], &[])),
    must(&Type::Octets),
]);

const IPV4: Type = Type::Endpoint;
const ADDRESS: Type = Type::Choice(
    &[
        &IPV4,
        &Type::Open(
            &[
                must(&fixed(4)),
                must(&WORD),
                must(&Type::List(&fixed(4))),
                must(&Type::Choice(&[NULL, NULL], &[])),
            ],
            &[],
        ),
        &Type::Closed(&[must(&fixed(6)), must(&fixed(4)), must(&fixed(2))]),
        &Type::Open(&[must(&fixed(16)), must(&WORD)], &[]),
        &fixed(16),
        &Type::Text(8, 1, 20),
        &NON_STANDARD,
    ],
    &[],
);

const H245_ADDRESS: Type = Type::For(Role::Control, &ADDRESS);
const SIGNALLING: Type = Type::For(Role::Signalling, &ADDRESS);
const RAS: Type = Type::For(Role::Ras, &ADDRESS);

const ALIAS: Type = Type::Choice(&[&DIGITS, &Type::Text(16, 1, 256)], &[]);
const ALIASES: Type = Type::List(&ALIAS);

/// A SEQUENCE of non-standard data, and of extensions without endpoints.
const INFO: Type = Type::Open(&[may(&NON_STANDARD)], &[]);

const SUPPORTED_PROTOCOLS: Type =
    Type::Choice(&[&NON_STANDARD, &INFO, &INFO, &INFO, &INFO, &INFO, &INFO, &INFO, &INFO], &[]);
const GATEWAY: Type =
    Type::Open(&[may(&Type::List(&SUPPORTED_PROTOCOLS)), may(&NON_STANDARD)], &[]);
const PRODUCT: Type = Type::Text(8, 1, 256);
const VENDOR: Type = Type::Open(&[must(&H221_NON_STANDARD), may(&PRODUCT), may(&PRODUCT)], &[]);
const ENDPOINT_TYPE: Type = Type::Open(
    &[
        may(&NON_STANDARD),
        may(&VENDOR),
        may(&INFO),
        may(&GATEWAY),
        may(&INFO),
        may(&INFO),
        must(FLAG),
        must(FLAG),
    ],
    &[],
);

const CALL_SERVICES: Type = Type::Open(
    &[
        must(FLAG),
        must(FLAG),
        must(FLAG),
        must(FLAG),
        must(FLAG),
        must(FLAG),
        must(FLAG),
        must(&Type::Open(&[must(FLAG), must(FLAG)], &[])),
    ],
    &[],
);
const CALL_TYPE: Type = Type::Choice(&[NULL, NULL, NULL, NULL], &[]);
const CALL_MODEL: Type = Type::Choice(&[NULL, NULL], &[]);

const FAST_START: Type = Type::List(&Type::Encoded(&h245::OPEN_LOGICAL_CHANNEL));
const TUNNEL: Type = Type::List(&Type::Encoded(&h245::MESSAGE));

const SETUP: Type = Type::Open(
    &[
        must(&PROTOCOL_IDENTIFIER),
        may(&H245_ADDRESS),
        may(&ALIASES),
        must(&ENDPOINT_TYPE),
        may(&ALIASES),
        may(&SIGNALLING),
        may(&ALIASES),
        may(&Type::List(&WORD)),
        must(FLAG),
        must(&GUID),
        must(&Type::Choice(&[NULL, NULL, NULL], &[])),
        may(&CALL_SERVICES),
        must(&CALL_TYPE),
    ],
    &[(0, &SIGNALLING), (6, &FAST_START), (24, &TUNNEL)],
);

/// CallProceeding, Alerting.
const PROCEEDING: Type = Type::Open(
    &[must(&PROTOCOL_IDENTIFIER), must(&ENDPOINT_TYPE), may(&H245_ADDRESS)],
    &[(4, &FAST_START)],
);

const CONNECT: Type = Type::Open(
    &[must(&PROTOCOL_IDENTIFIER), may(&H245_ADDRESS), must(&ENDPOINT_TYPE), must(&GUID)],
    &[(4, &FAST_START)],
);

const INFORMATION: Type = Type::Open(&[must(&PROTOCOL_IDENTIFIER)], &[(3, &FAST_START)]);

const RELEASE_REASON: Type =
    Type::Choice(&[NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL], &[]);
const RELEASE_COMPLETE: Type = Type::Open(&[must(&PROTOCOL_IDENTIFIER), may(&RELEASE_REASON)], &[]);

const FACILITY: Type = Type::Open(
    &[
        must(&PROTOCOL_IDENTIFIER),
        may(&SIGNALLING),
        may(&ALIASES),
        may(&GUID),
        must(&Type::Choice(&[NULL, NULL, NULL, NULL], &[])),
    ],
    &[(6, &H245_ADDRESS), (7, &FAST_START)],
);

/// A message that has tokens in its root is not read.
const PROGRESS: Type = Type::Open(
    &[
        must(&PROTOCOL_IDENTIFIER),
        must(&ENDPOINT_TYPE),
        may(&H245_ADDRESS),
        must(&Type::Open(&[must(&GUID)], &[])),
        may(&Type::Choice(&[&NON_STANDARD, NULL, &Type::Beyond, &Type::Beyond], &[])),
        may(&Type::Beyond),
        may(&Type::Beyond),
        may(&FAST_START),
    ],
    &[],
);

const BODY: Type = Type::Choice(
    &[&SETUP, &PROCEEDING, &CONNECT, &PROCEEDING, &INFORMATION, &RELEASE_COMPLETE, &FACILITY],
    &[(0, &PROGRESS)],
);
const UU_PDU: Type = Type::Open(&[must(&BODY), may(&NON_STANDARD)], &[(2, &TUNNEL)]);
const USER_DATA: Type = Type::Open(&[must(&OCTET), must(&Type::Text(8, 1, 131))], &[]);

/// H323-UserInformation: the element of a message of call signalling.
pub(super) static USER_INFORMATION: Type = Type::Open(&[must(&UU_PDU), may(&USER_DATA)], &[]);

const SEQUENCE_NUMBER: Type = Type::Noted(Value::Sequence, &Type::Number(65_535));
const TIME_TO_LIVE: Type = Type::Noted(Value::TimeToLive, &Type::Number((1 << 32) - 1));

const GATEKEEPER_REQUEST: Type = Type::Open(
    &[
        must(&SEQUENCE_NUMBER),
        must(&PROTOCOL_IDENTIFIER),
        may(&NON_STANDARD),
        must(&RAS),
        must(&ENDPOINT_TYPE),
        may(&IDENTIFIER),
        may(&CALL_SERVICES),
        may(&ALIASES),
    ],
    &[],
);
const GATEKEEPER_CONFIRM: Type = Type::Open(
    &[
        must(&SEQUENCE_NUMBER),
        must(&PROTOCOL_IDENTIFIER),
        may(&NON_STANDARD),
        may(&IDENTIFIER),
        must(&RAS),
    ],
    &[],
);
const REGISTRATION_REQUEST: Type = Type::Open(
    &[
        must(&SEQUENCE_NUMBER),
        must(&PROTOCOL_IDENTIFIER),
        may(&NON_STANDARD),
        must(FLAG),
        must(&Type::List(&SIGNALLING)),
        must(&Type::List(&RAS)),
        must(&ENDPOINT_TYPE),
        may(&ALIASES),
        may(&IDENTIFIER),
        must(&VENDOR),
    ],
    &[(1, &TIME_TO_LIVE)],
);
const REGISTRATION_CONFIRM: Type = Type::Open(
    &[
        must(&SEQUENCE_NUMBER),
        must(&PROTOCOL_IDENTIFIER),
        may(&NON_STANDARD),
        must(&Type::List(&SIGNALLING)),
        may(&ALIASES),
        may(&IDENTIFIER),
        must(&IDENTIFIER),
    ],
    &[(1, &TIME_TO_LIVE)],
);
const REGISTRATION_REJECT: Type = Type::Open(
    &[
        must(&SEQUENCE_NUMBER),
        must(&PROTOCOL_IDENTIFIER),
        may(&NON_STANDARD),
        must(&Type::Choice(&[NULL, NULL, NULL, NULL, &ALIASES, NULL, NULL, NULL], &[])),
        may(&IDENTIFIER),
    ],
    &[],
);
const UNREGISTRATION_REQUEST: Type = Type::Open(
    &[
        must(&SEQUENCE_NUMBER),
        must(&Type::List(&SIGNALLING)),
        may(&ALIASES),
        may(&NON_STANDARD),
        may(&IDENTIFIER),
    ],
    &[],
);
const ADMISSION_REQUEST: Type = Type::Open(
    &[
        must(&SEQUENCE_NUMBER),
        must(&CALL_TYPE),
        may(&CALL_MODEL),
        must(&IDENTIFIER),
        may(&ALIASES),
        may(&SIGNALLING),
        may(&ALIASES),
        must(&ALIASES),
        may(&SIGNALLING),
        must(&LONG),
        must(&WORD),
        may(&NON_STANDARD),
        may(&CALL_SERVICES),
        must(&GUID),
        must(FLAG),
        must(FLAG),
    ],
    &[],
);
const ADMISSION_CONFIRM: Type = Type::Open(
    &[
        must(&SEQUENCE_NUMBER),
        must(&LONG),
        must(&CALL_MODEL),
        must(&SIGNALLING),
        may(&Type::Number(65_535)),
        may(&NON_STANDARD),
    ],
    &[],
);
const LOCATION_REQUEST: Type = Type::Open(
    &[must(&SEQUENCE_NUMBER), may(&IDENTIFIER), must(&ALIASES), may(&NON_STANDARD), must(&RAS)],
    &[],
);
const LOCATION_CONFIRM: Type =
    Type::Open(&[must(&SEQUENCE_NUMBER), must(&SIGNALLING), must(&RAS), may(&NON_STANDARD)], &[]);
const INFO_REQUEST: Type =
    Type::Open(&[must(&SEQUENCE_NUMBER), must(&WORD), may(&NON_STANDARD), may(&RAS)], &[]);
/// A response that has calls is not read.
const INFO_RESPONSE: Type = Type::Open(
    &[
        may(&NON_STANDARD),
        must(&SEQUENCE_NUMBER),
        must(&ENDPOINT_TYPE),
        must(&IDENTIFIER),
        must(&RAS),
        must(&Type::List(&SIGNALLING)),
        may(&ALIASES),
        may(&Type::Beyond),
    ],
    &[],
);

/// Numbers of messages of RAS.
pub(super) mod ras {
    pub(in super::super) const GATEKEEPER_REQUEST: u32 = 0;
    pub(in super::super) const REGISTRATION_REQUEST: u32 = 3;
    pub(in super::super) const REGISTRATION_CONFIRM: u32 = 4;
    pub(in super::super) const REGISTRATION_REJECT: u32 = 5;
    pub(in super::super) const UNREGISTRATION_REQUEST: u32 = 6;
}

/// A message without endpoints: its content is not read.
const OTHER: &Type = &Type::Rest;

/// RasMessage.
pub(super) static RAS_MESSAGE: Type = Type::Choice(
    &[
        &GATEKEEPER_REQUEST,
        &GATEKEEPER_CONFIRM,
        OTHER,
        &REGISTRATION_REQUEST,
        &REGISTRATION_CONFIRM,
        &REGISTRATION_REJECT,
        &UNREGISTRATION_REQUEST,
        OTHER,
        OTHER,
        &ADMISSION_REQUEST,
        &ADMISSION_CONFIRM,
        OTHER,
        OTHER,
        OTHER,
        OTHER,
        OTHER,
        OTHER,
        OTHER,
        &LOCATION_REQUEST,
        &LOCATION_CONFIRM,
        OTHER,
        &INFO_REQUEST,
        &INFO_RESPONSE,
        OTHER,
        OTHER,
    ],
    &[],
);
