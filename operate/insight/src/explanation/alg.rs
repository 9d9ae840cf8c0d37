//! The step of an explanation about application-level gateways: edits, expectations, and the
//! reasons why not.

use natgate_gateway::{AlgExplained, AlgFlowState, AlgKind, AlgPlace, AlgReason};
use natgate_logs::protocol;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fmt::Write;
use std::net::SocketAddrV4;

/// The step, as an object with a sentence.
pub(super) fn step(told: &AlgExplained) -> Value {
    let (flow, left) = match told.flow {
        AlgFlowState::Known => ("known", None),
        AlgFlowState::Begins => ("begins", None),
        AlgFlowState::Unknown => ("unknown", None),
        AlgFlowState::LeftOut => ("left_out", None),
        AlgFlowState::Left(reason) => ("left", Some(reason.name())),
        AlgFlowState::Call => ("call", None),
    };
    let place = told.place.map(|place| match place {
        AlgPlace::Repeated => "repeated",
        AlgPlace::Next => "next",
        AlgPlace::Early => "early",
    });
    let edits = told.edits.iter().map(|edit| {
        let [old, new] = [&edit.old, &edit.new].map(|bytes| shown(told, bytes));
        json!({ "old": old, "new": new })
    });
    let expectations = told.opened.iter().map(|opened| {
        let wanted = opened.expectation;
        json!({
            "protocol": protocol(wanted.protocol),
            "internal": wanted.internal.to_string(),
            "external": external(opened.external),
            "remote": wanted.remote.map(|remote| match wanted.remote_port {
                0 => remote.to_string(),
                port => format!("{remote}:{port}"),
            }),
            "lifetime_s": wanted.lifetime,
            "once": wanted.uses == natgate_gateway::AlgUses::Once,
        })
    });
    json!({
        "step": "alg",
        "alg": told.kind.name(),
        "flow": flow,
        "left": left,
        "place": place,
        "edits": edits.collect::<Vec<_>>(),
        "expectations": expectations.collect::<Vec<_>>(),
        "refused": told.refused.iter().map(|reason| reason.name()).collect::<Vec<_>>(),
        "waiting": told.waiting,
        "text": sentence(told),
    })
}

/// Bytes of an edit as text. Those of PPTP are a Call ID, and those of H.323 an endpoint; a number
/// that would be drawn is 0.
fn shown<'b>(told: &AlgExplained, bytes: &'b [u8]) -> Cow<'b, str> {
    match (told.kind, bytes) {
        (AlgKind::Pptp, [0, 0]) => Cow::Borrowed("DRAWN"),
        (AlgKind::Pptp, [high, low]) => u16::from_be_bytes([*high, *low]).to_string().into(),
        (AlgKind::H323, &[a, b, c, d, high, low]) => {
            let port = u16::from_be_bytes([high, low]);
            external(SocketAddrV4::new([a, b, c, d].into(), port)).into()
        }
        _ => String::from_utf8_lossy(bytes),
    }
}

/// An external endpoint; what would be drawn has the value 0.
fn external(end: SocketAddrV4) -> String {
    match (end.ip().is_unspecified(), end.port()) {
        (true, 0) => "DRAWN".to_owned(),
        (true, port) => format!("DRAWN:{port}"),
        (false, 0) => format!("{}:DRAWN", end.ip()),
        (false, _) => end.to_string(),
    }
}

fn sentence(told: &AlgExplained) -> String {
    let alg = told.kind.name();
    let mut text = match told.flow {
        AlgFlowState::Known => format!("it belongs to a control flow of {alg}"),
        AlgFlowState::Begins => format!("it would begin a control flow of {alg}"),
        AlgFlowState::Unknown => format!(
            "it looks like {alg}, but its flow was not read from the start, so it passes unread; \
             otherwise"
        ),
        AlgFlowState::LeftOut => {
            format!("it looks like {alg}, but its rule leaves {alg} out, so it passes unread")
        }
        AlgFlowState::Left(reason) => format!(
            "its control flow was of {alg} until the reason {}, so it passes unread",
            reason.name()
        ),
        AlgFlowState::Call => format!("it belongs to a call of {alg}, and goes past the mappings"),
    };
    match told.place {
        Some(AlgPlace::Early) => text += ", before its turn: bytes are missing",
        Some(AlgPlace::Repeated) => text += ", and repeats bytes",
        Some(AlgPlace::Next) | None => {}
    }
    // A string cannot fail to be written.
    for edit in &told.edits {
        let [old, new] = [&edit.old, &edit.new].map(|bytes| match told.kind {
            AlgKind::Pptp | AlgKind::H323 => shown(told, bytes).into_owned(),
            _ => bytes.escape_ascii().to_string(),
        });
        let _ = write!(text, "; \"{old}\" would become \"{new}\"");
    }
    for opened in &told.opened {
        let wanted = opened.expectation;
        let _ = write!(
            text,
            "; it would expect {} from {} to {} at {} for {} s",
            protocol(wanted.protocol),
            wanted.remote.map_or("any host".to_owned(), |remote| remote.to_string()),
            wanted.internal,
            external(opened.external),
            wanted.lifetime,
        );
    }
    let is_told = |reason: &&AlgReason| ![AlgReason::NoStart, AlgReason::Rule].contains(reason);
    for reason in told.refused.iter().filter(is_told) {
        let _ = write!(text, "; refused: {}", reason.name());
    }
    if told.waiting > 0 {
        let _ = write!(text, "; {} bytes would wait for the end of their message", told.waiting);
    }
    text
}
