//! The program of the library beside this file. Cargo compiles a library while the one that it
//! needs is still being optimised, and a program only behind all of them.

fn main() -> std::process::ExitCode {
    mmq_cli::main()
}
