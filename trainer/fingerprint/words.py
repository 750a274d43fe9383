"""What differs between two steps or two data, in the user's words.

Owns the comparison of the parts `step` and `data` of two fingerprints. Promises to name arguments,
constants and operations, never a digest. Refuses to judge a difference (see `compare`), and to
import TensorFlow.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping
from typing import Any

# Not worth a word: these come and go with others.
UNSAID = {"Const", "Identity", "IdentityN", "NoOp", "Placeholder", "ReadVariableOp"}

# Arguments of stages that decide in which order the examples come, and stages that have an order.
_ORDER = {"seed", "seeds inside", "buffer_size", "reshuffle_each_iteration"}
_INDEXED = "Indexed"
_SHUFFLES = {"shuffle", "shuffle_and_repeat", "random"}


def data_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Returns what differs between two data, in words: the order of the examples, and all else.

    Args:
        before: the part `data` of a fingerprint.
        now: that of another.
    """
    order: list[str] = []
    rest: list[str] = []
    if before["kind"] != now["kind"]:
        return [], [f"{before['kind']} -> {now['kind']}"]
    olds, news = before["stages"], now["stages"]
    matcher = difflib.SequenceMatcher(None, [s[0] for s in olds], [s[0] for s in news], False)
    for tag, i, k, j, m in matcher.get_opcodes():
        if tag == "equal":
            for old, new in zip(olds[i:k], news[j:m], strict=True):
                _compare_stage(old, new, order, rest)
            continue
        for word, changed in (("one stage fewer", olds[i:k]), ("one more stage", news[j:m])):
            for name, arguments in changed:
                to = order if name in _SHUFFLES or "seed" in arguments else rest
                to.append(f"{word}: {name}()")
    _compare_files(before.get("files"), now.get("files"), order, rest)
    rest += _array_changes(before["arrays"], now["arrays"], only_values=bool(order or rest))
    if not order and not rest:
        for key, word in (("element", "a batch is"), ("cardinality", "batches of a pass:")):
            if before[key] != now[key]:
                rest.append(f"{word} {before[key]} -> {now[key]}")
    return order, rest


def _compare_stage(old: list[Any], new: list[Any], order: list[str], rest: list[str]) -> None:
    name, was, now = old[0], old[1], new[1]
    if name == _INDEXED:
        return  # told by the source itself when it goes to its position
    for key in sorted({*was, *now}):
        one, two = was.get(key), now.get(key)
        if one == two:
            continue
        to = order if key in _ORDER else rest
        if str(one).startswith("a function #") and str(two).startswith("a function #"):
            if was.get("seeds inside") == now.get("seeds inside"):
                to.append(f"{name}(): its function is another one")
        else:
            to.append(f"{name}(): {key} {_plain(one)} -> {_plain(two)}")


def _plain(value: Any) -> str:
    """Returns a value without the digest that stands for what it holds."""
    if isinstance(value, list):
        return str(value)
    return "nothing" if value is None else str(value).partition(" #")[0]


def _compare_files(before: Any, now: Any, order: list[str], rest: list[str]) -> None:
    if before == now:
        return
    if before is None or now is None:
        rest.append("files are read now" if before is None else "no files are read any more")
        return
    for key, unit in (("count", "files"), ("bytes", "bytes in files")):
        if before[key] != now[key]:
            rest.append(f"{unit} {before[key]:,} -> {now[key]:,}")
            return
    olds, news = (
        [part["each"][place : place + 6] for place in range(0, len(part["each"]), 6)]
        for part in (before, now)
    )
    if sorted(olds) == sorted(news):
        order.append("the same files in another order; where they are listed, use sorted()")
    else:
        differ = sum(old != new for old, new in zip(olds, news, strict=False))
        rest.append(f"{differ} of {before['count']:,} files hold something else")


def _array_changes(before: list[str], now: list[str], *, only_values: bool) -> list[str]:
    gone = list((Counter(before) - Counter(now)).elements())
    new = list((Counter(now) - Counter(before)).elements())
    said = []
    for old, other in zip(gone, new, strict=False):
        one, two = _plain(old), _plain(other)
        if one == two:
            said.append(f"an array {one} in memory holds other values")
        elif not only_values:
            said.append(f"an array in memory {one} -> {two}")
    if len(gone) != len(new) and not only_values:
        said.append(f"arrays in memory {len(before)} -> {len(now)}")
    return said


def step_changes(
    before: Mapping[str, Any], now: Mapping[str, Any], lines: Mapping[str, str]
) -> list[str]:
    """Returns what differs between two steps, in words.

    Args:
        before: the part `step` of a fingerprint.
        now: that of another.
        lines: where the operations of the other stand (see `step.StepForm.lines`).
    """
    if before["digest"] == now["digest"]:
        return []
    said = _changed_constants(before["constants"], now["constants"], lines)
    was, are = Counter(before["operations"]), Counter(now["operations"])
    for sign, more, others in (("more", are - was, was), ("fewer", was - are, are)):
        # First those of a kind that the other does not know: the rest often comes with them.
        for op, count in sorted(more.items(), key=lambda item: (item[0] in others, item[0])):
            if op not in UNSAID:
                amount = "one" if count == 1 else str(count)
                noun = "operation" if count == 1 else "operations"
                where = f" ({lines[op]})" if sign == "more" and op in lines else ""
                said.append(f"{amount} {sign} {noun}: {op}{where}")
    if said:
        return said if len(said) <= 6 else [*said[:5], f"and {len(said) - 5} more"]
    first = f", first {lines['']}" if "" in lines else ""
    return [
        f"the same operations, put together otherwise{first}; where a set is gone through, its "
        "order is another one in each process: use sorted()"
    ]


def _changed_constants(
    before: list[list[Any]], now: list[list[Any]], lines: Mapping[str, str]
) -> list[str]:
    was, are = Counter(dict(before)), Counter(dict(now))
    gone = list((was - are).elements())
    said: dict[str, str] = {}
    for text in are - was:
        kind, _, values = text.partition(" #")
        alike = [o for o in gone if (_plain(o) == kind and values) or not (values or " #" in o)]
        if not alike:
            words = f"one more constant {kind}"
        else:
            gone.remove(alike[0])
            words = (
                f"constant {kind} has other values" if values else f"constant {alike[0]} -> {text}"
            )
        where = f" ({lines[text]})" if text in lines else ""
        said[words] = said.get(words) or where
    for old in gone:
        said[f"one constant fewer: {_plain(old)}"] = ""
    return [words + where for words, where in said.items()]
