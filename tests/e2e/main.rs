//! Tests of e2e.

mod g3_under_studio;
