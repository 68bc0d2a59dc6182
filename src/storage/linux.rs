//! The system calls of Linux: syncs, allocation, and properties of file systems.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::AtFlags;
use rustix::io::{Errno, retry_on_intr};

use super::file::{Overwrites, write_zeros};
use super::{CacheToken, FileStat};
pub(super) use crate::memory::{has_holes, is_marked, mark, unmark};
use crate::threads::OnceLock;
use rustix::fs::{FallocateFlags, OFlags, StatxFlags, ioctl_setflags, statx};
/// Makes reads through the descriptor leave the file's access time as it is.
pub(super) const NO_ACCESS_TIME: OFlags = OFlags::NOATIME;
pub(super) use rustix::fs::{IFlags, ioctl_getflags};
pub(super) use rustix::fs::{fdatasync as sync_data, fsync as full_sync};
use rustix::rand::{GetRandomFlags, getrandom};

pub(super) fn allocate(file: &File, offset: u64, len: u64, old_len: u64) -> io::Result<()> {
    match retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), offset, len)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            write_zeros(file, offset.max(old_len), offset + len)
        }
        answer => Ok(answer?),
    }
}

/// Returns how the directory's file system overwrites. Only those known to write in place count as
/// such: a wrong guess means SIGBUS on a full disk, while writing by calls is merely slower.
pub(super) fn overwrites(directory: &OwnedFd) -> io::Result<Overwrites> {
    Ok(match retry_on_intr(|| rustix::fs::fstatfs(directory))?.f_type as u32 {
        // ext2/3/4, tmpfs, jfs, and f2fs, which reserves space for every allocated block.
        0xEF53 | 0x0102_1994 | 0x3153_464A | 0xF2F5_2010 => Overwrites::InPlace,
        0x5846_5342 => Overwrites::InPlaceUnlessShared,
        // An overlay gives the numbers of its upper layer: btrfs counts no inodes.
        0x794C_7630 if retry_on_intr(|| rustix::fs::fstatvfs(directory))?.f_files > 0 => {
            Overwrites::InPlaceUnlessShared
        }
        // btrfs (0x9123683E), zfs (0x2FC12FC1), bcachefs (0xCA451A4E), fuse (0x65735546), nfs
        // (0x6969), nilfs2, 9p, smb, ...
        _ => Overwrites::MayCopy,
    })
}

/// Sets NOCOW, which works on empty files only.
pub(super) fn set_nocow(file: &File) {
    if let Ok(flags) = ioctl_getflags(file) {
        let _ = ioctl_setflags(file, flags | IFlags::NOCOW);
    }
}

/// Returns whether no other file shares the extents from `offset` on; false when the file system
/// does not support the question.
pub(super) fn has_own_extents(file: &File, offset: u64) -> bool {
    crate::memory::shares_extents(file, offset).is_ok_and(|shared| !shared)
}

pub(super) fn unshare(file: &File, len: u64) {
    let _ = retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::UNSHARE_RANGE, 0, len));
}

/// Returns the kernel's id of this boot. Reads it once: a process does not outlive its boot, and
/// the walk through /proc takes longer than the rest of an opening.
fn boot_id() -> Option<&'static [u8]> {
    static BOOT: OnceLock<Vec<u8>> = OnceLock::new();
    if BOOT.get().is_none() {
        let mut boot = [0; 64];
        let len = File::open("/proc/sys/kernel/random/boot_id").ok()?.read(&mut boot).ok()?;
        let boot = boot.get(..len).filter(|boot| boot.len() >= 32)?;
        // Another thread may have set the same value meanwhile.
        let _ = BOOT.set(boot.to_vec());
    }
    BOOT.get().map(Vec::as_slice)
}

/// Returns the token of this directory, without its index. Where the kernel hides the boot (a
/// /proc with `subset=pid`), no other mark of it is safe: on a device without a clock every boot
/// begins at the same time.
pub(super) fn cache_token(directory: &OwnedFd) -> CacheToken {
    // The kernel never reuses a STATX_MNT_ID_UNIQUE (Linux 6.8) in a boot. It does reuse plain
    // mount ids after umount and mount, so they prove nothing.
    const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
    let asked =
        retry_on_intr(|| statx(directory, c"", AtFlags::EMPTY_PATH, StatxFlags::INO | UNIQUE));
    let (Ok(stat), Ok(system)) = (asked, retry_on_intr(|| rustix::fs::fstatvfs(directory))) else {
        return CacheToken::default();
    };
    let is_unique = StatxFlags::from_bits_retain(stat.stx_mask).contains(UNIQUE);
    // An anonymous device (overlay, btrfs, tmpfs) has another number at each mount. Without an id
    // of the file system (fuse, nfs) there is no better one.
    let is_anonymous = stat.stx_dev_major == 0 && system.f_fsid != 0;
    let minor = if is_anonymous { 0 } else { stat.stx_dev_minor };
    let system = format!("{}:{minor} {}", stat.stx_dev_major, system.f_fsid);
    let place = |boot: &[u8]| hash(&[boot, system.as_bytes()].concat());
    CacheToken {
        boot: boot_id().map_or(0, place),
        file: hash(&stat.stx_ino.to_le_bytes()),
        mount: if is_unique { stat.stx_mnt_id } else { 0 },
    }
}

