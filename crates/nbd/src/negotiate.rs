//! The start of a connection: what the server is, whether it speaks TLS, and which export is used.
//!
//! A machine without I/O: it says how many bytes it needs next ([`Negotiation::needs`]), is fed
//! exactly these ([`Negotiation::feed`]), and answers with bytes to send.
//!
//! ```text
//!   greeting ─► (STARTTLS) ─► STRUCTURED_REPLY ─► SET_META_CONTEXT ─► GO ─► export
//!                                    ╰── refused: simple replies ──────╯
//! ```
//!
//! After STARTTLS everything is asked again inside TLS; nothing that came before is believed.

use crate::wire::{Bytes, ExportFlags};
use crate::{Error, Result};

const GREETING: u64 = 0x4e42_444d_4147_4943; // NBDMAGIC
const OPTIONS: u64 = 0x4948_4156_454f_5054; // IHAVEOPT
const OLD_STYLE: u64 = 0x0000_4202_8186_1253;
const REPLY: u64 = 0x0003_e889_0455_65a9;

const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;

const GREETING_LEN: usize = 18;
const REPLY_HEAD: usize = 20;
/// Most bytes of a reply to an option.
const MOST_REPLY: u32 = 64 << 10;
/// Most replies to one option.
const MOST_REPLIES: u32 = 64;
/// Most bytes of the name of an export.
pub const MOST_NAME: usize = 4096;

/// The context that tells of holes.
const ALLOCATION: &[u8] = b"base:allocation";

/// Options of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
enum Opt {
    StartTls = 5,
    Go = 7,
    StructuredReply = 8,
    SetMetaContext = 10,
}

/// Replies of the protocol.
const ACK: u32 = 1;
const INFO: u32 = 3;
const META_CONTEXT: u32 = 4;
const ERROR: u32 = 1 << 31;

const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;

/// The least that a client may not assume to be allowed without a word of the server.
const USUAL_MAX: u32 = 32 << 20;
/// Servers may ask for no larger blocks.
const MOST_MIN: u32 = 64 << 10;

/// What one request may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockLimits {
    /// Offsets and lengths are multiples of it.
    pub min: u32,
    /// What is fast.
    pub preferred: u32,
    /// Most bytes of a read or write.
    pub max: u32,
}

impl Default for BlockLimits {
    fn default() -> Self {
        Self { min: 1, preferred: 4096, max: USUAL_MAX }
    }
}

impl BlockLimits {
    fn decode(bytes: &mut Bytes<'_>) -> Result<Self> {
        let (min, preferred, max) = (bytes.u32()?, bytes.u32()?, bytes.u32()?);
        let good = min.is_power_of_two()
            && min <= MOST_MIN
            && preferred.is_power_of_two()
            && preferred >= min
            && max >= min;
        if !good {
            let why = format!("blocks of {min}, {preferred} and {max} bytes are not possible");
            return Err(Error::protocol(why));
        }
        Ok(Self { min, preferred, max: max - max % min })
    }
}

/// An export, as the server tells of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    /// Bytes.
    pub size: u64,
    /// What it can do.
    pub flags: ExportFlags,
    /// What one request may be.
    pub limits: BlockLimits,
    /// Replies come in chunks.
    pub is_structured: bool,
    /// The number of the context that tells of holes.
    pub allocation: Option<u32>,
}

/// What is to be done next.
#[derive(PartialEq, Eq, Debug)]
pub enum Step {
    /// These bytes are sent (there may be none), and then [`Negotiation::needs`] is read.
    Send(Vec<u8>),
    /// TLS begins on the connection, and then these bytes are sent.
    StartTls(Vec<u8>),
    /// The server is ready for requests.
    Ready(Export),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Greeting,
    /// The head of a reply to an option.
    Head(Opt),
    /// The contents of a reply of this type.
    Contents(Opt, u32, u32),
    Done,
}

/// A negotiation.
#[derive(Debug)]
pub struct Negotiation {
    export: Vec<u8>,
    tls: bool,
    state: State,
    replies: u32,
    structured: bool,
    allocation: Option<u32>,
    size: Option<(u64, ExportFlags)>,
    limits: BlockLimits,
}

impl Negotiation {
    /// For an export by its name, with TLS or without.
    #[must_use]
    pub fn new(export: &[u8], tls: bool) -> Self {
        Self {
            export: export.to_owned(),
            tls,
            state: State::Greeting,
            replies: 0,
            structured: false,
            allocation: None,
            size: None,
            limits: BlockLimits::default(),
        }
    }

    /// Bytes to read before the next [`feed`](Self::feed).
    #[must_use]
    pub fn needs(&self) -> usize {
        match self.state {
            State::Greeting => GREETING_LEN,
            State::Head(_) => REPLY_HEAD,
            State::Contents(_, _, len) => len as usize,
            State::Done => 0,
        }
    }

