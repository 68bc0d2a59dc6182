//! Refuses a target that mmq cannot work on, before the compiler finds what is missing there. Says
//! what every shared library made of this crate is linked with. Writes nothing.

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
    }
}
