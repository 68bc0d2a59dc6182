//! Every bad value is refused.

use super::*;
use crate::memory::page_size;

fn name_of(options: Options) -> &'static str {
    match options.validate(Path::new("queue")) {
        Err(Error::InvalidOption { name, .. }) => name,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn every_bad_value_is_refused_by_its_name() {
    assert_eq!(name_of(Options::new().arena_size(0)), "arena_size");
    assert_eq!(name_of(Options::new().arena_size(4095)), "arena_size");
    assert_eq!(name_of(Options::new().arena_size(4097)), "arena_size");
    assert_eq!(name_of(Options::new().arena_size((1 << 30) + page_size())), "arena_size");
    assert_eq!(name_of(Options::new().arena_size(u64::MAX)), "arena_size");
    for arenas in 0..3 {
        assert_eq!(name_of(Options::new().max_mapped_arenas(arenas)), "max_mapped_arenas");
    }
    assert_eq!(name_of(Options::new().flush_every_ops(0)), "flush_every_ops");
    assert_eq!(name_of(Options::new().flush_every(Duration::ZERO)), "flush_every");
    assert_eq!(name_of(Options::new().max_bytes(65535)), "max_bytes");
    assert_eq!(name_of(Options::new().max_age(Duration::from_nanos(1))), "max_age");
    for mode in [0, 0o400, 0o440, 0o755, 0o1600, 640, u32::MAX] {
        assert_eq!(name_of(Options::new().mode(mode)), "mode", "{mode:o}");
    }
}

#[test]
fn the_bounds_themselves_are_accepted() {
    let smallest =
        Options::new().arena_size(4096.max(page_size())).max_mapped_arenas(3).max_bytes(65536);
    smallest.validate(Path::new("queue")).unwrap();
    Options::new()
        .arena_size(1 << 30)
        .max_mapped_arenas(None)
        .validate(Path::new("queue"))
        .unwrap();
    Options::new().validate(Path::new("queue")).unwrap();
}
