//! A whole Aktis node in one thread: the machines of logic under faults, with checkers.
