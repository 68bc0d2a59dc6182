//! Installs mmq for C and C++: headers (`mmq.cdef.h` is `mmq.h` without directives, for `cffi` of
//! Python), shared and static library, `mmq.pc`, and a CMake package;
//! with `--tool` the tool `mmq` as well, its manual and what shells need to complete it; with
//! `--forward ENGINES` (of `nats`, `redis`, `redis-tls`, with commas between) the libraries forward
//! to these engines, and `mmq_forward.h` and `mmq_forward.hpp` stand beside the other headers.
//!
//! ```sh
//! cargo run --features install --bin mmq-install -- --prefix /usr/local
//! ```
//!
//! `--libdir NAME` (default `lib`) names the directory of the libraries below the prefix,
//! `--destdir DIR` puts everything below DIR (for packagers), `--debug-lines` leaves the lines of
//! the source in the libraries, for debuggers and backtraces (7 and 13 MB instead of 1.6 and 2.7),
//! `--debug` installs an unoptimised build. With cargo-c, use `cargo cinstall` instead.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = env!("CARGO_MANIFEST_DIR");
const VERSION: &str = env!("CARGO_PKG_VERSION");
const MAJOR: &str = env!("CARGO_PKG_VERSION_MAJOR");
const MINOR: &str = env!("CARGO_PKG_VERSION_MINOR");
/// The package whose libraries have the functions of this one, and those that forward.
const FORWARD: &str = "mmq-forward-c";

/// The name of the shared library, with this version.
fn shared(version: &str) -> String {
    match (cfg!(target_os = "macos"), version) {
        (true, "") => "libmmq.dylib".to_owned(),
        (true, version) => format!("libmmq.{version}.dylib"),
        (false, "") => "libmmq.so".to_owned(),
        (false, version) => format!("libmmq.so.{version}"),
    }
}

/// The name under which cargo leaves a library that is installed under this one.
fn built_as(installed: &str, forward: Option<&str>) -> String {
    let name = forward.map_or("mmq".to_owned(), |_| FORWARD.replace('-', "_"));
    installed.replace("libmmq", &format!("lib{name}"))
}

/// Under this name a program looks for the library that it was linked with. Before 1.0 a new minor
/// number is a new interface.
fn soname() -> String {
    if MAJOR == "0" { shared(&format!("0.{MINOR}")) } else { shared(MAJOR) }
}

/// How the libraries are built.
#[derive(Clone, Copy, PartialEq)]
enum Libraries {
    /// Optimised and small: the profile `capi` of Cargo.toml, without the lines of the source.
    Small,
    /// The same code, with the lines.
    Lines,
    /// Not optimised.
    Debug,
}

struct Arguments {
    prefix: PathBuf,
    libdir: String,
    destdir: Option<PathBuf>,
    build: Libraries,
    /// The engines to forward to.
    forward: Option<String>,
    with_tool: bool,
}

fn read_arguments() -> Result<Arguments, Box<dyn Error>> {
    let usage = "usage: mmq-install --prefix DIR [--libdir NAME] [--destdir DIR] [--debug-lines | --debug] [--forward ENGINES] [--tool]";
    let (mut prefix, mut destdir, mut forward) = (None, None, None);
    let (mut libdir, mut build, mut with_tool) = ("lib".to_owned(), Libraries::Small, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(usage);
        match argument.as_str() {
            "--prefix" => prefix = Some(std::path::absolute(value()?)?),
            "--libdir" => libdir = value()?,
            "--destdir" => destdir = Some(std::path::absolute(value()?)?),
            "--debug-lines" => build = Libraries::Lines,
            "--debug" => build = Libraries::Debug,
            "--forward" => forward = Some(value()?),
            "--tool" => with_tool = true,
            _ => return Err(usage.into()),
        }
    }
    Ok(Arguments { prefix: prefix.ok_or(usage)?, libdir, destdir, build, forward, with_tool })
}

