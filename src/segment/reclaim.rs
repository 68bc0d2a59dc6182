//! Reclaims drained segments, makes spares ahead of need, removes surplus ones, and syncs the
//! directory.

use std::io;
use std::sync::atomic::Ordering;

use super::Segments;
use super::context::Pace;
use super::context::{Context, Plan, spares_wanted};
use super::files::disk_bytes;
use super::grow::LARGEST_STEP;
use super::recycling::{Spare, Transfer};
use super::row::Row;
use crate::error::Result;
use crate::format::{self, SegmentState};
use crate::index::Index;
use crate::storage::{Storage, StorageFile};

impl<S: Storage> Segments<S> {
    /// Syncs every consumer position stored so far (R8). Then turns the drained segments into
    /// spares, or removes their files.
    pub(crate) fn reclaim(&self, context: &Context<'_, S>) -> Result<()> {
        let reclaiming = self.reclaiming.lock();
        if *reclaiming {
            return Ok(());
        }
        // The segments stay in the list during the sync, so that their bytes count.
        let (lives, retained_from, unclaimed_from): (Vec<u64>, _, _) = {
            let list = self.list();
            let lives =
                list.recycling.drained.iter().map(|drained| drained.row.header.life).collect();
            (lives, list.retained_from(), list.unclaimed_from)
        };
        if lives.is_empty() {
            return Ok(());
        }
        self.sync_directory(context.storage, context.index)?;
        // Without a consumer only evicted segments go, and the first one is to be told of them.
        let claimed = unclaimed_from.unwrap_or(retained_from);
        context.index.sync_for_change(context.durable, context.evicted, claimed)?;
        reached!("behind the sync of what goes");
        let mut list = self.list();
        context.begin_changing()?;
        let retained_from = match list.live.front() {
            Some(row) if planted!(HeldTakenAfterTheSync) => row.header.first_seq,
            _ => retained_from,
        };
        let lives = if planted!(DrainedDuringSyncGoes) {
            list.recycling.drained.iter().map(|drained| drained.row.header.life).collect()
        } else {
            lives
        };
        list.recycling.retained_from = list.recycling.retained_from.max(retained_from);
        // (An opening may find older messages: a death came between the sync and this.)
        check!(let (retained_from, live) = (list.recycling.retained_from, list.live.front()));
        holds!(
            live.is_none_or(|row| retained_from <= row.header.first_seq),
            "the first retained number on disk, {retained_from}, does not pass the oldest: {live:?}"
        );
        let mut transfers: Vec<Transfer<S::File>> = Vec::with_capacity(lives.len());
        for life in lives {
            let at =
                list.recycling.drained.iter().position(|drained| drained.row.header.life == life);
            if let Some(at) = at {
                let drained = list.recycling.drained.swap_remove(at);
                let coming = transfers.iter().filter(|transfer| transfer.becomes_spare).count();
                transfers.push(list.begin_transfer(context, drained, coming));
            }
        }
        // The backlog has grown or shrunk. A fresh spare was made for its present size.
        let length = list.tail_len(context.pool.geometry());
        let keeps_all = context.lacks_free();
        transfers.extend(list.take_spares_to_remove(|spare| {
            spare.row.header.length != length && !spare.is_fresh && !keeps_all
        }));
        if !transfers.iter().any(|transfer| transfer.becomes_spare) {
            transfers.extend(list.take_spare_to_mark());
        }
        check!(list.check());
        drop(list);
        self.transfer(context, transfers);
        Ok(())
    }

    /// Returns whether there is no spare for the next segment, whose length follows from `backlog`.
    pub(crate) fn lacks_spare(&self, context: &Context<'_, S>, backlog: u64) -> bool {
        let list = self.list();
        let plan = Plan { backlog, ..Plan::default() };
        list.spares_of(list.next_len(context.pool.geometry(), &plan)) == 0
    }

