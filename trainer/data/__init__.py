"""Training data, and where a run is in it: `trainer.data`.

Owns data that is addressed by number (`indexed`, `records`) and the sources that a run draws from,
one for each kind of data (`sources` chooses; `dataset_source` with `saveable`, `indexed_source`,
`python_source`; what they have in common is in `position`). Promises that how the position
survives a restart is decided, and said, at construction. Refuses to know steps or checkpoints: a
position is the number of batches drawn.
"""

from trainer import graph  # noqa: F401 (first: it says what is wrong with TensorFlow)

# isort: split
from trainer.data.indexed import Indexed
from trainer.data.records import ArrayRecords, FixedLengthRecords

__all__ = ["ArrayRecords", "FixedLengthRecords", "Indexed"]
