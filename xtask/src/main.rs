//! The project's own commands: `cargo xtask test | tidy | bench`.

fn main() {}