    /// Removes the spares that only a busy queue keeps, and those whose length differs from the
    /// tail's segment.
    pub(crate) fn trim_spares(&self, context: &Context<'_, S>) {
        let reclaiming = self.reclaiming.lock();
        if *reclaiming {
            return;
        }
        let mut list = self.list();
        list.headroom = 1;
        let length = list.tail_len(context.pool.geometry());
        let (right, wanted) = (list.spares_of(length), spares_wanted(length, Pace::Idle));
        if right == list.spares() && right <= wanted || context.begin_changing().is_err() {
            return;
        }
        // Of the spares of that length, the least recently used ones go.
        let mut surplus = right.saturating_sub(wanted);
        let transfers = list.take_spares_to_remove(|spare| {
            let is_right = spare.row.header.length == length;
            let goes = !is_right || surplus > 0;
            surplus -= usize::from(is_right && goes);
            goes
        });
        drop(list);
        self.transfer(context, transfers);
    }

    /// Returns whether the drained segments are to be reclaimed now.
    pub(crate) fn is_reclaim_due(&self, context: &Context<'_, S>) -> bool {
        self.list().is_reclaim_due(context)
    }

    /// Ends reclaiming for good when the queue closes; waits for a thread that is reclaiming.
    pub(crate) fn end_reclaiming(&self) {
        *self.reclaiming.lock() = true;
    }

    /// Carries out and finishes transfers. Makes the file calls without the list's lock, so that a
    /// producer that begins a segment does not wait for them.
    fn transfer(&self, context: &Context<'_, S>, mut transfers: Vec<Transfer<S::File>>) {
        for transfer in &mut transfers {
            transfer.carry_out(context);
        }
        let mut list = self.list();
        for transfer in transfers {
            list.finish_transfer(context, transfer);
        }
        check!(list.check());
        context.index.set_rows_are(list.rows_are());
    }

    /// Makes a spare ahead of need, of the next segment's length for that backlog, if there is
    /// none, no drained segment can become one, and no limit is set. Best effort.
    pub(crate) fn prepare(&self, context: &Context<'_, S>, backlog: u64) {
        let reclaiming = self.reclaiming.lock();
        if *reclaiming {
            return;
        }
        let mut list = self.list();
        let plan = Plan { backlog, ..Plan::default() };
        if !context.limits.are_none()
            || list.spares_of(list.next_len(context.pool.geometry(), &plan)) > 0
            || list.has_drained()
            || list.live.is_empty()
        {
            return;
        }
        let Ok(header) = list.begin_life(context, SegmentState::Spare, plan) else {
            return;
        };
        let slot = list.names.slots.lowest_free();
        list.names.slots.insert(slot);
        // Its disk bytes are not known yet, but no limit counts them.
        let mut row = Row::new(slot, header);
        list.recycling.in_transit.push(row);
        drop(list);

        let name = format::segment_name(slot);
        let length = LARGEST_STEP.min(header.length);
        let created = context.storage.create(&name);
        // The name stays in use for a foreign file, or when the new file could not be removed
        // again.
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
                row.header.file = file.stat().unwrap_or_default().identity;
                row.header.allocated = length;
                row.header.disk = disk_bytes(&file, 0, length);
                list.names.directory_changes += 1;
                list.write_row(context, &row);
                list.recycling.given_back += 1;
                list.recycling.spares.push(Spare { row, file: Some(file), is_fresh: true });
            }
            Err(_) if name_is_free => list.names.slots.remove(&slot),
            Err(_) => {}
        }
        check!(list.check());
        context.index.set_rows_are(list.rows_are());
    }

    /// Syncs the directory's changes so far. A thread that calls this while another one syncs waits
    /// for that sync, which may cover its changes.
    pub(crate) fn sync_directory(&self, storage: &S, index: &Index<S>) -> Result<()> {
        let needed = self.list().names.directory_changes;
        if self.synced_changes.load(Ordering::Acquire) >= needed {
            return Ok(());
        }
        let _one_at_a_time = self.syncing_directory.lock();
        if self.synced_changes.load(Ordering::Acquire) >= needed {
            return Ok(());
        }
        let changes = self.list().names.directory_changes;
        if planted!(DirectorySyncSaidEarly) {
            self.synced_changes.store(changes, Ordering::Release);
        }
        reached!("before the directory is synced");
        index.heed("", || storage.sync_directory())?;
        holds!(
            needed <= changes,
            "a sync of the directory covers the {needed} changes that it is for, of {changes}"
        );
        self.synced_changes.store(changes, Ordering::Release);
        Ok(())
    }
}
