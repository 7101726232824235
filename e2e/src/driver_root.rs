//! The simulated driver, installed below a node's driver root.
