#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rdmacm::fuzzing::mlx5_completions(bytes));
