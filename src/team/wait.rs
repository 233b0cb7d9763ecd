//! Sleeping on a word of shared memory: wasm's futex. Native builds, which exist for tests, yield instead.

pub use here::{sleep_while, wake_all};

#[cfg(all(target_arch = "wasm32", target_feature = "atomics"))]
mod here {
    use core::arch::wasm32::{memory_atomic_notify, memory_atomic_wait32};
    use core::sync::atomic::AtomicU32;

    /// How long a sleep lasts at most. A dead member notifies nobody, so a sleeper checks the poison flag this often.
    const NANOSECONDS: i64 = 50_000_000;

    /// Sleeps until notified, the time is over, or at once if the word is no longer `seen`.
    pub fn sleep_while(word: &AtomicU32, seen: u32) {
        // SAFETY: the reference keeps the word alive; it is aligned and in shared memory.
        unsafe { memory_atomic_wait32(word.as_ptr().cast(), seen as i32, NANOSECONDS) };
    }

    /// Wakes everyone who sleeps on the word.
    pub fn wake_all(word: &AtomicU32) {
        // SAFETY: the reference keeps the word alive; it is aligned, and nothing is read or written.
        unsafe { memory_atomic_notify(word.as_ptr().cast(), u32::MAX) };
    }
}

#[cfg(not(all(target_arch = "wasm32", target_feature = "atomics")))]
mod here {
    use core::sync::atomic::AtomicU32;

    pub fn sleep_while(_: &AtomicU32, _: u32) {
        std::thread::yield_now();
    }

    pub fn wake_all(_: &AtomicU32) {}
}
