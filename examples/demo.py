"""Trains the digits example twice, once cut by a SIGKILL, and compares the two ends.

    python examples/demo.py

Ends with status 0 only if the killed run was killed, resumed where it should, and ended in the very
state of the unbroken run.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

EXAMPLE = pathlib.Path(__file__).with_name("digits.py")
KILL_AT = 140
RESUMES_AT = 120  # the last multiple of 30 before the kill
STEPS = 1000


def main() -> int:
    """Runs the demonstration and returns the exit status."""
    with tempfile.TemporaryDirectory(prefix="demo-") as scratch:
        print(f"1. training, to be killed (SIGKILL) at step {KILL_AT}")
        killed = run(f"{scratch}/cut", kill_at=KILL_AT)
        check(killed.returncode == -signal.SIGKILL, f"status {killed.returncode}, not a SIGKILL")
        print("2. the same command again")
        resumed = run(f"{scratch}/cut")
        check(resumed.returncode == 0, f"the resumed run ended with {resumed.returncode}")
        check(f"resumed at step {RESUMES_AT}" in resumed.stderr, f"not resumed at {RESUMES_AT}")
        print("3. the same training, unbroken")
        unbroken = run(f"{scratch}/unbroken")
        check(unbroken.returncode == 0, f"the unbroken run ended with {unbroken.returncode}")
    accuracy = float(found(r"held-out accuracy ([\d.]+)", resumed.stdout))
    digests = [found(r"state digest (\w+)", result.stdout) for result in (resumed, unbroken)]
    print(f"\nheld-out accuracy     {accuracy:.4f}")
    print(f"digest, broken run    {digests[0]}")
    print(f"digest, unbroken run  {digests[1]}")
    check(digests[0] == digests[1], "the digests differ")
    check(accuracy >= 0.95, f"the accuracy {accuracy} is below 0.95")
    print("equal: the broken run ended bit for bit where the unbroken run ended")
    return 0


def run(folder: str, kill_at: int | None = None) -> subprocess.CompletedProcess:
    """Runs the example and shows its output, indented."""
    command = [
        sys.executable,
        str(EXAMPLE),
        f"--model_dir={folder}",
        f"--max_steps={STEPS}",
        "--save_every_steps=30",
        "--seed=1",
    ]
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
    if kill_at is not None:
        environment["KILL_AT_STEP"] = str(kill_at)
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    for line in (result.stderr + result.stdout).splitlines():
        if ".cc:" not in line and not line.startswith("WARNING: All log"):  # TensorFlow's own
            print(f"   {line}")
    return result


def found(pattern: str, text: str) -> str:
    """Returns the first group of a pattern in a text, or ends the demonstration."""
    match = re.search(pattern, text)
    check(match is not None, f"nothing matches {pattern!r} in:\n{text}")
    return match[1]


def check(condition: bool, otherwise: str) -> None:
    """Ends the demonstration with status 1 unless the condition holds."""
    if not condition:
        sys.exit(f"FAILED: {otherwise}")


if __name__ == "__main__":
    sys.exit(main())
