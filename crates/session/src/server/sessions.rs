//! Sessions of the control socket: each sends request lines and gets one answer to each, one request at a
//! time.

use super::recorder::Recorder;
use super::{Environment, Server, Stop, StopRequest};
use crate::admission::Refusal;
use crate::control::{Answer, LINE_MAX, Request};
use crate::explain::Explanation;
use crate::nbd;
use crate::port::Port;
use crate::volumes::Volumes;
use std::collections::BTreeMap;
use std::ops::Bound;
use weir_engine::{AdminError, AdminId, AdminReply};
use weir_model::{
    Buffer, Bytes, ConnId, ErrorKind, IoError, Memory, Mutant, Nanos, ReceiveMode, VolumeOffset,
};
use weir_policy::placement::TunedPolicy;

/// Maximum number of concurrent sessions.
const SESSIONS_MAX: usize = 16;
/// Bytes received or sent at once.
const BUFFER_LEN: usize = 4096;

/// All sessions of the control socket.
pub(super) struct Sessions {
    open: BTreeMap<ConnId, Session>,
    /// Timeout of a session that sends nothing, or does not take an answer.
    idle_timeout: Nanos,
    /// Session that was answered last. The next search starts after it, which makes the order round-robin.
    last_answered: Option<ConnId>,
    /// Changes that the engine is executing, and the session that requested each.
    pending_changes: BTreeMap<u64, ConnId>,
    next: u64,
    /// Records client requests while a session wants them.
    recorder: Option<Box<Recorder>>,
}

struct Session {
    buffer: Buffer,
    /// Bytes that have arrived and have not been answered.
    line: Vec<u8>,
    /// True while the engine executes the session's request.
    waiting: bool,
    /// The unsent rest of the answer.
    answer: Vec<u8>,
    /// Buffer of the send in flight.
    sending: Option<Buffer>,
    receiving: bool,
    /// True if the client has closed its sending side.
    ended: bool,
    /// True if the session receives recorded requests.
    is_recording: bool,
    /// True while its socket is being closed.
    is_closing: bool,
    /// Last time the session connected, was answered, or took (part of) an answer.
    last_active: Nanos,
}

/// State of the recorded requests that are still to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    /// A frame is in flight.
    Sending,
    /// The next frame is not due yet.
    Waiting,
    /// Everything has been sent.
    Finished,
}

impl Sessions {
    pub(super) const fn new(idle: Nanos) -> Self {
        Self {
            open: BTreeMap::new(),
            idle_timeout: idle,
            last_answered: None,
            pending_changes: BTreeMap::new(),
            next: 0,
            recorder: None,
        }
    }

    /// Returns the recorder of client requests, if a session wants one.
    pub(super) fn recorder(&mut self) -> Option<&mut Recorder> {
        self.recorder.as_deref_mut()
    }

    /// Returns the number of open sessions.
    pub(super) fn count(&self) -> usize {
        self.open.len()
    }

    /// Returns the time by which [`Self::send`] must be called, because a session has a request to answer or
    /// its timeout expires.
    pub(super) fn deadline(&self, now: Nanos) -> Option<Nanos> {
        if self.open.values().any(Session::has_line) {
            return Some(now);
        }
        let may_expire = self.open.values().filter(|session| session.may_expire());
        let expires = may_expire.map(|session| session.last_active + self.idle_timeout).min();
        let frame = self.recorder.as_ref().and_then(|recorder| recorder.deadline());
        [expires, frame].into_iter().flatten().min()
    }

