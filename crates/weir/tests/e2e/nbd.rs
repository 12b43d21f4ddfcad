//! A small NBD client over a unix socket, so that tests know exactly which requests were acknowledged. It
//! speaks fixed newstyle with simple replies; several requests may be in flight.

mod replies;

pub(crate) use replies::Replies;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub(crate) const FUA: u16 = 1;
/// Command flag: zeroes occupy space.
pub(crate) const NO_HOLE: u16 = 2;

/// Command of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Command {
    Read = 0,
    Write = 1,
    Disconnect = 2,
    Flush = 3,
    Trim = 4,
    WriteZeroes = 6,
}

pub(crate) struct Client {
    stream: UnixStream,
    /// Size of the export in bytes.
    pub(crate) size: u64,
    /// Transmission flags of the export.
    pub(crate) flags: u16,
    next_cookie: u64,
}

impl Client {
    /// Connects and chooses an export.
    pub(crate) fn connect(socket: &Path, export: &str) -> io::Result<Self> {
        Self::connect_with(socket, export, false)
    }

    fn connect_with(socket: &Path, export: &str, structured: bool) -> io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut hello = [0; 18];
        stream.read_exact(&mut hello)?;
        assert_eq!(&hello[..16], b"NBDMAGICIHAVEOPT");
        // The client flags are fixed newstyle and no zeroes.
        stream.write_all(&3u32.to_be_bytes())?;
        let mut client = Self { stream, size: 0, flags: 0, next_cookie: 1 };
        if structured {
            client.raw_bytes(b"IHAVEOPT\0\0\0\x08\0\0\0\0")?;
            client.go_replies()?;
        }
        let mut data = (export.len() as u32).to_be_bytes().to_vec();
        data.extend(export.as_bytes());
        data.extend([0, 0]);
        let mut option = b"IHAVEOPT".to_vec();
        option.extend(7u32.to_be_bytes());
        option.extend((data.len() as u32).to_be_bytes());
        option.extend(data);
        client.raw_bytes(&option)?;
        client.go_replies()?;
        Ok(client)
    }

    fn go_replies(&mut self) -> io::Result<()> {
        loop {
            let mut head = [0; 20];
            self.stream.read_exact(&mut head)?;
            assert_eq!(head[..8], 0x0003_e889_0455_65a9_u64.to_be_bytes());
            let kind = u32::from_be_bytes([head[12], head[13], head[14], head[15]]);
            let len = u32::from_be_bytes([head[16], head[17], head[18], head[19]]);
            let mut data = vec![0; len as usize];
            self.stream.read_exact(&mut data)?;
            match kind {
                1 => return Ok(()),
                3 if data[..2] == [0, 0] => {
                    self.size = u64::from_be_bytes(data[2..10].try_into().expect("eight bytes"));
                    self.flags = u16::from_be_bytes([data[10], data[11]]);
                }
                3 => {}
                _ => return Err(io::Error::other(format!("option refused with {kind:#x}"))),
            }
        }
    }

    /// Returns the cookie of the next request.
    pub(crate) fn next_cookie(&self) -> u64 {
        self.next_cookie
    }

    /// Sends a request without waiting, and returns its cookie.
    pub(crate) fn send(
        &mut self,
        command: Command,
        flags: u16,
        offset: u64,
        len: u32,
        payload: &[u8],
    ) -> io::Result<u64> {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let mut request = Vec::with_capacity(28 + payload.len());
        request.extend(0x2560_9513_u32.to_be_bytes());
        request.extend(flags.to_be_bytes());
        request.extend((command as u16).to_be_bytes());
        request.extend(cookie.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(len.to_be_bytes());
        request.extend(payload);
        self.stream.write_all(&request)?;
        Ok(cookie)
    }

    /// Sends a request of any kind, valid or not.
    pub(crate) fn raw(&mut self, kind: u16, offset: u64, len: u32, payload: &[u8]) -> io::Result<()> {
        let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
        request.extend([0, 0]);
        request.extend(kind.to_be_bytes());
        request.extend(u64::MAX.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(len.to_be_bytes());
        request.extend(payload);
        self.raw_bytes(&request)
    }

    /// Sends arbitrary bytes.
    pub(crate) fn raw_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Returns the connection itself.
    pub(crate) fn into_stream(self) -> UnixStream {
        self.stream
    }

    /// Ends the connection, for the receiving side as well.
    pub(crate) fn shut_down(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    /// Sets how long a send may wait until the server accepts it.
    pub(crate) fn give_up_after(&self, wait: Duration) {
        let _ = self.stream.set_write_timeout(Some(wait));
    }

    /// Receives the next reply: its cookie, and its error number, which is zero on success.
    pub(crate) fn reply(&mut self) -> io::Result<(u64, u32)> {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head)?;
        assert_eq!(head[..4], 0x6744_6698_u32.to_be_bytes(), "a simple reply");
        let error = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        Ok((u64::from_be_bytes(head[8..].try_into().expect("eight bytes")), error))
    }

    /// Sends one request, with its payload if it has one, and waits for the reply; an error number becomes an
    /// error.
    pub(crate) fn ask(
        &mut self,
        command: Command,
        flags: u16,
        offset: u64,
        len: u32,
        payload: &[u8],
    ) -> io::Result<()> {
        let cookie = self.send(command, flags, offset, len, payload)?;
        let (answered, error) = self.reply()?;
        assert_eq!(cookie, answered, "nothing else was in flight");
        if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error as i32)) }
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.ask(Command::Write, 0, offset, bytes.len() as u32, bytes)
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.ask(Command::Flush, 0, 0, 0, &[])
    }

    pub(crate) fn read(&mut self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        self.ask(Command::Read, 0, offset, len as u32, &[])?;
        self.payload(len)
    }

    /// Receives the payload after the reply to a read.
    pub(crate) fn payload(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn disconnect(mut self) {
        let _ = self.send(Command::Disconnect, 0, 0, 0, &[]);
    }
}
