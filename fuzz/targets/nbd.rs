//! Feeds arbitrary bytes to a session as an NBD client: no panic, no memory leak, and an answer to every
//! request.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| weir_session::fuzzing::client(bytes));
