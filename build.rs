//! Refuses a target that mmq cannot work on, before the compiler finds what is missing there. Says
//! what every shared library made of this crate is linked with, and warns when the C headers are
//! older than `src/ffi`, of which a test makes them. Writes nothing.

const BLESS: &str = "run MMQ_BLESS=1 cargo test --test sources header";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is_wide = std::env::var("CARGO_CFG_TARGET_POINTER_WIDTH").as_deref() == Ok("64");
    if !is_wide || std::env::var_os("CARGO_CFG_UNIX").is_none() {
        println!(
            "cargo::error=mmq needs a 64-bit Unix, best Linux: it maps files that are larger than \
             a 32-bit address space, and locks directories by flock"
        );
        return;
    }
    let elf = !matches!(std::env::var("CARGO_CFG_TARGET_VENDOR").as_deref(), Ok("apple"));
    if elf && std::env::var_os("CARGO_FEATURE_CAPI").is_some() {
        // Threads of the library may still be on their way out when a program unloads it. (Programs
        // are linked with this too, and it means nothing there. Cargo takes it for shared libraries
        // alone only from a crate that always builds one.)
        println!("cargo::rustc-link-arg=-Wl,-z,nodelete");
        if let Some(line) = missing_in_headers() {
            println!("cargo::warning=include/ is older than src/ffi, no \"{line}\": {BLESS}");
        }
    }
}

/// A function for C that `src/ffi` has and the headers lack, or a line about one. Contents are
/// compared, because in a fresh copy the times of the files mean nothing.
pub(crate) fn missing_in_headers() -> Option<String> {
    println!("cargo::rerun-if-changed=src/ffi\ncargo::rerun-if-changed=include");
    let read = |file: &str| std::fs::read_to_string(file).ok();
    let headers = read("include/mmq.h")? + &read("include/mmq_forward.h")?;
    let files = std::fs::read_dir("src/ffi").ok()?.flatten();
    let text: String = files.filter_map(|file| read(file.path().to_str()?)).collect();
    let text = text.replace("extern \"C\" fn ", "\n///").replace("/// cbindgen:", "");
    let lines = text.split("\n\n").filter(|of| of.contains("no_mangle")).flat_map(str::lines);
    let mut starts = lines.filter_map(|line| line.strip_prefix("///")?.trim().split('(').next());
    starts.find(|start| !headers.contains(start)).map(str::to_string)
}
