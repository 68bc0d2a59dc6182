//! What is installed: headers, libraries, `mmq.pc`, the CMake package, and the examples built with
//! them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::binary::declared;
use crate::library::{exists, root, run, target, turn};

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

/// The installer, which builds where it was built itself, and with debug information if it is asked
/// for (the gate builds without).
fn installer() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root()).args(["build", "--features", "install", "--bin", "mmq-install"]);
    run(cargo.arg("--target-dir").arg(target()));
    let mut installer = Command::new(target().join("debug/mmq-install"));
    installer.env_remove("CARGO_PROFILE_DEV_DEBUG");
    installer
}

fn install(prefix: &Path, more: &[&str]) {
    let _turn = turn();
    run(installer().arg("--prefix").arg(prefix).args(more));
}

/// Both libraries of an installation.
fn libraries(prefix: &Path) -> [PathBuf; 2] {
    ["lib/libmmq.so", "lib/libmmq.a"].map(|library| prefix.join(library))
}

/// The names of sections of debug information in that file.
fn debug_sections(file: &Path) -> Vec<String> {
    let said = run(Command::new("readelf").arg("-SW").arg(file));
    let named = said.split_whitespace().filter(|word| word.starts_with(".debug_"));
    named.map(str::to_owned).collect()
}

#[cfg(target_os = "linux")]
#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn what_is_installed_is_small_unless_the_lines_of_the_source_are_asked_for() {
    let place = crate::support::tempdir().unwrap();
    install(place.path(), &[]);
    // 1,678,560 and 2,772,326 bytes since dead letters have a thread, files are looked at by name,
    // and what a failed sync left is written again.
    for (library, most) in libraries(place.path()).iter().zip([1_700_000, 2_800_000]) {
        let bytes = std::fs::metadata(library).unwrap().len();
        assert!(bytes <= most, "{} has {bytes} bytes", library.display());
        assert_eq!(debug_sections(library), Vec::<String>::new());
    }
    install(place.path(), &["--debug-lines"]);
    for library in libraries(place.path()) {
        assert!(debug_sections(&library).contains(&".debug_line".to_owned()));
    }
}

/// The static library has the names of the header and no others: it goes into one program with
/// other Rust code, which has a standard library of its own.
#[cfg(target_os = "linux")]
#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn a_program_links_the_static_library_with_another_one_of_rust() {
    let place = crate::support::tempdir().unwrap();
    let dir = place.path();
    install(dir, &[]);
    let archive = dir.join("lib/libmmq.a");
    let symbols = run(Command::new("nm").args(["-g", "--defined-only"]).arg(&archive));
    let mut named: Vec<_> =
        symbols.lines().filter_map(|line| line.split(' ').nth(2)).map(str::to_owned).collect();
    named.sort_unstable();
    assert_eq!(named, declared());

    let other = "#[unsafe(no_mangle)] pub extern \"C\" fn other() -> i32 {\n\
                 std::panic::catch_unwind(|| panic!(\"caught\")).map_or(7, |()| 0)\n}\n";
    let program = "#include <mmq.h>\nint other(void);\nint main(void) {\n  mmq_queue *queue;\n\
                   if (mmq_open(\"queue\", NULL, &queue) != MMQ_OK) return 1;\n\
                   if (other() != 7) return 2;\n  return mmq_close(queue);\n}\n";
    std::fs::write(dir.join("other.rs"), other).unwrap();
    std::fs::write(dir.join("program.c"), program).unwrap();
    let mut rustc = Command::new("rustc");
    run(rustc.current_dir(dir).args(["--edition=2024", "--crate-type=staticlib", "other.rs"]));
    let orders = [["lib/libmmq.a", "libother.a"], ["libother.a", "lib/libmmq.a"]];
    for (order, name) in orders.iter().zip(["first", "second"]) {
        let mut compile = Command::new("cc");
        compile.current_dir(dir).args(["program.c", "-Iinclude", "-o", name]).args(order);
        run(compile.args(["-pthread", "-lm", "-ldl"]));
        run(Command::new(dir.join(name)).current_dir(dir));
    }
}

