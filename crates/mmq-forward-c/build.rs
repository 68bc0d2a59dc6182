//! Says what the shared library is linked with. Writes nothing.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if !matches!(std::env::var("CARGO_CFG_TARGET_VENDOR").as_deref(), Ok("apple")) {
        // Threads of the library may still be on their way out when a program unloads it.
        println!("cargo::rustc-link-arg-cdylib=-Wl,-z,nodelete");
    }
}
