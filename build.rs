//! The shared library's own name, so that programs find the version they were linked with. Writes
//! nothing into the source tree.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_CAPI").is_none() {
        return;
    }
    let os = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").unwrap_or_default();
    match os.as_str() {
        "macos" | "ios" => {
            println!("cargo:rustc-cdylib-link-arg=-Wl,-install_name,@rpath/libmmq.{major}.dylib");
        }
        _ => {
            println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmmq.so.{major}");
            link_by_that_name(&format!("libmmq.so.{major}"));
            // Threads of the library may still be on their way out when a program unloads it.
            println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
        }
    }
}

/// Programs that were linked with the library where cargo puts it look for it there by its own
/// name.
fn link_by_that_name(name: &str) {
    let Some(out) = std::env::var_os("OUT_DIR").map(std::path::PathBuf::from) else { return };
    // PROFILE/build/mmq-.../out; who has it otherwise does without the link.
    if let Some(built) = out
        .ancestors()
        .nth(3)
        .filter(|_| out.ancestors().nth(2).is_some_and(|dir| dir.ends_with("build")))
    {
        #[cfg(unix)]
        let _ = std::os::unix::fs::symlink("libmmq.so", built.join(name));
        #[cfg(not(unix))]
        let _ = (built, name);
    }
}
