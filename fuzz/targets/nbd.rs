//! Any bytes as an NBD client: no panic, no memory kept, every request answered.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| weir_session::fuzzing::client(bytes));
