//! Stories of the placer.
