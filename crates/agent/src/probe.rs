//! Whether the keeper in a folder is alive.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    time::Duration,
};

use crate::{
    RunDir,
    call::{Answer, Request},
};

/// Asks the keeper, and returns once it has answered. Any answer will do: the keeper sees by itself whether
/// keepalived is alive, and a new container would not help a keepalived that cannot run.
pub fn probe(run_dir: &RunDir, deadline: Duration) -> io::Result<()> {
    let mut stream = UnixStream::connect(run_dir.socket())?;
    stream.set_read_timeout(Some(deadline))?;
    stream.set_write_timeout(Some(deadline))?;
    let mut line = serde_json::to_vec(&Request::Alive)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    serde_json::from_str::<Answer>(&answer)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixListener, thread};

    use super::*;
    use crate::call::Counts;

    #[test]
    fn any_answer_is_a_sign_of_life_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(dir.path());
        assert!(probe(&run_dir, Duration::from_mins(1)).is_err());
        let listener = UnixListener::bind(run_dir.socket()).unwrap();
        let down = Answer::Down { error: String::new(), counts: Counts::default() };
        for (text, is_alive) in
            [(serde_json::to_string(&down).unwrap() + "\n", true), (String::new(), false)]
        {
            let listener = listener.try_clone().unwrap();
            let keeper = thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                stream.write_all(text.as_bytes()).unwrap();
                line
            });
            assert_eq!(probe(&run_dir, Duration::from_mins(1)).is_ok(), is_alive);
            assert_eq!(keeper.join().unwrap(), "\"alive\"\n");
        }
        // It is accepted by the kernel, and answered by nothing.
        assert!(probe(&run_dir, Duration::from_millis(1)).is_err());
    }
}
