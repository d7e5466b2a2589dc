//! Every order: a scenario is played again and again until all its choices were made in all ways.

use std::cell::RefCell;

/// The choices of one run of a scenario.
pub struct Order {
    /// The choices of the first run, as far as they are given.
    start: Vec<usize>,
    /// What was chosen, out of how many.
    choices: Vec<(usize, usize)>,
    next: usize,
}

impl Order {
    /// A number below `of`; in the runs of a scenario, each of them in turn.
    pub fn choose(&mut self, of: usize) -> usize {
        assert!(of > 0, "there is nothing to choose from");
        if self.next == self.choices.len() {
            let first = self.start.get(self.next).copied().unwrap_or(0);
            self.choices.push((first, of));
        }
        let (chosen, same) = self.choices[self.next];
        assert_eq!(same, of, "a scenario makes the same choices in every run");
        self.next += 1;
        chosen
    }

    /// One of these.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.choose(from.len())].clone()
    }

    /// These in another order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in 1..items.len() {
            let with = self.choose(at + 1);
            items.swap(at, with);
        }
    }

    /// Moves on to the next way to choose; `false` after the last one.
    fn advance(&mut self) -> bool {
        self.next = 0;
        self.start.clear();
        while let Some((chosen, of)) = self.choices.pop() {
            if chosen + 1 < of {
                self.choices.push((chosen + 1, of));
                return true;
            }
        }
        false
    }
}

/// Plays the scenario in every order. A failure is followed by the choices that led to it; with them
/// in the environment, as in `ORDER=0,5,1`, the scenarios start there.
pub fn in_every_order(scenario: impl Fn(&mut Order)) {
    let start = std::env::var("ORDER").unwrap_or_default();
    let start = start.split(',').filter_map(|n| n.trim().parse().ok());
    let order = RefCell::new(Order {
        start: start.collect(),
        choices: Vec::new(),
        next: 0,
    });
    let mut runs = 0;
    loop {
        let told = Told(&order);
        scenario(&mut told.0.borrow_mut());
        runs += 1;
        if !order.borrow_mut().advance() {
            break;
        }
    }
    assert!(
        runs > 1,
        "a scenario with one order needs no `in_every_order`"
    );
}

/// Prints the choices of the run that fails.
struct Told<'a>(&'a RefCell<Order>);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Borrowed by the scenario no longer: it is being unwound.
            if let Ok(order) = self.0.try_borrow() {
                let chosen: Vec<usize> = order.choices.iter().map(|(chosen, _)| *chosen).collect();
                eprintln!("failed with the choices {chosen:?}");
            }
        }
    }
}

#[test]
fn every_order_is_played_once() {
    let seen = RefCell::new(Vec::new());
    in_every_order(|order| {
        let mut items = ['a', 'b', 'c'];
        order.shuffle(&mut items);
        seen.borrow_mut().push((items, order.choose(2)));
    });
    let mut seen = seen.into_inner();
    assert_eq!(seen.len(), 12);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 12);
}
