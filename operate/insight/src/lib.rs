//! Explanations and captures of packets: `natgate trace`, `natgate capture`, and the stream of
//! events.
//!
//! [`packet`] reads the description of a packet; [`explanation`] gives the translator's explanation
//! a form for people and scripts, and [`reasons`] explains drop counters; [`filter`] reads the
//! filter of a capture, and [`pcapng`] writes the capture; [`api`] serves both at the control
//! socket, [`events`] the stream of events. The decision about a packet is the engine's
//! (`explain`), and copying packets is the gateway's (`capture`).
//!
//! ```
//! use natgate_engine::Side;
//! use natgate_insight::filter::CaptureRequest;
//! use natgate_insight::packet::PacketDescription;
//! use natgate_insight::reasons;
//!
//! let packet: PacketDescription = "udp 10.0.0.5:4000 > 192.0.2.1:53 from inside".parse()?;
//! assert_eq!((packet.packet.len(), packet.from), (28, Some(Side::Inside)));
//!
//! let subscriber = Some("10.0.0.0/24".to_owned());
//! let request = CaptureRequest { subscriber, seconds: Some(10), ..CaptureRequest::default() };
//! assert_eq!(request.duration()?.as_secs(), 10);
//! assert!(reasons::explanation("filtered").is_some());
//! # Ok::<(), String>(())
//! ```

#![forbid(unsafe_code)]

pub mod api;
pub mod events;
pub mod explanation;
pub mod filter;
pub mod packet;
pub mod pcapng;
pub mod reasons;
