//! Sets up the log: to stderr, because stdout is for the answers of the user's commands.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

use crate::args::{Global, LogFormat};

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("parsing the log level")]
    Filter(#[from] ParseError),
    #[error("starting the log")]
    Init(#[from] TryInitError),
}

/// Starts the log of this process, which is written to stderr.
pub fn init<W>(global: &Global, stderr: W) -> Result<(), Error>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // Colours only on a terminal: in a file they would cut `admin_addr=…` to pieces.
    let colours = io::stderr().is_terminal();
    subscriber(global.log_format, &global.log_level, colours, stderr)?.try_init()?;
    Ok(())
}

fn subscriber<W>(
    format: LogFormat,
    filter: &str,
    colours: bool,
    writer: W,
) -> Result<tracing::Dispatch, ParseError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(filter)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    Ok(match format {
        LogFormat::Text => builder.with_ansi(colours).finish().into(),
        LogFormat::Json => builder.json().flatten_event(true).finish().into(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::dispatcher::with_default;
    use tracing::{debug, info};

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().map_err(|_| io::Error::other("poisoned"))?.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat, filter: &str) -> String {
        let sink = Sink::default();
        let writer = sink.clone();
        let dispatch = subscriber(format, filter, false, move || writer.clone()).unwrap();
        with_default(&dispatch, || {
            debug!("a detail");
            info!(admin_addr = %"127.0.0.1:8080", "serving");
        });
        String::from_utf8(sink.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn text_keeps_fields_readable_for_scripts() {
        let text = logged(LogFormat::Text, "info");
        assert!(text.contains("admin_addr=127.0.0.1:8080"), "{text}");
        assert!(!text.contains("a detail"), "{text}");
    }

    #[test]
    fn json_is_one_object_per_line() {
        let text = logged(LogFormat::Json, "debug");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1]["admin_addr"], "127.0.0.1:8080");
        assert_eq!(lines[1]["level"], "INFO");
    }
}