/// Where cargo put this program, in TARGET/PROFILE/, it builds the libraries too. (A program that
/// was copied away, by `cargo install` for instance, lets it use the directory it has for itself.)
fn target() -> Result<PathBuf, Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let made_by_cargo = |dir: &&Path| dir.join("CACHEDIR.TAG").exists();
    let target = program.ancestors().nth(2).filter(made_by_cargo);
    Ok(target.map_or_else(|| Path::new(SOURCE).join("target"), Path::to_path_buf))
}

/// Builds both libraries in that directory, and returns what the compiler said.
fn build(target: &Path, profile: &str, forward: Option<&str>) -> Result<String, Box<dyn Error>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(SOURCE).args(["rustc", "--lib"]);
    match forward {
        None => command.args(["--features", "capi"]),
        Some(engines) => {
            let package = ["--package", FORWARD, "--no-default-features", "--features"];
            command.args(package).arg(engines)
        }
    };
    command.args(["--crate-type", "cdylib,staticlib", "--profile", profile]);
    command.arg("--target-dir").arg(target);
    let named = if cfg!(target_os = "macos") { "-install_name,@rpath/" } else { "-soname," };
    // LLVM inlines up to a cost of 225 by default. What costs more than 200 makes the library 36 KB
    // longer, and an enqueue with a dequeue not faster.
    command.args(["--", "-Cllvm-args=-inline-threshold=200", "--print", "native-static-libs"]);
    let output = command.arg(format!("-Clink-arg=-Wl,{named}{}", soname())).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(said) } else { Err(said.into()) }
}

/// The system libraries that the static library needs, as the compiler tells them. Not those that
/// every C compiler links by itself: `-lgcc_s` does not exist for `cc -static`.
fn system_libraries(said: &str) -> String {
    let reported = said.lines().find_map(|line| line.split_once("native-static-libs: "));
    let reported = reported.map_or("-lutil -lrt -lpthread -lm -ldl", |(_, libraries)| libraries);
    let own = |library: &&str| !["-lgcc_s", "-lc"].contains(library);
    reported.split_whitespace().filter(own).collect::<Vec<_>>().join(" ")
}

/// The declarations of the header without directives and comments, as `cffi` of Python and other
/// readers of C take them: `mmq.cdef.h`.
fn declarations(header: &str) -> String {
    // Of the conditions, a C compiler of before 2023 takes `#else` and what has no other branch.
    let (mut declarations, mut skipped) = (String::new(), Vec::new());
    for line in without_comments(header).lines() {
        let directive = line.trim_start().strip_prefix('#').map(str::trim_start);
        match directive.map(|directive| directive.split_whitespace().next().unwrap_or_default()) {
            Some("if" | "ifdef") => skipped.push(true),
            Some("ifndef") => skipped.push(false),
            Some("else") => {
                if let Some(skips) = skipped.last_mut() {
                    *skips = !*skips;
                }
            }
            Some("endif") => {
                skipped.pop();
            }
            Some(_) => {}
            None if skipped.contains(&true) || line.trim().is_empty() => {}
            None => {
                declarations.push_str(line.trim_end());
                declarations.push('\n');
            }
        }
    }
    declarations
}

fn without_comments(header: &str) -> String {
    let mut rest = header;
    let mut code = String::new();
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before);
        rest = comment.split_once("*/").map_or("", |(_, behind)| behind);
    }
    code.push_str(rest);
    let lines = code.lines().map(|line| line.split_once("//").map_or(line, |(before, _)| before));
    lines.map(|line| format!("{line}\n")).collect()
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

fn tool(command: &mut Command) -> Result<(), Box<dyn Error>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim()).into())
}

/// Takes out the lines of the source, and the names that no program links with, unless the lines
/// are asked for. (A fifth of the shared library was the names of its inner functions.)
fn strip(file: &Path, build: Libraries) -> Result<(), Box<dyn Error>> {
    if build != Libraries::Small {
        return Ok(());
    }
    tool(Command::new("strip").arg("--strip-unneeded").arg(file))
}

