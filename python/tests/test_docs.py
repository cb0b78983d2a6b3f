"""Runs the programs of the guides for Python, and the examples.

The blocks of one section are one program. A comment behind a `print` is what it prints; `...` in it stands
for anything.
"""

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from support import run_program

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "python"

#: What the examples print, whatever the machine: lines that must be there, in this order.
EXPECTED = {
    "quickstart.py": [
        "squares: [0, 1, 4, 9, 16, 25, 36, 49, 64, 81]",
        "their sum: 285",
        "most frequent: the 9",
    ],
    "monte_carlo_pi.py": [
        "...% of the points",
        "π is about 3.14..., off by 0.00...",
        "800,000 points in ... s",
    ],
    "own_environment.py": [
        "falling: a return of -...",
        "landing: a return of -...",
        "... steps, 0 failures of environments",
    ],
    "parameter_server.py": [
        "sync: 400 steps in ... s, ...% of new digits right",
        "async: 800 steps in ... s, ...% of new digits right",
    ],
    "train_torch.py": [
        "epoch 0: ...% right",
        "epoch 2: ...% right",
        "epoch 3: ...% right",
        "killed 1 time, and done: ...% of new pictures right",
    ],
    "tune_pbt.py": ["loss 0.494 to 0..., rates 0.0001 0...", "the best has 1 file of weights"],
    "async_actor.py": [
        "90 calls, 3 requests to the source: 4200 paid",
        "... s, although each call waits for 0.2 s",
    ],
    "allreduce.py": ["weights: +3.00 -2.00 +0.50", "all workers have the same: True"],
    "streaming.py": [
        "... s  reading 0: ",
        "... s  reading 11: ",
        "from being made to being shown: ... ms at most",
    ],
    "ppo_cartpole.py": [
        "... steps in ... s: mean return ...",
        "evaluated over 100 episodes: ...",
        "one episode in Gymnasium's own CartPole: ... points",
    ],
    "dqn_cartpole.py": ["... steps in ... s; target reached: ...", "evaluated over 100 episodes: ..."],
    "impala_cartpole.py": [
        "... steps in ... s, ... steps/s",
        "mean return ...; target reached: ...",
        "evaluated over 100 episodes: ...",
    ],
    "es_pendulum.py": [
        "... generations, ... steps, ... s",
        "target of -200 reached: ...",
        "evaluated over 500 episodes: -...",
    ],
    "rl_loop.py": [
        "a game with the policy after       0 steps: ... points",
        "trained for ... steps in ... s, and served ... games",
        "games with the final policy: ... points",
    ],
}

#: Examples that are cut short here.
ARGUMENTS = {
    "ppo_cartpole.py": ["--steps", "5000"],
    "dqn_cartpole.py": ["--steps", "3000"],
    "impala_cartpole.py": ["--steps", "20000"],
    "es_pendulum.py": ["--steps", "300000"],
    "rl_loop.py": ["--steps", "20000"],
}


class Section(NamedTuple):
    """The program that the blocks of a section make up, with the document's line numbers."""

    document: str
    title: str
    program: str

    def __str__(self) -> str:
        return f"{self.document}: {self.title}"


def sections(document: str) -> list[Section]:
    text = (ROOT / "docs" / document).read_text()
    found: list[Section] = []
    title, lines, in_block = "", list[str](), False

    def close() -> None:
        program = "\n".join(lines) + "\n"
        if program.strip():
            found.append(Section(document, title, program))

    for number, line in enumerate(text.splitlines()):
        if not in_block and line.startswith("## "):
            close()
            title, lines = line.removeprefix("## "), [""] * (number + 1)
            continue
        was_in_block = in_block
        if line.startswith("```"):
            in_block = line == "```python"
        lines.append(line if in_block and was_in_block else "")
    close()
    return found


def expected_output(program: str) -> list[str]:
    """The comments behind calls of `print`."""
    prints = {
        node.end_lineno
        for node in ast.walk(ast.parse(program))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    comments = []
    for number, line in enumerate(program.splitlines(), 1):
        if number in prints and (comment := re.search(r"\)  # (.*)$", line)):
            comments.append(comment[1])
    return comments


def check_output(output: str, expected: list[str]) -> None:
    """The expected lines are among those of the output, in this order."""
    lines = iter(output.splitlines())
    for line in expected:
        pattern = re.compile(".*".join(re.escape(part) for part in line.split("...")))
        assert any(pattern.fullmatch(other) for other in lines), f"not printed: {line}\n{output}"


DOCUMENTS = [
    *("python.md", "coming-from-ray.md"),
    *("simulate.md", "learning.md", "collective.md", "train.md", "tune.md"),
]
SECTIONS = [section for document in DOCUMENTS for section in sections(document)]


@pytest.mark.parametrize("section", SECTIONS, ids=str)
def test_section(section: Section, tmp_path: Path) -> None:
    program = tmp_path / "section.py"
    program.write_text(section.program)
    done = run_program([str(program)], tmp_path, timeout=60)
    check_output(done.stdout, expected_output(section.program))


@pytest.mark.parametrize("example", sorted(EXPECTED))
def test_example(example: str, tmp_path: Path) -> None:
    done = run_program([str(EXAMPLES / example), *ARGUMENTS.get(example, [])], tmp_path, timeout=60)
    check_output(done.stdout, EXPECTED[example])
    assert done.stderr == ""


def test_all_examples_are_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(EXPECTED)
    readme = (EXAMPLES / "README.md").read_text()
    assert all(f"]({name})" in readme for name in EXPECTED)


def test_the_guide_shows_what_it_prints() -> None:
    """Guards the reader of the document above: it must find blocks and comments."""
    assert len(SECTIONS) >= 18
    assert sum(len(expected_output(section.program)) for section in SECTIONS) >= 50
    with pytest.raises(AssertionError, match="not printed: 2"):
        check_output("1\n3\n", ["1", "2"])