    /// Accepts a session. If there are too many, the one that has been idle longest is closed.
    pub(super) fn accept<P: Port, M: Memory>(
        &mut self,
        conn: ConnId,
        environment: &mut Environment<'_, P, M>,
    ) -> Result<(), Refusal> {
        if self.open.len() >= SESSIONS_MAX {
            let idle = self.open.iter().filter(|(_, session)| session.is_idle());
            let longest = idle.min_by_key(|(_, session)| session.last_active).map(|(conn, _)| *conn);
            let Some(longest) = longest else { return Err(Refusal::Sessions(SESSIONS_MAX)) };
            // The session stays in the table until the kernel has released its buffer.
            if let Some(session) = self.open.get_mut(&longest) {
                session.is_closing = true;
            }
            environment.port.close(longest);
        }
        if self.open.len() >= 2 * SESSIONS_MAX {
            return Err(Refusal::Sessions(SESSIONS_MAX));
        }
        let Some(room) = environment.memory.take(Bytes(BUFFER_LEN as u64)) else {
            return Err(Refusal::Memory);
        };
        let session = Session {
            buffer: room,
            line: Vec::new(),
            waiting: false,
            answer: Vec::new(),
            sending: None,
            receiving: false,
            ended: false,
            is_recording: false,
            is_closing: false,
            last_active: environment.now,
        };
        self.open.insert(conn, session);
        Ok(())
    }

    pub(super) fn received<P: Port, M: Memory>(
        &mut self,
        conn: ConnId,
        result: Result<usize, IoError>,
        environment: &mut Environment<'_, P, M>,
    ) {
        let Some(session) = self.open.get_mut(&conn) else { return };
        session.receiving = false;
        let bytes = result.unwrap_or(0);
        session.line.extend_from_slice(environment.memory.bytes(session.buffer.part(0, bytes as u32)));
        session.ended = bytes == 0;
        if session.line.len() > LINE_MAX {
            session.line.clear();
            session.ended = true;
        }
    }

    pub(super) fn sent<P: Port, M: Memory>(
        &mut self,
        conn: ConnId,
        result: Result<(), IoError>,
        environment: &mut Environment<'_, P, M>,
    ) {
        let Some(session) = self.open.get_mut(&conn) else { return };
        session.sending.take().into_iter().for_each(|buffer| environment.memory.give(buffer));
        session.last_active = environment.now;
        if let Some(recorder) = self.recorder.as_mut().filter(|_| session.is_recording) {
            recorder.sending = false;
        }
        if result.is_err() {
            session.answer.clear();
            session.line.clear();
            session.ended = true;
            session.stop_recording(&mut self.recorder);
        }
    }

    pub(super) fn closed<P: Port, M: Memory>(
        &mut self,
        conn: ConnId,
        environment: &mut Environment<'_, P, M>,
    ) {
        let Some(mut session) = self.open.remove(&conn) else { return };
        session.stop_recording(&mut self.recorder);
        environment.memory.give(session.buffer);
        session.sending.into_iter().for_each(|buffer| environment.memory.give(buffer));
    }

    /// Answers the session whose change the engine has made or refused.
    pub(super) fn reply(&mut self, reply: AdminReply) {
        let answer = match reply.result {
            Ok(_) => Answer::Done,
            Err(error) => Answer::failed(error.kind(), error.to_string()),
        };
        let asker = self.pending_changes.remove(&reply.id.0);
        if let Some(session) = asker.and_then(|conn| self.open.get_mut(&conn)) {
            session.waiting = false;
            session.answer = answer.line();
        }
    }

    /// Returns the next request that can be answered now, taking sessions in turn.
    pub(super) fn next_request(&mut self, now: Nanos) -> Option<(ConnId, Vec<u8>)> {
        let has_line = |(_, session): &(&ConnId, &Session)| session.has_line();
        let after = self.last_answered.map_or(Bound::Unbounded, Bound::Excluded);
        let later = self.open.range((after, Bound::Unbounded)).find(has_line);
        let conn = *later.or_else(|| self.open.iter().find(has_line))?.0;
        self.last_answered = Some(conn);
        let session = self.open.get_mut(&conn)?;
        session.last_active = now;
        let end = session.line.iter().position(|&byte| byte == b'\n')?;
        let rest = session.line.split_off(end + 1);
        let mut line = std::mem::replace(&mut session.line, rest);
        line.pop();
        Some((conn, line))
    }

