//! Between machines and disks: what crosses a wire, and what outlives a process.

pub mod durable;
