//! A client's side of the handshake, with options in any order.

use super::nbd::StreamError;
use crate::Rng;

/// An option of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandshakeOption {
    Structured,
    /// With data, which it must not have.
    StructuredWrongly,
    List,
    Info,
    /// For a volume that does not exist.
    InfoOfMissing,
    ListContexts,
    SetContext,
    /// An unknown option.
    Unknown(u32),
    Abort,
    Go,
    ExportName,
}

/// The client's knowledge of the volume that it wants.
#[derive(Clone, Debug)]
pub(super) struct ExpectedVolume {
    pub(super) name: String,
    pub(super) size: u64,
    /// True if the volume may be removed.
    pub(super) volume_may_vanish: bool,
}

/// A handshake in progress.
#[derive(Debug)]
pub(super) struct Handshake {
    wanted: ExpectedVolume,
    no_zeroes: bool,
    /// Options not sent yet, in reverse order.
    to_send: Vec<HandshakeOption>,
    /// Options sent and not answered.
    sent: std::collections::VecDeque<HandshakeOption>,
    has_greeted: bool,
    bytes: Vec<u8>,
    pub(super) is_structured: bool,
    pub(super) has_context: bool,
    /// Replies to the option at the front.
    described: bool,
    named: bool,
    /// True if it sends an option only when the previous one is answered.
    is_lockstep: bool,
}

/// Progress of a handshake.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It is not complete.
    Incomplete,
    /// It is complete; these bytes followed it.
    Complete(Vec<u8>),
    /// The client's ABORT was confirmed.
    Aborted,
    /// There is no such volume.
    NoVolume,
}

/// Draws options that lead to a volume, including some that do not matter.
pub(super) fn options(rng: &mut Rng, is_structured: bool, has_context: bool) -> Vec<HandshakeOption> {
    let mut options = Vec::new();
    let unknown = HandshakeOption::Unknown(pick(rng, &[0, 4, 5, 11, 77, u32::MAX]));
    let extra = |rng: &mut Rng, options: &mut Vec<HandshakeOption>| {
        while rng.chance(0.25) {
            let all = [
                HandshakeOption::List,
                HandshakeOption::Info,
                HandshakeOption::InfoOfMissing,
                HandshakeOption::ListContexts,
                unknown,
                HandshakeOption::StructuredWrongly,
            ];
            options.push(pick(rng, &all));
        }
    };
    extra(rng, &mut options);
    if rng.chance(0.1) {
        // Too early, or without effect.
        options.push(HandshakeOption::SetContext);
    }
    if is_structured {
        options.push(HandshakeOption::Structured);
        extra(rng, &mut options);
        if has_context {
            options.push(HandshakeOption::SetContext);
            extra(rng, &mut options);
        }
    }
    options.push(match rng.below(20) {
        0 => HandshakeOption::Abort,
        1..7 => HandshakeOption::ExportName,
        _ => HandshakeOption::Go,
    });
    options
}

fn pick<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.below(all.len() as u64) as usize]
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

impl HandshakeOption {
    const fn number(self) -> u32 {
        match self {
            Self::ExportName => 1,
            Self::Abort => 2,
            Self::List => 3,
            Self::Info | Self::InfoOfMissing => 6,
            Self::Go => 7,
            Self::Structured | Self::StructuredWrongly => 8,
            Self::ListContexts => 9,
            Self::SetContext => 10,
            Self::Unknown(number) => number,
        }
    }

    fn bytes(self, wanted: &ExpectedVolume, flags: u64) -> Vec<u8> {
        let name = string(&wanted.name);
        let context = [&name[..], &1u32.to_be_bytes(), &string("base:allocation")].concat();
        // Name, description and block sizes, in some of the cases.
        let kinds = match flags % 3 {
            0 => vec![],
            1 => vec![3u16],
            _ => vec![1, 2, 3],
        };
        let kinds = [vec![kinds.len() as u16], kinds].concat();
        let kinds: Vec<u8> = kinds.into_iter().flat_map(u16::to_be_bytes).collect();
        let data = match self {
            Self::ExportName => wanted.name.clone().into_bytes(),
            Self::Abort | Self::List | Self::Structured => vec![],
            Self::Unknown(_) | Self::StructuredWrongly => vec![7; 1 + (flags % 40) as usize],
            Self::Info | Self::Go => [name, kinds].concat(),
            Self::InfoOfMissing => [string("no such volume"), kinds].concat(),
            Self::ListContexts | Self::SetContext => context,
        };
        [b"IHAVEOPT", &self.number().to_be_bytes()[..], &(data.len() as u32).to_be_bytes(), &data].concat()
    }
}

