//! The program `aktis`.

use std::process::ExitCode;

fn main() -> ExitCode {
    match aktis_cli::Restart::this_program() {
        Ok(restart) => ExitCode::from(aktis_cli::run(std::env::args_os().collect(), &restart)),
        Err(error) => {
            eprintln!("error: this program does not know where it lies: {error}");
            ExitCode::FAILURE
        }
    }
}
