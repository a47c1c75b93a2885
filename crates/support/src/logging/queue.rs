//! The queue of log lines to standard output. It is bounded in bytes, so that a reader that stalls does not delay
//! reviews. Many lines are written at once, because writing a line takes longer than formatting it.
//!
//! (tracing-appender's queue is bounded only in lines. It allocates and wakes its thread for each line, which took as
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
const MAX_BYTES: usize = 4 << 20;
/// Time for which lines are collected before they are written together.
const COLLECTING_TIME: Duration = Duration::from_millis(20);
/// Maximum time for which the ending process waits for a reader that stalls.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Wakes the thread that writes: for the first line of an empty queue, for a queue that fills, and for the end.
    wake: Condvar,
}

#[derive(Default)]
struct State {
    lines: Vec<u8>,
    /// Number of lines that were dropped since the last write.
    dropped: usize,
    has_ended: bool,
}

/// Dropping it waits until the queued lines are written, unless the reader stalls.
pub struct Flush {
    queue: Arc<Queue>,
    /// Disconnects when all lines are written.
    done: Receiver<()>,
}

pub(super) fn start(format: Format) -> (Arc<Queue>, Flush) {
    let queue = Arc::new(Queue::default());
    let thread_queue = Arc::clone(&queue);
    let (done_sender, done) = channel();
    let run = move || {
        thread_queue.write_until_end(format, &mut io::stdout());
        drop(done_sender);
    };
    // If the thread cannot be started, no lines are written, but reviews are still answered.
    let _ = std::thread::Builder::new().name("log".into()).spawn(run);
    (Arc::clone(&queue), Flush { queue, done })
}

impl State {
    /// Returns whether the queued lines are written before the collecting time is over.
    fn is_filling(&self) -> bool {
        self.lines.len() >= MAX_BYTES / 2
    }

    /// Queues a whole line, or drops it. Returns whether the thread has to be woken.
    fn push(&mut self, line: &[u8]) -> bool {
        let was_empty = self.lines.is_empty();
        let was_filling = self.is_filling();
        if self.lines.len() + line.len() <= MAX_BYTES {
            self.lines.extend_from_slice(line);
        } else {
            self.dropped += 1;
        }
        was_empty || !was_filling && self.is_filling()
    }
}

impl Queue {
    /// Writes queued lines until the end of the process. Lines that cannot be written are lost.
    fn write_until_end(&self, format: Format, out: &mut impl Write) {
        loop {
            let mut state = self.state.lock();
            let is_idle = |state: &mut State| state.lines.is_empty() && !state.has_ended;
            self.wake.wait_while(&mut state, is_idle);
            let is_collecting = |state: &mut State| !state.is_filling() && !state.has_ended;
            self.wake
                .wait_while_for(&mut state, is_collecting, COLLECTING_TIME);
            let State {
                lines,
                dropped,
                has_ended,
            } = take(&mut *state);
            drop(state);
            let _ = out.write_all(&lines);
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
            if has_ended {
                return;
            }
        }
    }
}

impl Write for &Queue {
    /// Queues a whole line, or drops it. Never blocks for long.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let is_due = self.state.lock().push(line);
        if is_due {
            self.wake.notify_one();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        self.queue.state.lock().has_ended = true;
        self.queue.wake.notify_one();
        // The thread may hang in a write. The end of the process ends the thread.
        let _ = self.done.recv_timeout(FLUSH_TIMEOUT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_line_and_half_full_queue_wake_the_thread() {
        let quarter = vec![b'x'; MAX_BYTES / 4];
        let mut state = State::default();
        let is_woken = [0; 6].map(|_| state.push(&quarter));
        assert_eq!(is_woken, [true, true, false, false, false, false]);
        assert_eq!((state.lines.len(), state.dropped), (MAX_BYTES, 2));
    }

    #[test]
    fn lines_are_written_in_order_and_dropped_ones_counted() {
        let queue = Queue::default();
        let mut sink = &queue;
        sink.write_all(b"first\n").unwrap();
        sink.write_all(b"second\n").unwrap();
        let long = vec![b'x'; MAX_BYTES];
        assert_eq!(sink.write(&long).unwrap(), MAX_BYTES);
        sink.flush().unwrap();
        queue.state.lock().has_ended = true;
        let mut out = Vec::new();
        queue.write_until_end(Format::Json, &mut out);
        let out = String::from_utf8(out).unwrap();
        assert!(
            out.starts_with("first\nsecond\n{") && out.ends_with("\"lines\":1}\n"),
            "{out}"
        );
    }
}
