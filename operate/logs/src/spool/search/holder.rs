//! The holder of an external endpoint, as an answer names it.

use serde::Serialize;
use std::net::Ipv4Addr;

/// Holder of an external endpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Holder {
    /// Address or prefix of the subscriber.
    pub subscriber: String,
    /// Realm of the subscriber, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realm: Option<String>,
    /// Protocol; `None` for all protocols.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Internal endpoint, for a mapping or a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal: Option<String>,
    /// External address.
    pub external: Ipv4Addr,
    /// Port, or block of ports.
    pub ports: String,
    /// Remote endpoint of a session, if the log has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// Begin of the holding, seconds since 1970; `None` if it is before the log begins.
    pub since: Option<f64>,
    /// End of the holding; `None` if it lasts as far as the log goes.
    pub until: Option<f64>,
    /// Last time that the log covers before a start of one of several gateways, if the gateway
    /// stopped before the end of the holding. Another gateway may have continued it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<f64>,
    /// Events missing in the log between the begin and the time in question. If there are any, the
    /// answer may be wrong.
    #[serde(skip_serializing_if = "is_zero")]
    pub missing: u64,
}

/// What the log of one of several gateways says beside the holders of a time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Traces {
    /// Holders that had the endpoint when the gateway stopped before the time. Another gateway may
    /// have continued them.
    pub cut: Vec<Holder>,
    /// The latest holders whose ends the log has before the time, and the first ones of those that
    /// the gateway continued after the time.
    pub ended: Vec<Holder>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