/// Makes an archive of one object. The compiler's has all of `compiler_builtins` beside it. The
/// object's names are its own, except those of the header: a program may link it with static
/// libraries of other Rust code.
fn pack(archive: &Path, packed: &Path, build: Libraries) -> Result<(), Box<dyn Error>> {
    let object = packed.with_file_name("mmq.o");
    let _ = fs::remove_file(packed);
    // What was linked as a whole (`lto`) is in one member: one name finds it all.
    let mut link = Command::new("ld");
    link.args(["-r", "--force-group-allocation", "-u", "mmq_open", "-o"]).arg(&object);
    tool(link.arg(archive))?;
    let mut names = Command::new("objcopy");
    names.args(["--wildcard", "--keep-global-symbol=mmq_*"]);
    // Parts of the compiler's own library carry their bitcode. An older LLVM beside the linker
    // takes the whole object for it, and finds no name.
    names.args(["--remove-section=.llvmbc", "--remove-section=.llvmcmd"]);
    tool(names.arg(&object))?;
    strip(&object, build)?;
    if build == Libraries::Small {
        shorten_sections(&object)?;
    }
    tool(Command::new("ar").arg("rcsD").arg(packed).arg(&object))?;
    Ok(fs::remove_file(object)?)
}

/// Each function has a section of its own, so that a program links those alone that it calls; the
/// linker asks how its name begins. (The rest, a function's name, was a ninth of the library.)
fn shorten_sections(object: &Path) -> Result<(), Box<dyn Error>> {
    let listed = Command::new("objdump").args(["-h", "-w"]).arg(object).output()?;
    let listed = String::from_utf8(listed.stdout)?;
    let names = listed.lines().filter_map(|line| line.split_whitespace().nth(1));
    let mut renamed = String::new();
    for name in names {
        let inner = ["._ZN", "._R", "..L"].iter().filter_map(|begins| name.find(begins)).min();
        if let Some(at) = inner {
            renamed += &format!("--rename-section={name}={}.f\n", &name[..at]);
        }
    }
    let words = object.with_extension("words");
    fs::write(&words, renamed)?;
    let done = tool(Command::new("objcopy").arg(format!("@{}", words.display())).arg(object));
    fs::remove_file(words)?;
    done
}

/// Puts the static library there: packed, where the tools of Linux are.
fn install_archive(from: &Path, lib: &Path, build: Libraries) -> Result<(), Box<dyn Error>> {
    let to = lib.join("libmmq.a");
    if build != Libraries::Debug && cfg!(target_os = "linux") {
        let packed = lib.join("libmmq.a.new");
        match pack(from, &packed, build) {
            Ok(()) => return Ok(fs::rename(packed, to)?),
            Err(error) => eprintln!("libmmq.a stays as large as the compiler made it: {error}"),
        }
    }
    fs::copy(from, to)?;
    Ok(())
}

