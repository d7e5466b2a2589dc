//! The etcd store while etcd fails.
