//! Installs mmq for C and C++: headers, shared and static library, `mmq.pc`, and a CMake package.
//!
//! ```sh
//! cargo run --release --features capi --example install -- --prefix /usr/local
//! ```
//!
//! `--libdir NAME` (default `lib`) names the directory of the libraries below the prefix,
//! `--destdir DIR` puts everything below DIR (for packagers), `--debug` installs an unoptimised
//! build. With cargo-c, use `cargo cinstall` instead.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const MAJOR: &str = env!("CARGO_PKG_VERSION_MAJOR");
const MINOR: &str = env!("CARGO_PKG_VERSION_MINOR");
const SHARED: &str = if cfg!(target_os = "macos") { "libmmq.dylib" } else { "libmmq.so" };

struct Wishes {
    prefix: PathBuf,
    libdir: String,
    destdir: Option<PathBuf>,
    debug: bool,
}

fn wishes() -> Result<Wishes, Box<dyn Error>> {
    let usage = "usage: install --prefix DIR [--libdir NAME] [--destdir DIR] [--debug]";
    let (mut prefix, mut libdir, mut destdir, mut debug) = (None, "lib".to_owned(), None, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(usage);
        match argument.as_str() {
            "--prefix" => prefix = Some(std::path::absolute(value()?)?),
            "--libdir" => libdir = value()?,
            "--destdir" => destdir = Some(std::path::absolute(value()?)?),
            "--debug" => debug = true,
            _ => return Err(usage.into()),
        }
    }
    Ok(Wishes { prefix: prefix.ok_or(usage)?, libdir, destdir, debug })
}

/// Builds one kind of library and returns what the compiler said.
fn build(kind: &str, target: &Path, debug: bool) -> Result<String, Box<dyn Error>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args([
        "rustc",
        "--lib",
        "--features",
        "capi",
        "--crate-type",
        kind,
    ]);
    command.arg("--target-dir").arg(target);
    if !debug {
        command.arg("--release");
    }
    let output = command.args(["--", "--print", "native-static-libs"]).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(said) } else { Err(said.into()) }
}

/// The system libraries that the static library needs, as the compiler tells them.
fn system_libraries(said: &str) -> String {
    let told = said.lines().find_map(|line| line.split_once("native-static-libs: "));
    told.map_or("-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc", |(_, libraries)| libraries.trim())
        .to_owned()
}

fn pkg_config(libdir: &str, system: &str) -> String {
    let up = "/..".repeat(Path::new(libdir).components().count() + 1);
    format!(
        "prefix=${{pcfiledir}}{up}\nlibdir=${{prefix}}/{libdir}\nincludedir=${{prefix}}/include\n\nName: mmq\nDescription: {}\n\
         Version: {VERSION}\nLibs: -L${{libdir}} -lmmq\nLibs.private: {system}\nCflags: -I${{includedir}}\n",
        env!("CARGO_PKG_DESCRIPTION")
    )
}

fn cmake_config(libdir: &str, shared: &str, soname: &str, system: &str) -> String {
    let up = "/..".repeat(Path::new(libdir).components().count() + 2);
    let system = system.split_whitespace().collect::<Vec<_>>().join(";");
    format!(
        r#"# find_package(mmq) gives mmq::mmq, the shared library, and mmq::static, the static one with what it needs.
get_filename_component(_mmq_prefix "${{CMAKE_CURRENT_LIST_DIR}}{up}" ABSOLUTE)
if(NOT TARGET mmq::mmq)
  add_library(mmq::mmq SHARED IMPORTED)
  set_target_properties(mmq::mmq PROPERTIES
    IMPORTED_LOCATION "${{_mmq_prefix}}/{libdir}/{shared}"
    IMPORTED_SONAME "{soname}"
    INTERFACE_INCLUDE_DIRECTORIES "${{_mmq_prefix}}/include")
  add_library(mmq::static STATIC IMPORTED)
  set_target_properties(mmq::static PROPERTIES
    IMPORTED_LOCATION "${{_mmq_prefix}}/{libdir}/libmmq.a"
    INTERFACE_INCLUDE_DIRECTORIES "${{_mmq_prefix}}/include"
    INTERFACE_LINK_LIBRARIES "{system}")
endif()
set(mmq_FOUND TRUE)
unset(_mmq_prefix)
"#
    )
}

fn cmake_version() -> String {
    format!(
        r#"set(PACKAGE_VERSION "{VERSION}")
# Before 1.0 a new minor number is a new interface.
set(PACKAGE_VERSION_COMPATIBLE FALSE)
set(PACKAGE_VERSION_EXACT FALSE)
if(PACKAGE_FIND_VERSION_MAJOR EQUAL {MAJOR}
   AND NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
  if({MAJOR} GREATER 0 OR PACKAGE_FIND_VERSION_COUNT LESS 2
     OR PACKAGE_FIND_VERSION_MINOR EQUAL {MINOR})
    set(PACKAGE_VERSION_COMPATIBLE TRUE)
  endif()
endif()
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
"#
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    let wishes = wishes()?;
    // Where this program was built, the libraries are: TARGET/PROFILE/examples/install. (It runs in
    // either profile.)
    let target =
        std::env::current_exe()?.ancestors().nth(3).ok_or("an unknown place")?.to_path_buf();
    let built = target.join(if wishes.debug { "debug" } else { "release" });
    build("cdylib", &target, wishes.debug)?;
    let system = system_libraries(&build("staticlib", &target, wishes.debug)?);

    let root = match &wishes.destdir {
        Some(destdir) => destdir.join(wishes.prefix.strip_prefix("/")?),
        None => wishes.prefix.clone(),
    };
    let (include, lib) = (root.join("include"), root.join(&wishes.libdir));
    let (pkgconfig, cmake) = (lib.join("pkgconfig"), lib.join("cmake/mmq"));
    for dir in [&include, &pkgconfig, &cmake] {
        fs::create_dir_all(dir)?;
    }
    for header in ["mmq.h", "mmq.hpp"] {
        fs::copy(
            Path::new(env!("CARGO_MANIFEST_DIR")).join("include").join(header),
            include.join(header),
        )?;
    }
    fs::copy(built.join("libmmq.a"), lib.join("libmmq.a"))?;
    let (full, soname) = if cfg!(target_os = "macos") {
        (format!("libmmq.{VERSION}.dylib"), format!("libmmq.{MAJOR}.dylib"))
    } else {
        (format!("libmmq.so.{VERSION}"), format!("libmmq.so.{MAJOR}"))
    };
    // A program that runs keeps the file it has: it is replaced, not written over.
    let fresh = lib.join(format!("{full}.new"));
    fs::copy(built.join(SHARED), &fresh)?;
    fs::rename(fresh, lib.join(&full))?;
    for link in [soname.as_str(), SHARED] {
        let link = lib.join(link);
        if link.is_symlink() || link.exists() {
            fs::remove_file(&link)?;
        }
        std::os::unix::fs::symlink(&full, link)?;
    }
    fs::write(pkgconfig.join("mmq.pc"), pkg_config(&wishes.libdir, &system))?;
    fs::write(
        cmake.join("mmqConfig.cmake"),
        cmake_config(&wishes.libdir, &full, &soname, &system),
    )?;
    fs::write(cmake.join("mmqConfigVersion.cmake"), cmake_version())?;
    println!("installed mmq {VERSION} under {}", root.display());
    Ok(())
}
