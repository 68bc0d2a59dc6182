//! What is installed: headers, libraries, `mmq.pc`, the CMake package, and the examples built with
//! them.

use std::path::Path;
use std::process::Command;

use crate::library::{exists, root, run, scratch};

/// The programs of `examples/`, by name.
const EXAMPLES: [&str; 3] = ["hello", "producer_consumer", "recovery"];

/// What an example says, without what differs from run to run: the numbers of messages when it is
/// killed.
fn without_chance(said: &str) -> Vec<String> {
    let line = |line: &str| match line.split_once("killed after ") {
        Some((round, _)) => round.to_owned(),
        None => line.to_owned(),
    };
    said.lines().map(line).collect()
}

#[expect(clippy::too_many_lines, reason = "one program after the other")]
#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn what_is_installed_builds_the_examples_through_pkg_config_and_cmake() {
    let target = scratch("library");
    let place = tempfile::tempdir().unwrap();
    let prefix = place.path().join("prefix");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root()).args([
        "run",
        "--features",
        "capi",
        "--example",
        "install",
        "--target-dir",
    ]);
    run(cargo.arg(&target).args(["--", "--debug", "--prefix"]).arg(&prefix));
    let soname = format!("libmmq.so.{}", env!("CARGO_PKG_VERSION_MAJOR"));
    let full = format!("libmmq.so.{}", env!("CARGO_PKG_VERSION"));
    for link in ["libmmq.so", &soname] {
        assert_eq!(std::fs::read_link(prefix.join("lib").join(link)).unwrap(), Path::new(&full));
    }
    // The prefix may be moved.
    let moved = place.path().join("moved");
    std::fs::rename(&prefix, &moved).unwrap();
    let pkg_config = moved.join("lib/pkgconfig");

    let mut rust = Command::new(env!("CARGO"));
    rust.current_dir(root()).args(["build", "--examples", "--target-dir"]).arg(&target);
    run(&mut rust);
    let expected = |name: &str| {
        without_chance(&run(&mut Command::new(target.join("debug/examples").join(name))))
    };

    if exists("make") && exists("pkg-config") {
        let version = run(Command::new("pkg-config")
            .args(["--modversion", "mmq"])
            .env("PKG_CONFIG_PATH", &pkg_config));
        assert_eq!(version.trim(), env!("CARGO_PKG_VERSION"));
        let out = place.path().join("make");
        let mut make = Command::new("make");
        make.arg("-C").arg(root().join("examples")).arg(format!("OUT={}", out.display()));
        run(make.env("PKG_CONFIG_PATH", &pkg_config));
        for name in EXAMPLES {
            let expected = expected(name);
            for language in ["c", "cpp"] {
                let said = run(&mut Command::new(out.join(format!("{name}-{language}"))));
                assert_eq!(without_chance(&said), expected, "{name}.{language}");
            }
        }
        let said = run(&mut Command::new(out.join("event_loop-c")));
        assert_eq!(said, "the loop saw 1000 messages and 1 other event\n");
        let archive = place.path().join("static");
        let mut compile = Command::new("cc");
        compile.arg(root().join("examples/hello.c")).arg("-I").arg(moved.join("include"));
        compile.arg(moved.join("lib/libmmq.a")).arg("-o").arg(&archive);
        let libraries = run(Command::new("pkg-config")
            .args(["--static", "--libs-only-l", "mmq"])
            .env("PKG_CONFIG_PATH", &pkg_config));
        run(compile.args(libraries.split_whitespace().filter(|library| *library != "-lmmq")));
        assert_eq!(without_chance(&run(&mut Command::new(archive))), expected("hello"));
    } else {
        println!("SKIPPED: make or pkg-config is not installed");
    }
    if exists("cmake") {
        let out = place.path().join("cmake");
        let mut configure = Command::new("cmake");
        configure.arg("-S").arg(root().join("examples")).arg("-B").arg(&out);
        run(configure.arg(format!("-DCMAKE_PREFIX_PATH={}", moved.display())));
        run(Command::new("cmake").arg("--build").arg(&out));
        for name in ["hello-c", "hello-cpp", "hello-static"] {
            assert_eq!(without_chance(&run(&mut Command::new(out.join(name)))), expected("hello"));
        }
        let version = |asked: &str| {
            let list = place.path().join(format!("find-{asked}"));
            std::fs::create_dir_all(&list).unwrap();
            let text = format!(
                "cmake_minimum_required(VERSION 3.16)\nproject(p C)\nfind_package(mmq {asked} REQUIRED)\n"
            );
            std::fs::write(list.join("CMakeLists.txt"), text).unwrap();
            let mut find = Command::new("cmake");
            find.arg("-S").arg(&list).arg("-B").arg(list.join("build"));
            find.arg(format!("-DCMAKE_PREFIX_PATH={}", moved.display()))
                .output()
                .unwrap()
                .status
                .success()
        };
        assert!(version(env!("CARGO_PKG_VERSION")), "the very version");
        assert!(!version("99.0"), "a later version");
    } else {
        println!("SKIPPED: cmake is not installed");
    }
}

/// The lines of the README that build mmq within another CMake project, run with this directory as
/// the copy fetched.
#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn the_lines_for_cmake_in_the_readme_build_a_program() {
    if !exists("cmake") {
        println!("SKIPPED: cmake is not installed");
        return;
    }
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let (_, rest) = readme.split_once("```cmake\n").expect("lines for CMake");
    let (lines, _) = rest.split_once("```").expect("their end");
    let place = tempfile::tempdir().unwrap();
    let program = root().join("examples/hello.c");
    let list = format!(
        "cmake_minimum_required(VERSION 3.16)\nproject(program C)\nadd_executable(program {})\n{lines}",
        program.display()
    );
    std::fs::write(place.path().join("CMakeLists.txt"), list).unwrap();
    let build = place.path().join("build");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(place.path()).arg("-B").arg(&build).arg("-DMMQ_PROFILE=dev");
    configure.arg(format!("-DFETCHCONTENT_SOURCE_DIR_MMQ={}", root().display()));
    run(configure.arg(format!("-DMMQ_TARGET_DIR={}", scratch("library").display())));
    run(Command::new("cmake").arg("--build").arg(&build));
    assert!(run(&mut Command::new(build.join("program"))).contains("hello"));
}

/// Without installing: `cargo build --features capi` is enough to link and run a program.
#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn a_program_runs_with_the_library_where_cargo_puts_it() {
    let target = scratch("library");
    let mut cargo = Command::new(env!("CARGO"));
    run(cargo
        .current_dir(root())
        .args(["build", "--features", "capi", "--target-dir"])
        .arg(&target));
    let place = tempfile::tempdir().unwrap();
    let (program, debug) = (place.path().join("program"), target.join("debug"));
    let mut compile = Command::new("cc");
    compile
        .arg(root().join("examples/hello.c"))
        .arg("-I")
        .arg(root().join("include"))
        .arg("-o")
        .arg(&program);
    run(compile.arg("-L").arg(&debug).arg("-lmmq"));
    let said = run(Command::new(program).env("LD_LIBRARY_PATH", &debug));
    assert_eq!(said, "0: hello\n1: world\n");
}
