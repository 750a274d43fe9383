"""Records in files, as sources of `Indexed`.

Owns `FixedLengthRecords` and `ArrayRecords`. Promises to read only the records that are asked for.
Refuses to know their order (see `indexed`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.base import arguments


class FixedLengthRecords:
    """Records of one length in a file, mapped into memory and read where they are asked for.

    Args:
        path: a local file.
        record_bytes: bytes of one record.
        decode: takes uint8[B, record_bytes] and returns the batch, with TensorFlow operations.

    Raises:
        ValueError: the file is not a whole number of records.
    """

    def __init__(self, path: str, record_bytes: int, decode: Callable[[tf.Tensor], Any]):
        self._path = os.fspath(path)
        self._record_bytes = arguments.whole("record_bytes", record_bytes, 1)
        self._decode = decode
        try:
            size = os.stat(self._path).st_size
        except OSError as error:
            raise ValueError(f"{self._path} cannot be read ({error.strerror})") from error
        self._count, rest = divmod(size, self._record_bytes)
        if rest:
            raise ValueError(
                f"{self._path} has {size:,} bytes, which is no multiple of "
                f"record_bytes={record_bytes}"
            )

    def __len__(self) -> int:
        return self._count

    def lookup(self, indices: tf.Tensor) -> Any:
        """Returns the records at int64[B]; the kernel reads only the pages they lie on."""
        content = tf.raw_ops.ImmutableConst(
            dtype=tf.uint8,
            shape=[self._count, self._record_bytes],
            memory_region_name=self._path,
        )
        return self._decode(tf.gather(content, indices))


class ArrayRecords:
    """Records of files in the ArrayRecord format (the extra `data` of this package).

    Args:
        paths: the files.
        decode: takes string[B] and returns the batch, with TensorFlow operations.
    """

    def __init__(self, paths: Sequence[str], decode: Callable[[tf.Tensor], Any]):
        try:
            from array_record.python import array_record_data_source
        except ImportError as error:
            raise ImportError(
                "ArrayRecords needs the package array_record: pip install array_record"
            ) from error
        self._records = array_record_data_source.ArrayRecordDataSource(
            [os.fspath(path) for path in paths]
        )
        self._decode = decode

    def __len__(self) -> int:
        return len(self._records)

    def lookup(self, indices: tf.Tensor) -> Any:
        """Returns the records at int64[B]."""

        def read(numbers: Any) -> Any:
            return np.array(self._records.__getitems__(numbers.tolist()), object)

        records = tf.numpy_function(read, [indices], tf.string, stateful=False)
        return self._decode(tf.ensure_shape(records, indices.shape))
