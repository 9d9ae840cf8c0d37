//! Options: the list after the fields of an opcode (RFC 6887 section 7.3), and the known options:
//! THIRD_PARTY, PREFER_FAILURE, FILTER (section 13) and PORT_SET (RFC 7753).

use crate::message::{Fields, Nonce, unmapped};
use crate::{Answer, ResultCode};
use arrayvec::ArrayVec;
use core::net::Ipv4Addr;

/// Most filters of a mapping.
pub const MOST_FILTERS: usize = 8;

const THIRD_PARTY: u8 = 1;
const PREFER_FAILURE: u8 = 2;
const FILTER: u8 = 3;
const PORT_SET: u8 = 130;
/// Codes from this one on may be ignored.
const OPTIONAL: u8 = 128;

/// Bytes before an option's contents.
const HEAD: usize = 4;

/// Remote endpoints that may send packets to a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The remote address, as seen from inside; bits beyond the prefix are zero.
    pub address: Ipv4Addr,
    /// Length of the prefix in bits, at most 32.
    pub prefix_len: u8,
    /// The remote port; 0: any.
    pub port: u16,
}

/// The filters of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// True if the present filters of the mapping are removed first.
    pub replace: bool,
    /// Filters that are added.
    pub add: ArrayVec<Filter, MOST_FILTERS>,
}

/// The options of a request, after reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) third_party: Option<Ipv4Addr>,
    pub(crate) prefer_failure: bool,
    pub(crate) filters: Option<Filters>,
    /// Number of ports, and the first internal port.
    pub(crate) port_set: Option<(u16, u16)>,
}

/// One option as it stands in a message.
#[derive(Clone, Copy, Debug)]
struct RawOption<'m> {
    code: u8,
    contents: &'m [u8],
    /// The option with its head, filled up to four bytes.
    whole: &'m [u8],
}

/// The options in the rest of a message; `None` once they cannot be told apart any more.
#[derive(Clone, Debug)]
struct List<'m>(&'m [u8]);

impl<'m> Iterator for List<'m> {
    type Item = Option<RawOption<'m>>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.0;
        if rest.is_empty() {
            return None;
        }
        let fields = Fields(rest);
        let len = usize::from(fields.short(2));
        let end = HEAD + len.next_multiple_of(4);
        let found = rest.split_at_checked(end).map(|(whole, after)| {
            self.0 = after;
            RawOption { code: fields.byte(0), contents: &whole[HEAD..HEAD + len], whole }
        });
        if found.is_none() {
            self.0 = &[];
        }
        Some(found)
    }
}

/// Facts about a request that decide which options it may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    pub(crate) is_map: bool,
    pub(crate) is_peer: bool,
    /// True if the request asks for a mapping, and does not give one back.
    pub(crate) creates: bool,
    /// The address that the request comes from.
    pub(crate) client: Ipv4Addr,
    /// True if the client may speak for others.
    pub(crate) may_speak_for_others: bool,
    pub(crate) external_port: u16,
}

/// Reads the options of a request, in order.
//= rfc6887#section-7.3-order
pub(crate) fn read(bytes: &[u8], context: Context) -> Result<Options, ResultCode> {
    // A list that cannot be split into options is refused before any option is judged.
    //= rfc6887#section-7.3-structure
    if List(bytes).any(|found| found.is_none()) {
        return Err(ResultCode::MalformedOption);
    }
    let mut options = Options::default();
    for found in List(bytes).flatten() {
        match found.code {
            THIRD_PARTY => options.read_third_party(found.contents, context)?,
            PREFER_FAILURE => options.read_prefer_failure(found.contents, context)?,
            FILTER => options.read_filter(found.contents, context)?,
            PORT_SET if context.is_map => options.read_port_set(found.contents)?,
            //= rfc6887#section-7.3-optional
            OPTIONAL.. => {}
            //= rfc6887#section-7.3-mandatory
            _ => return Err(ResultCode::UnsupportedOption),
        }
    }
    //= rfc7753#section-4.2-prefer-failure
    if options.port_set.is_some() && options.prefer_failure {
        return Err(ResultCode::MalformedOption);
    }
    Ok(options)
}

