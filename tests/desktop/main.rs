//! Tests of desktop.
