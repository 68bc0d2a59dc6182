//! What every shared library made of this crate is linked with. Writes nothing.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let elf = !matches!(std::env::var("CARGO_CFG_TARGET_VENDOR").as_deref(), Ok("apple"));
    if elf && std::env::var_os("CARGO_FEATURE_CAPI").is_some() {
        // Threads of the library may still be on their way out when a program unloads it. (Programs
        // are linked with this too, and it means nothing there. Cargo takes it for shared libraries
        // alone only from a crate that always builds one.)
        println!("cargo:rustc-link-arg=-Wl,-z,nodelete");
    }
}
