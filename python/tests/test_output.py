"""What workers print: whose it is, where it appears, once or several times, and complete."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import aktis
from support import Latch, wait_until

PROGRAM = """
import os, subprocess, sys
import aktis

aktis.init(num_cpus=2, log_to_driver={forward})

{body}

aktis.shutdown()
"""


@pytest.fixture
def output_of(run_script: Callable[..., Any]) -> Callable[..., Any]:
    """Runs a program with a session, and gives what it printed."""

    def run(body: str, forward: bool = True, **options: Any) -> Any:
        return run_script(PROGRAM.format(body=body, forward=forward), **options)

    return run


def lines_with(words: str, text: str) -> list[str]:
    return [line for line in text.splitlines() if words in line]


# --- whose it is ------------------------------------------------------------------------------


def test_lines_name_the_function_and_the_process(output_of: Callable[..., Any]) -> None:
    done = output_of("""
@aktis.remote
def talk():
    print("words\\nand more words")
    print("complaints", file=sys.stderr)
    return os.getpid()

@aktis.remote
def other():
    print("others")

sys.stdout.write(f"pid {aktis.get(talk.remote())}\\n")
aktis.get(other.options(name="some other").remote())
""")
    pid = re.search(r"^pid (\d+)$", done.stdout, re.MULTILINE)
    assert pid is not None
    assert lines_with("words", done.stdout) == [
        f"(talk pid={pid[1]}) words",
        f"(talk pid={pid[1]}) and more words",
    ]
    assert f"(talk pid={pid[1]}) complaints\n" in done.stderr
    assert "complaints" not in done.stdout
    assert re.search(r"^\(some other pid=\d+\) others$", done.stdout, re.MULTILINE)


def test_lines_name_the_actor(output_of: Callable[..., Any]) -> None:
    done = output_of("""
@aktis.remote
class Plain:
    def __init__(self):
        print("made")

    def talk(self):
        print("words of a method")

@aktis.remote
class Shown:
    def __init__(self, number):
        self.number = number

    def __repr__(self):
        return f"Shown({self.number})"

    async def talk(self):
        print("words of a coroutine")

aktis.get([Plain.remote().talk.remote(), Shown.remote(7).talk.remote()])
""")
    assert re.search(r"^\(Plain pid=\d+\) made\n\(Plain pid=\d+\) words of a method$", done.stdout, re.M)
    assert re.search(r"^\(Shown\(7\) pid=\d+\) words of a coroutine$", done.stdout, re.MULTILINE)


def test_each_task_of_a_worker_has_its_own_name(output_of: Callable[..., Any]) -> None:
    done = output_of("""
@aktis.remote(num_cpus=2)
def even(number):
    print("number", number)

@aktis.remote(num_cpus=2)
def odd(number):
    print("number", number)

aktis.get([(odd if number % 2 else even).remote(number) for number in range(100)])
""")
    found = re.findall(r"^\((\w+) pid=\d+\) number (\d+)$", done.stdout, re.MULTILINE)
    assert sorted(found, key=lambda line: int(line[1])) == [
        ("odd" if number % 2 else "even", str(number)) for number in range(100)
    ]


@pytest.mark.one_node("what workers print on another node goes into its log")
def test_words_from_outside_of_python_are_named_too(
    shared_session: Any, capsys: pytest.CaptureFixture[str], latch: Latch
) -> None:
    @aktis.remote
    def calls() -> None:
        os.write(1, b"written directly\n")
        subprocess.run(["echo", "by a child"], check=True)
        latch.wait()

    ref = calls.remote()
    seen = collect(capsys, "by a child\n")
    latch.open()
    aktis.get(ref)
    for words in ("written directly", "by a child"):
        assert re.search(rf"^\(calls pid=\d+\) {words}$", seen, re.MULTILINE)


def test_streams_of_workers_are_streams(shared_session: Any) -> None:
    @aktis.remote
    def look() -> tuple[Any, ...]:
        # The bytes between two marks may be anything.
        sys.stdout.buffer.write(b"\x1eaktis \xff\n")
        return (
            sys.stdout.fileno(),
            sys.stderr.fileno(),
            sys.stdout.name,
            sys.stdout.encoding,
            sys.stderr.errors,
            sys.stdout is sys.__stdout__,
            sys.stdout.line_buffering,
            sys.stdout.write("five\n"),
            os.isatty(1),
        )

    expected = (1, 2, "<stdout>", sys.__stdout__.encoding, "backslashreplace", True, True, 5, False)
    assert aktis.get(look.remote()) == expected


# --- what is printed when ---------------------------------------------------------------------


@pytest.mark.one_node("what workers print on another node goes into its log")
def test_a_line_appears_while_its_task_runs(
    shared_session: Any, capsys: pytest.CaptureFixture[str], latch: Latch
) -> None:
    @aktis.remote
    def talk() -> None:
        print("one line")
        print("half", end="")
        latch.wait()
        print(" a line")

    ref = talk.remote()
    seen = collect(capsys, "one line\n")
    assert "half" not in seen, "lines are not broken"
    latch.open()
    aktis.get(ref)
    assert re.search(r"^\(talk pid=\d+\) half a line$", collect(capsys, "half a line\n"), re.MULTILINE)


def test_what_was_printed_without_an_end_is_printed_at_the_end(output_of: Callable[..., Any]) -> None:
    done = output_of("""