    /// Goes on with what was read.
    ///
    /// # Errors
    /// The server breaks the protocol, or refuses.
    pub fn feed(&mut self, input: &[u8]) -> Result<Step> {
        if input.len() != self.needs() {
            return Err(Error::protocol("a message is shorter than its contents"));
        }
        match self.state {
            State::Greeting => self.greeting(Bytes(input)),
            State::Head(opt) => self.head(opt, Bytes(input)),
            State::Contents(opt, kind, _) => self.contents(opt, kind, Bytes(input)),
            State::Done => Err(Error::protocol("the negotiation has ended")),
        }
    }

    fn greeting(&mut self, mut bytes: Bytes<'_>) -> Result<Step> {
        if bytes.u64()? != GREETING {
            return Err(Error::NoExport("this is no NBD server".into()));
        }
        match bytes.u64()? {
            OPTIONS => {}
            OLD_STYLE => return Err(too_old()),
            _ => return Err(Error::NoExport("this is no NBD server".into())),
        }
        let flags = bytes.u16()?;
        if flags & FIXED_NEWSTYLE == 0 {
            return Err(too_old());
        }
        let mut send = u32::from(flags & (FIXED_NEWSTYLE | NO_ZEROES)).to_be_bytes().to_vec();
        let first = if self.tls { Opt::StartTls } else { Opt::StructuredReply };
        send.extend(self.ask(first));
        Ok(Step::Send(send))
    }

    /// The bytes of an option; its replies are expected then.
    fn ask(&mut self, opt: Opt) -> Vec<u8> {
        let name = |bytes: &[u8]| {
            [&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes()[..], bytes].concat()
        };
        let contents = match opt {
            Opt::StartTls | Opt::StructuredReply => Vec::new(),
            Opt::SetMetaContext => {
                [name(&self.export), 1u32.to_be_bytes().to_vec(), name(ALLOCATION)].concat()
            }
            Opt::Go => {
                let wanted = [1u16, INFO_BLOCK_SIZE].map(u16::to_be_bytes).concat();
                [name(&self.export), wanted].concat()
            }
        };
        self.state = State::Head(opt);
        self.replies = 0;
        let mut message = OPTIONS.to_be_bytes().to_vec();
        message.extend((opt as u32).to_be_bytes());
        message.extend(name(&contents));
        message
    }

    fn head(&mut self, opt: Opt, mut bytes: Bytes<'_>) -> Result<Step> {
        let magic = bytes.u64()?;
        let (of, kind, len) = (bytes.u32()?, bytes.u32()?, bytes.u32()?);
        if magic != REPLY || of != opt as u32 {
            return Err(Error::protocol("the answer to an option is none"));
        }
        if len > MOST_REPLY {
            return Err(Error::protocol(format!("an answer to an option has {len} bytes")));
        }
        self.replies += 1;
        if self.replies > MOST_REPLIES {
            return Err(Error::protocol("the answers to an option do not end"));
        }
        if len == 0 {
            return self.contents(opt, kind, Bytes(&[]));
        }
        self.state = State::Contents(opt, kind, len);
        Ok(Step::Send(Vec::new()))
    }

    fn contents(&mut self, opt: Opt, kind: u32, mut bytes: Bytes<'_>) -> Result<Step> {
        self.state = State::Head(opt);
        if kind & ERROR != 0 {
            return self.refused(opt, kind, bytes.0);
        }
        match (opt, kind) {
            (_, ACK) => self.accepted(opt),
            (Opt::SetMetaContext, META_CONTEXT) => {
                let number = bytes.u32()?;
                if bytes.0 == ALLOCATION {
                    self.allocation = Some(number);
                }
                Ok(Step::Send(Vec::new()))
            }
            (Opt::Go, INFO) => {
                match bytes.u16()? {
                    INFO_EXPORT => {
                        let size = bytes.u64()?;
                        self.size = Some((size, ExportFlags::from_bits_retain(bytes.u16()?)));
                    }
                    INFO_BLOCK_SIZE => self.limits = BlockLimits::decode(&mut bytes)?,
                    _ => {}
                }
                Ok(Step::Send(Vec::new()))
            }
            (_, other) => {
                Err(Error::protocol(format!("an option is answered by {other}, which is none")))
            }
        }
    }

    fn accepted(&mut self, opt: Opt) -> Result<Step> {
        match opt {
            Opt::StartTls => Ok(Step::StartTls(self.ask(Opt::StructuredReply))),
            Opt::StructuredReply => {
                self.structured = true;
                Ok(Step::Send(self.ask(Opt::SetMetaContext)))
            }
            Opt::SetMetaContext => Ok(Step::Send(self.ask(Opt::Go))),
            Opt::Go => self.ready(),
        }
    }

