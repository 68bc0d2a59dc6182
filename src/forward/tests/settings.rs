//! What a history draws before it begins.

use crate::forward::rules::{IfForgotten, TellGaps};
use crate::tests::sim::Rng;

/// The fixed settings of one history.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) keep: u64,
    pub(super) keep_bytes: u64,
    pub(super) gaps: TellGaps,
    pub(super) if_forgotten: Option<IfForgotten>,
    /// 0: stop, 1: skip, 2: store elsewhere.
    pub(super) when_refused: u64,
    /// Whether the far side loses no more than the queue keeps.
    pub(super) loses_little: bool,
    /// Whether the queue may drop or damage messages.
    pub(super) gaps_here: bool,
    pub(super) may_recreate: bool,
    pub(super) may_restore: bool,
    /// Whether the far side removes messages. Then neither side has gaps, and the far side loses no
    /// more than the queue keeps: with a number missing nobody can count what is no longer there.
    pub(super) removes: bool,
}

impl Plan {
    pub(super) fn draw(rng: &mut Rng) -> Plan {
        let keep = [0, 1, 4, 12, 1000][rng.below(5) as usize];
        let keep_bytes = if rng.percent(25) { 100 } else { u64::MAX };
        let removes = rng.percent(40);
        let plan = Plan {
            keep,
            keep_bytes,
            gaps: [TellGaps::Header, TellGaps::Header, TellGaps::Message, TellGaps::None]
                [rng.below(4) as usize],
            if_forgotten: [
                None,
                Some(IfForgotten::Resend),
                Some(IfForgotten::Continue),
                Some(IfForgotten::Stop),
            ][rng.below(4) as usize],
            when_refused: rng.below(3),
            loses_little: keep > 0 && keep_bytes == u64::MAX && rng.percent(60),
            gaps_here: rng.percent(60),
            may_recreate: rng.percent(25),
            may_restore: rng.percent(25),
            removes,
        };
        match removes {
            true => Plan {
                keep: keep.max(1),
                keep_bytes: u64::MAX,
                loses_little: true,
                gaps_here: false,
                may_restore: false,
                ..plan
            },
            false => plan,
        }
    }
}
