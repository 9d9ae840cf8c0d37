//! NATV2-MIB (RFC 7659) by AgentX: a subagent of the machine's SNMP agent, such as net-snmp's snmpd, which
//! does all that SNMP itself takes (versions, communities, users, views).
//!
//! Shown are the tables of instances, protocols, pools and pool ranges (`tables`), and, if that is asked
//! for, those of subscribers and mappings (`long`), by pages. Told is when something has come to a
//! threshold. Everything is read-only: what the MIB lets be written is the configuration's. Objects that
//! natgate does not count are left out, as docs/metrics.md lists. The agent is a thread of its own that
//! may find nobody to connect to, and tries again then.

mod agent;
mod index;
mod long;
mod pdu;
mod pools;
mod tables;
mod watch;

pub use agent::{Agent, Reached, Sources, View};
pub use long::Rows;
pub use natgate_gateway::{Master, SnmpSettings};
pub use tables::{Oid, Value};
