//! Feeds arbitrary bytes to a session as requests after the handshake.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| weir_session::fuzzing::transmission(bytes));