    /// Sends answers, receives from sessions that have been answered, and closes sessions that are done.
    pub(super) fn send<P: Port, M: Memory>(&mut self, environment: &mut Environment<'_, P, M>) {
        for (&conn, session) in &mut self.open {
            if session.may_expire() && session.last_active + self.idle_timeout <= environment.now {
                tracing::debug!("closing a control session: it was silent, or took no answer, for too long");
                session.is_closing = true;
                environment.port.close(conn);
            }
            if session.is_closing {
                continue;
            }
            if session.sending.is_some() || session.waiting {
                continue;
            }
            if !session.answer.is_empty() {
                let now: Vec<u8> = session.answer.drain(..session.answer.len().min(BUFFER_LEN)).collect();
                session.sending = environment.send_bytes(conn, &now);
                if session.sending.is_some() {
                    continue;
                }
                session.ended = true;
                session.line.clear();
            }
            let stream = if session.is_recording {
                session.send_recorded(conn, &mut self.recorder, environment)
            } else {
                Stream::Finished
            };
            if stream == Stream::Sending {
                continue;
            }
            if session.ended && stream == Stream::Finished && !session.has_line() {
                session.is_closing = true;
                environment.port.close(conn);
            } else if !session.receiving && !session.ended {
                session.receiving = true;
                environment.port.recv(conn, &[session.buffer], ReceiveMode::Any);
            }
        }
    }
}

impl Session {
    /// Reports whether the session has sent a request that can be answered now.
    fn has_line(&self) -> bool {
        !(self.waiting || self.is_recording || self.is_closing)
            && self.answer.is_empty()
            && self.sending.is_none()
            && self.line.contains(&b'\n')
    }

    /// Reports whether nobody waits for the session, so that it can be closed to admit another one.
    fn is_idle(&self) -> bool {
        self.may_expire() && self.answer.is_empty() && self.sending.is_none() && !self.has_line()
    }

    /// Reports whether the timeout applies, because the session itself is what delays progress. It does not
    /// apply while the engine executes a change, nor while a recording waits for client requests.
    fn may_expire(&self) -> bool {
        !(self.waiting || self.is_closing) && (!self.is_recording || self.sending.is_some())
    }

    /// Sends recorded requests, if a frame is due.
    fn send_recorded<P: Port, M: Memory>(
        &mut self,
        conn: ConnId,
        recorder: &mut Option<Box<Recorder>>,
        environment: &mut Environment<'_, P, M>,
    ) -> Stream {
        let Some(recorder) = recorder else { return Stream::Finished };
        if self.ended {
            recorder.end();
        }
        if let Some(frame) = recorder.next_frame(environment.now) {
            self.sending = environment.send_bytes(conn, frame);
            recorder.note_send(environment.now, self.sending.is_some());
        }
        match self.sending {
            Some(_) => Stream::Sending,
            None if recorder.has_ended() => {
                self.ended = true;
                Stream::Finished
            }
            None => Stream::Waiting,
        }
    }

    /// Stops recording for this session, if it records.
    fn stop_recording(&mut self, recorder: &mut Option<Box<Recorder>>) {
        if std::mem::take(&mut self.is_recording) {
            *recorder = None;
        }
    }
}

impl<V: Volumes, P: Port> Server<V, P> {
    /// Answers requests of the control socket, or passes them to the engine.
    pub(super) fn answer_sessions<M: Memory>(&mut self, environment: &mut Environment<'_, P, M>) {
        // One request a turn: a status walks the whole map while clients wait.
        if let Some((conn, line)) = self.sessions.next_request(environment.now) {
            let answer = match Request::parse(&line) {
                Ok(request) => self.answer(conn, &request, environment),
                Err(answer) => Some(answer),
            };
            if let Some(session) = self.sessions.open.get_mut(&conn) {
                session.waiting = answer.is_none();
                session.answer = answer.map(|answer| answer.line()).unwrap_or_default();
            }
        }
    }

