//! Any bytes as a client's requests, past the handshake.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| weir_session::fuzzing::transmission(bytes));
