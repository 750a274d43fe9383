"""The same small training run from every kind of data, each exact after any kill.

    python examples/data_kinds.py --model_dir=runs/kinds --max_steps=300
    python -m trainer prove examples/data_kinds.py:Records --steps=200 --kills=5

The first trains from arrays. The second proves the named kind: Arrays, Augmented, Records,
Shuffled, Interleaved, Generated, or Grained (which needs `pip install grain`).
"""

import os
import tempfile

import numpy as np
import sklearn.datasets
import tensorflow as tf

import trainer

BATCH, PIXELS, FILES = 50, 64, 6
RECORD_BYTES = PIXELS + 8  # the pixels as bytes, then the label as int64


def load():
    """Returns the digits that scikit-learn ships: uint8[1797, 64] and int64[1797]."""
    digits = sklearn.datasets.load_digits()
    return digits.data.astype(np.uint8), digits.target.astype(np.int64)


def folder_of_files():
    """Returns a folder with the digits as fixed-length records and as TFRecord files."""
    folder = os.path.join(tempfile.gettempdir(), "unbroken-data-kinds")
    if os.path.isdir(folder):
        return folder
    images, labels = load()
    rows = [image.tobytes() + label.tobytes() for image, label in zip(images, labels, strict=True)]
    scratch = tempfile.mkdtemp(dir=tempfile.gettempdir())
    with open(os.path.join(scratch, "records"), "wb") as file:
        file.writelines(rows)
    for number in range(FILES):
        with tf.io.TFRecordWriter(os.path.join(scratch, f"{number}.tfrecord")) as writer:
            for row in rows[number::FILES]:
                writer.write(row)
    try:
        os.rename(scratch, folder)
    except OSError:
        return scratch  # another process was faster
    return folder


def decode(content):
    """Turns uint8[B, 72] into float32[B, 64] and int64[B]."""
    return tf.cast(content[:, :PIXELS], tf.float32) / 16.0, tf.bitcast(
        content[:, PIXELS:], tf.int64
    )


class Kind(trainer.Trainer):
    """A linear classifier with momentum."""

    def build(self):
        self.model = tf.keras.Sequential([tf.keras.Input((PIXELS,)), tf.keras.layers.Dense(10)])
        self.optimizer = tf.keras.optimizers.SGD(0.05, momentum=0.9)

    def train_step(self, batch):
        images, labels = batch
        with tf.GradientTape() as tape:
            logits = self.model(images, training=True)
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            )
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"loss": loss}


class Arrays(Kind):
    """Arrays in memory, shuffled by number; 35 whole batches and a short one a pass."""

    def train_dataset(self):
        images, labels = load()
        rows = (images / np.float32(16), labels)
        return trainer.data.Indexed(rows, batch_size=BATCH, drop_remainder=False)


class Augmented(Kind):
    """The same, with noise that belongs to the batch."""

    def train_dataset(self):
        def noisy(batch, seed):
            images, labels = batch
            return images + tf.random.stateless_normal(tf.shape(images), seed, 0.0, 0.1), labels

        images, labels = load()
        rows = (images / np.float32(16), labels)
        return trainer.data.Indexed(rows, batch_size=BATCH, map_fn=noisy)


class Records(Kind):
    """Records of one length in a file, mapped into memory and read in any order."""

    def train_dataset(self):
        path = os.path.join(folder_of_files(), "records")
        records = trainer.data.FixedLengthRecords(path, RECORD_BYTES, decode)
        return trainer.data.Indexed(records, batch_size=BATCH)


class Shuffled(Kind):
    """A `tf.data` pipeline with a shuffle buffer."""

    def train_dataset(self):
        images, labels = load()
        rows = tf.data.Dataset.from_tensor_slices((images / np.float32(16), labels))
        return rows.shuffle(1000).repeat().batch(BATCH).prefetch(tf.data.AUTOTUNE)


class Interleaved(Kind):
    """Files read by turns, in parallel."""

    def train_dataset(self):
        folder = folder_of_files()
        paths = [os.path.join(folder, f"{number}.tfrecord") for number in range(FILES)]
        records = tf.data.Dataset.from_tensor_slices(paths).interleave(
            tf.data.TFRecordDataset,
            cycle_length=FILES,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        rows = records.batch(BATCH).map(lambda content: tf.io.decode_raw(content, tf.uint8))
        return rows.map(decode, num_parallel_calls=tf.data.AUTOTUNE)


class Generated(Kind):
    """A Python generator: its batches are drawn again after a restart."""

    def train_dataset(self):
        images, labels = load()

        def batches():
            for first in range(0, len(labels), BATCH):
                chosen = slice(first, first + BATCH)
                yield images[chosen] / np.float32(16), labels[chosen]

        spec = (tf.TensorSpec([None, PIXELS], tf.float32), tf.TensorSpec([None], tf.int64))
        return tf.data.Dataset.from_generator(batches, output_signature=spec)


class Grained(Kind):
    """A Grain pipeline, which keeps its own position."""

    def train_dataset(self):
        import grain.python as grain

        images, labels = load()
        rows = grain.MapDataset.source(list(zip(images / np.float32(16), labels, strict=True)))
        return rows.shuffle(seed=7).batch(BATCH).to_iter_dataset()


if __name__ == "__main__":
    trainer.app.run(Arrays, hooks=lambda: [trainer.LogProgress(every_steps=100)])
