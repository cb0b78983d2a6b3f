//! Looks for words in all that goes through the switch.

use crate::Failure;
use crate::arguments::CAPTURE;
use crate::network::Network;
use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with};
use std::io::{BufRead, BufReader, Write};
use std::num::NonZeroU32;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// All protocols, in the order of bytes that the kernel wants.
const ETH_P_ALL: u32 = 0x0003_u16.to_be() as u32;
/// The largest packet between namespaces: they are not cut to the size of real ones.
const PACKET_BYTES_MAX: usize = 1 << 18;
/// Packets that may wait for this program: more than a row sends.
const BUFFER_BYTES: usize = 1 << 28;

/// What was on the wire.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// Packets with one of the words in them.
    pub(crate) hits: u64,
}

/// Somebody who reads along.
pub(crate) struct Capture {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Capture {
    /// Reads along from now on, and looks for these words.
    pub(crate) fn start(network: &Network, words: &[&[u8]]) -> Result<Self, Failure> {
        let mut command = network.switch.this_program(CAPTURE)?;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut input = child.stdin.take().ok_or("its input is not a pipe")?;
        let mut output = BufReader::new(child.stdout.take().ok_or("its output is not a pipe")?);
        let hexadecimal = |word: &&[u8]| word.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        writeln!(input, "{}", words.iter().map(hexadecimal).collect::<Vec<_>>().join(" "))?;
        let mut ready = String::new();
        output.read_line(&mut ready)?;
        if ready.is_empty() {
            Err("the wire cannot be read".into())
        } else {
            Ok(Self { child, input, output })
        }
    }

    /// What was there so far.
    pub(crate) fn end(self) -> Result<Seen, Failure> {
        let Self { mut child, input, mut output } = self;
        drop(input);
        let mut line = String::new();
        output.read_line(&mut line)?;
        child.wait()?;
        let numbers: Vec<u64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [packets, bytes, hits] = numbers[..] else { return Err("the capture has failed".into()) };
        Ok(Seen { packets, bytes, hits })
    }
}

/// Reads all packets until the input ends, then says how many there were.
pub(crate) fn watch() -> Result<(), Failure> {
    let mut line = String::new();
    let stdin = std::io::stdin();
    stdin.lock().read_line(&mut line)?;
    let words: Vec<Vec<u8>> = line.split_whitespace().map(bytes_of).collect::<Result<_, _>>()?;
    let protocol = NonZeroU32::new(ETH_P_ALL).map(Protocol::from_raw);
    let packets = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    set_socket_recv_buffer_size_force(&packets, BUFFER_BYTES)?;
    println!("ready");
    let (mut seen, mut packet) = (Seen::default(), vec![0; PACKET_BYTES_MAX]);
    let mut ends = false;
    loop {
        let mut polled = [PollFd::new(&packets, PollFlags::IN), PollFd::new(&stdin, PollFlags::IN)];
        let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut polled, ends.then_some(&timeout))?;
        ends |= !polled[1].revents().is_empty();
        if polled[0].revents().is_empty() {
            if ends {
                break;
            }
            continue;
        }
        let (length, _) = recv(&packets, &mut packet[..], RecvFlags::empty())?;
        seen.packets += 1;
        seen.bytes += length as u64;
        seen.hits += u64::from(words.iter().any(|word| contains(&packet[..length], word)));
    }
    println!("{} {} {}", seen.packets, seen.bytes, seen.hits);
    Ok(())
}

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

fn bytes_of(hexadecimal: &str) -> Result<Vec<u8>, Failure> {
    let digits = hexadecimal.as_bytes().chunks(2);
    digits.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)).collect()
}
