//! Container images without docker.