@aktis.remote
def talk():
    print("no end", end="")

aktis.get(talk.remote())
""")
    assert re.search(r"^\(talk pid=\d+\) no end$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("death", ["os._exit(3)", "os.kill(os.getpid(), 9)", "sys.exit(3)"])
def test_the_output_of_a_worker_that_dies_is_complete(output_of: Callable[..., Any], death: str) -> None:
    done = output_of(f"""
@aktis.remote(max_retries=0)
def die():
    for number in range(5000):
        print("number", number)
    print("last words", file=sys.stderr)
    {death}

try:
    aktis.get(die.remote())
except aktis.exceptions.WorkerCrashedError:
    sys.stderr.write("it died\\n")
""")
    assert "it died\n" in done.stderr
    found = re.findall(r"^\(die pid=\d+\) number (\d+)$", done.stdout, re.MULTILINE)
    assert found == [str(number) for number in range(5000)]
    assert re.search(r"^\(die pid=\d+\) last words$", done.stderr, re.MULTILINE)


def test_marks_are_not_among_the_last_words(shared_session: Any) -> None:
    @aktis.remote(max_retries=0)
    def die() -> None:
        print("last words", file=sys.stderr)
        os._exit(3)

    with pytest.raises(aktis.exceptions.WorkerCrashedError) as caught:
        aktis.get(die.remote())
    assert "last words" in str(caught.value)
    assert "\x1e" not in str(caught.value) and "\x1f" not in str(caught.value)


def test_progress_bars_do_not_break_lines(output_of: Callable[..., Any]) -> None:
    done = output_of("""
