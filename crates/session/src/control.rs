//! The control socket: what commands ask of a running server.
//!
//! A unix socket beside the pool file that only its owner may open. One JSON document a line,
//! each answered by one line, in order:
//!
//! ```text
//! {"do":"create_volume","name":"disk","size_bytes":1073741824}
//! "done"
//! {"do":"remove_volume","name":"dusk"}
//! {"failed":{"class":"usage","message":"there is no volume \"dusk\"; ..."}}
//! ```

use crate::explain::Explanation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_engine::AdminCommand;
use weir_model::{Bytes, ErrorKind};
use weir_policy::placement::{self, TunedPolicy};

/// The longest line a client may send, in bytes.
pub const LINE_MAX: usize = 64 << 10;

/// What may be asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// What the pool is doing; answered by [`Answer::Status`].
    Status,
    /// Make a thin volume; answered when it is durable.
    CreateVolume {
        /// Its name.
        name: String,
        /// Its size.
        size_bytes: u64,
        /// When its map changes are durable; with each flush unless given.
        #[serde(default)]
        hardening: Hardening,
        /// Copies kept of every block; one unless given.
        #[serde(default = "one_copy")]
        copies: u8,
    },
    /// Change when a volume's map changes are durable; answered when that is durable.
    SetHardening {
        /// Its name.
        name: String,
        /// From now on.
        hardening: Hardening,
    },
    /// Remove a volume nobody uses and give its space back; answered when that is durable.
    RemoveVolume {
        /// Its name.
        name: String,
    },
    /// Use another placement policy from now on, without moving anything; answered when it does.
    SetPolicy {
        /// Its name.
        name: String,
        /// Its keys that do not have their defaults, as numbers (see
        /// [`Settings`](weir_policy::placement::Settings)).
        #[serde(default)]
        tuning: BTreeMap<String, f64>,
    },
    /// Use a policy of its own for a volume from now on, or the pool's, without moving anything; answered when
    /// it does.
    SetVolumePolicy {
        /// The volume's name.
        volume: String,
        /// The policy's name; without one, the pool's.
        #[serde(default)]
        name: Option<String>,
        /// As for [`Request::SetPolicy`].
        #[serde(default)]
        tuning: BTreeMap<String, f64>,
    },
    /// Where a block of a volume is, since when and why; answered by [`Answer::Explained`].
    Explain {
        /// The volume's name.
        volume: String,
        /// A byte of the block.
        offset_bytes: u64,
    },
    /// Tell from now on what clients ask of these volumes; answered by [`Answer::Recording`], and then by frames: see
    /// [`recording`](crate::recording).
    Record {
        /// Their names.
        volumes: Vec<String>,
    },
    /// Stop as if by SIGTERM; answered when it has begun.
    Stop,
}

const fn one_copy() -> u8 {
    1
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It is done.
    Done,
    /// The pool, in the form the embedding program gives it.
    Status(serde_json::Value),
    /// Where a block is, since when and why.
    Explained(Box<Explanation>),
    /// Requests are recorded, and told from here on.
    Recording,
    /// It was not done.
    Failed {
        /// What the asker has to do about it.
        class: Class,
        /// What happened, and the way out.
        message: String,
    },
}

/// When the map changes of a write are durable.
// `weir_engine::Hardening` on the wire and the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Hardening {
    /// With the next flush.
    #[default]
    Flush,
    /// When the write is acknowledged.
    Write,
}

impl From<Hardening> for weir_engine::Hardening {
    fn from(hardening: Hardening) -> Self {
        match hardening {
            Hardening::Flush => Self::Flush,
            Hardening::Write => Self::Write,
        }
    }
}

impl From<weir_engine::Hardening> for Hardening {
    fn from(hardening: weir_engine::Hardening) -> Self {
        match hardening {
            weir_engine::Hardening::Flush => Self::Flush,
            weir_engine::Hardening::Write => Self::Write,
        }
    }
}

impl std::fmt::Display for Hardening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Flush => "flush",
            Self::Write => "write",
        })
    }
}

/// [`ErrorKind`] on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Correct the request.
    Usage,
    /// Unsafe as things are.
    Refused,
    /// Stored data is damaged.
    Damaged,
    /// The machine stands in the way.
    Environment,
}

impl From<ErrorKind> for Class {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Usage => Self::Usage,
            ErrorKind::Refused => Self::Refused,
            ErrorKind::Corrupt => Self::Damaged,
            ErrorKind::Environment => Self::Environment,
        }
    }
}

impl From<Class> for ErrorKind {
    fn from(class: Class) -> Self {
        match class {
            Class::Usage => Self::Usage,
            Class::Refused => Self::Refused,
            Class::Damaged => Self::Corrupt,
            Class::Environment => Self::Environment,
        }
    }
}

impl Answer {
    /// It was not done, for this reason.
    pub fn failed(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self::Failed { class: kind.into(), message: message.into() }
    }

