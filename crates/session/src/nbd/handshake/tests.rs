use super::*;

fn exports() -> Vec<Export> {
    vec![
        Export { name: "home".into(), volume: VolumeId(1), size: Bytes::mib(64) },
        Export { name: "scratch".into(), volume: VolumeId(2), size: Bytes::gib(2) },
    ]
}

fn option_bytes(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

fn go(name: &str, wanted: &[u16]) -> Vec<u8> {
    let mut bytes = string(name);
    bytes.extend_from_slice(&(wanted.len() as u16).to_be_bytes());
    wanted.iter().for_each(|kind| bytes.extend_from_slice(&kind.to_be_bytes()));
    bytes
}

fn contexts(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut bytes = string(name);
    bytes.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| bytes.extend_from_slice(&string(query)));
    bytes
}

/// A handshake after the client's flags, with its answers.
struct History {
    machine: Handshake,
    out: Vec<u8>,
    exports: Vec<Export>,
}

impl History {
    fn new(flags: u32) -> Self {
        let mut history = Self { machine: Handshake::default(), out: Vec::new(), exports: exports() };
        assert_eq!(history.feed(&flags.to_be_bytes()), Step::Next(4));
        history
    }
    fn feed(&mut self, bytes: &[u8]) -> Step {
        self.machine.step(bytes, &self.exports, &mut self.out)
    }
    /// Sends an option; returns the types and data of the answers, and the last step.
    fn option(&mut self, number: u32, data: &[u8]) -> (Vec<(u32, Vec<u8>)>, Step) {
        self.out.clear();
        let step = self.feed(&option_bytes(number, data));
        let mut reader = Reader(&self.out);
        let mut answers = Vec::new();
        while !reader.is_empty() && number != option::EXPORT_NAME {
            assert_eq!((reader.u64(), reader.u32()), (Some(OPTION_REPLY_MAGIC), Some(number)));
            let kind = reader.u32().unwrap();
            let len = reader.u32().unwrap();
            answers.push((kind, reader.take(len as usize).unwrap().to_vec()));
        }
        (answers, step)
    }
}

#[test]
fn greeting_matches_protocol() {
    assert_eq!(&greeting(), b"NBDMAGICIHAVEOPT\x00\x03");
}

#[test]
fn go_describes_the_export_and_starts() {
    let mut history = History::new(3);
    let (answers, step) = history.option(option::GO, &go("scratch", &[info::NAME, info::DESCRIPTION]));
    let flags = [0x09, 0x6d];
    let mut size = vec![0, 0];
    size.extend_from_slice(&(2u64 << 30).to_be_bytes());
    size.extend_from_slice(&flags);
    assert_eq!(
        answers,
        [
            (answer::INFO, size),
            (answer::INFO, [&[0, 3][..], &[0, 0, 2, 0], &[0, 0, 16, 0], &[2, 0, 0, 0]].concat()),
            (answer::INFO, b"\x00\x01scratch".to_vec()),
            (answer::INFO, b"\x00\x02weir thin volume".to_vec()),
            (answer::ACK, vec![]),
        ]
    );
    let agreed =
        NegotiatedExport { volume: VolumeId(2), size: Bytes::gib(2), structured: false, allocation: false };
    assert_eq!(step, Step::Start(16 + 17, agreed));
}

#[test]
fn export_name_pads_by_default() {
    for (flags, len) in [(1, 10 + 124), (3, 10)] {
        let mut history = History::new(flags);
        let (_, step) = history.option(option::EXPORT_NAME, b"home");
        assert!(matches!(step, Step::Start(20, NegotiatedExport { volume: VolumeId(1), .. })));
        assert_eq!(history.out.len(), len);
        assert_eq!(&history.out[..10], &[0, 0, 0, 0, 4, 0, 0, 0, 0x09, 0x6d]);
    }
    assert_eq!(History::new(3).option(option::EXPORT_NAME, b"nobody"), (vec![], Step::End));
}

#[test]
fn empty_name_selects_only_export() {
    let mut history = History::new(3);
    assert_eq!(history.option(option::INFO, &go("", &[])).0[0].0, answer::ERR_UNKNOWN);
    history.exports.truncate(1);
    assert!(matches!(history.option(option::GO, &go("", &[])).1, Step::Start(..)));
}

