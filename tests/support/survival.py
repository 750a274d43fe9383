"""Prints how the contenders come out of the same crashes: `make crash-test` runs it.

    python -m support.survival [FOLDER]

Needs root (to mount) and strace. Each figure is "lost / cases": a case is lost if the resumed run
raised, began anew, went back behind an acknowledged save, or had a value of another step.
"""

import json
import os
import subprocess
import sys
import tempfile

from support import contenders, processes

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CAMPAIGNS = {
    "SIGKILL at a system call": ("kills", *(f"{name}=all" for name in processes.SYSCALLS)),
    "power cut, 0 1 6 12 s after a save": ("cuts", "0,1,6,12"),
    "power cut in the middle": ("cuts", "now*20"),
    "damaged file": ("damage",),
}
# The others stand for comparison: enough cases to see, not a campaign.
BOUNDED = {
    "SIGKILL at a system call": ("kills", *(f"{name}=1,2,3,5,8,13" for name in processes.SYSCALLS))
}


def run(campaign, contender, folder):
    """Returns what came of the cases of one campaign."""
    command, *arguments = campaign
    program = [sys.executable, "-m", "support.processes", command, contender, folder]
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
    out = subprocess.run(
        [*program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        check=True,
        text=True,
        cwd=HERE,
    )
    return [json.loads(line) for line in out.stdout.splitlines() if line.startswith("{")]


def main(scratch):
    """Runs everything and prints the table; exits with 1 if this package lost a case."""
    lost_ours = 0
    for name, campaign in CAMPAIGNS.items():
        for key, contender in contenders.CONTENDERS.items():
            with tempfile.TemporaryDirectory(dir=scratch) as folder:
                chosen = campaign if key == "ours" else BOUNDED.get(name, campaign)
                cases = [case for case in run(chosen, key, folder) if case["crashed"]]
            lost = [case for case in cases if case["wrong"]]
            print(f"{name:<36} {contender.name:<28} {len(lost):>3} lost / {len(cases)}", flush=True)
            for case in lost[:3] if key != "ours" else lost:
                print(f"    {case['case']}: {case['wrong'][:110]}")
            lost_ours += len(lost) if key == "ours" else 0
    return 1 if lost_ours else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else None))