    fn ready(&mut self) -> Result<Step> {
        let Some((size, flags)) = self.size else {
            return Err(Error::protocol("the size of the export is not told"));
        };
        if i64::try_from(size).is_err() {
            return Err(Error::protocol(format!("the export has {size} bytes")));
        }
        if !flags.contains(ExportFlags::HAS_FLAGS) {
            return Err(Error::protocol("the flags of the export are not told"));
        }
        self.state = State::Done;
        Ok(Step::Ready(Export {
            // (A part of a block at the end cannot be accessed.)
            size: size - size % u64::from(self.limits.min),
            flags,
            limits: self.limits,
            is_structured: self.structured,
            allocation: self.allocation,
        }))
    }

    fn refused(&mut self, opt: Opt, kind: u32, text: &[u8]) -> Result<Step> {
        const TLS_REQUIRED: u32 = ERROR | 5;
        const UNKNOWN: u32 = ERROR | 6;
        const BLOCK_SIZE_REQUIRED: u32 = ERROR | 8;
        if kind == TLS_REQUIRED {
            let why = if self.tls { "it refuses TLS and asks for it" } else { "say nbds://" };
            return Err(Error::NoExport(format!("the server wants TLS: {why}")));
        }
        match opt {
            Opt::StartTls => {
                let why = "the server has no TLS: say nbd:// if the network is trusted";
                Err(Error::NoExport(why.into()))
            }
            Opt::StructuredReply => Ok(Step::Send(self.ask(Opt::Go))),
            // (That the export is unknown is said again by what follows.)
            Opt::SetMetaContext => {
                self.allocation = None;
                Ok(Step::Send(self.ask(Opt::Go)))
            }
            Opt::Go => {
                let why = match kind {
                    UNKNOWN if self.export.is_empty() => {
                        "the server has no default export: name one behind the slash".to_owned()
                    }
                    UNKNOWN => "the server has no export of this name".to_owned(),
                    BLOCK_SIZE_REQUIRED => "the server wants other blocks".to_owned(),
                    _ => "the server refuses the export".to_owned(),
                };
                Err(Error::NoExport(format!("{why}{}", said(text))))
            }
        }
    }
}

fn too_old() -> Error {
    Error::NoExport("the server is too old: it has no fixed newstyle negotiation".into())
}

