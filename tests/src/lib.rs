//! Helpers that several of the test targets share.
