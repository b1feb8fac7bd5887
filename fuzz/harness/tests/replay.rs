//! Every input of the corpus, and every one that broke a rule once, through the same functions as in fuzzing.

use std::panic::catch_unwind;

use lmetric_fuzz::{TARGETS, folders};

#[test]
fn every_input_of_the_corpus_keeps_the_rules() {
    let mut broken = Vec::new();
    for target in TARGETS {
        let seeds = folders::files(&folders::corpus(target.name));
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        let regressions = folders::files(&folders::regressions(target.name));
        for path in seeds.into_iter().chain(regressions) {
            let input = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            if catch_unwind(|| (target.run)(&input)).is_err() {
                eprintln!("broken by {}", path.display());
                broken.push(path);
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}
