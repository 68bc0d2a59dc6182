//! Finds out whether a file shares disk space with another one, and whether it has holes. (In this
//! folder because the system call writes through a pointer.)

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::io::retry_on_intr;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// `struct fiemap` of `<linux/fiemap.h>`, with room for 32 extents.
#[repr(C)]
struct Fiemap {
    head: Head,
    extents: [FileExtent; 32],
}

#[repr(C)]
#[derive(Default)]
struct Head {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FileExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

const FS_IOC_FIEMAP: Opcode = opcode::read_write::<Head>(b'f', 11);
const LAST: u32 = 1;
const SHARED: u32 = 0x2000;

/// Returns whether any byte from `offset` on lies in an extent that another file or a snapshot
/// shares: a store there needs new space. Fails where the file system does not support the
/// question.
pub(crate) fn shares_extents(file: &File, offset: u64) -> io::Result<bool> {
    any_extent(file, offset, |extent| extent.flags & SHARED != 0)
}

/// Returns whether any byte before `len` lies in no extent. Fails as `shares_extents` does.
pub(crate) fn has_holes(file: &File, len: u64) -> io::Result<bool> {
    let mut end = 0;
    any_extent(file, 0, |extent| {
        let is_behind_hole = extent.logical > end;
        if !is_behind_hole {
            end = extent.logical.saturating_add(extent.length);
        }
        is_behind_hole || end >= len
    })?;
    Ok(end < len)
}

fn any_extent(
    file: &File,
    mut start: u64,
    mut is_it: impl FnMut(&FileExtent) -> bool,
) -> io::Result<bool> {
    loop {
        let head = Head { start, length: u64::MAX - start, count: 32, ..Head::default() };
        let mut map = Fiemap { head, extents: [FileExtent::default(); 32] };
        retry_on_intr(|| {
            // SAFETY: the opcode reads and writes a `struct fiemap`. `map` is one: plain numbers,
            // with room behind the head for `count` extents.
            unsafe { ioctl(file.as_fd(), Updater::<FS_IOC_FIEMAP, Fiemap>::new(&mut map)) }
        })?;
        let found = &map.extents[..map.extents.len().min(map.head.mapped as usize)];
        if found.iter().any(&mut is_it) {
            return Ok(true);
        }
        match found.last() {
            Some(last) if last.flags & LAST == 0 => {
                start = last.logical.saturating_add(last.length.max(1))
            }
            _ => return Ok(false),
        }
    }
}
