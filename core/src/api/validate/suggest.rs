/// The known word that was probably meant: the closest one by letters inserted, left out, replaced
/// or swapped (without regard to case), if it is close enough to be a slip, or else one that begins
/// with the word, or that the word begins with.
///
/// ```
/// # use ipledger_core::api::validate::nearest;
/// assert_eq!(nearest("familly", ["className", "family"]), Some("family"));
/// assert_eq!(nearest("class", ["className", "family"]), Some("className"));
/// assert_eq!(nearest("familyName", ["className", "family"]), Some("family"));
/// assert_eq!(nearest("colour", ["className", "family"]), None);
/// ```
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Nobody mistypes a name of this length, and the work grows with its square.
    if word.len() > 64 {
        return None;
    }
    let word = word.to_lowercase();
    let mut best: Option<(usize, &str)> = None;
    for candidate in known {
        let lower = candidate.to_lowercase();
        let slips = word.chars().count().max(lower.chars().count()).div_ceil(4);
        let mut distance = strsim::osa_distance(&word, &lower);
        if begins(&lower, &word) || begins(&word, &lower) {
            distance = distance.min(slips);
        }
        if distance <= slips && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Whether a word begins with another one that is long enough to mean something.
fn begins(word: &str, start: &str) -> bool {
    start.len() >= 4 && word.starts_with(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let known = ["addressName", "className", "family", "uid"];
        for (word, meant) in [
            ("familly", Some("family")),
            ("Family", Some("family")),
            ("classname", Some("className")),
            ("class_name", Some("className")),
            ("address", Some("addressName")),
            ("uuid", Some("uid")),
            ("zone", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
        assert_eq!(nearest(&"f".repeat(100_000), known), None);
    }

    #[test]
    fn a_word_that_goes_on_after_a_known_one_means_that_one() {
        let known = ["addresses", "exclude", "order", "pin"];
        for (word, meant) in [
            ("excludeAddresses", Some("exclude")),
            ("excluded", Some("exclude")),
            ("ordering", Some("order")),
            ("address", Some("addresses")),
            ("pinning", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
    }
}
