//! The clients in a status document.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_serve::ClientCounts;

/// The clients of a pool that is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Clients")]
pub struct ClientsPart {
    /// Connected NBD clients.
    pub connected: u64,
    /// Most clients that may be connected (`clients` under `[serve]`).
    pub limit: u64,
    /// Connected clients without a recent request, which have returned their buffers.
    pub idle: u64,
    /// Connections that have not chosen a volume yet.
    pub handshakes: u64,
    /// Clients refused since the server started.
    pub refused: u64,
    /// Handshakes that the server has dropped since it started.
    pub handshakes_dropped: u64,
    /// Connections to the control socket, the one of this command included.
    pub control_sessions: u64,
}

impl From<&ClientCounts> for ClientsPart {
    fn from(counts: &ClientCounts) -> Self {
        Self {
            connected: counts.clients,
            limit: counts.limit,
            idle: counts.idle,
            handshakes: counts.handshakes,
            refused: counts.refused,
            handshakes_dropped: counts.handshakes_dropped,
            control_sessions: counts.sessions,
        }
    }
}

impl ClientsPart {
    /// Formats the clients as a line for people.
    pub fn human(&self) -> String {
        let mut line = format!("clients: {} of {} connected", self.connected, self.limit);
        for (count, what) in [
            (self.idle, "idle"),
            (self.handshakes, "in the handshake"),
            (self.refused, "refused since the start"),
            (self.handshakes_dropped, "handshakes given up"),
        ] {
            if count > 0 {
                line += &format!(", {count} {what}");
            }
        }
        line.push('\n');
        line
    }
}
