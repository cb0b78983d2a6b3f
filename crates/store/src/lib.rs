//! Shared memory of an Aktis node: arena, queues, objects, spill.
