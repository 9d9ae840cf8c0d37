//! Options: the list after the fields of an opcode (RFC 6887 section 7.3), and the known options:
//! THIRD_PARTY, PREFER_FAILURE, FILTER (section 13), PORT_SET (RFC 7753) and PREFIX64 (RFC 7225).

use crate::message::{Fields, Nonce, address};
use crate::prefix64::{self, Prefix64};
use crate::{Answer, ResultCode};
use arrayvec::ArrayVec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most filters of a mapping.
pub const MOST_FILTERS: usize = 8;

const THIRD_PARTY: u8 = 1;
const PREFER_FAILURE: u8 = 2;
const FILTER: u8 = 3;
const PREFIX64: u8 = 129;
const PORT_SET: u8 = 130;
/// Codes from this one on may be ignored.
const OPTIONAL: u8 = 128;

/// Bytes before an option's contents.
const HEAD: usize = 4;

/// Remote endpoints that may send packets to a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The remote address, as seen from inside; bits beyond the prefix are zero. For a host of IPv4
    /// it is of IPv4; a host of IPv6 may name the remote host's IPv4 address, too.
    pub address: IpAddr,
    /// Length of the prefix in bits, at most 32 or 128.
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
    pub(crate) third_party: Option<IpAddr>,
    pub(crate) prefer_failure: bool,
    pub(crate) filters: Option<Filters>,
    /// Number of ports, and the first internal port.
    pub(crate) port_set: Option<(u16, u16)>,
    /// True if the client asks for the prefixes of the NAT64.
    pub(crate) prefix64: bool,
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
    pub(crate) client: IpAddr,
    /// True if the client may speak for others.
    pub(crate) may_speak_for_others: bool,
    /// True if a NAT64 translates for the client.
    pub(crate) has_prefixes: bool,
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
            PREFIX64 if context.has_prefixes && !context.is_peer => {
                options.read_prefix64(found.contents)?;
            }
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
        let host = whole.map(address).ok_or(ResultCode::MalformedOption)?;
        //= rfc6887#section-13.1-same
        if host == context.client {
            return Err(ResultCode::MalformedRequest);
        }
        if host.is_ipv4() != context.client.is_ipv4() {
            return Err(ResultCode::MalformedOption);
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
        let remote = remote_prefix(fields.bytes(4), prefix_len);
        let (address, prefix_len) = remote.ok_or(ResultCode::MalformedOption)?;
        if address.is_ipv6() && context.client.is_ipv4() {
            return Err(ResultCode::MalformedOption);
        }
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

    fn read_prefix64(&mut self, contents: &[u8]) -> Result<(), ResultCode> {
        //= rfc7225#section-4.1-once
        let is_once = !core::mem::replace(&mut self.prefix64, true);
        match is_once && prefix64::is_well_formed(contents) {
            true => Ok(()),
            false => Err(ResultCode::MalformedOption),
        }
    }
}

/// The remote address of a filter without the bits behind its prefix, and the length of the prefix.
//= rfc6887#section-13.3-prefix
fn remote_prefix(bytes: [u8; 16], len: u8) -> Option<(IpAddr, u8)> {
    Some(match address(bytes) {
        IpAddr::V4(remote) => {
            let len = len.checked_sub(96).filter(|len| *len <= 32)?;
            let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            (Ipv4Addr::from_bits(remote.to_bits() & mask).into(), len)
        }
        IpAddr::V6(remote) => {
            let mask = u128::MAX.checked_shl(128_u32.checked_sub(len.into())?).unwrap_or(0);
            (Ipv6Addr::from_bits(remote.to_bits() & mask).into(), len)
        }
    })
}

/// Repeats in an answer those options of a request that were processed. A port set is repeated as
/// it was granted: `ports` from internal port `first` on. A question for the prefixes of the NAT64
/// is answered with these prefixes.
//= rfc6887#section-7.3-answer
pub(crate) fn write(
    answer: &mut Answer,
    request: &[u8],
    (first, ports): (u16, u16),
    prefixes: &[Prefix64],
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
    if List(request).flatten().any(|found| found.code == PREFIX64) {
        write_prefixes(answer, prefixes);
    }
    Ok(())
}

/// Writes an option for each prefix of the NAT64, as many as fit the message.
//= rfc7225#section-4.1-response
//= rfc7225#section-4.2-multiple
//= rfc7225#section-4.2-none
pub(crate) fn write_prefixes(answer: &mut Answer, prefixes: &[Prefix64]) {
    for prefix in prefixes {
        let contents = prefix.contents();
        let mut option = [0; HEAD + prefix64::LEN.next_multiple_of(4)];
        option[..HEAD].copy_from_slice(&[PREFIX64, 0, 0, prefix64::LEN as u8]);
        option[HEAD..HEAD + prefix64::LEN].copy_from_slice(&contents);
        if append(answer, &option).is_err() {
            break;
        }
    }
}

fn append(answer: &mut Answer, bytes: &[u8]) -> Result<(), ResultCode> {
    answer.try_extend_from_slice(bytes).map_err(|_| ResultCode::MalformedRequest)
}

/// Nonce of NAT-PMP's mappings: the protocol has none.
pub(crate) const NO_NONCE: Nonce = [0; 12];
