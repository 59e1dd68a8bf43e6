//! Calls and replies of ONC RPC (RFC 5531).

use crate::xdr::{Args, Garbage, Out, Result};

/// Most bytes of credentials.
const CREDENTIALS: usize = 400;
/// Most groups of a caller.
const GROUPS: usize = 16;
const MACHINE_NAME: usize = 255;

/// States of a call that was accepted.
pub(crate) mod accept {
    pub(crate) const SUCCESS: u32 = 0;
    pub(crate) const PROGRAM_UNAVAILABLE: u32 = 1;
    pub(crate) const PROGRAM_MISMATCH: u32 = 2;
    pub(crate) const PROCEDURE_UNAVAILABLE: u32 = 3;
    pub(crate) const GARBAGE_ARGUMENTS: u32 = 4;
    pub(crate) const SYSTEM_ERROR: u32 = 5;
}

/// Why credentials are refused.
mod auth {
    pub(super) const BAD_CREDENTIALS: u32 = 1;
    pub(super) const TOO_WEAK: u32 = 5;
}

/// What a caller says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Credentials {
    /// Nothing (AUTH_NONE).
    None,
    /// Ids (AUTH_SYS).
    Unix { uid: u32, gid: u32, groups: Vec<u32> },
    /// Something that this server does not know.
    Unknown,
}

/// A call.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) xid: u32,
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
    pub(crate) credentials: Credentials,
    pub(crate) args: Args<'a>,
}

/// A record that is no call to work on.
#[derive(Debug)]
pub(crate) enum Refused {
    /// It is no call: the connection ends.
    NoCall,
    /// This is the reply.
    Reply(Vec<u8>),
}

impl<'a> Call<'a> {
    /// Reads the head of a call.
    pub(crate) fn decode(record: &'a [u8]) -> std::result::Result<Self, Refused> {
        let mut args = Args::new(record);
        let no_call = |Garbage| Refused::NoCall;
        let xid = args.u32().map_err(no_call)?;
        if args.u32().map_err(no_call)? != CALL {
            return Err(Refused::NoCall);
        }
        if args.u32().map_err(no_call)? != RPC_VERSION {
            return Err(Refused::Reply(version_mismatch(xid)));
        }
        let mut numbers = [0; 3];
        for number in &mut numbers {
            *number = args.u32().map_err(no_call)?;
        }
        let [program, version, procedure] = numbers;
        let flavor = args.u32().map_err(no_call)?;
        let body = args.opaque(CREDENTIALS).map_err(no_call)?;
        args.u32().and_then(|_| args.opaque(CREDENTIALS)).map_err(no_call)?;
        let credentials = match flavor {
            NONE => Credentials::None,
            SYS => unix(body).map_err(|Garbage| {
                Refused::Reply(authentication_error(xid, auth::BAD_CREDENTIALS))
            })?,
            _ => Credentials::Unknown,
        };
        Ok(Self { xid, program, version, procedure, credentials, args })
    }
}

const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;
const NONE: u32 = 0;
/// AUTH_SYS.
pub(crate) const SYS: u32 = 1;

fn unix(body: &[u8]) -> Result<Credentials> {
    let mut args = Args::new(body);
    args.u32()?;
    args.opaque(MACHINE_NAME)?;
    let (uid, gid, count) = (args.u32()?, args.u32()?, args.u32()?);
    if count as usize > GROUPS {
        return Err(Garbage);
    }
    let groups = (0..count).map(|_| args.u32()).collect::<Result<_>>()?;
    args.end()?;
    Ok(Credentials::Unix { uid, gid, groups })
}

/// A reply record begins with its marker, whose length [`finish`] sets.
fn begin(xid: u32, room: usize) -> Out {
    let mut out = Out::with_capacity(room + 64);
    out.u32(0).u32(xid).u32(REPLY);
    out
}

/// Begins a reply to a call that is accepted, in this state; results of the procedure follow.
pub(crate) fn accepted(xid: u32, state: u32, room: usize) -> Out {
    let mut out = begin(xid, room);
    out.u32(0).u32(NONE).u32(0).u32(state);
    out
}

/// The whole record: one fragment, the last.
pub(crate) fn finish(mut out: Out) -> Vec<u8> {
    let len = u32::try_from(out.len().saturating_sub(4)).unwrap_or(0);
    out.set_u32(0, len | 1 << 31);
    out.into_bytes()
}

/// A reply without results.
pub(crate) fn state(xid: u32, state: u32) -> Vec<u8> {
    finish(accepted(xid, state, 0))
}

/// The program is there, in this version only.
pub(crate) fn program_mismatch(xid: u32, version: u32) -> Vec<u8> {
    let mut out = accepted(xid, accept::PROGRAM_MISMATCH, 8);
    out.u32(version).u32(version);
    finish(out)
}

fn version_mismatch(xid: u32) -> Vec<u8> {
    let mut out = begin(xid, 16);
    out.u32(1).u32(0).u32(RPC_VERSION).u32(RPC_VERSION);
    finish(out)
}

fn authentication_error(xid: u32, why: u32) -> Vec<u8> {
    let mut out = begin(xid, 16);
    out.u32(1).u32(1).u32(why);
    finish(out)
}

/// The reply to credentials of a kind that is not known.
pub(crate) fn too_weak(xid: u32) -> Vec<u8> {
    authentication_error(xid, auth::TOO_WEAK)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(flavor: u32, body: &[u8]) -> Vec<u8> {
        let mut out = Out::default();
        out.u32(9).u32(CALL).u32(RPC_VERSION).u32(100_003).u32(3).u32(1);
        out.u32(flavor).opaque(body).u32(0).u32(0).u32(77);
        out.into_bytes()
    }

    fn unix_body(groups: u32) -> Vec<u8> {
        let mut out = Out::default();
        out.u32(1).opaque(b"machine").u32(1000).u32(100).u32(groups);
        (0..groups).for_each(|group| {
            out.u32(group);
        });
        out.into_bytes()
    }

    #[test]
    fn a_call_with_ids() {
        let record = call(SYS, &unix_body(2));
        let Call { xid, program, version, procedure, credentials, mut args } =
            Call::decode(&record).expect("a call");
        assert_eq!((xid, program, version, procedure), (9, 100_003, 3, 1));
        let expected = Credentials::Unix { uid: 1000, gid: 100, groups: vec![0, 1] };
        assert_eq!((credentials, args.u32()), (expected, Ok(77)));
    }

    #[test]
    fn credentials_that_lie_are_refused() {
        for body in [&unix_body(17)[..], b"", &unix_body(2)[..20]] {
            let record = call(SYS, body);
            let Err(Refused::Reply(reply)) = Call::decode(&record) else {
                panic!("{body:?} is taken");
            };
            // Denied, for the credentials.
            assert_eq!(reply[12..24], [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]);
        }
        let unknown = call(6, b"ticket");
        assert_eq!(Call::decode(&unknown).expect("a call").credentials, Credentials::Unknown);
    }

    #[test]
    fn what_is_no_call_ends_the_connection() {
        let record = call(NONE, b"");
        for len in 0..40 {
            assert!(matches!(Call::decode(&record[..len]), Err(Refused::NoCall)), "{len}");
        }
        let mut reply = record.clone();
        reply[7] = 1;
        assert!(matches!(Call::decode(&reply), Err(Refused::NoCall)));
        let mut old = record;
        old[11] = 1;
        assert!(matches!(Call::decode(&old), Err(Refused::Reply(_))));
    }
}
