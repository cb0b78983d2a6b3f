//! Plain TCP round trips between two machines: what the network itself takes.

use crate::Failure;
use crate::arguments::{ASK, ECHO};
use crate::network::Machine;
use crate::samples::microseconds;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::Instant;

/// Bytes that go to and fro: about as many as a small task needs.
const MESSAGE_BYTES: usize = 64;
const WARM_UP: usize = 100;

/// The end that answers, on a machine; it ends when dropped.
pub(crate) struct Echo {
    child: Child,
    address: String,
}

impl Echo {
    pub(crate) fn start(machine: &Machine) -> Result<Self, Failure> {
        let mut command = machine.inside.this_program(ECHO)?;
        let mut child = command.arg(format!("{}:0", machine.address)).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or("its output is not a pipe")?;
        let mut echo = Self { child, address: String::new() };
        BufReader::new(stdout).read_line(&mut echo.address)?;
        Ok(echo)
    }

    /// Microseconds of each of `count` round trips from a machine.
    pub(crate) fn times(&self, from: &Machine, count: usize) -> Result<Vec<f64>, Failure> {
        let mut command = from.inside.this_program(ASK)?;
        let output =
            command.args([self.address.trim(), &count.to_string()]).stderr(Stdio::inherit()).output()?;
        let times: Vec<f64> =
            String::from_utf8(output.stdout)?.lines().map(str::parse).collect::<Result<_, _>>()?;
        if times.len() == count { Ok(times) } else { Err("a TCP round trip has failed".into()) }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends everything back.
pub(crate) fn answer(address: &str) -> Result<(), Failure> {
    let listener = TcpListener::bind(address)?;
    println!("{}", listener.local_addr()?);
    for connection in listener.incoming() {
        let mut connection = connection?;
        connection.set_nodelay(true)?;
        let mut message = [0; MESSAGE_BYTES];
        while connection.read_exact(&mut message).is_ok() {
            connection.write_all(&message)?;
        }
    }
    Ok(())
}

/// Goes there and back, and prints how long each time took.
pub(crate) fn ask(address: &str, count: usize) -> Result<(), Failure> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_nodelay(true)?;
    let mut message = [7; MESSAGE_BYTES];
    let mut times = Vec::with_capacity(WARM_UP + count);
    for _ in 0..WARM_UP + count {
        let begin = Instant::now();
        connection.write_all(&message)?;
        connection.read_exact(&mut message)?;
        times.push(microseconds(begin.elapsed()));
    }
    for time in &times[WARM_UP..] {
        println!("{time}");
    }
    Ok(())
}