#[test]
fn lists_name_every_export() {
    let (answers, step) = History::new(3).option(option::LIST, &[]);
    assert_eq!(
        answers,
        [(answer::SERVER, string("home")), (answer::SERVER, string("scratch")), (answer::ACK, vec![])]
    );
    assert_eq!(step, Step::Next(16));
}

#[test]
fn contexts_need_structured_replies_and_a_matching_export() {
    let mut history = History::new(3);
    let choose = contexts("home", &["qemu:dirty-bitmap:x", "base:allocation"]);
    assert_eq!(history.option(option::SET_META_CONTEXT, &choose).0[0].0, answer::ERR_INVALID);
    assert_eq!(history.option(option::STRUCTURED_REPLY, &[]).0, [(answer::ACK, vec![])]);
    assert_eq!(
        history.option(option::SET_META_CONTEXT, &choose).0,
        [(answer::META_CONTEXT, b"\0\0\0\x01base:allocation".to_vec()), (answer::ACK, vec![])]
    );
    let agreed = |step| match step {
        Step::Start(_, agreed) => agreed,
        other => panic!("{other:?}"),
    };
    let (_, step) = history.option(option::GO, &go("home", &[]));
    assert!(agreed(step).allocation && agreed(step).structured);
    let (_, step) = history.option(option::GO, &go("scratch", &[]));
    assert!(!agreed(step).allocation, "chosen for another export");
}

#[test]
fn contexts_are_listed_by_query() {
    let mut history = History::new(3);
    history.option(option::STRUCTURED_REPLY, &[]);
    let found = [(answer::META_CONTEXT, b"\0\0\0\0base:allocation".to_vec()), (answer::ACK, vec![])];
    for queries in [&["base:allocation"][..], &["base:"], &[]] {
        assert_eq!(history.option(option::LIST_META_CONTEXT, &contexts("home", queries)).0, found);
    }
    let none = history.option(option::LIST_META_CONTEXT, &contexts("home", &["x:y"])).0;
    assert_eq!(none, [(answer::ACK, vec![])]);
    let nothing_chosen = history.option(option::SET_META_CONTEXT, &contexts("home", &["base:"])).0;
    assert_eq!(nothing_chosen, [(answer::ACK, vec![])]);
}

#[test]
fn malformed_options_are_refused() {
    let mut history = History::new(3);
    let mut long = go("home", &[1]);
    long.push(0);
    for (number, data) in [
        (option::LIST, vec![0]),
        (option::STRUCTURED_REPLY, vec![0]),
        (option::GO, vec![]),
        (option::GO, long),
        (option::INFO, [&5000u32.to_be_bytes()[..], &[b'x'; 5002]].concat()),
        (option::SET_META_CONTEXT, contexts("home", &[])),
    ] {
        let (answers, step) = history.option(number, &data);
        assert_eq!(answers[0].0, answer::ERR_INVALID, "option {number}");
        assert_eq!(step, Step::Next(16 + data.len()));
    }
    for unknown in [0, 4, 5, 11, 77, u32::MAX] {
        assert_eq!(history.option(unknown, b"abc").0[0].0, answer::ERR_UNSUP);
    }
    assert_eq!(history.option(option::ABORT, &[]), (vec![(answer::ACK, vec![])], Step::End));
}

#[test]
fn protocol_violation_ends_connection() {
    let mut out = Vec::new();
    assert_eq!(Handshake::default().step(&[0, 0, 0, 7], &exports(), &mut out), Step::End);
    assert_eq!(History::new(3).feed(b"GET / HTTP/1.1\r\n"), Step::End);
    let mut history = History::new(3);
    let mut huge = option_bytes(option::GO, &[]);
    huge[12..16].copy_from_slice(&(OPTION_MAX + 1).to_be_bytes());
    assert_eq!(history.feed(&huge), Step::End);
    assert_eq!(history.feed(&option_bytes(option::LIST, &[])[..15]), Step::NeedMore);
}