    /// Sets a policy of its own for a volume, or resets it to the pool's.
    fn apply_volume_policy(&mut self, name: &str, choice: Option<TunedPolicy>, now: Nanos) -> Answer {
        if !self.volumes.volumes().iter().any(|volume| volume.name == name) {
            let error = AdminError::NotFound(name.to_owned());
            return Answer::failed(error.kind(), error.to_string());
        }
        self.volumes.set_volume_policy(now, name, choice);
        Answer::Done
    }

    /// Returns the answer, or `None` if the engine has to produce it.
    fn answer<M: Memory>(
        &mut self,
        conn: ConnId,
        request: &Request,
        environment: &mut Environment<'_, P, M>,
    ) -> Option<Answer> {
        let now = environment.now;
        if let Request::RemoveVolume { name } = request
            && let Some(refused) = self.refuse_to_remove(name)
        {
            return Some(refused);
        }
        if let Some(policy) = request.policy() {
            return Some(match policy {
                Ok(choice) => {
                    self.volumes.set_policy(now, choice.create());
                    Answer::Done
                }
                Err(refused) => refused,
            });
        }
        if let Some(asked) = request.volume_policy() {
            return Some(asked.map_or_else(
                |refused| refused,
                |(name, choice)| self.apply_volume_policy(name, choice, now),
            ));
        }
        match request {
            Request::Status => {
                let status = (self.describe)(&self.volumes, environment.port, &self.counts());
                return Some(Answer::Status(status));
            }
            Request::Explain { volume, offset_bytes } => {
                return Some(self.explain(volume, VolumeOffset(*offset_bytes)));
            }
            Request::Record { volumes } => return Some(self.record(conn, volumes, now)),
            Request::Stop => {
                let stopping =
                    self.stop != Stop::Running || self.begin_stop(environment) == StopRequest::Started;
                return stopping.then_some(Answer::Done);
            }
            Request::CreateVolume { .. }
            | Request::SetHardening { .. }
            | Request::RemoveVolume { .. }
            | Request::SetPolicy { .. }
            | Request::SetVolumePolicy { .. } => {}
        }
        let command = request.command()?;
        let id = self.sessions.next;
        self.sessions.next += 1;
        self.sessions.pending_changes.insert(id, conn);
        self.volumes.admin(now, AdminId(id), command);
        self.exports = nbd::Export::all(&self.volumes);
        None
    }

    /// Explains where a block is stored, since when and why.
    fn explain(&self, volume: &str, at: VolumeOffset) -> Answer {
        match self.volumes.explain(volume, at) {
            Ok(told) => {
                let name = |device| self.volumes.device_name(device);
                Answer::Explained(Box::new(Explanation::new(volume, told, name)))
            }
            Err(error) => Answer::failed(error.kind(), error.to_string()),
        }
    }

    /// Starts to record client requests to these volumes, for this session.
    fn record(&mut self, conn: ConnId, names: &[String], now: Nanos) -> Answer {
        if self.sessions.recorder.is_some() {
            let message = "requests to this pool are being recorded already; end that recording first";
            return Answer::failed(ErrorKind::Refused, message);
        }
        let there = self.volumes.volumes();
        let found = |name: &String| there.iter().find(|volume| volume.name == *name).map(|volume| volume.id);
        let mut volumes = Vec::new();
        for name in names {
            let Some(id) = found(name) else {
                let error = AdminError::NotFound(name.clone());
                return Answer::failed(error.kind(), error.to_string());
            };
            volumes.push(id);
        }
        let Some(session) = self.sessions.open.get_mut(&conn) else { return Answer::Recording };
        session.is_recording = true;
        self.sessions.recorder = Some(Box::new(Recorder::new(volumes, now)));
        Answer::Recording
    }

    fn refuse_to_remove(&self, name: &str) -> Option<Answer> {
        let export = self.exports.iter().find(|export| export.name == name)?;
        let users = self.clients.client_count(export.volume);
        let clients = if users == 1 { "client uses" } else { "clients use" };
        let message = format!("{users} {clients} volume {name:?}; disconnect first, then remove it");
        (users > 0 && !self.volumes.planted().is(Mutant::UsedVolumeRemoved))
            .then(|| Answer::failed(ErrorKind::Refused, message))
    }
}