impl Options {
    fn read_third_party(&mut self, contents: &[u8], context: Context) -> Result<(), ResultCode> {
        if !context.is_map && !context.is_peer {
            return Err(ResultCode::MalformedOption);
        }
        //= rfc6887#section-13.1-prohibited
        //= rfc6887#section-13.1-unauthorized
        if !context.may_speak_for_others {
            return Err(ResultCode::UnsupportedOption);
        }
        //= rfc6887#section-7.3-once
        //= rfc6887#section-7.3-contents
        let whole = <[u8; 16]>::try_from(contents).ok().filter(|_| self.third_party.is_none());
        let host = whole.and_then(unmapped).ok_or(ResultCode::MalformedOption)?;
        //= rfc6887#section-13.1-same
        if host == context.client {
            return Err(ResultCode::MalformedRequest);
        }
        self.third_party = Some(host);
        Ok(())
    }

    fn read_prefer_failure(&mut self, contents: &[u8], context: Context) -> Result<(), ResultCode> {
        //= rfc6887#section-12.1-prefer-failure
        if context.is_peer {
            return Err(ResultCode::MalformedRequest);
        }
        let is_once = !core::mem::replace(&mut self.prefer_failure, true);
        //= rfc6887#section-13.2-port
        //= rfc6887#section-11.3-senseless
        let makes_sense = context.is_map && context.creates && context.external_port != 0;
        match makes_sense && is_once && contents.is_empty() {
            true => Ok(()),
            false => Err(ResultCode::MalformedOption),
        }
    }

    fn read_filter(&mut self, contents: &[u8], context: Context) -> Result<(), ResultCode> {
        //= rfc6887#section-13.3-delete
        //= rfc6887#section-7.3-contents
        if !context.is_map || !context.creates || contents.len() != 20 {
            return Err(ResultCode::MalformedOption);
        }
        let fields = Fields(contents);
        let (prefix_len, port) = (fields.byte(1), fields.short(2));
        let filters = self.filters.get_or_insert_default();
        //= rfc6887#section-13.3-remove
        if prefix_len == 0 {
            *filters = Filters { replace: true, ..Filters::default() };
            return Ok(());
        }
        //= rfc6887#section-13.3-prefix
        let remote = unmapped(fields.bytes(4)).filter(|_| (96..=128).contains(&prefix_len));
        let remote = remote.ok_or(ResultCode::MalformedOption)?;
        let prefix_len = prefix_len - 96;
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix_len)).unwrap_or(0);
        let address = Ipv4Addr::from_bits(remote.to_bits() & mask);
        let added = filters.add.try_push(Filter { address, prefix_len, port });
        //= rfc6887#section-13.3-limit
        added.map_err(|_| ResultCode::ExcessiveRemotePeers)
    }

    fn read_port_set(&mut self, contents: &[u8]) -> Result<(), ResultCode> {
        let fields = Fields(contents);
        let (size, first) = (fields.short(0), fields.short(2));
        //= rfc7753#section-4.2-once
        //= rfc7753#section-4.2-size
        if contents.len() != 5 || self.port_set.is_some() || size == 0 {
            return Err(ResultCode::MalformedOption);
        }
        self.port_set = Some((size, first));
        Ok(())
    }
}

/// Repeats in an answer those options of a request that were processed. A port set is repeated as
/// it was granted: `ports` from internal port `first` on.
//= rfc6887#section-7.3-answer
pub(crate) fn write(
    answer: &mut Answer,
    request: &[u8],
    (first, ports): (u16, u16),
) -> Result<(), ResultCode> {
    let processed = List(request).flatten().filter(|found| found.code <= FILTER);
    for found in processed {
        let at = answer.len();
        append(answer, found.whole)?;
        // Bits that mean nothing are sent as zeros, whatever the request has there.
        //= rfc6887#section-7.3-reserved
        answer[at + 1] = 0;
        if found.code == FILTER {
            answer[at + HEAD] = 0;
        }
    }
    let set = List(request).flatten().find(|found| found.code == PORT_SET);
    //= rfc7753#section-4.2-single
    //= rfc7753#section-4.2-first
    if let Some(set) = set.filter(|_| ports > 1) {
        let parity = Fields(set.contents).byte(4) & 1;
        let [size, first] = [ports, first].map(u16::to_be_bytes);
        append(
            answer,
            &[PORT_SET, 0, 0, 5, size[0], size[1], first[0], first[1], parity, 0, 0, 0],
        )?;
    }
    Ok(())
}

fn append(answer: &mut Answer, bytes: &[u8]) -> Result<(), ResultCode> {
    answer.try_extend_from_slice(bytes).map_err(|_| ResultCode::MalformedRequest)
}

/// Nonce of NAT-PMP's mappings: the protocol has none.
pub(crate) const NO_NONCE: Nonce = [0; 12];
