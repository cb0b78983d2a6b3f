"""Progress bars: what is drawn, in a terminal and elsewhere, from this process and from workers."""

import io
import re
from typing import Any

import pytest

import aktis
from aktis.util import _bars
from aktis.util.tqdm import safe_print, tqdm, trange


class Terminal(io.StringIO):
    """Keeps what a terminal of three control sequences would show."""

    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        lines, row, column = [""], 0, 0
        for token in re.findall(r"\x1b\[\d*[AJ]|\r|\n|[^\x1b\r\n]+", self.getvalue()):
            if token == "\r":
                column = 0
            elif token == "\n":
                row, column = row + 1, 0
                lines += [""] * (row + 1 - len(lines))
            elif token.endswith("J") and token.startswith("\x1b"):
                lines[row:] = [lines[row][:column]]
            elif token.startswith("\x1b"):
                row -= int(token[2:-1])
            else:
                lines[row] = lines[row][:column] + token
                column += len(token)
        return lines


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    stream = Terminal()
    monkeypatch.setattr(_bars, "_display", _bars.DriverDisplay(stream))
    monkeypatch.setenv("COLUMNS", "100")
    return stream


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    stream = io.StringIO()
    monkeypatch.setattr(_bars, "_display", _bars.DriverDisplay(stream))
    return stream


def collect() -> None:
    display = _bars.local_display()
    assert isinstance(display, _bars.DriverDisplay)
    display.collect()


# --- this process ---------------------------------------------------------------------------------


def test_iteration_gives_the_items_and_ends_the_bar(terminal: Terminal) -> None:
    bar = tqdm([1, 2, 3], desc="three")
    assert bar.total == len(bar) == 3
    assert list(bar) == [1, 2, 3]
    assert bar.n == 3
    last = terminal.screen()[0]
    assert last.startswith("three: 100%|")
    assert "| 3/3 [00:00<00:00, " in last


def test_a_bar_shows_its_share(terminal: Terminal) -> None:
    with tqdm(total=8, desc="part", unit="file") as bar:
        bar.update(2)
        bar.refresh()
        (line,) = terminal.screen()
        assert line.startswith("part:  25%|██████░░░░░░░░░░░░░░░░░░| 2/8 [")
        assert "file" in line
        bar.set_description("whole")
        bar.update(6)
        bar.set_postfix(loss=0.5)
    assert terminal.screen()[0].startswith("whole: 100%|")
    assert "loss=0.5" in terminal.screen()[0]


def test_without_a_total_it_counts(terminal: Terminal) -> None:
    bar = tqdm((number for number in [1, 2]), desc="some")
    for _ in bar:
        pass
    assert terminal.screen()[0].startswith("some: 2 it [00:00, ")


def test_two_bars_in_the_order_of_their_positions(terminal: Terminal) -> None:
    below = tqdm(total=2, desc="below", position=1)
    above = tqdm(total=2, desc="above", position=0)
    assert [line.split(":")[0] for line in terminal.screen()] == ["above", "below"]
    above.close()
    assert [line.split(":")[0] for line in terminal.screen()] == ["above", "below"]
    below.close()
    assert [line.split(":")[0] for line in terminal.screen()] == ["above", "below", ""]


def test_a_bar_that_does_not_stay(terminal: Terminal) -> None:
    for _ in trange(3, leave=False):
        pass
    assert terminal.screen() == [""]


def test_a_disabled_bar_shows_nothing(terminal: Terminal) -> None:
    assert list(trange(3, disable=True)) == [0, 1, 2]
    assert terminal.getvalue() == ""


def test_a_line_is_cut_at_the_width_of_the_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    bar = tqdm(total=10, desc="long " * 20)
    assert max(map(len, terminal.screen())) < 40
    bar.close()


def test_printing_goes_above_the_bars(terminal: Terminal) -> None:
    bar = tqdm(total=2, desc="bar")
    safe_print("hello", 1, sep="-", file=terminal)
    bar.write("world", file=terminal)
    lines = terminal.screen()
    assert lines[:2] == ["hello-1", "world"]
    assert lines[2].startswith("bar:")
    bar.close()


def test_reset(terminal: Terminal) -> None:
    bar = tqdm(total=2)
    bar.update(2)
    bar.reset(total=5)
    assert (bar.n, bar.total) == (0, 5)
    bar.close()
    bar.close()  # Twice does no harm.


def test_elsewhere_each_bar_is_a_line_at_its_end(pipe: io.StringIO) -> None:
    for _ in trange(100, desc="plain"):
        pass
    (line,) = pipe.getvalue().splitlines()
    assert line.startswith("plain: 100%|")
    assert "\x1b" not in pipe.getvalue()


def test_elsewhere_a_long_bar_gives_a_line_now_and_then(
    pipe: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_bars, "_PLAIN_S", 0)
    bar = tqdm(total=4, desc="slow")
    for _ in range(2):
        bar.update(1)
        bar.refresh()
    bar.refresh()  # Nothing new.
    assert [line.split("|")[2].split()[0] for line in pipe.getvalue().splitlines()] == ["1/4", "2/4"]
    bar.close()


def test_a_bar_without_an_iterable_cannot_be_iterated(terminal: Terminal) -> None:
    with pytest.raises(TypeError, match="nothing to iterate"):
        list(tqdm(total=1))


# --- workers --------------------------------------------------------------------------------------


@aktis.remote(num_cpus=0)
class Worker:
    def start(self, desc: str, total: int) -> None:
        self.bar = tqdm(total=total, desc=desc, flush_interval_s=0)

    def update(self, n: int) -> None:
        self.bar.update(n)

    def close(self) -> None:
        self.bar.close()

    def print(self, text: str) -> None:
        safe_print(text)


def test_bars_of_workers_are_drawn_by_the_driver(
    session: Any, terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    collect()  # Says that there is a display.
    workers = [Worker.remote() for _ in range(2)]
    aktis.get([worker.start.remote(f"worker {n}", 4) for n, worker in enumerate(workers)])
    aktis.get([workers[0].update.remote(1), workers[1].update.remote(2)])
    collect()
    shown = sorted(line[:14] for line in terminal.screen())
    assert shown == ["worker 0:  25%", "worker 1:  50%"]
    aktis.get(workers[0].print.remote("from a worker"))
    collect()
    assert "from a worker\n" in capsys.readouterr().out
    aktis.get([worker.close.remote() for worker in workers])
    collect()
    assert not _bars.local_display().is_busy()
    assert terminal.screen()[-1] == ""
    assert not aktis.util.debug.runtime().key_list(_bars.BAR_PREFIX)  # Nothing is left in the session.


def test_without_a_display_a_worker_prints_a_line(run_script: Any) -> None:
    result = run_script(
        """
        import aktis

        @aktis.remote
        def work():
            from aktis.util.tqdm import tqdm

            for _ in tqdm(range(5), desc="alone"):
                pass

        aktis.init(num_cpus=1)
        aktis.get(work.remote())
        aktis.shutdown()
        """
    )
    assert "alone: 100%|" in result.stdout + result.stderr


def test_the_last_state_is_drawn_when_the_program_ends(run_script: Any) -> None:
    result = run_script(
        """
        import aktis
        from aktis.util import _bars
        from aktis.util.tqdm import tqdm

        aktis.init(num_cpus=1)
        _bars.local_display().collect()

        @aktis.remote
        def work():
            for _ in tqdm(range(5), desc="at the end"):
                pass

        aktis.get(work.remote())
        """
    )
    assert result.stderr.count("at the end: 100%|") == 1