/// The names of the shared library. The CMake package says that a new minor number is a new
/// interface before 1.0.
fn check_names(lib: &Path) {
    let [major, minor] = [env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR")];
    let interface = if major == "0" { format!("0.{minor}") } else { major.to_owned() };
    let soname = format!("libmmq.so.{interface}");
    let full = format!("libmmq.so.{}", env!("CARGO_PKG_VERSION"));
    for link in ["libmmq.so", &soname] {
        assert_eq!(std::fs::read_link(lib.join(link)).unwrap(), Path::new(&full));
    }
    let dynamic = run(Command::new("readelf").args(["-d", "-W"]).arg(lib.join(&full)));
    assert!(dynamic.contains(&format!("Library soname: [{soname}]")), "{dynamic}");
}

/// One file that needs no other.
fn check_static(place: &Path, pkg_config: &Path, expected: &[String]) {
    let alone = place.join("alone");
    let mut words = Command::new("pkg-config");
    words.args(["--static", "--cflags", "--libs", "mmq"]).env("PKG_CONFIG_PATH", pkg_config);
    let mut compile = Command::new("cc");
    compile.arg("-static").arg(root().join("examples/hello.c")).arg("-o").arg(&alone);
    run(compile.args(run(&mut words).split_whitespace()));
    assert_eq!(without_chance(&run(&mut Command::new(alone))), expected);
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn what_is_installed_builds_the_examples_through_pkg_config_and_cmake() {
    let place = crate::support::tempdir().unwrap();
    let prefix = place.path().join("prefix");
    install(&prefix, &[]);
    check_names(&prefix.join("lib"));
    // The prefix may be moved.
    let moved = place.path().join("moved");
    std::fs::rename(&prefix, &moved).unwrap();
    let pkg_config = moved.join("lib/pkgconfig");

    // The profile of these tests: `cargo test` has built them already.
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root()).args(["build", "--profile", "test", "--examples", "--target-dir"]);
    run(cargo.arg(target()));
    let expected = |name: &str| {
        without_chance(&run(&mut Command::new(target().join("debug/examples").join(name))))
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
        let said = run(&mut Command::new(out.join("fresh_first-c")));
        assert_eq!(without_chance(&said), expected("fresh_first"));
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
        check_static(place.path(), &pkg_config, &expected("hello"));
    } else {
        crate::support::skip("make or pkg-config is not installed");
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
        crate::support::skip("cmake is not installed");
    }
}

/// One installation after the other in one place: the headers are those of the library that is
/// there.
#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn what_is_installed_with_forwarding_forwards_where_it_has_a_client() {
    let place = crate::support::tempdir().unwrap();
    let prefix = place.path().join("prefix");
    let forwarding =
        || ["mmq_forward.h", "mmq_forward.hpp"].map(|it| prefix.join("include").join(it).exists());
    let named = || {
        let declarations = std::fs::read_to_string(prefix.join("include/mmq.cdef.h")).unwrap();
        declarations.contains("mmq_forwarder_new(")
    };
    install(&prefix, &["--debug", "--forward", "redis"]);
    assert_eq!((forwarding(), named()), ([true, true], true));
    check_names(&prefix.join("lib"));
    let program = place.path().join("forward");
    let mut compile = Command::new("cc");
    compile.arg(root().join("examples/forward/forward.c")).arg("-o").arg(&program);
    compile.arg("-I").arg(prefix.join("include")).arg("-L").arg(prefix.join("lib")).arg("-lmmq");
    run(compile.arg(format!("-Wl,-rpath,{}", prefix.join("lib").display())));
    let mut forward = Command::new(program);
    forward.current_dir(place.path()).args(["queue", "nats://a:secret@host", "EVENTS", "0"]);
    forward.env_remove("LD_LIBRARY_PATH");
    let refused = forward.output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    let wrong = "nats://a@host is no address that this library has a client for";
    assert!(said.contains(wrong) && said.contains("redis://"), "{said}");

    install(&prefix, &["--debug"]);
    assert_eq!((forwarding(), named()), ([false, false], false));
    for library in libraries(&prefix) {
        assert!(debug_sections(&library).contains(&".debug_info".to_owned()));
    }
}

/// The lines of the documents that build mmq within another CMake project, run with this directory
/// as the copy fetched.
#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn the_lines_for_cmake_in_the_documents_build_a_program() {
    if !exists("cmake") {
        crate::support::skip("cmake is not installed");
        return;
    }
    let read = |document| std::fs::read_to_string(root().join(document)).unwrap();
    let texts = ["README.md", "docs/guide.md"].map(read);
    let blocks: BTreeSet<&str> = texts
        .iter()
        .flat_map(|text| text.split("```cmake\n").skip(1))
        .map(|rest| rest.split("```").next().unwrap_or_default())
        .collect();
    assert!(!blocks.is_empty(), "no lines for CMake");
    let program = root().join("examples/hello.c");
    for lines in blocks {
        let place = crate::support::tempdir().unwrap();
        let list = format!(
            "cmake_minimum_required(VERSION 3.16)\nproject(program C)\nadd_executable(program {})\n{lines}",
            program.display()
        );
        std::fs::write(place.path().join("CMakeLists.txt"), list).unwrap();
        let build = place.path().join("build");
        let mut configure = Command::new("cmake");
        configure.arg("-S").arg(place.path()).arg("-B").arg(&build).arg("-DMMQ_PROFILE=dev");
        configure.arg(format!("-DFETCHCONTENT_SOURCE_DIR_MMQ={}", root().display()));
        run(configure.arg(format!("-DMMQ_TARGET_DIR={}", target().display())));
        let _turn = turn();
        run(Command::new("cmake").arg("--build").arg(&build));
        assert!(run(&mut Command::new(build.join("program"))).contains("hello"));
    }
}

/// A program in Go, by cgo, with what is installed.
#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn the_example_in_go_runs_with_what_is_installed() {
    let has_go = Command::new("go").arg("version").output().is_ok_and(|said| said.status.success());
    if !has_go || !exists("pkg-config") {
        crate::support::skip("go or pkg-config is not installed");
        return;
    }
    let place = crate::support::tempdir().unwrap();
    let prefix = place.path().join("prefix");
    install(&prefix, &[]);
    let program = place.path().join("program");
    let mut go = Command::new("go");
    go.current_dir(place.path()).arg("build").arg("-o").arg(&program);
    go.arg(root().join("examples/cgo/main.go"));
    go.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).env("CGO_ENABLED", "1");
    go.env("CGO_LDFLAGS", format!("-Wl,-rpath,{}", prefix.join("lib").display()));
    run(go.env("GOFLAGS", "-mod=mod").env("GOPROXY", "off"));
    let run_it = || run(Command::new(&program).arg(place.path().join("queue")));
    assert_eq!(run_it(), "0: hello\n1: world\n");
    assert_eq!(run_it(), "2: hello\n3: world\n");

    // A gap is reported, and what lies behind it still comes.
    let damaged = place.path().join("damaged");
    crate::flipped::make(&damaged, |number| format!("job number {number:08} of many").into());
    let lines = run(Command::new(&program).arg(&damaged));
    assert_eq!(lines.lines().count() as u64, crate::flipped::WHOLE + 2);
}
