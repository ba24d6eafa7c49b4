//! Tests of studio.
