//! [`Inspector::verify`]: a queue that is whole is found whole, and damage where it is.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use super::{files, message, with_all_parts};
use mmq::{
    Finding, Gap, GapCause, Inspector, OnFull, Options, Queue, Seen, Start, Verified, VerifyStep,
};

fn verify(dir: &Path) -> (Verified, Vec<Finding>) {
    let mut findings = Vec::new();
    let verified = Inspector::open(dir).unwrap().verify(|finding| findings.push(finding)).unwrap();
    assert_eq!(verified.findings, findings.len() as u64);
    (verified, findings)
}

#[test]
fn who_verifies_sees_how_far_it_is_and_may_end_it() {
    let dir = crate::support::tempdir().unwrap();
    with_all_parts(dir.path()).close().unwrap();
    let inspector = Inspector::open(dir.path()).unwrap();
    let mut seen = Vec::new();
    let whole = inspector.verify_while(|step| {
        let VerifyStep::Read { bytes, total } = step else { panic!("{step:?}") };
        seen.push((bytes, total));
        ControlFlow::Continue(())
    });
    let whole = whole.unwrap();
    assert_eq!(seen.len() as u64, whole.messages);
    assert!(seen.is_sorted() && seen.iter().all(|(bytes, total)| bytes <= total), "{seen:?}");
    let (bytes, total) = *seen.last().unwrap();
    assert!(bytes == total && total >= whole.bytes, "{bytes} of {total}, {whole:?}");
    let mut steps = 0;
    let part = inspector.verify_while(|_| {
        steps += 1;
        if steps < 7 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    let part = part.unwrap();
    assert_eq!((part.messages, part.segments, steps), (7, whole.segments, 7));
    // A finding may end it too.
    let mut bytes = fs::read(dir.path().join("index")).unwrap();
    bytes[8192 + 160] ^= 1;
    bytes[5120 + 100] ^= 1;
    fs::write(dir.path().join("index"), bytes).unwrap();
    let part = inspector.verify_while(|_| ControlFlow::Break(())).unwrap();
    assert_eq!((part.findings, part.messages), (1, 0));
}

#[test]
fn a_sound_queue_is_found_sound_whoever_has_it() {
    let dir = crate::support::tempdir().unwrap();
    let queue = with_all_parts(dir.path());
    let (verified, findings) = verify(dir.path());
    assert_eq!(findings, []);
    assert!(verified.messages >= 610 && verified.segments > 1, "{verified:?}");
    assert_eq!((verified.missing, verified.overtaken), (0, 0));
    queue.close().unwrap();
    let before = files(dir.path());
    let (closed, findings) = verify(dir.path());
    // (A segment that both consumers have passed may be given back meanwhile.)
    assert_eq!(findings, []);
    assert!((610..=verified.messages).contains(&closed.messages), "{closed:?}");
    let headers =
        Inspector::open(dir.path()).unwrap().verify_headers(|finding| panic!("{finding}"));
    assert_eq!((headers.unwrap().messages, closed.bytes > 0), (0, true));
    assert!(files(dir.path()) == before, "a look changed a file");
}

#[test]
fn every_byte_of_the_index_that_matters_and_every_message_is_looked_at() {
    let dir = crate::support::tempdir().unwrap();
    with_all_parts(dir.path()).close().unwrap();
    let index = dir.path().join("index");
    let bytes = fs::read(&index).unwrap();
    // Header, checkpoint, run record, a segment's row, a name, a place, acknowledgements.
    let mut unseen = Vec::new();
    let used: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
    for at in used.iter().copied().step_by(3) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        fs::write(&index, &damaged).unwrap();
        let inspector = Inspector::open(dir.path()).unwrap();
        let verified = inspector.verify_headers(|finding| assert_eq!(finding.lost, None, "{at}"));
        if verified.unwrap().findings == 0 {
            unseen.push(at);
        }
    }
    fs::write(&index, &bytes).unwrap();
    // Only the words of the live part that have no check of their own: tokens, nonce, time.
    assert!(unseen.iter().all(|at| (8192..8256).contains(at)), "{unseen:?}");

    let segment = (0..).map(|slot| dir.path().join(format!("segment-{slot:08}")));
    let live = segment.take_while(|path| path.exists()).find_map(|path| {
        let text = fs::read(&path).unwrap();
        let wanted = message(15_700);
        let at = text.windows(wanted.len()).position(|found| found == wanted)?;
        Some((path, text, at))
    });
    let (path, text, at) = live.expect("the message is in a file");
    let mut damaged = text.clone();
    damaged[at] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let (_, findings) = verify(dir.path());
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    let lost = Gap { first: 15_700, last: 15_700, cause: GapCause::Damaged };
    assert_eq!((finding.lost, finding.offset), (Some(lost), Some(at as u64 - 16)), "{finding}");
    assert!(path.ends_with(&finding.file));

    // The seal of the batch: no message is lost by it.
    let wanted = message(16_009);
    let at = text.windows(wanted.len()).rposition(|found| found == wanted).unwrap();
    let mut damaged = text.clone();
    damaged[at + wanted.len().next_multiple_of(8)] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let (_, findings) = verify(dir.path());
    assert!(
        findings.len() == 1 && findings[0].what.contains("checksum of the batch"),
        "{findings:?}"
    );
    assert_eq!(findings[0].lost, None);
}

/// A consumer that the next opening cannot name, in the first extent of rows or in an added one.
#[test]
fn an_index_that_lost_a_consumer_is_found_damaged() {
    let dir = crate::support::tempdir().unwrap();
    let name = |number| format!("consumer {number} with a name of more than thirty-five bytes");
    let queue = Queue::open(dir.path()).unwrap();
    (0..70).for_each(|number| drop(queue.consumer(&name(number)).unwrap()));
    queue.close().unwrap();
    assert_eq!(verify(dir.path()).1, []);
    let index = dir.path().join("index");
    let whole = fs::read(&index).unwrap();
    let offset = |number| {
        let name = name(number);
        whole.windows(name.len()).position(|found| found == name.as_bytes()).unwrap() - 1
    };
    let zeroed = [5, 69].map(|number| {
        let (at, mut bytes) = (offset(number), whole.clone());
        bytes[at..at + 256].fill(0);
        (at, bytes)
    });
    let cut = [offset(69), 40_960].map(|len| (len, whole[..len].to_vec()));
    for (at, bytes) in zeroed.into_iter().chain(cut) {
        fs::write(&index, bytes).unwrap();
        let (_, findings) = verify(dir.path());
        let [finding] = &findings[..] else { panic!("{at}: {findings:?}") };
        assert_eq!((&*finding.file, finding.offset), ("index", Some(at as u64)), "{finding}");
        let queue = Queue::open(dir.path()).unwrap();
        assert!(queue.consumers().contains(&"unreadable-consumer".to_owned()));
        queue.close().unwrap();
    }
}

/// The owner uses files again, or removes them, that the look has yet to read.
#[test]
fn a_look_that_began_at_a_closed_queue_takes_no_owners_work_for_damage() {
    let options = Options::new().arena_size(64 << 10).max_bytes(24 << 20);
    let options = options.on_full(OnFull::DropOldest);
    let put = |queue: &Queue| (0..7000).for_each(|_| assert!(queue.enqueue([1; 4000]).is_ok()));
    let is_empty = |queue: &Queue| matches!(queue.dequeue_batch(500), Ok(all) if all.is_empty());
    let take = |queue: &Queue| while !is_empty(queue) {};
    for (work, is_used_again) in [(&put as &dyn Fn(&Queue), true), (&take, false)] {
        let dir = crate::support::tempdir().unwrap();
        let own = |work: &dyn Fn(&Queue)| {
            let queue = options.open(dir.path()).unwrap();
            work(&queue);
            queue.close().unwrap();
        };
        own(&put);
        let inspector = Inspector::open(dir.path()).unwrap();
        let mut looked = inspector.messages(Start::Oldest);
        assert!(matches!(looked.next(), Some(Ok(Seen::Message { .. }))));
        let (mut is_closed, mut findings) = (true, Vec::new());
        let verified = inspector.verify_while(|step| {
            match step {
                VerifyStep::Finding(finding) => findings.push(finding),
                VerifyStep::Read { .. } if std::mem::take(&mut is_closed) => own(work),
                VerifyStep::Read { .. } => {}
                other => panic!("{other:?}"),
            }
            ControlFlow::Continue(())
        });
        assert_eq!(findings, []);
        assert!(verified.unwrap().overtaken > 0 || !is_used_again);
        for seen in looked {
            let seen = seen.unwrap();
            assert!(matches!(seen, Seen::Message { .. } | Seen::Overtaken { .. }), "{seen:?}");
        }
    }
}
