//! An API server that fails, and objects that go away.
