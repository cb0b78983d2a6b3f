//! The attributes of Aktis: remote and actor.
