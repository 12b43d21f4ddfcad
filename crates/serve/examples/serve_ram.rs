//! Serves a volume in memory, to measure the cost of serving without an engine and devices.
//!
//! ```text
//! cargo run --release -p weir-serve --example serve_ram -- /tmp/ram.sock 256
//! ```
//!
//! The arguments are the socket's path and the volume's size in MiB. The server ends at SIGTERM or SIGINT.

use std::path::PathBuf;
use weir_device::{Arena, Devices, Listen, Reactor, ReactorOptions};
use weir_model::Bytes;
use weir_serve::{ClientCounts, Limits, Ram, Server};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().ok_or("give the path of a socket")?);
    let size = arguments.next().map_or(Ok(256), |size| size.parse())?;
    let limits = Limits::default();
    let arena = Arena::new(limits.memory())?;
    let options = ReactorOptions { signals: true, ..ReactorOptions::default() };
    let reactor = Reactor::new(&options, Devices::default(), &arena)?;
    let describe = Box::new(|_: &Ram, _: &Reactor, _: &ClientCounts| serde_json::Value::Null);
    let mut server = Server::new(reactor, arena, Ram::new(Bytes::mib(size)), &limits, describe);
    server.listen(&Listen::private(path))?;
    let end = server.run();
    println!("{end:?}");
    Ok(())
}
