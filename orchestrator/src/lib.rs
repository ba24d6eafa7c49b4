//! Runs many coding agents on one git repository at once.
