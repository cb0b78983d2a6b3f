"""The command line, the files of a run, Ctrl-C, and what is said when torch is missing."""

import csv
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import aktis.rl
from aktis.rl.metrics import ProgressLine, TensorBoardFile, masked_crc32c
from support import run_program

TRAIN = ["-m", "aktis.rl", "train", "ppo", "--env", "CartPole-v1", "--seed", "1"]
SHORT = ["--num-envs", "4", "--rollout-steps", "16", "--total-steps", "1e3"]


def test_train_evaluate_and_resume(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    from aktis.rl.__main__ import main

    done = run_program([*TRAIN, *SHORT], tmp_path)
    assert done.stderr == "", "no live line where there is no terminal"
    assert re.search(r"did not reach the target of 475: mean return .* after 1,024 steps", done.stdout)
    monkeypatch.chdir(tmp_path)
    checkpoint = "runs/ppo-CartPole-v1-1/checkpoint.aktis"

    assert main(["evaluate", checkpoint, "--episodes", "3", "--seed", "1"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"ppo on CartPole-v1, trained for 1,024 steps\nreturn over 3 episodes: ", text)

    assert main([*TRAIN[2:], *SHORT]) == 1
    text = capsys.readouterr().err
    assert "there is a checkpoint in runs/ppo-CartPole-v1-1\nhint: continue with" in text

    assert main(["resume", checkpoint, "--steps", "2000", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    with open("runs/ppo-CartPole-v1-1/progress.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["iteration"]) for row in rows] == list(range(1, 33))
    assert int(rows[-1]["steps"]) == 2048 and float(rows[-1]["loss"]) is not None
    assert len(list(Path("runs/ppo-CartPole-v1-1").glob("events.out.tfevents.*"))) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["train", "ppo"], 2, "the following arguments are required: --env"),
        (["train", "sarsa", "--env", "X"], 2, "invalid choice: 'sarsa'"),
        (["train", "ppo", "--env", "CartPoll-v1"], 1, "error: there is no environment 'CartPoll-v1'"),
        (["train", "ppo", "--env", "no_module:Thing"], 1, "No module named 'no_module'"),
        (["train", "ppo", "--env", "CartPole-v1", "--gamma", "2"], 1, "error: PPOConfig.gamma must be"),
        (
            ["train", "ppo", "--env", "CartPole-v1", "--gamma", "x"],
            2,
            "argument --gamma: must be a number, got 'x'",
        ),
        (["train", "dqn", "--env", "Pendulum-v1"], 1, "error: dqn needs discrete actions"),
        (["evaluate", "nothing.aktis"], 1, "error: there is no file nothing.aktis"),
    ],
)
def test_wrong_command_lines_are_explained(
    arguments: list[str], code: int, message: str, capsys: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    from aktis.rl.__main__ import main

    monkeypatch.chdir(tmp_path)
    try:
        found = main(arguments)
    except SystemExit as exit:
        found = exit.code
    assert found == code
    assert message in capsys.readouterr().err


def test_help_names_all_settings(capsys: Any) -> None:
    from aktis.rl.__main__ import main

    with pytest.raises(SystemExit):
        main(["train", "es", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "--episodes-per-policy" in text and "more actors than this make a tree" in text


def test_interrupt_saves_and_a_resumed_run_goes_on(tmp_path: Path) -> None:
    """Ctrl-C on a terminal, which shows the live line."""
    leader, follower = pty.openpty()
    program = [sys.executable, *TRAIN, "--target-return", "none", "--total-steps", "1e9"]
    process = subprocess.Popen(
        program, cwd=tmp_path, stdin=follower, stdout=follower, stderr=follower, start_new_session=True
    )
    os.close(follower)
    shown = b""
    while not re.search(rb"\rppo CartPole-v1  step [\d,]+  return .* steps/s  loss ", shown):
        shown += os.read(leader, 4096)
    os.kill(process.pid, signal.SIGINT)
    try:
        while part := os.read(leader, 4096):
            shown += part
    except OSError:
        pass  # Linux says so when the other end is closed
    os.close(leader)
    assert process.wait() == 130
    text = shown.decode()
    assert "interrupted at step" in text and "Traceback" not in text
    one = aktis.rl.load(tmp_path / "runs/ppo-CartPole-v1-1/checkpoint.aktis", total_steps=1)
    assert one.steps > 0 and one.train().steps == one.steps


def test_interrupt_in_a_program_raises_after_saving(tmp_path: Path) -> None:
    class Interrupting(aktis.rl.PPO):
        def _iterate(self) -> dict[str, Any]:
            if self.iteration == 2:
                signal.raise_signal(signal.SIGINT)
            return super()._iterate()

    one = Interrupting("CartPole-v1", directory=tmp_path, seed=1)
    with pytest.raises(KeyboardInterrupt):
        one.train()
    assert aktis.rl.load(tmp_path / "checkpoint.aktis").iteration == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_checksums_are_those_of_record_files() -> None:
    # CRC-32C of "123456789" is 0xE3069283.
    crc = 0xE3069283
    assert masked_crc32c(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_event_files_hold_one_point_per_curve(tmp_path: Path) -> None:
    file = TensorBoardFile(tmp_path)
    file.write(300, {"ppo/loss": 0.5})
    file.close()
    [path] = tmp_path.iterdir()
    content, records = path.read_bytes(), []
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        assert struct.unpack("<I", content[8:12])[0] == masked_crc32c(content[:8])
        record, content = content[12 : 12 + length], content[12 + length :]
        assert struct.unpack("<I", content[:4])[0] == masked_crc32c(record)
        content = content[4:]
        records.append(record)
    assert b"brain.Event:2" in records[0]
    # Field 2, the step: 300 as a varint. Field 5, the summary: one value with tag (1) and simple_value (2).
    value = b"\x0a\x08ppo/loss" + b"\x15" + struct.pack("<f", 0.5)
    summary = b"\x0a" + bytes([len(value)]) + value
    assert records[1][9:] == b"\x10\xac\x02" + b"\x2a" + bytes([len(summary)]) + summary


def test_the_live_line_is_for_terminals_only() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal, plain = Terminal(), io.StringIO()
    for stream in (terminal, plain):
        line = ProgressLine(None, stream)
        line.show("a longer line")
        line.close("done")
    assert terminal.getvalue() == "\ra longer line\rdone         \n"
    assert plain.getvalue() == ""


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    program = "import sys; sys.modules['torch'] = None\nimport importlib.util\n"
    program += "find = importlib.util.find_spec\n"
    program += "importlib.util.find_spec = lambda name: None if name == 'torch' else find(name)\n"
    program += "import aktis.rl\n"
    done = run_program(["-c", program], tmp_path, check=False)
    assert "aktis.rl needs torch, which is not installed\nhint: pip install 'aktis[rl]'" in done.stderr


def test_workers_for_built_in_environments_do_not_load_torch(shared_session: Any) -> None:
    from aktis.rl.samplers import SamplerHost

    class Host(SamplerHost):
        def has_torch(self) -> bool:
            return "torch" in sys.modules

    one = aktis.rl.PPO("CartPole-v1")
    host = aktis.remote(Host).remote(one.environment, one.spaces, None, True, 2, 1, 0)
    assert aktis.get(host.collect.remote(4, one.policy.native_weights(), "sample", 0.0, False))[
        "rewards"
    ].shape == (4, 2)
    assert not aktis.get(host.has_torch.remote())
