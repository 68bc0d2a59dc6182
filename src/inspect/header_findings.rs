//! Compares the headers of the segment files with the picture.

use std::io;
use std::sync::Arc;

use super::finding::Finding;
use super::onlooker::{MOST_TORN_HEADERS, TORN_HEADER_PAUSE};
use super::picture::Picture;
use crate::error::{Error, Result};
use crate::format::{self, Invalid, SegmentState};
use crate::segment::{Row, header_in};
use crate::storage::{Storage, StorageFile};
use crate::threads::park_timeout;

/// Returns how many headers are valid, and what is wrong with the others.
pub(super) fn header_findings<S: Storage>(
    storage: &Arc<S>,
    picture: &Picture,
) -> Result<(u64, Vec<Finding>)> {
    let listed = storage.list().map_err(|error| Error::io("list", storage.path(), error))?;
    let (mut read, mut findings) = (0, Vec::new());
    for listed in listed {
        let Some(slot) = format::segment_slot(&listed.name) else {
            continue;
        };
        let read_header = || {
            let file = storage.open(&listed.name)?;
            let header = header_in(&file)?;
            Ok::<_, io::Error>((file.len()?, header))
        };
        let mut len = read_header();
        // The holder may be writing the header.
        for _ in 0..MOST_TORN_HEADERS {
            let is_damaged = matches!(len, Ok((_, Err(Invalid::Damaged))));
            if !is_damaged || !picture.users.came(&**storage) {
                break;
            }
            park_timeout(TORN_HEADER_PAUSE);
            len = read_header();
        }
        let live = picture.live.iter().find(|row| row.slot == slot);
        let what = match len {
            // The holder has removed the file meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => format!("it cannot be read: {error}"),
            Ok((len, header)) => match (header, live) {
                (Err(Invalid::Version(version)), _) => {
                    format!("its header has format version {version}, which this mmq does not know")
                }
                (Err(Invalid::Damaged), Some(_)) => {
                    "its header is damaged; the index has a copy".to_owned()
                }
                (Err(Invalid::Damaged), None) => "its header is damaged".to_owned(),
                (Ok(header), _) if header.queue_id != picture.queue_id => {
                    "it belongs to another queue".to_owned()
                }
                (Ok(header), Some(row))
                    if header.life == row.header.life
                        && len < row.header.allocated
                        && !was_cut(storage, picture, row, len)? =>
                {
                    format!("it has {len} bytes, but should have {}", row.header.allocated)
                }
                (Ok(header), Some(row))
                    if header.life != row.header.life && !picture.users.came(&**storage) =>
                {
                    let spare = header.state == SegmentState::Spare;
                    let state = if spare { " spare" } else { "" };
                    format!("the index expects another segment in this{state} file")
                }
                (Ok(_), _) => {
                    read += 1;
                    continue;
                }
            },
        };
        findings.push(Finding { file: listed.name, offset: Some(0), what, lost: None });
    }
    Ok((read, findings))
}

/// Whether the queue's holder has cut the segment's file to `len` bytes since the picture was
/// taken: its row then has that length, or is gone.
fn was_cut<S: Storage>(storage: &Arc<S>, picture: &Picture, row: &Row, len: u64) -> Result<bool> {
    if !picture.users.came(&**storage) {
        return Ok(false);
    }
    let (now, _) = Picture::take(storage)?;
    let is_same = |other: &&Row| other.header.life == row.header.life;
    Ok(now.live.iter().find(is_same).is_none_or(|now| now.header.allocated <= len))
}
