//! The picker's configuration, typed and validated. No I/O.
