//! The `landfall` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    landfall::run(std::env::args_os())
}
