//! Breadth first through every state, so that the first violation found has the shortest path.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::hash::Same;
use super::state::State;
use super::universe::Universe;
use super::world::World;

/// What a search has found.
pub struct Outcome {
    pub universe: Universe,
    pub states: usize,
    pub steps: u64,
    pub depth: usize,
    pub took: Duration,
    /// Distinct entries, passes, steps of the shipped code, judged writes, ledgers at rest.
    pub counts: [usize; 5],
    pub kinds: super::report::Kinds,
    pub end: End,
}

/// How a search ended.
pub enum End {
    /// Every state was visited.
    Complete,
    /// There are more states than may be visited.
    TooMany,
    /// The number of each step on the way to the violation, and what is wrong.
    Violation(Vec<usize>, String),
}

/// Visits every state of a universe, at most so many.
pub fn explore(universe: &Universe, limit: usize) -> Outcome {
    let begun = Instant::now();
    let mut world = World::new(universe.clone());
    let start = world.start();
    let mut buffer = Vec::new();
    // Each state by its hash, with that of the state from which it was first reached.
    let mut visited: HashMap<u64, u64, Same> = HashMap::default();
    let root = start.hash(&mut buffer);
    visited.insert(root, root);
    let mut layer = buffer.clone();
    let (mut steps, mut depth, mut taken) = (Vec::new(), 0, 0);
    let mut kinds = super::report::Kinds::default();
    let mut end = End::Complete;
    'search: while !layer.is_empty() {
        let mut next_layer = Vec::new();
        let mut at = 0;
        while at < layer.len() {
            let (state, length) = State::decode(&layer[at..]);
            let from = super::hash::of(&layer[at..at + length]);
            at += length;
            if let Err(violation) = world.steps(&state, &mut steps) {
                let chain = chain(&visited, from, root);
                end = End::Violation(path(&mut world, &chain), violation.what);
                break 'search;
            }
            for (step, next) in &steps {
                taken += 1;
                kinds.count(step);
                let hash = next.hash(&mut buffer);
                if let std::collections::hash_map::Entry::Vacant(vacant) = visited.entry(hash) {
                    vacant.insert(from);
                    next_layer.extend_from_slice(&buffer);
                }
            }
            if visited.len() > limit {
                end = End::TooMany;
                break 'search;
            }
        }
        depth += 1;
        layer = next_layer;
    }
    let (passes, local) = world.passes.counts();
    let (judged, rested) = world.oracles.counts();
    Outcome {
        universe: universe.clone(),
        states: visited.len(),
        steps: taken,
        depth,
        took: begun.elapsed(),
        counts: [world.table.len(), passes, local, judged, rested],
        kinds,
        end,
    }
}

/// The hashes from the start to a state.
fn chain(visited: &HashMap<u64, u64, Same>, last: u64, root: u64) -> Vec<u64> {
    let mut chain = vec![last];
    while let Some(at) = chain.last().copied().filter(|at| *at != root) {
        chain.push(visited[&at]);
    }
    chain.reverse();
    chain
}

/// Which step each state of a chain was reached by, from the start on. The walk is made without
/// putting the cores in order, so that each keeps its name.
fn path(world: &mut World, chain: &[u64]) -> Vec<usize> {
    let (mut state, mut steps, mut buffer) = (world.start(), Vec::new(), Vec::new());
    let mut path = Vec::new();
    for wanted in &chain[1..] {
        if world.steps(&state, &mut steps).is_err() {
            break;
        }
        let taken = steps
            .iter()
            .position(|(_, next)| next.hash(&mut buffer) == *wanted);
        let taken = taken.unwrap();
        state = steps[taken].1;
        path.push(taken);
    }
    path
}
