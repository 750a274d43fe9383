"""What it costs to address data by number, beside a shuffle buffer and beside reading in order.

    python benchmarks/data.py                 every figure (about two minutes)
    python benchmarks/data.py speed resume    some of them

Figures: speed, resume, position, records. Pairs in one run (see pairs.py).
"""

import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pairs
import tensorflow as tf

import trainer
from trainer.base.log import LOG
from trainer.checkpoints import store

BATCH = 64
RECORD_BYTES, RECORDS = 3072, 50_000


def images():
    """Returns 50,000 images of 28x28 and their labels."""
    draw = np.random.default_rng(0)
    pixels = draw.random((50_000, 28, 28), np.float32)
    return {"image": pixels, "label": np.arange(50_000, dtype=np.int64)}


def rate(iterator, batches):
    """Returns a function that draws batches in the graph and returns how many a second."""

    @tf.function
    def draw(iterator, count):
        done = tf.constant(0)
        while done < count:
            batch = next(iterator)
            done += tf.minimum(1, tf.size(tf.nest.flatten(batch)[0]))
        return done

    def run():
        begun = time.perf_counter()
        draw(iterator, tf.constant(batches))
        return batches / (time.perf_counter() - begun)

    return run


def speed(scratch):
    """Batches a second of arrays in memory."""
    rows = images()
    indexed = trainer.data.Indexed(rows, batch_size=BATCH, seed=7)
    buffered = (
        tf.data.Dataset.from_tensor_slices(rows)
        .shuffle(50_000, seed=7)
        .repeat()
        .batch(BATCH, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )
    found = pairs.alternate(
        11, rate(iter(indexed.dataset()), 1500), rate(iter(buffered), 1500), warm_up=2
    )
    result = pairs.Result("Indexed over shuffle, arrays", *found, unit="1/s")
    print(result.line(1.0, at_most=False), flush=True)


class Images(trainer.Trainer):
    """Draws images and counts them."""

    rows = None

    def build(self):
        self.count = tf.Variable(0, dtype=tf.int64)

    def train_dataset(self):
        return trainer.data.Indexed(self.rows, batch_size=BATCH, seed=7)

    def train_step(self, batch):
        self.count.assign_add(tf.size(batch["label"], out_type=tf.int64))
        return {"first": tf.cast(batch["label"][0], tf.float32)}


def resume(scratch):
    """How long it takes to open the data at a step and draw its batch, far and near."""
    indexed = trainer.data.Indexed(images(), batch_size=BATCH, seed=7)

    def first_batch(start):
        begun = time.perf_counter()
        next(iter(indexed.dataset(start)))
        return time.perf_counter() - begun

    for far in (10_000, 1_000_000):
        found = pairs.alternate(
            11, lambda far=far: first_batch(far), lambda: first_batch(10), warm_up=2
        )
        result = pairs.Result(f"first batch at {far:,} over at 10", *found)
        print(result.line(1.25), flush=True)
        print(f"    slowest of all: {max(found[0] + found[1]):.3f} s (at most 0.2)")


def position(scratch):
    """The bytes that keep the position in a checkpoint."""
    Images.rows = images()
    config = trainer.TrainerConfig(os.path.join(scratch, "run"), save_every_secs=1e9)
    with Images(config) as program:
        program.train(max_steps=10)
    tensors = store.Store(os.path.join(scratch, "run")).manifest(10).tensors
    size = sum(
        int(np.prod(shape)) * tf.as_dtype(dtype).size
        for name, (dtype, shape) in tensors.items()
        if name.startswith("trainer/data/")
    )
    print(
        f"position in the checkpoint: {size} bytes (below 100: {'met' if size < 100 else 'MISSED'})"
    )


def records(scratch):
    """Records on disk in a random order, beside a TFRecord file read in order; page cache warm."""
    content = np.random.default_rng(0).integers(0, 256, (RECORDS, RECORD_BYTES), np.uint8)
    path = os.path.join(scratch, "records")
    content.tofile(path)
    with tf.io.TFRecordWriter(os.path.join(scratch, "tfrecords")) as writer:
        for row in content:
            writer.write(row.tobytes())
    source = trainer.data.FixedLengthRecords(path, RECORD_BYTES, lambda rows: rows)
    indexed = trainer.data.Indexed(source, batch_size=BATCH, seed=7)
    in_order = (
        tf.data.TFRecordDataset(os.path.join(scratch, "tfrecords"))
        .repeat()
        .batch(BATCH, drop_remainder=True)
        .map(lambda rows: tf.io.decode_raw(rows, tf.uint8), num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )
    batches = RECORDS // BATCH
    found = pairs.alternate(
        11, rate(iter(indexed.dataset()), batches), rate(iter(in_order), batches), warm_up=2
    )
    result = pairs.Result("records at random over TFRecord in order", *found, unit="1/s")
    print(result.line(0.8, at_most=False), flush=True)
    cold(path, indexed, batches)


def cold(path, indexed, batches):
    """Prints what random access costs when the file is not in the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    found = rate(iter(indexed.dataset()), batches)()
    megabytes = found * BATCH * RECORD_BYTES / 1e6
    print(
        f"    page cache cold: {found:,.0f} batches/s, {megabytes:,.0f} MB/s of records at random"
    )


FIGURES = {f.__name__: f for f in (speed, resume, position, records)}

if __name__ == "__main__":
    LOG.setLevel("ERROR")
    pairs.table(FIGURES, sys.argv[1:])
