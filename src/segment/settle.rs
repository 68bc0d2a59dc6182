//! What the keeper does to the files: drained segments are handed on, spares are made ahead and
//! given back.

use std::io;
use std::sync::Weak;
use std::sync::atomic::Ordering;

use super::files::disk_bytes;
use super::grow::LARGEST_STEP;
use super::recycle::{Handing, Spare};
use super::{Context, Pace, Plan, Row, Segments, spares_wanted};
use crate::error::Result;
use crate::format::{self, SegmentState};
use crate::index::Index;
use crate::storage::{Storage, StorageFile};

impl<S: Storage> Segments<S> {
    /// Makes every place stored so far durable, then hands the drained segments on: to the spares,
    /// or out of the directory.
    pub(crate) fn settle(&self, context: &Context<'_, S>) -> Result<()> {
        let settling = self.settling.lock();
        if *settling {
            return Ok(());
        }
        // They stay in the list meanwhile: their bytes count.
        let (lives, held): (Vec<u64>, _) = {
            let list = self.list();
            let lives =
                list.recycling.drained.iter().map(|drained| drained.row.header.life).collect();
            (lives, list.live.front().map_or(list.drained_up_to, |row| row.header.first_seq))
        };
        if lives.is_empty() {
            return Ok(());
        }
        self.sync_directory(context.storage, context.index)?;
        context.index.sync_for_change(context.durable, context.given_up, held)?;
        let mut list = self.list();
        context.begin_changing()?;
        list.recycling.held = list.recycling.held.max(held);
        let mut handing: Vec<Handing<S::File>> = Vec::with_capacity(lives.len());
        for life in lives {
            let at =
                list.recycling.drained.iter().position(|drained| drained.row.header.life == life);
            if let Some(at) = at {
                let drained = list.recycling.drained.swap_remove(at);
                let kept = handing.iter().filter(|handing| handing.keep).count();
                handing.push(list.take_drained(context, drained, kept));
            }
        }
        if !handing.iter().any(|handing| handing.keep) {
            handing.extend(list.take_spare_to_mark());
        }
        drop(list);
        self.hand_on(context, handing);
        Ok(())
    }

    /// Gives back the spares that were kept for busy times only.
    pub(crate) fn trim_spares(&self, context: &Context<'_, S>) {
        let settling = self.settling.lock();
        if *settling {
            return;
        }
        let mut list = self.list();
        let surplus = list
            .recycling
            .spares
            .len()
            .saturating_sub(spares_wanted(context.pool.geometry().segment_len, Pace::Idle));
        if surplus == 0 || context.begin_changing().is_err() {
            return;
        }
        // Those that were used the longest time ago.
        let handing: Vec<_> = list
            .recycling
            .spares
            .drain(..surplus)
            .map(|spare| Handing::out(spare.row, Weak::new()))
            .collect();
        list.recycling.in_transit.extend(handing.iter().map(|handing| handing.row));
        drop(list);
        self.hand_on(context, handing);
    }

    /// The files are let go of, at the end of a run.
    pub(crate) fn end_settling(&self) {
        *self.settling.lock() = true;
    }

    /// What is done to the files is done without the list's lock: a producer that begins a segment
    /// does not wait for it.
    fn hand_on(&self, context: &Context<'_, S>, mut handing: Vec<Handing<S::File>>) {
        for handing in &mut handing {
            handing.work(context);
        }
        let mut list = self.list();
        for handing in handing {
            list.put_down(context, handing);
        }
        context.index.set_changing(list.is_changing());
    }

    /// Makes a spare ahead of need, when there is none and nobody counts the bytes. Best effort.
    pub(crate) fn prepare(&self, context: &Context<'_, S>) {
        let settling = self.settling.lock();
        if *settling {
            return;
        }
        let mut list = self.list();
        if !context.limits.are_none()
            || !list.recycling.spares.is_empty()
            || list.has_drained()
            || list.live.is_empty()
        {
            return;
        }
        let Ok(header) = list.begin_life(context, SegmentState::Spare, Plan::default()) else {
            return;
        };
        let slot = list.names.slots.lowest_free();
        list.names.slots.insert(slot);
        // Its bytes are not known yet, and counted by nobody.
        let mut row = Row::new(slot, header);
        list.recycling.in_transit.push(row);
        drop(list);

        let name = format::segment_name(slot);
        let length = LARGEST_STEP.min(header.length);
        let created = context.storage.create(&name);
        // What nobody could remove again keeps its name, as something foreign does.
        let mut name_is_free =
            !matches!(&created, Err(error) if error.kind() == io::ErrorKind::AlreadyExists);
        let made = created.and_then(|file| {
            file.allocate(0, length)
                .and_then(|()| file.write_at(&header.encode(), 0))
                .map(|()| file)
                .inspect_err(|_| name_is_free = context.storage.remove(&name).is_ok())
        });

        let mut list = self.list();
        list.recycling.in_transit.retain(|other| other.header.life != header.life);
        match made {
            Ok(file) => {
                row.header.allocated = length;
                row.header.disk = disk_bytes(&file, length);
                list.names.changes += 1;
                list.write_row(context, &row);
                list.recycling.given_back += 1;
                list.recycling.spares.push(Spare { row, file: Some(file), is_fresh: true });
            }
            Err(_) if name_is_free => list.names.slots.remove(&slot),
            Err(_) => {}
        }
        context.index.set_changing(list.is_changing());
    }

    /// Makes the creations and removals so far durable. Whoever comes while another syncs waits for
    /// that: what it needs may be among what is not durable yet.
    pub(crate) fn sync_directory(&self, storage: &S, index: &Index<S>) -> Result<()> {
        let needed = self.list().names.changes;
        if self.synced_changes.load(Ordering::Acquire) >= needed {
            return Ok(());
        }
        let _one_at_a_time = self.syncing_directory.lock();
        if self.synced_changes.load(Ordering::Acquire) >= needed {
            return Ok(());
        }
        let changes = self.list().names.changes;
        index.heed("", || storage.sync_directory())?;
        self.synced_changes.store(changes, Ordering::Release);
        Ok(())
    }
}
