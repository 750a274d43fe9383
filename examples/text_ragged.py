"""Classifies lines of text of any length: ragged batches, and weights for rare classes.

    python examples/text_ragged.py --model_dir=runs/text --max_steps=1200
    python -m trainer prove examples/text_ragged.py:RaggedText --steps=200 --kills=3

Which data set does a line of scikit-learn's descriptions speak of? The longest description has
many times as many lines as the shortest, so each line counts as much as its class is rare.
"""

import collections
import importlib.resources
import re

import numpy as np
import tensorflow as tf

import trainer

BATCH, WIDTH, EVERY = 32, 32, 5  # every fifth line is held out


def load_lines():
    """Returns the lines with three words and more, as lists of words, and the file of each."""
    folder = importlib.resources.files("sklearn.datasets.descr")
    files = sorted(file.name for file in folder.iterdir() if file.name.endswith(".rst"))
    lines, labels = [], []
    for label, name in enumerate(files):
        for line in folder.joinpath(name).read_text(encoding="utf-8").splitlines():
            words = re.findall(r"[a-z]+|[0-9]+", line.lower())
            if len(words) >= 3:
                lines.append(words)
                labels.append(label)
    return lines, np.array(labels, np.int64)


class RaggedText(trainer.Trainer):
    """Embeds the words and takes the mean over a line."""

    def build(self):
        lines, labels = load_lines()
        training = np.arange(len(lines)) % EVERY != 0
        counts = collections.Counter(
            word for line, used in zip(lines, training, strict=True) if used for word in line
        )
        known = [word for word, count in counts.most_common() if count > 1]
        number = {word: at for at, word in enumerate(known, start=1)}  # 0 is for all others
        words = tf.ragged.constant(
            [[number.get(word, 0) for word in line] for line in lines], dtype=tf.int32
        )
        self.rows = {
            "train": (tf.ragged.boolean_mask(words, training), labels[training]),
            "eval": (tf.ragged.boolean_mask(words, ~training), labels[~training]),
        }
        classes = int(labels.max()) + 1
        share = np.bincount(labels[training], minlength=classes) / training.sum()
        self.class_weights = tf.constant(1.0 / (classes * share), tf.float32)
        self.embedding = tf.keras.layers.Embedding(len(known) + 1, WIDTH)
        self.dropout = tf.keras.layers.Dropout(0.3)
        self.head = tf.keras.layers.Dense(classes)
        self.optimizer = tf.keras.optimizers.Adam(3e-3)

    def train_dataset(self):
        words, labels = self.rows["train"]
        numbers = tf.data.Dataset.range(len(labels)).shuffle(len(labels)).batch(BATCH)

        def lines(chosen):  # the buffer holds numbers, which are smaller in a checkpoint than lines
            return tf.gather(words, chosen), tf.gather(labels, chosen)

        return numbers.map(lines, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    def eval_dataset(self):
        return tf.data.Dataset.from_tensor_slices(self.rows["eval"]).ragged_batch(100)

    def logits(self, words, training):
        """Returns the logits of each line: a ragged int32[B, (words)] to float32[B, classes]."""
        embedded = words.with_values(self.embedding(words.values))
        mean = tf.reduce_mean(embedded, axis=1)
        return self.head(self.dropout(mean, training=training))

    def losses(self, labels, logits):
        """Returns the loss of each line."""
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)

    def train_step(self, batch):
        words, labels = batch
        weights = tf.gather(self.class_weights, labels)
        with tf.GradientTape() as tape:
            losses = self.losses(labels, self.logits(words, training=True))
            loss = tf.reduce_sum(weights * losses) / tf.reduce_sum(weights)
        variables = self.embedding.trainable_variables + self.head.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"loss": loss, "words": tf.reduce_mean(tf.cast(words.row_lengths(), tf.float32))}

    def eval_step(self, batch):
        words, labels = batch
        right = tf.argmax(self.logits(words, training=False), axis=1) == labels
        return {"accuracy": tf.reduce_mean(tf.cast(right, tf.float32))}


class Report(trainer.Hook):
    """Prints the accuracy on the held-out lines when a run ends."""

    def end(self, ctx):
        if ctx.error is None:
            print(f"held-out accuracy {ctx.trainer.evaluate()['accuracy']:.4f}")

    def get_state(self):
        return {}


if __name__ == "__main__":
    trainer.app.run(RaggedText, hooks=lambda: [trainer.LogProgress(every_steps=200), Report()])
