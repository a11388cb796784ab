//! Benchmarks of recording, encoding, decoding and checking.
