//! What `wasm-bindgen-rayon` uses of the crate of this name: a queue over which each thread of a pool gets its builder, once. The real one
//! has six kinds of channel, chosen at run time, and takes 5 kB gzipped of a page's 400. `Cargo.toml` puts this one in its place.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

struct Queue<T> {
    items: Mutex<VecDeque<T>>,
    filled: Condvar,
}

/// Puts items into the queue.
pub struct Sender<T>(Arc<Queue<T>>);

/// Takes items out of it.
pub struct Receiver<T>(Arc<Queue<T>>);

/// The error of both ends. None arises: the one user keeps sender and receiver together.
#[derive(Debug)]
pub struct Disconnected;

/// A queue. Its user sends no more than `capacity` items, so that none has to wait for room.
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let queue = Arc::new(Queue { items: Mutex::new(VecDeque::with_capacity(capacity)), filled: Condvar::new() });
    (Sender(queue.clone()), Receiver(queue))
}

impl<T> Sender<T> {
    /// Adds an item at the end.
    ///
    /// # Errors
    /// None: see [`Disconnected`].
    pub fn send(&self, item: T) -> Result<(), Disconnected> {
        self.0.items.lock().unwrap_or_else(PoisonError::into_inner).push_back(item);
        self.0.filled.notify_one();
        Ok(())
    }
}

impl<T> Receiver<T> {
    /// Takes the first item, once there is one.
    ///
    /// # Errors
    /// None: see [`Disconnected`].
    pub fn recv(&self) -> Result<T, Disconnected> {
        let mut items = self.0.items.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match items.pop_front() {
                Some(item) => return Ok(item),
                None => items = self.0.filled.wait(items).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}