impl Handshake {
    /// Notes that its volume may be removed.
    pub(super) const fn note_volume_may_vanish(&mut self) {
        self.wanted.volume_may_vanish = true;
    }

    /// Creates a handshake with these options.
    pub(super) fn new(wanted: ExpectedVolume, mut options: Vec<HandshakeOption>, rng: &mut Rng) -> Self {
        options.reverse();
        Self {
            wanted,
            no_zeroes: rng.chance(0.5),
            to_send: options,
            sent: std::collections::VecDeque::new(),
            has_greeted: false,
            bytes: Vec::new(),
            is_structured: false,
            has_context: false,
            described: false,
            named: false,
            is_lockstep: rng.chance(0.5),
        }
    }

    /// Returns the bytes to send now, and whether they include the last option.
    pub(super) fn next_bytes(&mut self, rng: &mut Rng) -> (Vec<u8>, bool) {
        let mut bytes = Vec::new();
        if !self.has_greeted {
            // The client waits for the server's greeting.
            return (bytes, false);
        }
        while (!self.is_lockstep || self.sent.is_empty())
            && let Some(option) = self.to_send.pop()
        {
            bytes.extend(option.bytes(&self.wanted, rng.word() >> 32));
            self.sent.push_back(option);
        }
        let is_last = !bytes.is_empty() && self.to_send.is_empty();
        (bytes, is_last)
    }

    /// Handles received bytes; returns bytes to send before anything else, if any, and the progress.
    pub(super) fn handle_bytes(&mut self, bytes: &[u8]) -> Result<(Vec<u8>, Progress), StreamError> {
        self.bytes.extend(bytes);
        let mut flags = Vec::new();
        if !self.has_greeted {
            let Some(greeting) = self.bytes.get(..18) else { return Ok((flags, Progress::Incomplete)) };
            if greeting != b"NBDMAGICIHAVEOPT\0\x03" {
                return Err(format!("the greeting is {greeting:?}"));
            }
            self.bytes.drain(..18);
            self.has_greeted = true;
            flags = vec![0, 0, 0, if self.no_zeroes { 3 } else { 1 }];
        }
        loop {
            match self.step()? {
                None => return Ok((flags, Progress::Incomplete)),
                Some(Progress::Incomplete) => {}
                Some(end) => return Ok((flags, end)),
            }
        }
    }

    /// Parses the next message, if it is complete.
    fn step(&mut self) -> Result<Option<Progress>, StreamError> {
        let Some(&option) = self.sent.front() else {
            let is_quiet = self.bytes.is_empty();
            return if is_quiet { Ok(None) } else { Err("an answer to no option".to_owned()) };
        };
        if option == HandshakeOption::ExportName {
            return self.exported();
        }
        let Some((head, rest)) = self.bytes.split_at_checked(20) else { return Ok(None) };
        let word = |at: usize| head[at..at + 4].iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
        if head[..8] != [0, 3, 0xe8, 0x89, 4, 0x55, 0x65, 0xa9] || word(8) != option.number() {
            return Err(format!("{head:?} answers no {option:?}"));
        }
        let (kind, len) = (word(12), word(16) as usize);
        if len > 4096 {
            return Err(format!("an answer of {len} bytes to {option:?}"));
        }
        let Some(data) = rest.get(..len).map(<[u8]>::to_vec) else { return Ok(None) };
        self.bytes.drain(..20 + len);
        let came = self.handle_reply(option, kind, &data)?;
        Ok(Some(came))
    }

