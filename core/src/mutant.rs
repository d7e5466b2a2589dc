//! Seeded bugs, by which the simulation is measured: each has to be caught by an oracle (design
//! page 7). Without the feature `mutants`, which no shipped build has, none can be switched on and
//! the compiler drops every one of them.

/// A seeded bug, at the place in the code that asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // Each is explained where it is put in, and in the table of the simulation.
pub enum Mutant {
    // Binding.
    NameUnchecked,
    DeletionIgnoresHolder,
    MatchesDeleting,
    ReclaimsOnCachedAbsence,
    LostUnproven,
    HolderUidUnchecked,
    ReadsKeptForEver,
    DyingUidNotLeft,
    GraceSkipped,
    PreBoundStaysForEver,
    CompletesAnother,
    LostMatchedAgain,
    LostPhaseKept,
    AnyReplacesLost,
    ReportedBeforeCondition,
    MarkForgotten,
    SurplusUnproven,
    SurplusOfUndecided,
    NoBarrierAfterWipe,
    NoFenceAfterWipe,
    BarrierOutlivesWipe,
    MatchNotUndone,
    ParkedCounts,
    SurplusAlwaysUndone,
    ServeIgnored,
    StickyOverwritten,
    StickyNotReclaimed,
    NamedClassUnchecked,
    NamedFamilyUnchecked,
    WrongObstacle,
    StampBeforeMatch,
    StampKeptWhenLost,
    StampFollowsClass,
    ClaimFreedFirst,
    BoundBeforeProtected,
    TimesMove,
    PartlyBoundUnsaid,
    ReservedReclaimed,
    ReservedCompletedBySatisfied,
    AnyDriversWord,
    EventsRepeated,
    // Runtime.
    GoesOnAfterFailure,
    DeletesBlindly,
    WakeForClassLost,
    BatonDropped,
    RelistHidesDeletes,
    OldEventsTaken,
    RecreationUnseen,
    WatchesFromNow,
    BarrierUnawaited,
    // Range driver.
    StartIgnoresWhatExists,
    TimeOutIsFailure,
    HalfADual,
    ServesWithoutLook,
    EditUnheard,
    OutsideUncounted,
    ClassesAreIslands,
    FreedUnheard,
    RefusalUnsaid,
    LetsGoEarly,
    RestSkipped,
    OldRangeKept,
    ExcludeIgnored,
    EndsHandedOut,
    PolicyUncopied,
    RestUnrecorded,
    RestCutShort,
}

#[cfg(feature = "mutants")]
mod switch {
    use super::Mutant;
    use std::cell::Cell;

    thread_local! {
        static ON: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Switches one seeded bug on in this thread, or all off.
    pub fn switch(to: Option<Mutant>) {
        ON.set(to);
    }

    /// Whether this seeded bug is on in this thread.
    pub fn active(mutant: Mutant) -> bool {
        ON.get() == Some(mutant)
    }
}

#[cfg(not(feature = "mutants"))]
mod switch {
    use super::Mutant;

    /// Never: this build has no seeded bugs.
    pub const fn active(_: Mutant) -> bool {
        false
    }
}

pub use switch::*;

/// What is right, or what is wrong if this seeded bug is on.
pub fn either<T>(mutant: Mutant, right: T, wrong: T) -> T {
    if active(mutant) { wrong } else { right }
}
