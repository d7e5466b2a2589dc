//! The Store contract on etcd (design page 3, "etcd").
