//! NATV2-MIB (RFC 7659) by AgentX: a subagent of the machine's SNMP agent, such as net-snmp's
//! snmpd. The agent speaks SNMP (versions, communities, users, views).
//!
//! The subagent has the tables of instances, protocols, pools and pool ranges (`tables`), and, if
//! the settings ask for them, the tables of subscribers and mappings (`long_tables`), by pages. It
//! sends notifications when a threshold is reached (`notifications`). Everything is read-only:
//! writable objects of the MIB belong to the configuration. docs/metrics.md lists the objects that
//! are left out. The subagent is a thread of its own; it tries again if it cannot connect.

mod agent;
mod index;
mod long_tables;
mod notifications;
mod pdu;
mod pools;
mod tables;

pub use agent::{Agent, Reached, Sources, View};
pub use long_tables::Rows;
pub use natgate_gateway::{Master, SnmpSettings};
pub use tables::{Oid, Value};