    /// As a line.
    pub fn line(&self) -> Vec<u8> {
        // Nothing in it can fail to be JSON; an empty line is an answer nobody understands.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

impl Request {
    /// Reads a line.
    ///
    /// # Errors
    /// The answer to give to what is no request.
    pub fn parse(line: &[u8]) -> Result<Self, Answer> {
        serde_json::from_slice(line).map_err(|error| {
            Answer::failed(ErrorKind::Usage, format!("not a request of this server: {error}"))
        })
    }

    /// The policy that is to be used for the pool, if that is what is asked.
    ///
    /// # Errors
    /// The answer to give if there is none like that.
    pub fn policy(&self) -> Option<Result<TunedPolicy, Answer>> {
        let Self::SetPolicy { name, tuning } = self else { return None };
        Some(choice(name, tuning))
    }

    /// The volume that is to have a policy of its own, or the pool's, if that is what is asked.
    ///
    /// # Errors
    /// The answer to give if there is no policy like that.
    pub fn volume_policy(&self) -> Option<Result<(&str, Option<TunedPolicy>), Answer>> {
        let Self::SetVolumePolicy { volume, name, tuning } = self else { return None };
        let choice = name.as_ref().map(|name| choice(name, tuning)).transpose();
        Some(choice.map(|choice| (volume.as_str(), choice)))
    }

    /// What the engine is to do, if it is for the engine.
    pub fn command(&self) -> Option<AdminCommand> {
        match self {
            Self::CreateVolume { name, size_bytes, hardening, copies } => Some(AdminCommand::CreateVolume {
                name: name.clone(),
                size: Bytes(*size_bytes),
                hardening: (*hardening).into(),
                copies: *copies,
            }),
            Self::SetHardening { name, hardening } => {
                Some(AdminCommand::SetHardening { name: name.clone(), hardening: (*hardening).into() })
            }
            Self::RemoveVolume { name } => Some(AdminCommand::RemoveVolume { name: name.clone() }),
            Self::Status
            | Self::SetPolicy { .. }
            | Self::SetVolumePolicy { .. }
            | Self::Explain { .. }
            | Self::Record { .. }
            | Self::Stop => None,
        }
    }
}

/// The policy of that name, so tuned.
fn choice(name: &str, tuning: &BTreeMap<String, f64>) -> Result<TunedPolicy, Answer> {
    let refuse = |message: String| Err(Answer::failed(ErrorKind::Usage, message));
    let Some(TunedPolicy { known, mut settings }) = placement::untuned(name) else {
        return refuse(format!("there is no policy {name:?}"));
    };
    for (key, value) in tuning {
        let good = known.keys.iter().find(|k| k.name == key).is_some_and(|k| settings.set(k, *value));
        if !good {
            return refuse(format!("policy {name} has no key {key:?} that can be {value}"));
        }
    }
    Ok(TunedPolicy { known, settings })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_documented() {
        let create = Request::parse(br#"{"do":"create_volume","name":"disk","size_bytes":1073741824}"#);
        let expected = Request::CreateVolume {
            name: "disk".into(),
            size_bytes: 1 << 30,
            hardening: Hardening::Flush,
            copies: 1,
        };
        assert_eq!(create, Ok(expected));
        assert_eq!(Request::parse(br#"{"do":"status"}"#), Ok(Request::Status));
        assert_eq!(Answer::Done.line(), b"\"done\"\n");
        let failed = Answer::failed(ErrorKind::Corrupt, "no");
        assert_eq!(failed.line(), b"{\"failed\":{\"class\":\"damaged\",\"message\":\"no\"}}\n");
        assert_eq!(serde_json::from_slice::<Answer>(&failed.line()).ok(), Some(failed));
    }

    #[test]
    fn a_policy_is_named_with_what_is_tuned_of_it() {
        let policy = |line: &str| {
            let request = Request::parse(line.as_bytes()).expect("a request");
            request.policy().expect("about a policy").map(|choice| choice.known.name)
        };
        assert_eq!(policy(r#"{"do":"set_policy","name":"stripe"}"#), Ok("stripe"));
        assert_eq!(policy(r#"{"do":"set_policy","name":"wardrop","tuning":{"alpha":2.5}}"#), Ok("wardrop"));
        for bad in [
            r#""name":"strip""#,
            r#""name":"stripe","tuning":{"alpha":1}"#,
            r#""name":"wardrop","tuning":{"alpha":-1}"#,
        ] {
            assert!(policy(&format!("{{\"do\":\"set_policy\",{bad}}}")).is_err(), "{bad}");
        }
        assert!(Request::Stop.policy().is_none());
        let of = |line: &str| {
            let request = Request::parse(line.as_bytes()).expect("a request");
            let found = request.volume_policy().expect("about a volume's policy");
            found.map(|(volume, choice)| (volume.to_owned(), choice.map(|choice| choice.known.name)))
        };
        let own = of(r#"{"do":"set_volume_policy","volume":"v","name":"stripe"}"#);
        assert_eq!(own, Ok(("v".into(), Some("stripe"))));
        assert_eq!(of(r#"{"do":"set_volume_policy","volume":"v"}"#), Ok(("v".into(), None)));
        assert!(of(r#"{"do":"set_volume_policy","volume":"v","name":"strip"}"#).is_err());
    }

    #[test]
    fn what_is_no_request_is_answered() {
        for line in [&b""[..], b"{}", b"\xff", br#"{"do":"dance"}"#, b"[[[["] {
            assert!(matches!(Request::parse(line), Err(Answer::Failed { class: Class::Usage, .. })));
        }
    }
}
