//! The queue of log lines to standard output. It is bounded in bytes, so that a reader that stalls does not delay reviews.
//! Many lines are written at once, as writing a line takes longer than formatting it.
//!
//! (tracing-appender's queue is bounded only in lines, allocates for each line, and wakes its thread for each: it took as
//! long as a whole decision.)

use std::io::{self, Write};
use std::mem::take;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use parking_lot::Condvar;

use super::line::Format;
use crate::sync::Mutex;

/// Maximum bytes in the queue while the reader stalls. Further lines are dropped and counted.
const LIMIT: usize = 4 << 20;
/// Time in which lines are collected before they are written together.
const PAUSE: Duration = Duration::from_millis(20);
/// Time for which the process waits at its end for a reader that stalls.
const END: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    dropped: usize,
    ended: bool,
}

/// Waits when it is dropped until the queued lines are written, unless the reader stalls.
pub struct Flush {
    queue: Arc<Queue>,
    /// Disconnected when all lines are written.
    done: Receiver<()>,
}

pub(super) fn start(format: Format) -> (Arc<Queue>, Flush) {
    let queue = Arc::new(Queue::default());
    let queue_of_thread = Arc::clone(&queue);
    let (writing, done) = channel();
    let run = move || {
        queue_of_thread.empty(format, &mut io::stdout());
        drop(writing);
    };
    // If the thread cannot be started, no lines are written, but reviews are answered.
    let _ = std::thread::Builder::new().name("log".into()).spawn(run);
    (Arc::clone(&queue), Flush { queue, done })
}

impl Queue {
    /// Writes queued lines until the end. Lines that cannot be written are lost.
    fn empty(&self, format: Format, out: &mut impl Write) {
        loop {
            let mut state = self.state.lock();
            let is_empty = |state: &mut State| state.waiting.is_empty() && !state.ended;
            self.more.wait_while(&mut state, is_empty);
            let is_filling = |state: &mut State| state.waiting.len() < LIMIT / 2 && !state.ended;
            self.more.wait_while_for(&mut state, is_filling, PAUSE);
            let State {
                waiting,
                dropped,
                ended,
            } = take(&mut *state);
            drop(state);
            let _ = out.write_all(&waiting);
            if dropped > 0 {
                let _ = match format {
                    Format::Json => writeln!(
                        out,
                        "{{\"level\":\"WARN\",\"message\":\"log lines were dropped\",\"lines\":{dropped}}}"
                    ),
                    Format::Text => writeln!(out, " WARN log lines were dropped lines={dropped}"),
                };
            }
            let _ = out.flush();
            if ended {
                return;
            }
        }
    }
}

impl Write for &Queue {
    /// Queues a whole line, or drops it. Never blocks for long.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut state = self.state.lock();
        let was_empty = state.waiting.is_empty();
        if state.waiting.len() + line.len() <= LIMIT {
            state.waiting.extend_from_slice(line);
        } else {
            state.dropped += 1;
        }
        drop(state);
        if was_empty {
            self.more.notify_one();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        self.queue.state.lock().ended = true;
        self.queue.more.notify_one();
        // The thread may hang in a write. It ends with the process.
        let _ = self.done.recv_timeout(END);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_written_in_order_and_dropped_ones_counted() {
        let queue = Queue::default();
        let mut sink = &queue;
        sink.write_all(b"first\n").unwrap();
        sink.write_all(b"second\n").unwrap();
        let long = vec![b'x'; LIMIT];
        assert_eq!(sink.write(&long).unwrap(), LIMIT);
        sink.flush().unwrap();
        queue.state.lock().ended = true;
        let mut out = Vec::new();
        queue.empty(Format::Json, &mut out);
        let out = String::from_utf8(out).unwrap();
        assert!(
            out.starts_with("first\nsecond\n{") && out.ends_with("\"lines\":1}\n"),
            "{out}"
        );
    }
}
