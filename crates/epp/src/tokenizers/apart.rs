//! Loading takes four times the memory that the tokenizer then needs: the file as a tree of values. It should not be the picker's for
//! good.

use std::{panic::resume_unwind, path::Path, thread, time::Duration};

use lmetric_tokenize::{LoadError, ModelTokenizer};

/// A little longer than the allocator keeps freed memory before it may go back to the system.
const KEPT: Duration = Duration::from_millis(1_200);

/// Loads on a thread of its own, waits for it, and has what it freed given back a second later. Panics when loading does.
///
/// The allocator gives memory back when a thread that had it ends and, after a second, another thread ends: an idle picker has none.
pub(crate) fn load(folder: &Path) -> Result<ModelTokenizer, LoadError> {
    let loaded = thread::scope(|scope| scope.spawn(|| ModelTokenizer::load(folder)).join());
    let last = || {
        thread::sleep(KEPT);
        // a thread that never allocated has nothing to tidy
        drop(std::hint::black_box(Box::new(0_u64)));
    };
    // without such a thread the memory serves whatever comes next
    let _ = thread::Builder::new().name("give-back".to_owned()).spawn(last);
    loaded.unwrap_or_else(|panic| resume_unwind(panic))
}
