//! The one lock of this crate. Under the feature `shuttle` it is shuttle's, so that interleavings can be explored.

#[cfg(not(feature = "shuttle"))]
pub(crate) use parking_lot::Mutex;

/// A place where another thread may be scheduled when interleavings are explored; nothing otherwise.
#[cfg(not(feature = "shuttle"))]
#[inline]
pub(crate) fn checkpoint() {}

#[cfg(feature = "shuttle")]
pub(crate) use explored::{Mutex, checkpoint};

#[cfg(feature = "shuttle")]
mod explored {
    use std::sync::PoisonError;

    use shuttle::sync::MutexGuard;

    /// `shuttle::sync::Mutex` with `parking_lot`'s signature.
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    pub(crate) fn checkpoint() {
        shuttle::thread::yield_now();
    }
}
