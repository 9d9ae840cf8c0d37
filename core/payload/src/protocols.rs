//! The state of a flow's protocol, whichever it is.

use crate::dns::{self, Dns};
use crate::ftp::Ftp;
use crate::h323::H323;
use crate::irc::Irc;
use crate::kind::Kind;
use crate::message::{Context, Protocol, Step};
use crate::pptp::Pptp;
use crate::rtsp::Rtsp;
use crate::saved::Saved;
use crate::sip::Sip;
use crate::tftp::Tftp;
use alloc::vec::Vec;

/// Time that a flow of datagrams lasts without packets, seconds: longer than the engine's sessions,
/// which end a flow in the normal case.
const DATAGRAMS: u32 = 3_700;

/// State of a protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Alg {
    Ftp(Ftp),
    Tftp(Tftp),
    Sip(Sip),
    Rtsp(Rtsp),
    Irc(Irc),
    Dns(Dns),
    Pptp(Pptp),
    H323(H323),
}

impl Alg {
    pub(crate) fn new(kind: Kind) -> Self {
        match kind {
            Kind::Ftp => Self::Ftp(Ftp::default()),
            Kind::Tftp => Self::Tftp(Tftp),
            Kind::Sip => Self::Sip(Sip::default()),
            Kind::Rtsp => Self::Rtsp(Rtsp::default()),
            Kind::Irc => Self::Irc(Irc::default()),
            Kind::Dns => Self::Dns(Dns::default()),
            Kind::Pptp => Self::Pptp(Pptp),
            Kind::H323 => Self::H323(H323::default()),
        }
    }

    /// The state behind the first messages of both sides.
    pub(crate) fn begun(kind: Kind) -> Self {
        match kind {
            Kind::Ftp => Self::Ftp(Ftp::greeted()),
            Kind::Irc => Self::Irc(Irc::welcome()),
            Kind::Tftp | Kind::Sip | Kind::Rtsp | Kind::Dns | Kind::Pptp | Kind::H323 => {
                Self::new(kind)
            }
        }
    }

    /// Appends the bytes of the state, without the kind.
    pub(crate) fn save(&self, to: &mut Vec<u8>) {
        match self {
            Self::Ftp(ftp) => ftp.save(to),
            Self::Sip(sip) => sip.save(to),
            Self::Rtsp(rtsp) => rtsp.save(to),
            Self::Irc(irc) => irc.save(to),
            Self::Dns(dns) => dns.save(to),
            Self::H323(h323) => h323.save(to),
            Self::Tftp(Tftp) | Self::Pptp(Pptp) => {}
        }
    }

    /// Reads the state of a protocol. `None`: the bytes mean nothing.
    pub(crate) fn restore(kind: Kind, from: &mut &[u8]) -> Option<Self> {
        match kind {
            Kind::Ftp => Ftp::restore(from).filter(Ftp::is_sound).map(Self::Ftp),
            Kind::Sip => Sip::restore(from).filter(Sip::is_sound).map(Self::Sip),
            Kind::Rtsp => Rtsp::restore(from).filter(Rtsp::is_sound).map(Self::Rtsp),
            Kind::Irc => Irc::restore(from).map(Self::Irc),
            Kind::Dns => Dns::restore(from).map(Self::Dns),
            Kind::H323 => H323::restore(from).filter(H323::is_sound).map(Self::H323),
            Kind::Tftp | Kind::Pptp => Some(Self::new(kind)),
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Ftp(_) => Kind::Ftp,
            Self::Tftp(_) => Kind::Tftp,
            Self::Sip(_) => Kind::Sip,
            Self::Rtsp(_) => Kind::Rtsp,
            Self::Irc(_) => Kind::Irc,
            Self::Dns(_) => Kind::Dns,
            Self::Pptp(_) => Kind::Pptp,
            Self::H323(_) => Kind::H323,
        }
    }

    /// Time that a flow of datagrams lasts without packets, seconds.
    pub(crate) fn patience(&self) -> u32 {
        match self {
            Self::Dns(_) => dns::PATIENCE,
            _ => DATAGRAMS,
        }
    }

    /// True if nothing has to be remembered of a flow of datagrams.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self, Self::Dns(dns) if dns.is_idle())
    }
}

impl Protocol for Alg {
    fn read(&mut self, bytes: &[u8], context: &mut Context<'_>) -> Step {
        match self {
            Self::Ftp(ftp) => ftp.read(bytes, context),
            Self::Tftp(tftp) => tftp.read(bytes, context),
            Self::Sip(sip) => sip.read(bytes, context),
            Self::Rtsp(rtsp) => rtsp.read(bytes, context),
            Self::Irc(irc) => irc.read(bytes, context),
            Self::Dns(dns) => dns.read(bytes, context),
            Self::Pptp(pptp) => pptp.read(bytes, context),
            Self::H323(h323) => h323.read(bytes, context),
        }
    }
}