    fn handle_reply(
        &mut self,
        option: HandshakeOption,
        kind: u32,
        data: &[u8],
    ) -> Result<Progress, StreamError> {
        const ERROR: u32 = 1 << 31;
        let wrong = || Err(format!("{option:?} is answered with {kind:#x} and {data:?}"));
        match (option, kind) {
            (HandshakeOption::List, 2) => {
                let is_name = data.len() > 4 && data[..4] == (data.len() as u32 - 4).to_be_bytes();
                self.named |= data.get(4..) == Some(self.wanted.name.as_bytes());
                return if is_name { Ok(Progress::Incomplete) } else { wrong() };
            }
            (HandshakeOption::Info | HandshakeOption::Go, 3) => {
                self.information(data)?;
                return Ok(Progress::Incomplete);
            }
            (HandshakeOption::ListContexts | HandshakeOption::SetContext, 4) if self.is_structured => {
                let id = if option == HandshakeOption::SetContext { 1 } else { 0 };
                self.has_context |= option == HandshakeOption::SetContext;
                let is_right = data.get(4..) == Some(b"base:allocation") && data[..4] == [0, 0, 0, id];
                self.named = true;
                return if is_right { Ok(Progress::Incomplete) } else { wrong() };
            }
            _ => {}
        }
        self.sent.pop_front();
        let (named, described) = (std::mem::take(&mut self.named), std::mem::take(&mut self.described));
        let may_lack = self.wanted.volume_may_vanish;
        let is_lacking = may_lack && kind == ERROR | 6;
        if is_lacking && option == HandshakeOption::Go {
            return Ok(Progress::NoVolume);
        }
        let is_right = match (option, kind) {
            (HandshakeOption::Info | HandshakeOption::ListContexts | HandshakeOption::SetContext, _)
                if is_lacking =>
            {
                true
            }
            (HandshakeOption::List, 1) if may_lack => true,
            (HandshakeOption::List, 1) => named,
            (HandshakeOption::Info | HandshakeOption::Go, 1) => described,
            (HandshakeOption::Abort | HandshakeOption::Structured, 1) => true,
            (HandshakeOption::ListContexts | HandshakeOption::SetContext, 1) => named,
            (HandshakeOption::ListContexts | HandshakeOption::SetContext, error) => {
                !self.is_structured && error == ERROR | 3
            }
            (HandshakeOption::StructuredWrongly, error) => error == ERROR | 3,
            (HandshakeOption::InfoOfMissing, error) => error == ERROR | 6,
            (HandshakeOption::Unknown(_), error) => error == ERROR | 1,
            _ => false,
        };
        if !is_right || (kind == 1 && !data.is_empty()) {
            return wrong();
        }
        self.is_structured |= option == HandshakeOption::Structured;
        Ok(match option {
            HandshakeOption::Go => Progress::Complete(std::mem::take(&mut self.bytes)),
            HandshakeOption::Abort => Progress::Aborted,
            _ => Progress::Incomplete,
        })
    }

    /// Checks the transmission flags.
    fn check_flags(&self, flags: u16) -> Result<(), StreamError> {
        // HAS_FLAGS, FLUSH, FUA, TRIM, WRITE_ZEROES, CAN_MULTI_CONN.
        let (least, df) = (1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 8, 1 << 7);
        let is_right = flags & least == least && flags & 2 == 0 && (flags & df != 0) == self.is_structured;
        if is_right { Ok(()) } else { Err(format!("a volume with flags {flags:#x}")) }
    }

    fn information(&mut self, data: &[u8]) -> Result<(), StreamError> {
        let number = |bytes: &[u8]| bytes.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        let wrong = || Err(format!("information {data:?} of {:?}", self.wanted));
        match (data.len(), data) {
            (12, [0, 0, rest @ ..]) if number(&rest[..8]) == self.wanted.size => {
                self.check_flags(number(&rest[8..]) as u16)?;
                self.described = true;
                Ok(())
            }
            (_, [0, 1, name @ ..]) if name == self.wanted.name.as_bytes() => Ok(()),
            (_, [0, 2, text @ ..]) if std::str::from_utf8(text).is_ok() => Ok(()),
            (14, [0, 3, sizes @ ..]) if number(&sizes[..4]) == 512 && number(&sizes[8..]) >= 32 << 20 => {
                Ok(())
            }
            _ => wrong(),
        }
    }

    /// Parses the answer to EXPORT_NAME.
    fn exported(&mut self) -> Result<Option<Progress>, StreamError> {
        let len = if self.no_zeroes { 10 } else { 134 };
        let Some(answer) = self.bytes.get(..len) else { return Ok(None) };
        let size = answer[..8].iter().fold(0u64, |size, byte| size << 8 | u64::from(*byte));
        if size != self.wanted.size || answer[10..].iter().any(|byte| *byte != 0) {
            return Err(format!("{:?} is told to have {size} bytes", self.wanted));
        }
        self.check_flags(u16::from_be_bytes([answer[8], answer[9]]))?;
        Ok(Some(Progress::Complete(self.bytes.split_off(len))))
    }
}
