//! What two peers say before the first message: the greeting, and READY of the NULL mechanism (RFC 23).

use bytes::{BufMut, Bytes, BytesMut};

use super::{Fault, frame};

/// Octets of a greeting.
pub(super) const GREETING: usize = 64;

const MECHANISM: std::ops::Range<usize> = 12..32;

/// The socket that this side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Receives what is published.
    Sub,
    /// Asks and receives any number of answers.
    Dealer,
}

impl Role {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sub => "SUB",
            Self::Dealer => "DEALER",
        }
    }

    /// The sockets that this one can talk to.
    pub(super) fn peers(self) -> &'static [&'static str] {
        match self {
            Self::Sub => &["PUB", "XPUB"],
            Self::Dealer => &["ROUTER", "REP", "DEALER"],
        }
    }
}

/// Ours: version 3.0, NULL, a client.
pub(super) fn greeting() -> [u8; GREETING] {
    let mut greeting = [0; GREETING];
    greeting[0] = 0xff;
    greeting[9] = 0x7f;
    greeting[10] = 3;
    greeting[MECHANISM][..4].copy_from_slice(b"NULL");
    greeting
}

/// The peer's minor version, once all of its greeting has arrived. Whoever speaks something else is told so at its
/// first wrong octet.
pub(super) fn read_greeting(arrived: &[u8]) -> Result<Option<u8>, Fault> {
    // octets 1 to 8 are padding
    let foreign = arrived.first().is_some_and(|&octet| octet != 0xff)
        || arrived.get(9).is_some_and(|&octet| octet != 0x7f);
    if foreign {
        return Err(Fault::NotZmtp);
    }
    if let Some(&major) = arrived.get(10).filter(|&&major| major < 3) {
        return Err(Fault::Version(major));
    }
    let Some(greeting) = arrived.first_chunk::<GREETING>() else {
        return Ok(None);
    };
    let mechanism = greeting[MECHANISM].split(|&octet| octet == 0).next();
    match mechanism {
        Some(b"NULL") => Ok(Some(greeting[11])),
        other => Err(Fault::Mechanism(printable(other.unwrap_or_default()))),
    }
}

/// Appends our READY to `out`.
pub(super) fn put_ready(out: &mut BytesMut, role: Role) {
    let mut properties = BytesMut::new();
    put_property(&mut properties, "Socket-Type", role.name());
    frame::put_command(out, "READY", &properties);
}

fn put_property(out: &mut BytesMut, name: &str, value: &str) {
    out.put_u8(name.len() as u8);
    out.put_slice(name.as_bytes());
    out.put_u32(value.len() as u32);
    out.put_slice(value.as_bytes());
}

/// Whether the peer's READY fits a socket of this role.
pub(super) fn check_ready(role: Role, properties: &[u8]) -> Result<(), Fault> {
    let theirs = property(properties, "Socket-Type").ok_or(Fault::Broken("READY without a Socket-Type"))?;
    if role.peers().iter().any(|peer| peer.as_bytes() == theirs) {
        return Ok(());
    }
    Err(Fault::Peer {
        theirs: printable(theirs),
        wanted: role.peers()[0],
    })
}

/// The value of a property; its name may be in any case.
fn property<'p>(mut properties: &'p [u8], wanted: &str) -> Option<&'p [u8]> {
    loop {
        let (name, rest) = counted(properties)?;
        let (octets, rest) = rest.split_first_chunk()?;
        let (value, rest) = rest.split_at_checked(u32::from_be_bytes(*octets) as usize)?;
        if name.eq_ignore_ascii_case(wanted.as_bytes()) {
            return Some(value);
        }
        properties = rest;
    }
}

/// A command's name and data.
pub(super) fn name_and_data(command: &Bytes) -> Result<(&[u8], &[u8]), Fault> {
    counted(command).ok_or(Fault::Broken("a command without a name"))
}

/// What an ERROR command gives as its reason.
pub(super) fn reason(data: &[u8]) -> String {
    printable(counted(data).map_or(data, |(reason, _)| reason))
}

/// As many octets as the first one says, and what follows them.
fn counted(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&count, rest) = octets.split_first()?;
    rest.split_at_checked(usize::from(count))
}

/// For a log: one short line, whatever the peer sent.
fn printable(octets: &[u8]) -> String {
    octets[..octets.len().min(64)].escape_ascii().to_string()
}