/// Builds the tool, and installs it with the files that it makes of its own command line.
fn install_tool(target: &Path, root: &Path) -> Result<(), Box<dyn Error>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.current_dir(SOURCE).args(["build", "--release", "--package", "mmq-cli"]);
    tool(build.arg("--target-dir").arg(target))?;
    let built = target.join("release/mmq");
    let (bin, man) = (root.join("bin"), root.join("share/man/man1"));
    for dir in [&bin, &man] {
        fs::create_dir_all(dir)?;
    }
    let fresh = bin.join("mmq.new");
    fs::copy(&built, &fresh)?;
    fs::rename(fresh, bin.join("mmq"))?;
    tool(Command::new(&built).arg("man").arg(man))?;
    for (shell, path) in [
        ("bash", "bash-completion/completions/mmq"),
        ("fish", "fish/vendor_completions.d/mmq.fish"),
        ("zsh", "zsh/site-functions/_mmq"),
    ] {
        let path = root.join("share").join(path);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        let made = Command::new(&built).args(["completions", shell]).output()?;
        if !made.status.success() {
            return Err(format!("mmq completions {shell}: {}", made.status).into());
        }
        fs::write(path, made.stdout)?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let asked = read_arguments()?;
    let target = target()?;
    // The profile of cargo, and where below its directory the libraries are then.
    let (profile, folder) =
        if asked.build == Libraries::Debug { ("dev", "debug") } else { ("capi", "capi") };
    let forward = asked.forward.as_deref();
    let system = system_libraries(&build(&target, profile, forward)?);
    let built = |installed: &str| target.join(folder).join(built_as(installed, forward));

    let root = match &asked.destdir {
        Some(destdir) => destdir.join(asked.prefix.strip_prefix("/")?),
        None => asked.prefix.clone(),
    };
    let (include, lib) = (root.join("include"), root.join(&asked.libdir));
    let (pkgconfig, cmake) = (lib.join("pkgconfig"), lib.join("cmake/mmq"));
    for dir in [&include, &pkgconfig, &cmake] {
        fs::create_dir_all(dir)?;
    }
    let forwarding = ["mmq_forward.h", "mmq_forward.hpp"];
    let mut headers = vec!["mmq.h", "mmq.hpp"];
    match forward {
        Some(_) => headers.extend(forwarding),
        // Of another installation.
        None => forwarding.iter().for_each(|it| drop(fs::remove_file(include.join(it)))),
    }
    let mut declared = String::new();
    for header in headers {
        let text = fs::read_to_string(Path::new(SOURCE).join("include").join(header))?;
        fs::write(include.join(header), &text)?;
        if header.ends_with(".h") {
            declared += &declarations(&text);
        }
    }
    fs::write(include.join("mmq.cdef.h"), declared)?;
    install_archive(&built("libmmq.a"), &lib, asked.build)?;
    let (full, soname) = (shared(VERSION), soname());
    // A program that runs keeps the file it has: it is replaced, not written over.
    let fresh = lib.join(format!("{full}.new"));
    fs::copy(built(&shared("")), &fresh)?;
    if let Err(error) = strip(&fresh, asked.build) {
        eprintln!("{full} keeps the lines of the source: {error}");
    }
    fs::rename(fresh, lib.join(&full))?;
    for link in [&soname, &shared("")] {
        let link = lib.join(link);
        if link.is_symlink() || link.exists() {
            fs::remove_file(&link)?;
        }
        std::os::unix::fs::symlink(&full, link)?;
    }
    fs::write(pkgconfig.join("mmq.pc"), pkg_config(&asked.libdir, &system))?;
    fs::write(cmake.join("mmqConfig.cmake"), cmake_config(&asked.libdir, &full, &soname, &system))?;
    fs::write(cmake.join("mmqConfigVersion.cmake"), cmake_version())?;
    if asked.with_tool {
        install_tool(&target, &root)?;
    }
    println!("installed mmq {VERSION} under {}", root.display());
    let pkgconfig = asked.prefix.join(&asked.libdir).join("pkgconfig");
    println!("\nBuild a program with it:\n  export PKG_CONFIG_PATH={}", pkgconfig.display());
    println!(
        "  cc program.c $(pkg-config --cflags --libs mmq) -Wl,-rpath,$(pkg-config --variable=libdir mmq)"
    );
    println!(
        "or with the static library:\n  cc program.c $(pkg-config --cflags mmq) $(pkg-config --variable=libdir mmq)/libmmq.a"
    );
    println!(
        "or with CMake and find_package(mmq):\n  cmake -DCMAKE_PREFIX_PATH={} -B build",
        asked.prefix.display()
    );
    if asked.with_tool {
        println!("Look at a queue:\n  {} stat DIR", asked.prefix.join("bin/mmq").display());
    }
    Ok(())
}