/// What a server says, cut and without control characters, as the end of a line.
fn said(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text.get(..text.len().min(200)).unwrap_or_default());
    let text = text.trim();
    if text.is_empty() { String::new() } else { format!(" (it says: {})", text.escape_debug()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a server says.
    fn greeting(flags: u16) -> Vec<u8> {
        [&GREETING.to_be_bytes()[..], &OPTIONS.to_be_bytes(), &flags.to_be_bytes()].concat()
    }

    fn reply(opt: Opt, kind: u32, contents: &[u8]) -> Vec<u8> {
        let len = contents.len() as u32;
        let head = [opt as u32, kind, len].map(u32::to_be_bytes).concat();
        [&REPLY.to_be_bytes()[..], &head, contents].concat()
    }

    fn info_export(size: u64, flags: u16) -> Vec<u8> {
        let info = [&[0, 0][..], &size.to_be_bytes(), &flags.to_be_bytes()].concat();
        reply(Opt::Go, INFO, &info)
    }

    fn info_blocks(sizes: [u32; 3]) -> Vec<u8> {
        reply(Opt::Go, INFO, &[&[0, 3][..], &sizes.map(u32::to_be_bytes).concat()].concat())
    }

    /// Feeds all of it; the last step, and all that was sent.
    fn run(negotiation: &mut Negotiation, mut input: &[u8]) -> Result<(Step, Vec<u8>)> {
        let mut sent = Vec::new();
        loop {
            let needs = negotiation.needs();
            let Some((now, rest)) = input.split_at_checked(needs) else {
                return Err(Error::protocol("the input ends"));
            };
            input = rest;
            match negotiation.feed(now)? {
                Step::Send(bytes) => sent.extend(bytes),
                step => return Ok((step, sent)),
            }
        }
    }

    fn structured(rest: &[Vec<u8>]) -> Vec<u8> {
        let context = [&9u32.to_be_bytes()[..], ALLOCATION].concat();
        let start = [
            greeting(3),
            reply(Opt::StructuredReply, ACK, &[]),
            reply(Opt::SetMetaContext, META_CONTEXT, &context),
            reply(Opt::SetMetaContext, ACK, &[]),
        ];
        [start.concat(), rest.concat()].concat()
    }

    #[test]
    fn an_export_is_opened_with_its_limits() {
        let mut negotiation = Negotiation::new(b"disk", false);
        let end = [
            info_export(1_000_001, 0x1ff),
            info_blocks([512, 4096, 1 << 20]),
            reply(Opt::Go, ACK, &[]),
        ];
        let (step, sent) = run(&mut negotiation, &structured(&end)).unwrap();
        let expected = Export {
            size: 999_936,
            flags: ExportFlags::from_bits_retain(0x1ff),
            limits: BlockLimits { min: 512, preferred: 4096, max: 1 << 20 },
            is_structured: true,
            allocation: Some(9),
        };
        assert_eq!(step, Step::Ready(expected));
        assert_eq!(sent[..4], [0, 0, 0, 3]);
        assert!(sent.windows(4).any(|part| part == b"disk"));
    }

    #[test]
    fn a_server_without_chunks_is_used_without() {
        let mut negotiation = Negotiation::new(b"", false);
        let input = [
            greeting(1),
            reply(Opt::StructuredReply, ERROR | 1, b"no"),
            info_export(4096, 1),
            reply(Opt::Go, ACK, &[]),
        ];
        let Ok((Step::Ready(export), _)) = run(&mut negotiation, &input.concat()) else { panic!() };
        assert!(!export.is_structured && export.allocation.is_none());
        assert_eq!(export.limits, BlockLimits::default());
    }

    #[test]
    fn after_tls_everything_is_asked_again() {
        let mut negotiation = Negotiation::new(b"", true);
        let input = [greeting(3), reply(Opt::StartTls, ACK, &[])].concat();
        let Ok((Step::StartTls(send), sent)) = run(&mut negotiation, &input) else { panic!() };
        assert!(sent.ends_with(&[0, 0, 0, 5, 0, 0, 0, 0]));
        assert!(send.ends_with(&[0, 0, 0, 8, 0, 0, 0, 0]));
        let input = [greeting(3), reply(Opt::StartTls, ERROR | 2, &[])].concat();
        let error = run(&mut Negotiation::new(b"", true), &input).unwrap_err();
        assert!(error.to_string().contains("no TLS"), "{error}");
    }

    #[test]
    fn refusals_say_what_to_do() {
        let go = |kind, text: &[u8]| structured(&[reply(Opt::Go, ERROR | kind, text)]);
        for (export, input, expected) in [
            (&b""[..], go(6, b""), "name one"),
            (b"x", go(6, b"no \x1b[31m"), "of this name (it says: no \\u{1b}[31m)"),
            (b"x", go(5, b""), "say nbds://"),
            (b"x", go(2, b"policy"), "refuses the export (it says: policy)"),
            (
                b"x",
                [&GREETING.to_be_bytes()[..], &OLD_STYLE.to_be_bytes(), &[0; 2]].concat(),
                "too old",
            ),
            (b"x", greeting(0), "too old"),
            (b"x", b"SSH-2.0-OpenSSH_9.2p1 Debian".to_vec(), "no NBD server"),
        ] {
            let error = run(&mut Negotiation::new(export, false), &input).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn answers_against_the_rules_end_it() {
        let ack = reply(Opt::Go, ACK, &[]);
        let mut long = reply(Opt::Go, INFO, &[]);
        long[16..].copy_from_slice(&u32::MAX.to_be_bytes());
        let mut other = ack.clone();
        other[11] = 99;
        let endless = vec![reply(Opt::Go, INFO, &[0, 9]); 100].concat();
        for input in [
            structured(std::slice::from_ref(&ack)),
            structured(&[info_export(u64::MAX, 1), ack.clone()]),
            structured(&[info_export(4096, 0), ack.clone()]),
            structured(&[info_export(4096, 1)[..REPLY_HEAD + 4].to_vec()]),
            structured(&[info_blocks([3, 4096, 1 << 20])]),
            structured(&[info_blocks([4096, 512, 1 << 20])]),
            structured(&[info_blocks([4096, 4096, 512])]),
            structured(&[info_blocks([1 << 20, 1 << 20, 1 << 20])]),
            structured(&[reply(Opt::Go, INFO, &[0])]),
            structured(&[reply(Opt::Go, 77, &[])]),
            structured(&[long]),
            structured(&[other]),
            structured(&[endless]),
        ] {
            let error = run(&mut Negotiation::new(b"", false), &input).unwrap_err();
            assert!(matches!(error, Error::Protocol(_)), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_end_it_or_go_on(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
            tls in any::<bool>(),
        ) {
            let mut negotiation = Negotiation::new(b"x", tls);
            prop_assert!(run(&mut negotiation, &[greeting(3), bytes].concat()).is_err());
        }
    }
}
