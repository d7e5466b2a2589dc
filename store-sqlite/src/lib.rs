//! The Store contract in one SQLite file.
