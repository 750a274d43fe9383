"""A model of what a POSIX file system may hold after the power went.

Operations are recorded as items. An item is durable once a sync that covers it has returned: the
sync of a file covers its content, the sync of a folder the entries made, renamed or removed in it.
Of the items that are not durable at the moment of the cut, any subset may have reached the disk, in
any combination; a file whose content has not is there with no bytes, or with half of them.
"""

import dataclasses
import itertools
import os
import random

from trainer.checkpoints import files

EXHAUSTIVE = 12  # pending items up to which every subset is tried


@dataclasses.dataclass
class Item:
    """One change: `kind` is entry, rename, gone or data."""

    kind: str
    path: str
    other: str = ""
    node: int = 0
    content: bytes | None = None
    durable: bool = False


class Recorder:
    """The local file operations, which it carries out and records."""

    atomic_rename = True

    def __init__(self, root):
        self._files = files.LocalFiles()
        self._root = root
        self.items = []
        self.moments = []  # for each operation: how many items there were, and which were durable
        self._nodes = {}  # path to node, as the program sees it
        self._next = 1

    def __getattr__(self, name):
        return getattr(self._files, name)

    def _moment(self):
        self.moments.append([item.durable for item in self.items])

    def _entry(self, path, content=None):
        self._next += 1
        self._nodes[path] = self._next
        self.items.append(Item("entry", path, node=self._next, content=content))

    def _write(self, path, content):
        if path not in self._nodes:
            self._entry(path, b"")
        self.items.append(Item("data", path, node=self._nodes[path], content=content))

    def make_folder(self, path):
        if not os.path.isdir(path):
            self._files.make_folder(path)
            self._entry(path)
        self._moment()

    def write(self, path, content):
        self._files.write(path, content)
        self._write(path, content)
        self._moment()

    def append(self, path, content):
        self._files.append(path, content)
        self._write(path, self._files.read(path))
        self._moment()

    def write_bundle(self, prefix, tensors, streams):
        self._files.write_bundle(prefix, tensors, streams)
        folder = os.path.dirname(prefix)
        for name in self._files.names(folder):
            self._write(os.path.join(folder, name), self._files.read(os.path.join(folder, name)))
        self._moment()

    def sync(self, path):
        self._files.sync(path)
        for item in self.items:
            if item.kind == "data" and item.node == self._nodes[path]:
                item.durable = True
        self._moment()

    def sync_folder(self, path):
        self._files.sync_folder(path)
        for item in self.items:
            if item.kind != "data" and path in (
                os.path.dirname(item.path),
                os.path.dirname(item.other),
            ):
                item.durable = True
        self._moment()

    def rename(self, old, new):
        self._files.rename(old, new)
        self.items.append(Item("rename", old, new))
        for path in [p for p in self._nodes if p == old or p.startswith(old + "/")]:
            self._nodes[new + path[len(old) :]] = self._nodes.pop(path)
        # What was made in a renamed folder is under its new name from now on.
        self._moment()

    def remove(self, path):
        self._files.remove(path)
        self.items.append(Item("gone", path))
        self._nodes.pop(path, None)
        self._moment()

    def remove_folder(self, path):
        for name in sorted(os.listdir(path)):
            self.remove(os.path.join(path, name))
        os.rmdir(path)
        self.items.append(Item("gone", path))
        self._nodes.pop(path, None)
        self._moment()

    def states(self, moment, samples, seed):
        """Yields what may be on the disk after a cut at a moment: path to content, or None."""
        durable = self.moments[moment]
        pending = [number for number, done in enumerate(durable) if not done]
        seen = set()
        for kept in _subsets(pending, samples, seed):
            for torn in (False, True):
                state = self._replay(len(durable), durable, kept, torn)
                key = tuple(sorted(state.items()))
                if key not in seen:
                    seen.add(key)
                    yield state

    def _replay(self, count, durable, kept, torn):
        names, contents = {self._root: (0, None)}, {}
        for number, item in enumerate(self.items[:count]):
            there = durable[number] or number in kept
            if item.kind == "data":
                if there:
                    contents[item.node] = item.content
                elif torn and item.node not in contents:
                    contents[item.node] = item.content[: len(item.content) // 2]
            elif there and item.kind == "entry":
                names[item.path] = (item.node, item.content)
            elif there and item.kind == "gone":
                names.pop(item.path, None)
            elif item.kind == "rename":
                moved = [p for p in names if p == item.path or p.startswith(item.path + "/")]
                if there:
                    for path in moved:
                        names[item.other + path[len(item.path) :]] = names.pop(path)
        return {
            path: None if content is None else contents.get(node, b"")
            for path, (node, content) in names.items()
            if os.path.dirname(path) in names or path == self._root
        }


def _subsets(pending, samples, seed):
    if len(pending) <= EXHAUSTIVE and 2 ** len(pending) <= max(samples, 64):
        for size in range(len(pending) + 1):
            yield from (set(some) for some in itertools.combinations(pending, size))
        return
    yield set()
    yield set(pending)
    for size in (1, 2):  # pairwise: every two kept, every two lost
        for some in itertools.combinations(pending, size):
            yield set(some)
            yield set(pending) - set(some)
    draw = random.Random(seed)
    for _ in range(samples):
        yield {number for number in pending if draw.random() < 0.5}


def lay_out(state, old_root, new_root):
    """Makes the files of a state under another root."""
    for path in sorted(state):
        target = new_root + path[len(old_root) :]
        if state[path] is None:
            os.makedirs(target, exist_ok=True)
        else:
            with open(target, "wb") as file:
                file.write(state[path])