/// The identity is a hash of inode and time of birth: a removed file's inode is soon given to
/// another one. Where the file system keeps no time of birth, the inode has to do.
pub(super) fn stat(at: impl AsFd, name: &str) -> io::Result<FileStat> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
    let asked = StatxFlags::INO | StatxFlags::BTIME | StatxFlags::CTIME;
    let stat = retry_on_intr(|| statx(&at, name, flags, asked))?;
    let (born, changed) = (stat.stx_btime, stat.stx_ctime);
    let numbers = [stat.stx_ino, born.tv_sec as u64, born.tv_nsec.into()];
    Ok(FileStat {
        identity: hash(&numbers.map(u64::to_le_bytes).concat()) as u32,
        changed: changed.tv_sec as u64 * 1_000_000_000 + u64::from(changed.tv_nsec),
    })
}

/// FNV-1a with 64 bits; never zero.
fn hash(bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash.max(1)
}

/// How often the kernel's list is read again for a lock that the mark promises.
const LOOKS: u32 = 8;

/// Returns the process that holds the lock of the directory, from the kernel's list; 0 where the
/// list hides it, and the mark of the directory says that there is one. Does not try the lock: a
/// process that opened the queue in that moment would find it locked.
pub(super) fn holder(directory: &OwnedFd) -> Option<u32> {
    // A list misses a lock now and then while others come and go.
    let look_again = || (0..LOOKS).find_map(|_| listed_holder(directory)).unwrap_or(0);
    listed_holder(directory).or_else(|| is_marked(directory.as_fd()).then(look_again))
}

/// `/proc/locks` names the device and the inode of a locked file. On btrfs, and on an overlay, that
/// device differs from the one of `stat`; so a lock on the same inode counts too if the process has
/// the directory open, or if this process may not see its descriptors.
fn listed_holder(directory: &OwnedFd) -> Option<u32> {
    let stat = retry_on_intr(|| rustix::fs::fstat(directory)).ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let its_device = format!("{major:02x}:{minor:02x}");
    locks.lines().find_map(|line| {
        // "1: FLOCK  ADVISORY  WRITE 4711 08:01:131090 0 EOF"; a process that waits has "->".
        let mut words = line.split_whitespace().skip(1);
        if words.next() != Some("FLOCK") {
            return None;
        }
        let pid: u32 = words.nth(2)?.parse().ok()?;
        let (device, inode) = words.next()?.rsplit_once(':')?;
        let is_it = inode.parse() == Ok(stat.st_ino)
            && (device == its_device || has_open(pid, &stat).unwrap_or(true));
        is_it.then_some(pid)
    })
}

/// Returns whether the process has that directory open; `None` when this process may not see its
/// descriptors.
fn has_open(pid: u32, stat: &rustix::fs::Stat) -> Option<bool> {
    let descriptors = match std::fs::read_dir(format!("/proc/{pid}/fd")) {
        // The process has ended since the lock was read, and its lock with it.
        Err(error) if error.kind() == ErrorKind::NotFound => return Some(false),
        descriptors => descriptors.ok()?,
    };
    let is_it = |path: std::path::PathBuf| {
        rustix::fs::stat(path)
            .is_ok_and(|other| (other.st_dev, other.st_ino) == (stat.st_dev, stat.st_ino))
    };
    Some(descriptors.flatten().any(|descriptor| is_it(descriptor.path())))
}

pub(super) fn fill_random(bytes: &mut [u8; 16]) -> io::Result<()> {
    match retry_on_intr(|| getrandom(&mut *bytes, GetRandomFlags::empty()))? {
        16 => Ok(()),
        _ => Err(ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::FlockOperation;

    use super::*;

    #[test]
    fn the_holder_is_found_while_other_locks_come_and_go() {
        let directory = crate::tests::guard::tempdir().expect("a temporary directory");
        let open = |name: &str| File::create(directory.path().join(name)).expect("a file");
        let opened = || OwnedFd::from(File::open(directory.path()).expect("it is there"));
        let (held, looking) = (opened(), opened());
        crate::memory::mark(held.as_fd());
        assert!(rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive).is_ok());
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let others: Vec<_> = (0..200).map(|number| open(&number.to_string())).collect();
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    for other in &others {
                        assert!(rustix::fs::flock(other, FlockOperation::LockShared).is_ok());
                    }
                    for other in &others {
                        assert!(rustix::fs::flock(other, FlockOperation::Unlock).is_ok());
                    }
                }
            });
            let found: Vec<_> = (0..2000).map(|_| holder(&looking)).collect();
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            let own = Some(std::process::id());
            assert_eq!(found.iter().filter(|found| **found != own).count(), 0);
        });
    }

    #[test]
    fn who_has_ended_has_nothing_open() {
        let directory = crate::tests::guard::tempdir().expect("a temporary directory");
        let open = std::fs::File::open(directory.path()).expect("it is there");
        let stat = rustix::fs::fstat(&open).expect("a descriptor");
        assert_eq!(has_open(std::process::id(), &stat), Some(true));
        let mut child = std::process::Command::new("true").spawn().expect("a program");
        child.wait().expect("it ends");
        assert_eq!(has_open(child.id(), &stat), Some(false));
    }
}