@aktis.remote
def work():
    for percent in range(0, 101, 10):
        print(f"\\r{percent:3}%", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print("done", file=sys.stderr)

aktis.get(work.remote())
""")
    lines = [line for line in re.sub(r"pid=\d+", "pid=", done.stderr).split("\n") if "pid=" in line]
    assert lines == ["(work pid=) 100%", "(work pid=) done"]


# --- once or several times --------------------------------------------------------------------

SEVERAL = """
@aktis.remote(num_cpus=0)
class Speaker:
    def talk(self):
        print("the same words")

speakers = [Speaker.remote() for _ in range(4)]
aktis.get([speaker.talk.remote() for speaker in speakers])
"""


def test_what_several_workers_print_is_printed_once_and_counted(output_of: Callable[..., Any]) -> None:
    lines = lines_with("the same words", output_of(SEVERAL).stdout)
    assert [re.sub(r"pid=\d+", "pid=", line) for line in lines] == [
        "(Speaker pid=) the same words",
        "(Speaker pid=) the same words [printed 3 more times, by 3 workers]",
    ]


def test_every_line_is_printed_if_that_is_wanted(output_of: Callable[..., Any]) -> None:
    lines = lines_with("the same words", output_of(SEVERAL, environment={"AKTIS_DEDUP_LOGS": "0"}).stdout)
    assert len(lines) == 4
    assert all(re.fullmatch(r"\(Speaker pid=\d+\) the same words", line) for line in lines)


def test_rays_variable_counts_under_compat(run_script: Callable[..., Any]) -> None:
    program = PROGRAM.format(body=SEVERAL, forward=True)
    done = run_script("import aktis.compat\n" + program, environment={"RAY_DEDUP_LOGS": "0"})
    assert len(lines_with("the same words", done.stdout)) == 4


def test_what_one_worker_repeats_is_printed_each_time(output_of: Callable[..., Any]) -> None:
    done = output_of("""
@aktis.remote
def talk():
    for _ in range(10):
        print("again")

aktis.get(talk.remote())
""")
    assert len(lines_with("again", done.stdout)) == 10


def test_nothing_is_printed_if_that_is_wanted(output_of: Callable[..., Any]) -> None:
    done = output_of(SEVERAL + "print('end', file=sys.stderr)", forward=False)
    assert done.stdout == ""
    assert done.stderr == "end\n"


# --- where it appears -------------------------------------------------------------------------


def collect(capsys: pytest.CaptureFixture[str], words: str, error: bool = False) -> str:
    """What was captured, once these words are there."""
    seen: list[str] = []

    def there() -> bool:
        captured = capsys.readouterr()
        seen.append(captured.err if error else captured.out)
        return words in "".join(seen)

    wait_until(there)
    return "".join(seen)


@pytest.mark.one_node("what workers print on another node goes into its log")
def test_a_replaced_stream_gets_the_lines(shared_session: Any, capsys: pytest.CaptureFixture[str]) -> None:
    @aktis.remote
    def talk(number: int) -> None:
        print("ünïcode words")
        print(f"{number} complaints", file=sys.stderr)

    aktis.get(talk.remote(1))
    assert re.search(r"^\(talk pid=\d+\) ünïcode words$", collect(capsys, "words\n"), re.MULTILINE)
    # Another worker may print it now: the same words would be taken for a repetition.
    aktis.get(talk.remote(2))
    assert "(talk pid=" in collect(capsys, "complaints\n", error=True)


@pytest.mark.parametrize("stream", ["None", "Refusing()", "open(os.devnull)"])
def test_a_stream_that_takes_nothing_loses_nothing(output_of: Callable[..., Any], stream: str) -> None:
    done = output_of(f"""
class Refusing:
    def write(self, text):
        raise ZeroDivisionError

    def flush(self):
        pass

@aktis.remote
def talk():
    print("words")

sys.stdout = {stream}
aktis.get(talk.remote())
aktis.shutdown()
sys.stdout = sys.__stdout__
""")
    assert re.search(r"^\(talk pid=\d+\) words$", done.stdout, re.MULTILINE)
    assert done.stderr == ""


def test_a_session_that_is_forgotten_prints_at_the_end(run_script: Callable[..., Any]) -> None:
    done = run_script("""
        import aktis

        @aktis.remote
        def talk():
            print("words" * 10)

        session = aktis.Session(num_cpus=1)
        session.get(session.submit(talk))
    """)
    assert re.search(r"^\(talk pid=\d+\) (words){10}$", done.stdout, re.MULTILINE)
    assert done.stderr == ""


def test_a_driver_that_does_not_read_is_no_obstacle(output_of: Callable[..., Any]) -> None:
    """More than pipes and the node hold, while the driver's stream does not take anything."""
    done = output_of("""
import threading

taken = threading.Event()

class Slow:
    lines = 0

    def write(self, text):
        taken.wait(30)
        Slow.lines += text.count("talk pid=")

    def flush(self):
        pass

@aktis.remote(num_cpus=1)
def talk():
    for _ in range(40):
        print("x" * 99_999)

@aktis.remote(num_cpus=1)
def other():
    return 1

sys.stdout = Slow()
ref = talk.remote()
for _ in range(100):
    assert aktis.get(other.remote(), timeout=20) == 1
taken.set()
aktis.get(ref, timeout=20)
aktis.shutdown()
sys.stdout = sys.__stdout__
# A line of that length is cut in two.
print("lines", Slow.lines)
""")
    assert lines_with("lines", done.stdout) == ["lines 80"]
